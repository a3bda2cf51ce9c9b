"""What can be named, without loading PyTorch: slots and keys as `index.json` holds them, made by `python benchmarks/tables.py`."""

import functools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from ..data.corpora import is_generated
from ..data.delimited import split_name
from ..data.lines import paths_of
from ..data.sets import has_no_download, located, set_of
from ..errors import SaccadeError, did_you_mean

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent
# in a checkout the recipes are beside `src`, so that nobody needs a link; a wheel has them inside the package
RECIPES = next(
    (folder for folder in (PACKAGE / "recipes", PACKAGE.parents[1] / "recipes") if folder.is_dir()),
    PACKAGE / "recipes",
)
# slots, and other names that people use for them
OTHER_NAMES = {
    "models": "families architectures",
    "scores": "attention",
    "corpora": "datasets data",
    "objectives": "losses",
    "schedules": "scheduler schedulers",
    "positions": "positional-encodings",
    "norms": "normalization layernorms",
    "activations": "nonlinearities",
    "backends": "kernels",
    "feedforwards": "ffn",
    "cells": "rnns",
    "pools": "poolings",
    "normalizers": "softmax",
}
USUAL = {word: slot for slot, words in OTHER_NAMES.items() for word in words.split()}


@functools.cache
def packaged() -> dict[str, Any]:
    """`slots`: slot → rows of name, what and paper; `keys`: key → what, values and default; `models`: the same for each family."""
    found: dict[str, Any] = json.loads((HERE / "index.json").read_text(encoding="utf-8"))
    return found


def slots() -> dict[str, list[dict[str, str]]]:
    """Slot → its rows; live, with what users added, where PyTorch is loaded anyway."""
    if "torch" in sys.modules:
        from .catalogue import SLOTS

        return {
            name: [{"name": one.name, "what": one.summary, "paper": one.paper} for one in table]
            for name, table in SLOTS.items()
        }
    found: dict[str, list[dict[str, str]]] = packaged()["slots"]
    return found


def slot(name: str) -> str:
    """A slot by its own name or by a usual one (`families` for models), or an error that knows the nearest name."""
    found = USUAL.get(name.lower().replace(" ", "-").replace("_", "-"), name)
    if found not in slots():
        raise SaccadeError(
            f"no slot named '{name}'{did_you_mean(name, [*slots(), 'recipes'])}",
            code="unknown-name",
        )
    return found


def rows(slot_name: str | None = None, where: str | None = None) -> list[dict[str, str]]:
    """The catalogue as rows; `where` keeps those whose name, paper or summary contains it, whatever the case."""
    if slot_name == "recipes":
        found = [recipe_row(path) for path in recipe_files().values()]
    else:
        chosen = slots() if slot_name is None else {slot(slot_name): slots()[slot(slot_name)]}
        found = [{"slot": name, **row} for name, members in chosen.items() for row in members]
    return [
        row
        for row in found
        if any((where or "").lower() in value.lower() for value in row.values())
    ]


def recipe_files() -> dict[str, Path]:
    """The recipes that come with saccade by their names: those for anybody's data first."""
    folders = [RECIPES / name for name in ("tasks", "results", "lectures")]
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.yaml"))}


def values_of(path: Path) -> dict[str, Any]:
    """What a recipe that comes with saccade says, with what it extends."""
    return extended(path, lambda file: yaml.safe_load(file.read_text(encoding="utf-8")))


def extended(path: Path, read: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """A recipe's values over those of the recipe that it `extends`, by a path beside it or by name, and so on."""
    values, seen = read(path), [path]
    while (base := values.get("extends")) is not None:
        known, near = recipe_files(), seen[-1].parent / str(base)
        file = near if near.is_file() else known.get(str(base))
        if file is None:
            hint = did_you_mean(str(base), known)
            raise SaccadeError(
                f"{seen[-1]} extends '{base}', which is no recipe{hint}", code="no-recipe"
            )
        if file in seen:
            raise SaccadeError(
                f"{path} extends itself by {seen[-1]}; name another recipe", code="cycle"
            )
        seen.append(file)
        own = {name: one for name, one in values.items() if name != "extends"}
        values = merged(read(file), own)
    return values


def merged(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Nested values over others; a part by another name replaces the one it had, with all its options."""
    found = dict(base)
    for name, value in own.items():
        there = found.get(name)
        if isinstance(value, dict) and isinstance(there, dict):
            same = value.get("name", there.get("name")) == there.get("name")
            value = merged(there, value) if same else value
        found[name] = value
    return found


def recipe_row(path: Path) -> dict[str, str]:
    """A recipe that comes with saccade: its name, its task, its first line, and what it needs before it can run."""
    values = values_of(path)
    what = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
    return {
        "name": path.stem,
        "task": values.get("task", "translation"),
        "needs": " + ".join(needs(values)),
        "what": what,
    }


def needs(values: dict[str, Any]) -> list[str]:
    """What a recipe needs before it can run: `nothing`, `saccade fetch …`, own data, or another run."""
    data, before = values.get("data") or {}, values.get("start_from")
    sources = [data[split] for split in ("train", "dev", "test") if data.get(split)]
    missing = [
        Path(part)
        for source in sources
        if not is_generated(source)
        for part in paths_of(split_name(source)[0])
    ]
    missing = [path for path in missing if not located(path).is_file()]
    found = list(
        dict.fromkeys(
            str(path) if has_no_download(set_of(path)) else f"saccade fetch {set_of(path)}"
            for path in missing
        )
    )
    if not sources:
        found.append("data.train=YOUR_FILE")
    first = recipe_files().get(str(before))
    # trained first, on its own data
    if first and not (Path("runs") / str(before)).is_dir():
        found += [one for one in needs(values_of(first)) if one not in (*found, "nothing")]
    return found or ["nothing"]


def keys(before: str = "") -> Iterator[tuple[str, str]]:
    """The keys of a recipe that begin so, each with its meaning."""
    return (
        (key, rules["what"]) for key, rules in packaged()["keys"].items() if key.startswith(before)
    )


def values(key: str) -> list[str]:
    """What a key can be set to: its names, the members of its slot, or its default."""
    rules = packaged()["keys"].get(key, {})
    members = (
        [row["name"] for row in slots()[rules["slot"]]]
        if "slot" in rules
        else rules.get("names", [])
    )
    return members or [str(rules["default"])] if rules else []
