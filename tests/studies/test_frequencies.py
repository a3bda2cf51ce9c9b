"""The control of word frequencies, against counting in a loop."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from pathlib import Path

import pytest
import torch
import yaml

from saccade.config import recipes
from saccade.config.recipes import read_recipe
from saccade.experiments.runner import Context, Prepared
from saccade.studies.tables.frequencies import Frequencies, control, measure_frequencies

ROOT = Path(__file__).parents[2]
FAMILIES = {
    "causal": "transformer-decoder",
    "masked": "transformer-encoder",
    "denoising": "transformer",
}


@pytest.mark.parametrize("objective", FAMILIES)
def test_the_control_is_the_loss_of_counted_words(tmp_path: Path, objective: str) -> None:
    recipe = {
        "task": "language-modelling",
        "data": {
            "train": "phrasebook:train",
            "dev": "phrasebook:dev",
            "options": {"train": 30, "dev": 8, "test": 2},
        },
        "vocabulary": {"kind": "words", "lowercase": True},
        "language": {"objective": objective, "block": 12},
        "model": {"family": FAMILIES[objective], "dim": 8, "hidden": 8, "depth": 1, "heads": 1},
        "training": {"updates": 1, "tokens": 48},
    }
    found = measure_frequencies(control(recipe, tmp_path), Context())["final_loss"]

    system, work = Prepared()(recipes.recipe(recipe))
    task = system.task
    words = len(task.text)
    size = words + task.objective.extra
    asked = [word for plan in work.epoch(0) for word in targets(work.batch(plan))]
    counts = Counter(word for word in asked if objective != "denoising" or word < words)
    known = words if objective == "denoising" else size
    dev = [
        word
        for start in work.dev.starts(0)
        for word in targets(task.objective.batch(work.dev.blocks([start], 0)))
    ]
    if objective == "denoising":
        assert max(dev) >= words, "there are marks"
    losses = [
        math.log((sum(counts.values()) + known) / (counts[word] + 1))
        for word in dev
        if word < known
    ]
    assert found == pytest.approx(sum(losses) / len(dev), rel=1e-6)


def test_the_control_of_the_recorded_modifications_is_the_loss_of_counted_words() -> None:
    """5.17 in benchmarks/systems.yaml: each target word of the dev pairs by its count among those of training."""
    template = yaml.safe_load((ROOT / "benchmarks" / "systems.yaml").read_text(encoding="utf-8"))[
        "modifications"
    ]
    [claim], [line, _] = template["shows"], template["record"]
    command = shlex.split(line)
    overrides = [
        word for word in command if "=" in word and not word.startswith("model.modification")
    ]
    _, work = Prepared()(read_recipe(command[1], overrides))
    counts = Counter(word for plan in work.epoch(0) for word in targets(work.batch(plan)))  # type: ignore[attr-defined]
    dev = [word for one in work.dev for word in (*one.target, work.task.target.eos)]  # type: ignore[attr-defined]
    total = sum(counts.values()) + len(work.task.target)  # type: ignore[attr-defined]
    loss = sum(math.log(total / (counts[word] + 1)) for word in dev) / len(dev)
    assert f"< {loss:.2f} = the frequencies of the words" in claim


def targets(batch: object) -> list[int]:
    return batch.target[batch.target != batch.ignore].tolist()  # type: ignore[attr-defined]


def test_marks_are_given_and_words_are_not() -> None:
    model = Frequencies(torch.tensor([1, 3, 0, 7, 7]), marks=3)  # words 0 1 2, marks 3 4
    logits = model(torch.zeros(1, 2), torch.zeros(1), torch.tensor([[0, 3, 1]]))
    given, *words = logits[0].softmax(-1).tolist()
    assert given == pytest.approx([0, 0, 0, 1, 0])
    for row in words:
        assert row == pytest.approx([2 / 7, 4 / 7, 1 / 7, 0, 0])
