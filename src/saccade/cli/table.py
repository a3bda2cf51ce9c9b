"""The command `table`: published tables made again with small models, and claims of the lectures measured."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import SaccadeError
from .common_options import WAYS, Jobs, Json, On, Result, Seeds
from .completion import TABLES, row_names, table_names
from .shared import check_name, check_result, err, list_names, note, report

if TYPE_CHECKING:
    from ..experiments.study import Job, Study
    from ..experiments.study_table import StudyTable

SCALE = (
    "tiny (minutes on two cores, generated data) or small (made for a GPU; of claims, for a CPU)."
)
ONLY = "These rows alone: --only vanilla geglu, or --only vanilla,geglu. [default: all]"


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
    seeds: Seeds = 1,
    only: Annotated[
        list[str] | None, typer.Option("--only", help=ONLY, autocompletion=row_names)
    ] = None,
    out_folder: Annotated[
        Path | None,
        typer.Option("--out", help="The table's folder. [default: runs/table-NAME-SCALE]"),
    ] = None,
    jobs: Jobs = 1,
    on: On = "here",
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
    # before anything large is imported or written
    check_result(result)
    check_name("table", name, TABLES)
    check_name("scale", scale, ("tiny", "small"))
    check_name("way to run", on, WAYS)
    with err.status("starting …"):
        from ..experiments.study import claim, open_jobs
        from ..studies.tables import STUDIES
    wanted = [one for word in (*(only or ()), *(rows or ())) for one in word.split(",") if one]
    out = out_folder or Path("runs") / f"table-{name}-{scale}"
    study = STUDIES[name](scale, out)
    study.check(wanted)
    claim(out, name, scale)
    planned = study.plan(wanted, seeds)
    todo = open_jobs(planned)
    announce(study, planned, todo)
    made, files = produce(study, planned, todo, jobs, on)
    if result is not None:
        made.record(result, seeds)
    facts = {
        "out": str(out),
        "rows": len(made.rows),
        "files": files,
        "rank_correlations": {key: asdict(found) for key, found in made.correlations.items()},
        "failed": dict(made.failed),
    }
    agreements = (
        f"rank correlation with the paper, {key}: {found}\n"
        for key, found in made.correlations.items()
    )
    report(json_, facts, f"{''.join(agreements)}{out}: {len(made.rows)} rows in {', '.join(files)}")
    if made.failed:
        first = next(iter(made.failed.items()))
        raise SaccadeError(
            f"{len(made.failed)} of {len(planned)} jobs failed, the first: {': '.join(first)}; the table has the others",
            code="jobs-failed",
        )


def produce(
    study: Study, planned: list[Job], todo: list[Job], jobs: int, on: str
) -> tuple[StudyTable, list[str]]:
    """Runs what is to do and writes the table, also one that was stopped; what it has, and its files."""
    from ..experiments.forecast import whole
    from ..experiments.runner import Queue, run
    from ..experiments.study_table import collect, write
    from .progress import JobBoard

    with JobBoard("table", len(planned), len(planned) - len(todo), notes=False) as board:
        if todo:
            with err.status("measuring what they will take …"):
                expected = whole(planned, study.threads(jobs))
            board.expect(len(todo), *expected, jobs)
        queue = Queue(todo, board)
        try:
            run(queue, jobs, study.threads(jobs), on)
        finally:
            made = collect(study, planned, queue.failed)
            files = write(made, jobs)
    return made, files


def announce(study: Study, planned: list[Job], todo: list[Job]) -> None:
    """The plan: how many trainings there are, and which rows cannot be made."""
    for row, why in study.left_out().items():
        note(f"note: the row {row} is left out: {why}")
    count = len({job.row for job in planned})
    done = len(planned) - len(todo)
    what = f"{len(planned)} jobs (trainings and measurements) for {count} rows, {done} of them finished"
    note(f"table {study.name}, scale {study.scale}: {what}; data: {study.about_data}")
