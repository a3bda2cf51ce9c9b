"""What is kept back where no dev set is named, and pairs turned round."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import raises

from saccade.config import recipes
from saccade.data.documents import Document
from saccade.data.pairs import Pair
from saccade.system.recipe_data import examples_of
from saccade.tasks.language import LanguageModelling
from saccade.tasks.translation import Translation, swap


@given(count=st.integers(2, 300), share=st.floats(0.001, 0.5))
def test_every_example_is_on_one_side_and_in_its_order(count: int, share: float) -> None:
    train, dev = Translation.divide(list(range(count)), share)
    assert sorted(train + dev) == list(range(count))
    assert (train, dev) == (sorted(train), sorted(dev))
    assert len(dev) == max(1, round(share * count))
    assert (train, dev) == Translation.divide(list(range(count)), share)


@pytest.mark.parametrize(
    ("count", "dev"),
    [(2, 1), (12, 4), (149, 50), (180, 50), (1000, 50), (1001, 50), (4996, 250), (20_000, 1000)],
)
def test_without_a_share_one_in_twenty_is_kept_back_but_at_least_fifty_or_a_third(
    count: int, dev: int
) -> None:
    assert len(Translation.divide(list(range(count)), 0.0)[1]) == dev
    assert len(Translation.divide(list(range(count)), 0.05)[1]) == max(1, round(0.05 * count)), (
        "as runs of before have it"
    )


def test_every_seed_keeps_the_same_back(tmp_path: Path) -> None:
    """So that models of several seeds have one vocabulary, and one set judges them."""
    made = recipe(tmp_path)
    assert examples_of(replace(made, seed=7), "dev") == examples_of(made, "dev")


def test_of_one_long_text_the_end_is_kept_back() -> None:
    text = "".join(f"line {n}\n" for n in range(100))
    [train], [dev] = LanguageModelling.divide([Document(text, 1)], 0.1)
    assert train.text + dev.text == text
    assert len(train.text) == int(0.9 * len(text))
    assert dev.line == 1 + train.text.count("\n")
    with raises(
        "text-too-short",
        match=r"the text is too short to hold a part of it out; give more text, or data.dev",
    ):
        LanguageModelling.divide([Document("x", 1)], 0.1)
    several = LanguageModelling.divide([Document(str(n), n) for n in range(20)], 0.1)
    assert [len(side) for side in several] == [18, 2]


def test_one_example_cannot_be_divided() -> None:
    with raises("one-example"):
        Translation.divide([1], 0.1)


def recipe(tmp_path: Path, **data: object) -> recipes.Recipe:
    (tmp_path / "pairs.tsv").write_text(
        "".join(f"s{n}\tt{n}\n" for n in range(40)), encoding="utf-8"
    )
    return recipes.recipe(
        {"data": {"train": str(tmp_path / "pairs.tsv"), **data}, "model": {"family": "bahdanau"}}
    )


def test_train_and_dev_of_one_file_share_nothing(tmp_path: Path) -> None:
    made = recipe(tmp_path, held_out=0.25)
    train, dev = examples_of(made, "train"), examples_of(made, "dev")
    assert (len(train), len(dev)) == (30, 10)
    assert not {pair.source for pair in train} & {pair.source for pair in dev}
    with raises("data-missing"):
        examples_of(made, "test")


def test_pairs_are_turned_round(tmp_path: Path) -> None:
    plain, swapped = recipe(tmp_path), recipe(tmp_path, swap=True)
    a, b = (Translation.read(made, made.data.train) for made in (plain, swapped))
    assert [(pair.target, pair.source, pair.line) for pair in a] == [
        (pair.source, pair.target, pair.line) for pair in b
    ]
    linked = Pair("a b", "c d e", 3, ((0, 2), (1, 0)), ((1, 1),), ("X", "Y"))
    assert swap(linked) == Pair("c d e", "a b", 3, ((2, 0), (0, 1)), ((1, 1),), None)
    assert swap(swap(Pair("a", "b", 1))) == Pair("a", "b", 1)
