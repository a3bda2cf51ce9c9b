"""`saccade demo`"""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from .shared import Json, command_name, note, out, print_json, write


def demo(
    out_folder: Annotated[Path, typer.Option("--out", help="Where runs, pictures and the report go.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(help="The seed of both training runs.", min=0, max=2**31 - 1)] = 0,
    json_: Json = False,
) -> None:
    """Train a translator without and one with attention on the embedded phrasebook, compare them, and draw the attention.

    Examples:
        saccade demo
        saccade demo --out runs/again --seed 1 --json
    """
    from ..demo import CALLED, check_folder, run
    from .progress import Board

    check_folder(out_folder)
    note("Training two translators side by side on generated English–French sentences; about 90 seconds on 2 CPU cores.")
    result = run(out_folder, seed, Board().watcher)
    if json_:
        print_json(result.metrics)
        return
    table = Table("words in the source", *CALLED.values(), title="BLEU on sentences never seen in training")
    for row in result.lengths:
        table.add_row(*row, end_section=row is result.lengths[-2])
    out.print(table)
    for source, plain, attended in result.sentences:
        write(f"\n  {source}\n    fixed context   {plain}\n    with attention  {attended}")
    write(f"\nAlignment error rate with attention: {result.metrics['aer']:.3f}   ({result.metrics['seconds']:.0f} s in all)")
    write(f"Report: {result.report}   pictures: {', '.join(path.name for path in result.pictures)}")
    me, model = command_name(), out_folder / "bahdanau"
    write(f'\nNext:\n  {me} translate {model} "two old dogs saw the white horse" --align')
    write(f'  {me} show {model} "the small dog saw the black cat" --out cat.html')
    write(f"  {me} train phrasebook-transformer --out {out_folder.parent / 'transformer'}")
