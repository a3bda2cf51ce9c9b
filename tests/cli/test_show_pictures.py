"""`show MODEL IMAGE`: captioners, questions and classifiers; in a terminal, as a picture, a page or numbers; and what cannot be shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from saccade import api
from saccade.core import record
from saccade.data.archives import pictures_in
from saccade.data.generated.shapes import shapes
from saccade.training.checkpoints import RunFolder
from support import check_mistake, run_cli

CNN = {"family": "cnn", "dim": 4, "depths": [1], "stem_stride": 8}
CAPTIONER = {
    "family": "transformer",
    "dim": 8,
    "hidden": 8,
    "depth": 2,
    "heads": 2,
    "image_encoder": CNN,
}
MODELS: dict[str, dict[str, Any]] = {
    "caption": {"task": "captioning", "model": CAPTIONER, "vocabulary": {"kind": "words"}},
    "hard": {
        "task": "captioning",
        "model": {
            "family": "bahdanau",
            "dim": 8,
            "hidden": 8,
            "normalize": "hard",
            "image_encoder": CNN,
        },
        "vocabulary": {"kind": "words"},
    },
    "blind": {
        "task": "captioning",
        "model": {"family": "fixed-context", "dim": 8, "hidden": 8, "image_encoder": CNN},
    },
    "asked": {
        "task": "questions",
        "model": {
            "family": "transformer-encoder",
            "dim": 8,
            "hidden": 8,
            "depth": 1,
            "heads": 2,
            "image_encoder": CNN,
        },
        "vocabulary": {"kind": "words", "split": "punctuation"},
    },
    "vit": {
        "task": "image-classification",
        "model": {"family": "vit", "dim": 8, "hidden": 8, "depth": 2, "heads": 2, "patch": 8},
    },
    "swin": {
        "task": "image-classification",
        "model": {
            "family": "swin",
            "dim": 8,
            "heads": 2,
            "depths": [2, 1],
            "patch": 4,
            "window_size": 3,
        },
    },
    "cnn": {
        "task": "image-classification",
        "model": {
            **CNN,
            "depths": [1, 1],
            "attention": "squeeze-excite",
            "stage_attention": "cbam",
        },
    },
    "plain": {"task": "image-classification", "model": CNN},
    "token": {
        "task": "image-classification",
        "model": {
            "family": "vit",
            "dim": 8,
            "hidden": 8,
            "depth": 1,
            "heads": 2,
            "patch": 8,
            "pool": "token",
        },
    },
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Untrained models by name, an image larger than theirs, and files that are none."""
    root = tmp_path_factory.mktemp("shown")
    data = {"train": "shapes:train", "options": {"train": 20, "dev": 2, "test": 2, "size": 32}}
    for name, recipe in MODELS.items():
        made = api.build({**recipe, "data": data, "device": "cpu"})
        RunFolder(root, api.model_files(made)).save(name, made.model)
    [drawing] = shapes(1, 1, 1, size=48)["test"]
    Image.fromarray(drawing.pixels().permute(1, 2, 0).numpy()).save(root / "wide.png")
    with Image.open(root / "wide.png") as image:
        image.resize((900, 600)).save(root / "wide.png")
    (root / "text.png").write_text("this is no picture")
    return root


def show(root: Path, name: str, *more: Any) -> Any:
    return run_cli("show", root / name, root / "wide.png", *more)


def test_a_caption_is_a_map_for_each_word_and_a_scan_path(root: Path) -> None:
    caption = "a small red circle"
    printed = show(root, "caption", "--target", caption)
    assert printed.code == 0, printed.err
    first, second, _, name, words, *_ = printed.out.splitlines()
    assert (first, second) == (str(root / "wide.png"), f"→ {caption}")
    assert name.endswith("average of 2 heads, in %")
    assert words.split() == ["a", "small", "red", "circle"]
    document = api.show(api.load(root / "caption"), root / "wide.png", caption)
    facts = show(root, "caption", "--target", caption, "--json").json
    assert facts["grid"] == [4, 4]
    assert facts["rows"] == ["a", "small", "red", "circle", "<eos>"]
    best = document[facts["site"]].weights.mean(0)
    np.testing.assert_allclose(next(iter(facts["weights"].values())), best, atol=1e-4)
    places = [divmod(int(row.argmax()), 4) for row in best[1:4]]
    steps = [
        (step["row"] - 1, step["column"] - 1) for step in facts["fixations"] for _ in step["words"]
    ]
    assert steps == places
    assert printed.out.rstrip().splitlines()[-1].startswith("scan path (row, column): small ")


def test_an_own_caption_is_shown_without_a_target(root: Path) -> None:
    own = api.load(root / "caption").caption(root / "wide.png")
    assert f"→ {own.text}" in show(root, "caption").out
    assert own.document.target == own.text.split()


@pytest.mark.parametrize("name", ["caption", "hard", "asked", "vit", "swin", "cnn"])
@pytest.mark.parametrize(
    "ending",
    [
        pytest.param("png", marks=pytest.mark.slow),
        "html",
        pytest.param("json", marks=pytest.mark.slow),
    ],
)
def test_every_model_is_drawn_into_every_kind_of_file(
    root: Path, name: str, ending: str, tmp_path: Path
) -> None:
    more = {
        "asked": ["what color is it?"],
        "caption": ["--target", "a circle"],
        "hard": ["--target", "a circle"],
    }.get(name, [])
    printed = show(root, name, *more, "--out", tmp_path / f"x.{ending}")
    assert printed.code == 0, printed.err
    assert f"x.{ending}" in printed.out
    made = (tmp_path / f"x.{ending}").read_bytes()
    assert [one.name for one in tmp_path.iterdir()] == [f"x.{ending}"]
    if ending == "png":
        with Image.open(tmp_path / "x.png") as image:
            assert image.width > 500
    if ending == "html":
        assert b"http:" not in made.replace(b"http-equiv", b"")
        assert b"data:image/png;base64," in made
    if ending == "json":
        plain = json.loads(made)
        assert plain["picture"].startswith("data:image/png;base64,")
        assert any("grid" in site for site in plain["sites"])


def test_questions_have_a_map_for_each_of_their_words(root: Path) -> None:
    question = "what color is the circle?"
    facts = show(root, "asked", question, "--json").json
    assert facts["rows"] == ["what", "color", "is", "the", "circle", "?", "<eos>"]
    assert facts["source"] == question
    answer = api.load(root / "asked").answer(root / "wide.png", question)
    assert facts["target"] == answer.answer
    np.testing.assert_allclose(
        facts["weights"]["average of 2 heads"], answer.weights.reshape(7, -1), atol=1e-4
    )


@pytest.mark.parametrize(
    ("name", "sites"),
    [
        ("vit", {"rollout": (4, 4), "encoder.0.mixer": (4, 4), "encoder.1.mixer": (4, 4)}),
        (
            "swin",
            {
                "encoder.stages.0.blocks.0.mixer": (8, 8),
                "encoder.stages.0.blocks.1.mixer": (8, 8),
                "encoder.stages.1.blocks.0.mixer": (4, 4),
                "features, 8 × 8": (8, 8),
                "features, 4 × 4": (4, 4),
            },
        ),
        (
            "cnn",
            {
                "Grad-CAM": (2, 2),
                "encoder.1, positions": (4, 4),
                "encoder.3, positions": (2, 2),
                "features, 4 × 4": (4, 4),
                "features, 2 × 2": (2, 2),
            },
        ),
        (
            "token",
            {"rollout": (4, 4), "encoder.0.mixer, class token": (4, 4), "encoder.0.mixer": (4, 4)},
        ),
        ("plain", {"Grad-CAM": (4, 4)}),
    ],
)
def test_sites_of_classifiers(root: Path, name: str, sites: dict[str, tuple[int, int]]) -> None:
    document = api.show(api.load(root / name), root / "wide.png")
    assert {site.name: site.grid for site in document.sites if site.grid} == sites
    assert document.picture.shape == (512, 512, 3), (
        "the part that the model reads, sharper than it reads it"
    )
    channels = {site.name: len(site.columns) for site in document.sites if site.grid is None}
    wanted = {
        "encoder.0.gate, channels": 4,
        "encoder.1, channels": 4,
        "encoder.2.gate, channels": 8,
        "encoder.3, channels": 8,
    }
    assert channels == (wanted if name == "cnn" else {})


@torch.no_grad()
def test_the_label_of_a_class_token_comes_from_where_it_looks(root: Path) -> None:
    system = api.load(root / "token")
    [seen] = system.classify([root / "wide.png"])
    assert not seen.weights.any(), "no position is read by itself"
    document = api.show(system, root / "wide.png")
    assert [site.rows for site in document.sites] == [
        [seen.label],
        ["class token"],
        ["mean of all positions"],
    ]
    rollout, layer, _ = (site.weights.mean(0)[0] for site in document.sites)
    # one layer, half of whose output is its residual
    np.testing.assert_allclose(rollout, layer / 2, atol=1e-6)
    [picture] = pictures_in(root / "wide.png")
    with record(system.model) as looked:
        system.model(picture.pixels((32, 32)).unsqueeze(0))
    wanted = looked["body.encoder.0.mixer"].weights()[0, :, 0, 1:].numpy()
    np.testing.assert_allclose(
        document["encoder.0.mixer, class token"].weights[:, 0], wanted, atol=1e-6
    )


def test_one_site_one_head_and_every_head_are_other_pictures(root: Path, tmp_path: Path) -> None:
    made = set()
    for more in (
        [],
        ["--site", "encoder.1.mixer"],
        ["--site", "encoder.1.mixer", "--heads"],
        ["--site", "encoder.1.mixer", "--head", 1],
    ):
        assert show(root, "vit", *more, "--out", tmp_path / "x.png").code == 0
        made.add((tmp_path / "x.png").read_bytes())
    assert len(made) == 4
    channels = show(root, "cnn", "--site", "encoder.1, channels", "--json").json
    assert channels["columns"] == [f"channel {n}" for n in range(4)]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("caption nix.png", "nix.png"),
        ("caption .", "is a folder of pictures; look at one at a time"),
        ("vit text.png", "got a text that starts with 'this is no pictu"),
        ("vit wide.png what?", "a model of image-classification answers no questions"),
        (
            "vit wide.png --target cat",
            "a model of image-classification reads no text with its picture",
        ),
        ("asked wide.png", "give the question after the image"),
        ("asked wide.png ''", "give the question after the image"),
        (
            "asked wide.png --target red",
            "leave --target out, and give the question after the image",
        ),
        ("caption wide.png --target ''", "the target is empty"),
        ("caption wide.png what? --target red", "a second text is a question about an image"),
        (
            "blind wide.png",
            "the family fixed-context has no attention to show; train one that attends, such as bahdanau",
        ),
        ("vit wide.png --site encoder.7.mixer", "no attention named 'encoder.7.mixer'"),
        ("vit wide.png --out x.gif", "name a file ending in .png"),
    ],
)
def test_bad_input_is_one_sentence(
    root: Path, line: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    check_mistake(root, f"show {line}", sentence)
