"""Bodies of requests: read up to a limit, as strict JSON or as a form. No part of one is ever opened as a path or an address."""

from __future__ import annotations

import asyncio
import binascii
import contextlib
import ctypes
import json
import re
import sys
import typing
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn, TypeVar
from urllib.parse import unquote_to_bytes

from starlette.requests import Request

from .schema import Refused, choices, hints, read
from .service_settings import Limits

T = TypeVar("T")
FORM, PARTS = "application/x-www-form-urlencoded", "multipart/form-data"
MAX_PARTS = 100  # of a form
MAX_LIKE_MARKS = 1000  # byte sequences in a part that look like its end and are not
MAX_VALUES = 10_000  # texts, lists, objects and commas of a JSON body
MAX_PART_LINES, MAX_PART_LINE_BYTES = 8, 1024  # of the headers of a part
THREAD_BYTES = 2**16  # larger bodies are parsed outside the event loop
KEY_BYTES = 2**16  # of a body that is read to find the key in it
HELD = "saccade.body_bytes"  # where a request's scope says how much of the budget it holds
IMAGE = "image"  # the one field that may be larger than `Limits.body`
TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{,]', re.DOTALL)
IMAGE_VALUE = re.compile(rb'[ \t\r\n]*+:[ \t\r\n]*+"')
BOUNDARY = re.compile(
    r'^multipart/form-data\s*;(?:.*;)?\s*boundary=(?:"([^"\\]{1,200})"|([^\s;"]{1,200}))\s*(?:;|$)',
    re.IGNORECASE,
)
# behind a boundary: the last one, or one that a part follows
MARK_END = re.compile(rb"--|[ \t]{0,100}\r\n")
PARAMETER = re.compile(
    rb';[ \t]*([\w!#$&+.^`|~*-]+)=(?:"((?:\\.|[^"\\])*+)"|([^\s;"]*))[ \t]*', re.DOTALL
)


class Intake:
    """Reads bodies. The bytes of all bodies in flight are bounded; large bodies are parsed one at a time, in a thread of their own."""

    def __init__(self, limits: Limits, workers: int = 1) -> None:
        self.limits, self.budget, self.held = limits, limits.bodies // workers, 0
        self.thread = ThreadPoolExecutor(1, "saccade-bodies")

    async def message(self, request: Request, kind: type[T], most: int) -> T:
        """A request's body as a message of this kind."""
        header, body = request.headers.get("content-type", ""), await self.receive(request, most)
        if len(body) <= THREAD_BYTES:
            return parse_message(kind, header, body, self.limits)
        return await self.run(parse_message, kind, header, body, self.limits)

    async def run(self, work: Callable[..., T], *given: Any) -> T:
        """Runs slow work on a body or a picture outside the event loop, one piece of work at a time."""
        return await asyncio.get_running_loop().run_in_executor(self.thread, work, *given)

    async def receive(self, request: Request, most: int) -> bytearray:
        """A request's body, if it is not too large and comes in time."""
        needs_key = request.scope.get("needs_key")
        most = min(most, self.budget, KEY_BYTES if needs_key else most)
        if needs_key and media_type(request.headers.get("content-type", "")) == PARTS:
            raise Refused(
                415,
                "a form in parts is not read to find a key; send the key as the header Authorization: Bearer KEY",
                code="key-not-found",
            )
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await self.receive_all(request, most)
        except TimeoutError:
            raise Refused(
                408,
                f"the body did not arrive within {self.limits.seconds:g} seconds; send it faster",
                code="body-too-slow",
            ) from None

    async def receive_all(self, request: Request, most: int) -> bytearray:
        body, expected = bytearray(), int(request.headers.get("content-length", "0"))
        while True:
            got = {} if expected > most else await request.receive()
            if got.get("type") == "http.disconnect":
                raise Refused(400, "the client went away", code="client-gone")
            part = got.get("body", b"")
            if max(expected, len(body) + len(part)) > most:
                raise Refused(
                    413,
                    f"expected a body of at most {most:,} bytes; send less in a request",
                    code="body-too-large",
                )
            if self.held + len(part) > self.budget:
                what = f"requests of {self.budget / 2**20:,.0f} MiB are being read already"
                raise Refused(503, f"{what}; try again in a second", code="busy", Retry_After="1")
            body += part
            self.held += len(part)
            request.scope[HELD] = len(body)
            if not got.get("more_body", False):
                return body

    def release(self, scope: Any) -> None:
        """Gives back what an answered request held of the budget, and a large body's memory to the system."""
        size = scope.pop(HELD, 0)
        self.held -= size
        if size > THREAD_BYTES:
            with contextlib.suppress(RuntimeError):  # the service has ended
                self.thread.submit(trim_memory)


def trim_memory() -> None:
    """Returns freed memory to the system, where the C library can: glibc keeps the space of bodies and pictures otherwise."""
    if sys.platform == "linux":
        getattr(ctypes.pythonapi, "malloc_trim", int)(0)


def media_type(header: str) -> str:
    return header.partition(";")[0].strip().lower()


def parse_message(kind: type[T], header: str, body: bytearray, limits: Limits) -> T:
    """A message from a body; empties the body."""
    values = parse_body(header, body, limits.body, IMAGE in hints(kind))  # type: ignore[arg-type]
    is_form = media_type(header) in (FORM, PARTS)
    return read(kind, from_form(kind, values) if is_form else values, limits)


def parse_body(header: str, body: bytearray, most: int, has_image: bool = False) -> Any:
    """A body as plain values; that of the field `image` is bytes. All else may have at most `most` bytes."""
    kind = media_type(header)
    if kind == PARTS:
        return parse_parts(header, body, most)
    if kind == FORM:
        check_rest(len(body), most)
        return parse_form(body)
    if kind not in ("application/json", ""):
        raise Refused(
            415,
            "expected application/json, or a form; set the Content-Type",
            code="wrong-content-type",
        )
    image = cut_image(body, most) if has_image else None
    check_rest(len(body), most)
    values = parse_json(body)
    if image is not None and isinstance(values, dict) and values.get(IMAGE) == "":
        values[IMAGE] = image
    return values


def check_rest(size: int, most: int) -> None:
    if size > most:
        raise Refused(
            413,
            f"expected at most {most:,} bytes beside an image, got {size:,}; send less in a request",
            code="body-too-large",
        )


def parse_json(body: bytes | bytearray) -> Any:
    def refuse(name: str) -> NoReturn:
        raise ValueError(f"{name} is not a number of JSON")

    for count, _ in enumerate(TOKEN.finditer(body)):
        if count == MAX_VALUES:
            raise Refused(
                400,
                f"expected at most {MAX_VALUES:,} values in the body; send fewer in a request",
                code="too-many-values",
            )
    try:
        text = body.decode()
        if isinstance(body, bytearray):
            body.clear()  # the caller still holds it
        return json.loads(text, parse_constant=refuse)
    except (
        ValueError,
        RecursionError,
    ):  # also bytes that are not UTF-8, and numbers of thousands of digits
        raise Refused(
            400,
            'the body is not JSON; send an object such as {"text": "…"} in UTF-8',
            code="not-json",
        ) from None


def cut_image(body: bytearray, most: int) -> bytes | None:
    """Takes the image out of a JSON body and leaves an empty text there: the rest is small."""
    at = -1
    for _ in range(MAX_PARTS):
        at = body.find(b'"image"', at + 1)
        if at <= 0:
            return None
        found = IMAGE_VALUE.match(body, at + len(b'"image"'))
        if found is not None and body[at - 1] in b"{, \t\r\n":
            break
    else:
        return None
    start = found.end()
    end = body.find(b'"', start)
    if end < 0:
        return None  # the parser refuses it
    check_rest(len(body) - (end - start), most)
    if body.find(b"\\", start, end) >= 0:  # some clients write \/ for /
        text = body[start:end]
        del body[start:end]
        return decode_image(text.replace(b"\\/", b"/"))
    image = decode_image(body, start, end)
    del body[start:end]
    return image


def decode_image(text: bytearray | str, start: int = 0, end: int | None = None) -> bytes:
    """The bytes of an image in base64 or in a data URL. Bytes are decoded in place, piece by piece."""
    body = bytearray(text, "utf-8", "replace") if isinstance(text, str) else text
    end = len(body) if end is None else end
    if body.startswith(b"data:", start):
        start = body.find(b",", start, start + 100) + 1 or start
    at = out = start
    try:
        while at < end:
            stop = min(at + 2**20, end)
            piece = binascii.a2b_base64(body[at:stop], strict_mode=True)
            if stop < end and len(piece) < 2**20 // 4 * 3:
                raise ValueError("padding in the middle")
            body[out : out + len(piece)] = piece
            at, out = stop, out + len(piece)
    except ValueError:
        raise Refused(
            422,
            "the image is not base64; encode the bytes of its file, or send a form with the file",
            code="not-base64",
        ) from None
    with memoryview(body) as view, view[start:out] as found:
        return bytes(found)


def parse_form(body: bytearray) -> dict[str, Any]:
    refused = Refused(
        400, "the body is not a form; send name=value&name=value in UTF-8", code="bad-form"
    )
    pairs, start = list[tuple[str, str]](), 0
    while start <= len(body) > 0:
        end = body.find(b"&", start)
        end = len(body) if end < 0 else end
        middle = body.find(b"=", start, end)
        if middle < 0 or len(pairs) == MAX_PARTS:
            raise refused
        try:
            pairs.append((unquote(body, start, middle), unquote(body, middle + 1, end)))
        except ValueError:
            raise refused from None
        start = end + 1
    return collect(pairs)


def unquote(body: bytearray, start: int, end: int) -> str:
    """A text of a form, decoded in place and piece by piece: the decoder takes about 60 bytes per escaped byte."""
    at = out = start
    while at < end:
        stop = min(at + 2**12, end)
        cut = body.rfind(b"%", stop - 2, stop) if stop < end else -1
        stop = cut if cut > at else stop  # an escape is not divided
        piece = unquote_to_bytes(bytes(body[at:stop]).replace(b"+", b" "))
        body[out : out + len(piece)] = piece
        at, out = stop, out + len(piece)
    with memoryview(body) as view, view[start:out] as text:
        return str(text, "utf-8")


def parse_parts(header: str, body: bytearray, most: int) -> dict[str, Any]:
    """A form in parts; the file of an image stays bytes."""
    refused = Refused(
        400, "the body is not a form in parts; let your HTTP library make it", code="bad-form"
    )
    named = (
        BOUNDARY.match(header.strip())
        if len(header) <= MAX_PART_LINE_BYTES and header.isascii()
        else None
    )
    parts = (
        split_parts(body, b"--" + (named[1] or named[2]).encode()) if named is not None else None
    )
    images = sum(end - start for name, _, start, end in parts or () if name == IMAGE)
    check_rest(len(body) - images, most)
    if parts is None or not all(name for name, *_ in parts):
        raise refused
    pairs = list[tuple[str, Any]]()
    for name, is_file, start, end in parts:
        if name == IMAGE and not is_file:
            pairs.append((name, decode_image(body, start, end)))
            continue
        with memoryview(body) as view, view[start:end] as content:
            try:
                pairs.append((name, bytes(content) if name == IMAGE else str(content, "utf-8")))
            except ValueError:
                raise refused from None
    body.clear()
    return collect(pairs)


def split_parts(body: bytearray, mark: bytes) -> list[tuple[str, bool, int, int]] | None:
    """The parts of a form: the name, whether it is a file, and where its content starts and ends. None for a broken form."""
    found, parts = find_mark(body, mark, 0), list[tuple[str, bool, int, int]]()
    while found is not None and not found[2]:
        start, following = found[1], find_mark(body, mark, found[1] - 2)
        end = following[0] - 2 if following is not None else 0
        head = body.find(
            b"\r\n\r\n", start, min(end, start + MAX_PART_LINES * (MAX_PART_LINE_BYTES + 2)) + 4
        )
        if not start < head <= end - 4 or len(parts) == MAX_PARTS:
            return None
        parts.append((*disposition(bytes(body[start:head])), head + 4, end))
        found = following
    return parts if found is not None else None


def find_mark(body: bytearray, mark: bytes, start: int) -> tuple[int, int, bool] | None:
    """The next boundary at the start of a line: where it begins, where what follows it begins, and whether it is the last one."""
    for _ in range(MAX_LIKE_MARKS):
        begin = body.find(mark, start)
        if begin < 0:
            return None
        end = MARK_END.match(body, begin + len(mark))
        if end is not None and (begin == 0 or body[begin - 2 : begin] == b"\r\n"):
            return begin, end.end(), end[0] == b"--"
        start = begin + 1
    return None


def disposition(head: bytes) -> tuple[str, bool]:
    """What the headers of a part say: the name of its field, empty where they are wrong, and whether it is a file."""
    lines = head.split(b"\r\n")
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(b":") for line in lines)
    }
    if len(lines) > MAX_PART_LINES or any(
        len(line) > MAX_PART_LINE_BYTES or b":" not in line for line in lines
    ):
        return "", False
    kind, sign, rest = headers.get(b"content-disposition", b"").partition(b";")
    rest, at, found = (sign + rest).rstrip(b"; \t"), 0, dict[bytes, bytes]()
    while next_one := PARAMETER.match(rest, at):
        found[next_one[1].lower()] = (
            re.sub(rb"\\(.)", rb"\1", next_one[2]) if next_one[2] is not None else next_one[3]
        )
        at = next_one.end()
    plain = headers.get(b"content-transfer-encoding", b"binary").lower() in (
        b"binary",
        b"8bit",
        b"7bit",
    )
    if kind.strip().lower() != b"form-data" or at < len(rest) or not plain:
        return "", False
    return found.get(b"name", b"").decode(
        "utf-8", "replace"
    ), b"filename" in found or b"filename*" in found


def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """By name; one that comes several times is a list."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        found[name] = (
            value
            if name not in found
            else [*(found[name] if isinstance(found[name], list) else [found[name]]), value]
        )
    return found


def from_form(kind: type, values: dict[str, Any]) -> dict[str, Any]:
    """A form has texts alone: those of other fields are read as JSON."""
    found, types_of = dict(values), hints(kind)
    for name, value in values.items():
        wanted = choices(types_of.get(name, str))
        if isinstance(value, str) and str not in wanted:
            found[name] = parse_json(value.encode("utf-8", "replace"))
        elif isinstance(value, list) and not any(typing.get_origin(one) is list for one in wanted):
            raise Refused(
                400,
                f"the field '{name}' was given {len(value)} times; give it once",
                code="given-twice",
            )
    return found
