"""The command `answer`: a question, questions of a pipe or a terminal, a file of them, and what cannot be asked."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from PIL import Image
from test_input_stream import PROMPT, Talk

from saccade import api
from saccade.training.checkpoints import RunFolder
from support import check_mistake, run_cli

MODEL = {
    "family": "rnn-encoder", "dim": 8, "hidden": 4, "depth": 1,
    "image_encoder": {"family": "cnn", "dim": 4, "depths": [1], "stem_stride": 4},
}  # fmt: skip
QUESTION = "what color is the circle?"


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`model`, which answers what it likes; `labels`, a model of another task; pictures, and files that are none."""
    root = tmp_path_factory.mktemp("asking")
    made = api.build({
        "task": "questions", "model": MODEL, "vocabulary": {"kind": "words", "split": "punctuation"}, "device": "cpu",
        "data": {"train": "shapes:train", "options": {"train": 30, "dev": 2, "test": 5, "size": 32}},
    })  # fmt: skip
    RunFolder(root, api.model_files(made)).save("model", made.model)
    reviews = {"train": "reviews:train", "options": {"train": 30, "dev": 2, "test": 2}}
    other = api.build(
        {
            "task": "classification",
            "data": reviews,
            "model": {"family": "bag", "dim": 4},
            "device": "cpu",
        }
    )
    RunFolder(root, api.model_files(other)).save("labels", other.model)
    (root / "pictures").mkdir()
    Image.new("RGB", (40, 30), "red").save(root / "pictures/red.png")
    Image.new("RGB", (32, 32), "blue").save(root / "pictures/blue.png")
    (root / "text.png").write_text("this is no picture")
    (root / "asked.tsv").write_text(
        f"pictures/red.png\t{QUESTION}\npictures/blue.png\thow many objects are there?\n"
    )
    return root


def test_one_question(asking: Path) -> None:
    printed = run_cli("answer", asking / "model", asking / "pictures/red.png", QUESTION)
    answers = api.load(asking / "model").task.labels
    assert (printed.code, printed.err) == (0, "")
    assert printed.out.split()[0] in answers
    assert "%" in printed.out
    found = run_cli(
        "answer", asking / "model", asking / "pictures/red.png", QUESTION, "--json"
    ).json
    assert set(found) == {"image", "question", "answer", "probabilities", "pieces", "weights"}
    assert (found["image"], found["question"]) == (str(asking / "pictures/red.png"), QUESTION)
    assert (
        found["answer"]
        == max(found["probabilities"], key=found["probabilities"].get)
        == printed.out.split()[0]
    )
    assert found["pieces"] == ["what", "color", "is", "the", "circle", "?", "<eos>"]
    assert len(found["weights"]) == 7
    assert [len(found["weights"][0]), len(found["weights"][0][0])] == [8, 8]
    assert all(abs(sum(map(sum, one)) - 1) < 0.01 for one in found["weights"])


def test_questions_of_a_pipe_get_a_line_each_in_their_order(asking: Path) -> None:
    lines = [QUESTION, "", "how many objects are there?", QUESTION]
    printed = run_cli(
        "answer", asking / "model", asking / "pictures/blue.png", stdin="\n".join(lines)
    )
    assert printed.code == 0
    assert [line.partition("\t")[2] for line in printed.out.split("\n")[:-1]] == lines
    as_json = run_cli(
        "answer", asking / "model", asking / "pictures/blue.png", "--json", stdin="\n".join(lines)
    ).out.splitlines()
    found = [json.loads(line) for line in as_json]
    assert [one["question"] for one in found] == lines
    assert found[1]["answer"] is None
    assert [one["answer"] or "" for one in found] == [
        line.partition("\t")[0] for line in printed.out.split("\n")[:-1]
    ]


def test_a_file_of_questions_and_data_as_for_training(asking: Path) -> None:
    printed = run_cli("answer", asking / "model", "--input", asking / "asked.tsv")
    assert printed.code == 0
    assert [line.split("\t")[1] for line in printed.out.splitlines()] == [
        QUESTION,
        "how many objects are there?",
    ]
    found = [
        json.loads(line)
        for line in run_cli(
            "answer", asking / "model", "--input", "shapes:test", "--json"
        ).out.splitlines()
    ]
    assert {one["image"] for one in found} == {f"shapes, picture {n}" for n in range(1, 6)}


def test_unknown_words_are_noted_and_the_question_is_answered(asking: Path) -> None:
    printed = run_cli("answer", asking / "model", asking / "pictures/red.png", "quo vadis")
    assert printed.code == 0
    assert printed.err == "note: the model has never seen 'quo', 'vadis' and reads each as <unk>\n"
    assert printed.out


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("answer model nowhere.png what?", "no file 'nowhere.png'; check the path"),
        (
            "answer model pictures/rad.png what?",
            "no file 'pictures/rad.png'; did you mean 'pictures/red.png'?",
        ),
        (
            "answer model text.png what?",
            "expected an image file (PNG, JPEG, GIF, BMP, WebP, TIFF or PPM), got a text that starts with",
        ),
        ("answer model pictures what?", "pictures is a folder, not a file; give an image file"),
        ("answer model pictures/red.png ''", "the question is empty; ask something"),
        ("answer model pictures/red.png", "stdin is empty; give at least one line"),
        ("answer model", "no image was given; give an image and a question, or --input FILE"),
        (
            "answer model pictures/red.png what? --input asked.tsv",
            "both an image and --input were given",
        ),
        ("answer model --input nowhere.tsv", "no file 'nowhere.tsv'; check the path"),
        (
            "answer model --input outside.tsv",
            "outside.tsv, line 1: the image is '../red.png', expected a path below the folder",
        ),
        (
            "answer model --input lone.tsv",
            "lone.tsv, line 1: 1 column instead of 2 or 3; a line is image<TAB>question<TAB>answer",
        ),
        (
            "answer labels pictures/red.png what?",
            "a classification model cannot answer a question about a picture; use `saccade classify",
        ),
        (
            "translate model sentence",
            'a questions model cannot translate; use `saccade answer MODEL picture.png "your question"`',
        ),
        ("show model what?", "no file 'what?'; check the path"),
        (
            "evaluate model asked.tsv",
            "asked.tsv, line 1 has no answer; give every question one to compare with, or use `answer`",
        ),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(
    asking: Path, line: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(asking)
    if not Path("outside.tsv").exists():
        Path("outside.tsv").write_text(f"../red.png\t{QUESTION}\n")
        Path("lone.tsv").write_text("pictures/red.png what color?\n")
    check_mistake(asking, line, sentence)


@pytest.mark.slow
def test_at_a_terminal_questions_are_answered_until_ctrl_d(asking: Path) -> None:
    talk = Talk("answer", asking / "model", asking / "pictures/red.png")
    assert b"Ctrl-D ends" in talk.until(PROMPT)
    talk.type(os.fsencode(QUESTION) + b"\n")
    assert b" %" in talk.until(PROMPT)
    talk.type(b"quo vadis\n")
    assert b"the model has never seen" in talk.until(PROMPT)
    talk.type(b"\x04")
    assert talk.end() == 0
