"""The reviews: every label follows from the text by the rules told, and not from counting its words."""

from __future__ import annotations

import hashlib
from collections import Counter

import numpy as np
import pytest
from tests.support import raises

from saccade.data.generated.reviews import LABELS, MAX_EXAMPLES, WORDS, reviews
from saccade.data.labeled import Labeled

GOOD = {*WORDS["good"], *WORDS["liked"], *WORDS["best"]} | {
    WORDS["plain"][verb] for verb in WORDS["liked"]
}
BAD = {*WORDS["bad"], *WORDS["disliked"], *WORDS["worst"]} | {
    WORDS["plain"][verb] for verb in WORDS["disliked"]
}

# each reverses its clause
FLIPS = {"not", "never", "hardly", "nothing", "nobody", "without", "anything"}


@pytest.fixture(scope="module")
def book() -> dict[str, list[Labeled]]:
    return reviews(train=4000, dev=200, test=600)


def polarity(clause: list[str]) -> bool | None:
    """Whether a clause praises; None where it is no opinion. Read from the left, without knowing how clauses are made."""
    good: bool | None = None
    for place, token in enumerate(clause):
        if token in GOOD | BAD:
            assert good is None, f"two opinions in {clause}"
            good = token in GOOD
        elif token in WORDS["two_sided"] and clause[0] == "the" and clause[2] == "was":
            praised, blamed = WORDS["two_sided"][token]
            assert clause[1] in praised + blamed
            good = clause[1] in praised
        assert token != "but" or clause[place - 1] == "anything"
    if good is None:
        return None
    flips = [token for token in clause if token in FLIPS]
    assert len(flips) <= 1
    return good != bool(flips)


def read(sentence: str) -> bool | None:
    """What a sentence comes to, by the rules of contrast in the docstring."""
    if sentence.startswith("although "):
        return polarity(sentence.split(" , ")[1].split())
    if " , although " in sentence:
        return polarity(sentence.split(" , although ")[0].split())
    if " , but " in sentence:
        return polarity(sentence.split(" , but ")[1].split())
    return polarity(sentence.split())


def test_every_label_follows_from_the_text(book: dict[str, list[Labeled]]) -> None:
    for entry in book["train"]:
        found = {read(sentence) for sentence in entry.text.removesuffix(" .").split(" . ")} - {None}
        assert found == {entry.label == "positive"}, entry


def test_in_a_contrast_the_other_half_says_the_opposite(book: dict[str, list[Labeled]]) -> None:
    seen = 0
    for entry in book["train"]:
        for sentence in entry.text.removesuffix(" .").split(" . "):
            if " , but " in sentence and "called it" not in sentence:
                left, right = sentence.split(" , but ")
                assert polarity(left.split()) is (not polarity(right.split()))
                seen += 1
    assert seen > 100


def test_parts_share_no_text_and_labels_are_half_and_half(book: dict[str, list[Labeled]]) -> None:
    texts = [entry.text for part in book.values() for entry in part]
    assert len(set(texts)) == len(texts) == 4800
    for part in book.values():
        assert Counter(entry.label for entry in part) == dict.fromkeys(LABELS, len(part) // 2)
        assert [entry.line for entry in part] == list(range(1, len(part) + 1))


def test_the_same_seed_gives_the_same_corpus_everywhere() -> None:
    made = reviews(train=50, dev=5, test=20)
    content = "\n".join(f"{entry.label} {entry.text}" for part in made.values() for entry in part)
    assert hashlib.sha256(content.encode()).hexdigest()[:16] == "ac0891d94f5816fa"
    assert reviews(train=7, dev=0, test=20)["test"] == made["test"], (
        "the test part does not depend on the other sizes"
    )
    assert reviews(train=50, dev=5, test=20, seed=1) != made


def test_a_bag_of_words_falls_short(book: dict[str, list[Labeled]]) -> None:
    """Logistic regression over counts by plain gradient descent: better than a coin, clearly less than a reader."""
    vocabulary = {
        word: place
        for place, word in enumerate(sorted({w for e in book["train"] for w in e.text.split()}))
    }

    def counts(part: list[Labeled]) -> tuple[np.ndarray, np.ndarray]:
        matrix = np.zeros((len(part), len(vocabulary)))
        for row, entry in enumerate(part):
            for word in entry.text.split():
                if word in vocabulary:
                    matrix[row, vocabulary[word]] += 1
        return matrix, np.array([entry.label == "positive" for entry in part], dtype=float)

    x, y = counts(book["train"])
    weights = np.zeros(len(vocabulary))
    for _ in range(300):
        weights -= 1.0 * (x.T @ (1 / (1 + np.exp(-x @ weights)) - y) / len(y) + 1e-4 * weights)
    x, y = counts(book["test"])
    accuracy = float(((x @ weights > 0) == y).mean())
    assert 0.75 < accuracy < 0.92


def test_the_language_is_not_tiny(book: dict[str, list[Labeled]]) -> None:
    counted = Counter(word for entry in book["train"] for word in entry.text.split())
    assert len(counted) > 300
    for word in (
        *WORDS["good"],
        *WORDS["bad"],
        *FLIPS,
        *WORDS["liked"],
        *WORDS["disliked"],
        *WORDS["best"],
        *WORDS["worst"],
        *WORDS["two_sided"],
    ):
        assert counted[word], word
    lengths = [len(entry.text.split()) for entry in book["train"]]
    assert min(lengths) >= 4
    assert max(lengths) <= 80


@pytest.mark.parametrize("word", [*WORDS["good"][:20], *WORDS["bad"][:20]])
def test_words_of_opinion_stand_in_both_labels(book: dict[str, list[Labeled]], word: str) -> None:
    assert {entry.label for entry in book["train"] if word in entry.text.split()} == set(LABELS)


def test_no_word_means_two_things() -> None:
    assert not GOOD & BAD
    small_talk = {
        word
        for text in (
            *WORDS["small_talk"],
            *(f for topic in WORDS["topics"] for f in topic["fillers"]),
        )
        for word in text.split()
    }
    parts = {
        word.removesuffix("+")
        for topic in WORDS["topics"]
        for part in topic["parts"]
        for word in part.split()
    }
    assert not (GOOD | BAD | FLIPS) & (small_talk | parts | set(WORDS["intense"]))


@pytest.mark.parametrize("train", [-1, MAX_EXAMPLES + 1])
def test_what_cannot_be_made_is_refused(train: int) -> None:
    rule = f"but 'reviews' has parts of 0 or more examples, at most {MAX_EXAMPLES:,} in all; ask for fewer"
    with raises("out-of-range", match=f"^train={train}, dev=0, test=0, {rule}$"):
        reviews(train=train, dev=0, test=0)
