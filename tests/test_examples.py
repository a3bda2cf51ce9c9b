"""The examples reach the targets that they name."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


def example(name: str) -> ModuleType:
    path = next(path for path in EXAMPLES if path.stem == name)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_says_its_target(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 80
    assert "target:" in (ast.get_docstring(ast.parse(text)) or "")


def test_a_model_of_hugging_face_is_looked_into(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    out = tmp_path / "look.html"
    assert example("look_into_hf").main(out=out) < 1e-5
    assert "encoder.layer.1.attention.self" in out.read_text(encoding="utf-8")
    assert (
        "Seen(2 sites: encoder.layer.0.attention.self, encoder.layer.1.attention.self)"
        in capsys.readouterr().out
    )


@pytest.mark.slow
def test_words_with_opinions_weigh_most(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    accuracy = example("static_weights").main(tmp_path)
    assert min(accuracy["static"], accuracy["tf-idf"]) > 78
    assert accuracy["GRU + attention"] > 93
    heaviest = next(line for line in capsys.readouterr().out.splitlines() if "heaviest" in line)
    assert (
        len(
            {"detested", "praised", "enjoyed", "masterpiece", "disliked", "annoying", "adored"}
            & set(heaviest.split())
        )
        >= 3
    )


@pytest.mark.slow
def test_over_frozen_vectors_a_weight_per_word_is_worth_something(tmp_path: Path) -> None:
    """In every seed: TF-IDF above plain counts, learned weights above TF-IDF."""
    accuracy = example("frozen_words").main(tmp_path)
    for plain, counted, learned in zip(*accuracy.values(), strict=True):
        assert plain + 2 < counted
        assert counted + 2 < learned


@pytest.mark.slow
def test_a_pretrained_encoder_learns_from_fewer_labels(tmp_path: Path) -> None:
    accuracy = example("pretrain").main(tmp_path)
    assert accuracy["fine-tuned"] > accuracy["from scratch"] + 3
