"""What a model is used on: an argument, a file, lines of a pipe as they come, or what a person types."""

import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress

from ..errors import SaccadeError
from .shared import as_lines, note, read_lines

BLOCK, PAUSE, TOGETHER = 2**16, 0.05, 4096  # bytes of one read; seconds without another line; lines that are answered at once
Answer = Callable[[list[str], int], object]  # takes lines and the number of the first


def answer_each(text: str | None, path: str | None, verb: str, answer: Answer, read: Callable[[str], list[str]]) -> None:
    """Calls `answer` with the text or what `read` reads from a file; with stdin's lines as they come; in a terminal with each line that is
    typed."""
    if text is None and path is None and sys.stdin is not None and sys.stdin.isatty():
        converse(verb, answer)
    elif text is None and path is None and (descriptor := waitable()) is not None:
        for first, lines in arriving(descriptor):
            answer(lines, first)
    else:
        answer(read_lines(text, path, verb, read), 1)


def waitable() -> int | None:
    """The descriptor of stdin, where the system can wait for it."""
    with suppress(AttributeError, OSError):
        return None if os.name == "nt" or sys.stdin is None else sys.stdin.fileno()
    return None


def arriving(descriptor: int) -> Iterator[tuple[int, list[str]]]:
    """Groups of lines with the number of their first: all that have come when the writer pauses, or `TOGETHER` and some more."""
    waiting, count, number = bytearray(), 0, 1
    while True:
        raw = os.read(descriptor, BLOCK)
        waiting += raw
        count += raw.count(b"\n")
        if raw and (not count or (count < TOGETHER and select.select([descriptor], [], [], PAUSE)[0])):
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
