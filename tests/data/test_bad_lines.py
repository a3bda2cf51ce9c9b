"""Bad lines are left out and counted, or the first one is an error; what is wrong with a file as a whole is always one."""

from __future__ import annotations

from pathlib import Path

import pytest

from saccade.data.bad_lines import Skipped, lopsided
from saccade.data.corpora import DOCUMENTS, LABELED, PAIRS, SENTENCES, Kind, overlap, read
from saccade.data.labeled import Labeled
from saccade.data.pairs import Pair
from support import error_of

GOOD_PAIRS = b"".join(b"word %d\tmot %d\n" % (n, n) for n in range(10))
TABLE: list[tuple[bytes, str]] = [
    (b"\tx\n", "1 with an empty side (line 11)"),
    (b"x\t \ny\t\n", "2 with an empty side (first: line 11)"),
    (b"\n", "1 empty (line 11)"),
    (b"one\n", "1 with wrong columns (line 11)"),
    (b"caf\xe9\tx\n", "1 not UTF-8 (line 11)"),
    (b"a\0\tx\n", "1 with damaged characters (line 11)"),
    (b"a\tb\t9-9\n", "1 with a wrong alignment (line 11)"),
    (b"a" * 1_000_001 + b"\tx\n", "1 of too many bytes (line 11)"),
]


@pytest.mark.parametrize(("bad", "counted"), TABLE, ids=[row[1] for row in TABLE])
def test_a_bad_line_is_counted_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: bytes, counted: str
) -> None:
    monkeypatch.chdir(tmp_path)
    kind, name = PAIRS, "a.tsv"
    Path(name).write_bytes(GOOD_PAIRS + bad + b"last\tfin\n")
    skipped = Skipped()
    found = read(kind, name, skipped=skipped)
    lines = 10 + bad.count(b"\n") + 1
    assert [one.line for one in found] == [*range(1, 11), lines], (
        "the numbers of the lines remain those of the file"
    )
    [note] = skipped.notes()
    count = bad.count(b"\n")
    assert note == f"skipped {count} of {lines} pairs in {name}: {counted}"
    assert error_of(lambda: read(kind, name)).startswith(f"{name}, line 11: "), (
        "and without a count it is an error"
    )


def test_every_kind_of_data_is_cleaned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    row = "\t".join(["1", "w", "_", "X", "_", "_", "0", "root", "_", "_"]) + "\n\n"
    files: list[tuple[Kind, str, str, list[str]]] = [
        (LABELED, "a.jsonl", '{"text": "a", "label": 1}\n' * 3 + "{broken\n", ["1 not valid JSON (line 4)"]),
        (LABELED, "a.csv", "text,label\n" + "good,pos\n" * 3 + "none\nbad,\n", ["1 with wrong columns (line 5)", "1 with a wrong label (line 6)"]),
        (SENTENCES, "a.conllu", row * 3 + "1\tw\n\n" + row.replace("1\t", "2\t", 1), ["1 with wrong columns (line 7)", "1 with wrong ids (line 9)"]),
        (DOCUMENTS, "a.jsonl", '{"text": "a"}\n' * 3 + '{"text": ""}\n', ["1 with an empty side (line 4)"]),
    ]  # fmt: skip
    for kind, name, content, counted in files:
        Path(name).write_text(content)
        skipped = Skipped()
        assert len(read(kind, name, skipped=skipped)) == 3
        [note] = skipped.notes()
        assert note.endswith(f"in {name}: {', '.join(counted)}")


def test_a_damaged_line_of_a_book_is_left_out(tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_bytes(b"one\ncaf\xe9\nthree\n" + b"more\n" * 5)
    skipped = Skipped()
    [document] = read(DOCUMENTS, str(book), None, "file", skipped=skipped)
    assert document.text.split("\n")[:3] == ["one", "", "three"], "later lines keep their numbers"
    assert skipped.notes()[0].endswith("1 not UTF-8 (line 2)")


def test_more_bad_lines_than_good_ones_are_a_wrong_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.tsv").write_text("a\tb\n" + "no tabs here\n" * 9)
    told = error_of(lambda: read(PAIRS, "a.tsv", skipped=Skipped()))
    assert told.startswith(
        "9 of 10 pairs in a.tsv cannot be used, more than half; check the format (the first is a.tsv, line 2: 1 column"
    )
    Path("b.tsv").write_text("a\tb\n" * 5 + "no tabs here\n" * 5)
    assert len(read(PAIRS, "b.tsv", skipped=Skipped())) == 5, "half is not more than half"
    Path("b.tsv").write_text("a\tb\n" * 5 + "no tabs here\n" * 6)
    assert "6 of 11 pairs in b.tsv cannot be used" in error_of(
        lambda: read(PAIRS, "b.tsv", skipped=Skipped())
    )


def test_what_is_wrong_with_a_whole_file_is_an_error_always(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.en").write_text("one\ntwo\nthree\n")
    Path("a.fr").write_text("un\ndeux\n")
    assert "a.en has 3 lines and a.fr has 2" in error_of(
        lambda: read(PAIRS, "a.en,a.fr", skipped=Skipped())
    )
    assert "no file 'none.tsv'" in error_of(lambda: read(PAIRS, "none.tsv", skipped=Skipped()))
    Path("white.txt").write_text(" \n\n")
    assert "holds no documents" in error_of(lambda: read(DOCUMENTS, "white.txt", skipped=Skipped()))


def test_a_quote_that_is_never_closed_costs_one_row_of_csv(tmp_path: Path) -> None:
    table = tmp_path / "a.csv"
    table.write_text(
        "text,label\n"
        + "fine,pos\n" * 5
        + '"never closed,neg\n'
        + '"quoted, twice",neg\n' * 2
        + "plain,pos\n" * 3000
    )
    skipped = Skipped()
    found = read(LABELED, str(table), skipped=skipped)
    assert len(found) == 5 + 2 + 3000
    assert skipped.notes()[0].endswith("1 not valid CSV (line 7)")
    assert found[5] == Labeled("quoted, twice", "neg", 8)


@pytest.mark.parametrize(
    ("source", "target", "odd"),
    [
        ("yes", "w " * 9, False),  # a few tokens: never
        ("yes", "word " * 30, True),
        ("word " * 30, "oui", True),
        ("word " * 30, "mot " * 4, False),
        (
            "I have spent a lot of time with music in these last ten years .",
            "这十年来我花了很多时间在音乐上。",
            False,
        ),
        (
            "the quick brown fox jumps over the lazy dog again and again",
            "すばやい茶色のきつねがなまけものの犬を何度もとびこえる",
            False,
        ),
        ("the quick brown fox jumps over the lazy dog again and again", "犬", True),
    ],
)
def test_lopsided_in_words_and_in_characters(source: str, target: str, odd: bool) -> None:
    sizes = [len(side.split()) for side in (source, target)]
    assert lopsided(sizes, (source, target), 9.0) is odd
    assert not lopsided(sizes, (source, target), 0)


def test_overlap_is_by_the_input() -> None:
    train = [Pair("a", "x", 1), Pair("b", "y", 2)]
    assert overlap(PAIRS, train, [Pair("a", "other", 1), Pair("a", "x", 2), Pair("c", "x", 3)]) == 2
    assert overlap(LABELED, [Labeled("a", "1", 1)], [Labeled("b", "1", 1)]) == 0
