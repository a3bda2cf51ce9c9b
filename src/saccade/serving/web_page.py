"""The page for people: its files, by a fixed table of names; inputs to try; the worked example with one's own sentence."""

from __future__ import annotations

import asyncio
import math
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..data.corpora import is_generated, read
from ..teaching.explain.worked_attention import worked_example, worked_sentence
from ..views.document import data_of
from .messages import WorkOut
from .replies import finite, reply
from .worker import Job

if TYPE_CHECKING:
    from .served_models import Served
    from .service import Service

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
}
OWN, VIEWS = "saccade.serving", "saccade.views"
FILES = {
    "/": (OWN, "page/index.html"), "/page/page.css": (OWN, "page/page.css"), "/page/app.js": (OWN, "page/app.js"),
    "/page/ask.js": (OWN, "page/ask.js"), "/page/results.js": (OWN, "page/results.js"), "/page/tiles.js": (OWN, "page/tiles.js"),
    "/page/learn.js": (OWN, "page/learn.js"), "/page/views.css": (VIEWS, "page.css"), "/page/attention.js": (VIEWS, "attention.js"),
    "/page/worked.js": (VIEWS, "worked.js"),
}  # fmt: skip
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data: blob:; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
MAX_EXAMPLES = 6
EXAMPLE_SIZES = {"train": 60, "dev": 1, "test": 40}  # examples that are generated to choose from


def page_routes(service: Service) -> list[Route]:
    known: dict[str, tuple[Served, list[Any]]] = {}

    def page(path: str) -> Any:
        package, name = FILES[path]
        data = files(package).joinpath(name).read_bytes()
        kind = TYPES[name.rpartition(".")[2]]
        return lambda _: Response(
            data, media_type=kind, headers={"content-security-policy": POLICY}
        )

    async def examples(_: Request) -> Response:
        for name, served in service.shelf.models.items():
            if known.get(name, (None,))[0] is not served:
                known[name] = served, await asyncio.to_thread(examples_of, served)
        return reply({name: some for name, (_, some) in known.items()})

    async def worked(request: Request) -> Response:
        asked = await service.intake.message(request, WorkOut, service.limits.body)
        job = Job(key=object(), run=lambda _: [work_out(asked)])
        found: list[Response] = await service.wait(request, [job])
        return found[0]

    routes = [Route(path, page(path), methods=["GET"]) for path in FILES]
    return [
        *routes,
        Route("/v1/examples", examples, methods=["GET"]),
        Route("/v1/worked", worked, methods=["POST"]),
    ]


def work_out(asked: WorkOut) -> Response:
    words = asked.text.split()
    found = worked_sentence(words, asked.scaled) if words else worked_example(asked.scaled)
    return reply(finite(found.to_dict()))


def examples_of(served: Served) -> list[dict[str, str]]:
    """Inputs like those that a model was trained on, where they are generated; no file that a recipe names is opened."""
    data = served.system.recipe.data
    where = next(
        (one for one in (data.test, data.dev, data.train) if one and is_generated(one)), None
    )
    if where is None:
        return []
    some = read(served.task.data, where, data.options_of(where) | EXAMPLE_SIZES)
    step = max(1, len(some) // MAX_EXAMPLES)
    return [as_input(served, one) for one in some[::step][:MAX_EXAMPLES]]


def as_input(served: Served, one: Any) -> dict[str, str]:
    if hasattr(one, "image"):
        question = {"text": one.question} if hasattr(one, "question") else {}
        return {"image": data_of(one.image.pixels().permute(1, 2, 0).numpy()), **question}
    if hasattr(one, "words"):
        return {"text": " ".join(one.words)}
    text = getattr(one, "text", None) or (
        one.target if served.system.recipe.data.swap else one.source
    )
    if "generate" in served.does:  # the beginning of it
        text = text[: math.ceil(len(text) / 2)].rpartition(" ")[0] or text
    return {"text": text}
