"""Datasets: the columns each kind is read from, folders written by `save_to_disk`, and what is said when something is missing."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support import raises

from saccade.data import hub
from saccade.data.conllu import Sentence
from saccade.data.corpora import corpus, documents, labeled, sentences
from saccade.data.documents import Document
from saccade.data.labeled import Labeled
from saccade.data.pairs import Pair
from saccade.errors import SaccadeError


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with raises("package-missing") as caught:
        corpus("hub:wmt14:de-en:train#de,en")
    assert str(caught.value) == (
        "'hub:wmt14:de-en:train#de,en' needs the package datasets; install it with: pip install 'saccade-attention[hub]'"
    )


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        (
            "hub:wmt14",
            "'hub:wmt14' does not name a dataset and a split; write hub:NAME:SPLIT or hub:NAME:CONFIG:SPLIT, such as",
        ),
        ("hub:", "'hub:' does not name a dataset and a split"),
        ("hub:a:b:c:d", "'hub:a:b:c:d' does not name a dataset and a split"),
        ("hub:a::train", "'hub:a::train' does not name a dataset and a split"),
        (
            "hub:a:train#x",
            "'hub:a:train#x' names 1 columns after the #, but 2 are read; write them as #a,b",
        ),
        ("hub:a:train#x,y,z", "'hub:a:train#x,y,z' names 3 columns after the #"),
        ("hub:a:train#", "'hub:a:train#' names 1 columns after the #"),
    ],
)
def test_names_that_are_none(where: str, sentence: str) -> None:
    with pytest.raises(SaccadeError) as caught:
        corpus(where)
    assert str(caught.value).startswith(sentence)


@pytest.fixture
def datasets(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("datasets", exc_type=ImportError)
    module = importlib.import_module("datasets")
    module.disable_progress_bars()
    return module


@pytest.fixture
def asked(datasets: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the hub is asked for, instead of asking it: every dataset there has one row."""
    calls: list[tuple[Any, ...]] = []

    def load(*names: str, split: str) -> Any:
        calls.append((*names, split))
        return datasets.Dataset.from_dict({"source": ["a"], "target": ["b"]})

    monkeypatch.setattr(datasets, "load_dataset", load)
    return calls


def test_the_hub_is_asked_for_name_configuration_and_split(asked: list[tuple[Any, ...]]) -> None:
    for where in (
        "hub:me/mine:train",
        "hub:wmt14:de-en:test",
        "hub:x:train[:10%]",
        "hub:x:y:train[5:]#source,target",
    ):
        assert corpus(where) == [Pair("a", "b", 1)]
    assert asked == [
        ("me/mine", "train"),
        ("wmt14", "de-en", "test"),
        ("x", "train[:10%]"),
        ("x", "y", "train[5:]"),
    ]


def test_what_the_library_says_is_told_in_one_sentence(
    datasets: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*names: str, split: str) -> Any:
        raise ConnectionError("Couldn't reach 'x' on the Hub\nand much more")

    monkeypatch.setattr(datasets, "load_dataset", load)
    with pytest.raises(SaccadeError) as caught:
        corpus("hub:x:train")
    assert str(caught.value) == (
        "'hub:x:train' cannot be loaded: Couldn't reach 'x' on the Hub; check its name, its split and the network"
    )


@pytest.fixture
def saved(datasets: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`all`, one dataset with a column of every sort, and `parts`, the same as a train and a test split."""
    monkeypatch.chdir(tmp_path)
    strings = datasets.Value("string")
    features = {
        "source": strings,
        "target": strings,
        "english": strings,
        "translation": datasets.Translation(languages=("de", "en")),
        "text": strings,
        "label": datasets.ClassLabel(names=["neg", "pos"]),
        "stars": datasets.Value("int64"),
        "tokens": datasets.Sequence(strings),
        "upos": datasets.Sequence(datasets.ClassLabel(names=["NOUN", "VERB"])),
        "xpos": datasets.Sequence(strings),
        "numbers": datasets.Sequence(datasets.Value("int64")),
    }
    columns = {
        "source": ["Hund", "Katze"],
        "target": ["chien", "chat"],
        "english": ["dog", "cat"],
        "translation": [{"de": "ein Hund", "en": "a dog"}, {"de": "eine Katze", "en": "a cat"}],
        "text": ["dogs bark", "cats"],
        "label": [1, -1],
        "stars": [5, 2],
        "tokens": [["dogs", "bark"], ["cats"]],
        "upos": [[0, 1], [-1]],
        "xpos": [["NNS", "VB"], ["NNS"]],
        "numbers": [[7, 8], [9]],
    }
    data = datasets.Dataset.from_dict(columns, features=datasets.Features(features))
    data.save_to_disk("all")
    datasets.DatasetDict({"train": data, "test": data.select([1])}).save_to_disk("parts")
    data.remove_columns(["source", "target", "text"]).save_to_disk("few")
    return tmp_path


def test_a_folder_is_known_by_what_it_holds(saved: Path) -> None:
    (saved / "empty").mkdir()
    assert all(
        map(
            hub.in_hub,
            (
                "all",
                str(saved / "all"),
                "parts:train",
                "parts#a,b",
                "hub:all",
                "hub:glue:sst2:train",
            ),
        )
    )
    assert not any(map(hub.in_hub, ("empty", "none", "a.tsv", "a.en,a.fr", "", "phrasebook:train")))


def test_each_kind_is_read_from_its_usual_columns(saved: Path) -> None:
    assert (
        corpus("all")
        == corpus("hub:all")
        == corpus(str(saved / "all"))
        == [Pair("Hund", "chien", 1), Pair("Katze", "chat", 2)]
    )
    assert sentences("all") == [
        Sentence(("dogs", "bark"), ("NOUN", "VERB"), 1),
        Sentence(("cats",), None, 2),
    ]
    assert sentences("all", None, "xpos") == [
        Sentence(("dogs", "bark"), ("NNS", "VB"), 1),
        Sentence(("cats",), ("NNS",), 2),
    ]
    assert labeled("all") == [Labeled("dogs bark", "pos", 1), Labeled("cats", None, 2)]
    assert documents("all") == [Document("dogs bark", 1), Document("cats", 2)]


def test_other_columns_are_named_after_the_mark(saved: Path) -> None:
    assert corpus("all#english,target")[0] == Pair("dog", "chien", 1)
    assert corpus("all#en,de")[0] == corpus("few#en,de")[0] == Pair("a dog", "ein Hund", 1)
    assert labeled("hub:all#english,stars") == [Labeled("dog", "5", 1), Labeled("cat", "2", 2)]
    assert labeled("all#english")[0] == Labeled("dog", None, 1)
    assert sentences("all#tokens,numbers")[0] == Sentence(("dogs", "bark"), ("7", "8"), 1)
    assert sentences("all#tokens")[0] == Sentence(("dogs", "bark"), None, 1)
    assert documents("all#english")[1] == Document("cat", 2)


def test_splits_of_a_folder(saved: Path) -> None:
    assert corpus("parts:test") == corpus("hub:parts:test") == [Pair("Katze", "chat", 1)]
    assert labeled("parts:train#english,label")[0] == Labeled("dog", "pos", 1)


@pytest.mark.parametrize(
    ("read", "where", "sentence"),
    [
        (corpus, "parts", "'parts' does not name a split of parts; there are: test, train"),
        (
            corpus,
            "parts:tran",
            "'parts:tran' does not name a split of parts; did you mean 'train'?",
        ),
        (
            corpus,
            "all:train",
            "'all:train' names the split 'train', but all has no splits; leave it out",
        ),
        (
            corpus,
            "all#source,goal",
            "'all#source,goal' has no column 'goal' (name others at the end as #a,b); ",
        ),
        (
            corpus,
            "few",
            "'few' has no column 'source' (name others at the end as #a,b); there are: de, en, english, ",
        ),
        (
            corpus,
            "few#de,fr",
            "'few#de,fr' has no column 'fr' (name others at the end as #a,b); there are: de, en, english, ",
        ),
        (
            labeled,
            "few",
            "'few' has no column 'text' (name others at the end as #a,b); there are: de, en, english, ",
        ),
        (documents, "few", "'few' has no column 'text' (name others at the end as #a,b)"),
        (
            documents,
            "all#stars",
            'all#stars, line 1: "stars" is int, expected a string; the line has: "stars"',
        ),
        (sentences, "all#english", 'all#english, line 1: "words" must be a list of strings'),
        (
            labeled,
            "all#tokens,label",
            'all#tokens,label, line 1: "tokens" is list, expected a string; the line has: "tokens", "label"',
        ),
    ],
)
def test_what_is_missing_is_told(saved: Path, read: Any, where: str, sentence: str) -> None:
    with pytest.raises(SaccadeError) as caught:
        read(where)
    assert str(caught.value).startswith(sentence)


def test_empty_and_missing_texts_are_named_by_row(
    datasets: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    datasets.Dataset.from_dict(
        {"source": ["a", None], "target": ["b", "c"], "text": ["x", " "], "label": ["l", "m"]}
    ).save_to_disk("bad")
    with pytest.raises(
        SaccadeError,
        match=r'^bad, line 2: "source" is NoneType, expected a string; the line has: "source", "target"$',
    ):
        corpus("bad")
    with pytest.raises(SaccadeError, match=r"^bad, line 2: the text is empty; remove this line$"):
        labeled("bad")
    (tmp_path / "bad" / "state.json").write_text("no")
    with pytest.raises(SaccadeError, match=r"^'bad' cannot be loaded: "):
        corpus("bad")
