"""HTTP/1.1 of one connection: uvicorn's, which here gives up on who sends slowly or in crumbs, and on more connections than there may be."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from .guard import HEADERS

CRUMB, CRUMBS = 16, 1000  # bytes; parts of a body that may be smaller
HEAD, LINGER = 10.0, 2.0  # seconds in which the first request begins, and in which a refusal can be read
CONNECTIONS, SPARE = 2000, 100
SENTENCES = {
    400: "this is not HTTP, has too many headers, or a body in too many small chunks; send fewer and larger ones",
    503: "too many connections are open; try again in a second",
}


class Connection(h11.Connection):
    """Refuses a body in a great many tiny chunks: each takes as long to read as a large one."""

    crumbs = 0

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.crumbs = 0
        elif isinstance(event, h11.Data) and len(event.data) < CRUMB:
            self.crumbs += 1
            if self.crumbs > CRUMBS:
                raise h11.RemoteProtocolError("too many small chunks")
        return event


class Corked:
    """A transport that sends the head of an answer together with its body: each call of the system is a turn that models may take."""

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.transport, self.loop, self.head = transport, loop, b""

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
            self.transport.write(held + data)

    def flush(self) -> None:
        held, self.head = self.head, b""
        if held and not self.transport.is_closing():
            self.transport.write(held)

    def write_eof(self) -> None:
        self.flush()
        self.transport.write_eof()

    def close(self) -> None:
        self.flush()
        self.transport.close()


class Protocol(H11Protocol):
    """One connection."""

    most = CONNECTIONS

    def __init__(self, config: Any, *given: Any, **more: Any) -> None:
        super().__init__(config, *given, **more)
        self.conn = Connection(h11.SERVER, config.h11_max_incomplete_event_size)
        self.refused = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(Corked(transport, self.loop))  # type: ignore[arg-type]
        self.timeout_keep_alive_task = self.loop.call_later(HEAD, self.timeout_keep_alive_handler)
        if len(self.connections) > self.most:
            self.refuse(503, "Service Unavailable", "retry-after: 1\r\n")

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        """Ends no waiting: that does a whole request, not its first byte."""
        if not self.refused:
            self.conn.receive_data(data)
            self.handle_events()

    def timeout_keep_alive_handler(self) -> None:
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE, h11.ERROR):
            self.refuse(400, "Bad Request")
        else:  # it has its answer already
            self.transport.close()

    def refuse(self, status: int, reason: str, more: str = "") -> None:
        """Answers, and reads on without a look for a moment: a connection closed at once may take the answer with it."""
        body = json.dumps({"error": SENTENCES[status]}).encode()
        headers = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
        about = f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n"
        self.transport.write(f"HTTP/1.1 {status} {reason}\r\n{about}{more}{headers}\r\n".encode() + body)
        self.refused = True
        with contextlib.suppress(OSError):  # it has gone already
            self.transport.write_eof()
        if self.cycle is not None:  # whoever reads the body knows that no more comes
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.loop.call_later(LINGER, self.transport.close)


def allow_connections() -> None:
    """As many as the system allows open files for, some of them aside."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS + SPARE
    if now != resource.RLIM_INFINITY and now < wanted:
        now = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (now, most))
        Protocol.most = max(now - SPARE, SPARE)
