"""Beginning with another model: its encoder or decoder, parameter for parameter, and its vocabulary."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from saccade import api
from saccade.config import recipes
from saccade.data.conllu import Sentence
from saccade.data.documents import Document
from saccade.data.labeled import Labeled
from saccade.data.pairs import Pair
from saccade.errors import SaccadeError
from saccade.training.checkpoints import RunFolder
from saccade.training.parameters import model_tensors
from saccade.training.transfer import take_over

TEXT = [Document("the black cat saw the dog and the dog saw a mouse", 1)]
TEXTS = [Labeled("a black cat", "good", 1), Labeled("the dog barks", "bad", 2)]
SENTENCES = [Sentence(("the", "cat"), ("DET", "NOUN"), 1)]
PAIRS = [Pair("the cat", "le chat", 1)]
EXAMPLES = {
    "classification": TEXTS,
    "tagging": SENTENCES,
    "translation": PAIRS,
    "language-modelling": TEXT,
}
SIZES = {"dim": 8, "hidden": 12, "depth": 2, "heads": 2}


def recipe(task: str, family: str, start: Path | str = "", **more: Any) -> dict[str, Any]:
    sizes = (
        SIZES
        if family.startswith("transformer")
        else {key: SIZES[key] for key in ("dim", "hidden", "depth")}
    )
    sizes = {"dim": 8} if family == "bag" else sizes
    model = {"family": family, **sizes, **more.pop("model", {})}
    vocabulary = {**({} if start else {"kind": "words"}), **more.pop("vocabulary", {})}
    return {
        "task": task,
        "model": model,
        "start_from": str(start),
        "vocabulary": vocabulary,
        "device": "cpu",
        **more,
    }


def build(task: str, family: str, start: Path | str = "", **more: Any) -> api.System:
    return api.build(recipe(task, family, start, **more), EXAMPLES[task])


def pretrained(folder: Path, objective: str, family: str, **more: Any) -> api.System:
    """Parameters as if they had been learned: none of them is what a fresh model has."""
    made = build(
        "language-modelling", family, language={"objective": objective, "block": 8}, **more
    )
    with torch.no_grad():
        for parameter in made.model.parameters():
            parameter.normal_()
    RunFolder(folder.parent, api.model_files(made)).save(folder.name, made.model)
    return made


def told(work: Any) -> str:
    with pytest.raises(SaccadeError) as error:
        work()
    return str(error.value)


KINDS = [
    ("masked", "transformer-encoder", "transformer-encoder"),
    ("masked", "transformer-encoder", "transformer"),
    ("masked", "rnn-encoder", "rnn-encoder"),
    ("permutation", "transformer-encoder", "transformer-encoder"),
    ("denoising", "transformer", "transformer-encoder"),
    ("causal", "transformer-decoder", "transformer-decoder"),
    ("causal", "rnn-decoder", "rnn-decoder"),
]


@pytest.mark.parametrize(("objective", "before", "after"), KINDS)
@pytest.mark.parametrize("task", ["classification", "tagging"])
@pytest.mark.parametrize("tied", [True, False])
def test_labels_stand_on_what_was_learned_on_plain_text(
    tmp_path: Path, objective: str, before: str, after: str, task: str, tied: bool
) -> None:
    more = {} if objective in ("masked", "permutation") else {"model": {"tied": tied}}
    first = pretrained(tmp_path / "first", objective, before, **more)
    made = build(task, after, tmp_path / "first")
    assert made.task.text.to_json() == first.task.text.to_json(), "the vocabulary comes along"
    stored = {
        name.removeprefix("body."): value for name, value in model_tensors(first.model).items()
    }
    torch.manual_seed(made.recipe.seed)
    fresh = type(made.task)(made.task.text, made.task.labels).build(
        recipes.Builder(made.recipe.model)
    )
    body, checked = model_tensors(made.model.body), 0
    for name, value in body.items():
        other = stored.get(name, stored.get(name.replace("embedding.", "source.")))
        assert other is not None, name
        rows = min(len(value), len(other))
        assert torch.equal(value[:rows], other[:rows]), name
        assert value.shape[1:] == other.shape[1:]
        checked += 1
    assert checked == len(body) > 3
    # the head and the pool are the task's own, drawn by the seed
    for name, value in model_tensors(made.model).items():
        if not name.startswith("body."):
            assert torch.equal(value, model_tensors(fresh)[name]), name


def test_an_encoder_decoder_takes_an_encoder_and_a_decoder(tmp_path: Path) -> None:
    masked = pretrained(tmp_path / "masked", "masked", "transformer-encoder")
    made = build("translation", "transformer", tmp_path / "masked")
    assert made.task.source is made.task.target, "one vocabulary for both sides"
    for name, value in model_tensors(masked.model.body).items():
        for mine in (
            ({"embedding": "source"}, {"embedding": "target"})
            if name.startswith("embedding")
            else ({},)
        ):
            key = name.replace("embedding", mine.get("embedding", ""))
            found = model_tensors(made.model)[key]
            assert torch.equal(found, value[: len(found)])
    causal = pretrained(tmp_path / "causal", "causal", "transformer-decoder")
    made = build("translation", "transformer", tmp_path / "causal")
    for name, value in model_tensors(causal.model).items():
        if name.startswith("decoder"):
            assert torch.equal(model_tensors(made.model)[name], value)
    denoising = pretrained(
        tmp_path / "denoising", "denoising", "transformer", model={"tied": False}
    )
    made = build("translation", "transformer", tmp_path / "denoising", model={"tied": False})
    for name, value in model_tensors(denoising.model).items():
        found = model_tensors(made.model)[name]
        if name != "head.weight":
            assert torch.equal(found, value[: len(found)]), name


def test_a_decoder_alone_reads_what_the_decoder_of_a_pair_read(tmp_path: Path) -> None:
    pair = pretrained(tmp_path / "first", "denoising", "transformer")
    made = build("classification", "transformer-decoder", tmp_path / "first")
    rows = made.model.body.embedding.tokens.weight
    assert torch.equal(rows, pair.model.target.tokens.weight[: len(rows)])
    inner = "decoder.1.feedforward.inner.weight"
    assert torch.equal(model_tensors(made.model.body)[inner], model_tensors(pair.model)[inner])


def test_the_same_kind_of_model_takes_the_head_too(tmp_path: Path) -> None:
    for objective, family in (("masked", "transformer-encoder"), ("causal", "rnn-decoder")):
        first = pretrained(tmp_path / objective, objective, family)
        again = build(
            "language-modelling",
            family,
            tmp_path / objective,
            language={"objective": objective, "block": 8},
        )
        assert all(
            torch.equal(value, model_tensors(first.model)[name])
            for name, value in model_tensors(again.model).items()
        )


def test_a_head_of_the_same_shape_in_another_task_is_not_taken(tmp_path: Path) -> None:
    tagger = build("tagging", "transformer-encoder")
    RunFolder(tmp_path, api.model_files(tagger)).save("tags", tagger.model)
    made = build("classification", "transformer-encoder", tmp_path / "tags")
    assert made.model.head.weight.shape == tagger.model.head.weight.shape
    assert not torch.equal(made.model.head.weight, tagger.model.head.weight)
    inner = "body.encoder.0.feedforward.inner.weight"
    assert torch.equal(model_tensors(made.model)[inner], model_tensors(tagger.model)[inner])


def test_rows_of_masks_behind_the_words_are_left_where_they_are(tmp_path: Path) -> None:
    first = pretrained(tmp_path / "first", "masked", "transformer-encoder")
    made = build("classification", "transformer-encoder", tmp_path / "first")
    assert (
        len(first.model.body.embedding.tokens.weight)
        == len(made.model.body.embedding.tokens.weight) + 1
    )


def test_what_does_not_fit_is_told(tmp_path: Path) -> None:
    pretrained(tmp_path / "first", "masked", "transformer-encoder")
    start = tmp_path / "first"
    for words, sentence in (
        ({"dim": 16}, "'embedding.tokens.weight' is ("),
        (
            {"hidden": 16},
            "'encoder.0.feedforward.inner.weight' is (12, 8) there and (16, 8) here; use the same model.dim, hidden",
        ),
        (
            {"depth": 3},
            "has no 'encoder.2.mixer.q.weight' for this model; choose a model.family of the same kind",
        ),
    ):
        assert sentence in told(
            lambda words=words: build("classification", "transformer-encoder", start, model=words)
        )
    assert (
        "has no encoder or decoder for this model; choose a model.family of the same kind"
        in told(lambda: build("classification", "transformer-decoder", start))
    )
    assert "has no encoder or decoder for this model" in told(
        lambda: build("classification", "bag", start)
    )
    assert f"no model folder at {tmp_path / 'nowhere'}" in told(
        lambda: build("classification", "transformer-encoder", tmp_path / "nowhere")
    )
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(b"junk")
    model = build("classification", "transformer-encoder").model
    assert "cannot be read as safetensors" in told(lambda: take_over(model, broken))


def test_a_folder_with_another_tokenizer_is_told(tmp_path: Path) -> None:
    pretrained(tmp_path / "first", "masked", "transformer-encoder")
    path = tmp_path / "first" / "vocabularies.json"
    path.write_text("{}")
    listed = json.loads((tmp_path / "first" / "manifest.json").read_text())
    listed["files"]["vocabularies.json"] = {"sha256": hashlib.sha256(b"{}").hexdigest(), "bytes": 2}
    (tmp_path / "first" / "manifest.json").write_text(json.dumps(listed))
    assert "vocabularies.json contains no vocabulary; copy the model folder again" in told(
        lambda: build("classification", "transformer-encoder", tmp_path / "first")
    )


@pytest.mark.parametrize("objective", ["masked", "causal"])
def test_a_training_begins_there_and_its_model_stands_alone(tmp_path: Path, objective: str) -> None:
    """From a text file to a pretrained run, from there to a classifier, and that one without the first."""
    (tmp_path / "text.txt").write_text("the black cat saw the dog\nthe dog saw a mouse\n" * 20)
    (tmp_path / "labels.tsv").write_text("a black cat\tgood\nthe dog barks\tbad\n" * 5)
    family = {"masked": "transformer-encoder", "causal": "transformer-decoder"}[objective]
    training = {"updates": 3, "tokens": 64, "evaluate_every": 3}
    text, labels = (
        {"train": str(tmp_path / name), "dev": str(tmp_path / name)}
        for name in ("text.txt", "labels.tsv")
    )
    how = {"objective": objective, "block": 8}
    first, _ = api.fit(
        recipe("language-modelling", family, language=how, data=text, training=training),
        tmp_path / "first",
    )
    fine = recipe(
        "classification",
        family,
        tmp_path / "first",
        data=labels,
        training={**training, "learning_rate": 0.0},
    )
    made, _ = api.fit(fine, tmp_path / "fine")
    rows = made.model.body.embedding.tokens.weight
    stored = model_tensors(first.model)
    assert torch.equal(
        rows, stored[next(name for name in stored if name.endswith("tokens.weight"))][: len(rows)]
    )
    (tmp_path / "first").rename(tmp_path / "gone")
    assert api.classify(api.load(tmp_path / "fine"), ["a cat"])[0].label in ("good", "bad")
