"""The command `runs`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ..errors import SaccadeError
from ..system.run_summary import check_removable, find_runs, is_run, remove, summarize
from .common_options import Family, Json, flag
from .completion import run_folders
from .explain import is_conversation
from .shared import print_json, report, show_table, size_of

Below = Annotated[Path, typer.Argument(help="The folder to search.")]
Runs = Annotated[
    list[Path],
    typer.Argument(metavar="RUN", help="Run or model folders.", autocompletion=run_folders),
]


def list_(folder: Below = Path("runs"), json_: Json = False) -> None:
    """List training runs: task, family, progress, metric, date, size.

    `saccade runs` alone does the same.

    Examples:
        saccade runs
        saccade runs list experiments --json
    """
    if not folder.is_dir():
        raise SaccadeError(
            f"{folder} is not a folder; train a model first, or name another folder",
            code="no-folder",
        )
    found = [summarize(Path(one)) for one in ([folder] if is_run(folder) else find_runs(folder))]
    if json_:
        for one in found:
            print_json({**asdict(one), "path": str(one.path)})
        return
    if not found:
        raise SaccadeError(
            f"there are no runs in {folder}; train a model first, or name another folder",
            code="no-runs",
        )
    columns = ("run", "task", "family", "updates", "best dev", "date (UTC)", "size")
    rows = [
        (str(one.path), one.task, one.family, one.progress, one.best, one.date, size_of(one.bytes))
        for one in found
    ]
    show_table(columns, rows)


def remove_(
    runs: Runs,
    yes: Annotated[bool, flag("--yes", "Remove without asking.")] = False,
    json_: Json = False,
) -> None:
    """Remove run folders, after a question.

    A folder that is no run, that contains other files, or into which a training writes is refused, and
    then nothing is removed.

    Examples:
        saccade runs remove runs/first runs/second
        saccade runs remove runs/first --yes
    """
    found = [check_removable(path) for path in dict.fromkeys(runs)]
    text = "\n".join(f"{one.path}: {one.task}, {size_of(one.bytes)}" for one in found)
    if not yes:
        if not is_conversation():
            raise SaccadeError("nobody can be asked here; add --yes to remove", code="needs-yes")
        if not typer.confirm(f"{text}\nRemove?"):
            raise typer.Abort
    for one in found:
        remove(one.path)
        report(json_, {"removed": str(one.path), "bytes": one.bytes}, f"removed: {one.path}")


runs = Family("runs", "List training runs, or remove them.", (list_, remove_))
