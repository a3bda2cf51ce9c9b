"""The service: routes, and what each answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from ..errors import SaccadeError
from .bodies import Intake, decode_image, trim_memory
from .messages import VERBS, Generate, Look, LookAt, options_of
from .replies import answer_error, event, reply
from .schema import Refused
from .served_models import Served, Shelf
from .service_metrics import Measures
from .service_settings import STOP_SECONDS, Settings
from .worker import Job, Worker

log = logging.getLogger("saccade.serving")
EVENTS = "text/event-stream"
MANY_CHARACTERS = 10_000  # of texts that are encoded outside the event loop


class Service:
    """What all routes share."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.limits = settings, settings.limits
        self.shelf, self.measures = Shelf(settings), Measures()
        self.worker = Worker(self.limits, self.measures.observe)
        self.intake = Intake(self.limits, settings.workers)
        self.stopping = False

    def app(self) -> Starlette:
        """The ASGI application, whose models are loaded by its lifespan where they are not yet."""
        from .compatible import compatible_routes
        from .guard import Guard
        from .openapi import document
        from .web_page import page_routes

        own = [
            Route(f"/v1/{verb}", self.endpoint(verb), methods=["POST"], name=verb) for verb in VERBS
        ]
        more = [
            Route("/v1/models", self.models, methods=["GET"]),
            Route("/health/live", self.live, methods=["GET"]),
            Route("/health/ready", self.ready, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
            Route("/openapi.json", lambda _: reply(document(self)), methods=["GET"]),
        ]
        routes = [*own, *more, *compatible_routes(self), *page_routes(self)]
        handlers: Any = dict.fromkeys((Refused, SaccadeError, HTTPException), tell)
        made = Starlette(routes=routes, exception_handlers=handlers, lifespan=self.lifespan)
        made.router.redirect_slashes = False
        made.add_middleware(Guard, service=self, routes=routes)
        if self.settings.origins:
            from starlette.middleware.cors import CORSMiddleware

            allowed = ["Authorization", "Content-Type", "X-API-Key"]
            made.add_middleware(
                CORSMiddleware,
                allow_origins=list(self.settings.origins),
                allow_methods=["GET", "POST"],
                allow_headers=allowed,
            )
        return made

    def load(self) -> None:
        for name in self.settings.models:
            if name not in self.shelf.models:
                self.shelf.load(name)

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Any) -> AsyncIterator[None]:
        self.load()
        self.worker.start()
        watching = asyncio.create_task(self.watch()) if self.settings.reload else None
        try:
            yield
        finally:
            if watching is not None:
                watching.cancel()
            self.worker.end()
            self.intake.thread.shutdown(wait=False)

    async def watch(self, every: float = 1.0) -> None:
        """Loads models again whose folders have changed; one that cannot be loaded leaves the old one at work."""
        while True:
            await asyncio.sleep(every)
            for name in await asyncio.to_thread(self.shelf.changed):
                try:
                    await asyncio.to_thread(self.shelf.load, name)
                    log.info("loaded %s again", name)
                except Exception as error:
                    log.warning("%s was not loaded again: %s", name, error)

    def stop(self) -> None:
        """Begins to end: what is not answered in time is refused."""
        self.stopping = True
        late = Refused(
            503,
            "the service is ending; ask again in a moment",
            code="service-ending",
            Retry_After="5",
        )
        asyncio.get_running_loop().call_later(
            STOP_SECONDS, lambda: self.worker.refuse(list(self.worker.active), late)
        )

    def check_open(self) -> None:
        """Refuses at once what has no space here."""
        if self.stopping:
            raise Refused(
                503,
                "the service is ending; ask again in a moment",
                code="service-ending",
                Retry_After="5",
            )
        self.worker.check_room()

    def endpoint(self, verb: str) -> Any:
        async def answer(request: Request) -> Response:
            self.shelf.choose(verb, None)  # where no model can do it, no body is read
            sees = VERBS[verb].reads_images and any(
                one.can(verb) and one.sees for one in self.shelf.models.values()
            )
            most = self.limits.image_body if sees else self.limits.body
            asked: Any = await self.intake.message(request, VERBS[verb].kind, most)
            served = self.shelf.choose(verb, asked.model)
            own: dict[str, Any] = {"look": self.look, "generate": self.generate}
            respond = own.get(verb) or partial(self.predict, verb)
            found: Response = await respond(request, served, asked)
            return found

        return answer

    async def wait(self, request: Request, jobs: Sequence[Job]) -> list[Any]:
        """The results of jobs; they are given up when the client goes away or the time is over."""
        self.worker.submit(jobs)
        together = asyncio.gather(*(job.future for job in jobs))
        # seen, also where nobody waits any more
        together.add_done_callback(lambda found: found.cancelled() or found.exception())
        gone = asyncio.ensure_future(request.receive())
        try:
            both: set[asyncio.Future[Any]] = {together, gone}
            await asyncio.wait(
                both, timeout=self.limits.seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if together.done():
                return list(together.result())
            if gone.done():
                raise Refused(400, "the client went away", code="client-gone")
            raise Refused(
                503,
                f"this took longer than {self.limits.seconds:g} seconds; try again later",
                code="took-too-long",
                Retry_After="5",
            )
        finally:
            gone.cancel()
            together.cancel()
            for job in jobs:
                job.cancel()

    async def found(
        self, request: Request, served: Served, verb: str, asked: Any, given: list[tuple[Any, ...]]
    ) -> list[Any]:
        """The answers to several inputs, each the values of the task's fields."""
        task, ids = served.task, list[Any]([None] * len(given))
        options = options_of(asked)
        task.check_predict(options)
        if task.by_token:
            texts = [text for [text] in given]
            many = sum(map(len, texts)) > MANY_CHARACTERS
            ids = await self.intake.run(served.encode, texts) if many else served.encode(texts)
        return await self.wait(
            request,
            [
                served.predict(verb, task.input_from(*values), options, tokens)
                for values, tokens in zip(given, ids, strict=True)
            ],
        )

    async def predict(self, verb: str, request: Request, served: Served, asked: Any) -> Response:
        given = await self.inputs(served, asked)
        found = await self.found(request, served, verb, asked, given)
        results = [one.to_dict(*served.task.answers) for one in found]
        target = [str(found[0])] if "target" in served.task.looks else []
        return await self.with_look(request, served, asked, results, *given[0], *target)

    async def inputs(self, served: Served, asked: Any) -> list[tuple[Any, ...]]:
        """What a request sent, as the fields of the task: several texts, or one image with what belongs to it."""
        text, image = getattr(asked, "text", None), getattr(asked, "image", None)
        if (text is None) == (image is None):
            raise Refused(
                422,
                "expected one of 'text' and 'image'; send what the model labels",
                code="wrong-input",
            )
        if image is None:
            texts = listed(text or "", asked.look)
            if served.sees:
                raise Refused(
                    422,
                    f"the model '{served.name}' labels an image; send that instead",
                    code="wrong-input",
                )
            return [(one,) for one in texts]
        picture = await self.picture(served, image)
        more = (getattr(asked, name) for name in served.task.fields if name != "image")
        return [(picture, *more)]

    async def picture(self, served: Served, image: str | bytes) -> Any:
        if not served.sees:
            raise Refused(
                422, f"the model '{served.name}' reads no images; send a text", code="wrong-input"
            )
        found = await self.intake.run(
            lambda: served.picture(image if isinstance(image, bytes) else decode_image(image))
        )
        self.intake.thread.submit(trim_memory)  # its pixels are gone
        return found

    async def look(self, request: Request, served: Served, asked: LookAt) -> Response:
        image = await self.picture(served, asked.image) if asked.image is not None else None
        looks = served.task.looks
        for name in ("image", "target", "text"):
            if (getattr(asked, name) is None) == (name in looks):
                raise Refused(
                    422,
                    f"the model '{served.name}' needs {'a' if name in looks else 'no'} field '{name}' to look; see /openapi.json",
                    code="wrong-look",
                )
        given = [image if name == "image" else getattr(asked, name) for name in looks]
        return await self.with_look(
            request, served, replace(asked, look=asked.look or Look()), [{}], *given
        )

    async def with_look(
        self, request: Request, served: Served, asked: Any, results: list[Any], *given: Any
    ) -> Response:
        answer = {"model": served.name, "results": results}
        if asked.look is None:
            return reply(answer)
        [results[0]["look"]] = await self.wait(request, [served.look(asked.look, *given)])
        return await asyncio.to_thread(reply, answer)  # hundreds of thousands of numbers

    async def generate(self, request: Request, served: Served, asked: Generate) -> Response:
        if asked.stream and asked.look is not None:
            raise Refused(
                422,
                "'look' is not answered in a stream; leave out one of the two",
                code="wrong-look",
            )
        job = served.generate(asked, asked.prompt, asked.limit)
        if asked.stream:
            return self.streamed(job, self.events(job, asked.limit))
        [pieces] = await self.wait(request, [job])
        results = [{"text": "".join(pieces), **ending(pieces, asked.limit)}]
        return await self.with_look(request, served, asked, results, asked.prompt)

    def streamed(self, job: Job, events: AsyncIterator[bytes]) -> Response:
        self.worker.submit([job])
        return StreamingResponse(self.until_late(job, events), media_type=EVENTS)

    async def until_late(self, job: Job, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The events of a stream; an error, and the end of the time, is the last of them."""
        try:
            async with asyncio.timeout(self.limits.seconds):
                async for one in events:
                    yield one
        except TimeoutError:
            yield event(
                {
                    "error": f"this took longer than {self.limits.seconds:g} seconds; ask for fewer tokens",
                    "code": "took-too-long",
                }
            )
        except (Refused, SaccadeError) as error:
            yield event({"error": str(error), "code": error.code})
        finally:
            job.cancel()

    async def events(self, job: Job, limit: int) -> AsyncIterator[bytes]:
        async for piece in job.stream():
            if piece:
                yield event({"text": piece})
        yield event({"done": True, **ending(job.spoken, limit)})

    async def models(self, _: Request) -> Response:
        return reply(
            {"object": "list", "data": [one.facts() for one in self.shelf.models.values()]}
        )

    async def live(self, _: Request) -> Response:
        return reply({"status": "live"})

    async def ready(self, _: Request) -> Response:
        if self.stopping or len(self.shelf.models) < len(self.settings.models):
            raise Refused(
                503,
                "the service is starting or ending; ask again in a moment",
                code="not-ready",
                Retry_After="1",
            )
        return reply({"status": "ready"})

    async def metrics(self, _: Request) -> Response:
        body, kind = self.measures.text(len(self.worker.active))
        return Response(body, media_type=kind)


async def tell(request: Request, error: Exception) -> Response:
    """A coroutine: Starlette calls plain functions in other threads, which refusals of a great many requests would wait for."""
    return answer_error(request, error)


def listed(text: str | list[str], look: Any) -> list[str]:
    """Texts as a list; attention is answered for one."""
    found = [text] if isinstance(text, str) else text
    if look is not None and (len(found) > 1 or not found[0].strip()):
        raise Refused(
            422, "'look' is for one text that has words; send it by itself", code="wrong-look"
        )
    return found


def ending(pieces: Sequence[str], limit: int) -> dict[str, Any]:
    """How a generated text ended: there is a piece for each token, and one more."""
    count = max(len(pieces) - 1, 0)
    return {"tokens": count, "finished": count < limit}
