"""Recipe files: those that come with saccade, and those that are not."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support import raises

from saccade import api, tasks
from saccade.config import recipes
from saccade.config.index import recipe_files, rows, values_of
from saccade.data.conllu import Sentence
from saccade.data.corpora import ASKED, CAPTIONED, GRAPHS, OPEN, PICTURED, SHOWN, read
from saccade.data.documents import Document
from saccade.data.labeled import Labeled
from saccade.data.node_graphs import Graph
from saccade.data.pairs import Pair
from saccade.errors import SaccadeError
from saccade.recipe import Recipe

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty; write at least `data:` and `model:`"),
        (b"# nothing\n", "is empty; write at least"),
        (b"- a\n- b\n", "holds a list, not settings; write `key: value` lines"),
        (b"just text", "holds one value, not settings"),
        (b"a: 1\nb: [\n", ", line 3: invalid YAML; write `key: value` lines"),
        (b"a: 1\n\tb: 2\n", ", line 2: invalid YAML"),
        (b"seed: 2020-99-99", ": invalid YAML; write `key: value` lines"),
        (b"seed: !!bool maybe", ": invalid YAML"),
        (b"seed: !!python/object/apply:os.system [ls]", ", line 1: invalid YAML"),
        (b"a: " + b"[" * 5000, ": invalid YAML"),
        (b"model: \xff\xfe", "is not UTF-8 text; give a YAML file"),
        (b"a: &a [*a]\n", "the recipe has more than 100,000 values or 20 levels"),
        (b"\0\0\0", ": invalid YAML"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_a_recipe_is_refused(
    tmp_path: Path, content: bytes, sentence: str
) -> None:
    path = tmp_path / "r.yaml"
    path.write_bytes(content)
    with pytest.raises(SaccadeError) as error:
        recipes.read_recipe(path)
    assert sentence in str(error.value)


def test_a_recipe_that_does_not_exist_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for where, sentence in {
        str(
            tmp_path / "missing.yaml"
        ): "no recipe file '.*missing.yaml', and none of that name comes with saccade",
        "phrasebook-bahdanu": "did you mean 'phrasebook-bahdanau'?",
        str(
            tmp_path
        ): f"{tmp_path} is a folder and holds no run; give a recipe file, or a recipe's name",
        "a" * 400: "no recipe file 'aaa",
        "a\0b": "no recipe file",
    }.items():
        with pytest.raises(SaccadeError, match=sentence.replace("?", r"\?")):
            recipes.read_recipe(where)
    monkeypatch.setattr(recipes, "LARGEST", 5)
    (tmp_path / "big.yaml").write_text("seed: 1\n")
    with raises("too-large", match=r"big.yaml is larger than a recipe can be"):
        recipes.read_recipe(tmp_path / "big.yaml")


RECIPES = sorted((ROOT / "recipes").rglob("*.yaml"))


EXAMPLES: dict[str, list[Any]] = {
    "translation": [Pair("the cat", "le chat", 1)],
    "text-to-text": [Pair("the cat", "le chat", 1)],
    "text-autoencoding": [Pair("the cat", "the cat", 1)],
    "classification": [Labeled("a good film", "good", 1), Labeled("a bad film", "bad", 2)],
    "multi-label": [Labeled("a good film", "good|film", 1), Labeled("a bad film", "bad", 2)],
    "node-classification": [Graph(("red", "blue"), ("a", "b"), ((0, 1, "friend"),), 1)],
    "tagging": [Sentence(("the", "cat"), ("DET", "NOUN"), 1)],
    "language-modelling": [Document("the cat saw the dog", 1)],
    "captioning": read(CAPTIONED, "shapes:dev", {"train": 1, "dev": 2, "test": 1}),
    "image-classification": read(PICTURED, "shapes:dev", {"train": 1, "dev": 2, "test": 1}),
    "autoencoding": read(SHOWN, "shapes:dev", {"train": 1, "dev": 2, "test": 1}),
    "open-questions": read(OPEN, "shapes:train", {"train": 2, "dev": 1, "test": 1}),
    "questions": read(ASKED, "shapes:train", {"train": 2, "dev": 1, "test": 1}),
}


MESHES = read(GRAPHS, "surfaces:train", {"train": 1, "dev": 1, "test": 1})


def test_there_are_examples_of_every_task() -> None:
    assert set(EXAMPLES) == {entry.name for entry in tasks.table}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_parses_and_is_the_same_by_name_by_path_and_written_out(path: Path) -> None:
    made = recipes.read_recipe(path.stem)
    assert made == recipes.read_recipe(path)
    assert recipes.recipe(made.to_dict()) == made
    named = made.task.removesuffix("-modelling")
    assert made.data.train or path.stem == named, (
        "it says what it is trained on, or is the task's own recipe for anybody's data"
    )
    assert path.read_text().startswith("# "), "its first line says what it is"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_builds_on_examples_of_its_task(path: Path) -> None:
    made = dataclasses.replace(recipes.read_recipe(path), device="cpu")
    if made.start_from:
        pytest.skip("it begins with another model")
    # the weights are a package of their own
    if made.model.get("image_encoder", {}).get("pretrained"):
        made = recipes.read_recipe(path, ["model.image_encoder.pretrained=false", "device=cpu"])
    assert (
        api.build(
            made, MESHES if made.model["family"] == "mesh-network" else EXAMPLES[made.task]
        ).name
        == made.model["family"]
    )


def unsaid(values: dict[str, Any], defaults: Any, where: str = "") -> list[str]:
    """The settings that say what holds without them."""
    found = []
    for name, value in values.items():
        default = defaults.get(name) if isinstance(defaults, dict) else getattr(defaults, name)
        if isinstance(value, dict) and name in (
            "data",
            "vocabulary",
            "language",
            "autoencoding",
            "training",
        ):
            found += unsaid(value, default, f"{name}.")
        elif value == default and value is not None and not isinstance(value, dict):
            found.append(f"{where}{name}")
    return found


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_says_only_what_differs(path: Path) -> None:
    base = yaml.safe_load(path.read_text()).get("extends")
    if base is not None:
        own = yaml.safe_load(path.read_text())
        assert (
            unsaid({**own, "extends": ""}, {**values_of(recipe_files()[base]), "extends": None})
            == []
        )
        return
    values = yaml.safe_load(path.read_text())
    assert unsaid(values, Recipe()) == []
    model = values["model"]
    plain = recipes.recipe({**values, "model": {"family": model["family"]}}).model
    assert [
        name
        for name, value in model.items()
        if name not in ("family", "size") and plain[name] == value
    ] == []


def test_there_are_recipes_for_the_demo() -> None:
    assert {"phrasebook-bahdanau", "phrasebook-fixed-context"} <= {path.stem for path in RECIPES}


# --- extends


def test_recipes_have_one_name_each_and_those_for_anybodys_data_come_first() -> None:
    assert len(recipe_files()) == len(RECIPES)
    first = [row["name"] for row in rows("recipes")][:7]
    assert all(row["needs"] == "data.train=YOUR_FILE" for row in rows("recipes")[:7])
    assert first == sorted(path.stem for path in (ROOT / "recipes" / "tasks").glob("*.yaml"))


def test_a_recipe_extends_another_by_name_or_by_a_path_beside_it(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(
        "extends: phrasebook-bahdanau\nmodel: {score: {name: additive, hidden: 8}}\nseed: 3\n"
    )
    (tmp_path / "two.yaml").write_text(
        "extends: one.yaml\nmodel: {score: dot}\ntraining: {updates: 7}\n"
    )
    two = recipes.read_recipe(tmp_path / "two.yaml", ["training.warmup=2"])
    words = ["model.score=dot", "seed=3", "training.updates=7", "training.warmup=2"]
    assert two == recipes.read_recipe("phrasebook-bahdanau", words)
    one = recipes.read_recipe(tmp_path / "one.yaml")
    assert (one.model["score"]["name"], one.model["score"]["hidden"]) == ("additive", 8)
    assert "extends" not in one.to_dict()


def test_a_cycle_and_an_unknown_base_are_refused_in_one_sentence(tmp_path: Path) -> None:
    for name, base in (("a", "b.yaml"), ("b", "c.yaml"), ("c", "a.yaml"), ("d", "trnslation")):
        (tmp_path / f"{name}.yaml").write_text(f"extends: {base}\n")
    with raises("cycle"):
        recipes.read_recipe(tmp_path / "a.yaml")
    with raises("no-recipe"):
        recipes.read_recipe(tmp_path / "d.yaml")
