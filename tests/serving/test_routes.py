"""What each route answers: the same as the model by itself."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from serving_helpers import SENTENCES, events

from saccade import api
from saccade.views.selection import best_site


def png(size: int = 40) -> bytes:
    made = io.BytesIO()
    Image.linear_gradient("L").resize((size, size)).convert("RGB").save(made, "PNG")
    return made.getvalue()


def encoded(size: int = 40) -> str:
    return base64.b64encode(png(size)).decode()


def post_all(path: str, bodies: list[dict[str, Any]]) -> Any:
    """Asks for all at the same time; the answers as JSON."""

    async def work(client: Any, service: Any) -> Any:
        got = await asyncio.gather(*(client.post(path, json=body) for body in bodies))
        assert [one.status_code for one in got] == [200] * len(got), [one.text for one in got]
        return [one.json() for one in got]

    return work


@pytest.mark.parametrize(
    "how", [{}, {"beam": 3}, {"temperature": 0.8, "seed": 3}, {"max_length": 2}], ids=str
)
@pytest.mark.parametrize("name", ["en-fr", "gru"])
def test_translations_are_those_of_one_at_a_time(
    models: Path, ask: Any, name: str, how: dict[str, Any]
) -> None:
    alone = api.load(models / name, "cpu")
    got = ask([name], post_all("/v1/translate", [{"text": text, **how} for text in SENTENCES]))
    for text, answer in zip(SENTENCES, got, strict=True):
        [result], expected = answer["results"], alone.translate(text, **how)
        assert (result["text"], result["finished"]) == (expected.text, expected.finished)
        assert result["alternatives"] == expected.alternatives
        assert result["log_prob"] == pytest.approx(expected.log_prob, abs=1e-3)
    if name == "en-fr" and not how:
        assert len({answer["results"][0]["text"] for answer in got}) > 4, (
            "the model says different things"
        )


def test_a_list_of_texts_gives_a_list(models: Path, ask: Any) -> None:
    [got] = ask(["en-fr"], post_all("/v1/translate", [{"text": [*SENTENCES[:3], " "]}]))
    alone = api.load(models / "en-fr", "cpu")
    assert [one["text"] for one in got["results"]] == [
        *(alone.translate(text).text for text in SENTENCES[:3]),
        "",
    ]


@pytest.mark.parametrize("name", ["words", "lstm"])
def test_generated_texts_are_those_of_one_at_a_time(models: Path, ask: Any, name: str) -> None:
    prompts = ["the cat", "", "the dog saw a mouse the dog saw a mouse", "a"]
    bodies = [
        {"prompt": text, "limit": 12, "temperature": 0.9, "seed": n}
        for n, text in enumerate(prompts)
    ]
    got = ask([name], post_all("/v1/generate", bodies))
    alone = api.load(models / name, "cpu")
    for body, answer in zip(bodies, got, strict=True):
        [result] = answer["results"]
        assert (
            result["text"]
            == alone.generate(body["prompt"], 12, temperature=0.9, seed=body["seed"]).text
        )
        assert (result["tokens"], result["finished"]) == (12, False)


@pytest.mark.parametrize("name", ["words", "lstm"])
def test_a_stream_has_the_same_text_in_pieces(models: Path, ask: Any, name: str) -> None:
    async def work(client: Any, service: Any) -> Any:
        return await client.post(
            "/v1/generate", json={"prompt": "the cat", "limit": 9, "temperature": 0, "stream": True}
        )

    got = ask([name], work)
    assert got.headers["content-type"].startswith("text/event-stream")
    *pieces, last = [json.loads(one) for one in events(got.text)]
    assert last == {"done": True, "tokens": 9, "finished": False}
    assert len(pieces) > 3
    expected = api.load(models / name, "cpu").generate("the cat", 9, temperature=0).text
    assert "".join(one["text"] for one in pieces) == expected


def test_labels_and_tags(models: Path, ask: Any) -> None:
    texts = ["a good film", "no fun at all, none whatsoever", "bad"]
    got = ask(["labels", "tags"], post_all("/v1/classify", [{"text": text} for text in texts]))
    alone = api.load(models / "labels", "cpu")
    for text, answer in zip(texts, got, strict=True):
        [result], expected = answer["results"], alone.classify(text)
        assert (answer["model"], result["label"]) == ("labels", expected.label)
        assert result["probabilities"] == pytest.approx(expected.probabilities, abs=1e-5)
    [got] = ask(["labels", "tags"], post_all("/v1/tag", [{"text": ["the cats", "cats the cats"]}]))
    tagger = api.load(models / "tags", "cpu")
    assert [one["tags"] for one in got["results"]] == [
        list(tagger.tag("the cats")),
        list(tagger.tag("cats the cats")),
    ]
    assert got["results"][0]["words"] == ["the", "cats"]


def test_pictures_in_json_and_in_forms(models: Path, ask: Any, tmp_path: Path) -> None:
    (tmp_path / "seen.png").write_bytes(png())

    async def work(client: Any, service: Any) -> Any:
        file = {"image": ("seen.png", png(), "image/png")}
        return [
            await client.post("/v1/caption", json={"image": encoded(), "beam": 2}),
            await client.post("/v1/caption", files=file, data={"beam": "2"}),
            await client.post(
                "/v1/answer",
                json={
                    "image": "data:image/png;base64," + encoded(),
                    "question": "what color is it ?",
                },
            ),
            await client.post("/v1/answer", files=file, data={"question": "what color is it ?"}),
            await client.post("/v1/classify", json={"image": encoded()}),
            await client.post("/v1/classify", files=file),
        ]

    got = ask(["captions", "questions", "shapes"], work)
    assert [one.status_code for one in got] == [200] * 6, [one.text for one in got]
    results = [one.json()["results"] for one in got]
    assert results[0] == results[1]
    assert results[2] == results[3]
    assert results[4] == results[5]
    load = lambda name: api.load(models / name, "cpu")
    assert results[0][0]["text"] == load("captions").caption(tmp_path / "seen.png", beam=2).text
    assert (
        results[2][0]["answer"]
        == load("questions").answer(tmp_path / "seen.png", "what color is it ?").answer
    )
    assert results[4][0]["label"] == load("shapes").classify(tmp_path / "seen.png").label


def test_look_gives_the_document_of_the_view(models: Path, ask: Any) -> None:
    alone, text = api.load(models / "en-fr", "cpu"), SENTENCES[0]
    whole = alone.look(text)
    site = best_site(whole.sites)
    bodies = [
        {"text": text, "look": {}},
        {"text": text, "look": {"layer": site.name, "heads": [1], "rows": [1, 3]}},
    ]
    first, second = (
        answer["results"][0]["look"] for answer in ask(["en-fr"], post_all("/v1/translate", bodies))
    )
    expected = json.loads(whole.to_json())
    [shown] = [one for one in expected["sites"] if one["name"] == site.name]
    assert first["sites"] == [shown]
    assert first["layers"] == [one.name for one in whole.sites]
    assert first["target"] == expected["target"]
    [part] = second["sites"]
    assert part["rows"] == shown["rows"][1:3]
    assert part["weights"] == [shown["weights"][1][1:3]]
    assert (second["heads"], second["row_range"]) == ([1], [1, 3])


def test_look_of_the_other_tasks(models: Path, ask: Any) -> None:
    async def work(client: Any, service: Any) -> Any:
        bodies = {
            "classify": {"text": "a good film"},
            "generate": {"prompt": "the cat saw", "limit": 3},
            "caption": {"image": encoded()},
            "answer": {"image": encoded(), "question": "what color is it ?"},
        }
        return [
            await client.post(f"/v1/{verb}", json={**body, "look": {"heads": [0]}})
            for verb, body in bodies.items()
        ]

    for one in ask(["labels", "words", "captions", "questions"], work):
        assert one.status_code == 200, one.text
        look = one.json()["results"][0]["look"]
        assert len(look["sites"]) == len(look["sites"][0]["weights"]) == 1
        assert ("picture" in look) == ("grid" in look["sites"][0])


def test_models_health_and_metrics(ask: Any) -> None:
    async def work(client: Any, service: Any) -> Any:
        await client.post("/v1/translate", json={"text": "the secret cat"})
        await client.get("/nowhere/secret")
        return [
            await client.get(path)
            for path in ("/v1/models", "/health/live", "/health/ready", "/metrics")
        ]

    models, live, ready, metrics = ask(["en-fr", "words"], work)
    assert [one["id"] for one in models.json()["data"]] == ["en-fr", "words"]
    assert models.json()["data"][0]["does"] == ["translate"]
    assert (live.json(), ready.json()) == ({"status": "live"}, {"status": "ready"})
    assert 'saccade_requests_total{route="/v1/translate",status="200"} 1.0' in metrics.text
    assert 'saccade_requests_total{route="other",status="404"} 1.0' in metrics.text
    assert "secret" not in metrics.text


def test_a_changed_folder_is_loaded_beside_the_old_one(
    models: Path, ask: Any, tmp_path: Path
) -> None:
    from serving_helpers import until

    from saccade.training.checkpoints import RunFolder

    def put(name: str) -> None:
        system = api.load(models / name, "cpu")
        RunFolder(tmp_path, api.model_files(system)).save("here", system.model)

    put("en-fr")
    before, after = (
        api.load(models / name, "cpu").translate(SENTENCES[0]).text for name in ("en-fr", "gru")
    )
    assert before != after

    async def work(client: Any, service: Any) -> None:
        async def text() -> str:
            got = await client.post("/v1/translate", json={"text": SENTENCES[0]})
            return str(got.json()["results"][0]["text"])

        watching = asyncio.create_task(service.watch(0.05))
        assert await text() == before
        # a copy that is not whole yet: the old model stays
        (tmp_path / "here" / "manifest.json").write_text("{}")
        await asyncio.sleep(0.3)
        assert await text() == before
        put("gru")
        await until(lambda: service.shelf.models["here"].system.name == "bahdanau")
        assert await text() == after
        watching.cancel()

    from serving_helpers import opened

    from saccade.serving.service import Service
    from saccade.serving.service_settings import Settings

    async def whole() -> None:
        service = Service(Settings({"here": tmp_path / "here"}, device="cpu"))
        async with opened(service) as client:
            await work(client, service)

    asyncio.run(whole())
