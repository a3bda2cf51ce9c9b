"""What a table is: rows, the jobs (trainings, measurements) that its numbers come from, its columns, and the data at hand."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from ..config import index
from ..data.corpora import generate
from ..data.pairs import Pair
from ..errors import SaccadeError, did_you_mean
from ..files import MANIFEST, write_atomically
from ..system.provenance import environment
from . import results

if TYPE_CHECKING:
    from .runner import Context

PLAN, RESULTS, RUNS = "plan.json", "results", "runs"  # in a table's folder
SWEEP = "-rate-"  # in the stage of a training that tries a learning rate: STAGE-rate-0.001
SCALES = ("tiny", "small")
# set → its recipe
RECIPES = {
    "text": "wikitext-2",
    "labels": "sst2-transformer",
    "en-de": "multi30k-en-de",
    "de-en": "multi30k-de-en",
}
NAMES = {
    "text": "WikiText-2 (text)",
    "labels": "SST-2 (sentiment)",
    "en-de": "Multi30k (translation)",
    "de-en": "Multi30k (translation)",
}
SENTENCES = {"train": 3000, "dev": 150, "test": 150}  # of the embedded phrasebook
Values = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """One training or measurement of a row: its settings, where it runs, and the folders of the jobs that must be done before it."""

    row: str
    stage: str
    seed: int
    # of a module, so that another process finds it by its name
    do: Callable[[Job, Context], Values]
    settings: Values
    out: Path
    after: tuple[Job, ...] = ()  # whose trained models it needs
    # trainings whose results choose its learning rate, wherever they were measured
    reads: tuple[Job, ...] = ()
    any_after: bool = False  # runs with those of `after` that worked
    alone: bool = False  # is timed, so that nothing else may run beside it
    # seconds after which a worker process is ended, since libraries can hang
    limit: float = float("inf")

    @property
    def name(self) -> str:
        """Changed settings make another name, so that nothing is mistaken for what was run with others."""
        what = json.dumps(
            [self.settings, [one.name for one in (*self.after, *self.reads)]], sort_keys=True
        )
        return (
            f"{self.stage}/{self.row}-{self.seed}-{hashlib.sha256(what.encode()).hexdigest()[:6]}"
        )

    @property
    def recipe(self) -> Values:
        """The settings of a training without what is `asked` of it besides."""
        return {name: value for name, value in self.settings.items() if name != "asked"}

    @property
    def label(self) -> str:
        return f"{self.row}, {self.stage}, seed {self.seed}"

    @property
    def folder(self) -> Path:
        return self.out / RUNS / self.name

    @property
    def result(self) -> Path:
        return self.out / RESULTS / f"{self.name.replace('/', '.')}.json"

    @property
    def done(self) -> bool:
        return os.path.isfile(self.result)

    @property
    def trained(self) -> bool:
        """Whether its model is in this folder; results travel between machines, models do not."""
        return os.path.isfile(self.folder / "best" / MANIFEST)

    def write(self, values: Values) -> None:
        # of the machine that ran this job
        about = {name: value for name, value in environment().items() if name != "command"}
        content = {
            "row": self.row,
            "stage": self.stage,
            "seed": self.seed,
            "about": about,
            "values": values,
        }
        write_atomically(self.result, (json.dumps(content, indent=2) + "\n").encode())


def open_jobs(jobs: Sequence[Job]) -> list[Job]:
    """What is to be run, in the order of the plan: jobs without a result, and those whose models are not here though an open job needs
    them; they run again."""
    found = {job.name: job for job in jobs if not job.done}
    waiting = list(found.values())
    while waiting:
        for one in waiting.pop().after:
            if one.name not in found and not one.trained:
                found[one.name] = one
                waiting.append(one)
    return [job for job in jobs if job.name in found]


@dataclass(frozen=True)
class Column(results.Column):
    """A column and the paper's column for it. Its values are those of the study's main stage under that key, or of another `stage`, or
    under another name (`value`), divided by `unit`."""

    paper: str = ""
    stage: str = ""
    value: str = ""
    unit: float = 1.0


COSTS = (
    Column("parameters", "parameters", None, "parameters"),
    Column("operations_per_update", "operations per update", None, "operations"),
    Column("operations", "operations in all"),
    Column("updates_per_second", "updates/s", None, "steps"),
    Column("peak_memory_gpu", "peak memory, GPU (MiB)", 0, unit=2**20),
    Column("peak_memory_process", "peak memory, growth of the process (MiB)", 0, unit=2**20),
)


class Study:
    """A table at a scale, in a folder; what each one has of its own is overridden."""

    name: ClassVar[str]
    columns: ClassVar[tuple[Column, ...]]
    main: ClassVar[str]  # the stage that most columns are of
    drawn: ClassVar[tuple[str, ...]]  # columns that have a picture
    paper_columns: ClassVar[Mapping[str, str]] = {}  # key → heading
    paper: ClassVar[str] = ""
    honest: ClassVar[str]  # what a model this small can show
    sets: ClassVar[tuple[str, ...]] = tuple(RECIPES)  # that its rows read; others need not be there
    about_control: ClassVar[str] = ""  # what the control is, and when a row is below it
    about_sweep: ClassVar[str] = ""  # how learning rates were chosen

    def __init__(self, scale: str, out: Path) -> None:
        self.scale, self.out = scale, out

    @cached_property
    def found(self) -> tuple[dict[str, Values], str]:
        return find_data(self.scale, self.out, self.sets)

    @property
    def data(self) -> dict[str, Values]:
        return self.found[0]

    @property
    def about_data(self) -> str:
        return self.found[1]

    def threads(self, count: int) -> int:
        """Of each of `count` jobs side by side; the smallest models gain nothing from a second one."""
        return 1 if self.scale == "tiny" else max(1, torch.get_num_threads() // count)

    def rows(self) -> dict[str, str]:
        """Name → title, in the order of the table."""
        raise NotImplementedError

    def jobs(self, row: str, seeds: int) -> list[Job]:
        """The jobs of a row."""
        raise NotImplementedError

    def closing(self, jobs: Sequence[Job]) -> list[Job]:
        """Jobs that need those of several rows, or are the control of several."""
        return []

    def control(self, row: str) -> str:
        """The row whose main loss this row must be below, if it has learned anything."""
        return ""

    def in_paper(self, row: str) -> Mapping[str, float]:
        """The paper's own numbers of a row."""
        return {}

    def left_out(self) -> dict[str, str]:
        """Rows that cannot be made here, and why."""
        return {}

    def pictures(self, table: Any) -> dict[str, Any]:
        """File name → figure, besides those that every table has."""
        return {}

    def check(self, only: Sequence[str]) -> None:
        """Raises at a row that is not of this table, or cannot be made here."""
        known = self.rows()
        for name in only:
            if name not in known:
                why = self.left_out().get(name)
                raise SaccadeError(
                    f"the row '{name}' cannot be made here: {why}"
                    if why
                    else f"the table {self.name} has no row named '{name}'{did_you_mean(name, known)}",
                    code="unknown-row",
                )

    def plan(self, only: Sequence[str], seeds: int) -> list[Job]:
        """The jobs of all rows, or of those that are named, and those that these read."""
        jobs = [job for row in dict.fromkeys(only or self.rows()) for job in self.jobs(row, seeds)]
        every = [*(one for job in jobs for one in job.reads), *jobs, *self.closing(jobs)]
        return list({job.name: job for job in every}.values())


def claim(out: Path, name: str, scale: str) -> None:
    """Makes the folder a table's own: it must be new, empty, that of the same table at the same scale, or have results of another
    machine alone."""
    mine = {"table": name, "scale": scale}
    if os.path.exists(out) and not out.is_dir():
        raise SaccadeError(
            f"{out} is a file; give a folder for the table with out=…", code="not-a-folder"
        )
    if os.path.isfile(out / PLAN):
        try:
            kept = json.loads((out / PLAN).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            kept = None
        if kept != mine:
            other = (
                f"table {kept.get('table')} at scale {kept.get('scale')}"
                if isinstance(kept, dict)
                else "something else"
            )
            raise SaccadeError(
                f"{out} contains the {other}, expected {name} at scale {scale}; choose another out=…",
                code="table-differs",
            )
        return
    if os.path.isdir(out) and any(path.name != RESULTS for path in out.iterdir()):
        raise SaccadeError(
            f"{out} contains other files and no table; choose an empty or new folder with out=…",
            code="foreign-files",
        )
    write_atomically(out / PLAN, (json.dumps(mine) + "\n").encode())


def find_data(scale: str, out: Path, sets: Sequence[str]) -> tuple[dict[str, Values], str]:
    """What is read as `text`, `labels` and pairs (`en-de`, `de-en`), and a sentence about it. At scale tiny, or where one of the real
    `sets` is missing, what comes with saccade: its plain text is written to the folder first."""
    read = {key: load_yaml(RECIPES[key])["data"] for key in sets}
    why = why_generated(scale, read)
    if not why:
        return read, ", ".join(dict.fromkeys(NAMES[key] for key in sets))
    made = generate("phrasebook", tuple(sorted(SENTENCES.items())))
    text = {}
    for split in ("train", "dev"):
        path = out / "text" / f"{split}.txt"
        content = "\n".join(pair.source for pair in made[split] if isinstance(pair, Pair)).encode()
        if not path.exists() or path.read_bytes() != content:
            write_atomically(path, content)
        text[split] = str(path)
    pairs = {split: f"phrasebook:{split}" for split in SENTENCES} | {"options": SENTENCES}
    reviews = {"train": "reviews:train", "dev": "reviews:dev"}
    about = f"the generated sets that come with saccade, {why}: sentences of the phrasebook, reviews, and its pairs (en–fr)"
    return {
        "text": text,
        "labels": reviews,
        "en-de": pairs,
        "de-en": {**pairs, "swap": True},
    }, about


def why_generated(scale: str, read: Mapping[str, Values]) -> str:
    """Why a table does not read its real sets (name → data of a recipe); empty where it does."""
    if scale == "tiny":
        return "as at every table of scale tiny"
    needs = {need for data in read.values() for need in index.needs({"data": data})} - {"nothing"}
    return f"since the real ones are missing ({', '.join(sorted(needs))})" if needs else ""


def load_yaml(name: str) -> Values:
    return index.values_of(index.recipe_files()[name])


def training(scale: str, updates: int, tokens: int, **more: Any) -> Values:
    """How rows are trained: evaluated at every eighth, as the paper's early loss is that of the first eighth of its steps."""
    on_gpu = {"precision": "bf16"} if scale != "tiny" and torch.cuda.is_available() else {}
    plain = {
        "schedule": "cosine",
        "learning_rate": 0.002,
        "warmup": max(updates // 10, 1),
        "smoothing": 0.0,
        "log_every": 10,
    }
    every = max(updates // 8, 1)
    return {
        "updates": updates,
        "tokens": tokens,
        "evaluate_every": every,
        "checkpoint_every": updates,
        **on_gpu,
        **plain,
        **more,
    }
