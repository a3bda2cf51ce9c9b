"""Models from a recipe's `model`: names of its family and parts become objects, numbers are checked before anything is allocated."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import torch
from torch import nn

from . import models
from .core.table import Table
from .errors import SaccadeError, did_you_mean
from .layers.pooling import Pool
from .models.families import Choice, MechanismPlan, constructor, takes
from .recipe import checked, fill

KNOWN_TO_LAYERS = {"dim_q", "dim_k", "dim", "dim_values", "heads", "vocab"}  # what a layer fills in itself
EVERYTHING = (-float("inf"), float("inf"))
OPTION_RANGES = {int: (0, 1_000_000), float: (1e-6, 1e9)}  # of a score, mask or position; each may be narrower by itself
DROPOUT_RANGE = (0.0, 0.99)
FROM_BATCHES = {
    "masks": ("padding", "prefix", "documents", "matrix"),
    "positions": ("syntax",),
}  # what is made from each batch's own lengths or trees


def family(values: Mapping[str, Any]) -> models.Family:
    name = values.get("family")
    if not isinstance(name, str):
        raise SaccadeError(f"model.family is {name!r}; name a model: {', '.join(models.table.names())}")
    return models.table[name]


def slots(chosen: models.Family) -> dict[str, tuple[Table[Any], Any]]:
    """The family's named parts: key in a recipe → (its table, the default)."""
    found = {}
    for f in dataclasses.fields(chosen.parts):
        if isinstance(f.default, MechanismPlan):
            found.update({g.name: (g.metadata["table"], getattr(f.default, g.name)) for g in dataclasses.fields(MechanismPlan)})
        else:
            found[f.name] = (f.metadata["table"], f.default)
    return found


def complete_model(values: Mapping[str, Any]) -> dict[str, Any]:
    """The model's settings with every default written out."""
    chosen = family(values)
    named = slots(chosen)
    rest = {name: value for name, value in values.items() if name != "family"}
    for name in rest:
        if name not in named and name not in {f.name for f in dataclasses.fields(chosen.shape)}:
            every = [*named, *(f.name for f in dataclasses.fields(chosen.shape))]
            raise SaccadeError(f"no setting named 'model.{name}' for {values['family']}{did_you_mean(name, every)}")
    shape: Any = fill(chosen.shape, {name: value for name, value in rest.items() if name not in named}, "model")
    check_shape(shape)
    result: dict[str, Any] = {"family": values["family"], **dataclasses.asdict(shape)}
    for name, (table, default) in named.items():
        result[name] = spelled(table, picked(table, default, rest[name], f"model.{name}") if name in rest else default)
    return result


LARGEST_SIZES = {"max_len": 1_000_000, "depth": 1000}


def check_shape(shape: Any) -> None:
    """Sizes that make sense, before anything is allocated."""
    for f in dataclasses.fields(shape):
        value = getattr(shape, f.name)
        if isinstance(value, bool) or value is None:
            continue
        low, high = 1.0, float(LARGEST_SIZES.get(f.name, 65_536))
        if "dropout" in f.name:
            low, high = DROPOUT_RANGE
        elif "penalty" in f.name:
            low, high = 0, 1000
        if not low <= value <= high:
            raise SaccadeError(f"model.{f.name} is {value}; it must lie between {low:g} and {high:g}")
    dim, heads = getattr(shape, "dim", 0), getattr(shape, "heads", 1)
    if dim % heads:
        raise SaccadeError(f"model.dim={dim} does not divide into model.heads={heads}; choose heads that divide it")


def picked(table: Table[Any], default: Any, value: Any, path: str) -> Any:
    """What a recipe names: a choice with options for a part of the mechanism, else the table's member, which its layer makes."""
    if isinstance(default, Choice):
        return choice(table, value, path)
    return choice(table, value, path, bare=True).make


def choice(table: Table[Any], value: Any, path: str, bare: bool = False) -> Choice:
    """`additive`, or {name: additive, hidden: 64}, as a choice from the table; options are checked against the signature.

    `bare`: there are none to choose, all of them come from the layer.
    """
    settings = {"name": value} if isinstance(value, str) else value
    if not isinstance(settings, dict) or not isinstance(settings.get("name"), str):
        raise SaccadeError(f"{path} is {value!r}; write a {table.singular}'s name, or {{name: …, option: …}}")
    name = settings["name"]
    if name in FROM_BATCHES.get(table.slot, ()):
        raise SaccadeError(
            f"{path} is '{name}', which is made from each batch's own lengths or trees and has no place in a recipe; leave it out, "
            "or hand it to `attend` from Python"
        )
    make = table[name]
    options = {key: option for key, option in settings.items() if key != "name"}
    wanted = {} if bare else options_of(make)
    hints = hints_of(make) if wanted else {}
    for key in options:
        if key not in wanted:
            raise SaccadeError(f"{path}: {table.singular} '{name}' has no option '{key}'{did_you_mean(key, wanted)}")
        kind = hints.get(key, object)
        if (inner := table_of(kind)) is not None:
            options[key] = choice(inner, options[key], f"{path}.{key}")
            continue
        kinds = typing.get_args(kind) or (kind,)
        rules = {"range": next((OPTION_RANGES[one] for one in (float, int) if one in kinds), EVERYTHING)}
        rules = {"range": DROPOUT_RANGE} if "dropout" in key else rules
        options[key] = checked(options[key], kind, rules, f"{path}.{key}")
    missing = [key for key, parameter in wanted.items() if parameter.default is inspect.Parameter.empty and key not in options]
    if missing:
        raise SaccadeError(f"{path}: {table.singular} '{name}' needs {missing[0]}; write {{name: {name}, {missing[0]}: …}}")
    return Choice(make, options)


def hints_of(make: Callable[..., Any]) -> dict[str, Any]:
    return typing.get_type_hints(constructor(make) if isinstance(make, type) else make, include_extras=True)


def table_of(kind: Any) -> Table[Any] | None:
    """The table that an option's own name comes from, where it is a choice: Annotated[Choice, scores.table]."""
    return next((one for one in getattr(kind, "__metadata__", ()) if isinstance(one, Table)), None)


def options_of(make: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The parameters a recipe may set: those that no layer fills in."""
    try:
        wanted = takes(make)
    except ValueError:  # a built-in without a signature has no options
        return {}
    return {
        name: p
        for name, p in wanted.items()
        if name not in KNOWN_TO_LAYERS and p.kind is p.POSITIONAL_OR_KEYWORD and name != "input"
    }


def spelled(table: Table[Any], chosen: Any) -> Any:
    """The inverse of `choice`: the name alone when there are no options, else all options written out."""
    make, options = (chosen.make, chosen.options) if isinstance(chosen, Choice) else (chosen, {})
    name = table.name_of(make)
    if not isinstance(chosen, Choice):
        return name
    every = {key: options.get(key, p.default) for key, p in options_of(make).items()}
    for key, value in every.items():
        if isinstance(value, Choice) and (inner := table_of(hints_of(make)[key])) is not None:
            every[key] = spelled(inner, value)
    return {"name": name, **every} if every else name


def parts_of(values: Mapping[str, Any]) -> tuple[models.Family, Any, Any]:
    """The family, the shape and the built parts that complete settings name."""
    chosen = family(values)
    named = slots(chosen)
    shape: Any = fill(
        chosen.shape, {name: value for name, value in values.items() if name not in named and name != "family"}, "model"
    )
    found = {
        name: picked(table, default, values[name], f"model.{name}") if name in values else default
        for name, (table, default) in named.items()
    }
    parts: dict[str, Any] = {}
    for f in dataclasses.fields(chosen.parts):
        if isinstance(f.default, MechanismPlan):
            parts[f.name] = MechanismPlan(**{g.name: found[g.name] for g in dataclasses.fields(MechanismPlan)})
        else:
            parts[f.name] = found[f.name]
    return chosen, shape, chosen.parts(**parts)


@contextlib.contextmanager
def building(values: Mapping[str, Any]) -> Iterator[None]:
    """What PyTorch says to sizes too large for the memory, or that do not go together, as a sentence."""
    try:
        yield
    except (RuntimeError, ArithmeticError, ValueError) as error:
        why = str(error).split("\n")[0][:200]
        raise SaccadeError(
            f"no {values['family']} can be built with these settings ({why}); change model.* sizes or options"
        ) from None


T = TypeVar("T", bound=nn.Module)
LARGE = 2**27  # numbers in the matrices of all layers, above which a model is measured before it is made


def measured(values: Mapping[str, Any], make: Callable[[], T]) -> T:
    """What `make` makes, if its parameters fit this machine; a large model is first built without memory, to be counted."""
    dim, hidden, depth = (int(values.get(name) or 1) for name in ("dim", "hidden", "depth"))
    with building(values):
        if dim * max(dim, hidden) * depth > LARGE:
            with torch.device("meta"):
                size = sum(parameter.numel() * parameter.element_size() for parameter in make().parameters())
            there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
            if size > there:
                raise SaccadeError(
                    f"the parameters of this {values['family']} alone take {size / 2**30:,.0f} GiB, and this machine has "
                    f"{there / 2**30:,.0f}; choose smaller model.* sizes"
                )
        return make()


def build_model(values: Mapping[str, Any], source_vocab: int, target_vocab: int) -> nn.Module:
    """The model of complete settings."""
    chosen, shape, parts = parts_of(values)
    return measured(values, lambda: chosen.build(source_vocab, target_vocab, shape, parts))


def build_body(values: Mapping[str, Any], vocab: int) -> models.Encoder:
    """The part of a model that reads a text, for labels to stand on."""
    chosen, shape, parts = parts_of(values)
    if chosen.body is None:
        able = ", ".join(entry.name for entry in models.table if entry.make.body is not None)
        raise SaccadeError(f"model.family is '{values['family']}', which reads no text for labels; choose one of: {able}")
    body = chosen.body
    return measured(values, lambda: body(vocab, shape, parts))


def build_pool(values: Mapping[str, Any], dim: int, vocab: int) -> Pool:
    """How the vectors of a text, `dim` wide, become one."""
    chosen, _, parts = parts_of(values)
    if chosen.body is None:
        raise SaccadeError(f"model.family is '{values['family']}', which reads no text for labels and has no pool")
    with building(values):
        return parts.pool(dim=dim, vocab=vocab)


@dataclasses.dataclass(frozen=True)
class Builder:
    """Makes what a recipe's `model` names, for a task that knows how many tokens and labels there are."""

    values: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.values["family"])

    @property
    def dropout(self) -> float:
        return float(self.values.get("dropout", 0.0))

    def make(self, kind: type[Any], *vocab: int) -> Any:
        """A model of this kind: an encoder–decoder (source and target vocabulary), a causal language model or an encoder."""
        able = [
            one.name for one in models.table if (one.make.body if kind is models.Encoder else issubclass(one.make.kind, kind))
        ]
        if self.name not in able:
            raise SaccadeError(f"model.family is '{self.name}', which is not {kind.title}; choose one of: {', '.join(able)}")
        return self.body(*vocab) if kind is models.Encoder else self.whole(vocab[0], vocab[-1])

    def whole(self, source_vocab: int, target_vocab: int) -> nn.Module:
        return build_model(self.values, source_vocab, target_vocab)

    def body(self, vocab: int) -> models.Encoder:
        return build_body(self.values, vocab)

    def pool(self, dim: int, vocab: int) -> Pool:
        return build_pool(self.values, dim, vocab)
