"""The command `explain`: every way of it, pages, JSON, questions asked in a terminal, and a sentence for every mistake."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import run_cli

WAYS = [
    "",
    "--scaled",
    "--score additive --mask causal",
    "--normalize relu --plain",
    "--heads 2",
    "--query 2",
    "attention --dim 1",
    "lookup",
    "order",
    "norm layer",
    "norm batch",
    "norm rms",
    "tf-idf",
    "tf-idf lecture",
    "similar dog cat",
    "quiz --answers",
]


@pytest.mark.parametrize("words", WAYS)
def test_every_way_prints_its_steps_and_has_json_and_a_page(words: str, tmp_path: Path) -> None:
    printed = run_cli("explain", *words.split())
    assert printed.code == 0, printed.err
    found = run_cli("explain", *words.split(), "--json").json
    assert found["steps"]
    for step in found["steps"]:
        assert step["title"] in printed.out
    page = tmp_path / "page.html"
    written = run_cli("explain", *words.split(), "--out", page)
    assert (written.code, written.out, written.err) == (0, "", f"written: {page}\n")
    [block] = re.findall(
        r'<script type="application/json">(.*?)</script>', page.read_text(encoding="utf-8")
    )
    assert json.loads(block) == found


def test_the_lectures_numbers() -> None:
    found = run_cli("explain", "--json").json
    assert found["scores"][0] == [2, 4, 4]
    np.testing.assert_allclose(found["outputs"][0], [1.9366, 6.6831, 1.5951], atol=5e-5)
    assert "2·2 + 2·3 + 2·1 = 12" in run_cli("explain", "--query", 2).out


def test_options_of_parts_are_written_as_in_recipes() -> None:
    found = run_cli(
        "explain",
        "a b c d",
        "--mask",
        "{name: window, left: 1}",
        "--score",
        "{name: additive, hidden: 2}",
        "--json",
    ).json
    assert found["mask"] == {"name": "window", "left": 1, "right": None}
    assert np.shape(found["parameters"]["w_q"]) == (1, 3, 2)
    assert found["weights"][0][2:] == [0, 0]


def test_a_corpus_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "documents.txt"
    path.write_text("David Beckham\nDavid Bowie\nDavid\n", encoding="utf-8")
    found = run_cli("explain", "tf-idf", path, "--json").json
    assert {one["word"]: round(one["tf_idf"], 4) for one in found["highest"]} == {
        "beckham": 0.5493,
        "bowie": 0.5493,
        "david": 0,
    }
    assert "beckham" in run_cli("explain", "tf-idf", path).out


def test_words_of_the_phrasebook_by_counts() -> None:
    found = run_cli("explain", "similar", "cat", "mouse", "--json").json
    a, b = np.array(found["vectors"])
    assert found["cosine"] == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
    assert found["pearson"] == pytest.approx(np.corrcoef(a, b)[0, 1])
    assert "counts of neighbors" in found["source"]


MISTAKES = [
    ("--score nothing", "no score named 'nothing'"),
    ("--score {", "--score is '{', which cannot be read; write {name: …, option: …}"),
    (
        "--score {name:~additive,~hidden:~99999999}",
        "score.hidden is 99999999; it must lie between 1 and 65,536",
    ),
    (
        "--score {name:~additive,~hidden:~60000}",
        "the score's 'w_q' has 60000 numbers per row, and at most 16 can be followed",
    ),
    ("--score {left:~1}", "score is {'left': 1}; write a score's name, or {name: …, option: …}"),
    ("--normalize nothing", "no normalizer named 'nothing'"),
    (
        "--normalize sum",
        "the normalizer `sum` divides by the sum of scores that are never negative",
    ),
    ("--mask nothing", "no mask named 'nothing'"),
    ("--mask window", "mask: mask 'window' needs left; write {name: window, left: …}"),
    (
        "--mask {name:~blocks,~length:~1000000}",
        "mask.length is 1,000,000; at most 1000 is of use for 30 words",
    ),
    ("--heads 3", "expected 1, 2 or 4 heads, among which an input's 4 numbers are divided, got 3"),
    ("--heads many", "Invalid value for '--heads'"),
    ("--query 4", "expected a query from 1 to 3, the number of inputs, got 4"),
    ("--query 0", "expected a query from 1 to 3"),
    (
        "--scaled --score dot",
        "both a score and scaled were given, which is the score scaled-dot; leave one of them out",
    ),
    ("norm nothing", "no norm to explain named 'nothing'; there are: batch, layer, rms"),
    ("--lookup --shuffle", "no option --lookup; write: saccade explain lookup"),
    ("--shuffle", "no option --shuffle; write: saccade explain order"),
    ("--norm layer", "no option --norm; write: saccade explain norm NORM"),
    ("--similar dog cat", "no option --similar; write: saccade explain similar WORD WORD"),
    ("--quiz --answers", "no option --quiz; write: saccade explain quiz"),
    ("lookup --score dot", "No such option: --score"),
    ("norm layer --query 1", "No such option: --query"),
    ("norm", "Missing argument 'NORM'"),
    ("tf-idf lecture a", "unexpected extra argument"),
    ("order --query 1", "No such option: --query"),
    ("--answers", "no option --answers; write: saccade explain quiz --answers"),
    ("--step 2", "no option --step; write: saccade explain step MODEL TEXT"),
    ("a~b --target c", "no option --target; write: saccade explain step MODEL TEXT"),
    ("--head 1", "no option --head; write: saccade explain step MODEL TEXT"),
    ("step nowhere", "Missing argument 'TEXT'"),
    ("tf-idf nowhere.txt", "no file 'nowhere.txt'; check the path"),
    ("tf-idf .", "is a folder, not a file; give a text file, one document per line"),
    ("tf-idf empty.txt", "empty.txt is empty; it needs at least one line"),
    ("tf-idf marks.txt", "marks.txt has no words in 2 lines; give one document per line"),
    ("tf-idf latin.txt", "latin.txt, line 1: not UTF-8"),
    (
        "tf-idf /dev/null",
        "/dev/null: expected a file, got a named pipe, a socket or a device; give a text file, one document per line",
    ),
    ("similar dog", "Missing argument 'WORD'"),
    (
        "similar dog zebra",
        "'zebra' has no vector here: it is not in the slide or the phrasebook; name a model with --model",
    ),
    ("step nowhere the~cat", "no model folder at nowhere"),
    ("similar dog cat --model nowhere", "no model folder at nowhere"),
    ("step empty.txt the~cat", "empty.txt is a file, not a model folder"),
    ("lookup ~", "the sentence is empty; give at least one word"),
    ("~", "the sentence is empty; give at least one word"),
    (
        "order cat~cat",
        "expected at least 2 different words to put into another order, got 1; give more",
    ),
    ("--out page.png", "cannot write an explanation into 'page.png'; the name must end in .html"),
    ("--out .html", "cannot write an explanation into '.html'"),
    ("--out empty.txt/page.html", "empty.txt"),
    ("a b c", "one text was expected; quote it"),
]


@pytest.mark.parametrize(("words", "sentence"), MISTAKES)
def test_a_mistake_is_one_sentence(
    words: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.txt").write_bytes(b"")
    Path("marks.txt").write_text("…\n—\n", encoding="utf-8")
    Path("latin.txt").write_bytes("café\n".encode("latin-1"))
    printed = run_cli("explain", *(word.replace("~", " ") for word in words.split(" ")))
    assert printed.code == 2
    assert printed.out == ""
    assert printed.err.startswith("saccade: ")
    assert printed.err.count("\n") == 1
    assert sentence in printed.err
    assert sorted(os.listdir()) == ["empty.txt", "latin.txt", "marks.txt"]


def test_too_many_words_are_refused_in_every_way() -> None:
    for way in (("attention",), ("lookup",), ("order",), ("norm", "layer"), ("quiz",)):
        printed = run_cli("explain", *way, " ".join(f"w{n}" for n in range(31)))
        assert (
            "the sentence has 31 words, but 30 are the most one can follow; shorten it"
            in printed.err
        )


def test_escape_sequences_in_words_are_not_obeyed() -> None:
    for way in (("attention",), ("lookup",), ("order",), ("quiz", "--answers"), ("--json",)):
        assert "\x1b" not in run_cli("explain", *way, "cat \x1b[2Jdog mouse").out


def test_questions_are_asked_one_by_one_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    from saccade.cli import explain as module

    given = iter(["3", "35", "because", "", "inputs 2 and 3", "input 1", "2", "1"])
    asked: list[Any] = []
    monkeypatch.setattr(
        module.typer, "prompt", lambda *words, **_: asked.append(words) or next(given)
    )
    monkeypatch.setattr(module, "is_conversation", lambda: True)
    printed = run_cli("explain", "quiz")
    assert printed.code == 0, printed.err
    assert len(asked) == 8
    assert printed.out.count("Right. ") == 4
    assert printed.out.count("Not quite: ") == 2
    assert printed.out.endswith("4 of 6 right\n")
    assert "Not quite: 36. 4·3 + 4·3 + 4·3 = 36." in printed.out


def test_questions_alone_where_nobody_answers() -> None:
    printed = run_cli("explain", "quiz").out
    assert "To which input(s) is input 2 most related?" in printed
    assert "0.9820" not in printed
    assert "'cat' (input 3)" in run_cli("explain", "quiz", "the black cat").out


def test_names_of_parts_are_completed() -> None:
    from saccade.cli.completion import mask_names, normalizer_names, score_names

    assert [name for name, _ in score_names("add")] == ["additive"]
    assert {name for name, _ in normalizer_names("s")} >= {"softmax", "sparsemax"}
    assert ("causal", "Nobody sees the future: j ≤ i.") in mask_names("")


def test_a_word_that_is_a_folders_name_is_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cat").mkdir()
    assert run_cli("explain", "cat", "--json").json["tokens"] == ["cat"]
