"""The report on a file of pairs: each oddity is found at its line, and what is fine is left alone."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
from tests.support import raises

from saccade.data.findings import LEVELS, Finding, Report, measure, report, scan
from saccade.data.pairs import Pair, each_pair


def check_pairs(pairs: list[Pair], name: str, broken: list[Finding] | None = None) -> Report:
    return report("pairs", pairs, name, broken or [])


FINE = Pair("the cat sat on the mat", "le chat était assis")


def found(*pairs: Pair) -> dict[str, Finding]:
    """Findings of these pairs, after two fine ones, by kind."""
    found = check_pairs(
        [Pair("a fine line", "une bonne ligne", 1), Pair(FINE.source, FINE.target, 2), *pairs], "x"
    )
    return {finding.kind: finding for finding in found.findings}


@pytest.mark.parametrize(
    ("kind", "level", "pair"),
    [
        ("duplicates", "note", FINE),
        ("several targets", "note", Pair(FINE.source, "un autre")),
        ("source equals target", "warning", Pair("le même", "le même ")),
        ("length ratio", "warning", Pair("one", "un deux trois quatre cinq six sept")),
        ("length ratio", "warning", Pair("w " * 70, "mot " * 20)),
        ("long line", "warning", Pair("w " * 201, "mot " * 190)),
        ("control characters", "warning", Pair("a\x07bell", "une cloche")),
        ("control characters", "warning", Pair("a bell", "une cloche\x85")),
        ("replacement character", "warning", Pair("caf\ufffd", "café")),
        ("mojibake", "warning", Pair("coffee", "cafÃ©")),
        ("mojibake", "warning", Pair("itâ€™s", "c'est")),
        ("html tag", "warning", Pair("a <B>bold</B> word", "un mot gras")),
        ("html tag", "warning", Pair("a line", 'une <a href="x">ligne</a>')),
        ("html entity", "warning", Pair("bread &amp; butter", "pain beurré")),
        ("html entity", "warning", Pair("bread", "pain &#233;")),
        ("invisible characters", "note", Pair("zero\u200bwidth", "largeur nulle")),
        ("mixed scripts", "note", Pair("p\u0430ypal", "payer")),
    ],
)
def test_each_oddity_is_found_alone_and_at_its_line(kind: str, level: str, pair: Pair) -> None:
    findings = found(pair)
    assert list(findings) == [kind]
    assert (findings[kind].level, findings[kind].count, findings[kind].lines) == (level, 1, [3])


@pytest.mark.parametrize(
    "pair",
    [
        Pair("NÃO É SÃO ÂNGELO", "non, il n'est pas"),
        Pair("the <unk> of 3 < 4 & 5 > 2", "le <unk> de x < y; z > t"),
        Pair("R&D; AT&T", "recherche et développement"),
        # five more words: not more than five
        Pair("one two", "un deux trois quatre cinq six sept"),
        Pair("w " * 10, "mot " * 30),  # three times as long: not more than three times
        Pair("a\ttab", "une tabulation"),
        Pair("Α and А alone", "Ω est grec"),
        Pair("w " * 200, "mot " * 200),
    ],
)
def test_what_is_fine_is_left_alone(pair: Pair) -> None:
    assert found(pair) == {}


def test_only_the_first_five_lines_are_named() -> None:
    pairs = [Pair(f"x {number} &amp;", f"y {number}", 1000 + number) for number in range(8)]
    (finding,) = check_pairs(pairs, "x").findings
    assert finding.count == 8
    assert finding.lines == [1000, 1001, 1002, 1003, 1004]
    assert str(finding) == (
        "warning: 8 pairs with HTML entities such as &amp;; decode them (lines 1,000, 1,001, 1,002, 1,003, 1,004, …)"
    )


def test_text_without_spaces_is_told_once_instead_of_as_ratios() -> None:
    pairs = [
        Pair("this is a rather long line of words", f"これはかなり長い日本語の{number}行です")
        for number in range(6)
    ]
    kinds = [finding.kind for finding in check_pairs(pairs, "x").findings]
    assert "no spaces" in kinds
    assert "length ratio" not in kinds


def test_lengths_by_hand() -> None:
    lengths = measure([1, 2, 3, 10])
    assert lengths.pop("p95") == pytest.approx(3 + 0.85 * 7)
    assert lengths == {"words": 16, "min": 1, "median": 2.5, "mean": 4.0, "max": 10}
    lines = check_pairs([Pair("w " * count, "mot") for count in (1, 2, 3, 10)], "x").lines()
    assert (
        lines[1]
        == "source: 16 words (min 1, median 2.5, mean 4.0, 95% up to 8.95, max 10 per pair)"
    )


def test_a_report_is_plain_and_in_order() -> None:
    pairs = [FINE, FINE, Pair("x", "y"), Pair("caf\ufffd", "café")]
    found = check_pairs(
        pairs, "corpus", [Finding("columns", "error", 1, [5], "corpus, line 5: 1 column")]
    )
    assert found.errors == 1
    assert [finding.level for finding in found.findings] == ["error", "warning", "note"]
    document = found.to_dict()
    assert json.loads(json.dumps(document)) == document
    assert document["pairs"] == 4
    assert document["source"]["words"] == 14
    assert document["findings"][2] == {
        "kind": "duplicates", "level": "note", "count": 1, "lines": [2], "sentence": "1 pair repeating an earlier one",
    }  # fmt: skip
    lines = found.lines()
    assert lines[0] == "corpus: 4 pairs"
    assert lines[1].startswith("source: 14 words (min 1")
    assert lines[-1] == "note: 1 pair repeating an earlier one (line 2)"


def test_a_clean_report_says_so() -> None:
    assert check_pairs([FINE], "x").lines()[-1] == "nothing odd was found"
    assert check_pairs([FINE], "x").lines()[0] == "x: 1 pair"


def test_no_pairs_is_an_error_of_its_own() -> None:
    found = check_pairs([], "x")
    assert [(finding.level, finding.sentence) for finding in found.findings] == [
        ("error", "there are no pairs")
    ]
    assert found.lengths["source"]["max"] == 0


def test_scanning_shows_all_broken_lines_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    lines = [
        b"fine\tbien",
        b"\xff\tb",
        b"only one",
        b"\tempty",
        b"",
        b"x\t",
        b"again\tencore",
        b"a\tb\0",
        b"a\tb\t3-3",
        b"x" * 2_500_000,
    ]
    path.write_bytes(b"\n".join([*lines, b"\xfe\n"]))
    pairs, broken = scan(each_pair(path))
    assert [(pair.source, pair.line) for pair in pairs] == [("fine", 1), ("again", 7)]
    assert {finding.kind: (finding.count, finding.lines) for finding in broken} == {
        "encoding": (2, [2, 11]),
        "columns": (1, [3]),
        "empty side": (2, [4, 6]),
        "empty line": (1, [5]),
        "NUL": (1, [8]),
        "alignment": (1, [9]),
        "long line": (1, [10]),
    }
    assert {finding.level for finding in broken} == {LEVELS[0]}
    found = check_pairs(pairs, "a.tsv", broken)
    assert (found.count, found.errors) == (2, 9)
    assert any(
        "2 broken lines (empty side), the first: " in line and line.endswith("(lines 4, 6)")
        for line in found.lines()
    )
    assert any("a.tsv, line 3: 1 column instead of 2 or 3" in line for line in found.lines())


def test_scanning_parallel_files_goes_on_after_unequal_counts(tmp_path: Path) -> None:
    (tmp_path / "a.en").write_bytes(b"one\n\nthree\nfour\n")
    (tmp_path / "a.fr").write_bytes(b"un\ndeux\ntrois\n")
    pairs, broken = scan(each_pair([tmp_path / "a.en", tmp_path / "a.fr"]))
    assert [pair.line for pair in pairs] == [1, 3]
    assert [(finding.kind, finding.lines) for finding in broken] == [
        ("line counts", []),
        ("empty side", [2]),
    ]
    assert "has 4 lines and" in broken[0].sentence


def test_scanning_keeps_what_came_before_a_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv.gz"
    path.write_bytes(gzip.compress(b"a\tb\n" + os.urandom(9000).hex().encode())[:-4000])
    pairs, broken = scan(each_pair(path))
    assert [pair.line for pair in pairs] == [1]
    assert [finding.kind for finding in broken] == ["cut off"]
    assert "cannot be unpacked after line" in broken[0].sentence


def test_scanning_json_and_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = [
        '{"source": "a", "target": "b"}',
        "no",
        '{"source": "a"}',
        '{"source": "a", "target": "b", "tags": 1}',
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    pairs, broken = scan(each_pair(path))
    assert len(pairs) == 1
    assert [(finding.kind, finding.lines) for finding in broken] == [("JSON", [2, 3, 4])]
    with raises("no-file"):
        scan(each_pair(tmp_path / "b.jsonl.gz"))
