"""Every broken input has its sentence, with file and line: one table over all readers but those of pairs (test_readers has them)."""

from __future__ import annotations

import gzip
import lzma
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.data.corpora import corpus, documents, labeled, sentences
from saccade.errors import SaccadeError


def by_line(where: str) -> Any:
    return documents(where, None, "line")


def row(id_: str, form: str = "w", upos: str = "X", rest: str = "\t_" * 6) -> str:
    return f"{id_}\t{form}\t_\t{upos}{rest}\n"


CUT = "cannot be unpacked after line 0 (Compressed file ended before the end-of-stream marker was reached); fetch it again or rename it"
NOISE = random.Random(0).randbytes(4000).hex().encode()

# reader, file name, content, the whole sentence ("…" stands for anything)
TABLE: list[tuple[Callable[[str], Any], str, str | bytes, str]] = [
    # CoNLL-U
    (
        sentences,
        "a.conllu",
        "1\tw\tX\n",
        "a.conllu, line 1: 3 columns instead of 10; a line is ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC, separated by tabs",
    ),
    (
        sentences,
        "a.conllu",
        "1 w _ X _ _ _ _ _ _\n",
        "a.conllu, line 1: 1 column instead of 10; a line is …",
    ),
    (
        sentences,
        "a.conllu",
        row("1") + "\n" + row("1", ""),
        "a.conllu, line 3: the column FORM is empty; write _ where nothing is known",
    ),
    (
        sentences,
        "a.conllu",
        row("1", upos=""),
        "a.conllu, line 1: the column UPOS is empty; write _ where nothing is known",
    ),
    (
        sentences,
        "a.conllu",
        "# c\n" + row("1") + row("3"),
        "a.conllu, line 3: the id is '3', expected 2, 2-3 before a range of words, or 1.1 for an empty node; an empty line ends a sentence",
    ),
    (sentences, "a.conllu", row("1") + row("1"), "a.conllu, line 2: the id is '1', expected 2, …"),
    (sentences, "a.conllu", row("0"), "a.conllu, line 1: the id is '0', expected 1, …"),
    (
        sentences,
        "a.conllu",
        row("one"),
        "a.conllu, line 1: the id is 'one', expected 1, 1-2 before a range of words, or 0.1 for an empty node; an empty line ends a sentence",
    ),
    (sentences, "a.conllu", row("²"), "a.conllu, line 1: the id is '²', expected 1, …"),
    (
        sentences,
        "a.conllu",
        row("2-3") + row("1"),
        "a.conllu, line 1: the id is '2-3', expected 1, 1-2 before a range of words, or 0.1 for an empty node; an empty line ends a sentence",
    ),
    (
        sentences,
        "a.conllu",
        row("1-1") + row("1"),
        "a.conllu, line 1: the id is '1-1', expected 1, 1-2 before a range of words, or 0.1 for an empty node; an empty line ends a sentence",
    ),
    (
        sentences,
        "a.conllu",
        row("1-2") + row("1-2") + row("1") + row("2"),
        "a.conllu, line 2: the id is '1-2', expected 1, …",
    ),
    (
        sentences,
        "a.conllu",
        row("1-3") + row("1") + row("2"),
        "a.conllu, line 3: a range continues to word 3, but the sentence ends with word 2",
    ),
    (
        sentences,
        "a.conllu",
        row("1") + row("1.2"),
        "a.conllu, line 2: the id is '1.2', expected 2, 2-3 before a range of words, or 1.1 for an empty node; an empty line ends a sentence",
    ),
    (
        sentences,
        "a.conllu",
        row("1") + row("2.1"),
        "a.conllu, line 2: the id is '2.1', expected 2, 2-3 before a range of words, or 1.1 for an empty node; an empty line ends a sentence",
    ),
    (
        sentences,
        "a.conllu",
        row("1") + row("2", "cat", "_"),
        "a.conllu, line 2: the word 'cat' has no UPOS, but others of its sentence have; tag all words of a sentence or none",
    ),
    (
        sentences,
        "a.conllu",
        row("1") + "\n# text = nothing\n\n",
        "a.conllu, line 3: a sentence without words; add its words or remove its lines",
    ),
    (
        sentences,
        "a.conllu",
        row("1").encode() + b"2\t\xff\n",
        "a.conllu, line 2: not UTF-8 (byte 0xff at column 3); save the file as UTF-8",
    ),
    (
        sentences,
        "a.conllu",
        row("1").encode("utf-16"),
        "a.conllu, line 1: not UTF-8 but UTF-16; save the file as UTF-8",
    ),
    (
        sentences,
        "a.conllu",
        row("1", "a\0b"),
        "a.conllu, line 1: a NUL character in the line at column 4; the text is damaged",
    ),
    (
        sentences,
        "a.conllu",
        row("1", "x" * 1_000_001),
        "a.conllu, line 1: longer than 1,000,000 bytes; put one sentence on each line",
    ),
    (sentences, "a.conllu", "\n\n\n", "a.conllu holds no sentences with tags; add at least one"),
    (sentences, "a.conllu", "", "a.conllu is empty; it needs at least one line"),
    (sentences, "a.conllu.gz", gzip.compress(NOISE, mtime=0)[:-900], f"a.conllu.gz {CUT}"),
    (
        sentences,
        "a.conllu.xz",
        row("1"),
        "a.conllu.xz cannot be unpacked after line 0 (Input format not supported by decoder); fetch it again or rename it",
    ),
    (
        sentences,
        "a.en",
        "a b\n",
        "'a.en' does not end in .conllu, .tsv, .jsonl, .txt, so its format is not known; give a .conllu, …",
    ),
    (
        lambda where: sentences(where, None, "uppos"),
        "a.conllu",
        row("1"),
        "no tag column named 'uppos'; did you mean 'upos'?",
    ),
    (
        sentences,
        "a.conllu",
        row("1") + row("2", "cat", rest="\t_\t_\t3\t_\t_\t_"),
        "a.conllu, line 2: the head of 'cat' is 3, and the sentence has words 1 to 2; write a word's id, 0 for the root, or _",
    ),
    (
        sentences,
        "a.conllu",
        row("1", rest="\t_\t_\t-1\t_\t_\t_"),
        "a.conllu, line 1: the head of 'w' is -1, and …",
    ),
    (
        sentences,
        "a.conllu",
        row("1", rest="\t_\t_\t1.1\t_\t_\t_"),
        "a.conllu, line 1: the head of 'w' is 1.1, and …",
    ),
    # word<TAB>tag, JSONL and plain text
    (
        sentences,
        "a.tsv",
        "the\tDET\ncat\n",
        "a.tsv, line 2: 1 column instead of 2; a line is word<TAB>tag, and an empty line ends a sentence",
    ),
    (sentences, "a.tsv", "the\tDET\t1\n", "a.tsv, line 1: 3 columns instead of 2; a line is …"),
    (sentences, "a.tsv", "the\t\n", "a.tsv, line 1: a tag is empty; write the tag"),
    (sentences, "a.tsv", "\tDET\n", "a.tsv, line 1: a word is empty; write the word"),
    (
        sentences,
        "a.tsv",
        "the\tDET\ncat\t_\n",
        "a.tsv, line 2: the word 'cat' has no tag, but others of its sentence have; tag all words of a sentence or none",
    ),
    (sentences, "a.jsonl", '{"tags": ["X"]}', 'a.jsonl, line 1: "words" must be a list of strings'),
    (
        sentences,
        "a.jsonl",
        '{"words": "the cat"}',
        'a.jsonl, line 1: "words" must be a list of strings',
    ),
    (
        sentences,
        "a.jsonl",
        '{"words": ["a"], "tags": [1]}',
        'a.jsonl, line 1: "tags" must be a list of strings',
    ),
    (
        sentences,
        "a.jsonl",
        '{"words": ["a", "b"], "tags": ["X"]}',
        "a.jsonl, line 1: 1 tags for 2 words; give each word one tag",
    ),
    (
        sentences,
        "a.jsonl",
        '{"words": []}',
        "a.jsonl, line 1: a sentence without words; add its words or remove the line",
    ),
    (
        sentences,
        "a.jsonl",
        '{"words": ["a\\tb"]}',
        "a.jsonl, line 1: a tab or a line break in a word; remove it",
    ),
    (
        sentences,
        "a.jsonl",
        '{"words": ["\\ud800"]}',
        "a.jsonl, line 1: half of a surrogate pair in the word at column 1; the text is damaged",
    ),
    (sentences, "a.txt", "the cat\n\nthe dog\n", "a.txt, line 2: the line is empty; remove it"),
    # labeled texts
    (
        labeled,
        "a.tsv",
        "fine\tpos\nno label\n",
        "a.tsv, line 2: 1 column instead of 2; a line is text<TAB>label",
    ),
    (labeled, "a.tsv", "fine\t \n", "a.tsv, line 1: the label is empty; write one for each text"),
    (labeled, "a.tsv", " \tpos\n", "a.tsv, line 1: the text is empty; remove this line"),
    (labeled, "a.tsv", "text\tlabel\n", "a.tsv holds no texts with labels; add at least one"),
    (labeled, "a.tsv", "a\tb\n\n", "a.tsv, line 2: the line is empty; remove it"),
    (
        labeled,
        "a.jsonl",
        '{"label": 1}',
        'a.jsonl, line 1: "text" is missing, expected a string; the line has: "label"',
    ),
    (
        labeled,
        "a.jsonl",
        '{"text": 1}',
        'a.jsonl, line 1: "text" is int, expected a string; the line has: "text"',
    ),
    (
        labeled,
        "a.jsonl",
        '{"text": "a", "label": 0.5}',
        'a.jsonl, line 1: "label" is float instead of text, a whole number, true or false',
    ),
    (
        labeled,
        "a.jsonl",
        '{"text": "a", "label": ["x"]}',
        'a.jsonl, line 1: "label" is list instead of text, a whole number, true or false',
    ),
    (
        labeled,
        "a.jsonl",
        "[]",
        "a.jsonl, line 1: list instead of an object; write one object on each line",
    ),
    (
        labeled,
        "a.jsonl",
        '{"text": "a"',
        "a.jsonl, line 1: not JSON (Expecting ',' delimiter: line 1 column 13 (char 12)); write one object on each line",
    ),
    (
        labeled,
        "a.csv",
        "fine film,pos\n",
        "a.csv, line 1: expected one column named text and one named label, got: 'fine film', 'pos'; rename them, or choose columns "
        "by name or number, such as a.csv#1,2",
    ),
    (
        labeled,
        "a.csv",
        "review,sentence,label\n",
        "a.csv, line 1: expected one column named text and one named label, got: 'review', 'sentence', 'label'; …",
    ),
    (labeled, "a.csv", "text,label\n", "a.csv holds no texts with labels; add at least one"),
    (
        labeled,
        "a.csv",
        "text,label\nwell, fine,pos\n",
        "a.csv, line 2: 3 columns instead of the 2 of line 1; put quotes around a text with commas",
    ),
    (
        labeled,
        "a.csv",
        'text,label\n"open,pos\n',
        "a.csv, line 2: invalid CSV (unexpected end of data); close each quote, and double those inside a text",
    ),
    (
        labeled,
        "a.csv",
        'text,label\n"a" b,pos\n',
        "a.csv, line 2: invalid CSV (',' expected after '\"'); close …",
    ),
    (
        labeled,
        "a.csv",
        '"text,label\n',
        "a.csv, line 1: invalid CSV (unexpected end of data); close each quote, and double those inside a text",
    ),
    (labeled, "a.csv", "text,label\nfine,pos\n\n", "a.csv, line 3: the line is empty; remove it"),
    (
        labeled,
        "a.csv",
        b'text,label\n"a\nb\xe9",pos\n',
        "a.csv, line 3: not UTF-8 (byte 0xe9 at column 2); save the file as UTF-8",
    ),
    (
        labeled,
        "a.csv",
        b"\xff\xfet\0",
        "a.csv, line 1: not UTF-8 but UTF-16; save the file as UTF-8",
    ),
    (
        labeled,
        "a.csv",
        "text,label\na,\n",
        "a.csv, line 2: the label is empty; write one for each text",
    ),
    (
        labeled,
        "sst",
        "1 fine\n0\n",
        "sst, line 2: the label '0' without a text; a line is LABEL TEXT",
    ),
    (
        labeled,
        "a.ft",
        "__label__a fine\nb bad\n",
        "a.ft, line 2: 'b' is without __label__, unlike line 1; write all lines alike",
    ),
    (
        labeled,
        "a.ft",
        "a fine\n__label__b bad\n",
        "a.ft, line 2: '__label__b' is with __label__, unlike line 1; write all lines alike",
    ),
    (
        labeled,
        "a.ft",
        "__label__a __label__b fine\n",
        "a.ft, line 1: more than one label: '__label__a', '__label__b'; give each text one",
    ),
    (
        labeled,
        "a.ft",
        "__label__ fine\n",
        "a.ft, line 1: the label is empty; write one for each text",
    ),
    (
        labeled,
        "a.conllu",
        row("1"),
        "a.conllu holds sentences with tags, not texts with labels; give a .tsv …",
    ),
    # documents
    (documents, "a.txt", "", "a.txt is empty; it needs at least one line"),
    (documents, "a.txt", " \n\n", "a.txt holds no documents; add at least one"),
    (
        documents,
        "a.txt",
        "one\nt\u00e9wo ".encode() + b"\xe9 x\n",
        "a.txt, line 2: not UTF-8 (byte 0xe9 at column 6); save the file as UTF-8",
    ),
    (
        documents,
        "a.txt",
        "one\ntwo\0\n",
        "a.txt, line 2: a NUL character in the line at column 4; the text is damaged",
    ),
    (
        documents,
        "a.txt",
        "text".encode("utf-16"),
        "a.txt, line 1: not UTF-8 but UTF-16; save the file as UTF-8",
    ),
    (documents, "a.txt.gz", gzip.compress(NOISE, mtime=0)[:-900], f"a.txt.gz {CUT}"),
    (documents, "a.txt.xz", lzma.compress(NOISE)[:-20], "a.txt.xz cannot be unpacked after line …"),
    (
        by_line,
        "a.txt",
        b"one\n\xff\n",
        "a.txt, line 2: not UTF-8 (byte 0xff at column 1); save the file as UTF-8",
    ),
    (
        by_line,
        "a.txt",
        "one\n\0\n",
        "a.txt, line 2: a NUL character in the line at column 1; the text is damaged",
    ),
    (
        documents,
        "a.jsonl",
        '{"texts": "a"}',
        'a.jsonl, line 1: "text" is missing, expected a string; the line has: "texts"',
    ),
    (
        documents,
        "a.jsonl",
        '{"text": "a"}\n{"text": " "}',
        "a.jsonl, line 2: the text is empty; remove this line",
    ),
    (
        documents,
        "a.jsonl",
        '{"text": null}',
        'a.jsonl, line 1: "text" is NoneType, expected a string; the line has: "text"',
    ),
    (
        lambda where: documents(where, None, "lines"),
        "a.txt",
        "x",
        "documents cannot be separated by 'lines'; did you mean 'line'?",
    ),
    # pairs, in short: the rest is in test_readers
    (
        corpus,
        "a.tsv",
        "a\tb\nc\n",
        "a.tsv, line 2: 1 column instead of 2 or 3; a line is source<TAB>target, and may continue with <TAB>alignment",
    ),
]


@pytest.mark.parametrize(
    ("read", "name", "content", "sentence"),
    TABLE,
    ids=[f"{n}-{row[1]}-{row[3][:70]}" for n, row in enumerate(TABLE)],
)
def test_each_broken_file_has_its_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[str], Any],
    name: str,
    content: str | bytes,
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(SaccadeError) as caught:
        read(name)
    told = str(caught.value)
    assert (
        told.startswith(sentence.removesuffix("…")) if sentence.endswith("…") else told == sentence
    )
    assert "\n" not in told


WHERE: list[tuple[Callable[[str], Any], str, str]] = [
    (sentences, "nothing.txt", "no file 'nothing.txt'; check the path"),
    (sentences, "goood.conllu", "no file 'goood.conllu'; did you mean 'good.conllu'?"),
    (
        sentences,
        ".",
        ". is a folder, not a file; give a .conllu, .tsv (word<TAB>tag), .jsonl or .txt file of sentences (each may end in .gz or .xz)",
    ),
    (
        labeled,
        "",
        ". is a folder, not a file; give a .tsv (text<TAB>label), .jsonl or .csv file, or one of lines 'LABEL TEXT' (each may end in .gz or .xz)",
    ),
    (labeled, "none.csv", "no file 'none.csv'; check the path"),
    (documents, "good.conllu,none.txt", "no file 'none.txt'; check the path"),
    (
        documents,
        "good.conllu,",
        '. is a folder, not a file; give text files or .jsonl files with "text", separated by commas (each may end in .gz or .xz)',
    ),
    (
        corpus,
        "reviews:train",
        "the corpus 'reviews' has no pairs; those that have: phrasebook, dates",
    ),
    (
        sentences,
        "dates:train",
        "the corpus 'dates' has no sentences with tags; those that have: phrasebook",
    ),
    (
        labeled,
        "phrasebook:train",
        "the corpus 'phrasebook' has no texts with labels; those that have: reviews",
    ),
    (labeled, "reviews:trian", "'reviews:trian' is not a part of reviews; did you mean 'train'?"),
    (documents, "dates", "'dates' is not a part of dates; there are: dev, test, train"),
    (
        lambda where: labeled(where, {"trian": 5}),
        "reviews:train",
        "the corpus 'reviews' cannot be generated with {'trian': 5}: reviews() got an unexpected keyword argument 'trian'",
    ),
]


@pytest.mark.parametrize(
    ("read", "where", "sentence"), WHERE, ids=[f"{n}-{row[1]}" for n, row in enumerate(WHERE)]
)
def test_each_wrong_place_has_its_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[str], Any],
    where: str,
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good.conllu").write_text(row("1"), encoding="utf-8")
    with pytest.raises(SaccadeError) as caught:
        read(where)
    assert str(caught.value).startswith(sentence)


SCRAPS = st.sampled_from(
    b'1 \t \n \r " , text label { } : [ ] _ # 1-2 \xff \0 \xef\xbb\xbf words tags __label__ \\ud800 1e999 null \xc3\xa9'.split(
        b" "
    )
) | st.just(b" ")
READERS: list[tuple[Callable[[str], Any], str]] = [
    *((sentences, f"a{suffix}") for suffix in (".conllu", ".tsv", ".jsonl", ".txt")),
    *((labeled, f"a{suffix}") for suffix in (".tsv", ".jsonl", ".csv", ".train")),
    *((documents, f"a{suffix}") for suffix in (".txt", ".jsonl", ".txt.gz")),
    (by_line, "a.txt"),
]


@pytest.mark.parametrize(
    ("read", "name"), READERS, ids=[f"{n}-{name}" for n, (_, name) in enumerate(READERS)]
)
@given(content=st.binary(max_size=40) | st.lists(SCRAPS, max_size=25).map(b"".join))
def test_whatever_a_file_holds_it_is_read_or_refused(
    read: Callable[[str], Any], name: str, content: bytes
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        told = ""
        try:
            assert read(str(path))
        except SaccadeError as error:
            told = str(error)
    assert not told or str(path) in told
    assert "\n" not in told
