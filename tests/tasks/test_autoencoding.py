"""Autoencoding: shapes of any size, noise that is the same where it is judged, PSNR by hand, what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import saccade
from saccade import api
from saccade.config import recipes
from saccade.data.archives import Filed
from saccade.data.image_examples import Pictured
from saccade.training.checkpoints import RunFolder
from saccade.training.loop import Watcher
from support import error_of

CNN = {"family": "cnn", "dim": 4, "depths": [1, 1]}
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve pictures without labels, one of them deeper."""
    root = tmp_path_factory.mktemp("photos")
    (root / "deeper").mkdir()
    for n in range(12):
        ramp = np.linspace(0, 20 * n, 20)[:, None, None] + np.array([200, 15 * n, 0])
        pixels = np.broadcast_to(ramp.clip(0, 255), (20, 13, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(root / ("deeper" if n == 11 else "") / f"{n}.png")
    return root


def recipe(folder: Path, *words: str, **more: Any) -> recipes.Recipe:
    values = {
        "task": "autoencoding",
        "data": {"train": str(folder), "held_out": 0.25},
        "autoencoding": {"latent": 5, "width": 2, **more.pop("how", {})},
        "model": CNN,
        "training": {
            "tokens": 4,
            "updates": 2,
            "warmup": 1,
            "evaluate_every": 1,
            "threads": 1,
            "watch": "psnr",
        },
        "device": "cpu",
        **more,
    }
    return recipes.recipe(values, words)


def test_a_folder_without_labels_is_read_and_pictures_keep_their_size(folder: Path) -> None:
    system, work = api.prepared(recipe(folder))
    assert (len(work.examples), len(work.dev)) == (9, 3)
    assert system.task.image_size == (20, 13)
    batch = work.batch(work.epoch(0)[0])
    assert torch.equal(batch.inputs[0], batch.target)
    assert (
        system.model(batch.inputs[0]).shape == batch.target.shape == (len(batch.lines), 3, 20, 13)
    )
    assert system.model.latent(batch.inputs[0]).shape == (len(batch.lines), 5)
    assert "12 pictures" not in system.notes[0]
    assert system.notes[0].startswith("data: 9 pictures to train on")


def test_noise_is_new_in_training_and_the_same_where_it_is_judged(folder: Path) -> None:
    system, work = api.prepared(recipe(folder, how={"noise": 0.5}))
    plan = next(plan for plan in work.epoch(0) if len(plan) == 4)
    one, other = work.batch(plan), work.batch(plan[::-1])
    noise = [batch.inputs[0] - batch.target for batch in (one, other)]
    assert not torch.allclose(noise[0], noise[1]), "it does not go by the position in a batch"
    assert not torch.allclose(noise[0], noise[1].flip(0)), "nor by the picture"
    assert torch.equal(one.target, other.target.flip(0)), "the clean pictures are learned"
    assert torch.equal(one.inputs[0], work.batch(plan).inputs[0])
    judged = [system.task.batch(work.dev[start:], CPU) for start in (0, 1)]
    assert torch.equal(judged[0].inputs[0][1:], judged[1].inputs[0])
    assert float((judged[0].inputs[0] - judged[0].target).std()) == pytest.approx(0.5, rel=0.1)
    found = system.evaluate("dev")
    assert found["psnr_noisy"] == pytest.approx(-20 * math.log10(0.5), abs=0.5)
    assert "psnr_noisy" not in api.prepared(recipe(folder))[0].evaluate("dev")


def test_metrics_by_hand(folder: Path) -> None:
    system, work = api.prepared(recipe(folder))
    system.model.eval()
    errors = []
    for one in work.dev:
        clean = one.pixels.float() / 255
        errors.append(float((system.model(clean[None])[0] - clean).detach().square().mean()))
    found = system.evaluate("dev")
    assert found["loss"] == pytest.approx(sum(errors) / 3, rel=1e-5)
    assert found["psnr"] == pytest.approx(
        sum(-10 * math.log10(one) for one in errors) / 3, rel=1e-5
    )
    pixels = [one.pixels.double().numpy() / 255 for one in work.dev]
    off = [float(((one - sum(pixels) / 3) ** 2).mean()) for one in pixels]
    assert found["psnr_mean"] == pytest.approx(
        sum(-10 * math.log10(one) for one in off) / 3, rel=1e-5
    )
    sums, score = system.task.per_example(system.model, system.read("dev")).sums["psnr"]
    assert score(sums.sum(0)) == pytest.approx(found["psnr"], rel=1e-5)


def test_random_changes_are_made_to_both_sides(folder: Path) -> None:
    words = ("data.augment={flip: true, crop: 2}",)
    plain, changed = (api.prepared(recipe(folder, *some))[1] for some in ((), words))
    plan = list(range(9))
    batch = changed.batch(plan)
    assert torch.equal(batch.inputs[0], batch.target)
    assert not torch.equal(batch.target, plain.batch(plan).target)
    wrong = error_of(lambda: api.prepared(recipe(folder, "data.augment={mixup: 0.5}")))
    assert (
        wrong == "data.augment.mixup and cutmix mix labels, and this task has none; leave them out"
    )


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("training.smoothing=0.2", "training.smoothing has no effect here"),
        ("training.agreement=1", "training.agreement has no effect here"),
        ("vocabulary.size=9", "vocabulary has no effect here"),
        ("autoencoding.latent=0", "autoencoding.latent"),
        ("autoencoding.noise=-1", "autoencoding.noise"),
        ("model.pool=attention", "model.pool has no effect on this cnn"),
        ("training.watch=accuracy", "training.watch is 'accuracy'"),
    ],
)
def test_settings_without_effect_and_out_of_range_are_refused(
    folder: Path, word: str, sentence: str
) -> None:
    assert sentence in error_of(lambda: recipe(folder, word))


def test_the_section_belongs_to_its_task(folder: Path) -> None:
    wrong = error_of(
        lambda: recipes.recipe({"model": {"family": "luong"}, "autoencoding": {"latent": 3}})
    )
    assert (
        wrong
        == "autoencoding has no effect here: it is for task=autoencoding or text-autoencoding; leave it out"
    )
    assert "make a matrix of" in error_of(
        lambda: api.prepared(recipe(folder, "autoencoding.latent=65536", "data.image_size=1024"))
    )


def test_a_run_learns_can_be_loaded_and_makes_pictures(folder: Path, tmp_path: Path) -> None:
    longer = ("training.updates=60", "training.evaluate_every=30", "training.learning_rate=0.01")
    system, ended = saccade.fit(recipe(folder, *longer), tmp_path / "run", watcher=Watcher())
    first = api.prepared(recipe(folder))[0].evaluate("dev")["psnr"]
    assert ended.best > first + 1
    one = system.reconstruct(folder / "0.png")
    assert one.before.shape == one.after.shape == (20, 13, 3)
    assert one.noisy is None
    assert np.array_equal(one.before, np.asarray(Image.open(folder / "0.png")))
    error = float(((one.after / 255.0 - one.before / 255.0) ** 2).mean())
    assert one.error == pytest.approx(error, rel=0.05)
    assert one.psnr == pytest.approx(-10 * math.log10(one.error), rel=1e-4)
    noisy = system.reconstruct(folder / "0.png", noise=0.3)
    assert noisy.noisy is not None
    assert noisy.psnr != one.psnr
    assert len(system.reconstruct(folder)) == 11, "those right in the folder"
    assert one.save(tmp_path / "one.png").stat().st_size > 500
    assert "psnr" in one.save(tmp_path / "one.json").read_text()
    assert b"Before and after" in (tmp_path / "run" / "report.html").read_bytes()
    assert "the noise is -1, expected 0 to 10" in error_of(
        lambda: system.reconstruct(folder, noise=-1)
    )
    again = saccade.load(tmp_path / "run", "cpu")
    assert again.reconstruct(folder / "0.png") == one


def test_a_classifier_starts_from_an_autoencoder(folder: Path, tmp_path: Path) -> None:
    first = api.prepared(recipe(folder))[0]
    RunFolder(tmp_path, api.model_files(first)).save("first", first.model)
    labeled = [Pictured(Filed(folder / f"{n}.png"), "ab"[n % 2], n + 1) for n in range(8)]
    values = {
        "task": "image-classification",
        "model": CNN,
        "training": {"tokens": 4},
        "device": "cpu",
    }
    made = api.build({**values, "start_from": str(tmp_path / "first")}, labeled)
    assert torch.equal(made.model.body.embedding[0].weight, first.model.body.embedding[0].weight)
