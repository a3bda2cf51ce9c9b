"""A setting is used or refused: for every recipe and every key, another value changes the model, the batches or the loop."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from saccade import api
from saccade.config import recipes
from saccade.config.automatic import fit_to_data
from saccade.data.conllu import Sentence
from saccade.data.corpora import ASKED, CAPTIONED, GRAPHS, OPEN, PICTURED, SHOWN, read
from saccade.data.documents import Document
from saccade.data.labeled import Labeled
from saccade.data.pairs import Pair
from saccade.errors import SaccadeError
from saccade.models import table as families
from saccade.recipe import Recipe, tasks
from saccade.registry import Table
from saccade.settings import Choice, Range, rules_of
from saccade.training.checkpoints import Progress, RunFolder
from saccade.training.distributed import Ranks
from saccade.training.loop import Training, Watcher
from saccade.training.run_plan import plan

RECIPES = sorted((Path(__file__).parents[2] / "recipes").rglob("*.yaml"))
WORDS = "the cat saw a small dog near the old house and it ran away from her again today".split()  # noqa: SIM905
SENTENCES = [" ".join(WORDS[n : n + 3 + n % 5]) for n in range(len(WORDS) - 8)]


def tree(size: int) -> tuple[int, ...]:
    """The heads of a tree: that of word n is word (n − 1) // 2."""
    return tuple((n - 1) // 2 if n else -1 for n in range(size))


DATA: dict[str, list[Any]] = {
    "translation": [
        Pair(one, other, n)
        for n, (one, other) in enumerate(zip(SENTENCES, reversed(SENTENCES), strict=True), 1)
    ],
    "classification": [
        Labeled(one, "even" if n % 2 else "odd", n) for n, one in enumerate(SENTENCES, 1)
    ],
    "tagging": [
        Sentence(
            tuple(one.split()),
            tuple("AB"[len(w) % 2] for w in one.split()),
            n,
            tree(len(one.split())),
        )
        for n, one in enumerate(SENTENCES, 1)
    ],
    "language-modelling": [Document(f"{one}. {one}!\n", n) for n, one in enumerate(SENTENCES, 1)],
}
DATA["text-to-text"] = DATA["translation"]
DATA["text-autoencoding"] = [Pair(one, one, n) for n, one in enumerate(SENTENCES, 1)]
SHAPES = {"train": 12, "dev": 1, "test": 1, "size": 32}
FEW = {**SHAPES, "train": 6}
DATA["captioning"] = read(CAPTIONED, "shapes:train", FEW)
DATA["questions"] = read(ASKED, "shapes:train", FEW)
DATA["open-questions"] = read(OPEN, "shapes:train", FEW)
DATA["image-classification"] = read(PICTURED, "shapes:train", SHAPES)
DATA["autoencoding"] = read(SHOWN, "shapes:train", SHAPES)
DATA["node-classification"] = read(GRAPHS, "graphs:train", {"train": 8, "dev": 1, "test": 1})
MESHES = read(GRAPHS, "surfaces:train", {"train": 2, "dev": 1, "test": 1})
SMALL = {
    "dim": 16,
    "hidden": 24,
    "depth": 1,
    "heads": 2,
    "max_len": 300,
    "byte_dim": 4,
    "filters": 4,
}
# Names of data and of machines, and what makes the same numbers in another way.
ELSEWHERE = {
    "task",
    "start_from",
    "device",
    "data",
    "training.compile",
    "training.graphs",
    "training.parallel",
    "training.checkpoint",
    "training.threads",
    "training.tensorboard",
}


def examples_for(made: Recipe) -> list[Any]:
    return MESHES if made.model["family"] == "mesh-network" else DATA[made.task]


def small(path: Path) -> dict[str, Any]:
    """A recipe's complete settings with a model small enough to build a hundred times; dropout only where a key is about it."""
    read = recipes.read_recipe(path)
    made = fit_to_data(read, examples_for(read))[0].to_dict()
    made["start_from"] = ""
    made = recipes.recipe({**made, "model": dict(made["model"])}).to_dict()
    for key, value in made["model"].items():
        if key in SMALL:
            made["model"][key] = SMALL[key]
        elif isinstance(value, dict):
            value |= {
                option: SMALL[option] for option in value if option in SMALL and option != "dim"
            }
    if "image_encoder" in made["model"]:
        inner = made["model"]["image_encoder"]
        inner |= {
            key: value
            for key, value in {"dim": 4, "stages": 2, "pretrained": False}.items()
            if key in inner
        }
        inner.pop("weights", None)  # of pretrained ones
        made["data"]["image_size"] = 32
    if "heads" not in made["model"] and "depth" in made["model"]:
        made["model"]["depth"] = (
            2  # `hidden` is the width between the layers of a recurrent language model
        )
    if made["model"].get("drop_path") and "depth" in made["model"]:
        made["model"]["depth"] = 2  # the first block is never left out
    if isinstance(mask := made["model"].get("mask"), dict) and mask["name"] == "blocks":
        mask |= {"length": 12, "size": 1, "window": 0}  # these sentences are shorter than a block
    if "language" in made:
        made["language"]["block"] = 16
    made["training"] |= {
        "tokens": 64,
        "average": None,
        "precision": "float32",
        "graphs": False,
        "round_to": 1,
        "warmup": 2,
    }
    if "training.round_to" not in tasks[made["task"]].settings:
        del made["training"]["round_to"]
    if made["model"]["family"] == "mesh-network":
        made["training"]["tokens"] = 400  # a mesh has 162 vertices
    if not tasks[made["task"]].has_text:
        del made["training"]["tokens"]
        made["training"]["batch_size"] = 4
        made["data"]["augment"] = {}
    if "autoencoding" in made:
        made["autoencoding"] |= {
            key: size
            for key, size in {"latent": 6, "width": 2}.items()
            if key in made["autoencoding"]
        }
    if "min_count" in made.get("vocabulary", {}):
        made["vocabulary"]["min_count"] = 1
    if "size" in made.get("vocabulary", {}):
        made["vocabulary"]["size"] = 270 if made["vocabulary"]["kind"] == "bpe" else 90
    return made


def other_value(value: Any, rules: dict[str, Any], table: Table[Any] | None = None) -> list[Any]:
    """Values to try instead of one, the likeliest to be accepted first."""
    if table is not None:
        now = value if isinstance(value, str) else value["name"]
        return [
            {"name": e.name, **e.example} if e.example else e.name
            for e in table
            if e.name != now and not e.per_batch
        ]
    if "names" in rules:
        return [name for name in rules["names"] if name != value]
    if isinstance(value, bool):
        return [not value]
    allowed = rules.get("range", Range(0, 1e9))
    value = None if value == "auto" and "range" in rules else value
    if isinstance(value, float) or (isinstance(value, int) and allowed.high < 1):
        return [
            one
            for one in (0.3, value * 2, value / 2, 1e-3)
            if one != value and allowed.low <= one <= allowed.high
        ]
    if value is None and not isinstance(allowed.low, int):
        return [3.0]
    if value is None or isinstance(value, int):
        start = value or 0
        return [
            one
            for one in (start * 2, start + 1, max(start // 2, 1), 1, 2, 3)
            if one != value and allowed.low <= one <= allowed.high
        ]
    return []


def changes(recipe: dict[str, Any]) -> list[tuple[str, Any]]:
    """(key, another value) for every key of a complete recipe."""
    found: list[tuple[str, Any]] = []
    sections = {
        "": Recipe,
        **{
            f.name: f.type
            for f in dataclasses.fields(Recipe)
            if f.name in ("vocabulary", "language", "autoencoding", "training")
        },
    }
    for section, values in {
        "": recipe,
        **{name: recipe.get(name, {}) for name in sections if name},
    }.items():
        kind = type(Recipe()) if not section else type(getattr(Recipe(), section))
        rules = {f.name: dict(f.metadata) for f in dataclasses.fields(kind)}
        for key, value in values.items():
            path = f"{section}.{key}".strip(".")
            if path not in ELSEWHERE and not isinstance(value, dict):
                found.append(
                    (
                        path,
                        other_value(value, rules[key])
                        + (
                            ["words", "bleu", "accuracy", "cosine", "constant"]
                            if isinstance(value, str)
                            else []
                        ),
                    )
                )
    return found + model_changes(recipe["model"], "model")


def model_changes(model: dict[str, Any], path: str) -> list[tuple[str, Any]]:
    """(key, other values) for every setting of a model, and of the one inside it."""
    found: list[tuple[str, Any]] = []
    for f in dataclasses.fields(families[model["family"]].config):
        if f.name in model:
            value = model[f.name]
            found.append(
                (f"{path}.{f.name}", other_value(value, dict(f.metadata), f.metadata.get("table")))
            )
            if isinstance(value, dict):
                found += [
                    (f"{path}.{f.name}.{key}", other)
                    for key, other in option_changes(value, f.metadata["table"])
                ]
    return found + (
        model_changes(model["image_encoder"], f"{path}.image_encoder")
        if "image_encoder" in model
        else []
    )


def option_changes(value: dict[str, Any], table: Table[Any]) -> list[tuple[str, Any]]:
    from saccade.settings import hints_of

    hints = hints_of(table[value["name"]])
    found = []
    for key, now in value.items():
        if key != "name":
            _, rules = rules_of(hints[key])
            found.append(
                (
                    key,
                    other_value(
                        now if not isinstance(now, Choice) else "", rules, rules.get("table")
                    ),
                )
            )
    return found


def put(recipe: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    tree = copy.deepcopy(recipe)
    inner, (*steps, last) = tree, path.split(".")
    for step in steps:
        inner = inner[step]
    inner[last] = value
    return tree


def fingerprint(values: dict[str, Any], tmp: Path, train: bool) -> list[Any]:
    """What a recipe makes: the vocabulary, the model and its loss, the first batches, and where asked a few updates."""
    made = dataclasses.replace(recipes.recipe(values), device="cpu")
    examples = examples_for(made)
    system = api.build(made, examples)
    work = system.task.work(made, examples, examples[:4], system.device)
    plans = work.epoch(0)[:3]
    torch.manual_seed(1)
    system.model.train()
    losses = [float(work.loss(system.model, work.batch(plan)).detach()) for plan in plans]
    found: list[Any] = [
        system.task.tokens(),
        str(system.model),
        losses,
        [str(work.batch(plan)) for plan in plans],
    ]
    found += [
        (name, one.detach().double().sum().item(), one.requires_grad)
        for name, one in system.model.named_parameters()
    ]
    if train:
        folder, writes = tmp / str(len(list(tmp.iterdir()))), list[str]()
        run = RunFolder(
            folder,
            {"note.txt": lambda path: (writes.append(path.parent.name), path.write_text(""))},
        )
        higher = made.kind.measures[made.training.watch]
        settings = plan(made.training, system.model, work, Ranks(), Progress, Watcher())
        ended = Training(
            system.model, work, settings, run, seed=made.seed, higher_is_better=higher
        ).run()
        logged = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
        found.append([{k: v for k, v in row.items() if "second" not in k} for row in logged])
        found.append(
            (
                writes,
                ended.update,
                ended.best_update,
                ended.best,
                sorted(str(p.relative_to(folder)) for p in folder.rglob("*")),
            )
        )
        found += [one.detach().double().sum().item() for one in system.model.parameters()]
    return found


# these are trained, too
ONE_PER_TASK = {
    "phrasebook-transformer",
    "phrasebook-tagger",
    "reviews-rnn",
    "phrasebook-language",
    "shapes-captions-soft",
    "shapes-vit",
    "shapes-denoising",
    "senses-autoencoder",
    "shapes-questions",
    "shapes-open-questions",
    "graphs-gat",
}

# Keys whose first other value may do nothing on so little data, and values that do something.
TELLING: dict[str, Any] = {
    "training.clip": 1e-3,
    "training.epochs": 1,
    "training.minutes": 1e-6,
    "training.patience": 1,
    "training.average": 2,
    "training.checkpoint_every": 2,
    "training.evaluate_every": 1,
    "training.log_every": 1,
    "training.accumulate": 2,
    "training.tokens": 40,
    "training.batch_size": 3,
    "training.warmup": 5,
    "training.weight_decay": 9.0,
    "training.beta2": 0.1,
    "language.share": 0.6,
    "vocabulary.min_count": 1000,
    "vocabulary.size": 12,
    "model.feedforward.capacity": 0.2,
}


def different() -> list[Any]:
    """Recipes, but for those with the same task, family and parts as another one, whose keys are the same; those whose parts are mostly
    another's are slow tests."""
    found: dict[str, Path] = {}
    for path in RECIPES:
        made = recipes.read_recipe(path)
        parts = {
            key: value if isinstance(value, str) else sorted(value)
            for key, value in made.model.items()
            if isinstance(value, str | dict)
        }
        signature = str(
            (
                made.task,
                made.vocabulary.kind,
                sorted(made.to_dict()),
                made.language.objective,
                made.language.carry,
                parts,
            )
        )
        if path.stem in ONE_PER_TASK or signature not in found:
            found[signature] = path
    quick = {
        "phrasebook-transformer",
        "phrasebook-tagger",
        "reviews-rnn",
        "phrasebook-language",
        "shapes-vit",
    }
    return [
        pytest.param(path, marks=[pytest.mark.slow] * (path.stem not in quick))
        for path in found.values()
    ]


@pytest.mark.parametrize("path", different(), ids=lambda path: path.stem)
def test_another_value_of_any_key_changes_something(path: Path, tmp_path: Path) -> None:
    base = small(path)
    base["training"] |= {
        "updates": 4,
        "evaluate_every": 3,
        "checkpoint_every": 9,
        "log_every": 3,
        "patience": None,
    }
    heavy = path.stem in ONE_PER_TASK
    before = {
        train: fingerprint(base, tmp_path, train)
        for train in ((False, True) if heavy else (False,))
    }
    assert before[False] == fingerprint(base, tmp_path, False), "the same recipe makes the same"
    silent = []
    for key, values in changes(base):
        train = key.startswith("training.") or key == "seed"
        if train and not heavy:
            continue
        telling = (
            [3]
            if key == "training.batch_size" and not tasks[base["task"]].has_text
            else [TELLING[key]]
            if key in TELLING
            else values
        )
        tried = [value for value in telling if put(base, key, value) != base]
        if key == "vocabulary.size" and base["vocabulary"]["kind"] == "bpe":
            tried = [262]
        if key == "vocabulary.size" and base["task"] == "node-classification":
            tried = [6]  # these graphs have few words
        if key == "model.heads" and base["model"]["mixer"] == "graph-convolution":
            tried = []  # a size by name sets them for every mixer
        for value in tried:
            changed = put(base, key, value)
            if key == "training.epochs":
                changed["training"]["updates"] = 9
            if key == "training.patience":
                changed["training"] |= {"evaluate_every": 1, "updates": 30, "learning_rate": 0.0}
            try:
                after = fingerprint(changed, tmp_path, train)
            except SaccadeError:
                continue  # refused: with a sentence, and not dropped
            if after == before[train]:
                silent.append((key, value))
            break
    assert silent == [], silent


def test_a_heavy_recipe_stands_for_every_task() -> None:
    tasks = {recipes.read_recipe(path).task for path in RECIPES if path.stem in ONE_PER_TASK}
    assert tasks == set(DATA) - {"text-to-text"}
