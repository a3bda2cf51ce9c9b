"""The JSON Schema of a recipe for editors, made from the dataclasses and tables that also check recipes."""

import dataclasses
import json
import re
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal

from .. import models
from ..models import modifications
from ..recipe import Recipe, conditions
from ..registry import Table
from ..settings import AUTO, UNIONS, hints_of, options_of, rules_of
from .catalogue import SLOTS

PART = re.compile(r"#/\$defs/([a-z0-9-]+)")
DRAFT = "https://json-schema.org/draft/2020-12/schema"
TYPES = {
    int: "integer",
    float: "number",
    str: "string",
    bool: "boolean",
    dict: "object",
    list: "array",
    type(None): "null",
}
Schema = dict[str, Any]


def recipe_schema() -> Schema:
    """JSON Schema 2020-12 of a recipe file."""
    found = settings_schema(Recipe)
    found["properties"] |= {
        "extends": {
            "type": "string",
            "description": "a recipe whose settings this one starts from",
        },
        "model": model_schema(),
    }
    parts: Schema = {}
    while missing := {*PART.findall(json.dumps([found, parts]))} - {*parts}:
        parts |= {name: part_schema(SLOTS[name]) for name in sorted(missing)}
    return {"$schema": DRAFT, "title": "saccade recipe", **found, "$defs": parts}


def settings_schema(kind: Any, where: str = "") -> Schema:
    """A settings class: its keys, and no others."""
    hints = typing.get_type_hints(kind, include_extras=True)
    keys = {}
    for f in dataclasses.fields(kind):
        path = f"{where}.{f.name}".lstrip(".")
        keys[f.name] = value_schema(hints[f.name], f.metadata, path)
        needs = conditions(path, f.metadata)
        what = "; for ".join(filter(None, (f.metadata.get("what"), needs)))
        keys[f.name] |= {"description": what} if what else {}
    return {"type": "object", "properties": keys, "additionalProperties": False}


def value_schema(hint: Any, rules: Mapping[str, Any], where: str = "") -> Schema:
    """The values that a setting may have."""
    kind, more = rules_of(hint)
    rules = {**more, **rules}
    if "table" in rules:
        return {"$ref": f"#/$defs/{rules['table'].slot}"}
    if dataclasses.is_dataclass(kind):
        return settings_schema(kind, where)
    every = typing.get_args(kind) if typing.get_origin(kind) in UNIONS else (kind,)
    words = [word for k in every if typing.get_origin(k) is Literal for word in typing.get_args(k)]
    kinds = [typing.get_origin(k) or k for k in every if typing.get_origin(k) is not Literal]
    if not all(k in TYPES for k in kinds):
        return {}  # anything
    if names := rules.get("names"):
        known = names.names() if isinstance(names, Table) else list(names)
        return {"enum": [*known, *([None] if type(None) in kinds else [])]}
    found: Schema = {"type": [TYPES[k] for k in kinds]}
    if "range" in rules:
        bounds = {"minimum": rules["range"].low, "maximum": rules["range"].high}
        found |= {"items": {"type": "number", **bounds}} if list in kinds else bounds
    return {"anyOf": [found, *({"const": word} for word in words)]} if words else found


def chosen(key: str, members: Mapping[str, Schema]) -> list[Schema]:
    """For each name under a key, the other keys that go with it."""
    return [
        {
            "if": {"properties": {key: {"const": name}}, "required": [key]},
            "then": {"properties": {key: True, **options}, "additionalProperties": False},
        }
        for name, options in members.items()
    ]


def part_schema(table: Table[Any]) -> Schema:
    """A part by its name, or by its name with options; without a name, options of the default."""
    names = [entry.name for entry in table if not entry.per_batch]
    options = {
        entry.name: options_schema(table, entry.make) for entry in table if entry.name in names
    }
    whole = {"type": "object", "properties": {"name": {"enum": names}}}
    return {"anyOf": [{"enum": names}, {**whole, "allOf": chosen("name", options)}]}


def options_schema(table: Table[Any], make: Callable[..., Any]) -> Schema:
    hints = hints_of(make)
    return {name: value_schema(hints.get(name, object), {}) for name in options_of(table, make)}


def model_schema() -> Schema:
    """A family, and the settings that it has."""
    families = {}
    for entry in models.table:
        config = entry.make.config
        families[entry.name] = {
            **settings_schema(config)["properties"],
            "size": {"enum": [*getattr(config, "sizes", {}), AUTO]},
            "modification": {"enum": modifications.table.names()},
            "image_encoder": {"type": "object"},
        }
    keys = {"family": {"enum": list(families)}}
    return {"type": "object", "properties": keys, "allOf": chosen("family", families)}
