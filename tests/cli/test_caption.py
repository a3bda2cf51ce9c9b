"""caption as people type it: an image, a folder, data, and what is not an image."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from saccade import api
from saccade.training.checkpoints import RunFolder
from support import run_cli

MODEL: dict[str, Any] = {"family": "bahdanau", "dim": 8, "hidden": 8, "dropout": 0.0}
MODEL["image_encoder"] = {"family": "cnn", "dim": 4, "depths": [1], "stem_stride": 4}
DATA = {
    "train": "shapes:train",
    "dev": "shapes:dev",
    "test": "shapes:test",
    "options": {"train": 20, "dev": 4, "test": 5, "size": 32},
}


@pytest.fixture(scope="module")
def captioner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A captioner that has learned nothing, and in `pictures` four images in other sizes than it reads."""
    root = tmp_path_factory.mktemp("captioner")
    made = api.build(
        {
            "task": "captioning",
            "data": DATA,
            "vocabulary": {"kind": "words"},
            "model": MODEL,
            "device": "cpu",
        }
    )
    RunFolder(root, api.model_files(made)).save("model", made.model)
    (root / "pictures").mkdir()
    for n, one in enumerate(made.read("test")[:4]):
        image = Image.fromarray(one.image.pixels().permute(1, 2, 0).numpy()).resize((40 + n, 30))
        image.save(root / "pictures" / f"{'dbca'[n]}.png")
    return root


def test_an_image_gives_its_caption(captioner: Path) -> None:
    image = captioner / "pictures" / "a.png"
    printed = run_cli("caption", captioner / "model", image, "--beam", 3, "--max-length", 4)
    expected = api.load(captioner / "model").caption(image, beam=3, max_length=4)
    assert (printed.code, printed.out) == (0, f"{expected.text}\n")
    assert len(expected.words) <= 4
    found = run_cli(
        "caption", captioner / "model", image, "--beam", 3, "--max-length", 4, "--json"
    ).json
    assert found["image"] == str(image)
    assert (found["caption"], found["alternatives"]) == (expected.text, expected.alternatives)
    assert found["finished"] == expected.finished
    cut = "note: 1 of 1 outputs reached the length limit and were cut; raise it with --max-length\n"
    assert printed.err == ("" if expected.finished else cut)


def test_a_folder_gives_a_line_per_image_in_the_order_of_names(captioner: Path) -> None:
    folder = captioner / "pictures"
    (folder / "notes.txt").write_text("not an image, and not named like one")
    printed = run_cli("caption", captioner / "model", folder)
    found = api.load(captioner / "model").caption(folder)
    assert printed.code == 0
    assert printed.out == "".join(
        f"{folder / name}.png\t{one.text}\n" for name, one in zip("abcd", found, strict=True)
    )


def test_data_is_described_without_its_captions(captioner: Path) -> None:
    printed = run_cli("caption", captioner / "model", "--input", "shapes:test")
    names = [line.partition("\t")[0] for line in printed.out.splitlines()]
    assert names == [f"shapes, picture {n}" for n in range(1, 6)]
    sampled = [
        run_cli(
            "caption",
            captioner / "model",
            "--input",
            "shapes:test",
            "--temperature",
            2,
            "--seed",
            n,
        ).out
        for n in (1, 1, 2)
    ]
    assert sampled[0] == sampled[1] != sampled[2]


def test_bad_images_among_many_are_reported_at_the_end(captioner: Path, tmp_path: Path) -> None:
    for name in "ac":
        (tmp_path / f"{name}.png").write_bytes(
            (captioner / "pictures" / f"{name}.png").read_bytes()
        )
    (tmp_path / "b.png").write_bytes((tmp_path / "a.png").read_bytes()[:60])
    (tmp_path / "d.jpg").write_text("no image")
    printed = run_cli("caption", captioner / "model", tmp_path)
    assert printed.code == 2
    assert [line.partition("\t")[0] for line in printed.out.splitlines()] == [
        f"{tmp_path}/a.png",
        f"{tmp_path}/c.png",
    ]
    first, second, last = [
        line for line in printed.err.splitlines() if line.startswith("saccade: ")
    ]
    assert first.startswith(f"saccade: {tmp_path}/b.png: expected a whole PNG image")
    assert second.startswith(f"saccade: {tmp_path}/d.jpg: expected an image file")
    assert last == "saccade: 2 of 4 images could not be read"
    rows = [
        json.loads(line)
        for line in run_cli("caption", captioner / "model", tmp_path, "--json").out.splitlines()
    ]
    assert ["error" in row for row in rows] == [False, True, False, True]


def huge(path: Path) -> Path:
    """A PNG that says it has 100,000 × 100,000 pixels."""
    head = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + head
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    )
    return path


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("missing.png", "no file '{root}/missing.png'"),
        ("empty", "{root}/empty holds no images; give a folder with some"),
        (
            "text.txt",
            "{root}/text.txt: expected an image file (PNG, JPEG, GIF, BMP, WebP, TIFF or PPM)",
        ),
        ("huge.png", "{root}/huge.png: expected at most 40,000,000 pixels, got 100,000 × 100,000"),
    ],
)
def test_what_is_not_an_image_is_one_sentence(
    captioner: Path, tmp_path: Path, what: str, sentence: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").write_text("a black cat\n")
    huge(tmp_path / "huge.png")
    printed = run_cli("caption", captioner / "model", tmp_path / what)
    assert (printed.code, printed.out) == (2, "")
    assert printed.err.startswith("saccade: " + sentence.format(root=tmp_path))
    assert printed.err.count("\n") == 1


def test_wrong_words_are_refused(captioner: Path, models: Path) -> None:
    image = captioner / "pictures" / "a.png"
    for words, sentence in {
        (captioner / "model",): "stdin is empty; give at least one line",
        (captioner / "model", ""): "the text is empty",
        (
            captioner / "model",
            image,
            "--input",
            "shapes:test",
        ): "and --input were given; give one of them",
        (
            captioner / "model",
            image,
            "--beam",
            2,
            "--top-k",
            3,
        ): "a beam and sampling were both asked for",
        (captioner / "model", image, "--beam", 0): "beam",
        (
            captioner / "model",
            "--input",
            "phrasebook:test",
        ): "the corpus 'phrasebook' has no pictures with captions",
        (
            models / "run",
            image,
        ): "a translation model cannot describe a picture; use `saccade translate MODEL",
        (captioner / "nothing", image): "nothing",
    }.items():
        printed = run_cli("caption", *words)
        assert (printed.code, printed.out) == (2, ""), words
        assert sentence in printed.err
        assert printed.err.count("\n") == 1
    printed = run_cli("translate", captioner / "model", "a text")
    assert printed.code == 2
    assert (
        "a captioning model cannot translate; use `saccade caption MODEL picture.png`"
        in printed.err
    )


def test_an_evaluation_prints_bleu_of_each_order_and_pointing(captioner: Path) -> None:
    found = run_cli("evaluate", captioner / "model", "test", "--beam", 2, "--json").json
    assert {
        "bleu_1",
        "bleu_4",
        "exact",
        "bleu",
        "bleu_signature",
        "loss",
        "pointing",
        "object_words_right",
    } <= set(found)
    assert (found["pictures"], found["beam"]) == (5, 2)
    refused = run_cli("evaluate", captioner / "model", "test", "--moses", "en")
    assert (
        refused.err == "saccade: an evaluation of captioning has no option 'moses'; leave it out\n"
    )
