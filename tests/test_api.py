"""Systems made, trained, written and read: build, fit, load."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from saccade import api, models, tasks
from saccade.config import recipes
from saccade.data.conllu import Sentence
from saccade.data.corpora import ASKED, CAPTIONED, OPEN, PICTURED, SHOWN, read
from saccade.data.corpora import GRAPHS as GRAPH_DATA
from saccade.data.documents import Document
from saccade.data.generated.phrasebook import phrasebook
from saccade.data.labeled import Labeled
from saccade.data.node_graphs import Graph
from saccade.data.pairs import Pair
from saccade.errors import SaccadeError
from saccade.files import MANIFEST
from saccade.models.protocols import GraphLabeler, MeshLabeler
from saccade.system.recipe_data import examples_of
from saccade.tasks.translation import Translation
from saccade.training.checkpoints import Progress, RunFolder
from saccade.training.loop import Watcher

RECIPE: dict[str, Any] = {
    "data": {
        "train": "phrasebook:train",
        "dev": "phrasebook:dev",
        "test": "phrasebook:test",
        "options": {"train": 150, "dev": 12, "test": 12},
    },
    "vocabulary": {"kind": "words", "split": "punctuation", "lowercase": True},
    "model": {"family": "bahdanau", "dim": 12, "hidden": 12, "dropout": 0.1},
    "training": {
        "updates": 30,
        "tokens": 500,
        "learning_rate": 0.02,
        "warmup": 5,
        "evaluate_every": 10,
        "checkpoint_every": 10,
    },
    "device": "cpu",
}
SMALL = {"dim": 12, "hidden": 12, "depth": 1, "lstm_width": 12, "decoder_depth": 1}


def recipe(*words: str) -> recipes.Recipe:
    return recipes.recipe(RECIPE, words)


def family(name: str) -> dict[str, Any]:
    wanted = {f.name for f in dataclasses.fields(models.table[name].config)}
    return {
        "family": name,
        **{
            key: size
            for key, size in {**SMALL, "heads": 2, "pretrained": False}.items()
            if key in wanted
        },
    }


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, api.System, Progress]:
    folder = tmp_path_factory.mktemp("api") / "run"
    system, ended = api.fit(RECIPE, folder)
    return folder, system, ended


@pytest.fixture
def copy(trained: Any, tmp_path: Path) -> Path:
    """The run folder, to be changed."""
    return Path(shutil.copytree(trained[0], tmp_path / "run"))


@pytest.fixture(scope="module")
def held_out() -> list[Pair]:
    return phrasebook(**RECIPE["data"]["options"])["test"]


class Quit(Watcher):
    """Ends a training after an update, as a crash does."""

    def __init__(self, update: int) -> None:
        self.at = update

    def update(self, at: Progress, row: dict[str, float]) -> None:
        if at.update == self.at:
            raise InterruptedError("quit")


def equal(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    a, b = one.state_dict(), other.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def told(work: Any) -> str:
    with pytest.raises(SaccadeError) as error:
        work()
    return str(error.value)


# --- build and load


def test_a_seed_gives_the_same_model_and_another_gives_another(held_out: list[Pair]) -> None:
    assert equal(
        api.build(recipe("seed=1"), held_out).model, api.build(recipe("seed=1"), held_out).model
    )
    assert not equal(
        api.build(recipe("seed=1"), held_out).model, api.build(recipe("seed=2"), held_out).model
    )


def test_vocabularies_are_made_from_the_training_pairs(held_out: list[Pair]) -> None:
    apart, joint = (
        api.build(RECIPE, held_out).task,
        api.build(recipe("vocabulary.joint=true"), held_out).task,
    )
    assert joint.source is joint.target
    words = {word for pair in held_out for word in pair.source.lower().split() if word.isalpha()}
    assert all(apart.source.id(word) != 1 and joint.source.id(word) != 1 for word in words)
    assert len(joint.source) > max(len(apart.source), len(apart.target))
    assert (
        api.build(recipe("vocabulary.size=10"), held_out).task.source.unknown_share(
            [held_out[0].source]
        )
        > 0
    )


@pytest.mark.parametrize(
    "name", ["fixed-first", "fixed-context", "bahdanau", "luong", "transformer"]
)
@pytest.mark.parametrize("joint", [False, True])
def test_every_family_is_itself_after_it_was_saved_and_loaded(
    tmp_path: Path, held_out: list[Pair], name: str, joint: bool
) -> None:
    changed = {
        **RECIPE,
        "model": family(name),
        "vocabulary": {**RECIPE["vocabulary"], "joint": joint},
    }
    system = api.build(changed, held_out)
    RunFolder(tmp_path, api.model_files(system)).save("best", system.model)
    again = api.load(tmp_path)
    assert again.recipe == system.recipe
    assert equal(again.model, system.model)
    assert again.name == name
    assert not again.model.training
    assert (again.task.source is again.task.target) is joint
    assert again.task.source.to_json() == system.task.source.to_json()
    assert again.task.target.to_json() == system.task.target.to_json()


LABELED = [Labeled("a good film", "good", 1), Labeled("a bad film", "bad", 2)]
SENTENCES = [Sentence(("the", "cat"), ("DET", "NOUN"), 1)]
GRAPHS = [Graph(("red", "blue"), ("a", "b"), ((0, 1, "friend"),), 1)]
DOCUMENTS = [Document("the cat saw the dog", 1)]
SMALL_SHAPES = {"train": 1, "dev": 4, "test": 1, "size": 32}
CAPTIONS, QUESTIONS, PICTURES, PLAIN = (
    read(kind, "shapes:dev", SMALL_SHAPES) for kind in (CAPTIONED, ASKED, PICTURED, SHOWN)
)


def able(kind: type[torch.nn.Module]) -> tuple[str, ...]:
    return tuple(entry.name for entry in models.table if entry.make.build(kind))


def recipe_for(task: str, name: str) -> dict[str, Any]:
    """A small model of a family, with one vocabulary where the family wants it."""
    words = {"kind": "words"}
    if task in ("translation", "text-to-text") and getattr(
        models.table[name].config, "shared", False
    ):
        words |= {"joint": True}
    if task in ("image-classification", "autoencoding") or name == "mesh-network":
        words = {}
    return {"task": task, "model": family(name), "vocabulary": words, "device": "cpu"}


NODES = (*able(MeshLabeler), *able(GraphLabeler), *able(models.AttendingEncoder))
MESHES = read(GRAPH_DATA, "surfaces:train", {"train": 1, "dev": 1, "test": 1})


# which family can learn which task: pairs, bodies and decoders
TABLE: dict[str, dict[str, Any]] = {
    "translation": {"examples": [Pair("the cat", "le chat", 1)], "families": able(models.Seq2Seq)},
    "text-to-text": {"examples": [Pair("the cat", "le chat", 1)], "families": ("bahdanau", "transformer")},
    "text-autoencoding": {"examples": [Pair("the cat", "the cat", 1)], "families": able(models.TextAutoencoder)},
    "language-modelling": {"examples": DOCUMENTS, "families": able(models.CausalLM)},
    "classification": {"examples": LABELED, "families": able(models.Encoder)},
    "multi-label": {"examples": LABELED, "families": able(models.Encoder)},
    "tagging": {"examples": SENTENCES, "families": able(models.Encoder)},
    "node-classification": {"examples": GRAPHS, "families": NODES},
    "captioning": {"examples": CAPTIONS, "families": able(models.ImageToText)},
    "open-questions": {"examples": read(OPEN, "shapes:dev", SMALL_SHAPES), "families": able(models.ImageToText)},
    "questions": {"examples": QUESTIONS, "families": able(models.LookingEncoder)},
    "image-classification": {"examples": PICTURES, "families": able(models.ImageEncoder)},
    "autoencoding": {"examples": PLAIN, "families": able(models.ImageEncoder)},
}  # fmt: skip
CELLS = [(task, name) for task, row in TABLE.items() for name in row["families"]]


def test_every_family_and_every_task_has_a_place_in_the_table() -> None:
    assert {name for _, name in CELLS} == {entry.name for entry in models.table}
    assert set(TABLE) == {entry.name for entry in tasks.table}


def used(system: api.System, examples: Any) -> Any:
    """What a system makes of examples, in numbers."""
    system.model.eval()
    return api.evaluate(system, examples)


@pytest.mark.parametrize(("task", "name"), CELLS)
def test_every_family_in_every_task_is_itself_after_it_was_saved_and_loaded(
    tmp_path: Path, task: str, name: str
) -> None:
    examples = MESHES if name == "mesh-network" else TABLE[task]["examples"]
    changed = recipe_for(task, name)
    changed |= {"language": {"block": 4}} if task == "language-modelling" else {}
    system = api.build(changed, examples)
    RunFolder(tmp_path, api.model_files(system)).save("best", system.model)
    again = api.load(tmp_path, "cpu")
    assert again.recipe == system.recipe
    assert equal(again.model, system.model)
    assert again.task.tokens() == system.task.tokens()
    assert used(again, examples) == used(system, examples)


@pytest.mark.parametrize(
    ("task", "name"),
    [
        (task, entry.name)
        for task, row in TABLE.items()
        for entry in models.table
        if entry.name not in row["families"]
    ],
)
def test_a_family_that_does_not_fit_a_task_is_told(task: str, name: str) -> None:
    changed = recipe_for(task, name)
    if task == "text-to-text" and name in TABLE["translation"]["families"]:
        return
    assert "choose" in told(lambda: api.build(changed, TABLE[task]["examples"]))


@pytest.mark.parametrize(
    ("work", "sentence"),
    [
        (lambda one: api.decode(one["classification"], ["x"]), "a classification model cannot translate; use m.classify(\"your text\")"),
        (lambda one: api.decode(one["language-modelling"], ["x"]), 'cannot translate; use m.generate("Once upon a time")'),
        (lambda one: api.generate(one["tagging"], "x"), 'a tagging model cannot continue a text; use m.tag("your sentence")'),
        (lambda one: api.classify(one["tagging"], ["x"]), 'a tagging model cannot label a text; use m.tag("your sentence")'),
        (lambda one: api.tag(one["classification"], []), 'a classification model cannot tag words; use m.classify("your text")'),
        (lambda one: api.evaluate(one["tagging"], []), "there are no examples to evaluate on"),
        (lambda one: api.evaluate(one["tagging"], SENTENCES, beam=3), "an evaluation of tagging has no option 'beam'; leave it out"),
        (lambda one: api.evaluate(one["tagging"], SENTENCES, quarters=True), "has no option 'quarters'; leave it out"),
        (lambda one: api.evaluate(one["translation"], [Pair("a", "b")], stride=3), "translation has no option 'stride'"),
        (lambda one: api.evaluate(one["translation"], [Pair("a", "b")], beam=0), "a beam of 0"),
        (lambda one: api.show(one["classification"], "x", target="y"), "a classification model generates no text; leave the target out"),
    ],
)  # fmt: skip
def test_a_system_is_asked_for_what_its_task_can(work: Any, sentence: str) -> None:
    systems = {
        task: api.build(recipe_for(task, row["families"][-1]), row["examples"])
        for task, row in TABLE.items()
    }
    assert sentence in told(lambda: work(systems))


def test_a_run_folder_stands_for_its_best_model_and_else_its_last(copy: Path) -> None:
    assert equal(api.load(copy).model, api.load(copy / "best").model)
    shutil.rmtree(copy / "best")
    assert equal(api.load(copy).model, api.load(str(copy / "last")).model)
    shutil.rmtree(copy / "last")
    assert "is not an intact model folder: it has no manifest.json" in told(lambda: api.load(copy))


def rewrite(folder: Path, name: str, text: str) -> None:
    """Changes a file and its line in the manifest, as somebody does who means it."""
    (folder / name).write_text(text)
    listed = json.loads((folder / MANIFEST).read_text())
    listed["files"][name] = {
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "bytes": len(text.encode()),
    }
    (folder / MANIFEST).write_text(json.dumps(listed))


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("config.json", "{", "config.json cannot be read as JSON; copy the model folder again"),
        ("config.json", "[" * 100_000, "config.json cannot be read as JSON"),
        ("config.json", "[]", "config.json has format None, expected 1 to 3; use the version of saccade that wrote it"),
        ("config.json", '{"saccade": 4}', "config.json has format 4, expected 1 to 3"),
        ("config.json", '{"model_type": "bert"}', "config.json has format None, expected 1 to 3"),
        ("config.json", '{"saccade": 3, "model_type": "bert"}', "model_type"),
        ("config.json", '{"saccade": 1}', "model.family is None; choose one of"),
        ("config.json", '{"saccade": 1, "model": {"family": "luong"}}', "the parameters are not those of this model"),
        ("vocabularies.json", "{}", "vocabularies.json is not that of a translation model; copy the model folder"),
        ("vocabularies.json", "[]", "vocabularies.json is not that of a translation model"),
        ("vocabularies.json", "[" * 100_000, "vocabularies.json cannot be read"),
        ("vocabularies.json", '{"joint": {}}', "not a vocabulary of saccade"),
        ("model.safetensors", "junk", "model.safetensors cannot be read as safetensors"),
    ],
)  # fmt: skip
def test_a_model_folder_that_does_not_fit_is_told(
    copy: Path, name: str, text: str, sentence: str
) -> None:
    rewrite(copy / "best", name, text)
    assert sentence in told(lambda: api.load(copy))


def test_a_changed_byte_and_a_missing_path_are_told(copy: Path, tmp_path: Path) -> None:
    path = copy / "best" / "config.json"
    path.write_text(path.read_text().replace("12", "13", 1))
    assert "config.json is not what was written (its sha256 differs from the manifest)" in told(
        lambda: api.load(copy)
    )
    assert told(lambda: api.load(tmp_path / "nowhere")).startswith(
        f"no model folder at {tmp_path / 'nowhere'}; give the path"
    )
    assert "is a file, not a model folder" in told(lambda: api.load(path))
    assert "no model folder at aaa" in told(lambda: api.load("a" * 400))


# --- fit


@pytest.mark.parametrize(("dev", "reads"), [("", 1), ("phrasebook:dev", 2)])
def test_the_training_data_is_read_once(
    dev: str, reads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, plain, seen = recipe(f"data.dev={dev}"), Translation.read.__func__, []  # type: ignore[attr-defined]
    monkeypatch.setattr(
        Translation,
        "read",
        classmethod(
            lambda cls, how, where, *more: seen.append(where) or plain(cls, how, where, *more)
        ),
    )
    _, work = api.prepared(made)
    assert len(seen) == len(set(seen)) == reads
    assert len(work.examples) == (150 if dev else 100)
    assert len(work.dev) == (12 if dev else 50), "a third, or 50 examples, are held out"


def test_the_best_system_comes_back_and_the_run_folder_is_complete(trained: Any) -> None:
    folder, system, ended = trained
    assert (ended.update, ended.done) == (30, True)
    dev = examples_of(system.recipe, "dev")
    assert system.task.metrics(system.model, system.task.numbers(dev))["loss"] == pytest.approx(
        ended.best, rel=1e-5
    )
    files = {"recipe.json", "run.json", "metrics.csv", "log.jsonl", "curves.png", "report.html"}
    assert {path.name for path in folder.iterdir()} == {*files, "last", "best"}
    written = json.loads((folder / "recipe.json").read_text())
    assert written == {"saccade": 3, **system.recipe.to_dict()}
    config = json.loads((folder / "best" / "config.json").read_text())
    assert config == {"model_type": "saccade", **written}
    assert ended.best < 5.5, "it learns something"


@pytest.mark.parametrize("name", ["bahdanau", "transformer"])
def test_a_resumed_fit_ends_bit_for_bit_where_a_whole_one_does(
    tmp_path: Path, trained: Any, name: str
) -> None:
    changed = {**RECIPE, "model": {**family(name), "dropout": 0.1}}
    whole = trained[0] if name == "bahdanau" else tmp_path / "whole"
    if name != "bahdanau":
        api.fit(changed, whole)
    for update in (14, 27):
        with pytest.raises(InterruptedError):
            api.fit(changed, tmp_path / "run", resume=True, watcher=Quit(update))
    _, ended = api.fit(changed, tmp_path / "run", resume=True)
    assert ended.epoch >= 2
    for path in ("last/model.safetensors", "last/training.safetensors", "best/model.safetensors"):
        a, b = load_file(whole / path), load_file(tmp_path / "run" / path)
        assert a.keys() == b.keys()
        assert all(torch.equal(a[key], b[key]) for key in a), path


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("model.dim=10", "model.dim"),
        ("seed=1", "seed"),
        ("data.options.train=149", "data.options.train"),
        ("training.smoothing=0.2", "training.smoothing"),
        ("model.score=dot", "model.score"),
        ("vocabulary.lowercase=false", "vocabulary.lowercase"),
    ],
)
def test_a_run_is_not_resumed_with_another_recipe(copy: Path, word: str, name: str) -> None:
    before = (copy / "recipe.json").read_bytes()
    sentence = told(lambda: api.fit(recipe(word), copy, resume=True))
    assert sentence.startswith(
        f"{copy} was started with a different {name}; resume with the same recipe (only training.updates, "
    )
    assert (copy / "recipe.json").read_bytes() == before


def test_more_updates_and_another_rate_may_be_asked_for(copy: Path) -> None:
    """A lower rate is the way out that a NaN loss names."""
    words = [
        "training.updates=32",
        "training.learning_rate=0.001",
        "training.warmup=7",
        "training.clip=0.5",
    ]
    _, ended = api.fit(recipe(*words), copy, resume=True)
    assert ended.update == 32
    assert json.loads((copy / "recipe.json").read_text())["training"]["learning_rate"] == 0.001


def test_a_place_that_is_taken_is_left_alone(copy: Path, tmp_path: Path) -> None:
    assert (
        told(lambda: api.fit(RECIPE, copy))
        == f"{copy} already contains a run; use resume=True to continue it, or choose another out=…"
    )
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").write_text("mine")
    for resume in (False, True):
        assert "contains other files and no run; choose an empty or new folder" in told(
            partial(api.fit, RECIPE, other, resume)
        )
        assert "is a file; give a folder for the run" in told(
            partial(api.fit, RECIPE, other / "mine.txt", resume)
        )
    assert [path.name for path in other.iterdir()] == ["mine.txt"]
    (other / "recipe.json").write_text("{")
    assert "recipe.json cannot be read as JSON" in told(lambda: api.fit(RECIPE, other, resume=True))


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("data.train=''", "data.train is not set; name the data, such as data.train=train.tsv"),
        ("data.train=nowhere.tsv", "no file 'nowhere.tsv'"),
        ("data.train=phrasebook:trian", "'phrasebook:trian' is not a part of phrasebook; did you mean 'train'?"),
        ("data.options={trian: 5}", "the corpus 'phrasebook' cannot be generated with {'trian': 5}"),
        ("data.options={train: -5}", "-5"),
        ("data.options={train: many}", "many"),
        ("data.options={train: [1]}", "the corpus 'phrasebook' cannot be generated with"),
        ("data.options={train: 1000000000000}", "1,000,000"),
        ("training.tokens=8", "more than a batch may hold (training.tokens=8)"),
        ("model.family=transformer-decoder", "model.family is 'transformer-decoder', which is not an encoder–decoder; choose one of: "),
        ("model.family=transformer-encoder", "model.family is 'transformer-encoder', which is not an encoder–decoder; choose one of: "),
        ("device=tpu", "no device named 'tpu'; write auto, cpu, cuda or mps"),
        ("vocabulary={kind: bpe, size: 100}", "a bpe vocabulary of size 100 is too small"),
    ],
)  # fmt: skip
def test_a_mistake_leaves_nothing_behind(tmp_path: Path, word: str, sentence: str) -> None:
    changed = {**RECIPE, "model": family("transformer")} if "transformer" in word else RECIPE
    found = told(lambda: api.fit(recipes.recipe(changed, [word]), tmp_path / "run"))
    assert sentence in found
    assert not (tmp_path / "run").exists(), "so that the next try needs no other folder"


def test_early_stopping_and_bleu_on_dev_are_a_word_in_the_recipe(tmp_path: Path) -> None:
    words = [
        "training.watch=bleu",
        "training.patience=1",
        "training.evaluate_every=2",
        "training.learning_rate=0.0",
    ]
    _, ended = api.fit(recipe(*words), tmp_path / "run")
    assert set(ended.metrics) == {"loss", "bleu"}
    assert (ended.update, ended.best_update) == (4, 2), (
        "nothing is learned at rate 0, so the second evaluation is no better"
    )
    assert "dev_bleu" in (tmp_path / "run" / "log.jsonl").read_text()
