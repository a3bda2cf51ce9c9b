"""Every command with models of pictures: answers, bad images by name, what is refused, reports."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from PIL import Image

from saccade import api
from saccade.training.loop import Watcher
from support import check_mistake, run_cli

SHAPES = {"train": "shapes:train", "dev": "shapes:dev", "test": "shapes:test"}
SIZES = {"options": {"train": 16, "dev": 6, "test": 6, "size": 32}}
VIT = {"family": "vit", "dim": 8, "hidden": 8, "depth": 1, "heads": 2, "patch": 8}
TRAINING = {"updates": 2, "tokens": 8, "warmup": 1, "evaluate_every": 1, "threads": 1}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two trained runs, `labels` and `made`, and a folder `photos` with three images, one of which is damaged."""
    root = tmp_path_factory.mktemp("pictures")
    common = {"data": {**SHAPES, **SIZES}, "model": VIT, "training": TRAINING, "device": "cpu"}
    api.fit({"task": "image-classification", **common}, root / "labels", watcher=Watcher())
    how = {"latent": 4, "width": 2, "noise": 0.1}
    api.fit(
        {"task": "autoencoding", "autoencoding": how, **common}, root / "made", watcher=Watcher()
    )
    (root / "empty").mkdir()
    (root / "photos").mkdir()
    for name, color in (("a.png", "red"), ("c.jpg", "blue")):
        Image.new("RGB", (40, 30), color).save(root / "photos" / name)
    (root / "photos" / "b.png").write_bytes(b"\x89PNG\r\n\x1a\n nothing")
    return root


@pytest.fixture(autouse=True)
def here(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)


def test_classify_one_image_and_a_folder() -> None:
    one = run_cli("classify", "labels", "photos/a.png")
    assert one.code == 0
    assert one.out.count("%") == 5
    assert one.out.count("\n") == 1
    several = run_cli("classify", "labels", "photos")
    assert several.code == 2, "one of them is damaged"
    rows = [line.split("\t") for line in several.out.splitlines()]
    assert [name for _, name in rows] == ["photos/a.png", "photos/c.jpg"]
    assert rows[0][0] == one.out.split(" ")[0]
    damaged = "saccade: photos/b.png: expected a whole PNG image, got a damaged header; get the file again"
    assert several.err.splitlines() == [damaged, "saccade: 1 of 3 images could not be read"]


def test_classify_as_json_and_from_lines() -> None:
    found = [
        json.loads(line)
        for line in run_cli("classify", "labels", "photos", "--json").out.splitlines()
    ]
    assert [sorted(one) for one in found] == [
        ["image", "label", "probabilities"],  # the mean of all positions is no attention
        ["error", "image"],
        ["image", "label", "probabilities"],
    ]
    assert sum(found[0]["probabilities"].values()) == pytest.approx(1)
    lines = run_cli("classify", "labels", stdin="photos/a.png\nnone.png\nphotos/c.jpg\n")
    assert (lines.code, len(lines.out.splitlines())) == (2, 2)
    assert lines.err == "saccade: no file 'none.png'; check the path\n"
    Path("names.txt").write_text("photos/c.jpg\n")
    assert run_cli("classify", "labels", "--input", "names.txt").out.endswith("\tphotos/c.jpg\n")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("classify labels none.png", "no file 'none.png'"),
        ("classify labels empty", "empty holds no images"),
        ("classify labels photos/a.png --effect", "--effect is for models of texts"),
        ("classify labels photos/a.png --out x.png", "pictures and pages are drawn by `saccade show`"),
        ("classify made photos/a.png", "an autoencoding model cannot label a text; use `saccade reconstruct MODEL picture.png"),
        ("reconstruct labels photos/a.png", "an image-classification model cannot make pictures; use `saccade classify MODEL picture.png`"),
        ("reconstruct made none.png", "no file 'none.png'"),
        ("reconstruct made photos/a.png --out x.html", "cannot write answers into 'x.html'"),
        ("translate labels x", "an image-classification model cannot translate; use `saccade classify MODEL picture.png`"),
        ("generate made x", "an autoencoding model cannot continue a text"),
        ("tag labels x.conllu", "an image-classification model cannot tag words"),
        ("evaluate labels photos", "photos holds no pictures with labels"),
        ("evaluate made dev --confusion", "an evaluation of autoencoding has no option 'confusion'"),
        ("evaluate labels dev --with labels", "cannot be ensembled"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_said(root: Path, line: str, sentence: str) -> None:
    check_mistake(root, line, sentence)


def test_check_counts_labels_and_names_damaged_images(tmp_path: Path) -> None:
    found = run_cli("check", "photos")
    assert found.code == 2, "one of them is damaged"
    assert found.out.splitlines() == [
        "photos: 2 pictures",
        "labels: none",
        "error: photos/b.png: expected a whole PNG image, got a damaged header; get the file again",
        "note: 2 pictures without labels (lines 1, 3)",
    ]
    for label in ("cat", "Cat", "dog"):
        (tmp_path / label).mkdir()
        for n in range(2):
            Image.new("RGB", (8, 8), "red").save(tmp_path / label / f"{n}.png")
    several = run_cli("check", tmp_path, "--json")
    assert several.code == 0
    assert (several.json["pictures"], several.json["labels"]) == (6, {"Cat": 2, "cat": 2, "dog": 2})
    assert [one["kind"] for one in several.json["findings"]] == ["similar labels"]
    assert "cannot be written" in run_cli("check", tmp_path, "--write", tmp_path / "x.tsv").err
    assert run_cli("check", "shapes:dev", "--as", "pictures").out.startswith("shapes:dev: ")


def test_reconstruct_draws_before_and_after() -> None:
    found = run_cli("reconstruct", "made", "photos", "--out", "ba.png")
    assert found.code == 2
    assert "photos/b.png: expected a whole PNG" in found.err
    assert "ba.png: before and after" in found.err
    assert [line.split("\t")[1] for line in found.out.splitlines()] == [
        "photos/a.png",
        "photos/c.jpg",
    ]
    with Image.open("ba.png") as drawn:
        drawn.load()
        noisy = drawn.size
    clean = run_cli(
        "reconstruct", "made", "photos/a.png", "--noise", 0, "--out", "clean.png", "--json"
    )
    assert clean.code == 0
    assert clean.json["psnr"] > 0
    with Image.open("clean.png") as drawn:
        assert drawn.size[1] < noisy[1], "there is no row of noisy pictures"


@pytest.mark.parametrize("name", ["labels", pytest.param("made", marks=pytest.mark.slow)])
def test_every_command_knows_models_without_a_vocabulary(name: str, tmp_path: Path) -> None:
    assert (Path(name) / "report.html").is_file(), "training wrote one"
    again = run_cli("report", name, "--out", tmp_path / "report.html")
    assert again.code == 0
    assert "Traceback" not in again.err
    page = (tmp_path / "report.html").read_text()
    assert "vocabulary" not in json.loads((Path(name) / "recipe.json").read_text())
    assert "vocabulary," not in page
    assert ("Before and after" in page) == (name == "made")
    found = run_cli("evaluate", name, "test", "--json")
    assert found.code == 0
    assert found.json["pictures"] == 6
    assert run_cli("average", name, name, "--out", tmp_path / "mean").code == 0
    assert run_cli("train", f"{name}/recipe.json", "--out", tmp_path / "again").code == 0
    assert run_cli("train", "--resume", tmp_path / "again", "training.updates=3").code == 0
    both = run_cli(
        "compare", f"{name}/recipe.json", "--vary", "model.dim=8,16", "--out", tmp_path / "compared"
    )
    assert both.code == 0, both.err
    assert "vocabulary" not in both.err
    assert "padding" not in both.err
    assert ("p = " in both.out) == (name in ("labels", "made"))


def test_a_data_set_of_own_pictures_from_folders_to_answers(tmp_path: Path) -> None:
    for n in range(20):
        folder = tmp_path / "own" / ("warm" if n % 2 else "cold")
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (48, 40), (200, n, 0) if n % 2 else (0, n, 200)).save(folder / f"{n}.png")
    words = [
        "data.image_size=16",
        "data.augment={flip: true}",
        "model.size=tiny",
        "training.updates=30",
        "training.learning_rate=0.01",
    ]
    trained = run_cli(
        "train",
        "image-classification",
        f"data.train={tmp_path / 'own'}",
        *words,
        "device=cpu",
        "--out",
        tmp_path / "run",
    )
    assert trained.code == 0, trained.err
    assert "labels: 2" in trained.err
    assert "training.batch_size=" in trained.err
    assert trained.out.endswith(f"Use it: saccade classify {tmp_path / 'run'} picture.png\n")
    found = run_cli("classify", tmp_path / "run", tmp_path / "own" / "warm")
    assert {line.split("\t")[0] for line in found.out.splitlines()} == {"warm"}
    shutil.rmtree(tmp_path / "own")
    assert os.path.isdir(tmp_path / "run")
