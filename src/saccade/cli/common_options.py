"""Options and arguments that several commands have."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from .completion import devices, precisions, run_folders, settings


class Family(NamedTuple):
    """A command with sub-commands; words that begin with none of them are for the first one."""

    name: str
    help: str
    commands: tuple[Callable[..., object], ...]


def flag(name: str, text: str, **more: Any) -> Any:
    """An option without a value."""
    return typer.Option(name, help=text, **more)


def as_typed(text: str | None) -> str | None:
    """A text of the command line in UTF-8, whatever the locale has made of it; a file's name stays as it is."""
    with suppress(UnicodeError, ValueError):
        return text if text is None or os.path.exists(text) else os.fsencode(text).decode()
    return text


FOLDER = "A model folder, or a run folder (its best model is used)."
Model = Annotated[Path, typer.Argument(help=FOLDER, autocompletion=run_folders)]
Text = Annotated[
    str | None, typer.Argument(help="The text; without it and --input, lines are read from stdin.")
]
INPUT = "A file with one text per line, or data as for training (my.csv#review, test.tsv, hub:…), whose labels or targets are left out."
Input = Annotated[str | None, typer.Option("--input", help=INPUT)]
WITH = "Add a model with the same vocabulary: an ensemble, the mean of their probabilities; repeatable."
With = Annotated[
    list[Path] | None,
    typer.Option("--with", metavar="<path>", help=WITH, autocompletion=run_folders),
]
OutFolder = Annotated[Path, typer.Option("--out", help="The model folder to write.")]
Device = Annotated[
    str, typer.Option("--device", help="auto, cpu, cuda or mps.", autocompletion=devices)
]
PRECISION = "float32, bf16 (16 bits, for GPUs), or int8 (linear layers in 8 bits, on a CPU)."
Precision = Annotated[str, typer.Option("--precision", help=PRECISION, autocompletion=precisions)]
Json = Annotated[bool, flag("--json", "Print one JSON object per line.")]
Words = Annotated[
    bool, flag("--words", "Words instead of their pieces: weights of a word's pieces are added.")
]
Beam = Annotated[int, typer.Option("--beam", help="Beam width; 1 is greedy.")]
TaskBeam = Annotated[
    int | None,
    typer.Option("--beam", help="Beam width, for models that generate text. [default: 1]"),
]
CUT = "Cut an output after so many tokens. [default: as long as in the training data, or twice the source + 10]"
PENALTY = "Outputs of a beam are ranked by log-probability / length^this."
LengthPenalty = Annotated[float, typer.Option("--length-penalty", help=PENALTY)]
TaskPenalty = Annotated[
    float | None, typer.Option("--length-penalty", help=f"{PENALTY} [default: 1]")
]
MaxLength = Annotated[int | None, typer.Option("--max-length", help=CUT, min=1, max=100_000)]
TopK = Annotated[int | None, typer.Option("--top-k", help="Sample from the k likeliest tokens.")]
TopP = Annotated[
    float | None,
    typer.Option("--top-p", help="Sample from the smallest set with this probability."),
]
Seed = Annotated[int, typer.Option("--seed", help="The seed of sampling.")]
Lengths = Annotated[bool, flag("--lengths", "Also report BLEU by quarters of sentence length.")]
CONTROLS = "Also score controls, such as the nearest training pair (text to text)."
Controls = Annotated[bool, flag("--controls", CONTROLS)]
Moses = Annotated[
    str | None,
    typer.Option(
        "--moses", help="Also report BLEU on lowercase Moses tokens of this language (de)."
    ),
]
TOKENIZE = "sacrebleu's tokenizer for BLEU: 13a, zh, ja-mecab, ko-mecab, char, flores200, intl, spm, none. [default: the recipe's]"
Tokenize = Annotated[str | None, typer.Option("--tokenize", help=TOKENIZE)]
Result = Annotated[
    str | None, typer.Option("--result", help="Write benchmarks/results/NAME.json as well.")
]
SEEDS = "How many seeds of each training, counted from the recipe's own."
Seeds = Annotated[int, typer.Option("--seeds", help=SEEDS, min=1, max=100)]
JOBS = "How many trainings run side by side, each in a process of its own."
Jobs = Annotated[int, typer.Option("--jobs", help=JOBS, min=1, max=256)]
WAYS = ("here", "ray")
ON = "here, or ray: the cluster of RAY_ADDRESS, or one started here (the extra `cluster`)."
On = Annotated[str, typer.Option("--on", help=ON)]
PEER = "A published result for that file, NAME:METRIC=VALUE@SOURCE; repeatable."
Peers = Annotated[list[str] | None, typer.Option("--peer", help=PEER)]
VARY = "Train once with each of these values (commas within brackets do not separate); repeated, with every combination."
Vary = Annotated[
    list[str] | None,
    typer.Option("--vary", metavar="KEY=VALUE,VALUE", help=VARY, autocompletion=settings),
]
