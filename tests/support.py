"""What tests share: the sentence of an error, a tiny recipe, and the command line run in this process."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from saccade.cli import run
from saccade.errors import SaccadeError

TINY_RECIPE: dict[str, Any] = {
    "data": {
        "train": "phrasebook:train",
        "dev": "phrasebook:dev",
        "test": "phrasebook:test",
        "options": {"train": 20, "dev": 5, "test": 5},
    },
    "vocabulary": {"kind": "words"},
    "model": {"family": "luong", "dim": 4, "hidden": 4},
    "training": {"updates": 2},
    "device": "cpu",
}


def error_of(work: Callable[[], object]) -> str:
    """The sentence of the SaccadeError that the work raises."""
    with pytest.raises(SaccadeError) as error:
        work()
    return str(error.value)


@contextmanager
def raises(code: str, match: str | None = None) -> Iterator[pytest.ExceptionInfo[SaccadeError]]:
    """Expects a SaccadeError with this code; `match` is for a value in its sentence."""
    with pytest.raises(SaccadeError, match=match) as error:
        yield error
    assert error.value.code == code, f"{error.value.code}: {error.value}"


def tiny_recipe(**changes: Any) -> dict[str, Any]:
    """A recipe that trains in a moment; a mapping changes single settings (`training={"updates": 9}`), except for the model."""
    made = {**TINY_RECIPE, **changes}
    for name, value in changes.items():
        if name != "model" and isinstance(value, Mapping):
            made[name] = {**TINY_RECIPE.get(name, {}), **value}
    return made


@dataclass
class Printed:
    """What a command left: its exit code and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one line of JSON that was printed."""
        [line] = self.out.splitlines()
        return json.loads(line)


class Terminal(io.StringIO):
    """A person at a keyboard, who types nothing."""

    def isatty(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> str:
        raise AssertionError("a command waits for a person who does not know of it")


def run_cli(*words: object, stdin: str = "", terminal: bool = False) -> Printed:
    """Runs a command in this process."""
    out, err, before = io.StringIO(), io.StringIO(), sys.stdin
    sys.stdin = Terminal() if terminal else io.TextIOWrapper(io.BytesIO(stdin.encode()))
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = run([str(word) for word in words])
    finally:
        sys.stdin = before
    return Printed(code, out.getvalue(), err.getvalue())


def split_words(line: str) -> list[str]:
    """Words at spaces; '' is an empty word."""
    return [word.strip("'") for word in line.split(" ")]


def check_mistake(folder: Path, line: str, sentence: str) -> None:
    """A command line that cannot work prints one line with that sentence, ends with 2 and changes nothing in the folder."""

    def snapshot() -> dict[str, bytes | None]:
        return {
            str(path): path.read_bytes() if path.is_file() else None
            for path in sorted(folder.rglob("*"))
        }

    before = snapshot()
    printed = run_cli(*split_words(line))
    assert (printed.code, printed.out) == (2, "")
    [error] = printed.err.splitlines()
    assert error.startswith("saccade: ")
    assert sentence in error, f"{sentence!r} not in {error!r}"
    assert snapshot() == before
