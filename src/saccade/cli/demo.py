"""`saccade demo`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .shared import Json, err, me, out, print_json

EXAMPLES = """Examples:

    saccade demo

    saccade demo --out runs/again --seed 1 --json
"""


def demo(
    out_folder: Annotated[Path, typer.Option("--out", help="Where runs, pictures and the report go.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(help="The seed of both trainings.", min=0, max=2**31 - 1)] = 0,
    json_: Json = False,
) -> None:
    """Train a translator without and one with attention on the embedded phrasebook, compare them, and draw where the second looks."""
    from ..demo import check_place, run
    from .board import Board

    check_place(out_folder)
    err.print(
        "Training two translators side by side on generated English–French sentences; about 90 seconds on 2 CPU cores.",
        markup=False,
    )
    result = run(out_folder, seed, Board().watcher)
    if json_:
        print_json(result.figures)
        return
    out.print(result.table)
    for source, plain, attended in result.sentences:
        out.print(f"\n  {source}\n    fixed context   {plain}\n    with attention  {attended}", markup=False, soft_wrap=True)
    out.print(
        f"\nAlignment error rate with attention: {result.figures['aer']:.3f}   ({result.figures['seconds']:.0f} s in all)",
        markup=False,
    )
    out.print(
        f"Report: {result.report}   pictures: {', '.join(path.name for path in result.pictures)}", markup=False, soft_wrap=True
    )
    run_folder = out_folder / "bahdanau"
    out.print("\nNext:", markup=False)
    for line in (
        f'{me()} translate {run_folder} "two old dogs saw the white horse" --align',
        f'{me()} show {run_folder} "the small dog saw the black cat" --out cat.html',
        f"{me()} train phrasebook-transformer --out {out_folder.parent / 'transformer'}",
    ):
        out.print(f"  {line}", markup=False, soft_wrap=True)
