"""What a model is used on: an argument, a file, lines of a pipe as they come, or what a person types."""

import os
import select
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice

from ..data.lines import MAX_LINE_BYTES
from ..errors import SaccadeError
from .shared import as_lines, note

# bytes of one read; seconds without another line; lines that are answered at once
BLOCK, PAUSE, TOGETHER = (2**16, 0.05, 1000)
Answer = Callable[[list[str], int], object]  # takes lines and the number of the first


def answer_each(
    text: str | None,
    path: str | None,
    verb: str,
    answer: Answer,
    read: Callable[[str], Iterable[str]],
) -> None:
    """Calls `answer` with the text, with some lines at a time of what `read` reads from a file, or with stdin's lines as they come; in a
    terminal with each line that is typed."""
    if text is not None and path is not None:
        raise SaccadeError("both a text and --input were given; give one of them")
    if path is not None:
        source, number = iter(read(path)), 1
        while some := list(islice(source, TOGETHER)):
            answer(some, number)
            number += len(some)
    elif text is not None:
        if not text.strip():
            raise SaccadeError("the text is empty; give a sentence")
        answer(as_lines(os.fsencode(text), "the text"), 1)
    elif sys.stdin is not None and sys.stdin.isatty():
        converse(verb, answer)
    else:
        for first, lines in arriving(verb):
            answer(lines, first)


def stdin_lines(verb: str) -> Iterator[str]:
    """Stdin's lines, as they come."""
    if sys.stdin is not None and sys.stdin.isatty():
        raise SaccadeError(nothing_to(verb))
    return (line for _, lines in arriving(verb) for line in lines)


def nothing_to(verb: str) -> str:
    return f'nothing to {verb}; give a text ("the black cat"), --input FILE, or lines on stdin'


def waitable() -> int | None:
    """The descriptor of stdin, where the system can wait for it."""
    with suppress(AttributeError, OSError):
        return None if os.name == "nt" or sys.stdin is None else sys.stdin.fileno()
    return None


def arriving(verb: str) -> Iterator[tuple[int, list[str]]]:
    """Groups of lines of stdin with the number of their first: all that have come when the writer pauses, or `TOGETHER` and some more."""
    if sys.stdin is None:
        raise SaccadeError(nothing_to(verb))
    waiting, count, number, descriptor = bytearray(), 0, 1, waitable()
    while True:
        raw = sys.stdin.buffer.read(BLOCK) if descriptor is None else os.read(descriptor, BLOCK)
        waiting += raw
        count += raw.count(b"\n")
        if not count and len(waiting) > MAX_LINE_BYTES:
            raise SaccadeError(
                f"stdin, line {number}: longer than {MAX_LINE_BYTES:,} bytes; put one sentence on each line"
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
                raise SaccadeError("stdin is empty; give at least one line")
            return


def converse(verb: str, answer: Answer) -> None:
    """Answers what a person types, line by line, until Ctrl-D; a mistake is reported and does not end it."""
    with suppress(ImportError):
        import readline  # noqa: F401 – editing and history of what is typed
    note(f"type a text to {verb} and Enter; Ctrl-D ends")
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
