"""What a model is used on: an argument, a file, lines of a pipe as they come, or what a person types."""

import os
import select
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from ..data.lines import MAX_LINE_BYTES
from ..errors import SaccadeError
from .shared import as_lines, note

# bytes of one read; seconds without another line; lines that are answered at once
BLOCK, PAUSE, TOGETHER = (2**16, 0.05, 1000)
Answer = Callable[[list[Any], int], object]  # takes inputs and the number of the first
NOTHING = 'nothing was given; give a text ("the black cat"), --input FILE, or lines on stdin'


def answer_each(
    texts: Sequence[str],
    path: str | None,
    answer: Answer,
    read: Callable[[str], Iterable[Any]],
    size: int = TOGETHER,
) -> None:
    """Calls `answer` with the texts, with some inputs at a time of what `read` reads from a file, or with stdin's lines as they come;
    in a terminal with each line that is typed."""
    if texts and path is not None:
        raise SaccadeError(
            "both a text and --input were given; give one of them", code="two-inputs"
        )
    if path is not None:
        source, number = iter(read(path)), 1
        while some := list(islice(source, size)):
            answer(some, number)
            number += len(some)
        if number == 1:
            raise SaccadeError(f"{path} contains no words; give at least one", code="no-inputs")
    elif texts:
        if not all(text.strip() for text in texts):
            raise SaccadeError("the text is empty; give a sentence", code="empty-text")
        answer([line for text in texts for line in as_lines(os.fsencode(text), "the text")], 1)
    elif sys.stdin is not None and sys.stdin.isatty():
        converse(answer)
    else:
        for first, lines in arriving():
            answer(lines, first)


def waitable() -> int | None:
    """The descriptor of stdin, where the system can wait for it."""
    with suppress(AttributeError, OSError):
        return None if os.name == "nt" or sys.stdin is None else sys.stdin.fileno()
    return None


def arriving() -> Iterator[tuple[int, list[str]]]:
    """Groups of lines of stdin with the number of their first: all that have come when the writer pauses, or `TOGETHER` and some more."""
    if sys.stdin is None:
        raise SaccadeError(NOTHING, code="no-inputs")
    waiting, count, number, descriptor = bytearray(), 0, 1, waitable()
    while True:
        raw = sys.stdin.buffer.read(BLOCK) if descriptor is None else os.read(descriptor, BLOCK)
        waiting += raw
        count += raw.count(b"\n")
        if not count and len(waiting) > MAX_LINE_BYTES:
            raise SaccadeError(
                f"stdin, line {number}: longer than {MAX_LINE_BYTES:,} bytes; put one sentence on each line",
                code="line-too-long",
            )
        more = (
            descriptor is None or select.select([descriptor], [], [], PAUSE)[0]
            if raw and count < TOGETHER
            else False
        )
        if raw and (not count or more):
            continue
        end = waiting.rindex(b"\n") + 1 if raw else len(waiting)
        if end:
            lines = as_lines(bytes(waiting[:end]), "stdin", number)
            yield number, lines
            number += len(lines)
            del waiting[:end]
            count = 0
        if not raw:
            if number == 1:
                raise SaccadeError("stdin is empty; give at least one line", code="empty-file")
            return


def converse(answer: Answer) -> None:
    """Answers what a person types, line by line, until Ctrl-D; a mistake is reported and does not end it."""
    with suppress(ImportError):
        import readline  # noqa: F401 – editing and history of what is typed
    note("type a text and Enter; Ctrl-D ends")
    while True:
        try:
            line = ask()
        except EOFError:
            note("")
            return
        except UnicodeDecodeError:
            note("saccade: that was not UTF-8; set the terminal to UTF-8")
            continue
        if line.strip():
            try:
                answer(as_lines(os.fsencode(line), "the text"), 1)
            except SaccadeError as error:
                note(f"saccade: {error.shell}")


def ask() -> str:
    """One line that is typed; where stdout is a file, nothing but answers goes there."""
    if sys.stdout.isatty():
        return input("> ")
    sys.stderr.write("> ")
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.removesuffix("\n")
