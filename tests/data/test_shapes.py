"""Shapes: the same pictures everywhere, captions that the picture decides, boxes around what is there, questions that need the picture."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
import torch
from tests.support import raises

from saccade.data.corpora import ASKED, CAPTIONED, PAIRS, PICTURED, documents, read
from saccade.data.generated.shapes import (
    COLORS,
    LARGE_SIDES,
    SHAPES,
    SMALL_SIDES,
    VISIBLE_PERCENT,
    WORDS,
    Drawing,
    Thing,
    outline,
    owners,
    relation,
    shapes,
)
from saccade.data.image_examples import Asked, Captioned, Pictured, stack
from saccade.errors import SaccadeError

SIZES = {"train": 1500, "dev": 20, "test": 30}
OBJECT = rf"a (small|large) ({'|'.join(COLORS)}) ({'|'.join(SHAPES)})"


@pytest.fixture(scope="module")
def captions() -> list[Captioned]:
    return read(CAPTIONED, "shapes:train", SIZES)


@pytest.fixture(scope="module")
def questions() -> list[Asked]:
    return read(ASKED, "shapes:train", SIZES)


@pytest.fixture(scope="module")
def labels() -> list[Pictured]:
    return read(PICTURED, "shapes:train", SIZES)


def digest(*parts: object) -> str:
    return hashlib.sha256("\n".join(map(repr, parts)).encode()).hexdigest()[:16]


def things_of(example: Captioned | Asked | Pictured) -> tuple[Thing, ...]:
    assert isinstance(example.image, Drawing)
    return example.image.things()


def test_pictures_and_texts_have_their_hash() -> None:
    """On every machine and with every version of Python, numpy and Pillow."""
    small = {"train": 40, "dev": 3, "test": 5, "seed": 7}
    pictures = read(CAPTIONED, "shapes:train", small)
    assert (
        hashlib.sha256(
            stack([one.image for one in pictures], (64, 64)).numpy().tobytes()
        ).hexdigest()[:16]
        == "000ee767ee6556f5"
    )
    assert digest([(one.captions, one.places, one.line) for one in pictures]) == "71fa89cfdcce8025"
    assert (
        digest([(one.question, one.answer, one.line) for one in read(ASKED, "shapes:dev", small)])
        == "dcfe35a88f3be1dd"
    )
    assert (
        digest([(one.label, one.line) for one in read(PICTURED, "shapes:test", small)])
        == "dc3b8113617f5cf2"
    )


def test_the_seed_decides_and_parts_share_nothing() -> None:
    parts = shapes(50, 20, 30, seed=3)
    numbers = [one.number for part in parts.values() for one in part]
    assert len(set(numbers)) == 100
    assert parts == shapes(50, 20, 30, seed=3)
    assert parts["test"] == shapes(0, 0, 30, seed=3)["test"], (
        "the test part does not depend on the other sizes"
    )
    assert parts["train"][0] != shapes(50, 20, 30, seed=4)["train"][0]
    assert torch.equal(parts["dev"][0].pixels(), parts["dev"][0].pixels())
    assert not torch.equal(parts["dev"][0].pixels(), parts["dev"][1].pixels())


def test_captions_follow_the_rule(captions: list[Captioned]) -> None:
    counts = Counter[str]()
    for one in captions:
        [caption] = one.captions
        found = re.fullmatch(rf"{OBJECT}(?: (left of|right of|above|below) {OBJECT})?", caption)
        assert found, caption
        things = sorted(things_of(one), key=lambda thing: COLORS.index(thing.color))
        assert found.groups()[:3] == (things[0].size, things[0].color, things[0].shape)
        assert (found[4] is None) == (len(things) == 1)
        if found[4]:
            assert found.groups()[4:] == (things[1].size, things[1].color, things[1].shape)
            dx = things[0].x + things[0].side / 2 - things[1].x - things[1].side / 2
            dy = things[0].y + things[0].side / 2 - things[1].y - things[1].side / 2
            assert abs(abs(dx) - abs(dy)) >= 8, "clearly one of the two"
            expected = (
                ("left of" if dx < 0 else "right of")
                if abs(dx) > abs(dy)
                else ("above" if dy < 0 else "below")
            )
            assert found[4] == expected
        counts.update({str(found[4]), *found.groups()[:3], f"{len(things)} objects"})
    assert all(
        counts[name] > 150
        for name in ("left of", "right of", "above", "below", "small", "large", *SHAPES)
    )
    assert all(counts[f"{n} objects"] > 250 for n in range(1, 5))


def test_boxes_lie_around_what_the_words_name(captions: list[Captioned]) -> None:
    for one in captions[:200]:
        words, drawn = one.captions[0].split(), one.image.pixels().numpy().astype(int)
        by_color = {thing.color: thing for thing in things_of(one)}
        assert one.places is not None
        assert len(one.places) == min(2, len(by_color))
        for named in one.places:
            size, color, shape = (words[n] for n in named.words)
            thing = by_color[color]
            assert (thing.size, thing.shape) == (size, shape)
            x0, y0, x1, y1 = named.box
            assert 0 <= x0 < x1 <= 64
            assert 0 <= y0 < y1 <= 64
            close = np.abs(drawn - (np.array(thing.shade) + 16)[:, None, None]).max(0) <= 16
            inside = np.zeros_like(close)
            inside[y0:y1, x0:x1] = True
            expected = owners(things_of(one), 64) == things_of(one).index(thing) + 1
            assert not (expected & ~inside).any(), "no pixel of it is outside its box"
            assert (close & inside).sum() >= 0.95 * expected.sum(), (
                "and the picture has its color there"
            )


def test_every_object_can_be_recognized(captions: list[Captioned]) -> None:
    overlaps = 0
    for one in captions:
        things = things_of(one)
        assert len({thing.color for thing in things}) == len(things)
        owner = owners(things, 64)
        for n, thing in enumerate(things, 1):
            shown, whole = int((owner == n).sum()), int(outline(thing.shape, thing.side).sum())
            assert 100 * shown >= VISIBLE_PERCENT * whole
            overlaps += shown < whole
    assert VISIBLE_PERCENT >= 50
    assert overlaps > 200


@pytest.mark.slow
def test_no_other_object_looks_like_one_that_is_partly_hidden(captions: list[Captioned]) -> None:
    """Every other shape and size is put where the object is, behind what hides it: its visible pixels differ by more than a few."""
    hidden = [
        (things, n, owners(things, 64))
        for things in map(things_of, captions)
        for n, one in enumerate(things, 1)
        if (owners(things, 64) == n).sum() < 0.85 * outline(one.shape, one.side).sum()
    ]
    assert len(hidden) > 100
    for things, n, owner in hidden[:12]:
        closest = min(int((seen != (owner == n)).sum()) for seen in others_seen(things, n, owner))
        assert closest > 8, things[n - 1].words


def others_seen(things: tuple[Thing, ...], n: int, owner: np.ndarray) -> Iterator[np.ndarray]:
    """What would be seen of each other shape and size within a few pixels of object n."""
    one, in_front = things[n - 1], owner > n
    for shape, sizes in product(SHAPES, (SMALL_SIDES, LARGE_SIDES)):
        if (shape, sizes) == (one.shape, LARGE_SIDES if one.large else SMALL_SIDES):
            continue
        for side in range(sizes[0], sizes[1] + 1):
            start = (side - one.side) // 2
            for y, x in product(
                range(one.y - start - 6, one.y - start + 7),
                range(one.x - start - 6, one.x - start + 7),
            ):
                if 0 <= x <= 64 - side and 0 <= y <= 64 - side:
                    seen = np.zeros((64, 64), dtype=bool)
                    seen[y : y + side, x : x + side] = outline(shape, side)
                    yield seen & ~in_front


def test_outlines_differ_and_are_whole() -> None:
    for side in (12, 13, 15, 24, 27):
        drawn = {shape: outline(shape, side) for shape in SHAPES}
        assert len({one.tobytes() for one in drawn.values()}) == len(SHAPES)
        for shape, one in drawn.items():
            assert one.mean() > 0.2, shape
            assert np.array_equal(one, one[:, ::-1]), f"{shape} is the same on both sides"
        assert drawn["circle"].mean() == pytest.approx(np.pi / 4, abs=0.03)
        assert drawn["diamond"].mean() == pytest.approx(0.5, abs=0.09)


def test_pictures_of_other_sizes() -> None:
    for size in (32, 96, 128):
        one = read(CAPTIONED, "shapes:test", {**SIZES, "size": size})[0]
        assert one.image.pixels().shape == (3, size, size)
        assert all(0 <= edge <= size for named in one.places for edge in named.box)
    plain = read(CAPTIONED, "shapes:test", SIZES)[0].image
    assert plain.pixels((20, 30)).shape == (3, 20, 30)
    assert torch.equal(plain.pixels((64, 64)), plain.pixels())
    assert plain.name == "shapes, picture 1"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"size": 500}, "size=500, expected 32 to 128 pixels for the pictures of 'shapes'"),
        ({"size": 3}, "size=3, expected 32 to 128 pixels"),
        ({"train": -1}, "'shapes' has parts of 0 or more examples, at most 1,000,000 in all"),
        ({"train": 10**9}, "at most 1,000,000 in all; ask for fewer"),
        ({"trian": 5}, "the corpus 'shapes' cannot be generated with {'trian': 5}"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, int], sentence: str) -> None:
    with pytest.raises(SaccadeError) as error:
        read(CAPTIONED, "shapes:train", options)
    assert sentence in str(error.value)


def test_what_shapes_are_not(captions: list[Captioned]) -> None:
    with raises(
        "corpus-without-part",
        match="the corpus 'shapes' has no pairs; those that have: phrasebook, dates",
    ):
        read(PAIRS, "shapes:train", SIZES)
    with raises(
        "corpus-without-part",
        match="the corpus 'reviews' has no pictures with captions; those that have: shapes",
    ):
        read(CAPTIONED, "reviews:train")
    assert [one.text for one in documents("shapes:train", SIZES)] == [
        one.captions[0] for one in captions
    ]


# --- questions and labels


def test_answers_are_true(questions: list[Asked]) -> None:
    for one in questions:
        things, words = things_of(one), one.question.rstrip("?").split()
        by_color = {thing.color: thing for thing in things}
        if words[:2] == ["what", "color"]:
            fits = [
                t
                for t in things
                if t.shape == words[-1] and (words[-2] == "the" or t.size == words[-2])
            ]
            assert [thing.color for thing in fits] == [one.answer]
        elif words[:2] == ["what", "shape"]:
            assert by_color[words[4]].shape == one.answer
        elif words[0] == "how":
            assert str(sum(words[2] in ("objects", thing.size) for thing in things)) == one.answer
        elif words[0] == "where":
            assert (
                WORDS["answers"][relation(by_color[words[3]], by_color[words[-2]], 64)]
                == one.answer
            )
        elif words[:2] == ["is", "the"]:
            truth = relation(by_color[words[2]], by_color[words[-2]], 64)
            assert one.answer == ("yes" if " ".join(words[4:-3]) == truth else "no"), one.question
        else:
            assert words[2] == ("an" if words[3] == "orange" else "a")
            there = any(
                words[3] in (thing.color, thing.size) and words[4] == thing.shape
                for thing in things
            )
            assert one.answer == ("yes" if there else "no"), one.question


def test_without_the_picture_answers_are_mostly_wrong(questions: list[Asked]) -> None:
    """The most frequent answer to each question, known by heart, which is better than what can be learned from half of them."""
    answers = defaultdict(Counter)
    for one in questions:
        answers[one.question][one.answer] += 1
    assert sum(max(counts.values()) for counts in answers.values()) / len(questions) < 0.45
    kinds = defaultdict(Counter)
    for one in questions:
        kinds[" ".join(one.question.split()[:2])][one.answer] += 1
    assert set(kinds) == {"what color", "what shape", "how many", "where is", "is the", "is there"}
    for kind in ("is the", "is there"):
        assert 0.42 < kinds[kind]["yes"] / kinds[kind].total() < 0.58
    for kind, answer in (("what color", 7), ("what shape", 6), ("where is", 4)):
        assert len(kinds[kind]) == answer
        assert max(kinds[kind].values()) < 1.5 * kinds[kind].total() / answer


def test_a_picture_has_several_questions(questions: list[Asked]) -> None:
    counts = Counter(one.image for one in questions)
    assert len(counts) == SIZES["train"]
    assert set(counts.values()) <= {3, 4, 5}
    assert questions[0].line == questions[1].line == 1


def test_a_label_is_the_shape_of_the_one_large_object(labels: list[Pictured]) -> None:
    for one in labels:
        assert [thing.shape for thing in things_of(one) if thing.large] == [one.label]
    assert min(Counter(one.label for one in labels).values()) > 180
    assert {len(things_of(one)) for one in labels} == {1, 2, 3, 4}
