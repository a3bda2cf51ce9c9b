"""Labeled texts and documents: each form a file may have, by hand and back from writing it."""

from __future__ import annotations

import csv
import gzip
import io
import json
import tempfile
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import raises

from saccade.data import documents as text_file
from saccade.data import memory
from saccade.data.corpora import documents as read_documents
from saccade.data.corpora import labeled as read_labeled
from saccade.data.documents import Document
from saccade.data.labeled import Labeled
from support import error_of


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.tsv", "a fine film\tpos\nso, so\t very bad \n", [("a fine film", "pos", 1), ("so, so", "very bad", 2)]),
        ("a.tsv", "sentence\tlabel\nfine\t1\n", [("fine", "1", 2)]),
        ("a.tsv", "fine\t1\ntext\tlabel\n", [("fine", "1", 1), ("text", "label", 2)]),
        ("a.jsonl", '{"text": "a", "label": 2}\n{"text": "b", "label": true}\n', [("a", "2", 1), ("b", "true", 2)]),
        ("a.jsonl", '{"text": "a", "label": "x"}\n{"text": "b"}\n{"text": "c", "label": null}', [("a", "x", 1), ("b", None, 2), ("c", None, 3)]),
        ("a.csv", "id,Label,Text\n7,pos,fine\n", [("fine", "pos", 2)]),
        ("a.csv", 'text,label\n"one, ""two""\r\nthree",pos\nplain,neg\n', [('one, "two"\nthree', "pos", 2), ("plain", "neg", 4)]),
        ("sst.train", "1 a stirring , funny film\n0 too  long\n", [("a stirring , funny film", "1", 1), ("too  long", "0", 2)]),
        ("a.txt", "__label__good a film\n__label__bad __not__ good\n", [("a film", "good", 1), ("__not__ good", "bad", 2)]),
        ("a.tsv.gz", gzip.compress(b"fine\tpos\n", mtime=0), [("fine", "pos", 1)]),
    ],
)  # fmt: skip
def test_each_form_of_labeled_text(
    tmp_path: Path, name: str, content: str | bytes, expected: list[tuple[str, str, int]]
) -> None:
    assert read_labeled(write(tmp_path, name, content)) == [Labeled(*row) for row in expected]


words = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), min_size=1, max_size=12
)
texts = words.filter(lambda drawn: bool(drawn.strip()))
labels = texts.map(str.strip)


@given(st.lists(st.tuples(texts, labels), min_size=1, max_size=4))
def test_csv_and_jsonl_come_back(rows: list[tuple[str, str]]) -> None:
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["text", "label"])
    writer.writerows(rows)
    lines = "\n".join(json.dumps({"text": text, "label": label}) for text, label in rows)
    with tempfile.TemporaryDirectory() as folder:
        found = [
            read_labeled(write(Path(folder), "a.csv", table.getvalue())),
            read_labeled(write(Path(folder), "a.jsonl", lines)),
        ]
    for read in found:
        assert [(row.text, row.label) for row in read] == rows


@given(st.lists(st.tuples(texts, labels), min_size=1, max_size=4))
def test_tsv_comes_back(rows: list[tuple[str, str]]) -> None:
    flat = [
        ("x " + text.replace("\t", " ").replace("\n", " "), " ".join(label.split()) or "y")
        for text, label in rows
    ]
    with tempfile.TemporaryDirectory() as folder:
        read = read_labeled(
            write(Path(folder), "a.tsv", "".join(f"{text}\t{label}\n" for text, label in flat))
        )
    assert [(row.text, row.label, row.line) for row in read] == [
        (*row, line) for line, row in enumerate(flat, 1)
    ]


TEXT = "one\r\n two \n\n\nthree\rhalf\n   \nfour"


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        ("file", [("one\n two \n\n\nthree\rhalf\n   \nfour", 1)]),
        ("line", [("one", 1), (" two ", 2), ("three\rhalf", 5), ("four", 7)]),
        ("blank", [("one\n two ", 1), ("three\rhalf", 5), ("four", 7)]),
    ],
)
def test_each_separation_of_documents(
    tmp_path: Path, documents: str, expected: list[tuple[str, int]]
) -> None:
    for name, content in (
        ("a.txt", TEXT.encode()),
        ("a.txt.gz", gzip.compress(TEXT.encode(), mtime=0)),
        ("a.md", b"\xef\xbb\xbf" + TEXT.encode()),
    ):
        assert read_documents(write(tmp_path, name, content), None, documents) == [
            Document(*row) for row in expected
        ]


@given(
    st.text(
        st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufeff"), min_size=1
    ).filter(lambda t: bool(t.strip()))
)
def test_a_whole_file_comes_back(content: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (found,) = read_documents(write(Path(folder), "a.txt", content))
        (as_json,) = read_documents(write(Path(folder), "a.jsonl", json.dumps({"text": content})))
    assert found == Document(content.replace("\r\n", "\n"), 1)
    assert as_json == Document(content, 1)


def test_several_files_are_one_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "a.txt", "one\n")
    write(tmp_path, "b.jsonl", '{"text": "two\\nlines"}\n{"text": "three"}\n')
    write(tmp_path, "c,d.txt", "comma\n")
    assert read_documents("a.txt, b.jsonl") == [
        Document("one\n", 1),
        Document("two\nlines", 1),
        Document("three", 2),
    ]
    assert read_documents("c,d.txt") == [Document("comma\n", 1)]


def test_a_line_of_a_whole_file_may_be_long_and_the_text_may_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "a.txt", "x" * 1_200_000)
    assert len(read_documents("a.txt")[0].text) == 1_200_000
    assert len(read_documents("a.txt", None, "line")[0].text) == 1_200_000
    monkeypatch.setattr(memory, "free_bytes", lambda: 4_000_000.0)
    sentence = "takes more than 1,000,000 bytes of memory, a quarter of what is free; divide it and name a part"
    write(tmp_path, "b.txt.gz", gzip.compress(b"y" * 5_000_000))
    write(tmp_path, "c.txt", ("z" * 99 + "\n") * 6000)
    for where, how in (("a.txt", ()), ("b.txt.gz", ()), ("c.txt,./c.txt", ("line",))):
        assert error_of(partial(read_documents, where, None, *how)).startswith(
            f"{where} {sentence}"
        )
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(text_file, "MAX_DOCUMENT_BYTES", 1000)
    with raises(
        "line-long-line",
        match=r"^a.txt, line 1: longer than 1,000 bytes; put one document on each line$",
    ):
        read_documents("a.txt", None, "line")
