"""One HTTP/1.1 connection: uvicorn's, with limits on slow or tiny requests, on unread answers, and on the number of connections."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..errors import SaccadeError
from .guard import HEADERS

MIN_CHUNK_BYTES, MAX_SMALL_CHUNKS = 16, 1000  # bytes; parts of a body that may be smaller
MAX_HEAD_BYTES = 32 * 1024  # of a request's line and headers
# seconds in which the first request begins, and in which a refusal can be read
HEAD_SECONDS, LINGER_SECONDS = (10.0, 2.0)
MAX_CONNECTIONS, SPARE_CONNECTIONS = 2000, 100
MIN_FILES = 50  # open files, of which half are for connections
MIN_READ_BYTES = 64 * 1024  # of an answer that a client reads in the seconds of a request
NOT_HTTP = "this is not a request in HTTP/1.1; send another"
LONG_HEAD = f"expected a request line and headers of at most {MAX_HEAD_BYTES:,} bytes; send less"
BUSY = "too many connections are open; try again in a second"


class Connection(h11.Connection):
    """Refuses what h11 accepts: other HTTP versions, two lengths of one body, long heads, and bodies in very many tiny chunks,
    each of which takes as long to read as a large one."""

    small_chunks = 0
    refusal = NOT_HTTP

    def next_event(self) -> Any:
        try:
            event = super().next_event()
        except h11.RemoteProtocolError as error:
            self.refusal = LONG_HEAD if error.error_status_hint == 431 else self.refusal
            raise
        if isinstance(event, h11.Request):
            self.small_chunks = 0
            self.check(event)
        elif isinstance(event, h11.Data) and len(event.data) < MIN_CHUNK_BYTES:
            self.small_chunks += 1
            if self.small_chunks > MAX_SMALL_CHUNKS:
                self.refuse(
                    f"expected at most {MAX_SMALL_CHUNKS:,} chunks below {MIN_CHUNK_BYTES} bytes; send fewer and larger ones"
                )
        return event

    def check(self, request: h11.Request) -> None:
        version = request.http_version.decode()
        if version not in ("1.0", "1.1"):
            self.refuse(f"expected HTTP/1.0 or HTTP/1.1, got HTTP/{version}; send one of these")
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in request.headers}:
            self.refuse(
                "the headers Content-Length and Transfer-Encoding were both sent; leave out one of them"
            )
        size = len(request.target) + sum(
            len(name) + len(value) + 4 for name, value in request.headers
        )
        if size > MAX_HEAD_BYTES:
            self.refuse(LONG_HEAD)

    def refuse(self, sentence: str) -> None:
        self.refusal = sentence
        raise h11.RemoteProtocolError(sentence)


class Corked:
    """A transport that sends the head and the body of an answer in one system call: each call can cost a turn of the model thread."""

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self.transport, self.loop, self.seconds, self.head = transport, loop, seconds, b""
        self.written, self.watched = 0, False  # bytes; whether some wait for the client to read

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)

    def write(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if data.startswith(b"HTTP/1.1 ") and not self.head:
            self.head = data
            self.loop.call_soon(self.flush)  # where the body comes later, as that of a stream
        elif data:
            held, self.head = self.head, b""
            self.send(held + data)

    def flush(self) -> None:
        held, self.head = self.head, b""
        if held and not self.transport.is_closing():
            self.send(held)

    def send(self, data: bytes) -> None:
        self.transport.write(data)
        self.written += len(data)
        if not self.watched:
            self.watch()

    def watch(self) -> None:
        """Close the connection, even a closing one, when the client stops reading."""
        left = self.transport.get_write_buffer_size()
        self.watched = left > 0
        if self.watched:
            self.loop.call_later(self.seconds, self.check, self.written, self.written - left)

    def check(self, written: int, read: int) -> None:
        now = self.written - self.transport.get_write_buffer_size()
        if now < min(written, read + MIN_READ_BYTES):
            self.transport.abort()
        else:
            self.watch()

    def write_eof(self) -> None:
        self.flush()
        self.transport.write_eof()

    def close(self) -> None:
        self.flush()
        self.transport.close()


class Protocol(H11Protocol):
    """One connection."""

    conn: Connection
    # connections; those above them that may wait until a refusal is read
    most, lingering = (MAX_CONNECTIONS, SPARE_CONNECTIONS)
    seconds = 30.0  # without progress, after which an answer is given up

    def __init__(self, config: Any, *given: Any, **more: Any) -> None:
        super().__init__(config, *given, **more)
        self.conn = Connection(h11.SERVER, MAX_HEAD_BYTES)
        self.refused = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(Corked(transport, self.loop, self.seconds))  # type: ignore[arg-type]
        self.timeout_keep_alive_task = self.loop.call_later(
            HEAD_SECONDS, self.timeout_keep_alive_handler
        )
        if len(self.connections) > self.most:
            self.refuse(503, "Service Unavailable", BUSY, "busy", "retry-after: 1\r\n")

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()

    def data_received(self, data: bytes) -> None:
        """Read data without ending the keep-alive timeout: only a complete request ends it."""
        if not self.refused:
            self.conn.receive_data(data)
            self.handle_events()

    def timeout_keep_alive_handler(self) -> None:
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE, h11.ERROR):
            self.refuse(400, "Bad Request", self.conn.refusal, "bad-request")
        else:  # it has its answer already
            self.transport.close()

    def refuse(self, status: int, reason: str, sentence: str, code: str, more: str = "") -> None:
        """Answer, then discard input for a moment: closing at once could lose the answer."""
        body = json.dumps({"error": sentence, "code": code}).encode()
        headers = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
        about = f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n"
        self.transport.write(
            f"HTTP/1.1 {status} {reason}\r\n{about}{more}{headers}\r\n".encode() + body
        )
        self.refused = True
        with contextlib.suppress(OSError):  # it has gone already
            self.transport.write_eof()
        if self.cycle is not None:  # the reader of the body sees that no more comes
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        crowded = len(self.connections) > self.most + self.lingering
        self.loop.call_later(0 if crowded else LINGER_SECONDS, self.transport.close)


def allow_connections() -> None:
    """Raise the limit of open files, and set the largest number of connections from it."""
    import resource  # which Windows does not have

    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + SPARE_CONNECTIONS
    if now != resource.RLIM_INFINITY and now < wanted:
        now = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (now, most))
        if now < MIN_FILES:
            raise SaccadeError(
                f"at most {now} files may be open here, and a service needs {MIN_FILES}; allow more with ulimit -n",
                code="too-few-files",
            )
        Protocol.most = max(now - SPARE_CONNECTIONS, now // 2)
        Protocol.lingering = (now - Protocol.most) // 2
