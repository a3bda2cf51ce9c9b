"""Models to run commands on, trained once per session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from saccade import api
from saccade.training.checkpoints import RunFolder
from support import tiny_recipe

RECIPE = tiny_recipe(
    data={"options": {"train": 300, "dev": 10, "test": 12}},
    vocabulary={"split": "punctuation", "lowercase": True},
    model={"family": "bahdanau", "dim": 16, "hidden": 16, "dropout": 0.0},
    training={
        "updates": 60,
        "tokens": 700,
        "learning_rate": 0.03,
        "warmup": 5,
        "smoothing": 0.0,
        "evaluate_every": 30,
    },
)


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
    """A recipe file of a short training run."""
    path = tmp_path / "small.yaml"
    short = {**RECIPE["training"], "updates": 4}
    data = {**RECIPE["data"], "options": {"train": 40, "dev": 4, "test": 4}}
    path.write_text(json.dumps({**RECIPE, "training": short, "data": data}))  # JSON is YAML
    return path


TEXT = "the cat saw the dog\nthe dog saw a mouse\n\na mouse ran\n" * 4
REVIEWS = "text\tlabel\na good film\tgood\na bad film\tbad\ngood fun\tgood\nno fun at all\tbad\n"
CONLLU = (
    "# sent_id = 1\n# text = the cats don't sleep\n"
    "1\tthe\tthe\tDET\tDT\t_\t2\tdet\t_\t_\n"
    "2\tcats\tcat\tNOUN\tNNS\tNumber=Plur\t5\tnsubj\t_\t_\n"
    "3-4\tdon't\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No\n"
    "3\tdo\tdo\tAUX\tVBP\t_\t5\taux\t_\t_\n"
    "4\tn't\tnot\tPART\tRB\t_\t5\tadvmod\t_\t_\n"
    "4.1\tghost\tghost\tNOUN\tNN\t_\t_\t_\t5:nsubj\t_\n"
    "5\tsleep\tsleep\tVERB\tVB\t_\t0\troot\t_\t_\n\n"
    "# a comment\twith a tab\n1\tcats\tcat\tNOUN\tNNS\t_\t0\troot\t_\t_\n\n"
)


@pytest.fixture(scope="session")
def shelf(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of each task, as `api.fit` leaves it after a few updates, and the data they were trained on."""
    root = tmp_path_factory.mktemp("shelf")
    (root / "text.txt").write_text(TEXT)
    (root / "reviews.tsv").write_text(REVIEWS)
    (root / "words.conllu").write_text(CONLLU)
    small = {"heads": 2, "depth": 1, "dim": 8, "hidden": 8, "dropout": 0.0}
    decoder = {"family": "transformer-decoder", **small}
    language = {"task": "language-modelling", "language": {"block": 8}}
    recipes: dict[str, dict[str, Any]] = {
        "labels": {
            "task": "classification",
            "data": "reviews.tsv",
            "model": {"family": "transformer-encoder", **small},
        },
        "tags": {
            "task": "tagging",
            "data": "words.conllu",
            "model": {"family": "rnn-encoder", "dim": 8, "hidden": 8, "depth": 1},
        },
        "words": {**language, "data": "text.txt", "model": decoder},
        "letters": {
            **language,
            "data": "text.txt",
            "model": decoder,
            "vocabulary": {"kind": "characters"},
        },
        "lines": {**language, "data": "text.txt", "model": decoder, "more": {"documents": "line"}},
        "masked": {
            **language,
            "data": "text.txt",
            "model": {"family": "transformer-encoder", **small},
            "language": {"block": 8, "objective": "masked"},
        },
    }
    for name, made in recipes.items():
        where = str(root / made.pop("data"))
        made["data"] = {"train": where, "dev": where, **made.pop("more", {})}
        training = {
            "updates": 4,
            "tokens": 80,
            "learning_rate": 0.05,
            "warmup": 1,
            "evaluate_every": 2,
        }
        api.fit(
            {"vocabulary": {"kind": "words"}, "training": training, "device": "cpu", **made},
            root / name,
        )
    other = api.build({**RECIPE, "seed": 1})
    RunFolder(root, api.model_files(other)).save("other", other.model)
    (root / "run").symlink_to(models / "run")
    return root
