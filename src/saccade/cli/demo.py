"""The command `demo`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from .common_options import Json
from .shared import command_name, note, print_json, show_all, write


def demo(
    out_folder: Annotated[
        Path | None,
        typer.Option("--out", help="Where all goes. [default: runs/demo, runs/demo-TO]"),
    ] = None,
    to: Annotated[
        str,
        typer.Option(
            "--to", help="fr, de (verb last), it, es, zh (no articles) or hi (verb last)."
        ),
    ] = "fr",
    seed: Annotated[
        int, typer.Option(help="The seed of both training runs.", min=0, max=2**31 - 1)
    ] = 0,
    json_: Json = False,
) -> None:
    """Train two translators, compare them and draw their attention.

    One has a fixed context, the other one attention. Both learn the embedded phrasebook. Finished runs of the same seed are reused, and a
    stopped one continues; no other run is replaced.

    Examples:
        saccade demo
        saccade demo --to de
        saccade demo --out runs/again --seed 1 --json
    """
    from ..studies.demonstration import CALLED, run, sentences_in
    from .progress import RunBoard

    example = sentences_in(to)[0]
    out_folder = out_folder or Path("runs/demo" if to == "fr" else f"runs/demo-{to}")
    result = run(out_folder, seed, RunBoard().watcher, tell=note, to=to)
    if json_:
        print_json(result.metrics)
        return
    table = Table(
        "words in the source", *CALLED.values(), title="BLEU on sentences never seen in training"
    )
    for row in result.lengths:
        table.add_row(*row, end_section=row is result.lengths[-2])
    show_all(table)
    for source, plain, attended in result.sentences:
        write(f"\n  {source}\n    fixed context   {plain}\n    with attention  {attended}")
    write(
        f"\nAlignment error rate with attention: {result.metrics['aer']:.3f}   ({result.metrics['seconds']:.0f} s in all)"
    )
    write(f"Report: {result.report}   pictures: {', '.join(path.name for path in result.pictures)}")
    me, model = command_name(), out_folder / "bahdanau"
    write(f'\nNext:\n  {me} translate {model} "two old dogs saw the white horse" --align')
    write(f'  {me} show {model} "the small dog saw the black cat" --out cat.html')
    if to != "fr":
        write(f"  {me} draw orders --out orders.png    ({example.source}: {example.target})")
    write(f"  {me} train phrasebook-transformer --out {out_folder.parent / 'transformer'}")
