"""From dataclasses to JSON Schema, and from a stranger's JSON to dataclasses: what is refused is refused with one sentence."""

from __future__ import annotations

import json
import math
import types
import typing
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

from ..errors import did_you_mean
from .service_settings import Limits

T = TypeVar("T")
NAMES = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    type(None): "null",
    dict: "object",
}
HUGE = 10**30
WORDS = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    types.NoneType: "null",
}


class Refused(Exception):
    """What is answered instead of a result: a status, one sentence and its code in kebab case."""

    def __init__(self, status: int, sentence: str, *, code: str, **headers: str) -> None:
        super().__init__(sentence)
        self.status, self.code = status, code
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


@dataclass(frozen=True)
class About:
    """What is known of a field: a number or the name of a limit bounds it."""

    text: str = ""
    least: float | None = None
    most: float | str | None = None
    example: Any = None
    items: str | int = 2  # the largest number of a list's items, or the name of a limit
    word: bool = False  # a text needs something else than spaces
    pattern: str = ""  # of a text, as programs read it; what is asked for checks it

    def most_of(self, limits: Limits) -> float | None:
        return getattr(limits, self.most) if isinstance(self.most, str) else self.most

    def items_of(self, limits: Limits) -> int:
        return getattr(limits, self.items) if isinstance(self.items, str) else self.items


def given(text: str, default: Any = MISSING, **about: Any) -> Any:
    """A field of a message."""
    kept = {"about": About(text, **about)}
    if isinstance(default, list | dict):
        return field(default_factory=lambda: default, metadata=kept)
    return field(default=default, metadata=kept)


@cache
def hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def choices(hint: Any) -> list[Any]:
    """The types that a hint admits."""
    return list(typing.get_args(hint)) if isinstance(hint, types.UnionType) else [hint]


def read(kind: type[T], values: Any, limits: Limits, where: str = "") -> T:
    """A message from parsed JSON."""
    if not isinstance(values, dict):
        raise Refused(
            400,
            f"expected an object{where and ' as ' + where}, got {describe(values)}; see /openapi.json",
            code="wrong-type",
        )
    known = {one.name: one for one in fields(kind)}  # type: ignore[arg-type]
    prefix = f"{where}." if where else ""
    for name in values:
        if name not in known:
            shown = safe(name)
            raise Refused(
                400,
                f"unknown field '{prefix}{shown}'{did_you_mean(shown, known)}",
                code="unknown-field",
            )
    found, types_of = {}, hints(kind)  # type: ignore[arg-type]
    for name, one in known.items():
        if name in values:
            found[name] = check(
                values[name], types_of[name], one.metadata["about"], limits, prefix + name
            )
        elif one.default is MISSING and one.default_factory is MISSING:
            raise Refused(
                400,
                f"the field '{prefix}{name}' is missing; give {one.metadata['about'].text}",
                code="field-missing",
            )
    return kind(**found)


def check(value: Any, hint: Any, about: About, limits: Limits, name: str) -> Any:
    """The value, if it is one of these types and in its range."""
    for one in choices(hint):
        base = typing.get_origin(one) or one
        if is_dataclass(one) and isinstance(value, dict):
            return read(one, value, limits, name)  # type: ignore[arg-type]
        if base is list and isinstance(value, list):
            most = about.items_of(limits)
            if not 1 <= len(value) <= most:
                raise Refused(
                    400,
                    f"expected 1 to {most} items in '{name}', got {len(value)}; send fewer in a request",
                    code="number-of-items",
                )
            return [
                check(each, typing.get_args(one)[0], about, limits, f"{name}[{n}]")
                for n, each in enumerate(value)
            ]
        if one is str and isinstance(value, bytes):  # the file of an image
            return value
        if one is str and isinstance(value, str):
            return check_text(value, about, limits, name)
        if one is bool and isinstance(value, bool):
            return value
        if value is None and one is types.NoneType:
            return None
        if one in (int, float) and isinstance(value, int | float) and not isinstance(value, bool):
            value = value if isinstance(value, float) or abs(value) < HUGE else float("inf")
            if one is float or not math.isfinite(value) or value == math.floor(value):
                return check_range(
                    value if one is float or not math.isfinite(value) else int(value),
                    about,
                    limits,
                    name,
                )
    expected = " or ".join(
        WORDS.get(one, "a list" if typing.get_origin(one) is list else "an object")
        for one in choices(hint)
    )
    raise Refused(
        400,
        f"expected {expected} as '{name}', got {describe(value)}; see /openapi.json",
        code="wrong-type",
    )


def check_text(value: str, about: About, limits: Limits, name: str) -> str:
    most = about.most_of(limits)
    if most is not None and len(value) > most:
        raise Refused(
            400,
            f"expected at most {most:,} characters as '{name}', got {len(value):,}; send it in parts",
            code="text-too-long",
        )
    if about.word and not value.strip():
        raise Refused(400, f"the text '{name}' is empty; give at least one word", code="empty-text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Refused(
            400,
            f"the text '{name}' has half of a surrogate pair; send whole characters",
            code="damaged-text",
        ) from None
    return value


def check_range(value: Any, about: About, limits: Limits, name: str) -> Any:
    least, most = about.least, about.most_of(limits)
    if (
        not math.isfinite(value)
        or (least is not None and value < least)
        or (most is not None and value > most)
    ):
        bounds = f"{'any' if least is None else format(least, ',')} to {'any' if most is None else format(most, ',')}"
        raise Refused(
            400,
            f"expected {bounds} as '{name}', got {describe(value)}; choose a number in this range",
            code="out-of-range",
        )
    return value


def describe(value: Any) -> str:
    if value is None or isinstance(value, bool | int | float):
        return (
            "a huge number" if isinstance(value, float) and math.isinf(value) else json.dumps(value)
        )
    return (
        "a text" if isinstance(value, str) else "a list" if isinstance(value, list) else "an object"
    )


def safe(text: str) -> str:
    """A stranger's text, short and without controls or halves of surrogate pairs."""
    return "".join(sign if sign.isprintable() else "�" for sign in text[:40])


def schema(kind: type, limits: Limits, names: dict[str, list[str]] | None = None) -> dict[str, Any]:
    """The JSON Schema of a message; `names`: the values a field of names has here."""
    types_of, made, required = hints(kind), {}, []
    for one in fields(kind):
        about: About = one.metadata["about"]
        shape = schema_of(types_of[one.name], about, limits)
        if names and one.name in names:
            shape = {"enum": [*names[one.name], *([None] if one.default is None else [])]}
        made[one.name] = {**shape, "description": about.text}
        if one.default is not MISSING and one.default is not None:
            made[one.name]["default"] = one.default
        elif one.default is MISSING and one.default_factory is MISSING:
            required.append(one.name)
    return {
        "type": "object",
        "properties": made,
        "required": required,
        "additionalProperties": False,
    }


def schema_of(hint: Any, about: About, limits: Limits) -> dict[str, Any]:
    shapes = []
    for one in choices(hint):
        if is_dataclass(one):
            shapes.append(schema(one, limits))  # type: ignore[arg-type]
            continue
        base = typing.get_origin(one) or one
        shape: dict[str, Any] = {"type": NAMES[base]}
        least, most = about.least, about.most_of(limits)
        if base is list:
            shape["items"] = schema_of(typing.get_args(one)[0], about, limits)
            shape |= {"minItems": 1, "maxItems": about.items_of(limits)}
        elif base is str:
            shape |= {} if most is None else {"maxLength": int(most)}
            pattern = about.pattern or (r"\S" if about.word else "")
            shape |= {"pattern": pattern} if pattern else {}
        elif base in (int, float):
            shape |= {} if least is None else {"minimum": least}
            shape |= {} if most is None else {"maximum": most}
        shapes.append(shape)
    return shapes[0] if len(shapes) == 1 else {"anyOf": shapes}


def example(kind: type) -> dict[str, Any]:
    """A message made of the examples of its fields."""
    return {
        one.name: one.metadata["about"].example
        for one in fields(kind)
        if one.metadata["about"].example is not None
    }
