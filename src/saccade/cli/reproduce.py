"""The command `reproduce`: a recorded result is measured again, and the numbers are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .common_options import Json
from .shared import err, note, print_json, write

if TYPE_CHECKING:
    pass

TOLERANCE = "Largest relative difference where a metric has one seed, or the same value with each."


def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="A recorded result, or a result file. [default: list them]")
    ] = None,
    tolerance: Annotated[float, typer.Option("--tolerance", help=TOLERANCE, min=0)] = 0.05,
    json_: Json = False,
) -> None:
    """Run the command of a recorded result again and compare each metric.

    The command runs in a temporary folder. A metric agrees if the difference of the means is within the standard deviation over the
    recorded seeds. Times and memory depend on the machine and are not compared. The exit code is 0 if all metrics agree, else 1.

    Examples:
        saccade reproduce
        saccade reproduce karate
        saccade reproduce benchmarks/results/week.json
    """
    with err.status("starting …"):
        from ..experiments import reproduction
        from ..views.text_table import terminal

    if name is None:
        write(terminal(reproduction.listing(), longest=100))
        return
    recorded = reproduction.find(name)
    note(f"{recorded.name}: {recorded.about['command']}")
    with err.status("running …"):
        checks = reproduction.check(recorded, reproduction.repeat(recorded), tolerance)
    if json_:
        print_json({"name": recorded.name, "metrics": [one.to_dict() for one in checks]})
    else:
        heads = ["row", "metric", "recorded", "reproduced", "within", "agrees"]
        write(terminal([heads, *(one.line() for one in checks)], longest=60))
    failed = [one for one in checks if one.agrees is False]
    compared = [one for one in checks if one.agrees is not None]
    note(f"{len(compared) - len(failed)} of {len(compared)} metrics agree")
    if failed or not compared:
        raise typer.Exit(1)
