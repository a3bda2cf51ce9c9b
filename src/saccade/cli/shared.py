"""What commands share: options, reading input, printing for people and for machines."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from ..errors import SaccadeError

if TYPE_CHECKING:
    from ..api import System


def flag(name: str, text: str, **more: Any) -> Any:
    """An option without a value; typer would show <bool>."""
    return typer.Option(name, metavar=" ", help=text, **more)


Model = Annotated[Path, typer.Argument(help="A model folder, or a run folder (its best model is used).")]
Text = Annotated[str | None, typer.Argument(help="The text; without it and --input, lines are read from stdin.")]
Input = Annotated[Path | None, typer.Option("--input", help="A file with one text per line (.gz and .xz too).")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]
Json = Annotated[bool, flag("--json", "Print one JSON object per line.")]
Beam = Annotated[int, typer.Option("--beam", help="Beam width; 1 is greedy.")]
TopK = Annotated[int | None, typer.Option("--top-k", help="Sample from the k likeliest tokens.")]
TopP = Annotated[float | None, typer.Option("--top-p", help="Sample from the smallest set with this probability.")]
Seed = Annotated[int, typer.Option("--seed", help="The seed of sampling.")]
Lengths = Annotated[bool, flag("--lengths", "Also report BLEU by quarters of sentence length.")]
Moses = Annotated[str | None, typer.Option("--moses", help="Also report BLEU on lowercase Moses tokens of this language (de).")]
Result = Annotated[str | None, typer.Option("--result", help="Write benchmarks/results/NAME.json as well.")]
Peers = Annotated[
    list[str] | None, typer.Option("--peer", help="A reference result for that file, NAME:METRIC=VALUE; repeatable.")
]

PEER = re.compile(r"([^:]+):([^=]+)=([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)", re.IGNORECASE)
out = Console(highlight=False, emoji=False)  # what a user typed is printed as it was: `:cat:` is not a picture
err = Console(stderr=True, highlight=False, emoji=False)


def write(text: str) -> None:
    """Text for people on stdout, as it is."""
    out.print(text, markup=False, soft_wrap=True)


def note(text: str) -> None:
    """Text for people on stderr, as it is."""
    err.print(text, markup=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """One line of strict JSON on stdout."""
    if not out.quiet:
        sys.stdout.write(json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n")


def report(as_json: bool, facts: Any, text: str) -> None:
    """A command's outcome, for machines or for people."""
    if as_json:
        print_json(facts)
    else:
        write(text)


def command_name() -> str:
    """How the user can call this command from here: `saccade` when a shell finds it, else the path it was called by."""
    called = Path(sys.argv[0])
    if called.name != "saccade" or shutil.which("saccade") is not None:
        return "saccade"
    return os.path.relpath(called) if called.is_relative_to(Path.cwd()) else str(called)


def is_run_here(words: list[str]) -> bool:
    """Whether this process runs a command: torchrun starts it several times, and only training needs all of them."""
    return words[:1] in (["train"], ["compare"], ["demo"]) or rank() == 0


def rank() -> int:
    """The number of this process among those of one training run, 0 for a single one."""
    if "WORLD_SIZE" not in os.environ:
        return 0
    from ..training.distributed import rank_here

    return rank_here()


def is_printed_here(error: Exception) -> bool:
    """Whether this process prints an error; of several under torchrun one does."""
    if "WORLD_SIZE" not in os.environ:
        return True
    from ..training.distributed import prints

    return prints(error)


def read_lines(text: str | None, path: Path | None, verb: str) -> list[str]:
    """What to work on: the argument, a file's lines, or stdin's."""
    from ..data.lines import open_text, readable

    if text is not None and path is not None:
        raise SaccadeError("both a text and --input were given; give one of them")
    if text is not None:
        if not text.strip():
            raise SaccadeError("the text is empty; give a sentence")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise SaccadeError(f"the text is not UTF-8 at column {error.start + 1}; convert it first") from None
        return split_lines(text)
    if path is not None:
        return list(open_text(path))
    if sys.stdin is None or sys.stdin.isatty():
        raise SaccadeError(f'nothing to {verb}; give a text ("the black cat"), --input FILE, or lines on stdin')
    raw = sys.stdin.buffer.read() if hasattr(sys.stdin, "buffer") else sys.stdin.read().encode("utf-8", "surrogateescape")
    try:
        lines = split_lines(raw.decode())
    except UnicodeDecodeError as error:
        line, byte = raw.count(b"\n", 0, error.start) + 1, raw[error.start]
        raise SaccadeError(f"stdin, line {line}: not UTF-8 (byte 0x{byte:02x}); convert it first") from None
    if not lines:
        raise SaccadeError("stdin is empty; give at least one line")
    return [readable(line, "line", Path("stdin"), number) for number, line in enumerate(lines, 1)]


def split_lines(text: str) -> list[str]:
    """Lines as `--input` reads them: only a line feed ends one, so that line n of the output is the translation of line n."""
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []


def note_unknown(system: System, lines: list[str]) -> None:
    """Prints on stderr which words the model has never seen."""
    from .. import api

    words = api.unknown_words(system, lines)
    if words:
        named = ", ".join(f"'{word}'" for word in words[:8]) + (" …" if len(words) > 8 else "")
        note(f"note: the model has never seen {named} and reads {'it' if len(words) == 1 else 'each'} as <unk>")


def parse_peers(words: list[str] | None) -> dict[str, dict[str, float]]:
    """`nanoGPT:val_loss=1.4697` as {"nanoGPT": {"val_loss": 1.4697}}."""
    peers: dict[str, dict[str, float]] = {}
    for word in words or []:
        found = PEER.fullmatch(word)
        if found is None:
            raise SaccadeError(f"--peer is '{word}'; write NAME:METRIC=VALUE, such as nanoGPT:val_loss=1.4697")
        peers.setdefault(found[1], {})[found[2]] = float(found[3])
    return peers
