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

log = logging.getLogger("saccade.serving")


def reply(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """An answer as strict JSON."""
    try:
        body = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        body = json.dumps(finite(value), ensure_ascii=False, allow_nan=False)
    return Response(body.encode("utf-8", "replace"), status, headers, "application/json")


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
    """One sentence for whatever went wrong."""
    if isinstance(error, Refused):
        return reply({"error": str(error)}, error.status, error.headers)
    if isinstance(error, SaccadeError):
        return reply({"error": str(error)}, 400)
    if isinstance(error, HTTPException):
        known = {404: "there is no such route; see /openapi.json", 405: "this route has another method; see /openapi.json"}
        return reply({"error": known.get(error.status_code, str(error.detail))}, error.status_code, dict(error.headers or {}))
    log.error("a request failed", exc_info=error)
    return reply({"error": "the service failed here; its log says why"}, 500)
