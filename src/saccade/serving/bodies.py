"""Bodies of requests: read up to a limit, as strict JSON or as a form. No part of one is ever opened as a path or an address."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import typing
import urllib.parse
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any, NoReturn, TypeVar

from starlette.requests import Request

from .schema import Refused, choices, hints, read
from .settings import Limits

T = TypeVar("T")
MOST_FIELDS = 100
FORM, PARTS = "application/x-www-form-urlencoded", "multipart/form-data"


async def message(request: Request, kind: type[T], limits: Limits, most: int) -> T:
    """What a request says, as a message of this kind."""
    values = await plain(request, limits, most)
    return read(kind, values if isinstance(values, dict) and not is_form(request) else from_form(kind, values), limits)


async def plain(request: Request, limits: Limits, most: int) -> Any:
    """A request's body as plain values."""
    try:
        async with asyncio.timeout(limits.seconds):
            body = await whole(request, most)
    except TimeoutError:
        raise Refused(408, f"the body did not arrive within {limits.seconds:g} seconds; send it faster") from None
    kind = kind_of(request)
    if kind == PARTS:
        return parse_parts(request.headers.get("content-type", ""), body)
    if kind == FORM:
        return parse_form(body)
    if kind not in ("application/json", ""):
        raise Refused(415, "expected application/json, or a form; set the Content-Type")
    return parse_json(body)


def kind_of(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def is_form(request: Request) -> bool:
    return kind_of(request) in (FORM, PARTS)


async def whole(request: Request, most: int) -> bytes:
    """All bytes, if they are not too many."""
    parts, size = [], 0
    while True:
        got = await request.receive()
        if got["type"] == "http.disconnect":
            raise Refused(400, "the client went away")
        size += len(got.get("body", b""))
        if size > most:
            raise Refused(413, f"expected a body of at most {most:,} bytes; send less in a request")
        parts.append(got.get("body", b""))
        if not got.get("more_body", False):
            return b"".join(parts)


def parse_json(body: bytes) -> Any:
    def refuse(name: str) -> NoReturn:
        raise ValueError(f"{name} is not a number of JSON")

    try:
        return json.loads(body.decode(), parse_constant=refuse)
    except (ValueError, RecursionError):  # also bytes that are not UTF-8, and numbers of thousands of digits
        raise Refused(400, 'the body is not JSON; send an object such as {"text": "…"} in UTF-8') from None


def parse_form(body: bytes) -> dict[str, Any]:
    try:
        pairs = urllib.parse.parse_qsl(body.decode("ascii"), True, True, errors="strict", max_num_fields=MOST_FIELDS)
    except ValueError:
        raise Refused(400, "the body is not a form; send name=value&name=value in UTF-8") from None
    return collect(pairs)


def parse_parts(header: str, body: bytes) -> dict[str, Any]:
    """A form in parts; files become base64, as they are in JSON."""
    refused = Refused(400, "the body is not a form in parts; let your HTTP library make it")
    if not header.isascii() or body.count(b"\r\n--") > MOST_FIELDS:
        raise refused
    try:
        parsed = BytesParser(policy=HTTP).parsebytes(b"Content-Type: " + header.encode() + b"\r\n\r\n" + body)
        pairs = []
        for part in parsed.iter_parts() if parsed.is_multipart() else ():
            name = part.get_param("name", header="content-disposition")
            data = part.get_payload(decode=True)
            if not isinstance(name, str) or not isinstance(data, bytes):
                raise refused
            pairs.append((name, base64.b64encode(data).decode() if part.get_filename() is not None else data.decode()))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, IndexError):
        raise refused from None
    if not pairs:
        raise refused
    return collect(pairs)


def collect(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """By name; one that comes several times is a list."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        found[name] = value if name not in found else [*(found[name] if isinstance(found[name], list) else [found[name]]), value]
    return found


def from_form(kind: type, values: Any) -> Any:
    """A form has texts alone: those of other fields are read as JSON."""
    if not isinstance(values, dict):
        return values
    found, types_of = dict(values), hints(kind)
    for name, value in values.items():
        wanted = choices(types_of.get(name, str))
        if isinstance(value, str) and str not in wanted:
            found[name] = parse_json(value.encode("utf-8", "replace"))
        elif isinstance(value, list) and not any(typing.get_origin(one) is list for one in wanted):
            raise Refused(400, f"the field '{name}' was given {len(value)} times; give it once")
    return found


def image_bytes(text: str) -> bytes:
    """The bytes of an image in base64, or in a data address."""
    data = text.partition(",")[2] if text.startswith("data:") else text
    try:
        return base64.b64decode(data.encode("ascii"), validate=True)
    except (ValueError, binascii.Error):
        raise Refused(400, "the image is not base64; encode the bytes of its file, or send a form with the file") from None
