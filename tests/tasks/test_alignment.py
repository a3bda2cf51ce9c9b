"""Alignments by hand: word weights from pieces, links, and the alignment error rate of Och & Ney."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.tasks.text_scores import (
    Link,
    alignment_error_rate,
    diagonal_links,
    links,
    word_weights,
)

pairs = st.sets(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=8)


def rate(a: set[Link], s: set[Link], p: set[Link] = frozenset()) -> float:  # type: ignore[assignment]
    return alignment_error_rate([a], [s], [p])


@pytest.mark.parametrize(
    ("a", "s", "p", "expected"),
    [
        ({(0, 0), (1, 1)}, {(0, 0), (1, 1)}, set(), 0.0),
        ({(0, 0), (1, 1)}, {(0, 1), (1, 0)}, set(), 1.0),
        # |A∩S| = 1, |A∩P| = 2, |A| = 3, |S| = 2: 1 − 3/5
        ({(0, 0), (1, 2), (2, 2)}, {(0, 0), (1, 1)}, {(1, 2)}, 1 - 3 / 5),
        # a possible link is no mistake when it is made, and none when it is left out
        ({(0, 0), (1, 1)}, {(0, 0)}, {(1, 1)}, 0.0),
        ({(0, 0)}, {(0, 0)}, {(1, 1), (2, 2)}, 0.0),
        # but what is sure must be found: |A∩S| = 1, |A∩P| = 1, |A| = 1, |S| = 4
        ({(0, 0)}, {(0, 0), (1, 1), (2, 2), (3, 3)}, set(), 1 - 2 / 5),
        # nothing predicted, nothing wanted, nothing at all
        (set(), {(0, 0)}, set(), 1.0),
        ({(0, 0)}, set(), set(), 1.0),
        ({(0, 0)}, set(), {(0, 0)}, 0.0),
        (set(), set(), set(), 0.0),
    ],
)
def test_the_error_rate_by_hand(a: set[Link], s: set[Link], p: set[Link], expected: float) -> None:
    assert rate(a, s, p) == pytest.approx(expected)


def test_the_error_rate_counts_over_all_sentences_and_no_links_twice() -> None:
    one, two = ([(0, 0), (0, 0)], [(0, 0)], []), ([(0, 1), (1, 1)], [(0, 1), (2, 2)], [(1, 1)])
    # together |A| = 3, |S| = 3, |A∩S| = 2, |A∩P| = 3
    assert alignment_error_rate(*zip(one, two, strict=True)) == pytest.approx(1 - 5 / 6)
    assert alignment_error_rate([], [], []) == 0.0
    with pytest.raises(ValueError, match="zip"):
        alignment_error_rate([[(0, 0)]], [], [])


def test_the_diagonal_links_words_at_the_same_share_of_both_sentences() -> None:
    assert diagonal_links(3, 3) == [(0, 0), (1, 1), (2, 2)]
    assert diagonal_links(2, 4) == [(0, 0), (0, 1), (1, 2), (1, 3)]
    # the middles of the halves, 1.25 and 3.75, lie in words 1 and 3
    assert diagonal_links(5, 2) == [(1, 0), (3, 1)]
    assert diagonal_links(4, 0) == []


@given(pairs, pairs, pairs)
def test_the_error_rate_stays_in_its_range_and_sure_is_possible(
    a: set[Link], s: set[Link], p: set[Link]
) -> None:
    found = rate(a, s, p)
    assert 0.0 <= found <= 1.0
    assert found == rate(a, s, p | s)
    assert rate(s, s, p) == 0.0
    if not p:  # then it is one minus the F-measure
        together = len(a & s)
        assert found == pytest.approx(1 - 2 * together / (len(a) + len(s)) if a or s else 0.0)


def test_a_source_word_sums_its_pieces_and_a_target_word_averages_its_rows() -> None:
    weights = np.array(
        [
            [0.1, 0.2, 0.7, 0.0],  # target word 0
            [0.4, 0.4, 0.1, 0.1],  # target word 1, first piece
            [0.0, 0.2, 0.8, 0.0],  # target word 1, second piece
            [0.25, 0.25, 0.25, 0.25],  # <eos>
        ]
    )
    # source pieces 0 and 1 are one word; the last column is <eos>
    found = word_weights(weights, rows=[0, 1, 1], columns=[0, 0, 1])
    np.testing.assert_allclose(found, [[0.3, 0.7], [0.5, 0.45]])


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=6),
    st.lists(st.integers(0, 3), min_size=1, max_size=6),
)
def test_word_weights_are_the_matrix_product_they_stand_for(
    rows: list[int], columns: list[int]
) -> None:
    weights = np.random.Generator(np.random.PCG64(len(rows) * 7 + len(columns))).random(
        (len(rows) + 1, len(columns) + 1)
    )
    into = (np.arange(max(columns) + 1)[:, None] == np.asarray(columns)).astype(float)
    out = (np.arange(max(rows) + 1)[:, None] == np.asarray(rows)).astype(float)
    out /= np.maximum(out.sum(1, keepdims=True), 1)
    np.testing.assert_allclose(
        word_weights(weights, rows, columns), out @ weights[:-1, :-1] @ into.T, atol=1e-12
    )


def test_without_words_there_are_no_weights() -> None:
    assert word_weights(np.ones((1, 1)), [], []).shape == (0, 0)
    assert word_weights(np.ones((2, 1)), [0], []).shape == (1, 0)
    assert links(np.zeros((2, 0))) == []


def test_every_target_word_is_linked_to_where_it_looks_most() -> None:
    weights = np.array([[0.1, 0.7, 0.2], [0.6, 0.2, 0.2], [0.3, 0.3, 0.4]])
    assert links(weights) == [(1, 0), (0, 1), (2, 2)]


def test_a_target_word_that_looks_at_nothing_most_is_not_linked() -> None:
    weights = np.array([[0.3, 0.2], [0.3, 0.2], [0.3, 0.2], [0.0, 0.0]])
    assert links(weights, nothing=[0.2, 0.5, 0.3, 0.0]) == [(0, 0), (0, 2)], (
        "as much as for nothing is enough; no weight is no link"
    )
    assert links(weights) == [(0, 0), (0, 1), (0, 2)]
