"""The command `predict`: every task, every kind of input and of file, and what is refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from saccade import api
from saccade.training.checkpoints import RunFolder
from support import run_cli

SHAPES = {"train": "shapes:train", "dev": "shapes:dev", "test": "shapes:test"}
SIZES = {"shapes": {"train": 16, "dev": 2, "test": 3, "size": 32}}
VIT = {"family": "vit", "dim": 8, "hidden": 8, "depth": 1, "heads": 2, "patch": 8}


@pytest.fixture(scope="module")
def desk(shelf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models of texts and of pictures, a table of texts, two pictures, and files that are none of these."""
    root = tmp_path_factory.mktemp("predict")
    for name in ("run", "labels", "tags", "words"):
        (root / name).symlink_to(shelf / name)
    common = {"data": {**SHAPES, **SIZES}, "device": "cpu"}
    made = api.build({"task": "image-classification", "model": VIT, **common})
    RunFolder(root, api.model_files(made)).save("pictures", made.model)
    table = 'id,text,label\n1,a good film,good\n2,"no fun, at all",bad\n3,,good\n'
    (root / "reviews.csv").write_text(table, encoding="utf-8")
    rows = [{"id": 1, "text": "a good film"}, {"id": 2, "text": "no fun"}]
    (root / "reviews.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (root / "pairs.tsv").write_text(
        "source\ttarget\tid\nthe cat\tle chat\t7\nthe dog\tle chien\t8\n"
    )
    (root / "photos").mkdir()
    for name in ("a.png", "b.png"):
        Image.new("RGB", (40, 30), "red").save(root / "photos" / name)
    (root / "empty.txt").write_bytes(b"")
    (root / "latin.txt").write_bytes("café\n".encode("latin-1"))
    (root / "broken.csv").write_text('text,label\n"a,b\n')
    (root / "there.csv").write_text("mine")
    return root


@pytest.fixture(autouse=True)
def here(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(desk)


@pytest.mark.parametrize(
    ("alias", "words"),
    [
        ("translate", ["run", "the black cat"]),
        ("translate", ["run", "the black cat", "--beam", "2", "--json"]),
        ("classify", ["labels", "a good film"]),
        ("classify", ["labels", "a good film", "--json"]),
        ("generate", ["words", "the cat", "--limit", "9", "--seed", "3"]),
        ("generate", ["words", "the cat", "--limit", "9", "--seed", "3", "--json"]),
        ("classify", ["pictures", "photos/a.png"]),
        ("classify", ["pictures", "photos", "--json"]),
        ("classify", ["labels", "--input", "reviews.csv"]),
    ],
)
def test_an_alias_does_what_predict_does(alias: str, words: list[str]) -> None:
    by_alias, found = run_cli(alias, *words), run_cli("predict", *words)
    assert (found.code, found.err) == (0, by_alias.err)
    assert found.out == by_alias.out != ""


def test_a_tagger_reads_texts_and_files() -> None:
    assert "\tcats\t" in run_cli("predict", "tags", "the cats").out
    facts = run_cli("predict", "tags", "the cats", "--json").json
    assert facts["words"] == ["the", "cats"]
    assert len(facts["tags"]) == 2


def test_several_texts_are_answered_line_by_line() -> None:
    printed = run_cli("predict", "labels", "a good film", "no fun")
    assert [line.split("\t")[1] for line in printed.out.splitlines()] == ["a good film", "no fun"]


def read(path: str) -> list[dict[str, Any]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t" if path.endswith(".tsv") else ","))


def test_a_table_keeps_the_other_columns_of_the_input(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    assert run_cli("predict", "labels", "--input", "reviews.csv", "--out", out).code == 0
    before, after = read("reviews.csv"), read(str(out))
    assert [{name: row[name] for name in ("id", "text", "label")} for row in after] == before
    found = api.classify(api.load("labels"), ["a good film", "no fun, at all"])
    assert [row["predicted_label"] for row in after] == [*(one.label for one in found), ""]
    assert float(after[0]["probability"]) == max(found[0].probabilities.values())


def test_lines_of_json_keep_everything(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert run_cli("predict", "labels", "--input", "reviews.jsonl", "--out", out).code == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["id"] for row in rows] == [1, 2]
    assert set(rows[0]) == {"id", "text", "label", "probabilities", "weights"}


def test_translations_are_a_column_beside_the_input(tmp_path: Path) -> None:
    out = tmp_path / "out.tsv"
    words = ("translate", "run", "--input", "pairs.tsv", "--align", "--out", out)
    assert run_cli(*words).code == 0
    rows = read(str(out))
    assert [(row["source"], row["target"], row["id"]) for row in rows] == [
        ("the cat", "le chat", "7"),
        ("the dog", "le chien", "8"),
    ]
    assert all(row["translation"] and "-" in row["alignment"] for row in rows)
    assert list(tmp_path.iterdir()) == [out], "no parts are left"


def test_pictures_and_sentences_become_tables(tmp_path: Path) -> None:
    out = tmp_path / "labels.csv"
    assert run_cli("predict", "pictures", "photos", "--out", out).code == 0
    assert [row["image"] for row in read(str(out))] == ["photos/a.png", "photos/b.png"]
    tags = tmp_path / "tags.csv"
    source = Path("tags").resolve().parent / "words.conllu"
    assert run_cli("tag", "tags", source, "--out", tags).code == 0
    assert read(str(tags))[1]["words"] == "cats"
    copy = tmp_path / "tags.conllu"
    assert run_cli("tag", "tags", source, "--out", copy).code == 0
    assert copy.read_text() == run_cli("tag", "tags", source).out


MISTAKES = [
    ("predict", "Missing argument 'model'"),
    ("predict nowhere x", "no model folder at nowhere"),
    ("predict labels", "stdin is empty; give at least one line"),
    ("predict labels ''", "the text is empty; give a sentence"),
    ("predict labels x --input reviews.csv", "both a text and --input were given"),
    ("predict labels --input nowhere.txt", "no file 'nowhere.txt'"),
    ("predict labels --input empty.txt", "empty.txt is empty; it needs at least one line"),
    ("predict labels --input photos", "photos is a folder, not a file"),
    ("predict labels --input latin.txt", "latin.txt, line 1: not UTF-8"),
    ("predict labels --input broken.csv", "broken.csv, line 2"),
    ("predict labels --input broken.csv --out new.csv", "broken.csv, line 2"),
    ("predict labels --input reviews.csv#nothing", "has no column 'nothing'"),
    ("predict labels --input reviews.csv --out there.csv", "there.csv exists already"),
    ("predict labels --input reviews.csv --out x.png", "are drawn by `saccade show`"),
    ("predict labels --input reviews.csv --out x.html", "are drawn by `saccade show`"),
    ("predict labels --input reviews.csv --out x", "name a file ending in .csv"),
    ("predict labels --out x.csv", "--out needs inputs"),
    ("predict labels --input reviews.csv --out empty.txt/x.csv", "empty.txt"),
    ("predict labels x --beam 3", "has no option 'beam'"),
    ("predict run x --limit 3", "has no option 'limit'"),
    ("predict run x --beam 2 --top-k 3", "a beam and sampling were both asked for"),
    ("predict run x --beam 99999999999", "beam"),
    ("predict run x --seed 3", "a seed is for sampling"),
    ("predict run x --on moon", "no way to run named 'moon'"),
    ("predict pictures none.png", "no file 'none.png'"),
    ("predict pictures --input reviews.csv --on ray", "reviews.csv"),
]


@pytest.mark.parametrize(("line", "sentence"), MISTAKES)
def test_a_mistake_is_one_sentence_and_writes_nothing(line: str, sentence: str, desk: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in desk.rglob("*")}
    printed = run_cli(*(word.strip("'") for word in line.split()))
    assert (printed.code, printed.out) == (2, "")
    [error] = printed.err.splitlines()
    assert sentence in error
    assert {path: path.stat().st_mtime_ns for path in desk.rglob("*")} == before
