"""The command `info`: what a run or a model is."""

from __future__ import annotations

from pathlib import Path

import pytest

from saccade import api
from support import run_cli


def test_a_run_is_described(models: Path) -> None:
    found = run_cli("info", models / "run", "--json").json
    assert (found["task"], found["family"]) == ("translation", "bahdanau")
    assert found["updates"] == "60 of 60"
    assert found["data.train"] == "phrasebook:train"
    count = sum(one.numel() for one in api.load(models / "run").model.parameters())
    assert found["parameters"] == f"{count:,}"
    assert found["metrics"]["dev_loss"] > 0
    assert found["bytes"] > 4 * count
    assert found["use"].endswith(f'translate {models / "run"} "your sentence"')
    printed = run_cli("info", models / "run")
    assert printed.code == 0
    assert "dev loss" in printed.out


def test_a_model_folder_is_described_and_the_best_of_a_run_has_its_metrics(models: Path) -> None:
    fixed = run_cli("info", models / "fixed", "--json").json
    assert (fixed["family"], fixed["metrics"]) == ("fixed-context", {})
    best = run_cli("info", models / "run" / "best", "--json").json
    assert best["metrics"] == run_cli("info", models / "run", "--json").json["metrics"]


def test_a_run_before_its_first_evaluation(models: Path, tmp_path: Path) -> None:
    text = (models / "run" / "recipe.json").read_text(encoding="utf-8")
    (tmp_path / "recipe.json").write_text(text, encoding="utf-8")
    found = run_cli("info", tmp_path, "--json").json
    assert (found["task"], found["updates"], found["metrics"]) == ("translation", "0 of 60", {})


@pytest.mark.parametrize("where", ["nowhere", "empty.txt", "folder", "broken"])
def test_what_is_no_model_is_one_sentence(where: str, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "recipe.json").write_text("{", encoding="utf-8")
    printed = run_cli("info", tmp_path / where)
    assert (printed.code, printed.out, printed.err.count("\n")) == (2, "", 1)
