"""The process of a service, or several of them on one socket: started, stopped by SIGTERM when all is answered."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import mmap
import os
import signal
import socket
import sys
import time
from typing import Any

import torch
import uvicorn
from prometheus_client.multiprocess import mark_process_dead

from ..errors import SaccadeError
from .protocol import CONNECTIONS, Protocol, allow_connections
from .service import Service
from .settings import STOPPING, Settings

Counts = list[int] | memoryview
HEADERS = 32 * 1024  # bytes of a request's headers
BACKLOG = 2048  # connections that wait to be taken
TURN = 0.0005  # seconds after which the thread of HTTP and the one of the models let each other run
YIELD = 0.002  # seconds in which a process with fewer connections can take one
LAST_CALL = 0.5  # seconds in which connections that are open get answers after SIGTERM


class Server(uvicorn.Server):
    """Ends with 0 once accepted requests are answered. `counts`: how many connections each process has that shares the socket."""

    def __init__(self, config: uvicorn.Config, service: Service, counts: Counts, number: int) -> None:
        super().__init__(config)
        self.service, self.counts, self.number = service, counts, number
        self.coming: set[asyncio.Future[Any]] = set()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        for here in sockets or ():
            if len(self.counts) > 1 and not self.should_exit:
                self.watch(here)

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
        loop.call_later(YIELD, then, here)

    def take_now(self, here: socket.socket) -> None:
        if self.service.stopping:
            return
        try:
            came = here.accept()[0]
        except OSError:  # another process took it, it is gone, or no file is left for it at the moment
            self.wait(here, self.watch)
            return
        came.setblocking(False)
        task = asyncio.ensure_future(asyncio.get_running_loop().connect_accepted_socket(self.protocol, came))
        self.coming.add(task)
        task.add_done_callback(self.coming.discard)
        self.watch(here)

    async def shutdown(self, sockets: Any = None) -> None:
        """Nobody new comes in; who has a connection and is about to ask gets an answer too, the last on it."""
        self.service.stop()
        loop, came = asyncio.get_running_loop(), list[socket.socket]()
        for here in sockets or ():
            loop.remove_reader(here)
            with contextlib.suppress(BlockingIOError):  # connections that the system has made and nobody took
                while len(came) < CONNECTIONS:
                    came.append(here.accept()[0])
        for server in self.servers:
            server.close()
        for one in came:
            await loop.connect_accepted_socket(self.protocol, one)
        end = loop.time() + LAST_CALL
        while self.server_state.connections and loop.time() < end:
            await asyncio.sleep(0.02)
        await super().shutdown(sockets)
        self._captured_signals.clear()  # it has been obeyed

    def protocol(self) -> Protocol:
        return Protocol(self.config, self.server_state, self.lifespan.state)


def serve(settings: Settings, say: Any) -> int:
    """Serves until a signal ends it; the exit code."""
    here = bind(settings)
    with here:
        address = f"[{settings.host}]" if ":" in settings.host else settings.host
        where = f"http://{address}:{here.getsockname()[1]}"
        if settings.workers == 1:
            return run(settings, here, lambda: say(where))
        say(where)
        return run_many(settings, here)


def bind(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    made = socket.socket(
        family, socket.SOCK_STREAM, socket.IPPROTO_TCP
    )  # named, or asyncio leaves Nagle's algorithm on: 40 ms an answer
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((settings.host, settings.port))
        made.listen(BACKLOG)  # who comes before all is ready waits
    except (OSError, OverflowError) as error:
        made.close()
        why = getattr(error, "strerror", None) or error
        raise SaccadeError(
            f"cannot listen at {settings.host}:{settings.port} ({why}); choose others with --host and --port"
        ) from None
    return made


def run(settings: Settings, here: socket.socket, ready: Any = lambda: None, counts: Counts | None = None, number: int = 0) -> int:
    """One process, or one of several."""
    if "OMP_NUM_THREADS" not in os.environ:  # a core is left for HTTP
        torch.set_num_threads(max(((os.cpu_count() or 1) - 1) // settings.workers, 1))
    allow_connections()
    service = Service(settings)
    service.load()
    config = uvicorn.Config(
        service.app(),
        http=Protocol,
        access_log=False,
        log_level="error",
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=HEADERS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(STOPPING),
    )
    sys.setswitchinterval(TURN)
    gc.collect()
    gc.freeze()  # what is loaded stays: looking through all of it again and again would stop every request for a while
    ready()
    Server(config, service, counts or [0], number).run([here])
    return 0


def run_many(settings: Settings, here: socket.socket) -> int:
    """Several processes; one that dies is started again, and one that cannot start ends all."""
    ending = False

    def end(*_: Any) -> None:
        nonlocal ending
        ending = True
        for each in children:
            os.kill(each, signal.SIGTERM)

    children: dict[int, tuple[float, int]] = {}  # when each began, and its number
    counts = memoryview(mmap.mmap(-1, 4 * settings.workers)).cast("i")  # which all of them see
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, end)
    code = 0
    while children or not ending:
        while len(children) < settings.workers and not ending:
            number = min(set(range(settings.workers)) - {number for _, number in children.values()})
            counts[number] = 0
            children[start(settings, here, counts, number)] = time.monotonic(), number
        child, status = os.wait()
        begun, _ = children.pop(child, (0.0, 0))
        mark_process_dead(child)  # what it counted stays, what it was doing does not
        if not ending and time.monotonic() - begun < 5:  # it would fail again
            code = os.waitstatus_to_exitcode(status) or 1
            end()
    return code


def start(settings: Settings, here: socket.socket, counts: Counts, number: int) -> int:
    """A further process; its number."""
    child = os.fork()
    if child:
        return child
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, signal.SIG_DFL)
    code = 1
    try:
        code = run(settings, here, counts=counts, number=number)
    except SaccadeError as error:
        print(f"saccade: {error.shell}", file=sys.stderr, flush=True)
        code = 2
    finally:
        os._exit(code)
