"""Run folders at a glance: what they train, how far they are, and their size. Loads no PyTorch."""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..errors import SaccadeError
from ..files import LOCK, MANIFEST, held, is_temporary, read_plain
from ..training.logs import format_metric

MAX_DEPTH = 3  # folders below the one that is searched
MAX_JSON_BYTES = 16 * 2**20
# what saccade writes into run and model folders
RUN = "best kept last tensorboard curves.png log.jsonl metrics.csv recipe.json report.html run.json"
MODEL = f"README.md config.json model.safetensors vocabularies.json tokenizer.json {MANIFEST}"


@dataclass(frozen=True)
class Summary:
    """A run folder, or a model folder, whose `updates` are 0."""

    path: Path
    task: str
    family: str
    update: int
    updates: int
    best: str  # such as "loss 2.345"; empty before the first evaluation
    date: str
    bytes: int

    @property
    def progress(self) -> str:
        return f"{self.update:,} of {self.updates:,}" if self.updates else "a model"


def is_run(path: str | Path) -> bool:
    """Whether a path is a run or model folder."""
    return any(os.path.isfile(os.path.join(path, name)) for name in ("recipe.json", "config.json"))


def find_runs(folder: str | Path, depth: int = MAX_DEPTH) -> Iterator[str]:
    """The run and model folders below a folder, but not those within a run."""
    if not os.path.isdir(folder):
        return
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if not entry.is_dir():
            continue
        if is_run(entry.path):
            yield entry.path
        elif depth:
            yield from find_runs(entry.path, depth - 1)


def summarize(path: Path) -> Summary:
    """A run or model folder by its recipe and its last checkpoint."""
    file = next((path / n for n in ("recipe.json", "config.json") if (path / n).is_file()), None)
    recipe = {} if file is None else read_values(file)
    model = recipe.get("model")
    if file is None or not isinstance(model, dict) or "family" not in model:
        what = "there is no such folder" if not path.exists() else "it has no recipe of a model"
        raise SaccadeError(
            f"{path} is not a run folder: {what}; `saccade runs` lists them", code="not-a-run"
        )
    at, training = read_values(path / "last" / "training.json"), recipe.get("training") or {}
    watch, best = str(training.get("watch", "loss")), at.get("best")
    newest = max(each.stat().st_mtime for each in (file, path / "last") if each.exists())
    return Summary(
        path,
        str(recipe.get("task", "translation")),
        str(model["family"]),
        int(at.get("update", 0)),
        int(training.get("updates", 0)) if file.name == "recipe.json" else 0,
        f"{watch} {format_metric(watch, best)}" if isinstance(best, float) else "",
        datetime.fromtimestamp(newest, UTC).strftime("%Y-%m-%d %H:%M"),
        bytes_in(path),
    )


def read_values(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if there is none."""
    try:
        values = json.loads(read_plain(path, MAX_JSON_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def bytes_in(folder: Path) -> int:
    """The bytes of all files below a folder; links are not followed."""
    return sum(
        os.lstat(os.path.join(where, name)).st_size
        for where, _, names in os.walk(folder)
        for name in names
    )


def check_removable(path: Path) -> Summary:
    """A run or model folder that contains nothing but what saccade writes."""
    found = summarize(path)
    if path.is_symlink():
        raise SaccadeError(
            f"{path} is a link; remove the folder {os.readlink(path)}, or the link with rm",
            code="not-a-run",
        )
    known = {*RUN.split(), *MODEL.split(), LOCK}
    others = [p.name for p in path.iterdir() if p.name not in known and not is_temporary(p)]
    if others:
        raise SaccadeError(
            f"{path} also contains {', '.join(sorted(others)[:5])}, which saccade does not write there; "
            "move that away first",
            code="foreign-files",
        )
    return found


def remove(path: Path) -> None:
    """Removes a run folder, unless a training writes into it."""
    with held(path):
        shutil.rmtree(path)
