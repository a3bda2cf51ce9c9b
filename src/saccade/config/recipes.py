"""Recipes ↔ dataclasses ↔ key=value. Names become objects here: nothing below compares strings."""

import dataclasses
import functools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml

from .. import models, tasks
from ..errors import SaccadeError, did_you_mean
from ..models.builder import Builder, complete
from ..models.modifications import table as modifications
from ..recipe import LIMITS, Recipe, plain, without_effect
from ..settings import AUTO, fill
from ..training import schedules
from .index import extended, recipe_files
from .upgrade import VERSION, respelled, upgrade_config, without_removed

__all__ = ["Builder", "Recipe", "device", "read_recipe", "recipe"]

LARGEST = 250_000  # bytes; a larger file is not a recipe
# models whose settings are all written out: what `complete_model` returned, with its task and objective
COMPLETE: set[tuple[str, str, str]] = set()
# Tells other tools that a model folder is not one of theirs.
MODEL_TYPE = {"model_type": "saccade"}
MERGE = "tag:yaml.org,2002:merge"
# all that PyYAML raises
NOT_READ = (
    yaml.YAMLError,
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    RecursionError,
)


def recipe(
    values: Mapping[str, Any] | None = None, overrides: Sequence[str] = (), strict: bool = True
) -> Recipe:
    """A checked recipe from nested values and `training.updates=500`-like words. A key that has no effect is refused, where `strict`."""
    tree = respelled(plain(values or {}))
    for word in overrides:
        put(tree, word)
    tree = respelled(plain(tree))
    typed = {word.partition("=")[0] for word in overrides}
    set_limits(tree, {name for name in LIMITS if f"training.{name}" in typed})
    made = fill(Recipe, tree, "")
    if wants_joint(made) and "joint" not in tree.get("vocabulary", {}):
        made = dataclasses.replace(
            made, vocabulary=dataclasses.replace(made.vocabulary, joint=True)
        )
    kind = made.kind
    schedules.table.entry(made.training.schedule)
    tasks.objectives.table.entry(made.language.objective)
    tasks.metrics.chosen(made.data.metrics)
    for path, what in without_effect(made):
        section, _, name = path.rpartition(".")
        given = tree.get(section, {}) if section else tree
        if strict and given.get(name) not in (None, {}):
            raise SaccadeError(
                f"{path} has no effect here: it is for {what}; leave it out", code="no-effect"
            )
    if made.training.watch not in kind.measures:
        raise SaccadeError(
            f"training.watch is '{made.training.watch}'{did_you_mean(made.training.watch, kind.measures)}",
            code="unknown-metric",
        )
    facts = made.task, json.dumps(dataclasses.asdict(made.language))
    model = json.dumps(made.model)
    if (model, *facts) not in COMPLETE:
        model = complete_model(model, *facts, strict)
        COMPLETE.add((model, *facts))
    return dataclasses.replace(made, model=json.loads(model))


def wants_joint(recipe: Recipe) -> bool:
    """Whether the family, or its modification, has one embedding for both sides of pairs by default, and so one vocabulary unless the recipe
    says otherwise."""
    family, row = str(recipe.model.get("family")), recipe.model.get("modification")
    wants = family in models.table and getattr(models.table[family].config, "joint", False)
    if row in modifications:
        wants = modifications[str(row)].settings.get("shared", True)
    return (
        wants
        and recipe.model.get("shared", True)
        and "vocabulary.joint" in recipe.kind.settings
        and not recipe.start_from
    )


def set_limits(tree: dict[str, Any], words: set[str]) -> None:
    """Limits of training given as words replace all others; epochs or minutes without updates are the only limit."""
    given = tree.get("training")
    if not isinstance(given, dict):
        return
    if any(given.get(name) not in (None, AUTO) for name in words):
        given |= {name: AUTO if name == "updates" else None for name in LIMITS if name not in words}
    elif "updates" not in given and (given.get("epochs") or given.get("minutes")):
        given["updates"] = AUTO


@functools.lru_cache(maxsize=1024)
def complete_model(model: str, task_name: str, language: str, strict: bool) -> str:
    """A model's complete settings, by the model that its task builds; texts, so that the same question is answered once."""
    made = dataclasses.replace(
        Recipe(task=task_name),
        language=fill(type(Recipe().language), json.loads(language), "language"),
    )
    return json.dumps(
        complete(
            json.loads(model), lambda builder: tasks.table[task_name].sketch(made, builder), strict
        )
    )


def put(tree: dict[str, Any], word: str) -> None:
    """Sets `a.b=value` in nested dicts; the value is read as YAML."""
    key, equals, text = word.partition("=")
    if not equals or not key:
        raise SaccadeError(
            f"expected key=value, such as training.updates=500, got '{word}'", code="not-a-setting"
        )
    try:
        value = read_yaml(text)[0] if text.strip() else ""
    except NOT_READ:
        raise SaccadeError(
            f"'{word[:200]}': the value cannot be read; put quotes around it",
            code="unreadable-value",
        ) from None
    *path, last = key.split(".")
    for depth, step in enumerate(path):
        inner = tree.setdefault(step, {})
        # a part by its name alone gets an option
        if isinstance(inner, str) and path[0] == "model" and depth:
            inner = tree[step] = {"name": inner}
        if not isinstance(inner, dict):
            raise SaccadeError(
                f"'{word}': '{step}' is a value and has nothing inside it",
                code="value-has-no-parts",
            )
        tree = inner
    tree[last] = value


def read_recipe(where: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe of a YAML file, a run's recipe.json or a model's config.json, by path or by the name of one that comes with saccade."""
    path = find_recipe(str(where))
    return recipe_of(extended(path, read_values), path, overrides)


def read_values(path: Path) -> dict[str, Any]:
    """The values that a recipe file itself has."""
    try:
        if path.stat().st_size > LARGEST:
            raise SaccadeError(
                f"{path} is larger than a recipe can be; give a small YAML file", code="too-large"
            )
        text = path.read_text(encoding="utf-8")
        written = path.suffix == ".json"  # by saccade: numbers are read as they were written
        values, twice = (json.loads(text), None) if written else read_yaml(text)
    except UnicodeDecodeError:
        raise SaccadeError(f"{path} is not UTF-8 text; give a YAML file", code="not-utf8") from None
    except OSError as error:
        raise SaccadeError(
            f"{path} cannot be read as text ({error.strerror or error}); give a YAML file",
            code="cannot-read",
        ) from None
    except NOT_READ as error:
        at = f", line {mark.line + 1}" if (mark := getattr(error, "problem_mark", None)) else ""
        raise SaccadeError(
            f"{path}{at}: invalid YAML; write `key: value` lines", code="bad-yaml"
        ) from None
    if twice is not None:
        raise SaccadeError(
            f"{path}, line {twice[1]}: duplicate key '{twice[0]}'; merge the two",
            code="duplicate-key",
        )
    if values is None:
        raise SaccadeError(
            f"{path} is empty; write at least `data:` and `model:`", code="empty-file"
        )
    if not isinstance(values, dict):
        what = "a list" if isinstance(values, list) else "one value"
        raise SaccadeError(
            f"{path} holds {what}, not settings; write `key: value` lines", code="not-settings"
        )
    return values


def read_yaml(text: str) -> tuple[Any, tuple[str, int] | None]:
    """The values of a text, and the first key that is in it twice with its line. Merge keys are refused: a few of them, one in another,
    are more values than any memory holds."""
    loader = yaml.SafeLoader(text)
    node = loader.get_single_node()
    if any(
        isinstance(token, yaml.MappingNode) and any(key.tag == MERGE for key, _ in token.value)
        for token in nodes(node)
    ):
        raise SaccadeError(
            "'<<' merges settings into others, which recipes do not have; write each setting where it belongs",
            code="merge-key",
        )
    return (None if node is None else loader.construct_document(node)), repeated(node, set())


def nodes(top: Any) -> Iterator[Any]:
    """Every node of a YAML document once, though many aliases may name it."""
    seen, left = set[int](), [top]
    while left:
        node = left.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if isinstance(node, yaml.MappingNode):
            left += [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            left += node.value


def recipe_of(values: dict[str, Any], path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe in a file's values; what saccade itself has written begins with the version of its format."""
    rest = dict(values)
    version = rest.pop("saccade", VERSION)
    if version not in range(1, VERSION + 1):
        raise SaccadeError(
            f"{path} has format {version!r}, expected 1 to {VERSION}; use the version of saccade that wrote it",
            code="unknown-format",
        )
    if "saccade" in values and rest.get("model_type") == MODEL_TYPE["model_type"]:
        del rest["model_type"]
    if version == 1:
        return recipe(upgrade_config(rest), overrides, strict=False)
    return recipe(without_removed(rest) if "saccade" in values else rest, overrides)


def to_json(made: Recipe, of_model: bool = False) -> str:
    """The text of a run's recipe.json, or of a model's config.json."""
    values = {**(MODEL_TYPE if of_model else {}), "saccade": VERSION, **made.to_dict()}
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


def repeated(node: Any, seen: set[int]) -> tuple[str, int] | None:
    """The first key that a mapping of a YAML document has twice, and its line: YAML itself would drop the first one."""
    if node is None or id(node) in seen:  # an alias may be its own parent
        return None
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        keys = set()
        for key, _ in node.value:
            if key.value.__hash__ is not None and key.value in keys:
                return str(key.value), key.start_mark.line + 1
            if key.value.__hash__ is not None:
                keys.add(key.value)
        inner = [value for _, value in node.value]
    else:
        inner = node.value if isinstance(node, yaml.SequenceNode) else []
    return next(filter(None, (repeated(one, seen) for one in inner)), None)


def find_recipe(where: str) -> Path:
    path = Path(where)
    if os.path.isfile(path):  # not path.is_file(), which raises for a name that is too long
        return path
    if os.path.isdir(path):
        if os.path.isfile(path / "recipe.json"):
            repeat = f"repeat it with `saccade train {path / 'recipe.json'} --out NEW`"
            raise SaccadeError(
                f"{where} is a run; continue it with `saccade train --resume {where}`, or {repeat}",
                code="run-instead-of-recipe",
            )
        raise SaccadeError(
            f"{where} is a folder and holds no run; give a recipe file, or a recipe's name",
            code="not-a-run",
        )
    known = recipe_files()
    if where in known:
        return known[where]
    raise SaccadeError(
        f"no recipe file '{where}', and none of that name comes with saccade{did_you_mean(where, known)}",
        code="no-file",
    )


def recipe_file(start: str) -> Path | None:
    """The file of the recipe that `start_from` names; None where it is unset or an existing model folder."""
    if not start or os.path.isdir(start):
        return None
    known = recipe_files()
    if os.path.isfile(start) and Path(start).suffix in (".yaml", ".yml"):
        return Path(start)
    if start not in known:
        near = did_you_mean(Path(start).name, known)
        raise SaccadeError(
            f"no model folder at {start}, and no recipe of that name comes with saccade{near}",
            code="no-folder",
        )
    return known[start]


def recipes_before(made: Recipe) -> list[Path]:
    """The files of the recipes that must be trained before this one, in that order."""
    found: list[Path] = []
    while file := recipe_file(made.start_from):
        if file in found:
            raise SaccadeError(
                f"{file} starts from itself by start_from; name another recipe or a model folder",
                code="cycle",
            )
        found.insert(0, file)
        made = read_recipe(file)
    return found


def device(name: str) -> torch.device:
    """`auto` is the GPU where there is one; `mps`, which few operations are tested on, only where it is asked for."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(name)
    except RuntimeError:
        found = None
    if found is None or found.type not in ("cpu", "cuda", "mps"):
        raise SaccadeError(
            f"no device named '{name}'; write auto, cpu, cuda or mps", code="unknown-device"
        )
    if found.type == "mps" and not torch.backends.mps.is_available():
        raise SaccadeError(
            f"device is '{name}', and this is not a Mac with a GPU that PyTorch can use; choose cpu or auto",
            code="device-missing",
        )
    if found.type == "cuda" and not torch.cuda.is_available():
        raise SaccadeError(
            f"device is '{name}', and no GPU is available; choose cpu or auto",
            code="device-missing",
        )
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise SaccadeError(
            f"device is '{name}', and there are {count} GPUs, counted from 0; write device=cuda",
            code="device-missing",
        )
    return found
