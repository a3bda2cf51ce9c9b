"""One entry point for each kind: embedded corpora by name, files by path."""

from __future__ import annotations

from pathlib import Path

import pytest

from saccade.data.conllu import Sentence
from saccade.data.corpora import (
    CAPTIONED,
    DOCUMENTS,
    GRAPHS,
    LABELED,
    PAIRS,
    SENTENCES,
    corpus,
    documents,
    is_generated,
    labeled,
    sentences,
    table,
)
from saccade.data.documents import Document
from saccade.data.labeled import Labeled
from saccade.data.pairs import Pair

SMALL = {"train": 6, "dev": 2, "test": 3}


def test_the_phrasebook_gives_pairs_sentences_and_documents() -> None:
    pairs = corpus("phrasebook:train", SMALL)
    tagged = sentences("phrasebook:train", SMALL)
    assert len(pairs) == len(tagged) == 6
    for pair, sentence in zip(pairs, tagged, strict=True):
        assert sentence == Sentence(tuple(pair.source.split()), pair.tags, pair.line)
        assert sentence.tags is not None
        assert len(sentence.tags) == len(sentence.words)
    assert documents("phrasebook:train", SMALL) == [
        Document(pair.source, pair.line) for pair in pairs
    ]


def test_dates_and_reviews_give_what_they_are() -> None:
    assert [pair.line for pair in corpus("dates:test", SMALL)] == [1, 2, 3]
    assert documents("dates:dev", SMALL) == [
        Document(pair.source, pair.line) for pair in corpus("dates:dev", SMALL)
    ]
    texts = labeled("reviews:train", SMALL)
    assert [text.label for text in texts] == ["positive", "negative"] * 3
    assert documents("reviews:train", SMALL) == [Document(text.text, text.line) for text in texts]


@pytest.mark.parametrize("name", table.names())
def test_every_embedded_corpus_gives_documents_and_something_else(name: str) -> None:
    assert (name in DOCUMENTS.generated) is (name not in (*GRAPHS.generated, "bags")), (
        "graphs and bags are no texts"
    )
    assert any(name in kind.generated for kind in (PAIRS, SENTENCES, LABELED, CAPTIONED, GRAPHS))
    assert is_generated(f"{name}:dev")
    kinds = [(corpus, PAIRS), (sentences, SENTENCES), (labeled, LABELED), (documents, DOCUMENTS)]
    for read, kind in kinds:
        if name in kind.generated:
            assert len(read(f"{name}:test", SMALL)) == 3  # type: ignore[operator]


def test_what_is_handed_out_can_be_changed_without_harm() -> None:
    first = labeled("reviews:test", SMALL)
    first.clear()
    assert len(labeled("reviews:test", SMALL)) == 3


def test_files_of_every_kind(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("the\tDET\n")
    (tmp_path / "a.txt").write_text("the cat\n\nthe dog\n")
    where = str(tmp_path / "a.tsv")
    assert corpus(where) == [Pair("the", "DET", 1)]
    assert sentences(where) == [Sentence(("the",), ("DET",), 1)]
    assert labeled(where) == [Labeled("the", "DET", 1)]
    assert documents(str(tmp_path / "a.txt")) == [Document("the cat\n\nthe dog\n", 1)]
    assert documents(str(tmp_path / "a.txt"), None, "blank") == [
        Document("the cat", 1),
        Document("the dog", 3),
    ]
