"""What goes to a socket, and what a thread hands over to event loops."""

from __future__ import annotations

import asyncio
from typing import Any

from saccade.serving.protocol import Corked
from saccade.serving.worker import Outbox


class Wire:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


def test_a_head_goes_with_its_body_or_soon_by_itself() -> None:
    async def work() -> list[bytes]:
        wire: Any = Wire()
        corked = Corked(wire, asyncio.get_running_loop())
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

    assert asyncio.run(work()) == [b"HTTP/1.1 200 OK\r\n\r\n", b"data: 1\n\n", b"HTTP/1.1 204 No Content\r\n\r\n"]


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
