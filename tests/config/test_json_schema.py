"""The JSON Schema of recipes: valid itself, true of every recipe that comes with saccade, and false of wrong ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from saccade.config import recipes
from saccade.config.index import recipe_files
from saccade.config.json_schema import recipe_schema

jsonschema = pytest.importorskip("jsonschema")


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = json.loads(json.dumps(recipe_schema()))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("path", recipe_files().values(), ids=lambda path: path.stem)
def test_every_recipe_is_valid_as_written_and_filled_in(validator: Any, path: Path) -> None:
    assert [e.message for e in validator.iter_errors(yaml.safe_load(path.read_text()))] == []
    assert [e.message for e in validator.iter_errors(recipes.read_recipe(path).to_dict())] == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"sede": 1},
        {"task": "translate"},
        {"seed": -1},
        {"seed": "auto"},
        {"training": {"updates": 0}},
        {"training": {"updates": None}},
        {"training": {"patience": "auto"}},
        {"training": {"clip": "none"}},
        {"training": {"optimizer": "lion"}},
        {"training": {"reward": "none"}},
        {"data": {"phrasebook": {"train": 5}}},
        {"data": {"swap": "yes"}},
        {"model": {"family": "transformr"}},
        {"model": {"family": "transformer", "dim": 0}},
        {"model": {"family": "transformer", "size": "large"}},
        {"model": {"family": "transformer", "cell": "gru"}},
        {"model": {"family": "transformer", "score": "dott"}},
        {"model": {"family": "transformer", "feedforward": {"name": "mlp", "experts": 3}}},
    ],
    ids=str,
)
def test_a_wrong_recipe_is_invalid(validator: Any, wrong: dict[str, Any]) -> None:
    assert list(validator.iter_errors(wrong))


def test_open_and_unset_settings_are_valid(validator: Any) -> None:
    training = {"updates": "auto", "patience": None, "compile": "auto", "reward": None}
    assert not list(validator.iter_errors({"training": training, "extends": "translation"}))
