"""What each route answers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from saccade import api
from serving_helpers import SENTENCES


def test_translations_are_those_of_one_at_a_time(models: Path, ask: Any) -> None:
    async def work(client: Any, service: Any) -> Any:
        together = [client.post("/v1/translate", json={"text": text}) for text in SENTENCES]
        return await asyncio.gather(*together)

    alone = api.load(models / "en-fr", "cpu")
    for text, got in zip(SENTENCES, ask(["en-fr"], work), strict=True):
        assert got.status_code == 200, got.text
        [result] = got.json()["results"]
        expected = alone.translate(text)
        assert (result["text"], result["finished"]) == (expected.text, expected.finished)
        assert abs(result["log_prob"] - expected.log_prob) < 1e-3
