"""What tests of the service share: data, sentences, a client in this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx

from saccade.serving.service import Service

TEXT = "the cat saw the dog\nthe dog saw a mouse\n\na mouse ran\n" * 4
REVIEWS = "text\tlabel\na good film\tgood\na bad film\tbad\ngood fun\tgood\nno fun at all\tbad\n"
CONLLU = "1\tthe\tthe\tDET\tDT\t_\t2\tdet\t_\t_\n2\tcats\tcat\tNOUN\tNNS\t_\t0\troot\t_\t_\n\n1\tcats\tcat\tNOUN\tNNS\t_\t0\troot\t_\t_\n\n"
SENTENCES = [
    "the black cat sleeps", "a dog", "the small mouse saw the old house today", "I eat an apple", "the dog", "we see the green tree",
    "the old woman reads a book", "she sings",
]  # fmt: skip
SMALL = {"heads": 2, "depth": 1, "dim": 16, "hidden": 16, "dropout": 0.0}


@asynccontextmanager
async def opened(service: Service, **options: Any) -> Any:
    """A client of a service that has started."""
    app = service.app()
    base = options.pop("base_url", "http://127.0.0.1")
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url=base, timeout=300, **options) as client,
    ):
        yield client


def events(text: str) -> list[str]:
    """What the events of a stream say."""
    assert text.endswith("\n\n")
    parts = text.removesuffix("\n\n").split("\n\n")
    assert all(part.startswith("data: ") for part in parts)
    return [part.removeprefix("data: ") for part in parts]


async def until(true: Callable[[], bool], seconds: float = 300.0) -> None:
    """Waits for something to become true."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        await asyncio.sleep(0.02)
