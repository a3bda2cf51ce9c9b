"""LibreTranslate's and OpenAI's forms, in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from serving_helpers import SENTENCES, events

from saccade import api
from saccade.serving.compatible import Writer
from saccade.serving.messages import Completion


def test_libretranslate_forms(models: Path, ask: Any) -> None:
    async def work(client: Any, service: Any) -> list[Any]:
        body = {"q": SENTENCES[0], "source": "en", "target": "fr"}
        return [
            await client.post("/translate", json=body),
            await client.post("/translate", data=body),
            await client.post(
                "/translate", json={**body, "q": SENTENCES[:2], "source": "auto", "alternatives": 2}
            ),
            await client.get("/languages"),
            await client.post("/detect", data={"q": "a dog"}),
        ]

    plain, form, many, languages, detected = [one.json() for one in ask(["en-fr"], work)]
    alone = api.load(models / "en-fr", "cpu")
    assert plain == form == {"translatedText": alone.translate(SENTENCES[0]).text}
    found = alone.translate(SENTENCES[:2], beam=3)
    assert many["translatedText"] == [one.text for one in found]
    assert many["alternatives"] == [one.alternatives for one in found]
    assert many["detectedLanguage"] == [{"confidence": 100, "language": "en"}] * 2
    assert languages == [
        {"code": "en", "name": "en", "targets": ["fr"]},
        {"code": "fr", "name": "fr", "targets": []},
    ]
    assert detected == [{"confidence": 100, "language": "en"}]


def test_languages_are_not_guessed(ask: Any) -> None:
    async def work(client: Any, service: Any) -> list[Any]:
        return [
            await client.post("/detect", json={"q": "a dog"}),
            await client.post(
                "/translate", json={"q": "a dog", "source": "source", "target": "target"}
            ),
        ]

    detected, translated = ask(["en-fr", "gru"], work)
    assert (detected.status_code, translated.status_code) == (422, 200)
    assert "here are 2; name the source" in detected.json()["error"]


def test_completions(models: Path, ask: Any) -> None:
    body = {"model": "words", "prompt": "the cat", "max_tokens": 10, "temperature": 0}

    async def work(client: Any, service: Any) -> list[Any]:
        return [
            await client.post("/v1/completions", json=body),
            await client.post(
                "/v1/completions",
                json={**body, "echo": True, "prompt": ["the cat"], "n": 1, "user": "me"},
            ),
            await client.post(
                "/v1/completions",
                json={**body, "stream": True, "stream_options": {"include_usage": True}},
            ),
        ]

    plain, echoed, stream = ask(["words"], work)
    expected = api.load(models / "words", "cpu").generate("the cat", 10, temperature=0).text
    answer = plain.json()
    assert answer["choices"] == [
        {"index": 0, "text": expected, "logprobs": None, "finish_reason": "length"}
    ]
    assert answer["usage"] == {"prompt_tokens": 2, "completion_tokens": 10, "total_tokens": 12}
    assert echoed.json()["choices"][0]["text"] == "the cat" + expected
    *chunks, usage, done = events(stream.text)
    assert done == "[DONE]"
    assert json.loads(usage)["usage"] == answer["usage"]
    parts = [json.loads(one)["choices"][0] for one in chunks]
    assert "".join(one["text"] for one in parts) == expected
    assert [one["finish_reason"] for one in parts] == [*[None] * (len(parts) - 1), "length"]


def test_a_stop_ends_the_text_before_it(models: Path, ask: Any) -> None:
    whole = api.load(models / "words", "cpu").generate("the cat", 30, seed=2).text
    stop = whole.split()[4] + " " + whole.split()[5]
    expected = whole[: whole.index(stop)]
    body = {
        "model": "words",
        "prompt": "the cat",
        "max_tokens": 30,
        "seed": 2,
        "stop": ["nowhere in it", stop],
    }

    async def work(client: Any, service: Any) -> list[Any]:
        return [
            await client.post("/v1/completions", json={**body, "stream": stream})
            for stream in (False, True)
        ]

    plain, stream = ask(["words"], work)
    assert plain.json()["choices"][0]["text"] == expected
    assert plain.json()["choices"][0]["finish_reason"] == "stop"
    assert plain.json()["usage"]["completion_tokens"] < 30
    parts = [json.loads(one)["choices"][0] for one in events(stream.text)[:-1]]
    assert "".join(one["text"] for one in parts) == expected
    assert parts[-1]["finish_reason"] == "stop"


@pytest.mark.parametrize("pieces", [["ab", "c", "d!"], ["a", "b", "c", "d", "!"], ["abcd!"]])
@pytest.mark.parametrize(
    ("stop", "expected"), [("cd", "ab"), ("x", "abcd!"), ("d?", "abcd!"), ("a", ""), ("", "abcd!")]
)
def test_nothing_of_a_stop_is_sent(pieces: list[str], stop: str, expected: str) -> None:
    writer = Writer(Completion("m", stop=stop), "m", "", 10, 0)
    assert "".join(map(writer.add, pieces)) + writer.rest() == expected


@pytest.mark.parametrize("stop", [["b", "d"], ["d", "b"]])
def test_of_several_stops_the_first_in_the_text_ends_it(stop: list[str]) -> None:
    writer = Writer(Completion("m", stop=stop), "m", "", 10, 0)
    assert writer.add("abcd!") + writer.rest() == "a"
