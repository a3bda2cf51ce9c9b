"""Options and arguments that several commands have."""

import inspect
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import typer

from .completion import devices, precisions, run_folders, settings

Options = dict[str, tuple[Any, Any]]  # name → annotation and default


class Family(NamedTuple):
    """A command with sub-commands; words that begin with none of them are for the first one."""

    name: str
    help: str
    commands: tuple[Callable[..., object], ...]


def flag(name: str, text: str, **more: Any) -> Any:
    """An option without a value."""
    return typer.Option(name, help=text, **more)


def option(kind: Any, text: str, *names: str, default: Any = None, **more: Any) -> tuple[Any, Any]:
    """An option as a row of a table of options: its annotation and its default."""
    default = False if kind is bool else default
    kind = kind if default is not None else kind | None
    return Annotated[kind, typer.Option(*names, help=text, **more)], default


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
INPUT = "Read a file of texts, or data without its labels (my.csv#review, hub:…)."
WITH = "Add a model with the same vocabulary to an ensemble; repeatable."
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
Result = Annotated[
    str | None, typer.Option("--result", help="Write benchmarks/results/NAME.json as well.")
]
SEEDS = "How many seeds of each training, counted from the recipe's own."
Seeds = Annotated[int, typer.Option("--seeds", help=SEEDS, min=1, max=100)]
JOBS = "How many trainings run side by side, each in a process of its own."
Jobs = Annotated[int, typer.Option("--jobs", help=JOBS, min=1, max=256)]
WAYS = ("here", "ray")
ON = "here, or ray: the cluster of RAY_ADDRESS, or one started here (extra `cluster`)."
On = Annotated[str, typer.Option("--on", help=ON)]
PEER = "A published result for that file, NAME:METRIC=VALUE@SOURCE; repeatable."
Peers = Annotated[list[str] | None, typer.Option("--peer", help=PEER)]
VARY = "Train once with each of these values (commas within brackets do not separate); repeated, with every combination."
Vary = Annotated[
    list[str] | None,
    typer.Option("--vary", metavar="KEY=VALUE,VALUE", help=VARY, autocompletion=settings),
]

# --- options that commands take by name, see `takes`

Inputs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="INPUT",
        help="Texts, images or folders of images; or an image and questions. [default: stdin]",
    ),
]
CUT = "Cut outputs after so many tokens. [default: by the training data]"
PENALTY = "Rank the outputs of a beam by log-probability / length^this. [default: 1]"
MOSES = "Also report BLEU on lowercase Moses tokens of this language (de)."
TOKENIZE = "sacrebleu's tokenizer for BLEU: 13a, zh, ja-mecab, ko-mecab, char, flores200, intl, spm, none. [default: the recipe's]"
CONTROLS = "Also score controls, such as the nearest training pair (text to text)."
NOISE = "Add so much noise to pictures (pixels are 0 to 1). [default: as in training]"
OUT = "Write answers to a new .csv, .tsv, .jsonl or .txt file; texts continue after a stop."
OPTIONS: Options = {
    "beam": option(int, "Beam width, for models that generate text. [default: 1]", "--beam"),
    "length_penalty": option(float, PENALTY, "--length-penalty"),
    "length_rule": option(str, "Count length as `power`, or `gnmt` for (5 + length) / 6."),
    "coverage_penalty": option(
        float, "Rank outputs lower that left out source words (Wu et al. 2016)."
    ),
    "max_length": option(int, CUT, min=1, max=100_000),
    "temperature": option(
        float, "Sample: above 1 is bolder, below it is safer, 0 takes the likeliest."
    ),
    "top_k": option(int, "Sample from the k likeliest tokens."),
    "top_p": option(float, "Sample from the smallest set with this probability."),
    "seed": option(int, "Set the seed of sampling."),
    "limit": option(int, "Continue a text by so many tokens. [default: 200]"),
    "noise": option(float, NOISE, min=0, max=10),
    "lengths": option(bool, "Also report BLEU by quarters of sentence length.", "--lengths"),
    "moses": option(str, MOSES),
    "tokenize": option(str, TOKENIZE),
    "controls": option(bool, CONTROLS, "--controls"),
    "input_file": option(str, INPUT, "--input"),
    "out_file": option(Path, OUT, "--out"),
    "on": option(str, ON, default="here"),
    "jobs": option(int, "With --on ray: parts at a time.", default=2, min=1, max=10_000),
    "others": (With, None),
    "device": (Device, "auto"),
    "precision": (Precision, "float32"),
    "json_": (Json, False),
}
SEARCH = ("beam", "length_penalty", "length_rule", "coverage_penalty", "max_length")
SCORING = ("beam", "length_penalty", "lengths", "moses", "tokenize", "controls")
SAMPLING = ("temperature", "top_k", "top_p", "seed")
FILES = ("input_file", "out_file", "on", "jobs")
RUNNING = ("others", "device", "precision", "json_")
Made = TypeVar("Made", bound=Callable[..., object])


def takes(*names: str, of: Options = OPTIONS) -> Callable[[Made], Made]:
    """Gives a command the options of these names, instead of its `**how`."""

    def wrap(command: Made) -> Made:
        signature = inspect.signature(command, eval_str=True)
        own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
        added = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=of[name][1], annotation=of[name][0]
            )
            for name in names
        ]
        command.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
        command.__annotations__ |= {one.name: one.annotation for one in added}
        return command

    return wrap
