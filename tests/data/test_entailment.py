"""Pairs of statements: each label follows from the text, by asking every pet that there could be."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from tests.support import raises

from saccade.config import recipes
from saccade.data.corpora import DOCUMENTS, LABELED, PAIRS, read
from saccade.data.generated.entailment import LABELS, MAX_EXAMPLES, WORDS, entailment
from saccade.data.labeled import Labeled

# what each word is true of, written down again: 9 kinds, 6 colors, 7 actions, 6 places
PETS = list(
    itertools.product(
        ["poodle", "terrier", "beagle", "siamese", "tabby", "persian", "parrot", "canary", "finch"],
        ["black", "brown", "white", "cream", "red", "yellow"],
        ["running", "jumping", "climbing", "sleeping", "sitting", "eating", "drinking"],
        [
            "in the garden",
            "in the street",
            "on the roof",
            "in the kitchen",
            "in the cellar",
            "under the bed",
        ],
    )
)
GENERAL = {
    "dog": "poodle terrier beagle", "cat": "siamese tabby persian", "bird": "parrot canary finch",
    "dark": "black brown", "light": "white cream", "bright": "red yellow",
    "moving": "running jumping climbing", "resting": "sleeping sitting", "feeding": "eating drinking",
}  # fmt: skip
OUTSIDE = {"in the garden", "in the street", "on the roof"}


def says(clause: str, pet: tuple[str, ...]) -> bool:
    """Whether `is not a dog` is true of a pet; read from the text alone."""
    assert clause.startswith("is ")
    said = clause.removeprefix("is ")
    denied = said.startswith("not ")
    word = said.removeprefix("not ").removeprefix("an ").removeprefix("a ")
    if word in ("outside", "inside"):
        true = (pet[3] in OUTSIDE) == (word == "outside")
    else:
        true = word in pet or any(one in pet for one in GENERAL.get(word, "").split())
    return true != denied


def true_of(statement: str) -> set[tuple[str, ...]]:
    words = statement.split()
    assert words[:3] == ["the", "pet", "of"]
    assert words[3] in WORDS["owners"]
    clauses = " ".join(words[4:]).replace(" and is ", " , is ").split(" , ")
    return {pet for pet in PETS if all(says(clause, pet) for clause in clauses)}


@pytest.fixture(scope="module")
def book() -> dict[str, list[Labeled]]:
    return entailment(train=300, dev=30, test=150)


def test_every_label_is_what_logic_says(book: dict[str, list[Labeled]]) -> None:
    for one in book["test"][:45]:
        premise, hypothesis = (true_of(each) for each in one.text.split(" | "))
        assert premise
        assert hypothesis
        expected = (
            "entailment"
            if premise <= hypothesis
            else "contradiction"
            if not premise & hypothesis
            else "neutral"
        )
        assert one.label == expected, one.text


def test_a_third_each_nothing_twice_and_one_owner_for_both_statements(
    book: dict[str, list[Labeled]],
) -> None:
    texts = [one.text for part in book.values() for one in part]
    assert len(set(texts)) == len(texts) == 480
    for part in book.values():
        assert set(Counter(one.label for one in part).values()) == {len(part) // 3}
    assert set(LABELS) == {one.label for one in book["dev"]}
    for text in texts:
        first, second = text.split(" | ")
        assert first.split()[3] == second.split()[3]
    assert any("not" in text for text in texts)


def test_the_test_part_does_not_depend_on_the_other_sizes(book: dict[str, list[Labeled]]) -> None:
    assert entailment(train=0, dev=0, test=150)["test"] == book["test"]
    assert entailment(train=0, dev=0, test=150, seed=1)["test"] != book["test"]
    with raises("out-of-range", match=f"at most {MAX_EXAMPLES:,} in all; ask for fewer"):
        entailment(train=MAX_EXAMPLES)


def test_it_has_labels_and_texts_and_no_pairs() -> None:
    sizes = {"train": 3, "dev": 3, "test": 3}
    assert [one.label for one in read(LABELED, "entailment:test", sizes)] == [
        "neutral",
        "contradiction",
        "entailment",
    ]
    assert " | " in read(DOCUMENTS, "entailment:dev", sizes)[0].text
    with raises("corpus-without-part"):
        read(PAIRS, "entailment:test", sizes)


def test_the_three_recipes_read_the_same_parts() -> None:
    plain, pretrained, masked = (
        recipes.read_recipe(f"entailment{name}", []) for name in ("", "-pretrained", "-masked")
    )
    assert plain.data.dev == pretrained.data.dev == masked.data.dev == "entailment:dev"
    assert plain.model == pretrained.model == {**masked.model, "pool": plain.model["pool"]}
    assert pretrained.start_from == "entailment-masked"
    labeled, unlabeled = entailment(50, 6, 6), entailment(90, 6, 6)
    assert unlabeled["train"][:50] == labeled["train"], (
        "what is read without labels first has nothing of the test part"
    )
