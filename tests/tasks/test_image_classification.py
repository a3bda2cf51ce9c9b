"""Image classification: labels and sizes that are learned, odd dev sets, metrics by a count, models without a vocabulary."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import saccade
from saccade import api
from saccade.config import recipes
from saccade.config.automatic import fit_to_data
from saccade.data.archives import Filed
from saccade.data.image_examples import Pictured
from saccade.tasks.image_classification import ImageClassification
from saccade.training.checkpoints import RunFolder
from support import error_of

VIT = {"family": "vit", "dim": 8, "hidden": 8, "depth": 1, "heads": 2, "patch": 8}
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[Pictured]:
    """Ten pictures of three labels: plain red, green and blue of different sizes."""
    folder, found = tmp_path_factory.mktemp("pictures"), []
    for n in range(10):
        label = ("red", "green", "blue")[n % 3]
        Image.new("RGB", (32 + n, 32), label).save(folder / f"{n}.png")
        found.append(Pictured(Filed(folder / f"{n}.png"), label, n + 1))
    return found


def recipe(*words: str, **more: Any) -> recipes.Recipe:
    values = {
        "task": "image-classification",
        "model": VIT,
        "training": {"tokens": 4},
        "device": "cpu",
        **more,
    }
    return recipes.recipe(values, words)


def test_labels_and_size_are_learned_and_kept(pictures: list[Pictured], tmp_path: Path) -> None:
    made = api.build(recipe("data.image_size=16"), pictures)
    assert (made.task.labels, made.task.image_size) == (["blue", "green", "red"], (16, 16))
    assert api.build(recipe(), pictures[1:]).task.image_size == (32, 33), (
        "that of the first picture"
    )
    RunFolder(tmp_path, api.model_files(made)).save("model", made.model)
    again = saccade.load(tmp_path / "model", "cpu")
    assert again.task.tokens() == made.task.tokens()
    assert "vocabulary" not in again.recipe.to_dict()
    assert (
        repr(again)
        == f"System(image-classification, vit, {count(made.model)} parameters, pictures 16 × 16, folder {again.folder})"
    )
    assert "m.classify(&quot;picture.png&quot;)" in again._repr_html_()
    assert again.unknown_words("anything") == []
    (tmp_path / "model" / "vocabularies.json").write_text(
        '{"labels": ["a", "b"], "image_size": [99999, 2]}'
    )
    (tmp_path / "model" / "manifest.json").unlink()
    assert error_of(lambda: saccade.load(tmp_path / "model", "cpu"))


def count(model: torch.nn.Module) -> str:
    return f"{sum(one.numel() for one in model.parameters()):,}"


def test_labels_that_cannot_be_learned(pictures: list[Pictured]) -> None:
    same = [dataclasses.replace(one, label="red") for one in pictures]
    assert (
        error_of(lambda: api.build(recipe(), same))
        == "the training data has only 'red' as label; give at least two"
    )
    bare = [*pictures, dataclasses.replace(pictures[0], label=None, line=11)]
    assert (
        error_of(lambda: api.build(recipe(), bare))
        == f"{pictures[0].image.name} of the training data has no label; give every picture one"
    )
    each = [dataclasses.replace(one, label=f"photo {n}") for n, one in enumerate(pictures * 3)]
    assert "30 labels for 30 pictures, nearly one each; check that a folder" in error_of(
        lambda: api.build(recipe(), each)
    )


def test_a_dev_label_that_training_never_had_is_skipped_and_counted(
    pictures: list[Pictured],
) -> None:
    made = api.build(recipe(), pictures)
    odd = dataclasses.replace(pictures[3], label="pink", line=4)
    work = made.task.work(made.recipe, pictures, [*pictures[:3], odd], CPU)
    assert len(work.dev) == 3
    assert work.skipped.kinds == {
        "": {"with a label that no training example has": (1, odd.image.name)}
    }
    strict = recipe("data.strict=true")
    assert f"{odd.image.name}: the label 'pink' was never seen in training" in error_of(
        lambda: made.task.work(strict, pictures, [*pictures[:3], odd], CPU)
    )
    assert f"{odd.image.name} of the dev data has no label" in error_of(
        lambda: made.task.work(recipe(), pictures, [dataclasses.replace(odd, label=None)], CPU)
    )


def test_pictures_are_held_out_and_a_batch_counts_pictures(pictures: list[Pictured]) -> None:
    made = api.build(recipe(), pictures)
    train, dev = made.task.divide(pictures, 0.3)
    assert (len(train), len(dev)) == (7, 3)
    work = made.task.work(made.recipe, train, dev, CPU)
    assert sorted(map(len, work.epoch(0))) == [3, 4], "training.tokens=4: four pictures"
    batch = work.batch(work.epoch(0)[0])
    assert batch.inputs[0].shape[1:] == (3, 32, 32)
    assert batch.inputs[0].max() <= 1
    assert batch.tokens == len(batch.lines) == len(batch.target)


def test_metrics_are_a_count(pictures: list[Pictured]) -> None:
    made = api.build(recipe(), pictures)
    found = made.evaluate(pictures)
    given = made.classify([one.image.name for one in pictures])
    right = sum(str(one) == picture.label for one, picture in zip(given, pictures, strict=True))
    assert (found["pictures"], found["accuracy"], found["commonest_label"]) == (
        10,
        10 * right,
        40.0,
    )
    each = made.task.per_example(made.model, pictures)
    assert [row[1:] for row in each.rows] == [
        (one.label, str(label)) for one, label in zip(pictures, given, strict=True)
    ]
    assert each.sums["accuracy"][0].sum(0).tolist() == [right, 10]
    assert made.evaluate([(one.image.name, one.label) for one in pictures]) == found
    wrong = error_of(lambda: made.evaluate([(3, "red")]))
    assert (
        wrong == "example 1 is \"(3, 'red')\"; expected (image file, label), or an image file alone"
    )
    assert "has no label; give every picture one to compare with" in error_of(
        lambda: made.evaluate([pictures[0].image.name])
    )


def test_rotated_pictures_are_judged_too(pictures: list[Pictured]) -> None:
    made = api.build(recipe("data.rotate_test=90", "data.image_size=32"), pictures)
    with torch.no_grad():
        images = torch.stack([one.image.pixels((32, 32)) for one in pictures]).numpy()
        wanted = torch.tensor([made.task.known[str(one.label)] for one in pictures])
        found = [
            made.model.eval()(
                torch.from_numpy(np.rot90(images, k, (2, 3)).copy()).float() / 255
            ).argmax(-1)
            for k in (1, 2, 3)
        ]
    right = sum(int((one == wanted).sum()) for one in found)
    assert made.evaluate(pictures)["rotated_accuracy"] == pytest.approx(100 * right / 30)
    assert "rotated_accuracy" not in api.build(recipe(), pictures).evaluate(pictures)
    again = ImageClassification.restore(made.recipe, made.task.tokens())
    assert again.rotate_test == 90
    assert (
        error_of(lambda: recipe("data.rotate_test=270"))
        == "data.rotate_test is 270; it must lie between 1 and 180"
    )
    assert "data.rotate_test has no effect here" in error_of(
        lambda: recipes.recipe({"data": {"rotate_test": 90}})
    )


def test_one_path_gives_one_result_and_a_list_or_folder_a_list(pictures: list[Pictured]) -> None:
    made = api.build(recipe(), pictures)
    path = Path(pictures[0].image.name)
    one = made.classify(path)
    assert one.weights.shape == (4, 4)
    assert one.weights.sum() == pytest.approx(1)
    assert sum(one.probabilities.values()) == pytest.approx(1)
    assert (
        one == made.classify(str(path)) == made.classify([path])[0] == saccade.classify(made, path)
    )
    assert len(made.classify(path.parent)) == 10
    assert made.classify([]) == []
    assert (
        error_of(lambda: made.classify(3))
        == 'expected the path of an image file, got int; write m.classify("picture.png")'
    )
    assert "got float" in error_of(lambda: made.classify([0.5]))
    assert "no file 'none.png'" in error_of(lambda: made.classify("none.png"))
    assert error_of(lambda: made.translate("x")) == (
        'an image-classification model cannot translate; use m.classify("picture.png")'
    )


def test_what_is_left_open_is_chosen_by_the_number_of_pictures(pictures: list[Pictured]) -> None:
    open_recipe = recipe(model={"family": "cnn", "size": "auto"}, training={"batch_size": "auto"})
    fitted, notes = fit_to_data(open_recipe, pictures * 100)
    assert (fitted.training.batch_size, fitted.model["dim"]) == (50, 24)
    assert (
        notes[0]
        == "chosen for 1,000 examples on a CPU: model.size=small (dim 24), training.batch_size=50"
    )
    assert fit_to_data(open_recipe, pictures)[0].training.batch_size == 8
    assert fit_to_data(recipe(), pictures) == (recipe(), ())


def test_a_picture_counts_once_on_a_gpu_too(pictures: list[Pictured]) -> None:
    """Lengths of texts are rounded up to multiples of 8 there."""
    made = api.build(recipe(), pictures)
    assert made.task.work(recipe(), pictures, pictures, torch.device("cuda")).multiple == 1


@pytest.mark.parametrize(
    "word", ["vocabulary.kind=words", "data.max_length=5", "training.round_to=8", "data.swap=true"]
)
def test_settings_of_texts_are_refused(word: str) -> None:
    assert f"{word.partition('=')[0].split('.kind')[0]} has no effect here" in error_of(
        lambda: recipe(word)
    )


def test_a_classifier_starts_from_another_one(pictures: list[Pictured], tmp_path: Path) -> None:
    first = api.build(recipe(seed=3), pictures)
    RunFolder(tmp_path, api.model_files(first)).save("first", first.model)
    fewer = [one for one in pictures if one.label != "blue"]
    made = api.build(recipe(start_from=str(tmp_path / "first")), fewer)
    assert torch.equal(
        made.model.body.embedding.stem.project.weight,
        first.model.body.embedding.stem.project.weight,
    )
    assert made.model.head.weight.shape == (2, 8)
    assert "parameters are those of" in made.notes[0]
    assert "vocabulary" not in made.notes[0]


def test_a_photo_is_named_by_its_file(pictures: list[Pictured], tmp_path: Path) -> None:
    made = api.build(recipe(), pictures)
    photo = Filed(tmp_path / "dog.png")
    Image.fromarray(pictures[0].image.pixels().permute(1, 2, 0).numpy()).save(photo.path)
    odd = Pictured(photo, "pink", 61)
    work = made.task.work(made.recipe, pictures, [*pictures[:3], odd], CPU)
    work.skipped.read = {"": (4, "picture")}
    [note] = work.skipped.notes()
    assert note.endswith(f"1 with a label that no training example has ({photo.path})")
    strict = recipe("data.strict=true")
    found = error_of(lambda: made.task.work(strict, pictures, [*pictures[:3], odd], CPU))
    assert f"{photo.path}: the label 'pink' was never seen in training" in found
