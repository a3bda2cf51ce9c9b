"""What is refused: always at once, with a status below 500 and one sentence."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving_helpers import until

from saccade.errors import SaccadeError
from saccade.serving import schema
from saccade.serving.messages import VERBS, Completion
from saccade.serving.schema import Refused
from saccade.serving.served_models import name_models
from saccade.serving.service_settings import Limits, Settings, read_keys
from saccade.serving.web_page import FILES

KEY = "0123456789abcdef-key"
JSON = {"content-type": "application/json"}
TRANSLATE = "/v1/translate"
HUGE = "9" * 5000
# route, body, status, a part of the sentence
WRONG: list[tuple[str, Any, int, str, str]] = [
    (TRANSLATE, b"", 400, "not-json", "not JSON"),
    (TRANSLATE, b"{", 400, "not-json", "not JSON"),
    (TRANSLATE, b"\xff\xfe", 400, "not-json", "not JSON"),
    (TRANSLATE, b"[" * 9_000, 400, "not-json", "not JSON"),
    (TRANSLATE, b'{"text": ' * 4_000, 400, "not-json", "not JSON"),
    (TRANSLATE, b"[" * 100_000, 400, "too-many-values", "expected at most 10,000 values in the body"),
    (TRANSLATE, b"[" + b'"",' * 20_000, 400, "too-many-values", "expected at most 10,000 values in the body"),
    (TRANSLATE, b'{"text": "a", "length_penalty": NaN}', 400, "not-json", "not JSON"),
    (TRANSLATE, b'{"text": "a", "length_penalty": 1e999}', 400, "out-of-range", "expected -10 to 10 as 'length_penalty', got a huge number"),
    (TRANSLATE, f'{{"text": "a", "beam": {HUGE}}}'.encode(), 400, "not-json", "not JSON"),
    (TRANSLATE, f'{{"text": "a", "beam": {"9" * 4000}}}'.encode(), 400, "out-of-range", "got a huge number"),
    (TRANSLATE, b'{"text": "\\ud800"}', 400, "damaged-text", "half of a surrogate pair"),
    (TRANSLATE, b'{"\\ud800": 1}', 400, "unknown-field", "unknown field"),
    (TRANSLATE, [], 400, "wrong-type", "expected an object, got a list"),
    (TRANSLATE, {}, 400, "field-missing", "the field 'text' is missing; give a text, or a list of texts"),
    (TRANSLATE, {"text": 3}, 400, "wrong-type", "expected a text or a list as 'text', got 3"),
    (TRANSLATE, {"text": []}, 400, "number-of-items", "expected 1 to 64 items in 'text', got 0"),
    (TRANSLATE, {"text": ["a", None]}, 400, "wrong-type", "expected a text as 'text[1]', got null"),
    (TRANSLATE, {"text": "a" * 5001}, 400, "text-too-long", "expected at most 5,000 characters as 'text', got 5,001"),
    (TRANSLATE, {"text": "a", "bean": 2}, 400, "unknown-field", "unknown field 'bean'; did you mean 'beam'?"),
    (TRANSLATE, {"text": "a", "beam": 17}, 400, "out-of-range", "expected 1 to 16 as 'beam', got 17"),
    (TRANSLATE, {"text": "a", "beam": True}, 400, "wrong-type", "expected a whole number as 'beam', got true"),
    (TRANSLATE, {"text": "a", "beam": 1.5}, 400, "wrong-type", "expected a whole number as 'beam', got 1.5"),
    (TRANSLATE, {"text": "a", "max_length": 1025}, 400, "out-of-range", "expected 1 to 1,024 as 'max_length'"),
    (TRANSLATE, {"text": "a", "beam": 2, "temperature": 1}, 422, "beam-and-sampling", "a beam and sampling were both asked for"),
    (TRANSLATE, {"text": "a", "seed": 1}, 422, "seed-alone", "a seed is for sampling"),
    (TRANSLATE, {"text": "a", "model": "a" * 201}, 400, "text-too-long", "expected at most 200 characters as 'model', got 201"),
    (TRANSLATE, {"text": "a", "model": "words"}, 404, "unknown-model", "no model named 'words' here can translate; there are: en-fr"),
    (TRANSLATE, {"text": ["a", "b"], "look": {}}, 422, "wrong-look", "'look' is for one text"),
    (TRANSLATE, {"text": "a", "look": {"layer": "nothing"}}, 422, "unknown-attention", "no attention named 'nothing'"),
    (TRANSLATE, {"text": "a", "look": {"heads": [99]}}, 422, "out-of-range", "has 2 heads"),
    (TRANSLATE, {"text": "a", "look": {"rows": [5, 2]}}, 422, "out-of-range", "rows 5 to 2 and columns"),
    (TRANSLATE, {"text": "a", "look": 3}, 400, "wrong-type", "expected an object or null as 'look', got 3"),
    ("/v1/tag", {"text": "a"}, 404, "unknown-model", "no model here can tag"),
    ("/v1/generate", {"prompt": "a", "limit": 0}, 400, "out-of-range", "expected 1 to 1,024 as 'limit', got 0"),
    ("/v1/generate", {"prompt": "a", "stream": True, "look": {}}, 422, "wrong-look", "'look' is not answered in a stream"),
    ("/v1/classify", {}, 422, "wrong-input", "expected one of 'text' and 'image'"),
    ("/v1/classify", {"image": "aGVsbG8="}, 422, "wrong-input", "reads no images"),
    ("/v1/caption", {"image": "/etc/passwd"}, 422, "not-base64", "not base64"),
    ("/v1/caption", {"image": "L2V0Yy9wYXNzd2Q="}, 422, "unknown-format", "expected an image file (PNG, JPEG"),
    ("/v1/caption", {"image": "http://127.0.0.1/a.png"}, 422, "not-base64", "not base64"),
    ("/v1/caption", {"image": base64.b64encode(b"P6 9999 9999 255\n").decode()}, 422, "too-large", "expected at most 16,000,000 pixels"),
    ("/v1/completions", {"model": "words", "n": 2}, 400, "out-of-range", "expected 1 to 1 as 'n', got 2"),
    ("/v1/completions", {"model": "en-fr"}, 404, "unknown-model", "no model named 'en-fr' here can generate"),
    ("/translate", {"q": "a", "source": "en", "target": "de"}, 422, "unknown-language", "there are: en-fr"),
    ("/translate", {"q": "a", "source": "en", "target": "fr", "format": "html"}, 422, "format-not-supported", "expected the format text"),
]  # fmt: skip
SERVED = ["en-fr", "words", "labels", "captions"]


def test_mistakes_are_answered_with_one_sentence(ask: Any) -> None:
    async def work(client: Any, service: Any) -> list[Any]:
        sent = [
            body if isinstance(body, bytes) else json.dumps(body).encode() for _, body, *_ in WRONG
        ]
        return [
            await client.post(path, content=body, headers=JSON)
            for (path, *_), body in zip(WRONG, sent, strict=True)
        ]

    for (path, body, status, code, sentence), got in zip(WRONG, ask(SERVED, work), strict=True):
        answer = got.json()
        said = answer["error"]
        if path == "/v1/completions":
            expected: dict[str, Any] = {"type": "invalid_request_error", "param": None}
            expected = {"error": {"message": said["message"], **expected, "code": code}}
            said = said["message"]
        else:
            expected = {"error": said} | ({} if path == "/translate" else {"code": code})
        assert (got.status_code, answer) == (status, expected), (str(body)[:80], got.text)
        assert sentence in said, (str(body)[:80], got.text)
        assert "\n" not in said


@pytest.mark.parametrize(
    ("name", "least", "most"), [("temperature", 0, 2), ("n", 1, 1), ("max_tokens", 1, 1024)]
)
def test_a_range_holds_both_of_its_ends(name: str, least: int, most: int) -> None:
    def completion(value: int) -> object:
        return getattr(
            schema.read(Completion, {"model": "m", "prompt": "a", name: value}, Limits()), name
        )

    assert (completion(least), completion(most)) == (least, most)
    for value in (least - 1, most + 1):
        with pytest.raises(
            Refused,
            match=rf"expected .* to .* as '{name}', got {value}; choose a number in this range",
        ):
            completion(value)


def test_bodies_are_bounded_and_plain(ask: Any) -> None:
    async def chunks() -> Any:
        for part in (b'{"text":', b' "a dog"', b"}"):
            yield part

    async def work(client: Any, service: Any) -> list[tuple[int, str]]:
        most = service.limits.image_body
        form = {"content-type": "multipart/form-data; boundary=x"}
        got = [
            await client.post(TRANSLATE, content=b" " * (service.limits.body + 1), headers=JSON),
            await client.post(
                TRANSLATE, content=b"{}", headers={**JSON, "content-length": str(most + 1)}
            ),
            await client.post(TRANSLATE, content=b"{}", headers={**JSON, "content-length": "-1"}),
            await client.post(TRANSLATE, content=chunks(), headers=JSON),
            await client.post(
                TRANSLATE, content=b"{}", headers={**JSON, "content-encoding": "gzip"}
            ),
            *[
                await client.post(
                    TRANSLATE,
                    content=b'{"text": "a"}',
                    headers=[*JSON.items(), ("content-encoding", one), ("content-encoding", other)],
                )
                for one, other in (("gzip", "identity"), ("identity", "gzip"))
            ],
            await client.post(
                TRANSLATE, content=b"{}", headers={"content-type": "application/xml"}
            ),
            await client.post(TRANSLATE, content=b"no parts", headers=form),
            await client.post(TRANSLATE, content=b"\r\n--x" * 1000, headers=form),
            await client.post(
                TRANSLATE,
                content=b"text=%ff",
                headers={"content-type": "application/x-www-form-urlencoded"},
            ),
            await client.get(TRANSLATE),
            await client.post("/nowhere", json={}),
        ]
        assert all("error" in one.json() for one in got if one.status_code != 200)
        return [one.status_code for one in got]

    got = ask(["en-fr"], work)
    assert got == [413, 413, 413, 200, 415, 415, 415, 415, 400, 400, 400, 405, 404]


def test_every_route_but_health_needs_the_key(ask: Any) -> None:
    async def work(client: Any, service: Any) -> None:
        routes = [
            (one.path, method) for one in service.app().routes for method in one.methods - {"HEAD"}
        ]
        assert len(routes) >= 15
        for path, method in [*routes, ("/nowhere", "GET")]:
            for headers in (
                {},
                {"authorization": "Bearer wrong"},
                {"x-api-key": KEY[:-1]},
                {"authorization": f"Basic {KEY}"},
            ):
                got = await client.request(
                    method, path, headers=headers, **({"json": {}} if method == "POST" else {})
                )
                free = path.startswith("/health/") or path in FILES  # the page asks for the key
                assert got.status_code == (200 if free else 401), (path, got.text)
                assert KEY not in got.text
        for headers in ({"authorization": f"Bearer {KEY}"}, {"x-api-key": KEY}):
            assert (await client.get("/v1/models", headers=headers)).status_code == 200
        body = {"q": "a dog", "source": "en", "target": "fr"}
        assert (await client.post("/translate", json={**body, "api_key": KEY})).status_code == 200
        assert (
            await client.post("/translate", json={**body, "api_key": "wrong"})
        ).status_code == 401
        assert KEY not in (await client.get("/metrics", headers={"x-api-key": KEY})).text

    ask(["en-fr"], work, keys=("another-key-of-16-or-more", KEY))


def test_only_its_own_names_are_answered(ask: Any) -> None:
    async def work(client: Any, service: Any) -> None:
        for host, status in {
            "localhost": 200, "localhost:8080": 200, "127.0.0.1:1": 200, "[::1]:8080": 200, "mine.example": 200, "MINE.example:80": 200,
            "evil.example": 400, "": 400, "localhost.evil.example": 400, "127.0.0.1.evil.example": 400, "mine.example@evil": 400,
        }.items():  # fmt: skip
            assert (
                await client.get("/health/live", headers={"host": host})
            ).status_code == status, host

    ask(["en-fr"], work, hosts=("mine.example",))


def test_no_other_origin_may_ask_unless_it_is_named(ask: Any) -> None:
    async def work(client: Any, service: Any) -> list[Any]:
        asking = {"access-control-request-method": "POST"}
        origins = [
            {"origin": one}
            for one in ("https://a.example", "https://b.example", "http://127.0.0.1")
        ]
        return [
            *[await client.options(TRANSLATE, headers={**one, **asking}) for one in origins[:2]],
            *[await client.post(TRANSLATE, json={"text": "a dog"}, headers=one) for one in origins],
        ]

    allowed = "access-control-allow-origin"
    got = ask(["en-fr"], work)
    assert [one.status_code for one in got[2:]] == [403, 403, 200]
    assert not any(allowed in one.headers for one in got)
    got = ask(["en-fr"], work, origins=("https://a.example",))
    assert [one.headers.get(allowed) for one in got] == [
        "https://a.example",
        None,
        "https://a.example",
        None,
        None,
    ]
    assert [one.status_code for one in got[2:]] == [200, 403, 200]


def test_every_answer_has_the_headers_that_keep_browsers_in_check(ask: Any) -> None:
    async def work(client: Any, service: Any) -> list[Any]:
        return [
            await client.get("/health/live"),
            await client.get("/nowhere"),
            await client.get("/", headers={"host": "evil"}),
        ]

    for got in ask(["en-fr"], work):
        assert got.headers["content-security-policy"].startswith(
            "default-src 'none'; frame-ancestors 'none'"
        )
        assert got.headers["x-content-type-options"] == "nosniff"
        assert got.headers["cache-control"] == "no-store"


def test_surplus_is_refused_at_once(ask: Any) -> None:
    async def work(client: Any, service: Any) -> None:
        held = service.worker.advance
        service.worker.advance = lambda: None  # nothing is done
        waiting = [
            asyncio.create_task(client.post(TRANSLATE, json={"text": ["a dog", "a cat"]}))
            for _ in range(2)
        ]
        await until(lambda: len(service.worker.active) == 4)
        got = await client.post(TRANSLATE, json={"text": "a dog"})
        assert got.status_code == 429
        assert got.headers["retry-after"] == "1"
        assert "4 texts are waiting already" in got.json()["error"]
        service.worker.advance = held
        assert [one.status_code for one in await asyncio.gather(*waiting)] == [200, 200]
        assert (await client.post(TRANSLATE, json={"text": ["a dog"] * 5})).status_code == 429
        assert (await client.post(TRANSLATE, json={"text": ["a dog"] * 4})).status_code == 200

    ask(["en-fr"], work, limits={"queue": 4})


def test_nobody_is_let_in_to_wait_for_long(ask: Any) -> None:
    """Where 64 or more are there, and at the speed of the last answers a further one would wait for more than 3 seconds."""

    async def work(client: Any, service: Any) -> None:
        worker = service.worker
        worker.active.update(range(64))
        for seconds, refused in ((1.0, False), (2.0, True), (1.4, False)):  # for 32 answers
            worker.answered.extend(n * seconds / 31 for n in range(32))
            if refused:
                with pytest.raises(Refused, match="64 texts are waiting already"):
                    worker.check_room()
            else:
                worker.check_room()
        worker.active.clear()

    ask(["en-fr"], work)


def test_a_request_that_takes_too_long_is_given_up(ask: Any) -> None:
    async def work(client: Any, service: Any) -> None:
        service.worker.advance = lambda: None
        got = await client.post(TRANSLATE, json={"text": "a dog"})
        assert (got.status_code, got.headers["retry-after"]) == (503, "5")
        assert "longer than 0.2 seconds" in got.json()["error"]
        await until(lambda: not service.worker.active)
        stream = await client.post("/v1/generate", json={"prompt": "a", "stream": True})
        assert "longer than 0.2 seconds" in stream.text
        await until(lambda: not service.worker.active)

    ask(["en-fr", "words"], work, limits={"seconds": 0.2})


@pytest.mark.parametrize(
    "body",
    [
        {"text": "the dog saw the cat", "max_length": 1000},
        {"prompt": "a", "limit": 1000, "stream": True},
    ],
)
def test_a_client_that_goes_away_cancels_its_work(
    ask: Any, body: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def work(client: Any, service: Any) -> None:
        app, sent, gone = service.app(), json.dumps(body).encode(), asyncio.Event()
        path = TRANSLATE if "text" in body else "/v1/generate"
        messages = [{"type": "http.request", "body": sent, "more_body": False}]

        async def receive() -> Any:
            if messages:
                return messages.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(part: Any) -> None:
            pass

        headers = [
            (b"host", b"localhost"),
            (b"content-type", b"application/json"),
            (b"content-length", str(len(sent)).encode()),
        ]
        scope = {"type": "http", "asgi": {"spec_version": "2.3"}, "method": "POST", "path": path, "raw_path": path.encode(),
                 "query_string": b"", "headers": headers, "http_version": "1.1", "scheme": "http", "server": ("x", 1)}  # fmt: skip
        held = service.worker.step
        service.worker.step = lambda flow: None if flow.outputs[0].is_wanted() else held(flow)
        running = asyncio.create_task(app(scope, receive, send))
        await until(lambda: bool(service.worker.flowing))
        gone.set()
        await running
        await until(lambda: not service.worker.flowing and not service.worker.active)

    ask(["en-fr", "words"], work)
    gc.collect()
    assert not caplog.text  # nobody's going is a mistake


def test_a_body_that_does_not_arrive_is_given_up(ask: Any) -> None:
    async def slowly() -> Any:
        yield b"{"
        await asyncio.sleep(20)

    async def work(client: Any, service: Any) -> Any:
        return await client.post(
            TRANSLATE, content=slowly(), headers={**JSON, "content-length": "100"}
        )

    got = ask(["en-fr"], work, limits={"seconds": 0.2})
    assert (got.status_code, got.json()["error"]) == (
        408,
        "the body did not arrive within 0.2 seconds; send it faster",
    )


def test_what_is_not_answered_in_time_when_it_ends_is_refused(
    ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("saccade.serving.service.STOP_SECONDS", 0.2)

    async def work(client: Any, service: Any) -> None:
        service.worker.advance = lambda: None
        stream = asyncio.create_task(
            client.post("/v1/generate", json={"prompt": "a", "stream": True})
        )
        waiting = asyncio.create_task(client.post(TRANSLATE, json={"text": "a dog"}))
        await until(lambda: len(service.worker.active) == 2)
        service.stop()
        for got in (
            await client.post(TRANSLATE, json={"text": "a cat"}),
            await client.get("/health/ready"),
            await waiting,
        ):
            assert (got.status_code, "retry-after" in got.headers) == (503, True)
        assert "the service is ending" in (await stream).text

    ask(["en-fr", "words"], work)


def test_one_bad_text_does_not_spoil_the_batch(ask: Any) -> None:
    """Texts of a batch that cannot be read are refused by themselves."""

    async def work(client: Any, service: Any) -> None:
        task, held = service.shelf.models["labels"].task, service.worker.advance
        real = task.predict

        def predict(model: Any, texts: Any) -> Any:
            if "bad" in texts:
                raise SaccadeError("a text cannot be read; send another")
            return real(model, texts)

        task.predict = predict
        service.worker.advance = lambda: None
        texts = ["good", "bad", "fun"]
        waiting = [
            asyncio.create_task(client.post("/v1/classify", json={"text": text})) for text in texts
        ]
        await until(lambda: len(service.worker.active) == 3)
        service.worker.advance = held
        got = await asyncio.gather(*waiting)
        assert [one.status_code for one in got] == [200, 422, 200]
        assert got[1].json() == {"error": "a text cannot be read; send another", "code": "invalid"}

    ask(["labels"], work)


def test_a_defect_is_logged_and_answered_without_its_traceback(
    ask: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(client: Any, service: Any) -> Any:
        service.shelf.models["labels"].task.predict = lambda *_: 1 / 0
        return await client.post("/v1/classify", json={"text": "good"})

    got = ask(["labels"], work)
    assert (got.status_code, got.json()) == (
        500,
        {"error": "the service failed here; its log says why", "code": "service-failed"},
    )
    assert "ZeroDivisionError" in caplog.text


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize("count", [50, pytest.param(2000, marks=pytest.mark.slow)])
def test_no_body_makes_the_service_fail(ask: Any, count: int) -> None:
    names = sorted({name for verb in VERBS.values() for name in verb.kind.__dataclass_fields__})
    bodies = st.dictionaries(st.sampled_from(names), anything, max_size=5) | anything
    sent = st.one_of(bodies.map(lambda value: json.dumps(value).encode()), st.binary(max_size=60))
    paths = st.sampled_from(
        [*(f"/v1/{verb}" for verb in VERBS), "/v1/completions", "/translate", "/detect"]
    )
    kinds = st.sampled_from(
        [
            "application/json",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=a",
            "text/plain",
        ]
    )

    async def work(client: Any, service: Any) -> None:
        cases: list[tuple[str, bytes, str]] = []

        @settings(max_examples=count, suppress_health_check=list(HealthCheck))
        @given(paths, sent, kinds)
        def collect(path: str, body: bytes, kind: str) -> None:
            cases.append((path, body, kind))

        collect()
        for path, body, kind in cases:
            got = await client.post(path, content=body, headers={"content-type": kind})
            assert got.status_code < 500, (path, body, kind, got.text)
            assert got.status_code == 200 or "error" in got.json()
            own = path not in ("/v1/completions", "/translate", "/detect")
            assert got.status_code == 200 or ("code" in got.json()) == own

    ask(["en-fr", "words", "labels", "captions", "questions", "tags"], work)


def test_settings_that_are_not_safe_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        SaccadeError,
        match=r"can be reached from other machines, and no key is set; give --key-file",
    ):
        Settings({}, host="0.0.0.0")
    Settings({}, host="0.0.0.0", open=True)
    Settings({}, host="0.0.0.0", keys=(KEY,))
    Settings({}, host="127.0.0.2")
    with pytest.raises(SaccadeError, match="expected origins such as"):
        Settings({}, origins=("*",))
    with pytest.raises(SaccadeError, match="expected a limit of queue above 0, got 0"):
        Limits(queue=0)
    keys = tmp_path / "keys"
    for text, why in (
        ("", "is empty"),
        ("short", "key 1 of .* is shorter"),
        ("é" * 20, "lines of ASCII"),
    ):
        keys.write_text(text)
        with pytest.raises(SaccadeError, match=why):
            read_keys(keys)
    keys.write_text(f"{KEY}\n{KEY}2\n")
    assert read_keys(keys) == (KEY, f"{KEY}2")


def test_models_have_names() -> None:
    assert name_models(["runs/a", "en-fr=runs/b/best", "runs/c/best"]) == {
        "a": Path("runs/a"), "en-fr": Path("runs/b/best"), "c": Path("runs/c/best"),
    }  # fmt: skip
    with pytest.raises(SaccadeError, match="two models are named 'a'"):
        name_models(["x/a", "y/a"])
    with pytest.raises(SaccadeError, match="expected a name of letters"):
        name_models(["runs/a b"])


def test_a_model_that_answers_nothing_is_refused(models: Path) -> None:
    from saccade import api

    built = api.build({
        "task": "language-modelling", "language": {"block": 8, "objective": "masked"}, "vocabulary": {"kind": "words"}, "device": "cpu",
        "data": {"train": str(models / "text.txt")}, "model": {"family": "transformer-encoder", "dim": 8, "hidden": 8, "heads": 2, "depth": 1},
    })  # fmt: skip
    from saccade.serving.served_models import Served

    with pytest.raises(SaccadeError, match="can answer nothing here; leave it out"):
        Served("masked", built, Limits())
