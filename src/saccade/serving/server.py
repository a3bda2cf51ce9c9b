"""The process of a service, or several of them on one socket. A signal stops them once accepted requests are answered."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import mmap
import os
import signal
import socket
import struct
import sys
import threading
import time
from array import array
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
import uvicorn
from prometheus_client.multiprocess import mark_process_dead

from ..errors import SaccadeError
from .protocol import MAX_CONNECTIONS, Protocol, allow_connections
from .service import Service
from .service_settings import STOP_SECONDS, Settings

Counts = list[int] | memoryview
SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1")
    if hasattr(signal, name)
)
SO_ATTACH_FILTER, BPF_RETURN = 26, 6  # of Linux
BACKLOG = 2048  # connections that wait to be taken
# of an answer that the system holds until the client reads them; by itself it would take megabytes
SEND_BUFFER_BYTES = 128 * 1024
# seconds after which the thread of HTTP and the one of the models let each other run
SWITCH_SECONDS = 0.0005
YIELD_SECONDS = 0.002  # seconds in which a process with fewer connections can take one
LAST_ANSWER_SECONDS = 0.5  # seconds in which connections that are open get answers after SIGTERM
NOT_READY = 2**31 - 1  # in place of the number of connections, until a worker has loaded its models
# workers that end before they are ready, within this time, end the service
MAX_FAILURES, FAILURE_SECONDS = (5, 60.0)
USER_ERROR_CODE = 2  # the exit code after a SaccadeError, which another start does not change
log = logging.getLogger("saccade.serving")


def stop_signals() -> list[signal.Signals]:
    """The signals that stop a service in order; those that `nohup` ignores stay ignored."""
    always = (signal.SIGTERM, signal.SIGINT)
    return [sign for sign in SIGNALS if sign in always or signal.getsignal(sign) != signal.SIG_IGN]


class Server(uvicorn.Server):
    """Ends with 0 once accepted requests are answered. `counts`: how many connections each process has that shares the socket."""

    def __init__(
        self, config: uvicorn.Config, service: Service, counts: Counts, number: int
    ) -> None:
        super().__init__(config)
        self.service, self.counts, self.number = service, counts, number
        self.coming: set[asyncio.Future[Any]] = set()

    async def startup(self, sockets: Any = None) -> None:
        # connections are accepted here, one at a time, so that surplus ones can be refused
        await super().startup([])
        for here in sockets or ():
            if not self.should_exit:
                self.watch(here)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Every stop signal ends the service in order, and is not raised again at the end."""
        before = {sign: signal.signal(sign, self.handle_exit) for sign in stop_signals()}
        try:
            yield
        finally:
            for sign, handler in before.items():
                signal.signal(sign, handler)

    async def on_tick(self, counter: int) -> bool:
        self.counts[self.number] = len(self.server_state.connections)
        return await super().on_tick(counter)

    def watch(self, here: socket.socket) -> None:
        if not self.service.stopping:
            asyncio.get_running_loop().add_reader(here, self.take, here)

    def take(self, here: socket.socket) -> None:
        """Takes a connection, unless another process has fewer: that one gets a moment to do it."""
        count = self.counts[self.number] = len(self.server_state.connections)
        if count > min(self.counts):
            self.wait(here, self.take_now)
        else:
            self.take_now(here)

    def wait(self, here: socket.socket, then: Any) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(here)
        loop.call_later(YIELD_SECONDS, then, here)

    def take_now(self, here: socket.socket) -> None:
        if self.service.stopping:
            return
        try:
            came = here.accept()[0]
        except (
            OSError
        ):  # another process took it, it is gone, or no file is left for it at the moment
            self.wait(here, self.watch)
            return
        came.setblocking(False)
        task = asyncio.ensure_future(
            asyncio.get_running_loop().connect_accepted_socket(self.protocol, came)
        )
        self.coming.add(task)
        task.add_done_callback(self.coming.discard)
        self.watch(here)

    async def shutdown(self, sockets: Any = None) -> None:
        """Accepts the connections that the system has queued and no further ones; requests on open ones get a last answer."""
        self.service.stop()
        if len(self.counts) == 1:  # else the other processes may continue to accept
            ignore_arrivals(*(sockets or ()))
        loop, came = asyncio.get_running_loop(), list[socket.socket]()
        for here in sockets or ():
            loop.remove_reader(here)
            # the queue is empty: closed right then, before another connection enters it
            with contextlib.suppress(OSError):
                while len(came) < MAX_CONNECTIONS:
                    came.append(here.accept()[0])
            here.close()
        for one in came:
            await loop.connect_accepted_socket(self.protocol, one)
        end = loop.time() + LAST_ANSWER_SECONDS
        while self.server_state.connections and loop.time() < end:
            await asyncio.sleep(0.02)
        await super().shutdown()

    def protocol(self) -> Protocol:
        return Protocol(self.config, self.server_state, self.lifespan.state)


def serve(settings: Settings, say: Any) -> int:
    """Serves until a signal ends it; the exit code."""
    allow_connections()
    Protocol.seconds = settings.limits.seconds
    here = bind(settings)
    with here:
        address = f"[{settings.host}]" if ":" in settings.host else settings.host
        where = f"http://{address}:{here.getsockname()[1]}"
        if settings.workers == 1:
            return run(settings, here, lambda: say(where))
        say(where)
        return Workers(settings, here).run()


def bind(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # named, or asyncio leaves Nagle's algorithm on: 40 ms an answer
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)  # of each connection
    try:
        made.bind((settings.host, settings.port))
        made.listen(BACKLOG)  # early connections wait until the service is ready
        made.setblocking(False)
    except (OSError, OverflowError) as error:
        made.close()
        why = getattr(error, "strerror", None) or error
        raise SaccadeError(
            f"cannot listen at {settings.host}:{settings.port} ({why}); choose others with --host and --port",
            code="cannot-listen",
        ) from None
    return made


def ignore_arrivals(*listening: socket.socket) -> None:
    """On Linux, the system drops each new handshake from now on, so that the queue of a socket can be emptied before it is closed.

    Without it, a connection that arrives between the last `accept` and `close` is reset. Its client tries again and is refused."""
    # a packet filter that keeps 0 bytes
    code = ctypes.create_string_buffer(struct.pack("HBBI", BPF_RETURN, 0, 0, 0))
    for here in listening if sys.platform == "linux" else ():
        with contextlib.suppress(OSError):  # a sandbox may forbid it
            here.setsockopt(
                socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(code))
            )


def run(
    settings: Settings,
    here: socket.socket,
    ready: Any = lambda: None,
    counts: Counts | None = None,
    number: int = 0,
) -> int:
    """One process, or one of several."""
    if "OMP_NUM_THREADS" not in os.environ:  # a core is left for HTTP
        torch.set_num_threads(max(((os.cpu_count() or 1) - 1) // settings.workers, 1))
    service = Service(settings)
    service.load()
    config = uvicorn.Config(
        service.app(),
        http=Protocol,
        access_log=False,
        log_level="error",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(STOP_SECONDS),
    )
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.collect()
    gc.freeze()  # loaded objects stay: each full collection would pause every request
    ready()
    Server(config, service, counts or [0], number).run([here])
    return 0


class Workers:
    """Processes on one socket. One that dies is replaced; several that never become ready end the service."""

    def __init__(self, settings: Settings, here: socket.socket) -> None:
        self.settings, self.here, self.ending, self.code = settings, here, False, 0
        # connections of each, which all see
        self.counts = memoryview(mmap.mmap(-1, 4 * settings.workers)).cast("i")
        self.counts[:] = array("i", [NOT_READY] * settings.workers)
        self.children: dict[int, int] = {}  # process → number
        self.served = False  # whether any worker was ready
        self.failed: deque[float] = deque(maxlen=MAX_FAILURES)  # times
        # its writing end is open in this process alone, and closed with it however it ends
        self.alive = os.pipe()

    def run(self) -> int:
        gc.freeze()  # workers share the imported modules, and the exit needs no full collection
        for sign in stop_signals():
            signal.signal(sign, self.end)
        while True:
            while len(self.children) < self.settings.workers and not self.ending:
                self.start(min(set(range(self.settings.workers)) - set(self.children.values())))
            if self.ending:  # maybe while a worker was started
                self.end()
            if not self.children:
                return self.code
            child, status = os.wait()
            if child in self.children:
                self.ended(child, os.waitstatus_to_exitcode(status))

    def end(self, *_: Any) -> None:
        """Closes the socket, so that no connection is queued here that no worker will accept, and stops the workers."""
        self.ending = True
        if self.here.fileno() != -1:
            ignore_arrivals(self.here)
        self.here.close()
        for child in list(self.children):
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(child, signal.SIGTERM)

    def ended(self, child: int, code: int) -> None:
        number = self.children.pop(child)
        ready = self.counts[number] != NOT_READY
        self.served = self.served or any(count != NOT_READY for count in self.counts)
        self.counts[number] = NOT_READY
        mark_process_dead(child)  # its counters stay, its gauges go
        if self.ending:
            return
        how = f"with code {code}" if code >= 0 else f"by signal {-code} ({signal.strsignal(-code)})"
        log.warning(
            "worker %d (process %d) ended %s%s",
            number + 1,
            child,
            how,
            "" if ready else " before it was ready",
        )
        if not ready:
            self.failed.append(time.monotonic())
            if code == USER_ERROR_CODE and not self.served:
                self.code = code
                self.end()
            elif (
                len(self.failed) == MAX_FAILURES
                and self.failed[-1] - self.failed[0] < FAILURE_SECONDS
            ):
                log.error(
                    "%d workers ended within %g seconds before they were ready; the service ends",
                    MAX_FAILURES,
                    FAILURE_SECONDS,
                )
                self.code = 1
                self.end()

    def start(self, number: int) -> None:
        # a signal waits until the worker has its own handlers
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        child = os.fork()
        if child:
            self.children[child] = number
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            return
        code = 1
        try:
            for sign in stop_signals():
                signal.signal(sign, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(self.alive[1])
            threading.Thread(target=self.end_with_parent, daemon=True).start()
            code = run(self.settings, self.here, counts=self.counts, number=number)
        except SaccadeError as error:
            print(f"saccade: {error.shell}", file=sys.stderr, flush=True)
            code = USER_ERROR_CODE
        except BaseException:
            log.exception("worker %d failed", number + 1)
        finally:
            os._exit(code)

    def end_with_parent(self) -> None:
        os.read(self.alive[0], 1)  # nothing is ever written: it returns when the parent is gone
        os.kill(os.getpid(), signal.SIGTERM)
