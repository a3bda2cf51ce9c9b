"""Several recipes compared fairly: each trained with the same seeds, judged on the same data, mean ± spread of each metric."""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from . import api, config
from .config import Recipe
from .errors import SaccadeError
from .fitting import adopt
from .recipe import LIMITS
from .system import System, load, read_config
from .training.checkpoints import Progress, RunFolder
from .training.loop import Watcher

MakeWatcher = Callable[[str, int], AbstractContextManager[Watcher]]
Options = dict[str, Any] | None


@dataclass(frozen=True)
class Row:
    """One recipe's metrics, one value per seed; `seconds`, `updates` and `parameters` are among them."""

    name: str
    metrics: dict[str, list[float]]

    def mean(self, metric: str) -> float:
        return statistics.fmean(self.metrics[metric])

    def spread(self, metric: str) -> float:
        """The standard deviation over the seeds, 0 for one."""
        values = self.metrics[metric]
        return statistics.stdev(values) if len(values) > 1 else 0.0


def compare(
    recipes: dict[str, Recipe], seeds: Sequence[int], out: Path, watch: MakeWatcher, data: str = "", options: Options = None
) -> list[Row]:
    """Trains each recipe with each seed into `out/NAME-SEED` (finished runs are reused) and judges it on `data`, else on test or dev."""
    rows = []
    for name, recipe in recipes.items():
        found = defaultdict(list)
        for seed in seeds:
            made, run = replace(recipe, seed=seed), out / f"{name}-{seed}"
            with watch(f"{name}, seed {seed}", made.training.updates) as watcher:
                system, ended = load_finished(made, run, watcher) or api.fit(made, run, resume=True, watcher=watcher)
            measured = system.evaluate(system.read(data or ("test" if made.data.test else "dev")), **(options or {}))
            metrics = {metric: float(value) for metric, value in measured.items() if isinstance(value, int | float)}
            for n, row in enumerate(measured.get("by_length", []), 1):
                metrics |= {f"bleu_quarter_{n}": row["bleu"], f"words_quarter_{n}": row["mean"]}
            metrics |= {"seconds": ended.seconds, "updates": float(ended.update)}
            metrics["parameters"] = float(sum(p.numel() for p in system.model.parameters()))
            for metric, value in metrics.items():
                found[metric].append(value)
        rows.append(Row(name, found))
    return rows


def load_finished(recipe: Recipe, run: Path, watcher: Watcher) -> tuple[System, Progress] | None:
    """The best system of a run that has finished, which needs no training data, and where it ended; None when there is none."""
    kept = run / "recipe.json"
    if kept.exists():  # with other settings, its metrics would be listed under the wrong name
        begun = read_config(kept)
        changed = [name for name in api.differences(begun.to_dict(), adopt(recipe, begun).to_dict()) if name != "device"]
        if changed:
            raise SaccadeError(f"{run} was made with a different {changed[0]}; choose another out=…, or remove that folder")
    ended = RunFolder(run, {}).progress()
    if ended is None or not ended.done:
        return None
    watcher.note(f"already finished at update {ended.update:,}")
    return load(run / "best", recipe.device), ended


def check(recipes: dict[str, Recipe], seeds: Sequence[int], data: str, options: dict[str, Any]) -> None:
    """Raises, before any training, at tasks that differ, data that is missing and options that do not exist."""
    if not recipes or not seeds:
        raise SaccadeError("nothing to compare; give at least one recipe and one seed")
    if len({recipe.task for recipe in recipes.values()}) > 1:
        raise SaccadeError("these recipes have different tasks; compare recipes of one task")
    for name, recipe in recipes.items():
        if not any(getattr(recipe.training, limit) for limit in LIMITS):
            raise SaccadeError(
                f"{name} leaves open how long it trains, so a comparison would not be fair; set training.epochs=20"
            )
        api.check_options(recipe, options)
        if data or recipe.data.test:
            config.task(recipe).read(recipe, data or recipe.data.test)


def best(rows: Sequence[Row], metric: str, higher: bool) -> list[Row]:
    """The rows with the best mean: one, or those that share it."""
    reached = (max if higher else min)(row.mean(metric) for row in rows)
    return [row for row in rows if math.isclose(row.mean(metric), reached, rel_tol=1e-12)]


def for_result(rows: Sequence[Row], metric: str, higher: bool) -> dict[str, Any]:
    """For a result file: the best row's metrics under their own names, and every row's under NAME.metric."""
    chosen = best(rows, metric, higher)[0]
    found: dict[str, Any] = dict(chosen.metrics)
    if len(rows) > 1:
        found["best"] = chosen.name
        found |= {f"{row.name}.{name}": values for row in rows for name, values in row.metrics.items()}
    return found
