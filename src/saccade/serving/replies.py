"""Answers: strict JSON, events of a stream, and one sentence for whatever went wrong."""

from __future__ import annotations

import json
import logging
import math
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from ..errors import SaccadeError
from .schema import Refused

LIKE_OPENAI = ("/v1/completions",)
LIKE_LIBRETRANSLATE = ("/translate", "/languages", "/detect")
log = logging.getLogger("saccade.serving")


def reply(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """An answer as strict JSON."""
    try:
        body = encode(value)
    except ValueError:
        body = encode(finite(value))
    return Response(body.encode("utf-8", "replace"), status, headers, "application/json")


def encode(value: Any) -> str:
    """Strict JSON, one list of numbers after another: the encoder lets no other thread run before it ends."""
    if isinstance(value, dict):
        fields = (f"{encode(str(name))}: {encode(one)}" for name, one in value.items())
        return "{" + ", ".join(fields) + "}"
    if isinstance(value, list) and value and isinstance(value[0], list | dict):
        return "[" + ", ".join(map(encode, value)) + "]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def finite(value: Any) -> Any:
    """With null for every number that JSON does not have."""
    if isinstance(value, dict):
        return {name: finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def event(value: Any) -> bytes:
    """One event of a stream."""
    return f"data: {value if isinstance(value, str) else json.dumps(finite(value))}\n\n".encode()


def answer_error(request: Any, error: Exception) -> Response:
    """One sentence and its code for whatever went wrong, in the format that the path's clients expect."""
    status, headers, code = 500, dict[str, str](), "service-failed"
    sentence = "the service failed here; its log says why"
    if isinstance(error, Refused):
        status, headers, code, sentence = error.status, error.headers, error.code, str(error)
    elif isinstance(error, SaccadeError):
        status, code, sentence = 422, error.code, str(error)
    elif isinstance(error, HTTPException):
        known = {404: "no route has this path", 405: "this route has another method"}
        status, headers = error.status_code, dict(error.headers or {})
        sentence = f"{known[status]}; see /openapi.json" if status in known else str(error.detail)
        code = {404: "unknown-path", 405: "wrong-method"}.get(status, "bad-request")
    else:
        log.error("a request failed", exc_info=error)
    if request.scope["path"] in LIKE_OPENAI:
        about = {"message": sentence, "type": "invalid_request_error", "param": None, "code": code}
        return reply({"error": about}, status, headers)
    body = {"error": sentence, "code": code}
    if request.scope["path"] in LIKE_LIBRETRANSLATE:
        del body["code"]
    return reply(body, status, headers)
