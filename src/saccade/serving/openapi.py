"""The description of a service for programs: OpenAPI 3.1, made from the messages, the limits and the models."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..version import __version__
from .messages import VERBS, Completion, Detect, LibreTranslate, WorkOut
from .schema import example, schema

if TYPE_CHECKING:
    from .served_models import Served
    from .service import Service

ERRORS = {
    "400": "the request is not as described here", "401": "a key is needed", "404": "no model of this name can do it",
    "408": "the body came too slowly",
    "413": "the body is too large", "415": "the body is of a kind that is not read",
    "422": "the request is as described here, but the model cannot answer it: its image, 'look' or options do not fit",
    "429": "too much is waiting", "503": "the service is busy, starting or ending",
}  # fmt: skip
TEXT, NUMBER, WHOLE, TRUTH = ({"type": name} for name in ("string", "number", "integer", "boolean"))
LANGUAGE = {"confidence": NUMBER, "language": TEXT}


def listing(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def shape(required: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {**required, **more}, "required": list(required)}


CHANCES = {"type": "object", "additionalProperties": NUMBER}
SITE = shape(
    {
        "name": TEXT,
        "rows": listing(TEXT),
        "columns": listing(TEXT),
        "weights": listing(listing(listing(NUMBER))),
    }
)
LOOK = shape(
    {"title": TEXT, "model": TEXT, "source": listing(TEXT), "target": listing(TEXT), "sites": listing(SITE)},
    layers=listing(TEXT), heads=listing(WHOLE), row_range=listing(WHOLE), column_range=listing(WHOLE), pool=WHOLE, shape=listing(WHOLE),
    picture=TEXT,
)  # fmt: skip
OUTPUT = {
    "text": TEXT,
    "log_prob": {"type": ["number", "null"]},
    "finished": TRUTH,
    "alternatives": listing(TEXT),
}
# The fields of answers; of any other nothing is promised.
FIELDS: dict[str, Any] = {
    **OUTPUT, "words": listing(TEXT), "tags": listing(TEXT), "label": TEXT, "labels": listing(TEXT), "probabilities": CHANCES,
    "answer": TEXT, "tokens": WHOLE, "value": NUMBER,
}  # fmt: skip
CHOICE = shape({"index": WHOLE, "text": TEXT, "finish_reason": {"type": ["string", "null"]}})
USAGE = shape({"prompt_tokens": WHOLE, "completion_tokens": WHOLE, "total_tokens": WHOLE})
COMPLETED = shape(
    {"id": TEXT, "object": TEXT, "created": WHOLE, "model": TEXT, "choices": listing(CHOICE)},
    usage=USAGE,
)
# the second as OpenAI's clients want it; those of LibreTranslate get no code
ERROR = shape({"error": {"anyOf": [TEXT, shape({"message": TEXT, "code": TEXT})]}}, code=TEXT)
MODEL = shape(
    {
        "id": TEXT,
        "object": TEXT,
        "created": WHOLE,
        "task": TEXT,
        "family": TEXT,
        "parameters": WHOLE,
        "does": listing(TEXT),
        "attends": TRUTH,
    }
)
EXAMPLE = shape({}, text=TEXT, image=TEXT)
MATRIX = shape(
    {
        "name": TEXT,
        "matrix": listing(listing(NUMBER)),
        "row_names": listing(TEXT),
        "column_names": listing(TEXT),
    }
)
STEP = shape({"title": TEXT, "text": TEXT, "matrices": listing(MATRIX)})
WORKED = shape({"tokens": listing(TEXT), "scaled": TRUTH, "steps": listing(STEP)})
SPOKEN = shape({"code": TEXT, "name": TEXT, "targets": listing(TEXT)})
MAYBE = {"anyOf": [TEXT, listing(TEXT)]}
TRANSLATED = {
    "type": "object",
    "properties": {"translatedText": MAYBE},
    "required": ["translatedText"],
}


def document(service: Service) -> dict[str, Any]:
    limits, models = service.limits, service.shelf.models.values()
    paths: dict[str, Any] = {}
    for verb, about in VERBS.items():
        names = [one.name for one in models if one.can(verb)]
        if names:
            fields = {name: FIELDS.get(name, {}) for name in about.answers}
            always = {name: fields.pop(name) for name in about.always}
            result = listing(shape(always, **fields, look=LOOK))
            answer = shape({"model": TEXT, "results": result})
            asked, forms = schema(about.kind, limits, {"model": names}), ["application/json"]
            forms += ["multipart/form-data"] if about.reads_images else []
            paths[f"/v1/{verb}"] = post(verb, about.kind, asked, answer, forms, verb == "generate")
    able = {verb for one in models for verb in one.does}
    if "generate" in able:
        names = [one.name for one in models if "generate" in one.does]
        asked = schema(Completion, limits, {"model": names})
        paths["/v1/completions"] = post(
            "completions", Completion, asked, COMPLETED, ["application/json"], True
        )
    if "translate" in able:
        forms = ["application/json", "application/x-www-form-urlencoded"]
        pairs = [one.languages for one in models if "translate" in one.does]
        codes = {
            "source": ["auto", *(pair[0] for pair in pairs)],
            "target": [pair[1] for pair in pairs],
            "format": ["text"],
        }
        paths["/translate"] = post(
            "libretranslate",
            LibreTranslate,
            schema(LibreTranslate, limits, codes),
            TRANSLATED,
            forms,
        )
        paths["/detect"] = post(
            "detect", Detect, schema(Detect, limits), listing(shape(LANGUAGE)), forms
        )
        paths["/languages"] = get("languages", "The languages of the models.", listing(SPOKEN))
    paths["/v1/models"] = get(
        "models", "The models.", shape({"object": TEXT, "data": listing(MODEL)})
    )
    paths["/v1/examples"] = get(
        "examples",
        "Inputs to try, by the names of models.",
        {"type": "object", "additionalProperties": listing(EXAMPLE)},
    )
    paths["/v1/worked"] = post(
        "worked", WorkOut, schema(WorkOut, limits), WORKED, ["application/json"]
    )
    paths["/"] = get("page", "The page for people.", TEXT, "text/html")
    paths["/"]["get"]["security"] = []
    for name in ("live", "ready"):
        paths[f"/health/{name}"] = get(
            name, f"Whether the service is {name}.", shape({"status": TEXT})
        )
        paths[f"/health/{name}"]["get"]["security"] = []
    paths["/metrics"] = get("metrics", "Counters for Prometheus.", TEXT, "text/plain")
    add_links(paths, models)
    made: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "saccade", "version": __version__},
        "paths": paths,
    }
    if service.settings.keys:
        made["components"] = {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}}
        made["security"] = [{"key": []}]
    return made


def add_links(paths: dict[str, Any], models: Iterable[Served]) -> None:
    """What can be asked next with an answer: a model of the list for its task, and where it looked for a translation."""
    chosen: dict[str, Any] = {}
    for n, one in enumerate(models):
        for verb in one.does:
            body = {**example(VERBS[verb].kind), "model": f"$response.body#/data/{n}/id"}
            chosen.setdefault(verb, {"operationId": verb, "requestBody": body})
    paths["/v1/models"]["get"]["responses"]["200"]["links"] = chosen
    if "translate" in chosen:
        body = {
            "model": "$response.body#/model",
            "text": "$request.body#/text",
            "target": "$response.body#/results/0/text",
        }
        found = paths["/v1/translate"]["post"]["responses"]["200"]
        found["links"] = {"look": {"operationId": "look", "requestBody": body}}


def answers(value: Any, media: str = "application/json", streams: bool = False) -> dict[str, Any]:
    content = {media: {"schema": value}} | (
        {"text/event-stream": {"schema": shape({"data": TEXT})}} if streams else {}
    )
    error = {"application/json": {"schema": ERROR}}
    return {"200": {"description": "the answer", "content": content}} | {
        code: {"description": text, "content": error} for code, text in ERRORS.items()
    }


def post(
    name: str, kind: type, asked: Any, answer: Any, forms: list[str], streams: bool = False
) -> dict[str, Any]:
    content = {form: {"schema": asked, "example": example(kind)} for form in forms}
    about = {"operationId": name, "summary": (kind.__doc__ or "").partition("\n")[0]}
    return {
        "post": {
            **about,
            "requestBody": {"required": True, "content": content},
            "responses": answers(answer, streams=streams),
        }
    }


def get(name: str, text: str, answer: Any, media: str = "application/json") -> dict[str, Any]:
    return {"get": {"operationId": name, "summary": text, "responses": answers(answer, media)}}
