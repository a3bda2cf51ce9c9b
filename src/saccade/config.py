"""Recipes ↔ dataclasses ↔ key=value. The place where names become objects: below it nothing compares strings."""

from __future__ import annotations

import dataclasses
import inspect
import os
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import nn

from . import models
from .core.table import Table
from .errors import SaccadeError, did_you_mean
from .models.families import Choice, MechanismPlan, constructor, takes
from .recipe import Recipe, TrainingRecipe, checked, fill, plain
from .training import schedules
from .training.loop import Settings
from .training.parallel import Replicated, Sharded
from .training.runs import save_sharded, save_whole

LARGEST = 64 * 1024 * 1024  # a recipe or config of more bytes is no recipe
KNOWN_TO_LAYERS = {"dim_q", "dim_k", "dim", "dim_values", "heads"}  # what a layer fills in itself
EVERYTHING = (-float("inf"), float("inf"))
OPTION_RANGES = {int: (0, 1_000_000), float: (1e-6, 1e9)}  # of a score, mask or position; each may be narrower by itself
NOT_READ = (yaml.YAMLError, ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError)  # all that PyYAML raises
FROM_BATCHES = {
    "masks": ("padding", "prefix", "documents", "matrix"),
    "positions": ("syntax",),
}  # what is made from each batch's own lengths or trees


def recipe(values: Mapping[str, Any] | None = None, overrides: Sequence[str] = ()) -> Recipe:
    """A checked recipe from nested values and `training.updates=500`-like words."""
    tree = plain(values or {})
    for word in overrides:
        put(tree, word)
    made = fill(Recipe, plain(tree), "")
    schedules.table.entry(made.training.schedule)
    return dataclasses.replace(made, model=complete_model(made.model))


def put(tree: dict[str, Any], word: str) -> None:
    """Sets `a.b=value` in nested dicts; the value is read as YAML."""
    key, equals, text = word.partition("=")
    if not equals or not key:
        raise SaccadeError(f"'{word}' is no setting; write key=value, such as training.updates=500")
    try:
        value = yaml.safe_load(text)
    except NOT_READ:
        raise SaccadeError(f"'{word[:200]}': the value cannot be read; put quotes around it") from None
    *path, last = key.split(".")
    for step in path:
        tree = tree.setdefault(step, {})
        if not isinstance(tree, dict):
            raise SaccadeError(f"'{word}': '{step}' is a value and has nothing inside it")
    tree[last] = value


def read_recipe(where: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe of a YAML file, by path or by the name of one that comes with saccade."""
    path = find_recipe(str(where))
    try:
        if path.stat().st_size > LARGEST:
            raise SaccadeError(f"{path} is larger than a recipe can be; give a small YAML file")
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, OSError) as error:
        raise SaccadeError(f"{path} cannot be read as text ({error}); give a YAML file") from None
    except NOT_READ as error:
        mark = getattr(error, "problem_mark", None)
        at = f", line {mark.line + 1}" if mark else ""
        raise SaccadeError(f"{path}{at}: this is no YAML; write `key: value` lines") from None
    if values is None:
        raise SaccadeError(f"{path} is empty; write at least `data:` and `model:`")
    if not isinstance(values, dict):
        raise SaccadeError(f"{path} holds {type(values).__name__}, not settings; write `key: value` lines")
    return recipe(values, overrides)


RECIPES = Path(__file__).resolve().parent / "recipes"  # in a checkout a link to the folder beside `src`


def find_recipe(where: str) -> Path:
    path = Path(where)
    if os.path.isfile(path):  # not path.is_file(), which raises for a name that is too long
        return path
    if os.path.isdir(path):
        raise SaccadeError(f"{where} is a folder; give a recipe file, or `--resume --out {where}` to go on with a run")
    known = {file.stem: file for file in sorted(RECIPES.glob("*.yaml"))}
    if where in known:
        return known[where]
    raise SaccadeError(f"no recipe file '{where}', and none of that name comes with saccade{did_you_mean(where, known)}")


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
        low, high = (0.0, 0.99) if "dropout" in f.name else (1, LARGEST_SIZES.get(f.name, 65_536))
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
    hints = typing.get_type_hints(constructor(make) if isinstance(make, type) else make) if wanted else {}
    for key in options:
        if key not in wanted:
            raise SaccadeError(f"{path}: {table.singular} '{name}' has no option '{key}'{did_you_mean(key, wanted)}")
        kind = hints.get(key, object)
        kinds = typing.get_args(kind) or (kind,)
        rules = {"range": next((OPTION_RANGES[one] for one in (float, int) if one in kinds), EVERYTHING)}
        options[key] = checked(options[key], kind, rules, f"{path}.{key}")
    missing = [key for key, parameter in wanted.items() if parameter.default is inspect.Parameter.empty and key not in options]
    if missing:
        raise SaccadeError(f"{path}: {table.singular} '{name}' needs {missing[0]}; write {{name: {name}, {missing[0]}: …}}")
    return Choice(make, options)


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
    return {"name": name, **every} if every else name


def build_model(values: Mapping[str, Any], source_vocab: int, target_vocab: int) -> nn.Module:
    """The model of complete settings."""
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
    try:
        return chosen.build(source_vocab, target_vocab, shape, chosen.parts(**parts))
    except (RuntimeError, ArithmeticError, ValueError) as error:  # too large for the memory, or sizes that do not go together
        why = str(error).split("\n")[0][:200]
        raise SaccadeError(
            f"no {values['family']} can be built with these settings ({why}); change model.* sizes or options"
        ) from None


def settings(training: TrainingRecipe, seed: int) -> Settings:
    """The loop's settings: names become a schedule, a type, a direction."""
    same = {f.name: getattr(training, f.name) for f in dataclasses.fields(Settings) if hasattr(training, f.name)}
    return Settings(
        **{
            **same,
            "schedule": schedules.table[training.schedule],
            "autocast": torch.bfloat16 if training.precision == "bf16" else None,
            "higher_is_better": training.watch == "bleu",
            "seed": seed,
            "parallel": {"ddp": Replicated, "fsdp": Sharded}[training.parallel],
            "checkpoint": {"whole": save_whole, "sharded": save_sharded}[training.checkpoint],
        }
    )


def device(name: str) -> torch.device:
    """`auto` is the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(name)
    except RuntimeError:
        found = None
    if found is None or found.type not in ("cpu", "cuda"):
        raise SaccadeError(f"no device named '{name}'; write auto, cpu or cuda")
    if found.type == "cuda" and not torch.cuda.is_available():
        raise SaccadeError(f"device is '{name}', and no GPU is to be seen here; choose cpu or auto")
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise SaccadeError(
            f"device is '{name}', and there are {torch.cuda.device_count()} GPUs here, counted from 0; write device=cuda"
        )
    return found
