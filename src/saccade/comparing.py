"""Several recipes on one footing: each trained with the same seeds, judged on the same data, mean ± spread of each figure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from . import api, config
from .config import Recipe
from .errors import SaccadeError
from .system import System, load, read_config
from .training.checkpoints import Progress, RunFolder
from .training.loop import Watcher


@dataclass(frozen=True)
class Row:
    """One recipe's figures, one value a seed; `seconds` and `updates` of its trainings among them."""

    name: str
    figures: dict[str, list[float]]

    def mean(self, figure: str) -> float:
        return statistics.fmean(self.figures[figure])

    def spread(self, figure: str) -> float:
        """The standard deviation over the seeds, 0 for one."""
        values = self.figures[figure]
        return statistics.stdev(values) if len(values) > 1 else 0.0


def compare(
    recipes: dict[str, Recipe],
    seeds: Sequence[int],
    out: Path,
    watch: Callable[[str, int], AbstractContextManager[Watcher]],
    data: str = "",
    options: dict[str, Any] | None = None,
) -> list[Row]:
    """Trains each recipe with each seed into `out/NAME-SEED` (what is done already is not done again) and judges it on `data`,
    else on the recipe's test set, else on its dev set."""
    check(recipes, seeds, data, options or {})
    rows = []
    for name, recipe in recipes.items():
        found: dict[str, list[float]] = {}
        for seed in seeds:
            made, run = replace(recipe, seed=seed), out / f"{name}-{seed}"
            same(made, run)
            with watch(f"{name}, seed {seed}", made.training.updates) as watcher:
                system, ended = done(made, run, watcher) or api.fit(made, run, resume=True, watcher=watcher)
            where = data or ("test" if made.data.test else "dev")
            figures = api.evaluate(system, system.read(where), **(options or {}))
            figures |= {"seconds": ended.seconds, "updates": float(ended.update)}
            figures["parameters"] = float(sum(p.numel() for p in system.model.parameters()))
            for figure, value in flat(figures).items():
                found.setdefault(figure, []).append(value)
        rows.append(Row(name, found))
    return rows


def done(recipe: Recipe, run: Path, watcher: Watcher) -> tuple[System, Progress] | None:
    """The best system of a run that has ended, which needs no training data, and where it ended; None when there is none."""
    ended = RunFolder(run, {}).progress()
    if ended is None or not ended.done:
        return None
    watcher.note(f"already finished at update {ended.update:,}")
    return load(run / "best", recipe.device), ended


def same(recipe: Recipe, run: Path) -> None:
    """Raises when a run that is there was made with other settings: its figures would stand under the wrong name."""
    kept = run / "recipe.json"
    if kept.exists():
        changed = [name for name in api.differences(read_config(kept).to_dict(), recipe.to_dict()) if name != "device"]
        if changed:
            raise SaccadeError(f"{run} was made with another {changed[0]}; choose another --out, or remove that folder")


def judged_on(recipe: Recipe, data: str) -> str:
    """What a comparison judges a recipe on, in words."""
    if data or recipe.data.test:
        return data or recipe.data.test
    return recipe.data.dev or f"{recipe.data.held_out:.0%} held out of {recipe.data.train}"


def flat(figures: dict[str, Any]) -> dict[str, float]:
    """The figures that are numbers; of quarters by length the BLEU and the mean length of each."""
    found = {name: float(value) for name, value in figures.items() if isinstance(value, int | float)}
    for n, row in enumerate(figures.get("by_length", []), 1):
        found |= {f"bleu_quarter_{n}": row["bleu"], f"words_quarter_{n}": row["mean"]}
    return found


def check(recipes: dict[str, Recipe], seeds: Sequence[int], data: str, options: dict[str, Any]) -> None:
    """Raises at whatever would else be found out after a training: tasks that differ, data that is not there, a wrong option."""
    if not recipes or not seeds:
        raise SaccadeError("nothing to compare; give at least one recipe and one seed")
    if len({recipe.task for recipe in recipes.values()}) > 1:
        raise SaccadeError("these recipes have different tasks; compare recipes of one task")
    for recipe in recipes.values():
        api.check_options(recipe, options)
        if data or recipe.data.test:
            config.task(recipe).read(recipe, data or recipe.data.test)


def best(rows: Sequence[Row], figure: str, higher: bool) -> list[Row]:
    """The rows with the best mean: one, or those that share it."""
    reached = (max if higher else min)(row.mean(figure) for row in rows)
    return [row for row in rows if math.isclose(row.mean(figure), reached, rel_tol=1e-12)]


def as_figures(rows: Sequence[Row], figure: str, higher: bool) -> dict[str, Any]:
    """For a result file: the best row's figures under their own names, and every row's under NAME.figure."""
    chosen = best(rows, figure, higher)[0]
    found: dict[str, Any] = dict(chosen.figures)
    if len(rows) > 1:
        found["best"] = chosen.name
        found |= {f"{row.name}.{name}": values for row in rows for name, values in row.figures.items()}
    return found
