"""Several recipes compared fairly: each trained with the same seeds, judged on the same data, mean ± spread of each metric."""

import dataclasses
import hashlib
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import api
from ..config import recipes as config
from ..config.automatic import adopt
from ..config.recipes import Recipe
from ..errors import SaccadeError
from ..recipe import LIMITS
from ..settings import AUTO, resolve
from ..system.build import load, prepared
from ..system.model_folder import read_config
from ..system.system import System
from ..training.checkpoints import Progress, RunFolder
from ..training.cost import summary
from ..training.logs import format_metric
from ..training.loop import Watcher
from ..training.work import Work
from .significance import LEVEL, Difference, Score, Sums, measure_difference

MakeWatcher = Callable[[str, int], AbstractContextManager[Watcher]]
Options = dict[str, Any] | None
Prepare = Callable[[Recipe], tuple[System, Work]]
ENSEMBLE = "ensemble"  # the name of a row
LEFT_OPEN = dict.fromkeys(  # data.* without a vocabulary
    ("dev", "test", "tokenize", "metrics", "max_length", "max_ratio", "strict")
)


@dataclass(frozen=True)
class Row:
    """One recipe's metrics, one value per seed; what it cost is among them (see `cost.summary`)."""

    name: str
    metrics: dict[str, list[float]]
    runs: list[Path] = field(default_factory=list)
    # of `per_example`
    sums: dict[str, tuple[list[Sums], Score]] = field(
        default_factory=dict, compare=False, repr=False
    )
    before: str = ""  # the row whose models it starts from, with the same seeds

    def mean(self, metric: str) -> float:
        return statistics.fmean(self.metrics[metric])

    def spread(self, metric: str) -> float:
        """The standard deviation over the seeds, 0 for one."""
        values = self.metrics[metric]
        return statistics.stdev(values) if len(values) > 1 else 0.0


def compare(
    recipes: dict[str, Recipe],
    seeds: Sequence[int],
    out: Path,
    watch: MakeWatcher,
    data: str = "",
    options: Options = None,
) -> list[Row]:
    """Trains each recipe with each seed into `out/NAME-SEED` (finished runs are reused) and judges it on `data`, else on test or dev."""
    rows = []
    for name, recipe in recipes.items():
        first = config.recipe_file(recipe.start_from)
        row = Row(
            name,
            defaultdict(list),
            sums={},
            before=first.stem if first and first.stem in recipes else "",
        )
        for seed in seeds:
            made = begun_from(replace(recipe, seed=seed), recipes, out, watch)
            with watch(f"{name}, seed {seed}", resolve(made.training.updates, 0)) as watcher:
                run = run_folder(out / f"{name}-{seed}", made, watcher)
                metrics, each = train_and_measure(
                    made, run, watcher, data, options, sums=len(recipes) > 1
                )
            for metric, value in metrics.items():
                row.metrics[metric].append(value)
            for metric, (sums, score) in each.items():
                row.sums.setdefault(metric, ([], score))[0].append(sums)
            row.runs.append(run)
        rows.append(row)
    return rows


def train_and_measure(
    recipe: Recipe,
    run: Path,
    watcher: Watcher,
    data: str,
    options: Options,
    prepare: Prepare = prepared,
    sums: bool = False,
) -> tuple[dict[str, float], dict[str, tuple[Sums, Score]]]:
    """One recipe with one seed, trained or taken from its finished run: its metrics with its cost, and what they add up from."""
    system, ended = load_finished(recipe, run, watcher) or api.fit(
        recipe, run, True, watcher, prepare
    )
    examples = system.read(data or ("test" if recipe.data.test else "dev"))
    metrics = {
        **measure(system, examples, options),
        "seconds": ended.seconds,
        "updates": float(ended.update),
    }
    each = system.task.per_example(system.model, examples, **(options or {})).sums if sums else {}
    return metrics | summary(ended, system.model), each


def begun_from(made: Recipe, recipes: dict[str, Recipe], out: Path, watch: MakeWatcher) -> Recipe:
    """The recipe with the run of the same seed that it starts from, which is trained where it is missing."""
    file = config.recipe_file(made.start_from)
    if file is None:
        return made
    first = replace(
        recipes.get(file.stem) or config.read_recipe(file), seed=made.seed, device=made.device
    )
    first = begun_from(first, recipes, out, watch)
    with watch(f"{file.stem}, seed {first.seed}", resolve(first.training.updates, 0)) as watcher:
        run = run_folder(out / f"{file.stem}-{first.seed}", first, watcher)
        if load_finished(first, run, watcher) is None:
            api.fit(first, run, resume=True, watcher=watcher)
    return replace(made, start_from=str(run))


def measure(system: System, examples: Sequence[Any], options: Options) -> dict[str, float]:
    """The numbers among a system's metrics, those of quarters by length among them."""
    measured = system.evaluate(examples, **(options or {}))
    metrics = {
        metric: float(value) for metric, value in measured.items() if isinstance(value, int | float)
    }
    for n, quarter in enumerate(measured.get("by_length", []), 1):
        metrics |= {f"bleu_quarter_{n}": quarter["bleu"], f"words_quarter_{n}": quarter["mean"]}
    return metrics


def by_length(
    rows: Mapping[str, Mapping[str, Sequence[float]]],
) -> dict[str, list[tuple[float, float]]]:
    """Words and BLEU of each quarter by length, the mean of the seeds, for each row's metrics that have them."""
    mean = statistics.fmean
    found = {
        name: [
            (mean(one[f"words_quarter_{n}"]), mean(one[f"bleu_quarter_{n}"]))
            for n in range(1, 5)
            if f"bleu_quarter_{n}" in one
        ]
        for name, one in rows.items()
    }
    return {name: points for name, points in found.items() if points}


def score_ensemble(
    rows: Sequence[Row], device: str, data: str = "", options: Options = None
) -> Row:
    """A row for all trained models of the other rows together, whose probabilities are the mean of theirs; its cost is that of all."""
    together = api.ensemble([load(run / "best", device) for row in rows for run in row.runs])
    examples = together.read(data or ("test" if together.recipe.data.test else "dev"))
    metrics = measure(together, examples, options)
    metrics |= {
        name: sum(sum(row.metrics[name]) for row in rows)
        for name in ("seconds", "updates", "parameters")
    }
    each = together.task.per_example(together.model, examples, **(options or {}))
    seeds = len(rows[0].runs)  # it is one model, whatever the seed
    sums = {metric: ([found] * seeds, score) for metric, (found, score) in each.sums.items()}
    return Row(ENSEMBLE, {metric: [value] for metric, value in metrics.items()}, [], sums)


def check_ensemble(recipes: dict[str, Recipe], seeds: Sequence[int]) -> None:
    """Raises, before any training, where the models will not make an ensemble."""
    (first, recipe), *others = recipes.items()
    api.check_ensembled(recipe.kind, recipe.task)
    if len(recipes) * len(seeds) < 2:
        raise SaccadeError("an ensemble of one model; give several recipes or seeds")
    if ENSEMBLE in recipes:
        raise SaccadeError(
            f"a recipe is called '{ENSEMBLE}', as the row of the ensemble; rename its file"
        )
    for name, other in others:
        ours, theirs = recipe.to_dict(), other.to_dict()
        changed = api.differences(ours["vocabulary"], theirs["vocabulary"], "vocabulary")
        changed += api.differences(
            {**ours["data"], **LEFT_OPEN}, {**theirs["data"], **LEFT_OPEN}, "data"
        )
        if changed:
            what = f"{first} and {name} have a different {changed[0]}, so that an ensemble would mix vocabularies"
            raise SaccadeError(f"{what}; give them the same, or leave the ensemble out")


def run_folder(first: Path, recipe: Recipe, watcher: Watcher) -> Path:
    """The run's folder, or one named by its settings beside it, where the first contains a run with other settings, which stays."""
    if not (first / "recipe.json").exists():
        return first
    kept = read_config(first / "recipe.json")
    changed = [
        name
        for name in api.differences(kept.to_dict(), adopt(recipe, kept).to_dict())
        if name != "device"
    ]
    if not changed:
        return first
    settings = json.dumps({**recipe.to_dict(), "device": ""}, sort_keys=True)
    digest = hashlib.sha256(settings.encode()).hexdigest()[:8]
    watcher.note(
        f"{first} has a different {changed[0]} and stays; this run goes to {first.name}-{digest}"
    )
    return first.with_name(f"{first.name}-{digest}")


def load_finished(recipe: Recipe, run: Path, watcher: Watcher) -> tuple[System, Progress] | None:
    """The best system of a run that has finished, which needs no training data, and where it ended; None when there is none."""
    ended = RunFolder(run, {}).progress()
    if ended is None or not ended.done:
        return None
    watcher.note(f"already finished at update {ended.update:,}")
    return load(run / "best", recipe.device), ended


def check(
    recipes: dict[str, Recipe], seeds: Sequence[int], data: str, options: dict[str, Any]
) -> None:
    """Raises, before any training, at tasks that differ, data that is missing and options that do not exist."""
    if not recipes or not seeds:
        raise SaccadeError("nothing to compare; give at least one recipe and one seed")
    if len({recipe.task for recipe in recipes.values()}) > 1:
        raise SaccadeError("these recipes have different tasks; compare recipes of one task")
    for name, recipe in recipes.items():
        if all(getattr(recipe.training, limit) in (None, AUTO) for limit in LIMITS):
            raise SaccadeError(
                f"{name} leaves open how long it trains, so a comparison would not be fair; set training.epochs=20"
            )
        config.recipes_before(recipe)
        api.check_options(recipe, options)
        if data or recipe.data.test:
            recipe.kind.read(recipe, data or recipe.data.test)


def best(rows: Sequence[Row], metric: str, higher: bool) -> list[Row]:
    """The rows with the best mean: one, or those that share it."""
    reached = (max if higher else min)(row.mean(metric) for row in rows)
    return [row for row in rows if math.isclose(row.mean(metric), reached, rel_tol=1e-12)]


@dataclass(frozen=True)
class Verdict:
    """The row with the best mean against another one; without a difference where they cannot be compared example by example."""

    metric: str
    best: str
    other: str
    found: Difference | None

    def __str__(self) -> str:
        if self.found is None:
            return f"{self.metric}: {self.best} and {self.other} were not judged on the same examples, so nothing can be tested"
        gap, low, high = (
            format_metric(self.metric, number)
            for number in (self.found.difference, self.found.low, self.found.high)
        )
        how = f"difference {gap}, 95 % interval {low} to {high}, p = {self.found.p:.2g}"
        if self.found.p < LEVEL:
            return f"{self.metric}: {self.best} is better than {self.other} ({how})"
        return f"{self.metric}: no clear difference between {self.best} and {self.other} ({how})"

    def to_dict(self) -> dict[str, Any]:
        tested = dataclasses.asdict(self.found) if self.found else {}
        return {"metric": self.metric, "best": self.best, "other": self.other, **tested}


def judge(rows: Sequence[Row], metric: str, higher: bool) -> list[Verdict]:
    """Whether the row with the best mean is better than each other one by more than chance."""
    chosen, found = best(rows, metric, higher)[0], []
    for row in rows:
        if row is not chosen and metric in chosen.sums and metric in row.sums:
            ours, theirs = chosen.sums[metric], row.sums[metric]
            same = len({sums.shape for sums in (*ours[0], *theirs[0])}) == 1
            arrays = (np.stack(ours[0]), np.stack(theirs[0])) if same else None
            tested = measure_difference(*arrays, ours[1], len(rows) - 1) if arrays else None
            found.append(Verdict(metric, chosen.name, row.name, tested))
    return found


def for_result(rows: Sequence[Row], metric: str, higher: bool) -> dict[str, Any]:
    """For a result file: the best row's metrics under their own names, every row's under NAME.metric, and p of the test of each metric
    against the row that is best by it (`NAME.metric_p`); of a row that starts from another, what it gained with each seed
    (`NAME.metric_gain`)."""
    chosen = best(rows, metric, higher)[0]
    found: dict[str, Any] = dict(chosen.metrics)
    if len(rows) > 1:
        found["best"] = chosen.name
        found |= {
            f"{row.name}.{name}": values for row in rows for name, values in row.metrics.items()
        }
        verdicts = [
            one
            for name in chosen.sums
            for one in judge(rows, name, higher if name == metric else True)
        ]
        found |= {f"{one.other}.{one.metric}_p": one.found.p for one in verdicts if one.found}
        by_name = {row.name: row for row in rows}
        for row in (row for row in rows if row.before):
            for name in row.sums:
                pairs = zip(row.metrics[name], by_name[row.before].metrics[name], strict=True)
                found[f"{row.name}.{name}_gain"] = [ours - theirs for ours, theirs in pairs]
    return found
