"""What commands share: options, printing for people and for machines, progress of a training."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ..errors import SaccadeError

if TYPE_CHECKING:
    from ..api import System

NO_VALUE = " "  # a flag takes none; typer would show <bool>
Json = Annotated[bool, typer.Option("--json", metavar=NO_VALUE, help="Print JSON for machines, a document a line.")]
Lengths = Annotated[bool, typer.Option("--lengths", metavar=NO_VALUE, help="BLEU by quarters of sentence length too.")]
Model = Annotated[Path, typer.Argument(help="A model folder, or a run folder (its best model is taken).")]
Peers = Annotated[
    list[str] | None, typer.Option("--peer", help="For the result file: who stands where, as NAME:FIGURE=VALUE. May be repeated.")
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]

T = TypeVar("T")
out = Console(highlight=False, emoji=False)  # what a user typed comes back as it was: `:cat:` is no picture
err = Console(stderr=True, highlight=False, emoji=False)


def me() -> str:
    """How the user can call this command from here: `saccade` when a shell finds it, else the path it was called by."""
    called = Path(sys.argv[0])
    if called.name != "saccade" or shutil.which("saccade") is not None:
        return "saccade"
    return os.path.relpath(called) if called.is_relative_to(Path.cwd()) else str(called)


def hush() -> None:
    """Says nothing from here on: another process of this training speaks."""
    out.quiet = err.quiet = True


def print_json(value: Any) -> None:
    """One line of strict JSON on stdout."""
    if out.quiet:
        return
    sys.stdout.write(json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n")


class Counting:
    """How far a long work is: a bar on stderr, or a line now and then where stderr is no terminal."""

    EVERY = 15.0  # seconds between lines

    def __init__(self, what: str, total: int) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self.what, self.total, self.done, self.said = what, total, 0, time.monotonic()
        self.progress = Progress(*columns, console=err, transient=True, disable=not err.is_terminal)
        self.task = self.progress.add_task(what, total=total)

    def __enter__(self) -> Counting:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def over(self, items: Iterable[T]) -> Iterator[T]:
        for item in items:
            yield item
            self.done += 1
            self.progress.advance(self.task)
            if not err.is_terminal and time.monotonic() - self.said > self.EVERY:
                self.said = time.monotonic()
                err.print(f"{self.what}: {self.done:,} of {self.total:,}", markup=False)


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
        return lines_of(text)
    if path is not None:
        return list(open_text(path))
    if sys.stdin is None or sys.stdin.isatty():
        raise SaccadeError(f'nothing to {verb}; give a text ("the black cat"), --input FILE, or lines on stdin')
    raw = sys.stdin.buffer.read() if hasattr(sys.stdin, "buffer") else sys.stdin.read().encode("utf-8", "surrogateescape")
    try:
        lines = lines_of(raw.decode())
    except UnicodeDecodeError as error:
        line, byte = raw.count(b"\n", 0, error.start) + 1, raw[error.start]
        raise SaccadeError(f"stdin, line {line}: not UTF-8 (byte 0x{byte:02x}); convert it first") from None
    if not lines:
        raise SaccadeError("stdin is empty; give at least one line")
    return [readable(line, "line", Path("stdin"), number) for number, line in enumerate(lines, 1)]


def lines_of(text: str) -> list[str]:
    """Lines as `--input` reads them: only a line feed ends one, so that line n of the output is the translation of line n."""
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []


def note_unknown(system: System, lines: list[str]) -> None:
    """Says on stderr which words the model has never seen."""
    from .. import api

    words = api.unknown_words(system, lines)
    if words:
        named = ", ".join(f"'{word}'" for word in words[:8]) + (" …" if len(words) > 8 else "")
        err.print(
            f"note: the model has never seen {named} and reads {'it' if len(words) == 1 else 'each'} as <unk>",
            markup=False,
            soft_wrap=True,
        )


def peers_of(words: list[str] | None) -> dict[str, dict[str, float]]:
    """`nanoGPT:val_loss=1.4697` as {"nanoGPT": {"val_loss": 1.4697}}."""
    found: dict[str, dict[str, float]] = {}
    for word in words or []:
        name, colon, rest = word.partition(":")
        figure, equals, value = rest.partition("=")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not (name and colon and figure and equals and math.isfinite(number)):
            raise SaccadeError(f"--peer is '{word}'; write NAME:FIGURE=VALUE, such as nanoGPT:val_loss=1.4697")
        found.setdefault(name, {})[figure] = number
    return found
