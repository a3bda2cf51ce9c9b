"""How long an output may become: as long as the training data's targets, or what --max-length says; a cut one is reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from saccade import api
from support import error_of, run_cli

LETTERS = ["a", "b", "c", "d", "e", "f"]


@pytest.fixture(scope="module")
def repeater(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learned to generate a letter forty times: 41 tokens from 2."""
    root = tmp_path_factory.mktemp("repeat")
    (root / "pairs.tsv").write_text(
        "".join(f"{letter}\t{' '.join([letter] * 40)}\n" for letter in LETTERS)
    )
    where = str(root / "pairs.tsv")
    recipe: dict[str, Any] = {
        "task": "text-to-text",
        "data": {"train": where, "dev": where},
        "vocabulary": {"kind": "words"},
        "model": {
            "family": "transformer",
            "dim": 32,
            "hidden": 64,
            "depth": 1,
            "heads": 2,
            "dropout": 0.0,
        },
        "training": {
            "updates": 120,
            "tokens": 300,
            "learning_rate": 0.01,
            "warmup": 10,
            "smoothing": 0.0,
            "evaluate_every": 120,
        },
        "device": "cpu",
    }
    api.fit(recipe, root / "run")
    return root


def test_an_output_may_be_as_long_as_in_training(repeater: Path) -> None:
    printed = run_cli("translate", repeater / "run", "c")
    assert (printed.out, printed.err) == (" ".join(["c"] * 40) + "\n", "")
    found = run_cli("evaluate", repeater / "run", repeater / "pairs.tsv", "--json")
    assert found.json["exact"] == 100
    assert "cut_outputs" not in found.json


def test_a_cut_output_is_reported(repeater: Path) -> None:
    printed = run_cli("translate", repeater / "run", "c", "--max-length", 7, "--json")
    assert printed.json["translation"] == " ".join(["c"] * 7)
    assert printed.json["finished"] is False
    assert (
        printed.err
        == "note: 1 of 1 outputs reached the length limit and were cut; raise it with --max-length\n"
    )
    found = run_cli(
        "evaluate",
        repeater / "run",
        repeater / "pairs.tsv",
        "--max-length",
        7,
        "--beam",
        2,
        "--json",
    )
    assert (found.json["exact"], found.json["cut_outputs"]) == (0, 6)
    assert "note: 6 of 6 outputs reached the length limit" in found.err
    assert error_of(lambda: api.load(repeater / "run").decode(["c"], max_length=0)).startswith(
        "a max_length of 0 tokens; give 1 to"
    )


def test_a_folder_without_lengths_keeps_the_old_limit_and_wrong_ones_are_refused(
    repeater: Path,
) -> None:
    system = api.load(repeater / "run")
    tokens = system.task.tokens()
    assert tokens["outputs"] == {"ratio": 20.5, "longest": 41}
    assert [system.task.lengths.limit(n) for n in (1, 2, 100)] == [31, 41, 210]
    kind, old = (
        type(system.task),
        {name: value for name, value in tokens.items() if name != "outputs"},
    )
    assert kind.restore(system.recipe, old).lengths.limit(2) == 14
    assert kind.restore(system.recipe, old).tokens() == old
    for wrong in (
        {"longest": 1e9},
        {"ratio": -1},
        {"ratio": float("nan")},
        7,
        {"longest": "x" * 3},
    ):
        with pytest.raises((TypeError, AttributeError, ValueError)):
            kind.restore(system.recipe, json.loads(json.dumps({**old, "outputs": wrong})))
