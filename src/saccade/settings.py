"""Settings as dataclasses: each field says its default, its range and its meaning; parts are chosen by name from a slot's table."""

import contextlib
import dataclasses
import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar

from torch import nn

from .errors import SaccadeError, did_you_mean, synonyms
from .registry import Table

T = TypeVar("T")
UNIONS = (types.UnionType, typing.Union)
Auto = Literal["auto"]  # what the data and the device choose; `None` is for what is off
AUTO: Auto = "auto"
WORDS = {
    type(None): "null",
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    dict: "settings",
    list: "a list",
}


@dataclass(frozen=True)
class Range:
    """The least and the greatest value of an option: `rank: Annotated[int, Range(1, 64)] = 32`."""

    low: float
    high: float


Width = Annotated[int, Range(1, 65536)]
Positive = Annotated[int, Range(1, 10**6)]
Natural = Annotated[int, Range(0, 10**6)]
Share = Annotated[float, Range(0.0, 0.99)]  # of what dropout removes


def overrides(thing: object, method: str, base: type) -> bool:
    """Whether a method of an object is another than `base`'s own: overridden in a subclass, or set on the object."""
    # as torch.compile can follow it
    return method in thing.__dict__ or getattr(type(thing), method) is not getattr(base, method)


class Inner:
    """An attribute that is a module, found at once: PyTorch looks everywhere else first, which costs as much as a small view."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, module: nn.Module | None, owner: type) -> Any:
        if module is not None and (found := module._modules.get(self.name)) is not None:
            return found
        raise AttributeError(self.name)  # `Module.__getattr__` is asked next


inner: Any = Inner


@dataclass(frozen=True)
class Choice:
    """A member of a slot and the options it was chosen with; whoever builds it adds the facts (widths, heads …)."""

    make: Callable[..., Any]
    options: dict[str, Any] = field(default_factory=dict)

    def __call__(self, **facts: Any) -> Any:
        """Built from the options and those of the facts that its signature asks for."""
        wanted = parameters(self.make)
        known = {
            name: fact.make() if isinstance(fact, Later) else fact
            for name, fact in facts.items()
            if name in wanted
        }
        return self.make(**{**known, **self.options})


@dataclass(frozen=True)
class Later:
    """A fact that is made only for a member that asks for it: what no member asks for has not been used."""

    make: Callable[[], Any]


def resolve(value: T | Auto, chosen: T) -> T:
    """A setting's value, or what was chosen where it is `auto`."""
    return chosen if value == AUTO else value


def fixed(value: T | Auto) -> T:
    """A setting's value in a recipe that has no open ones any more."""
    if value == AUTO:
        raise ValueError("a setting is still open; plan the run first")
    return value


def number(default: Any, low: float, high: float, what: str, **rules: Any) -> Any:
    """A field for a number within a range."""
    return field(default=default, metadata={"range": Range(low, high), "what": what, **rules})


def numbers(default: list[int], low: int, high: int, what: str, **rules: Any) -> Any:
    """A field for a list of whole numbers within a range."""
    return field(
        default_factory=lambda: list(default),
        metadata={"range": Range(low, high), "what": what, **rules},
    )


def one_of(names: tuple[str, ...], what: str, **rules: Any) -> Any:
    """A field for one of some names, the first by default."""
    return field(default=names[0], metadata={"names": names, "what": what, **rules})


def setting(default: Any, what: str, **rules: Any) -> Any:
    """A field for text, or true or false."""
    return field(default=default, metadata={"what": what, **rules})


def part(table: Table[Any], default: Any, what: str = "", **rules: Any) -> Any:
    """A field for a member of a slot; `default` is a member or a Choice."""
    chosen = default if isinstance(default, Choice) else Choice(default)
    return field(default=chosen, metadata={"table": table, "what": what, **rules})


def fill(kind: type[T], values: Any, path: str) -> T:
    """A dataclass from nested values: unknown keys, wrong types and values out of range are reported with their whole path."""
    if not isinstance(values, dict):
        raise SaccadeError(
            f"{path or 'the recipe'} is {values!r}; write settings below it", code="not-settings"
        )
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(kind, include_extras=True)
    found = {}
    for name, value in values.items():
        at = f"{path}.{name}" if path else str(name)
        if name not in fields:
            inner = None if path else in_section(str(name), hints)
            hint = (
                f"; did you mean '{inner}'?"
                if inner
                else did_you_mean(str(name), fields, setting=True)
            )
            raise SaccadeError(f"no setting named '{at}'{hint}", code="unknown-setting")
        kind_of, rules = rules_of(hints[name])
        rules = {**rules, **fields[name].metadata}
        found[name] = check(value, kind_of, rules, at, fields[name].default)
    return kind(**found)


def in_section(name: str, hints: Mapping[str, Any]) -> str | None:
    """The key of a setting that was written without its section: `training.patience` for `patience`."""
    inner = (
        f"{at}.{one.name}"
        for at, kind in hints.items()
        if dataclasses.is_dataclass(kind)
        for one in dataclasses.fields(kind)
    )
    usual = (key for keys in synonyms().values() for key in keys)
    return next((key for key in (*inner, *usual) if key.rpartition(".")[2] == name), None)


def check(value: Any, kind: Any, rules: Mapping[str, Any], path: str, default: Any = None) -> Any:
    """A value of the right type and within its range; names of parts become choices."""
    if "table" in rules:
        return choose(rules["table"], value, path, default)
    if dataclasses.is_dataclass(kind):
        return fill(kind, value, path)  # type: ignore[arg-type]
    whole = typing.get_args(kind) if typing.get_origin(kind) in UNIONS else (kind,)
    words = [word for k in whole if typing.get_origin(k) is Literal for word in typing.get_args(k)]
    if value in words or (value is None and type(None) in whole):
        return value
    every = [k for k in whole if typing.get_origin(k) is not Literal]
    kinds = tuple(typing.get_origin(k) or k for k in every)
    value = list(value) if isinstance(value, tuple) else value
    if float in kinds and isinstance(value, int | str) and not isinstance(value, bool):
        with contextlib.suppress(ValueError, OverflowError):
            value = float(value)  # YAML reads 1e-3 as text
    if int in kinds and isinstance(value, str | float) and not isinstance(value, bool):
        with contextlib.suppress(ValueError, OverflowError):
            # 1e4 as well as 10000
            value = int(float(value)) if float(value).is_integer() else value
    if (isinstance(value, bool) and bool not in kinds) or not isinstance(value, kinds):
        expected = " or ".join([*(WORDS.get(k, k.__name__) for k in kinds), *words])
        raise SaccadeError(f"{path} is {value!r}; it must be {expected}", code="wrong-type")
    if isinstance(value, list):
        broken = float in (typing.get_args(k)[0] for k in every if typing.get_origin(k) is list)
        if any(
            type(item) not in ((int, float) if broken else (int,)) or not math.isfinite(item)
            for item in value
        ):
            raise SaccadeError(
                f"{path} is {value!r}; it must be a list of {'numbers' if broken else 'whole numbers'}",
                code="wrong-type",
            )
    if isinstance(value, float) and not math.isfinite(value):
        raise SaccadeError(f"{path} is {value}; it must be a finite number", code="not-finite")
    allowed = rules.get("range")
    if (
        allowed
        and isinstance(value, list)
        and (not value or min(value) < allowed.low or max(value) > allowed.high)
    ):
        raise SaccadeError(
            f"{path} is {value}; its numbers must lie between {allowed.low:,} and {allowed.high:,}, at least one",
            code="out-of-range",
        )
    if (
        allowed
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and not allowed.low <= value <= allowed.high
    ):
        low, high = (
            f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"
            for bound in (allowed.low, allowed.high)
        )
        raise SaccadeError(
            f"{path} is {value}; it must lie between {low} and {high}", code="out-of-range"
        )
    names = rules.get("names", ())
    if isinstance(names, Table):  # a slot that is filled later than the settings are declared
        names = names.names()
    if names and value not in names:
        raise SaccadeError(
            f"{path} is '{value}'{did_you_mean(value, names)}", code="unknown-choice"
        )
    return value


def choose(table: Table[Any], value: Any, path: str, default: Choice | None = None) -> Choice:
    """`additive`, or {name: additive, hidden: 64}, as a choice from the table; without a name, options of the default."""
    given = {"name": value} if isinstance(value, str) else value
    if isinstance(given, dict) and "name" not in given and default is not None:
        given = {"name": table.name_of(default.make), **default.options, **given}
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise SaccadeError(
            f"{path} is {value!r}; write a {table.singular}'s name, or {{name: …, option: …}}",
            code="wrong-type",
        )
    name = given["name"]
    entry = table.entry(name)
    if entry.per_batch:
        raise SaccadeError(
            f"{path} is '{name}', which is built per batch and cannot be set in a recipe; leave it out",
            code="built-per-batch",
        )
    wanted, hints = options_of(table, entry.make), hints_of(entry.make)
    options = {}
    for key, option in given.items():
        if key == "name":
            continue
        if key not in wanted:
            raise SaccadeError(
                f"{path}: {table.singular} '{name}' has no option '{key}'{did_you_mean(key, wanted)}",
                code="unknown-option",
            )
        kind, rules = rules_of(hints.get(key, object))
        options[key] = (
            option
            if isinstance(option, Choice)
            else check(option, kind, rules, f"{path}.{key}", wanted[key].default)
        )
    missing = [
        key
        for key, p in wanted.items()
        if p.default is inspect.Parameter.empty and key not in options
    ]
    if missing:
        raise SaccadeError(
            f"{path}: {table.singular} '{name}' needs {missing[0]}; write {{name: {name}, {missing[0]}: …}}",
            code="option-missing",
        )
    return Choice(entry.make, options)


def rules_of(hint: Any) -> tuple[Any, dict[str, Any]]:
    """The type of an option, and what `Annotated` says of it: its range, its names, or the table its name comes from."""
    rules: dict[str, Any] = {}
    for one in getattr(hint, "__metadata__", ()):
        rules[
            "table" if isinstance(one, Table) else "names" if isinstance(one, tuple) else "range"
        ] = one
    return typing.get_args(hint)[0] if rules else hint, rules


def spell(table: Table[Any], chosen: Choice) -> Any:
    """The inverse of `choose`: the name alone when there are no options, else all options written out."""
    name, hints = table.name_of(chosen.make), hints_of(chosen.make)
    every = {
        key: chosen.options.get(key, p.default) for key, p in options_of(table, chosen.make).items()
    }
    for key, value in every.items():
        if isinstance(value, Choice):
            every[key] = spell(rules_of(hints[key])[1]["table"], value)
    return {"name": name, **every} if every else name


def spell_all(made: Any) -> dict[str, Any]:
    """A settings dataclass as plain values, parts by their names."""
    given = {
        f.name: (f.metadata.get("table"), getattr(made, f.name)) for f in dataclasses.fields(made)
    }
    return {
        name: value if table is None else spell(table, value)
        for name, (table, value) in given.items()
    }


def constructor(make: Callable[..., Any]) -> Any:
    """What is called to make a member: a function, or a class's own constructor; None for `object`'s or a module's bare one."""
    if not isinstance(make, type):
        return make
    owner = next(parent for parent in make.__mro__ if "__init__" in vars(parent))
    return None if owner in (object, nn.Module) else vars(owner)["__init__"]


def parameters(make: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The arguments of a member by name."""
    found = constructor(make)
    every = {} if found is None else inspect.signature(found).parameters
    return {n: p for n, p in every.items() if n != "self" and p.kind is not p.VAR_KEYWORD}


def options_of(table: Table[Any], make: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The arguments that a recipe may set: those that are not facts of the slot."""
    return {name: p for name, p in parameters(make).items() if name not in table.facts}


def hints_of(make: Callable[..., Any]) -> dict[str, Any]:
    found = constructor(make)
    return {} if found is None else typing.get_type_hints(found, include_extras=True)


def needed_options(table: Any, entry: Any, length: int) -> dict[str, Any]:
    """The options that a position does not have by default, from its example; a table that must end ends with `length`."""
    wanted = options_of(table, entry.make)
    found = {
        name: entry.example[name]
        for name, p in wanted.items()
        if p.default is inspect.Parameter.empty
    }
    return found | (
        {"max_len": length} if "max_len" in wanted and wanted["max_len"].default is not None else {}
    )
