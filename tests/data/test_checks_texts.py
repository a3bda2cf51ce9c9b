"""Reports on sentences, labeled texts and documents: each oddity is found at its line, and each kind of data is known by its name."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from saccade.data.conllu import Sentence
from saccade.data.documents import Document
from saccade.data.findings import LOOKS, MAX_TALLIES, Finding, Report, check, report, usual_kind
from saccade.data.labeled import Labeled
from saccade.errors import SaccadeError

check_sentences, check_labeled = partial(report, "tags"), partial(report, "labels")
check_documents = partial(report, "text", by_line=True)


def kinds(report: Report) -> dict[str, Finding]:
    return {finding.kind: finding for finding in report.findings}


TAGGED = [Sentence(("the", "cat"), ("DET", "NOUN"), 1), Sentence(("a", "dog"), ("DET", "NOUN"), 4)]
TEXTS = [
    Labeled("a fine film", "pos", 1),
    Labeled("a dull film", "neg", 2),
    Labeled("great", "pos", 3),
    Labeled("poor", "neg", 4),
]


@pytest.mark.parametrize(
    ("kind", "level", "sentence"),
    [
        ("duplicates", "note", Sentence(("the", "cat"), ("DET", "NOUN"), 9)),
        ("several tags", "warning", Sentence(("the", "cat"), ("NOUN", "DET"), 9)),
        ("no tags", "warning", Sentence(("two", "words"), None, 9)),
        ("long line", "warning", Sentence(("w",) * 201, ("NOUN",) * 201, 9)),
        ("html entity", "warning", Sentence(("R&amp;D",), ("NOUN",), 9)),
        ("replacement character", "warning", Sentence(("caf\ufffd",), ("NOUN",), 9)),
    ],
)
def test_odd_sentences(kind: str, level: str, sentence: Sentence) -> None:
    found = kinds(check_sentences([*TAGGED, sentence], "x"))
    assert list(found) == [kind]
    assert (found[kind].level, found[kind].count, found[kind].lines) == (level, 1, [9])


def test_rare_and_similar_tags_are_named() -> None:
    found = kinds(check_sentences([*TAGGED, Sentence(("x", "y"), ("Noun", "SYM"), 7)], "x"))
    assert (
        found["rare tags"].sentence
        == "tags that occur only once: 'Noun', 'SYM'; check whether they are meant"
    )
    assert (
        found["similar tags"].sentence
        == "tags that differ only in case: 'NOUN', 'Noun'; write them alike"
    )
    assert found["similar tags"].level == "warning"


@pytest.mark.parametrize(
    ("kind", "level", "text"),
    [
        ("duplicates", "note", Labeled("a fine film ", "pos", 9)),
        ("several labels", "warning", Labeled("a fine film", "neg", 9)),
        ("no labels", "warning", Labeled("who knows", None, 9)),
        ("html tag", "warning", Labeled("a <br/> break", "pos", 9)),
        ("control characters", "warning", Labeled("a \x07 bell", "pos", 9)),
        ("mojibake", "warning", Labeled("cafÃ©", "pos", 9)),
    ],
)
def test_odd_labeled_texts(kind: str, level: str, text: Labeled) -> None:
    found = kinds(check_labeled([*TEXTS, text], "x"))
    assert list(found) == [kind]
    assert (found[kind].level, found[kind].count, found[kind].lines) == (level, 1, [9])


def test_labels_are_counted_and_looked_at() -> None:
    report = check_labeled([*TEXTS, Labeled("more", "Pos", 5)], "x")
    assert report.tallies == {"labels": {"neg": 2, "pos": 2, "Pos": 1}}
    assert "labels: 3 (neg 2 (40%), pos 2 (40%), Pos 1 (20%))" in report.lines()
    assert set(kinds(report)) == {"rare labels", "similar labels"}
    assert (
        kinds(check_labeled(TEXTS[::2], "x"))["one label"].sentence
        == "every label is 'pos'; there is nothing to learn"
    )
    assert [
        finding.level for finding in check_labeled([Labeled("a"), Labeled("b")], "x").findings
    ] == ["note"]
    many = check_labeled([Labeled(f"text {n}", f"label {n}", n) for n in range(1, 40)], "x")
    assert f"label 27 1 (3%), and {39 - MAX_TALLIES} more)" in many.lines()[2]


def test_documents_are_looked_at_line_by_line() -> None:
    text = Document("fine\nR&amp;D\nfine", 10)
    assert kinds(check_documents([text], "x"))["html entity"].lines == [11]
    assert kinds(check_documents([text], "x"))["html entity"].sentence.startswith(
        "1 line with HTML entities"
    )
    assert kinds(check_documents([text], "x", by_line=False))["html entity"].lines == [10]
    again = check_documents([text, Document("other", 14), text], "x", by_line=False)
    assert kinds(again)["duplicates"].sentence == "1 document repeating an earlier one"
    assert "no spaces" in kinds(
        check_documents([Document("これはかなり長い日本語の行です", 1)], "x")
    )


@pytest.mark.parametrize(
    ("check_them", "items", "document"),
    [
        (
            check_sentences,
            TAGGED,
            {"name": "x", "sentences": 2, "tags": {"DET": 2, "NOUN": 2}, "findings": []},
        ),
        (
            check_labeled,
            TEXTS,
            {"name": "x", "texts": 4, "labels": {"neg": 2, "pos": 2}, "findings": []},
        ),
        (check_documents, [Document("a b c", 1)], {"name": "x", "documents": 1, "findings": []}),
    ],
)
def test_reports_are_plain(
    check_them: object, items: list[object], document: dict[str, object]
) -> None:
    assert callable(check_them)
    report = check_them(items, "x")
    found = report.to_dict()
    assert json.loads(json.dumps(found)) == found
    assert {key: found[key] for key in document} == document
    assert report.lines()[-1] == "nothing odd was found"
    assert [finding.sentence for finding in check_them([], "x").findings] == [
        f"there are no {report.what}s"
    ]


def test_lengths_are_told_in_their_own_unit() -> None:
    assert check_sentences(TAGGED, "x").lines()[1].endswith("max 2 per sentence)")
    assert check_labeled(TEXTS, "x").lines()[1].endswith("max 3 per text)")
    assert (
        check_documents([Document("a b", 1), Document("a", 2)], "x")
        .lines()[1]
        .endswith("max 2 per document)")
    )
    long = check_documents([Document("a " * 7_734, 1), Document("b " * 7_734, 2)], "x").lines()[1]
    assert (
        long
        == "text: 15,468 words (min 7,734, median 7,734, mean 7,734.0, 95% up to 7,734, max 7,734 per document)"
    )


def test_numbers_that_say_nothing_are_left_out() -> None:
    assert check_documents([Document("a", 1)], "x").lines() == [
        "x: 1 document",
        "text: 1 word",
        "nothing odd was found",
    ]
    assert check_documents([], "x").lines() == ["x: 0 documents", "error: there are no documents"]


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.conllu", "", "tags"),
        ("a.conllu.gz", "", "tags"),
        ("a.csv", "", "labels"),
        ("a.txt", "", "text"),
        ("a.tsv", "", "pairs"),
        ("a.en", "", "pairs"),
        ("a.jsonl", '{"source": "a", "target": "b", "text": "c"}', "pairs"),
        ("a.jsonl", '{"words": ["a"]}', "tags"),
        ("a.jsonl", '{"text": "a", "label": 1}', "labels"),
        ("a.jsonl", '{"text": "a"}', "text"),
        ("a.jsonl", "[1]", "pairs"),
        ("a.jsonl", "no", "pairs"),
        ("a.jsonl", "", "pairs"),
    ],
)
def test_data_are_known_by_their_names(tmp_path: Path, name: str, content: str, kind: str) -> None:
    (tmp_path / name).write_text(content)
    assert usual_kind([str(tmp_path / name)]) == kind


def test_names_of_corpora_and_two_files() -> None:
    assert [usual_kind([where]) for where in ("phrasebook:dev", "dates:dev", "reviews:dev", "hub:a:b", "a.txt,b.txt")] == [
        "pairs", "pairs", "labels", "pairs", "pairs",
    ]  # fmt: skip
    assert usual_kind(["a.txt", "b.txt"]) == "pairs"


BROKEN = {
    "tags": ("a.conllu", "1\tw\n\n1\tw\t_\tX\t_\t_\t_\t_\t_\t_\n\n2\tw\t_\tX\t_\t_\t_\t_\t_\t_\n\nx\n", 1, {"columns": [1, 7], "ids": [5]}),
    "labels": ("a.csv", 'text,label\nfine,pos\nbroken\na,b,c\n"more\nlines",\n', 1, {"columns": [3, 4], "label": [5]}),
    "text": ("a.jsonl", '{"text": "a"}\n{"text": 1}\n\n{"text": ""}\n', 1, {"JSON": [2], "empty line": [3], "empty side": [4]}),
    "pairs": ("a.tsv", "a\tb\nc\n", 1, {"columns": [2]}),
}  # fmt: skip


@pytest.mark.parametrize("kind", BROKEN)
def test_all_broken_lines_are_found_at_once(tmp_path: Path, kind: str) -> None:
    name, content, good, lines = BROKEN[kind]
    (tmp_path / name).write_text(content)
    report = check([str(tmp_path / name)], kind)
    assert report.count == good
    assert {
        finding.kind: finding.lines for finding in report.findings if finding.level == "error"
    } == lines
    assert report.errors == sum(map(len, lines.values()))
    assert report.name == name


def test_broken_lines_of_text_by_line_and_after_a_cut(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\n\xff\ntwo\n\xfe\nR&amp;D\n")
    report = check([str(tmp_path / "a.txt")], separated="line")
    assert (report.count, kinds(report)["encoding"].lines, kinds(report)["html entity"].lines) == (
        3,
        [2, 4],
        [5],
    )
    assert check([str(tmp_path / "a.txt")]).errors == 2


def test_each_kind_of_an_embedded_corpus(tmp_path: Path) -> None:
    assert check(["reviews:dev"]).lines()[0] == "reviews:dev: 500 texts"
    assert check(["phrasebook:dev"], "tags").tallies["tags"]["NOUN"] > 100
    assert check(["dates:dev"], "text").count == 500
    (tmp_path / "a.txt").write_text("one\n")
    assert check([str(tmp_path / "a.txt")] * 2, "text").count == 2


@pytest.mark.parametrize(
    ("where", "kind", "sentence"),
    [
        (["a"], "label", "data cannot be checked as 'label'; did you mean 'labels'?"),
        (["a", "b", "c"], None, "3 files were given; give one, or two text files --as pairs"),
        (["a", "b"], "tags", "2 files were given; give one, or two text files --as pairs"),
        (["reviews:dev", "b"], "text", "2 files were given; give one"),
        (
            ["reviews:dev"],
            "pairs",
            "the corpus 'reviews' has no pairs; those that have: phrasebook, dates",
        ),
        (["none.conllu"], None, "no file 'none.conllu'"),
    ],
)
def test_what_cannot_be_looked_at(where: list[str], kind: str | None, sentence: str) -> None:
    with pytest.raises(SaccadeError) as caught:
        check(where, kind)
    assert str(caught.value).startswith(sentence)
    assert list(LOOKS) == ["pairs", "tags", "labels", "text", "graphs", "pictures"]
