"""Several recipes compared fairly: each trained with the same seeds, judged on the same data, mean ± spread of each metric."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import shutil
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import api
from ..config import recipes as config
from ..config.automatic import adopt
from ..config.recipes import Recipe
from ..errors import SaccadeError
from ..recipe import LIMITS
from ..settings import AUTO
from ..system.build import load, prepared
from ..system.model_folder import read_config
from ..system.system import System
from ..training.checkpoints import Progress, RunFolder
from ..training.cost import summary
from ..training.logs import digits_of, format_metric
from ..training.loop import Watcher
from ..training.work import Work
from .forecast import whole
from .results import Column, Table
from .runner import Board, Context, Queue, recipe_of, run
from .significance import LEVEL, Difference, Score, Sums, measure_difference
from .study import Job, Values

Options = dict[str, Any] | None
Prepare = Callable[[Recipe], tuple[System, Work]]
ENSEMBLE = "ensemble"  # the name of a row
LEFT_OPEN = dict.fromkeys(  # data.* without a vocabulary
    ("dev", "test", "tokenize", "metrics", "max_length", "max_ratio", "strict")
)
COSTS = ("seconds", "updates", "parameters")
# counts, which are shown as they are
COUNTS = {
    *("texts", "sentences", "pictures", "documents", "characters", "tokens", "graphs", "nodes"),
    *("beam", "stride", "memory", "unknown_words", "unknown_tokens", "questions"),
}


class MetricColumn(Column):
    """A metric with the digits that people write; memory in MiB, and no ± where all seeds agree."""

    def __init__(self, metric: str) -> None:
        memory = metric.startswith("peak_memory")
        whole = metric in COUNTS or metric in COSTS or metric.startswith("operations")
        digits = 0 if memory else None if whole else digits_of(metric)
        super().__init__(metric, f"{metric} (MiB)" if memory else metric, digits)

    def text(self, values: Sequence[Any]) -> str:
        unit = 2**20 if self.key.startswith("peak_memory") else 1
        return super().text([one / unit for one in values][: len(set(values))])


@dataclass
class Comparison(Table):
    """Recipes with the same seeds, the metrics and costs of each, and what the tests of significance need of them."""

    runs: dict[str, list[Path]] = field(default_factory=dict)
    # row → metric → what it adds up from, one for each seed, and what computes it from a sum
    sums: dict[str, dict[str, tuple[list[Sums], Score]]] = field(default_factory=dict, repr=False)
    # row → the row whose models it starts from, with the same seeds
    before: dict[str, str] = field(default_factory=dict)

    def leaders(self, metric: str, higher: bool) -> list[str]:
        """The rows with the best mean: one, or those that share it."""
        reached = (max if higher else min)(self.mean(row, metric) for row in self.rows)
        return [
            row for row in self.rows if math.isclose(self.mean(row, metric), reached, rel_tol=1e-12)
        ]

    def judge(self, metric: str, higher: bool) -> list[Verdict]:
        """Whether the row with the best mean is better than each other one by more than chance."""
        chosen, found = self.leaders(metric, higher)[0], []
        for row in self.rows:
            ours, theirs = (self.sums.get(one, {}).get(metric) for one in (chosen, row))
            if row != chosen and ours and theirs:
                same = len({sums.shape for sums in (*ours[0], *theirs[0])}) == 1
                arrays = (np.stack(ours[0]), np.stack(theirs[0])) if same else None
                tested = (
                    measure_difference(*arrays, ours[1], len(self.rows) - 1) if arrays else None
                )
                found.append(Verdict(metric, chosen, row, tested))
        return found

    def test(self, metric: str, higher: bool) -> list[Verdict]:
        """Tests every metric and keeps the outcome; returns the verdicts of one, which chooses the best row.

        Other rows get `METRIC_p`; a row that starts from another one gets what it gained with each seed, `METRIC_gain`."""
        if len(self.rows) == 1:
            return []
        self.best = self.leaders(metric, higher)[0]
        found = {
            name: self.judge(name, higher if name == metric else True)
            for name in (metric, *self.sums.get(self.best, {}))
        }
        for one in (one for verdicts in found.values() for one in verdicts if one.found):
            self.rows[one.other][f"{one.metric}_p"] = one.found.p  # type: ignore[union-attr]
        for row, first in self.before.items():
            for name in self.sums.get(row, {}):
                pairs = zip(self.rows[row][name], self.rows[first][name], strict=True)
                self.rows[row][f"{name}_gain"] = [ours - theirs for ours, theirs in pairs]
        return found[metric]

    def columns(self) -> list[Column]:
        return [MetricColumn(one.key) for one in super().columns()]

    def side_by_side(self) -> list[list[str]]:
        """A line per metric, a column per recipe, so that many metrics fit."""
        every = [one for one in self.columns() if all(one.key in row for row in self.rows.values())]
        return [list(line) for line in zip(*self.cells(every), strict=True)]

    def telling(self) -> list[Column]:
        """The columns without counts of the data."""
        return [one for one in self.columns() if one.key not in COUNTS]


@dataclass(frozen=True)
class RunJob(Job):
    """A recipe with a seed, trained in a run folder that people know by its name."""

    run: str = ""

    @property
    def label(self) -> str:
        return f"{self.row}, seed {self.seed}"

    @property
    def folder(self) -> Path:
        return Path(self.run)


def compare(
    recipes: dict[str, Recipe],
    seeds: Sequence[int],
    out: Path,
    board: Board,
    data: str = "",
    options: Options = None,
    jobs: int = 1,
    on: str = "here",
) -> Comparison:
    """Trains each recipe with each seed into `out/NAME-SEED` (finished runs are reused) and judges it on `data`, else on test or dev."""
    out.mkdir(parents=True, exist_ok=True)
    measured = Path(tempfile.mkdtemp(prefix=".measured-", dir=out))
    try:
        asked = {"data": data, "options": options, "sums": len(recipes) > 1}
        planned = plan(recipes, seeds, out, measured, asked, board)
        threads = max(1, torch.get_num_threads() // jobs) if jobs > 1 or on == "ray" else 0
        announce(planned, threads, jobs, board)
        queue = Queue(planned, board)
        run(queue, jobs, threads, on)
        check_failed(queue, planned)
        return collect(recipes, [job for job in planned if job.row in recipes], asked)
    finally:
        shutil.rmtree(measured, ignore_errors=True)


def plan(
    recipes: dict[str, Recipe],
    seeds: Sequence[int],
    out: Path,
    measured: Path,
    asked: Values,
    board: Board,
) -> list[RunJob]:
    """A job for each recipe and seed, and for the recipes that these start from."""
    made: dict[tuple[str, int], RunJob] = {}

    def add(name: str, recipe: Recipe, seed: int) -> RunJob:
        if (name, seed) in made:
            return made[name, seed]
        recipe = replace(recipe, seed=seed)
        after: tuple[RunJob, ...] = ()
        if (file := config.recipe_file(recipe.start_from)) is not None:
            first = recipes.get(file.stem) or replace(
                config.read_recipe(file), device=recipe.device
            )
            after = (add(file.stem, first, seed),)
            recipe = replace(recipe, start_from=str(after[0].folder))
        label = f"{name}, seed {seed}"
        folder = run_folder(
            out / f"{name}-{seed}", recipe, lambda text: board.note(f"{label}: {text}")
        )
        do = measure_run if name in recipes else train_run
        settings = {**recipe.to_dict(), "asked": asked}
        made[name, seed] = RunJob(
            name, "compare", seed, do, settings, measured, after, run=str(folder)
        )
        return made[name, seed]

    for name, recipe in recipes.items():
        for seed in seeds:
            add(name, recipe, seed)
    return list(made.values())


def announce(planned: Sequence[RunJob], threads: int, jobs: int, board: Board) -> None:
    """How long the trainings will take, where there are several whose number of updates is known."""
    todo = [
        job
        for job in planned
        if not ((ended := RunFolder(job.folder, {}).progress()) and ended.done)
    ]
    known = [isinstance(job.recipe["training"]["updates"], int) for job in todo]
    if len(todo) > 1 and all(known) and not any(job.after for job in todo):
        # a training says itself what is wrong with it
        with suppress(SaccadeError):
            board.expect(len(todo), *whole(todo, threads or torch.get_num_threads()), jobs)


def measure_run(job: Job, context: Context) -> Values:
    """Trains and judges one recipe with one seed; what the tests of significance need is written beside the result."""
    asked = job.settings["asked"]
    given = recipe_of(job, 0), job.folder, context.watcher, asked["data"], asked["options"]
    metrics, each = train_and_measure(*given, context.prepare, asked["sums"])
    job.result.parent.mkdir(parents=True, exist_ok=True)
    with job.result.with_suffix(".npz").open("wb") as file:
        np.savez(file, allow_pickle=False, **{name: sums for name, (sums, _) in each.items()})
    return metrics


def train_run(job: Job, context: Context) -> Values:
    """Trains one recipe that another one starts from."""
    made = recipe_of(job, 0)
    if load_finished(made, job.folder, context.watcher) is None:
        api.fit(made, job.folder, True, context.watcher, context.prepare)
    return {}


def check_failed(queue: Queue, planned: Sequence[Job]) -> None:
    """Raises where a training failed."""
    failed = {job.label: queue.failed[job.name] for job in planned if job.name in queue.failed}
    if failed:
        label, why = next(iter(failed.items()))
        what = why if len(planned) == 1 else f"{label}: {why}"
        if len(failed) > 1:
            what = f"{len(failed)} of {len(planned)} trainings failed, the first: {what}"
        raise SaccadeError(what, code="training-failed")


def collect(recipes: dict[str, Recipe], jobs: Sequence[RunJob], asked: Values) -> Comparison:
    """The metrics of all runs, in the order of the recipes and seeds."""
    table = Comparison("", {name: {} for name in recipes}, seeds=sorted({job.seed for job in jobs}))
    scores: dict[str, Score] = {}
    for job in jobs:
        values = json.loads(job.result.read_text(encoding="utf-8"))["values"]
        for metric, value in values.items():
            table.rows[job.row].setdefault(metric, []).append(value)
        table.runs.setdefault(job.row, []).append(job.folder)
        if job.after and job.after[0].row in recipes:
            table.before[job.row] = job.after[0].row
        with np.load(job.result.with_suffix(".npz")) as kept:
            if kept.files and not scores:
                scores = scores_of(job.folder, asked)
            for metric in kept.files:
                found = table.sums.setdefault(job.row, {})
                found.setdefault(metric, ([], scores[metric]))[0].append(kept[metric])
    return table


def scores_of(run: Path, asked: Values) -> dict[str, Score]:
    """Metric → what computes it from a sum over examples."""
    system = load(run / "best", "cpu")
    examples = system.read(asked["data"] or ("test" if system.recipe.data.test else "dev"))
    each = system.task.per_example(system.model, examples[:1], **(asked["options"] or {}))
    return {metric: score for metric, (_, score) in each.sums.items()}


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


def add_ensemble(table: Comparison, device: str, data: str = "", options: Options = None) -> None:
    """Adds a row for all trained models together, whose probabilities are the mean of theirs; its cost is that of all."""
    together = api.ensemble(
        [load(run / "best", device) for runs in table.runs.values() for run in runs]
    )
    examples = together.read(data or ("test" if together.recipe.data.test else "dev"))
    metrics = measure(together, examples, options)
    metrics |= {
        name: sum(sum(row[name]) for row in table.rows.values())
        for name in ("seconds", "updates", "parameters")
    }
    each = together.task.per_example(together.model, examples, **(options or {}))
    # it is one model, whatever the seed
    table.sums[ENSEMBLE] = {
        metric: ([found] * len(table.seeds), score) for metric, (found, score) in each.sums.items()
    }
    table.rows[ENSEMBLE] = {metric: [value] for metric, value in metrics.items()}


def check_ensemble(recipes: dict[str, Recipe], seeds: Sequence[int]) -> None:
    """Raises, before any training, where the models will not make an ensemble."""
    (first, recipe), *others = recipes.items()
    api.check_ensembled(recipe.kind, recipe.task)
    if len(recipes) * len(seeds) < 2:
        raise SaccadeError(
            "an ensemble of one model; give several recipes or seeds", code="no-ensemble"
        )
    if ENSEMBLE in recipes:
        raise SaccadeError(
            f"a recipe is called '{ENSEMBLE}', as the row of the ensemble; rename its file",
            code="name-taken",
        )
    for name, other in others:
        ours, theirs = recipe.to_dict(), other.to_dict()
        changed = api.differences(ours["vocabulary"], theirs["vocabulary"], "vocabulary")
        changed += api.differences(
            {**ours["data"], **LEFT_OPEN}, {**theirs["data"], **LEFT_OPEN}, "data"
        )
        if changed:
            what = f"{first} and {name} have a different {changed[0]}, so that an ensemble would mix vocabularies"
            way = "give them the same, or leave the ensemble out"
            raise SaccadeError(f"{what}; {way}", code="no-ensemble")


def run_folder(first: Path, recipe: Recipe, note: Callable[[str], object]) -> Path:
    """The run's folder, or one named by its settings beside it, where the first contains a run with other settings, which stays."""
    if not (first / "recipe.json").exists():
        return first
    kept = read_config(first / "recipe.json")
    changed = api.differences(kept.to_dict(), adopt(recipe, kept).to_dict())
    changed = [name for name in changed if name != "device"]
    if not changed:
        return first
    settings = json.dumps({**recipe.to_dict(), "device": ""}, sort_keys=True)
    digest = hashlib.sha256(settings.encode()).hexdigest()[:8]
    note(f"{first} has a different {changed[0]} and stays; this run goes to {first.name}-{digest}")
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
        raise SaccadeError(
            "nothing to compare; give at least one recipe and one seed", code="nothing-to-compare"
        )
    if len({recipe.task for recipe in recipes.values()}) > 1:
        raise SaccadeError(
            "these recipes have different tasks; compare recipes of one task", code="tasks-differ"
        )
    for name, recipe in recipes.items():
        if all(getattr(recipe.training, limit) in (None, AUTO) for limit in LIMITS):
            raise SaccadeError(
                f"{name} leaves open how long it trains, so a comparison would not be fair; set training.epochs=20",
                code="length-left-open",
            )
        config.recipes_before(recipe)
        api.check_options(recipe, options)
        if data or recipe.data.test:
            recipe.kind.read(recipe, data or recipe.data.test)


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
