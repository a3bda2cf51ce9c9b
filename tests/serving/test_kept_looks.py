"""What the page asks for besides answers: parts of large attention, kept for a while; inputs to try; the worked example; its own files."""

from __future__ import annotations

import base64
import io
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from serving_helpers import SENTENCES

from saccade import api
from saccade.serving import kept_looks
from saccade.serving.web_page import FILES, POLICY
from saccade.teaching.explain.worked_attention import worked_example, worked_sentence
from saccade.views.document import Document, Site


def answers(path: str, bodies: list[dict[str, Any]]) -> Any:
    async def work(client: Any, service: Any) -> Any:
        return [await client.post(path, json=body) for body in bodies]

    return work


def test_parts_of_an_attention_are_those_of_the_whole(models: Path, ask: Any) -> None:
    alone, text = api.load(models / "en-fr", "cpu"), SENTENCES[2]
    target = alone.translate(text).text
    site = alone.look(text, target)["decoder.0.cross"]
    asked = [
        {"layer": site.name, "rows": [1, 4], "columns": [2, 5]},
        {"layer": site.name, "pool": 3},
        {"layer": site.name, "mean": True},
        {"layer": site.name, "heads": [1], "mean": True, "pool": 100},
    ]
    bodies = [{"text": text, "target": target, "look": one} for one in asked]
    part, pooled, mean, one = (
        got.json()["results"][0]["look"] for got in ask(["en-fr"], answers("/v1/look", bodies))
    )
    assert np.allclose(part["sites"][0]["weights"], site.weights[:, 1:4, 2:5], atol=1e-4)
    assert (part["sites"][0]["rows"], part["sites"][0]["columns"]) == (
        site.rows[1:4],
        site.columns[2:5],
    )
    assert (part["row_range"], part["column_range"], part["shape"]) == (
        [1, 4],
        [2, 5],
        list(site.weights.shape),
    )
    squares = [
        [site.weights[1, r : r + 3, c : c + 3].max() for c in range(0, len(site.columns), 3)]
        for r in range(0, len(site.rows), 3)
    ]
    assert np.allclose(pooled["sites"][0]["weights"][1], squares, atol=1e-4)
    assert pooled["sites"][0]["columns"] == site.columns[::3]
    assert np.allclose(mean["sites"][0]["weights"], site.weights.mean(0, keepdims=True), atol=1e-4)
    assert one["sites"][0]["weights"] == [[[pytest.approx(site.weights[1].max(), abs=1e-4)]]]


def test_a_pool_of_0_is_the_smallest_that_an_answer_holds(models: Path, ask: Any) -> None:
    bodies = [
        {
            "text": "a good film " * 10,
            "model": "labels",
            "look": {"layer": "encoder.0.mixer", "pool": 0},
        }
    ]
    for cells, pool in (
        (10**6, 1),
        (2 * 15 * 15, 3),
        (2 * 16 * 16 - 1, 3),
        (2 * 16 * 16, 2),
        (2, 31),
    ):
        [got] = ask(["labels"], answers("/v1/look", bodies), limits={"cells": cells})
        found = got.json()["results"][0]["look"]
        assert (found["pool"], found["shape"]) == (pool, [2, 31, 31])
        assert np.asarray(found["sites"][0]["weights"]).size <= cells


def test_of_a_long_text_one_attention_at_a_time_is_computed(
    models: Path, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, text = api.load(models / "en-fr", "cpu"), " ".join(SENTENCES * 12)
    target = " ".join(["le chat noir"] * 100)
    whole = alone.look(text, target)
    computed: list[Any] = []
    real = type(alone).look
    monkeypatch.setattr(
        type(alone),
        "look",
        lambda self, *given, **how: computed.append(how) or real(self, *given, **how),
    )
    bodies = [
        {
            "text": text,
            "target": target,
            "look": {"layer": name, "rows": [290, 300], "columns": [3, 9]},
        }
        for name in ("decoder.0.cross", "encoder.0.mixer", "decoder.0.cross")
    ]
    bodies += [{"text": text, "target": target, "look": {"layer": "encoder.9.mixer"}}]
    *parts, wrong = ask(["en-fr"], answers("/v1/look", bodies))
    for body, got in zip(bodies, parts, strict=False):
        found = got.json()["results"][0]["look"]
        site = whole[body["look"]["layer"]]
        assert np.allclose(found["sites"][0]["weights"], site.weights[:, 290:300, 3:9], atol=1e-4)
        assert found["layers"] == [one.name for one in whole.sites]
    assert computed == [{}, {"only": "decoder.0.cross"}, {"only": "encoder.0.mixer"}], (
        "each once, and the beginning of the text"
    )
    assert wrong.json()["error"].startswith("no attention named 'encoder.9.mixer'")
    monkeypatch.setattr(kept_looks, "MOST_CELLS", 1000)
    [got] = ask(["en-fr"], answers("/v1/look", bodies[:1]))
    assert got.status_code == 422
    assert got.json()["error"].endswith("more than 1,000; send a shorter text")


def test_documents_are_kept_for_a_while_and_within_a_bound() -> None:
    def document(size: int) -> Document:
        return Document(
            "", [], [], [Site("a", ["w"] * size, ["w"] * size, np.zeros((1, size, size)))]
        )

    made: list[int] = []
    kept = kept_looks.Looks(most=250, seconds=3600)
    for key, size in ((1, 10), (2, 10), (1, 10), (3, 10), (1, 10), (2, 10), (4, 20), (4, 20)):
        kept.find(key, lambda key=key, size=size: made.append(key) or document(size))  # type: ignore[misc]
        assert sum(kept_looks.cells_of(one) for one, _ in kept.kept.values()) <= 250
    assert made == [1, 2, 3, 2, 4, 4], (
        "the one that was not used for longest goes; one that is too large is not kept"
    )
    kept = kept_looks.Looks(most=250, seconds=0.2)
    kept.find(5, lambda: document(3))
    end = time.monotonic() + 300
    while kept.kept:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_document_that_was_used_again_is_kept_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    document, kept, now = Document("", [], [], []), kept_looks.Looks(seconds=3600), [0.0]
    monkeypatch.setattr(kept_looks, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for now[0], key in ((0.0, 1), (10.0, 2), (3000.0, 1)):
        kept.find(key, lambda: document)
    waiting = [kept.timer]
    now[0] = 3700.0
    kept.forget()
    waiting.append(kept.timer)
    assert list(kept.kept) == [1]
    assert [one.interval for one in waiting if one is not None] == [3600, 2900]
    for one in waiting:
        one.cancel()  # type: ignore[union-attr]


def test_any_number_of_looks_takes_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """And none where the system allows no more, which the next look tries again. A timer that ends starts the next, so there may be two."""
    document, kept, before = (
        Document("", [], [], []),
        kept_looks.Looks(seconds=0.5),
        {*threading.enumerate()},
    )

    def timers() -> int:
        return sum(isinstance(one, threading.Timer) for one in {*threading.enumerate()} - before)

    def full(self: Any) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as without:
        without.setattr(threading.Thread, "start", full)
        assert [kept.find(key, lambda: document) for key in range(3)] == [document] * 3
    assert timers() == 0
    assert [kept.find(key, lambda: document) for key in range(100)] == [document] * 100
    assert kept.timer is not None or not kept.kept
    assert timers() <= 2
    end = time.monotonic() + 120
    while kept.kept:
        assert timers() <= 2
        assert time.monotonic() < end
        time.sleep(0.01)
    while timers():
        assert time.monotonic() < end


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"text": "a dog"}, "the model 'en-fr' needs a field 'target' to look"),
        (
            {"model": "labels", "text": "good", "target": "x"},
            "the model 'labels' needs no field 'target' to look",
        ),
        (
            {"model": "captions", "target": "a red circle"},
            "the model 'captions' needs a field 'image' to look",
        ),
        (
            {"text": "a dog", "target": "le chien", "look": {"columns": [0, 99]}},
            "3 columns, and heads [0, 1] of rows 0 to 3",
        ),
        ({"model": "nothing", "text": "x"}, "no model named 'nothing' here can look"),
        ({"model": "labels", "text": " "}, "the text 'text' is empty"),
    ],
    ids=str,
)
def test_what_cannot_be_looked_at_is_refused_with_a_sentence(
    ask: Any, body: dict[str, Any], sentence: str
) -> None:
    [got] = ask(["en-fr", "labels", "captions"], answers("/v1/look", [body]))
    assert got.status_code in (400, 404, 422)
    assert sentence in got.json()["error"]


def test_pictures_are_looked_at_whole(ask: Any) -> None:
    made = io.BytesIO()
    Image.linear_gradient("L").resize((40, 40)).convert("RGB").save(made, "PNG")
    image = base64.b64encode(made.getvalue()).decode()
    bodies = [
        {"model": "captions", "image": image, "target": "a red circle", "look": one}
        for one in ({"pool": 0}, {"pool": 2})
    ]
    whole, pooled = ask(["captions"], answers("/v1/look", bodies))
    assert whole.json()["results"][0]["look"]["picture"].startswith("data:image/png")
    assert (
        pooled.json()["error"]
        == "weights over a picture are answered whole; leave out 'columns' and 'pool'"
    )


def test_the_worked_example_is_that_of_saccade(ask: Any) -> None:
    bodies = [
        {"text": "the cat saw"},
        {"text": "the cat saw", "scaled": True},
        {},
        {"text": "x " * 31},
    ]
    own, scaled, plain, long = ask(["en-fr"], answers("/v1/worked", bodies))
    words = ["the", "cat", "saw"]
    for got, expected in (
        (own, worked_sentence(words)),
        (scaled, worked_sentence(words, True)),
        (plain, worked_example()),
    ):
        assert got.json() == expected.to_dict()
    assert long.status_code == 422
    assert "31 words" in long.json()["error"]


def test_inputs_to_try_are_generated_and_no_file_is_opened(
    ask: Any, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(client: Any, service: Any) -> Any:
        first = (await client.get("/v1/examples")).json()
        return first, (await client.get("/v1/examples")).json()

    names = ["en-fr", "labels", "captions", "questions", "tags"]
    first, again = ask(names, work)
    assert first == again
    assert list(first) == names
    assert first["labels"] == first["tags"] == [], "they were trained on files"
    assert len(first["en-fr"]) == len(first["captions"]) == 6
    assert all(set(one) == {"text"} for one in first["en-fr"])
    assert all(
        one["image"].startswith("data:image/png") and one["text"].endswith("?")
        for one in first["questions"]
    )


def test_the_page_is_served_by_name_with_a_strict_policy(ask: Any) -> None:
    async def work(client: Any, service: Any) -> Any:
        found = [await client.get(path) for path in FILES]
        outside = [
            "/page/",
            "/page/..%2fpage.py",
            "/page/../service.py",
            "/page/index.html",
            "/page/app.js/",
            "//page/app.js",
        ]
        return found, [await client.get(path) for path in outside]

    found, outside = ask(["en-fr"], work)
    assert [one.status_code for one in found] == [200] * len(FILES)
    assert {one.headers["content-security-policy"] for one in found} == {POLICY}
    assert "unsafe" not in POLICY
    assert found[0].headers["content-type"] == "text/html; charset=utf-8"
    assert [one.status_code for one in outside] == [404] * len(outside)


def test_whether_a_model_has_attention_is_known(ask: Any) -> None:
    async def work(client: Any, service: Any) -> Any:
        return (await client.get("/v1/models")).json()["data"]

    assert {one["id"]: one["attends"] for one in ask(["en-fr", "tags", "labels"], work)} == {
        "en-fr": True,
        "tags": False,
        "labels": True,
    }
