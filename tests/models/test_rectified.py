"""Rectified weights in Bahdanau's model: a form that learns, and a note where a model looks at nothing."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from saccade import api
from saccade.system import build as system_module
from saccade.training.loop import Watcher


class Noting(Watcher):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Short texts to copy."""
    root, chance = tmp_path_factory.mktemp("copies"), random.Random(0)
    for name, count in (("train", 500), ("dev", 40)):
        texts = [
            " ".join(
                chance.choices(["a", "b", "c", "d", "e", "f", "g", "h"], k=chance.randint(4, 7))
            )
            for _ in range(count)
        ]
        (root / f"{name}.tsv").write_text("".join(f"{text}\t{text}\n" for text in texts))
    return root


def recipe(root: Path, normalize: str, updates: int = 120) -> dict[str, Any]:
    return {
        "data": {"train": str(root / "train.tsv"), "dev": str(root / "dev.tsv")},
        "vocabulary": {"kind": "words"},
        "model": {
            "family": "bahdanau",
            "dim": 24,
            "hidden": 24,
            "dropout": 0.0,
            "normalize": normalize,
        },
        "training": {
            "updates": updates,
            "tokens": 400,
            "learning_rate": 0.01,
            "warmup": 10,
            "smoothing": 0.0,
            "evaluate_every": updates,
        },
        "device": "cpu",
    }


def kill(monkeypatch: pytest.MonkeyPatch) -> None:
    """All scores are 0 from the start, where relu passes no gradient on."""
    build = system_module.build

    def dead(*given: Any) -> api.System:
        made = build(*given)
        with torch.no_grad():
            made.model.decoder.cross.mechanism.score.v.zero_()
        return made

    monkeypatch.setattr(system_module, "build", dead)


@pytest.mark.slow
def test_rectified_weights_learn_and_dead_ones_are_noticed(
    copies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    living, dead = Noting(), Noting()
    system, ended = api.fit(recipe(copies, "relu-sum"), tmp_path / "living", watcher=living)
    weights = [one.weights for one in system.align(system.read("dev"))]
    assert sum(float((rows > 0).mean()) for rows in weights) / len(weights) > 0.1
    assert sum(float(rows.sum(1).mean()) for rows in weights) / len(weights) > 0.5
    assert not [note for note in living.notes if "looks at nothing" in note]
    kill(monkeypatch)
    _, without = api.fit(recipe(copies, "relu"), tmp_path / "dead", watcher=dead)
    assert dead.notes[-1] == (
        "note: decoder.cross looks at nothing: all its weights are 0; set model.normalize=relu-sum or softmax"
    )
    assert ended.best is not None
    assert without.best is not None
    assert ended.best < without.best - 0.3
