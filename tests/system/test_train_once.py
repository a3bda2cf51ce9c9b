"""What one `saccade train` does: how often it reads its recipe, builds its model and trains a tokenizer."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support import run_cli

from saccade.config import recipes
from saccade.data.vocabulary import Vocabulary
from saccade.models.builder import Builder

RECIPE = """
task: {task}
data:
  train: phrasebook:train
  dev: phrasebook:dev
  options: {{train: 60, dev: 6, test: 6}}
vocabulary: {{kind: words, size: 200{joint}}}
model: {{family: {family}, dim: 8, heads: 2, depth: 1}}
training: {{updates: 2, tokens: 300, threads: 1}}
device: cpu
"""


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Counter[str]:
    """How often each of these was called."""
    found: Counter[str] = Counter()

    def count(owner: Any, name: str, label: Callable[[], str]) -> None:
        do = getattr(owner, name)
        kept = vars(owner).get(name)

        def counted(*args: Any, **options: Any) -> Any:
            found[label()] += 1
            return do(*args, **options)

        fixed = staticmethod(counted) if isinstance(kept, classmethod) else counted
        monkeypatch.setattr(owner, name, fixed)

    count(recipes, "recipe", lambda: "recipes")
    count(recipes, "read_values", lambda: "recipe files")
    count(Builder, "make", lambda: f"models on {torch.empty(0).device}")
    count(Vocabulary, "train", lambda: "tokenizers")
    recipes.COMPLETE.clear()
    recipes.complete_model.cache_clear()
    monkeypatch.chdir(tmp_path)
    return found


@pytest.mark.parametrize(
    ("task", "joint", "tokenizers"),
    [
        ("translation", ", joint: true", 1),
        ("translation", ", joint: false", 2),
        ("language-modelling", "", 1),
    ],
)
def test_one_training_reads_builds_and_learns_once(
    counts: Counter[str], task: str, joint: str, tokenizers: int
) -> None:
    family = "transformer" if joint else "transformer-decoder"
    Path("a.yaml").write_text(RECIPE.format(task=task, joint=joint, family=family))
    assert run_cli("train", "a.yaml", "--out", "run").code == 0
    assert Path("run/report.html").exists()
    assert counts == {
        "recipe files": 1,
        "recipes": 3,  # its own, that of the best model, and the defaults for the report
        "models on meta": 2,  # of the first and the last of these
        "models on cpu": 2,  # that which is trained, and the best one at the end
        "tokenizers": tokenizers,
    }
