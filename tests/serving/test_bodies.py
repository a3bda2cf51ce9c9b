"""Bodies of requests: the forms and JSON of real clients are read, hostile ones take little memory and no space of others."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import re
import threading
import time
import tracemalloc
import urllib.parse
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from serving_helpers import SENTENCES, until

from saccade.serving import bodies, web_page
from saccade.serving import service as service_module
from saccade.serving.bodies import MAX_PARTS, MAX_VALUES, parse_body
from saccade.serving.schema import Refused

KEY = "0123456789abcdef-key"
MOST = 2**20
FORM = "multipart/form-data; boundary=b"


def parsed(body: bytes, header: str = FORM, most: int = MOST, image: bool = True) -> Any:
    return parse_body(header, bytearray(body), most, image)


def refused(body: bytes, header: str = FORM) -> Refused:
    with pytest.raises(Refused) as found:
        parsed(body, header)
    return found.value


def part(
    content: bytes,
    disposition: bytes = b'form-data; name="image"; filename="a.png"',
    more: bytes = b"",
) -> bytes:
    return (
        b"--b\r\nContent-Disposition: " + disposition + b"\r\n" + more + b"\r\n" + content + b"\r\n"
    )


@settings(max_examples=100, deadline=None)
@given(
    image=st.binary(max_size=200)
    | st.lists(st.sampled_from([b"--", b"\r\n", b"boundary", b"\r\n--", b"\0", b"\r"])).map(
        b"".join
    ),
    question=st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    filename=st.text(
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20
    ),
    boundary=st.from_regex(r"[0-9a-zA-Z'()+_,./:=?-]{1,70}", fullmatch=True),
)
def test_forms_of_httpx_are_read_as_they_were_sent(
    image: bytes, question: str, filename: str, boundary: str
) -> None:
    header = f'multipart/form-data; boundary="{boundary}"'
    if b"\r\n--" + boundary.encode() in b"\r\n" + image + b"\r\n" + question.encode():
        return  # a client chooses a boundary that is not in its content
    files = {"image": (filename, image, "image/png")}
    request = httpx.Request(
        "POST",
        "http://x",
        files=files,
        data={"question": question},
        headers={"content-type": header},
    )
    assert parsed(request.read(), header) == {"image": image, "question": question}


PLAIN = b"\x89PNG\r\n\x1a\n--b inside\r\n --b\r\n-b--"
RIGHT = {
    "curl": part(PLAIN, more=b"Content-Type: image/png\r\n"),
    "quotes in the name of the file": part(
        PLAIN, b'form-data; name="image"; filename="a\\"; name=\\"b.png"'
    ),
    "percent": part(PLAIN, b'form-data; name="image"; filename="a%22.png"'),
    "RFC 5987": part(PLAIN, b"form-data; name=image; filename*=UTF-8''na%C3%AFve.png"),
    "both names of a file": part(
        PLAIN, b"form-data; filename=\"?\"; filename*=UTF-8''%E2%82%AC; name=image"
    ),
    "other cases": part(PLAIN).replace(
        b"Content-Disposition: form-data; name", b"CONTENT-DISPOSITION:Form-Data ;  Name"
    ),
    "preamble": b"to be ignored\r\n" + part(PLAIN),
    "spaces behind the boundary": part(PLAIN).replace(b"--b\r\n", b"--b \t\r\n", 1),
    "what starts as a boundary": part(PLAIN + b"\r\n--bee"),
    "base64 without a file": part(base64.b64encode(PLAIN), b'form-data; name="image"'),
}


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("end", [b"--b--\r\n", b"--b--", b"--b--\r\nan epilogue\r\n--b\r\n"])
@pytest.mark.parametrize(
    "header",
    [
        FORM,
        'Multipart/Form-Data; charset=utf-8; boundary="b"',
        "multipart/form-data;boundary=b;a=c",
    ],
)
def test_right_forms_are_read(name: str, end: bytes, header: str) -> None:
    expected = PLAIN + b"\r\n--bee" if name.startswith("what starts") else PLAIN
    text = part("é\r\n".encode(), b'form-data; name="question"')
    assert parsed(RIGHT[name] + text + end, header) == {"image": expected, "question": "é\r\n"}


def test_an_empty_file_is_a_file_and_an_empty_form_is_a_form() -> None:
    assert parsed(b"--b--\r\n") == {}
    assert parsed(part(b"") + b"--b--") == {"image": b""}
    assert parsed(part(b"", b'form-data; name="image"; filename=""') + b"--b--") == {"image": b""}


WRONG = {
    "no boundary": (part(b"x") + b"--b--", "multipart/form-data"),
    "another boundary": (part(b"x") + b"--b--", "multipart/form-data; boundary=c"),
    "no end": (part(b"x"), FORM),
    "no headers": (b"--b\r\n\r\nx\r\n--b--", FORM),
    "nothing in a part": (b"--b\r\n--b--", FORM),
    "headers without end": (b"--b\r\nContent-Disposition: form-data; name=image\r\n--b--", FORM),
    "no name": (part(b"x", b"form-data; filename=a") + b"--b--", FORM),
    "an attachment": (part(b"x", b"attachment; name=image") + b"--b--", FORM),
    "folded": (part(b"x", b'form-data;\r\n name="image"') + b"--b--", FORM),
    "nine header lines": (part(b"x", more=b"X: y\r\n" * 8) + b"--b--", FORM),
    "a header line of 1 KiB": (part(b"x", more=b"X: " + b"y" * 1024 + b"\r\n") + b"--b--", FORM),
    "base64 as an encoding": (
        part(b"eA==", more=b"Content-Transfer-Encoding: base64\r\n") + b"--b--",
        FORM,
    ),
    "not UTF-8": (part(b"\xff", b"form-data; name=question") + b"--b--", FORM),
    "too many parts": (part(b"x") * (MAX_PARTS + 1) + b"--b--", FORM),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_forms_are_refused(name: str) -> None:
    found = refused(*WRONG[name])
    assert (found.status, str(found)) == (
        400,
        "the body is not a form in parts; let your HTTP library make it",
    )


def used(work: Any) -> int:
    """The most bytes that were allocated at a time."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


PIECES = [b"=?utf-8?q?a?= ", b";a=b", b";name*0*=a", b"(", b"\r\n a", b"\r\n", b"\n", b"X: y\r\n", b"--b", b"\r\n--b", b"\r\n--b\r\n", b'"', b'\\"',
          b"\\", b" ", b"; filename=\"", b"\r\n\r\n", b"%41", b"&", b"a=", b"Content-Disposition: form-data; name=a\r\n", b"\xff"]  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(
    start=st.lists(st.sampled_from(PIECES), max_size=3).map(b"".join),
    again=st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map(b"".join),
    inside=st.booleans(),
    header=st.sampled_from(
        [
            FORM,
            'multipart/form-data; boundary="-"',
            "application/x-www-form-urlencoded",
            "application/json",
        ]
    ),
)
def test_a_hostile_body_takes_at_most_its_own_size_again(
    start: bytes, again: bytes, inside: bool, header: str
) -> None:
    """Bodies of 100 KB; what is quadratic in time would take minutes."""
    body = start + again * (100_000 // len(again))
    body = part(b"x", b'form-data; name="' + body + b'"') + b"--b--\r\n" if inside else body

    def work() -> None:
        with contextlib.suppress(Refused):
            parsed(body, header)

    begun = time.process_time()
    assert used(work) <= 2 * len(body) + 300_000
    assert time.process_time() - begun < 20


NESTED = {
    "lists": b"[" + b"[]," * 300_000 + b"[]]",
    "objects": b'{"a":[' + b"{}," * 300_000 + b"{}]}",
    "keys": b"{" + b",".join(b'"%d":1' % n for n in range(100_000)) + b"}",
    "numbers": b"[" + b"1.5," * 200_000 + b"1]",
    "texts": b'["' + b'","' * 300_000 + b'"]',
    "quotes": b'{"text": "' + b'\\"' * 400_000,
}


@pytest.mark.parametrize("name", NESTED)
def test_json_of_a_great_many_values_is_refused_before_it_is_parsed(name: str) -> None:
    found: list[Refused] = []
    assert (
        used(lambda: found.append(refused(NESTED[name], "application/json")))
        <= 2 * len(NESTED[name]) + 100_000
    )
    wanted = "not JSON" if name == "quotes" else f"expected at most {MAX_VALUES:,} values"
    assert (found[0].status, wanted in str(found[0])) == (400, True)
    assert parsed(b'{"text": "' + b"[{," * 200_000 + b'"}', "application/json") == {
        "text": "[{," * 200_000
    }


def png(size: int = 40) -> bytes:
    made = io.BytesIO()
    Image.effect_noise((size, size), 100).convert("RGB").save(made, "PNG")
    return made.getvalue()


@pytest.mark.parametrize(
    "how", ["first", "last", "spaces", "escaped", "data", "twice", "in a text"]
)
def test_an_image_is_read_beside_json(how: str) -> None:
    data, more = b"\xff\xef\xbe" * 1000, {"question": 'is it "image": "a"?'}
    text = base64.b64encode(data).decode()
    assert "/" in text
    text = f"data:image/png;base64,{text}" if how == "data" else text
    sent = json.dumps({**more, "image": text} if how == "last" else {"image": text, **more})
    sent = sent.replace('"image": ', '\n "image" \t:  ', 1) if how == "spaces" else sent
    sent = sent.replace("/", "\\/") if how == "escaped" else sent
    sent = sent.replace('{"image"', '{"image": "", "image"') if how == "twice" else sent
    sent = json.dumps({"question": more["question"] + sent}) if how == "in a text" else sent
    found = parsed(
        sent.encode(), "application/json", 6000 if how in ("twice", "in a text") else 500
    )
    if how == "in a text":
        assert list(found) == ["question"]
    else:
        assert {
            **found,
            "image": text.encode() if isinstance(found["image"], str) else found["image"],
        } == {**more, "image": text.encode() if how == "twice" else data}
    with pytest.raises(Refused, match="expected at most 10 bytes beside an image"):
        parsed(sent.encode(), "application/json", 10)


def test_a_large_image_is_read_in_every_form(ask: Any) -> None:
    image = png(800)
    text = base64.b64encode(image).decode()
    names: set[str] = set()

    async def work(client: Any, service: Any) -> list[Any]:
        real = service.shelf.models["captions"].picture
        service.shelf.models["captions"].picture = lambda data: (
            names.add(threading.current_thread().name) or real(data)
        )
        return [
            await client.post("/v1/caption", json={"image": text}),
            await client.post(
                "/v1/caption", json={"image": f"data:image/png;base64,{text}", "beam": 1}
            ),
            await client.post("/v1/caption", files={"image": ("a.png", image)}),
            await client.post("/v1/caption", files={"image": (None, text)}, data={"beam": "1"}),
            await client.post("/v1/caption", json={"image": text, "beam": [0] * 600_000}),
            await client.post(
                "/v1/caption", files={"image": ("a.png", image)}, data={"model": "x" * 1_100_000}
            ),
        ]

    assert len(image) > 2**20
    *right, json_rest, form_rest = ask(["captions"], work)
    assert [one.status_code for one in right] == [200] * 4
    assert len({one.text for one in right}) == 1
    assert names == {"saccade-bodies_0"}, (
        "pictures are decoded one at a time, and not by the event loop"
    )
    for one in (json_rest, form_rest):
        assert (
            one.status_code,
            "expected at most 1,048,576 bytes beside an image" in one.json()["error"],
        ) == (413, True)


def test_no_body_is_read_that_no_model_can_answer(ask: Any) -> None:
    """Not where no model can do it, nor more than a text's limit where no model reads images, nor before the space is asked for."""

    async def work(client: Any, service: Any) -> None:
        read = 0

        async def body(size: int) -> Any:
            nonlocal read
            for _ in range(size // 1000):
                read += 1000
                yield b" " * 1000

        async def status(path: str, size: int, **headers: str) -> int:
            nonlocal read
            read = 0
            how = {"content-type": "application/json", **headers}
            return int((await client.post(path, content=body(size), headers=how)).status_code)

        for path in ("/v1/caption", "/v1/tag", "/v1/completions", "/nowhere"):
            assert (await status(path, 500_000), read <= 1000) == (404, True), path
        assert (await status("/v1/classify", 3_000_000), read < 1_100_000) == (413, True)
        assert (
            await status("/v1/classify", 3_000_000, **{"content-length": "3000000"}),
            read <= 1000,
        ) == (413, True)
        assert service.intake.held == 0

    ask(["labels"], work)


def test_bodies_in_flight_have_a_budget(ask: Any) -> None:
    async def work(client: Any, service: Any) -> None:
        go_on = asyncio.Event()

        async def slowly(size: int) -> Any:
            yield b" " * (size - 20)
            await go_on.wait()
            yield b'{"text": "a good"}  '

        how = {"headers": {"content-type": "application/json"}}
        held = [
            asyncio.create_task(client.post("/v1/classify", content=slowly(40_000), **how))
            for _ in range(2)
        ]
        await until(lambda: service.intake.held > 79_000)
        got = await client.post("/v1/classify", content=b" " * 30_000, **how)
        assert (got.status_code, got.headers["retry-after"]) == (503, "1")
        assert "are being read already; try again in a second" in got.json()["error"]
        assert (await client.post("/v1/classify", json={"text": "a bad"})).status_code == 200
        assert (await client.get("/health/live")).status_code == 200
        go_on.set()
        assert [one.status_code for one in await asyncio.gather(*held)] == [200, 200]
        assert service.intake.held == 0
        got = await client.post("/v1/classify", content=b" " * 100_001, **how)
        assert (got.status_code, "at most 100,000 bytes" in got.text) == (413, True)

    ask(["labels"], work, limits={"bodies": 200_000}, workers=2)


def test_a_stranger_sends_a_small_body_in_which_a_key_can_be(ask: Any) -> None:
    """Where the key may be in the body: 64 KiB of JSON or of a plain form. No form in parts is read."""
    parts = (
        b'--b\r\nContent-Disposition: form-data; name="'
        + b"=?utf-8?q?a?= " * 7000
        + b'"\r\n\r\nx\r\n--b--\r\n'
    )
    key = f"api_key={KEY}&q=a dog&source=en&target=fr".encode()
    plain = {"content-type": "application/x-www-form-urlencoded"}

    async def work(client: Any, service: Any) -> None:
        for path, method in (("/translate", "POST"), ("/detect", "POST"), ("/languages", "GET")):

            async def status(
                content: bytes, headers: Any, path: str = path, method: str = method
            ) -> int:
                return int(
                    (
                        await client.request(method, path, content=content, headers=headers)
                    ).status_code
                )

            assert await status(parts, {"content-type": FORM}) == 415
            assert await status(
                parts, {"content-type": FORM, "authorization": f"Bearer {KEY}"}
            ) in (200, 400)
            assert await status(key + b"&alternatives=" + b"1" * 70_000, plain) == 413
            assert (
                await status(b'{"q": "' + b"a" * 70_000, {"content-type": "application/json"})
                == 413
            )
            for wrong in (
                b"",
                b"{",
                b"[" * 20_000,
                b"[1]",
                b'{"q": 3, "api_key": 4}',
                b'{"api_key": "wrong"}',
            ):
                assert await status(wrong, {"content-type": "application/json"}) == 401, (
                    path,
                    wrong[:20],
                )
            assert await status(key.replace(KEY.encode(), b"wrong"), plain) == 401
            assert (
                await status(key if path == "/translate" else key.split(b"&source")[0], plain)
                == 200
            ), path

    begun = time.process_time()
    assert used(lambda: ask(["en-fr"], work, keys=(KEY,))) < 60_000_000
    assert time.process_time() - begun < 60


def test_all_work_is_refused_where_there_is_no_space(ask: Any) -> None:
    """Each route with POST, without a look at its body; and the worked example waits as all else does."""

    async def work(client: Any, service: Any) -> None:
        paths = [one.path for one in service.app().routes if "POST" in one.methods]
        assert "/v1/worked" in paths
        held = service.worker.advance
        service.worker.advance = lambda: None
        waiting = asyncio.create_task(client.post("/v1/worked", json={"text": SENTENCES[0]}))
        await until(lambda: len(service.worker.active) == 1)
        for path in paths:
            assert (await client.post(path, content=b"{")).status_code == 429, path
        assert (await client.get("/health/live")).status_code == 200
        service.worker.advance = held
        assert (await waiting).status_code == 200
        service.stopping = True
        assert {(await client.post(path, content=b"{")).status_code for path in paths} == {503}

    ask(["en-fr"], work, limits={"queue": 1})


def test_the_event_loop_does_nothing_slow(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large bodies, texts of many letters, the worked example and large answers are the work of other threads."""
    where: dict[str, str] = {}

    def watch(module: Any, name: str) -> None:
        real = getattr(module, name)

        def watched(*given: Any, **named: Any) -> Any:
            where.setdefault(name, threading.current_thread().name)
            return real(*given, **named)

        monkeypatch.setattr(module, name, watched)

    async def work(client: Any, service: Any) -> None:
        watch(bodies, "parse_message")
        watch(web_page, "worked_sentence")
        watch(service.shelf.models["en-fr"], "encode")
        assert (
            await client.post(
                "/v1/translate", json={"text": ["a dog " * 800] * 20, "max_length": 1}
            )
        ).status_code == 200
        assert (await client.post("/v1/worked", json={"text": "a dog"})).status_code == 200
        watch(service_module, "reply")
        assert (
            await client.post("/v1/look", json={"text": "a dog", "target": "le chien"})
        ).status_code == 200

    ask(["en-fr"], work)
    assert set(where) == {"parse_message", "worked_sentence", "encode", "reply"}
    assert threading.main_thread().name not in where.values(), where


def test_a_sentence_of_31_words_is_not_promised(ask: Any) -> None:
    async def work(client: Any, service: Any) -> None:
        found = (await client.get("/openapi.json")).json()["paths"]["/v1/worked"]["post"]
        pattern = found["requestBody"]["content"]["application/json"]["schema"]["properties"][
            "text"
        ]["pattern"]
        for words, fits in ((0, True), (1, True), (30, True), (31, False)):
            for text in (" ".join(["a"] * words), "  " + "\n\t".join(["a"] * words) + " "):
                assert bool(re.search(pattern, text)) == fits
                assert (await client.post("/v1/worked", json={"text": text})).status_code == (
                    200 if fits else 422
                )
        assert "422" in found["responses"]

    ask(["en-fr"], work)


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=8),
        st.text(max_size=30) | st.text("a%é€", min_size=1).map(lambda text: (text * 5000)[:5000]),
        max_size=5,
    )
)
def test_plain_forms_are_read_as_they_were_sent(values: dict[str, str]) -> None:
    sent = urllib.parse.urlencode(values)
    assert parsed(sent.encode(), "application/x-www-form-urlencoded") == values
    assert (
        parsed(
            sent.replace("%20", "+").encode(), "application/x-www-form-urlencoded; charset=utf-8"
        )
        == values
    )
