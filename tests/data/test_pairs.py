"""Files of pairs: what is read, and the sentence each broken input gets."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import random
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import raises

from saccade.data.corpora import corpus as read_pairs
from saccade.data.lines import MAX_LINE_BYTES, open_text
from saccade.data.pairs import Links, Pair, format_pharaoh, parse_pharaoh
from saccade.errors import SaccadeError

GOOD = "the cat\tle chat\n"


def text(draw_from: str) -> st.SearchStrategy[str]:
    """Texts with at least one word; surrogates are no text."""
    letters = st.characters(exclude_categories=["Cs"], exclude_characters=draw_from + "\0")
    return st.text(letters, min_size=1, max_size=12).filter(lambda drawn: bool(drawn.strip()))


def links(source: str, target: str) -> st.SearchStrategy[Links]:
    ends = st.tuples(
        st.integers(0, len(source.split()) - 1), st.integers(0, len(target.split()) - 1)
    )
    return st.lists(ends, unique=True, max_size=5).map(tuple)


@st.composite
def pairs(draw: st.DrawFn, exclude: str, tagged: bool) -> Pair:
    source, target = draw(text(exclude)), draw(text(exclude))
    sure = draw(st.none() | links(source, target))
    possible = None if sure is None else draw(links(source, target)) or None
    count = len(source.split())
    labels = st.text(
        st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"], exclude_characters="_"),
        min_size=1,
        max_size=4,
    )
    tags = (
        draw(st.none() | st.lists(labels, min_size=count, max_size=count).map(tuple))
        if tagged
        else None
    )
    return Pair(source, target, 0, sure, possible, tags)


def as_tsv(pair: Pair) -> str:
    links = [] if pair.alignment is None else [format_pharaoh(pair.alignment, pair.possible or ())]
    return "\t".join([pair.source, pair.target, *links])


def as_json(pair: Pair) -> str:
    links = None if pair.alignment is None else format_pharaoh(pair.alignment, pair.possible or ())
    return json.dumps(
        {"source": pair.source, "target": pair.target, "tags": pair.tags, "alignment": links},
        ensure_ascii=False,
    )


PACKERS: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".xz": lzma.compress}


def come_back(given_pairs: list[Pair], name: str) -> None:
    write = as_tsv if ".tsv" in name.lower() else as_json
    content = "\n".join(map(write, given_pairs)).encode()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(PACKERS.get(path.suffix.lower(), bytes)(content))
        found = read_pairs(path)
    assert found == [replace(pair, line=line) for line, pair in enumerate(given_pairs, 1)]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(pairs("\t\n\r\ufeff", tagged=False), min_size=1, max_size=4),
    st.sampled_from(["a.tsv", "a.tsv.gz", "A.TSV.XZ"]),
)
def test_tsv_comes_back(given_pairs: list[Pair], name: str) -> None:
    come_back(given_pairs, name)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(pairs("", tagged=True), min_size=1, max_size=4),
    st.sampled_from(["a.jsonl", "a.jsonl.gz", "a.jsonl.xz"]),
)
def test_jsonl_comes_back(given_pairs: list[Pair], name: str) -> None:
    come_back(given_pairs, name)


@given(
    st.sets(st.tuples(st.integers(0, 999), st.integers(0, 999))),
    st.sets(st.tuples(st.integers(0, 9), st.integers(0, 9))),
)
def test_pharaoh_comes_back(sure: set[tuple[int, int]], possible: set[tuple[int, int]]) -> None:
    written = format_pharaoh(sorted(sure), sorted(possible))
    assert parse_pharaoh(written) == (tuple(sorted(sure)), tuple(sorted(possible)))


def test_pharaoh_by_hand() -> None:
    assert parse_pharaoh(" 0-0  1-2 1?2 3p4 0-0 3?4") == (((0, 0), (1, 2)), ((1, 2), (3, 4)))
    assert format_pharaoh([(0, 0), (1, 2)]) == "0-0 1-2"
    assert format_pharaoh([(0, 0)], [(2, 1)]) == "0-0 2?1"
    assert parse_pharaoh("") == ((), ())


def test_lines_end_only_at_newline(tmp_path: Path) -> None:
    path = tmp_path / "corpus.en"
    path.write_bytes("\ufeffone\r\ntwo\u2028half\u0085x\x0by\x1cz\rw\n\n last \ufeff".encode())
    assert list(open_text(path)) == ["one", "two\u2028half\u0085x\x0by\x1cz\rw", "", " last \ufeff"]


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_compressed_lines(tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / f"corpus.en{suffix}"
    path.write_bytes(pack("\ufeffdéjà\r\nvu\n".encode()))
    assert list(open_text(str(path))) == ["déjà", "vu"]


def test_parallel_files_in_every_spelling(tmp_path: Path) -> None:
    en, fr = tmp_path / "a.en", tmp_path / "a.fr.gz"
    en.write_text("the cat\nthe dog\n", encoding="utf-8")
    fr.write_bytes(gzip.compress(b"le chat\nle chien"))
    expected = [Pair("the cat", "le chat", 1), Pair("the dog", "le chien", 2)]
    assert (
        read_pairs(f"{en},{fr}")
        == read_pairs(f"{en}, {fr}")
        == read_pairs([str(en), fr])
        == read_pairs((en, fr))
        == expected
    )


def test_a_comma_in_a_file_name_is_only_a_comma(tmp_path: Path) -> None:
    path = tmp_path / "mine, yours.tsv"
    path.write_text(GOOD, encoding="utf-8")
    assert read_pairs(str(path)) == read_pairs([path]) == [Pair("the cat", "le chat", 1)]


def test_links_of_every_spelling(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    same = {"source": "the cat", "target": "le chat"}
    entries = [
        {**same, "alignment": "0-0 1-1 0?1"},
        {**same, "alignment": "0-0 1p1 0-0", "tags": ["DET", "NOUN"], "id": 7},
        {**same, "alignment": "", "tags": None},
        {**same, "alignment": None},
    ]
    path.write_text("\n".join(json.dumps(entry) for entry in entries), encoding="utf-8")
    assert [(pair.alignment, pair.possible, pair.tags) for pair in read_pairs(path)] == [
        (((0, 0), (1, 1)), ((0, 1),), None),
        (((0, 0),), ((1, 1),), ("DET", "NOUN")),
        ((), None, None),
        (None, None, None),
    ]


def test_the_longest_line_is_still_read(tmp_path: Path) -> None:
    path = tmp_path / "a.en"
    path.write_bytes(b"x" * MAX_LINE_BYTES + b"\r\nshort\n")
    assert [len(line) for line in open_text(path)] == [MAX_LINE_BYTES, 5]


BROKEN: list[tuple[str, bytes, str]] = [
    (
        "a.tsv",
        GOOD.encode() * 16 + b"abc\xff\td\n",
        "a.tsv, line 17: not UTF-8 (byte 0xff at column 4); save the file as UTF-8",
    ),
    ("a.tsv", "é\té\nüü\xe9".encode()[:-1], "a.tsv, line 2: not UTF-8 (byte 0xc3 at column 3)"),
    ("a.tsv", GOOD.encode("utf-16"), "a.tsv, line 1: not UTF-8 but UTF-16; save the file as UTF-8"),
    ("a.tsv", b"", "a.tsv is empty; it needs at least one line"),
    ("a.tsv.gz", gzip.compress(b"", mtime=0), "a.tsv.gz is empty"),
    (
        "a.tsv.gz",
        gzip.compress(random.Random(0).randbytes(4000).hex().encode() * 3, mtime=0)[:-500],
        "cannot be unpacked after line 0 (Compressed file ended",
    ),
    ("a.tsv.xz", lzma.compress(GOOD.encode() * 9)[:-20], "a.tsv.xz cannot be unpacked after line"),
    ("a.tsv.gz", GOOD.encode(), "a.tsv.gz cannot be unpacked after line 0 (Not a gzipped file"),
    (
        "a.tsv.xz",
        GOOD.encode(),
        "a.tsv.xz cannot be unpacked after line 0 (Input format not supported",
    ),
    (
        "a.tsv",
        GOOD.encode() + b"no tab\n",
        "a.tsv, line 2: 1 column instead of 2 or 3; a line is source<TAB>target",
    ),
    ("a.tsv", b"a\tb\t0-0\td\n", "a.tsv, line 1: 4 columns instead of 2 or 3"),
    ("a.tsv", GOOD.encode() + b"\n" + GOOD.encode(), "a.tsv, line 2: the line is empty; remove it"),
    ("a.tsv", b"\tle chat\n", "a.tsv, line 1: the source is empty; remove this line"),
    ("a.tsv", "the cat\t \u3000\n".encode(), "a.tsv, line 1: the target is empty"),
    (
        "a.tsv",
        b"a\tb\0\n",
        "a.tsv, line 1: a NUL character in the line at column 4; the text is damaged",
    ),
    (
        "a.tsv",
        b"x" * (MAX_LINE_BYTES + 1) + b"\n",
        "a.tsv, line 1: longer than 1,000,000 bytes; put one sentence on each line",
    ),
    (
        "a.tsv",
        b"a b\tc\t0-0 2-0\n",
        "a.tsv, line 1: the link 2-0 names source word 2, but the source has 2 (counted from 0)",
    ),
    ("a.tsv", b"a b\tc\t1?1\n", "the link 1-1 names target word 1, but the target has 1"),
    ("a.tsv", b"a\tb\t0:0\n", "a.tsv, line 1: '0:0' is not a link; write links as 0-0 1-2"),
    ("a.tsv", b"a\tb\t0--1\n", "'0--1' is not a link"),
    ("a.tsv", "a\tb\t٠-٠\n".encode(), "is not a link"),
    (
        "a.jsonl",
        b'{"source": "a", "target": \n',
        "a.jsonl, line 1: not JSON (Expecting value: line 1 column",
    ),
    ("a.jsonl", b"[" * 200_000, "a.jsonl, line 1: not JSON (maximum recursion depth exceeded"),
    (
        "a.jsonl",
        b'["a", "b"]\n',
        "a.jsonl, line 1: list instead of an object; write one object on each line",
    ),
    (
        "a.jsonl",
        b'{"source": "a", "tgt": "b"}\n',
        '"target" is missing, expected a string; the line has: "source", "tgt"',
    ),
    ("a.jsonl", b"{}", '"source" is missing, expected a string; the line has: nothing'),
    (
        "a.jsonl",
        b'{"source": "a", "target": 3}\n',
        'a.jsonl, line 1: "target" is int, expected a string; the line has: "source", "target"',
    ),
    (
        "a.jsonl",
        b'{"source": "\\ud800", "target": "b"}',
        "a.jsonl, line 1: half of a surrogate pair in the source",
    ),
    (
        "a.jsonl",
        b'{"source": "a", "target": "b\\u0000"}',
        "a.jsonl, line 1: a NUL character in the target",
    ),
    (
        "a.jsonl",
        b'{"source": "a", "target": "b", "alignment": 5}',
        "'5' is not a link; write links as 0-0 1-2",
    ),
    (
        "a.jsonl",
        b'{"source": "a", "target": "b", "alignment": [[0, 0]]}',
        "'[[0,' is not a link; write links as 0-0 1-2",
    ),
    (
        "a.jsonl",
        b'{"source": "a", "target": "b", "alignment": "0?7"}',
        "the link 0-7 names target word 7",
    ),
    ("a.jsonl", b'{"source": "a", "target": "b", "tags": "N"}', '"tags" must be a list of strings'),
    (
        "a.jsonl",
        b'{"source": "a b", "target": "b", "tags": ["N"]}',
        "a.jsonl, line 1: 1 tags for 2 words; give each word one tag",
    ),
    (
        "a.jsonl",
        b'{"source": "a", "target": "b", "tags": ["\\udc00"]}',
        "half of a surrogate pair in the tag",
    ),
    ("a.txt", GOOD.encode(), "pairs cannot be read from '"),
    (
        "a.gz",
        gzip.compress(GOOD.encode(), mtime=0),
        "a.gz'; give one .tsv, .csv or .jsonl file, or two text files",
    ),
]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    BROKEN,
    ids=[f"{name}-{sentence}" for name, _, sentence in BROKEN],
)
def test_each_broken_file_has_its_sentence(
    tmp_path: Path, name: str, content: bytes, sentence: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(SaccadeError) as caught:
        read_pairs(path)
    message = str(caught.value)
    assert sentence in message
    assert name in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("left", "right", "sentence"),
    [
        (
            b"a\nb\n",
            b"c\n",
            "a.en has 2 lines and a.fr has 1; line n of one must translate line n of the other",
        ),
        (
            b"a\n\n",
            b"c\nd\n",
            "a.en, line 2: the source is empty; remove this line from both files",
        ),
        (
            b"a\nb\n",
            b"c\n \t\n",
            "a.fr, line 2: the target is empty; remove this line from both files",
        ),
        (b"a\n", b"\xe9t\xe9\n", "a.fr, line 1: not UTF-8 (byte 0xe9 at column 1)"),
        (b"", b"c\n", "a.en is empty"),
        (b"\n\n\n", b"c\nd\n", "a.en has 3 lines and a.fr has 2"),
    ],
)
def test_each_broken_pair_of_files_has_its_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: bytes, right: bytes, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.en").write_bytes(left)
    Path("a.fr").write_bytes(right)
    with pytest.raises(SaccadeError) as caught:
        read_pairs("a.en,a.fr")
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ("none.tsv", "no file 'none.tsv'; check the path"),
        ("goood.tsv", "no file 'goood.tsv'; did you mean 'good.tsv'?"),
        ("no/such/folder.tsv", "no file 'no/such/folder.tsv'"),
        ("good.tsv/a.tsv", "'good.tsv/a.tsv' cannot be read: Not a directory"),
        (".", ". is a folder, not a file; give one .tsv, .csv or .jsonl file, or two text files"),
        ("a\0.tsv", "cannot be read: embedded null byte"),
        ("", "pairs cannot be read from ''; give one .tsv"),
        ("a,b,c", "pairs cannot be read from 'a, b, c'; give one"),
        ("a.en,", "pairs cannot be read from 'a.en, '"),
        ([], "pairs cannot be read from ''"),
        (["good.tsv", "good.tsv"], "pairs cannot be read from 'good.tsv, good.tsv'; give one .tsv"),
    ],
)
def test_each_wrong_place_has_its_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str | list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good.tsv").write_text(GOOD, encoding="utf-8")
    with pytest.raises(SaccadeError) as caught:
        read_pairs(where)
    assert sentence in str(caught.value)


def test_open_text_names_a_folder_and_a_locked_file(tmp_path: Path) -> None:
    with raises("not-a-file", match=r"is a folder, not a file; give a file in it"):
        list(open_text(tmp_path))
    locked = tmp_path / "locked.en"
    locked.write_text("x", encoding="utf-8")
    locked.chmod(0)
    if not os.access(locked, os.R_OK):  # root reads everything
        with pytest.raises(
            SaccadeError, match=r"cannot be read: Permission denied; check its path and permissions"
        ):
            list(open_text(locked))


def test_a_cut_file_tells_how_far_it_went(tmp_path: Path) -> None:
    path = tmp_path / "a.en.gz"
    path.write_bytes(gzip.compress(b"one\ntwo\nthree\n")[:-8])
    lines = open_text(path)
    assert [next(lines) for _ in range(3)] == ["one", "two", "three"]
    with raises("cannot-unpack", match="cannot be unpacked after line 3"):
        next(lines)
