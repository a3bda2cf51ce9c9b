"""The command that gets public data: fetch."""

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

from .common_options import Json
from .completion import set_names
from .shared import err, list_names, note, report


def fetch(
    name: Annotated[
        str | None,
        typer.Argument(help="A set; without it, all are listed.", autocompletion=set_names),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", help="The folder for it. [default: $SACCADE_DATA, else ~/.cache/saccade/data]"
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Download a public data set that recipes use.

    Recipes look into data/ first, then into the cache. After Ctrl-C, the same command continues. Without a network, it prints which files to
    put where.

    Examples:
        saccade fetch
        saccade fetch multi30k
        saccade fetch tinyshakespeare --to data
    """
    if name is None:
        return list_names("set", set_names(""), json_)
    from ..data.download import described, fetch

    row = described(name)
    size = sum(one["bytes"] for one in row["downloads"].values())
    note(
        f"{row['about']}\nlicense: {row['license']}\ncite: {row['cite']}\nat most {size / 1e6:.1f} MB to download"
    )
    columns = ("{task.description}", BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=err, transient=True, disable=not err.is_terminal, redirect_stdout=False
    ) as progress:
        tasks = {
            file: progress.add_task(file, total=None, visible=False) for file in row["downloads"]
        }
        folder, notes = fetch(
            name,
            to,
            lambda file, done, total: progress.update(
                tasks[file], completed=done, total=total, visible=True
            ),
        )
    for text in notes:
        note(text)
    report(
        json_,
        {"out": str(folder), "files": list(row["files"])},
        f"{folder}: {', '.join(row['files'])}",
    )
