"""Routes by which clients of LibreTranslate and of OpenAI's completions work unchanged."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .bodies import parse_body
from .guard import unknown_key
from .messages import Completion, Detect, LibreTranslate, Translate
from .replies import event, reply
from .schema import Refused
from .served_models import Served
from .worker import Job

if TYPE_CHECKING:
    from .service import Service


def compatible_routes(service: Service) -> list[Route]:
    libre, openai = Libre(service), OpenAI(service)
    return [
        Route("/translate", libre.translate, methods=["POST"]),
        Route("/languages", libre.languages, methods=["GET"]),
        Route("/detect", libre.detect, methods=["POST"]),
        Route("/v1/completions", openai.complete, methods=["POST"]),
    ]


class Libre:
    """LibreTranslate: a translation model is chosen by its languages, which its name says (`en-fr`), or `source` and `target`."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def check_key(self, request: Request, key: Any) -> None:
        """Its clients send the key in the body."""
        known = isinstance(key, str) and self.service.settings.knows_key(key)
        if request.scope.get("needs_key") and not known:
            raise unknown_key()

    def models(self) -> list[Served]:
        return [one for one in self.service.shelf.models.values() if "translate" in one.does]

    async def read(self, request: Request, kind: type) -> Any:
        try:
            asked: Any = await self.service.intake.message(request, kind, self.service.limits.body)
        except Refused as error:
            if request.scope.get("needs_key") and error.status in (400, 422):
                raise unknown_key() from None  # who has no key learns nothing about bodies
            raise
        self.check_key(request, asked.api_key)
        return asked

    async def translate(self, request: Request) -> Response:
        asked: LibreTranslate = await self.read(request, LibreTranslate)
        if asked.format != "text":
            raise Refused(
                422,
                "expected the format text; take the marks out of the text first",
                code="format-not-supported",
            )
        served = self.choose(asked.source, asked.target)
        texts = [asked.q] if isinstance(asked.q, str) else asked.q
        how = Translate(asked.q, beam=min(asked.alternatives + 1, self.service.limits.beam))
        given = [(text,) for text in texts]
        found = await self.service.found(request, served, "translate", how, given)
        made: dict[str, Any] = {"translatedText": [one.text for one in found]}
        if asked.alternatives:
            made["alternatives"] = [one.alternatives[: asked.alternatives] for one in found]
        if asked.source == "auto":
            made["detectedLanguage"] = [
                {"confidence": 100, "language": served.languages[0]} for _ in found
            ]
        return reply(
            {name: value[0] for name, value in made.items()} if isinstance(asked.q, str) else made
        )

    def choose(self, source: str, target: str) -> Served:
        able = [
            one
            for one in self.models()
            if one.languages[1] == target and source in (one.languages[0], "auto")
        ]
        if not able or (source == "auto" and len({one.languages[0] for one in able}) > 1):
            known = ", ".join(sorted({"-".join(one.languages) for one in self.models()})) or "none"
            raise Refused(
                422,
                f"expected languages that a model has, got other ones; there are: {known}",
                code="unknown-language",
            )
        return able[0]

    async def languages(self, request: Request) -> Response:
        if request.scope.get("needs_key"):
            body = await self.service.intake.receive(request, self.service.limits.body)
            try:
                given = parse_body(request.headers.get("content-type", ""), body, len(body))
            except Refused:
                raise unknown_key() from None
            self.check_key(request, given.get("api_key") if isinstance(given, dict) else None)
        targets: dict[str, list[str]] = {}
        for one in self.models():
            targets.setdefault(one.languages[0], []).append(one.languages[1])
            targets.setdefault(one.languages[1], [])
        return reply([{"code": code, "name": code, "targets": to} for code, to in targets.items()])

    async def detect(self, request: Request) -> Response:
        await self.read(request, Detect)
        sources = {one.languages[0] for one in self.models()}
        if len(sources) != 1:
            raise Refused(
                422,
                f"languages are detected where there is one, and here are {len(sources)}; name the source",
                code="several-languages",
            )
        return reply([{"confidence": 100, "language": next(iter(sources))}])


class OpenAI:
    """OpenAI's completions."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def complete(self, request: Request) -> Response:
        self.service.shelf.choose("generate", None)  # where there is none, no body is read
        asked = await self.service.intake.message(request, Completion, self.service.limits.body)
        served = self.service.shelf.choose("generate", asked.model)
        prompt = asked.prompt if isinstance(asked.prompt, str) else asked.prompt[0]
        limit = asked.max_tokens or 16
        job = served.generate(asked, prompt, limit)
        writer = Writer(asked, served.name, prompt, limit, len(served.task.encode_prompt(prompt)))
        if asked.stream:
            return self.service.streamed(job, writer.events(job))
        [pieces] = await self.service.wait(request, [job])
        text = "".join(map(writer.add, pieces)) + writer.rest()
        return reply(writer.chunk(writer.first + text, usage=writer.usage(pieces)))


class Writer:
    """The answer to one completion, whole or in chunks."""

    def __init__(self, asked: Completion, model: str, prompt: str, limit: int, size: int) -> None:
        self.asked, self.model, self.limit, self.size = asked, model, limit, size
        self.first = prompt if asked.echo else ""
        self.id, self.created = f"cmpl-{uuid.uuid4().hex}", int(time.time())
        given = [asked.stop] if isinstance(asked.stop, str) else asked.stop or []
        self.stops = [one for one in given if one]
        self.held, self.stopped, self.count = "", False, 0

    def add(self, piece: str) -> str:
        """What can be sent once a piece is there: nothing behind a stop, and no beginning of one."""
        self.count += not self.stopped
        if self.stopped:
            return ""
        self.held += piece
        at = min((found for stop in self.stops if (found := self.held.find(stop)) >= 0), default=-1)
        if at >= 0:
            self.stopped, text, self.held = True, self.held[:at], ""
            return text
        lengths = (
            n for stop in self.stops for n in range(1, len(stop)) if self.held.endswith(stop[:n])
        )
        keep = len(self.held) - max(lengths, default=0)
        text, self.held = self.held[:keep], self.held[keep:]
        return text

    def rest(self) -> str:
        """What was held back, once nothing comes any more."""
        text, self.held = self.held, ""
        return text

    def reason(self) -> str:
        return "length" if not self.stopped and self.count - 1 >= self.limit else "stop"

    def usage(self, pieces: list[str]) -> dict[str, int]:
        count = self.count if self.stopped else max(len(pieces) - 1, 0)
        return {
            "prompt_tokens": self.size,
            "completion_tokens": count,
            "total_tokens": self.size + count,
        }

    def chunk(
        self, text: str | None, last: bool = True, usage: dict[str, int] | None = None
    ) -> dict[str, Any]:
        choice = {
            "index": 0,
            "text": text,
            "logprobs": None,
            "finish_reason": self.reason() if last else None,
        }
        made = {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
        }
        return {
            **made,
            "choices": [] if text is None else [choice],
            **({} if usage is None else {"usage": usage}),
        }

    async def events(self, job: Job) -> AsyncIterator[bytes]:
        if self.first:
            yield event(self.chunk(self.first, last=False))
        async for piece in job.stream():
            text = self.add(piece)
            if text:
                yield event(self.chunk(text, last=False))
            if self.stopped:
                job.cancel()
                break
        yield event(self.chunk(self.rest()))
        if self.asked.stream_options is not None and self.asked.stream_options.include_usage:
            yield event(self.chunk(None, usage=self.usage(job.spoken)))
        yield event("[DONE]")
