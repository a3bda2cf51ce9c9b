"""Options and arguments that several commands have."""

from pathlib import Path
from typing import Annotated, Any

import typer


def flag(name: str, text: str, **more: Any) -> Any:
    """An option without a value; typer would show <bool>."""
    return typer.Option(name, metavar=" ", help=text, **more)


Model = Annotated[Path, typer.Argument(help="A model folder, or a run folder (its best model is used).")]
Text = Annotated[str | None, typer.Argument(help="The text; without it and --input, lines are read from stdin.")]
Input = Annotated[Path | None, typer.Option("--input", help="A file with one text per line (.gz and .xz too).")]
OutFolder = Annotated[Path, typer.Option("--out", help="The model folder to write.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]
Json = Annotated[bool, flag("--json", "Print one JSON object per line.")]
Words = Annotated[bool, flag("--words", "Words instead of their pieces: weights of a word's pieces are added.")]
Beam = Annotated[int, typer.Option("--beam", help="Beam width; 1 is greedy.")]
TaskBeam = Annotated[int | None, typer.Option("--beam", help="Beam width, for models that generate text. [default: 1]")]
TopK = Annotated[int | None, typer.Option("--top-k", help="Sample from the k likeliest tokens.")]
TopP = Annotated[float | None, typer.Option("--top-p", help="Sample from the smallest set with this probability.")]
Seed = Annotated[int, typer.Option("--seed", help="The seed of sampling.")]
Lengths = Annotated[bool, flag("--lengths", "Also report BLEU by quarters of sentence length.")]
Moses = Annotated[str | None, typer.Option("--moses", help="Also report BLEU on lowercase Moses tokens of this language (de).")]
Result = Annotated[str | None, typer.Option("--result", help="Write benchmarks/results/NAME.json as well.")]
PEER = "A reference result for that file, NAME:METRIC=VALUE; repeatable."
Peers = Annotated[list[str] | None, typer.Option("--peer", help=PEER)]
