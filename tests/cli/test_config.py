"""`saccade config`, and `saccade train --dry-run`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tests.support import run_cli

from saccade.config import recipes
from saccade.config.json_schema import recipe_schema


def test_a_recipe_is_printed_with_every_default_and_reads_back() -> None:
    shown = run_cli("config", "show", "phrasebook-luong", "training.updates=7")
    made = recipes.read_recipe("phrasebook-luong", ["training.updates=7"])
    assert yaml.safe_load(shown.out) == made.to_dict()
    assert recipes.recipe(yaml.safe_load(shown.out)) == made
    assert run_cli("config", "show", "phrasebook-luong", "--json").json["seed"] == 0


def test_the_schema_is_printed() -> None:
    assert json.loads(run_cli("config", "schema").out) == json.loads(json.dumps(recipe_schema()))


def test_a_dry_run_says_what_would_happen_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["data.options={train: 40, dev: 4, test: 4}", "training.epochs=3", "device=cpu"]
    sizes = ["model.dim=8", "model.hidden=8", "training.tokens=100", "training.threads=1"]
    found = run_cli("train", "phrasebook-bahdanau", "--dry-run", *words, *sizes, "--json").json
    assert found["updates"] == 3 * found["batches_per_epoch"]
    assert found["parameters"] > 0
    assert found["seconds"] > 0
    assert "40 pairs" in found["notes"][0]
    text = run_cli("train", "phrasebook-bahdanau", "--dry-run", *words, *sizes).out
    assert "nothing was trained" in text
    assert f"{found['parameters']:,} parameters" in text
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_names_the_recipe_that_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = run_cli("train", "phrasebook-gnmt-reward", "--dry-run")
    assert found.code == 2
    assert "phrasebook-gnmt" in found.err
