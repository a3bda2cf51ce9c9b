"""What a connection accepts and sends, and what a thread hands over to event loops."""

from __future__ import annotations

import asyncio
import socket
import tomllib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import h11
import pytest
import uvicorn
from serving_helpers import until
from uvicorn.server import ServerState

from saccade.errors import SaccadeError
from saccade.serving import protocol
from saccade.serving.protocol import (
    MAX_HEAD_BYTES,
    MIN_READ_BYTES,
    Connection,
    Corked,
    Protocol,
    allow_connections,
)
from saccade.serving.server import Server, bind
from saccade.serving.service_settings import Settings
from saccade.serving.worker import Outbox

ROOT = Path(__file__).parents[2]
BODY = b"5\r\nhello\r\n0\r\n\r\n"


class Wire:
    """A transport that keeps what is written. `left` bytes of it are still to be read by the client."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.closed, self.left, self.aborted = False, 0, False

    def get_write_buffer_size(self) -> int:
        return self.left

    def abort(self) -> None:
        self.aborted = True

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


def test_a_head_goes_with_its_body_or_soon_by_itself() -> None:
    async def work() -> list[bytes]:
        wire: Any = Wire()
        corked = Corked(wire, asyncio.get_running_loop(), 30.0)
        corked.write(b"HTTP/1.1 200 OK\r\n\r\n")
        corked.write(b"{}")
        corked.write(b"")
        assert wire.sent == [b"HTTP/1.1 200 OK\r\n\r\n{}"]
        corked.write(b"HTTP/1.1 200 OK\r\n\r\n")  # of a stream, whose first event comes later
        await asyncio.sleep(0)
        corked.write(b"data: 1\n\n")
        corked.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        corked.close()
        corked.write(b"nobody reads this")
        await asyncio.sleep(0)
        return wire.sent[1:]

    assert asyncio.run(work()) == [
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"data: 1\n\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
    ]


def test_all_that_a_loop_is_told_is_told_at_once_and_in_order() -> None:
    async def work() -> tuple[int, list[int]]:
        loop, outbox, heard, calls = asyncio.get_running_loop(), Outbox(), list[int](), 0
        real = loop.call_soon_threadsafe

        def count(*given: Any) -> Any:
            nonlocal calls
            calls += 1
            return real(*given)

        loop.call_soon_threadsafe = count  # type: ignore[method-assign]
        for n in range(5):
            outbox.append((loop, lambda n=n: heard.append(n)))  # type: ignore[misc]
        await asyncio.to_thread(outbox.hand_over)
        await asyncio.sleep(0)
        woken = calls - 1  # once for the thread itself
        gone = asyncio.new_event_loop()
        gone.close()
        outbox.append((gone, lambda: heard.append(-1)))
        outbox.hand_over()  # nobody is there any more
        return woken, heard

    assert asyncio.run(work()) == (1, [0, 1, 2, 3, 4])


def request(*headers: bytes, version: bytes = b"1.1", path: bytes = b"/") -> bytes:
    return b"\r\n".join([b"POST %s HTTP/%s" % (path, version), b"Host: a", *headers, b"", b""])


CHUNKED, LENGTH = b"Transfer-Encoding: chunked", b"Content-Length: 5"
MANY = [b"X-%d: %s" % (n, b"y" * 90) for n in range(900)]  # 90 KB in one segment


@pytest.mark.parametrize(
    ("sent", "sentence"),
    [
        (request(LENGTH, CHUNKED) + BODY, "Content-Length and Transfer-Encoding were both sent"),
        (request(CHUNKED, LENGTH) + BODY, "Content-Length and Transfer-Encoding were both sent"),
        (request(LENGTH, version=b"1.2"), "expected HTTP/1.0 or HTTP/1.1, got HTTP/1.2"),
        (request(LENGTH, version=b"9.9"), "expected HTTP/1.0 or HTTP/1.1, got HTTP/9.9"),
        (request(LENGTH, version=b"0.9"), "expected HTTP/1.0 or HTTP/1.1, got HTTP/0.9"),
        (request(*MANY), "headers of at most 32,768 bytes"),
        (request(*MANY)[:-4], "headers of at most 32,768 bytes"),
        (request(path=b"/" + b"a" * MAX_HEAD_BYTES), "headers of at most 32,768 bytes"),
        (b"nonsense\r\n\r\n", "this is not a request in HTTP/1.1"),
        (request(CHUNKED) + b"1\r\n \r\n" * 1001, "at most 1,000 chunks below 16 bytes"),
    ],
    ids=range(10),
)
def test_requests_that_another_server_may_read_differently_are_refused(
    sent: bytes, sentence: str
) -> None:
    made = Connection(h11.SERVER, MAX_HEAD_BYTES)
    made.receive_data(sent)
    with pytest.raises(h11.RemoteProtocolError):
        [*iter(made.next_event, h11.NEED_DATA)]
    assert sentence in made.refusal


@pytest.mark.parametrize(
    "sent",
    [
        request(LENGTH) + b"hello",
        request(CHUNKED) + BODY,
        request(LENGTH, version=b"1.0") + b"hello",
        request(*MANY[:300]),
        request(CHUNKED) + b"1\r\n \r\n" * 1000 + b"0\r\n\r\n",
    ],
    ids=range(5),
)
def test_usual_requests_are_read(sent: bytes) -> None:
    made = Connection(h11.SERVER, MAX_HEAD_BYTES)
    made.receive_data(sent)
    while not isinstance(made.next_event(), h11.EndOfMessage):
        pass


def test_an_answer_that_the_client_stops_reading_is_given_up() -> None:
    """Some progress within the time keeps the connection, and so does an earlier answer that was read before a later one came."""
    wire, calls = Wire(), list[tuple[float, Callable[[], None]]]()
    loop: Any = type(
        "Loop",
        (),
        {
            "call_later": lambda _, seconds, what, *given: calls.append(
                (seconds, lambda: what(*given))
            )
        },
    )()
    corked = Corked(wire, loop, 7.0)

    def wait(left: int) -> None:
        """As many bytes are left after the seconds."""
        assert len(calls) == 1
        seconds, what = calls.pop()
        wire.left = left
        what()
        assert seconds == 7.0

    wire.left = 10 * MIN_READ_BYTES
    corked.write(b"x" * wire.left)
    wire.left += 5
    corked.write(b"later")
    wait(9 * MIN_READ_BYTES)
    wait(8 * MIN_READ_BYTES)
    wait(0)
    assert not calls
    wire.left = 10
    corked.write(b"x" * 10)
    corked.write(b"y" * 20)
    wait(20)  # the first ten were read
    assert not wire.aborted
    wait(20)
    assert wire.aborted


async def on_a_socket(app: Any, work: Callable[[Any, int, set[Any]], Awaitable[Any]]) -> Any:
    """Runs `work` with a loop, the port where an app is served, and the open connections."""
    config, state, loop = (
        uvicorn.Config(app, http=Protocol, lifespan="off", log_level="critical"),
        ServerState(),
        asyncio.get_running_loop(),
    )
    server = await loop.create_server(
        lambda: Protocol(config, state, {}), sock=bind(Settings({}, port=0))
    )
    async with server:
        return await work(loop, server.sockets[0].getsockname()[1], state.connections)


def test_bytes_of_unread_answers_are_not_held_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Protocol, "seconds", 0.3)
    ended: list[bool] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-length", b"700000")],
            }
        )
        # the largest answers are about as long
        await send({"type": "http.response.body", "body": b"x" * 700_000})
        ended.append(True)

    async def work(loop: Any, port: int, connections: set[Any]) -> None:
        with socket.socket() as here:
            here.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            here.setblocking(False)
            await loop.sock_connect(here, ("127.0.0.1", port))
            await loop.sock_sendall(here, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            await until(lambda: bool(connections))
            await until(lambda: not connections and bool(ended), 20)

    asyncio.run(on_a_socket(app, work))


def test_nothing_is_read_behind_a_request_with_two_lengths() -> None:
    paths: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        paths.append(scope["path"])
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]}
        )
        await send({"type": "http.response.body", "body": b""})

    async def work(loop: Any, port: int, connections: set[Any]) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            request(b"Content-Length: 5", CHUNKED)
            + b"0\r\n\r\n"
            + b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
        )
        got = await asyncio.wait_for(reader.read(), 20)
        writer.close()
        return got

    got = asyncio.run(on_a_socket(app, work))
    assert got.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert (got.count(b"HTTP/1.1 "), paths) == (1, [])


@pytest.mark.parametrize(
    ("files", "most"), [(50, 25), (64, 32), (150, 75), (1024, 924), (2100, 2000)]
)
def test_some_open_files_are_left_beside_connections(
    monkeypatch: pytest.MonkeyPatch, files: int, most: int
) -> None:
    resource = pytest.importorskip("resource")
    for name in ("most", "lingering"):
        monkeypatch.setattr(Protocol, name, getattr(Protocol, name))  # as before at the end
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (min(files, 1024), files))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: None)
    allow_connections()
    assert Protocol.most == most
    assert files - most - Protocol.lingering >= 13, "for what the service itself opens"
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (20, 49))
    with pytest.raises(
        SaccadeError,
        match="at most 49 files may be open here, and a service needs 50; allow more with ulimit -n",
    ):
        allow_connections()


# what is overridden or used of uvicorn, none of which it documents
OF_SERVER = ("startup", "shutdown", "on_tick", "capture_signals", "handle_exit", "run")
OF_SERVER_OBJECTS = ("config", "server_state", "should_exit")
OF_PROTOCOL = (
    "connection_made", "connection_lost", "data_received", "handle_events", "send_400_response", "timeout_keep_alive_handler",
)  # fmt: skip
OF_PROTOCOL_OBJECTS = (
    "conn",
    "connections",
    "cycle",
    "loop",
    "transport",
    "timeout_keep_alive_task",
)


def test_uvicorn_has_what_the_service_relies_on() -> None:
    from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

    async def work() -> None:
        config = uvicorn.Config(lambda: None, http=Protocol)
        server, made = uvicorn.Server(config), H11Protocol(config, ServerState(), {})
        cycle: Any = RequestResponseCycle.__init__.__code__.co_names
        for what, names in (
            (uvicorn.Server, OF_SERVER), (server, OF_SERVER_OBJECTS), (H11Protocol, OF_PROTOCOL), (made, OF_PROTOCOL_OBJECTS),
            (server.server_state, ("connections",)),
        ):  # fmt: skip
            missing = [name for name in names if not hasattr(what, name)]
            assert not missing, (
                f"uvicorn {uvicorn.__version__} has no {missing} in {what}: adapt serving/ before its bound is raised"
            )
        assert {"message_event", "disconnected"} <= set(cycle)

    asyncio.run(work())


def test_no_release_of_uvicorn_is_admitted_that_the_tests_do_not_use() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    asked = {one for extra in extras.values() for one in extra if one.startswith("uvicorn")}
    [pinned] = [
        line
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line.startswith("uvicorn==")
    ]
    major, minor = pinned.removeprefix("uvicorn==").split(".")[:2]
    assert asked == {f"uvicorn>=0.40,<{major}.{int(minor) + 1}"}, (
        "raise the bound with the pin, after the tests have passed"
    )


def test_no_private_name_of_uvicorn_is_used() -> None:
    """Names with an underscore that are not our own."""
    import ast

    for module in ("server", "protocol"):
        tree = ast.parse((ROOT / "src" / "saccade" / "serving" / f"{module}.py").read_text())
        used = {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and node.attr.startswith("_")
        }
        assert {name for name in used if not name.startswith("__")} <= {"_exit"}, module
    assert protocol.H11Protocol is Protocol.__base__
    assert Server.__base__ is uvicorn.Server
