"""The command `table`: published tables made again with small models, and claims of the lectures measured."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import SaccadeError, did_you_mean
from .common_options import Json, Result
from .completion import TABLES, row_names, table_names
from .shared import err, list_names, note, report

if TYPE_CHECKING:
    from ..experiments.study import Job, Study
    from ..experiments.study_table import Made

SCALE = (
    "tiny (minutes on two cores, generated data) or small (made for a GPU; of claims, for a CPU)."
)
ONLY = "These rows alone: --only vanilla geglu, or --only vanilla,geglu. [default: all]"
JOBS = "How many trainings run side by side, each in a process of its own."
ON = "here, or ray: on the cluster of RAY_ADDRESS, or on one started on this machine (the extra `cluster`)."


def table(
    name: Annotated[
        str | None,
        typer.Argument(help="A table; without it, all are listed.", autocompletion=table_names),
    ] = None,
    rows: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ROW]…", help="Rows, as --only.", autocompletion=row_names),
    ] = None,
    scale: Annotated[str, typer.Option("--scale", help=SCALE)] = "tiny",
    seeds: Annotated[
        int, typer.Option("--seeds", help="How many seeds of each training.", min=1, max=100)
    ] = 1,
    only: Annotated[
        list[str] | None, typer.Option("--only", help=ONLY, autocompletion=row_names)
    ] = None,
    out_folder: Annotated[
        Path | None,
        typer.Option("--out", help="The table's folder. [default: runs/table-NAME-SCALE]"),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", help=JOBS, min=1, max=256)] = 1,
    on: Annotated[str, typer.Option("--on", help=ON)] = "here",
    result: Result = None,
    json_: Json = False,
) -> None:
    """Reproduce a published table or test a claim at small scale.

    Writes CSV, Markdown and pictures, with the paper's own columns. Finished work is not repeated: after Ctrl-C, or with more rows or seeds,
    the same command continues with what is missing. The table has all rows whose results are in its folder.

    Examples:
        saccade table
        saccade table modifications --only vanilla geglu rms-norm --seeds 2
        saccade table translation --scale small --jobs 4
        saccade table barriers --seeds 3
        saccade table modifications --scale small --jobs 14 --on ray
    """
    if name is None:
        return list_names("table", table_names(""), json_)
    check_words(name, scale, on, result)
    with err.status("starting …"):
        from ..experiments.study import claim, open_jobs
        from ..experiments.study_table import record
        from ..studies.tables import STUDIES
    wanted = [one for word in (*(only or ()), *(rows or ())) for one in word.split(",") if one]
    out = out_folder or Path("runs") / f"table-{name}-{scale}"
    study = STUDIES[name](scale, out)
    study.check(wanted)
    claim(out, name, scale)
    planned = study.plan(wanted, seeds)
    todo = open_jobs(planned)
    announce(study, planned, todo, jobs)
    made, files = produce(study, planned, todo, jobs, on)
    if result is not None:
        record(made, result, seeds)
    agreements = made.correlations()
    facts = {
        "out": str(out),
        "rows": len(made.results),
        "files": files,
        "rank_correlations": {key: asdict(found) for key, found in agreements.items()},
        "failed": dict(made.failed),
    }
    lines = [
        f"rank correlation with the paper, {key}: {found}" for key, found in agreements.items()
    ]
    report(
        json_, facts, "\n".join([*lines, f"{out}: {len(made.results)} rows in {', '.join(files)}"])
    )
    if made.failed:
        first = next(iter(made.failed.items()))
        raise SaccadeError(
            f"{len(made.failed)} of {len(planned)} jobs failed, the first: {': '.join(first)}; the table has the others"
        )


def produce(
    study: Study, planned: list[Job], todo: list[Job], jobs: int, on: str
) -> tuple[Made, list[str]]:
    """Runs what is to do and writes the table, also one that was stopped; what it has, and its files."""
    from ..experiments.runner import Queue, run
    from ..experiments.study_table import collect, write

    with TableBoard(len(planned), len(planned) - len(todo)) as board:
        queue = Queue(todo, board)  # type: ignore[arg-type]
        try:
            run(queue, jobs, study.threads(jobs), on)
        finally:
            made = collect(study, planned, queue.failed)
            files = write(made, jobs)
    return made, files


def check_words(name: str, scale: str, on: str, result: str | None) -> None:
    """Raises at a wrong word before anything large is imported or written."""
    if result is not None:
        from ..results import check_name

        check_name(result)
    for what, given, known in (
        ("table", name, TABLES),
        ("scale", scale, ("tiny", "small")),
        ("way to run", on, ("here", "ray")),
    ):
        if given not in known:
            raise SaccadeError(f"no {what} named '{given}'{did_you_mean(given, known)}")


def announce(study: Study, planned: list[Job], todo: list[Job], jobs: int) -> None:
    """The plan: how many trainings there are, which rows cannot be made, and what is left will take."""
    from ..experiments.forecast import forecast
    from ..training.cost import duration

    for row, why in study.left_out().items():
        note(f"note: the row {row} is left out: {why}")
    count = len({job.row for job in planned})
    done = len(planned) - len(todo)
    what = f"{len(planned)} jobs (trainings and measurements) for {count} rows, {done} of them finished"
    note(f"table {study.name}, scale {study.scale}: {what}; data: {study.about_data}")
    if not todo:
        return
    with err.status("measuring what they will take …"):
        expected = forecast(planned, study.threads(jobs))
    seconds, operations = (sum(column) for column in zip(*expected.values(), strict=True))
    beside = (
        f"; {jobs} side by side, about {duration(seconds / jobs)} where they do not slow each other down"
        if jobs > 1
        else ""
    )
    note(
        f"{len(todo)} to do: about {operations:.1e} operations, {duration(seconds)} one after another{beside}"
    )


class TableBoard:
    """Shows the jobs of a table on stderr: live bars in a terminal, a line for each job that ends everywhere."""

    def __init__(self, total: int, done: int) -> None:
        from .progress import bars

        self.progress, self.total, self.done = bars(), total, done
        self.tasks: dict[str, Any] = {}

    def __enter__(self) -> TableBoard:
        self.progress.start()
        self.all = self.progress.add_task("table", total=self.total, completed=self.done, state="")
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def begin(self, job: Job) -> None:
        self.tasks[job.name] = self.progress.add_task(job.label, total=None, state="")

    def at(self, job: Job, update: int, total: int, state: str) -> None:
        self.progress.update(self.tasks[job.name], completed=update, total=total, state=state)

    def end(self, job: Job, error: str) -> None:
        if (shown := self.tasks.pop(job.name, None)) is not None:
            self.progress.remove_task(shown)
        self.done += 1
        self.progress.update(self.all, completed=self.done)
        note(f"{self.done} of {self.total}: {job.label}{f' failed: {error}' if error else ''}")
