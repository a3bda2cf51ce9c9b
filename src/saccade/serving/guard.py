"""Checks before every route (Host header, keys, sizes) and the headers of every answer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.routing import Route

from .replies import LIKE_LIBRETRANSLATE, answer_error
from .schema import Refused
from .web_page import FILES as PAGE

if TYPE_CHECKING:
    from .service import Service

# no key is needed; the page has nothing in it before one is entered
FREE = ("/health/live", "/health/ready", *PAGE)
HEADERS = {
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """An ASGI layer around all routes. Work, which is every route with POST, is refused when the queue is full."""

    def __init__(self, app: Any, service: Service, routes: Sequence[Route]) -> None:
        self.app, self.service = app, service
        self.paths = frozenset(one.path for one in routes)
        self.work = frozenset(one.path for one in routes if "POST" in (one.methods or ()))
        self.headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
        if service.settings.origins:
            self.headers.remove((b"cross-origin-resource-policy", b"same-origin"))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 0

        async def answer(part: Any) -> None:
            nonlocal status
            if part["type"] == "http.response.start":
                status = part["status"]
                known = {name.lower() for name, _ in part.get("headers", [])}
                more = [one for one in self.headers if one[0] not in known]
                more += [(b"connection", b"close")] if self.service.stopping else []
                part = {**part, "headers": [*part.get("headers", []), *more]}
            await send(part)

        try:
            error: Exception | None = self.refusal(scope)
            if error is None:
                await self.app(scope, receive, answer)
        except Exception as failure:
            error = failure
        self.service.intake.release(scope)
        if error is not None and not status:
            await answer_error(Request(scope), error)(scope, receive, answer)
        path = scope["path"] if scope["path"] in self.paths else "other"
        self.service.measures.request(path, status, time.perf_counter() - begun)

    def refusal(self, scope: Any) -> Refused | None:
        """The reason to refuse a request before its body is read, if any."""
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        settings, limits = self.service.settings, self.service.limits
        if not settings.knows_host(headers.get("host", "")):
            what = (
                "this service has another name than the Host header says; name it with --allow-host"
            )
            return Refused(400, what, code="wrong-host")
        origin = headers.get("origin", "")
        own = origin.partition("://")[2] == headers["host"]
        if origin and not own and origin not in settings.origins:
            return Refused(
                403,
                "pages of other origins may not ask here; name theirs with --cors",
                code="wrong-origin",
            )
        encodings = {
            value for name, value in scope["headers"] if name.lower() == b"content-encoding"
        }
        if encodings - {b"identity"}:
            return Refused(
                415, "a compressed body is not read; send it as it is", code="compressed-body"
            )
        length = headers.get("content-length", "0")
        most = max(limits.body, limits.image_body)
        if not length.isdigit() or len(length) > 15 or int(length) > most:
            return Refused(
                413,
                f"expected a body of at most {most:,} bytes; send less in a request",
                code="body-too-large",
            )
        if settings.keys and scope["path"] not in FREE:
            scheme, _, key = headers.get("authorization", "").partition(" ")
            given = key.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
            if not settings.knows_key(given):
                if scope["path"] not in LIKE_LIBRETRANSLATE:  # whose clients send it in the body
                    return unknown_key()
                scope["needs_key"] = True
        if scope["path"] in self.work and scope["method"] == "POST":
            self.service.check_open()  # before anything else is done for it
        return None


def unknown_key() -> Refused:
    what = "a key is needed; send it as the header Authorization: Bearer KEY"
    return Refused(401, what, code="key-missing", WWW_Authenticate="Bearer")
