"""A way to run commands in this process, and models to run them on, trained once in a session."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from saccade import api
from saccade.cli import run
from saccade.training.runs import RunFolder

RECIPE: dict[str, Any] = {
    "data": {
        "train": "phrasebook:train",
        "dev": "phrasebook:dev",
        "test": "phrasebook:test",
        "phrasebook": {"train": 300, "dev": 10, "test": 12},
    },
    "vocabulary": {"kind": "words", "split": "punctuation", "lowercase": True},
    "model": {"family": "bahdanau", "dim": 16, "hidden": 16, "dropout": 0.0},
    "training": {"updates": 60, "tokens": 700, "learning_rate": 0.03, "warmup": 5, "smoothing": 0.0, "evaluate_every": 30},
    "device": "cpu",
}


@dataclass
class Said:
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


@pytest.fixture
def saccade(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    def call(*words: object, stdin: str = "", terminal: bool = False) -> Said:
        monkeypatch.setattr("sys.stdin", Terminal() if terminal else io.StringIO(stdin))
        capsys.readouterr()
        code = run([str(word) for word in words])
        printed = capsys.readouterr()
        return Said(code, printed.out, printed.err)

    return call


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`models/run`, a trained run; `models/fixed`, a model without attention that has learned nothing."""
    root = tmp_path_factory.mktemp("models")
    api.fit(RECIPE, root / "run")
    fixed = api.build({**RECIPE, "model": {"family": "fixed-context", "dim": 8, "hidden": 8}})
    RunFolder(root, api.model_files(fixed)).save("fixed", fixed.model)
    return root


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """A recipe file of a short training."""
    path = tmp_path / "small.yaml"
    short = {
        **RECIPE,
        "training": {**RECIPE["training"], "updates": 4},
        "data": {**RECIPE["data"], "phrasebook": {"train": 40, "dev": 4, "test": 4}},
    }
    path.write_text(json.dumps(short))  # JSON is YAML
    return path
