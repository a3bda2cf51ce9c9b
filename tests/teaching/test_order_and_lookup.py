"""The soft dictionary and the shuffle against numbers by hand, and what they refuse."""

from __future__ import annotations

import math

import numpy as np
import pytest
from calculating import check_every_number
from hypothesis import given
from hypothesis import strategies as st

from saccade.teaching.explain.input_order import explain_shuffle, reorder
from saccade.teaching.explain.lookup import TEMPERATURES, explain_lookup
from saccade.teaching.explain.worked_attention import choose_parts
from support import error_of


@pytest.mark.parametrize("words", [None, ["the", "black", "cat"], [f"w{n}" for n in range(30)]])
def test_a_lookup_by_hand_at_every_temperature(words: list[str] | None) -> None:
    found = explain_lookup(words)
    q = found.keys[found.query - 1]
    cosines = [float(q @ k) / math.sqrt(float(q @ q) * float(k @ k)) for k in found.keys]
    np.testing.assert_allclose(found.cosines, cosines, atol=1e-12)
    for row, t in zip(found.weights[1:-1], TEMPERATURES, strict=True):
        powers = [math.exp(c / t) for c in cosines]
        np.testing.assert_allclose(row, np.array(powers) / sum(powers), rtol=1e-12)
    np.testing.assert_allclose(found.found, found.weights @ found.values, rtol=1e-9)
    assert found.weights[0].tolist() == [
        float(n == found.query - 1) for n in range(len(cosines))
    ], "a dictionary"
    assert found.found[0] == 10 * found.query
    np.testing.assert_allclose(found.found[-1], found.values.mean())
    assert check_every_number(found) >= 8


def test_the_dictionary_of_the_slide_is_asked_for_d() -> None:
    assert explain_lookup().tokens == ["a", "b", "c", "d", "e"]
    assert "looking 'd' up gives 40" in explain_lookup().steps()[0].text
    assert explain_lookup(None, 2).found[0] == 20
    distances = np.abs(explain_lookup().found - 30)
    assert (np.diff(distances) < 0).all(), "from the value to the mean"


@given(st.lists(st.text(min_size=1, max_size=6), min_size=2, max_size=30, unique=True))
def test_no_two_words_are_mixed_up_by_a_dictionary(words: list[str]) -> None:
    found = explain_lookup(words)
    unit = found.keys / np.linalg.norm(found.keys, axis=1, keepdims=True)
    assert (unit @ unit.T - 2 * np.eye(len(unit))).max() < 0.95


@pytest.mark.parametrize(
    "options",
    [{}, {"score": "additive"}, {"heads": 2}, {"plain": True}, {"normalize": "sparsemax"}],
)
def test_shuffled_inputs_give_shuffled_outputs_until_order_is_known(
    options: dict[str, object],
) -> None:
    words = ["the", "black", "cat", "ate", "the", "mouse"]
    found = explain_shuffle(words, choose_parts(**options))
    assert found.equivariant
    assert sorted(found.order) == [1, 2, 3, 4, 5, 6]
    np.testing.assert_allclose(
        found.shuffled, found.outputs[[n - 1 for n in found.order]], rtol=1e-12
    )
    assert found.largest_difference["without"] < 1e-12
    assert found.largest_difference["positions"] > 0.01
    assert found.largest_difference["causal"] > 0.01
    check_every_number(found)


def test_what_breaks_the_lectures_example_by_hand() -> None:
    found = explain_shuffle()
    assert found.order == [2, 3, 1]
    np.testing.assert_allclose(found.shuffled[2], [1.9366, 6.6831, 1.5951], atol=5e-5)
    # under the causal mask input 1 sees itself alone at first, and all three when it is last
    np.testing.assert_allclose(found.largest_difference["causal"], 6.6831 - 2, atol=5e-5)
    assert "[1, 2, 3] before and [1.9366, 6.6831, 1.5951] after" in found.steps()[4].text


def test_an_own_mask_that_knows_positions_breaks_it_at_once() -> None:
    found = explain_shuffle(None, choose_parts(mask={"name": "window", "left": 0}))
    assert found.equivariant, "each input sees itself alone, wherever it is"
    found = explain_shuffle(None, choose_parts(mask="causal"))
    assert not found.equivariant
    assert found.steps()[2].title == "3. The outputs are others"


@pytest.mark.parametrize("count", range(2, 12))
def test_nothing_stays_where_it_was(count: int) -> None:
    order = reorder(count)
    assert sorted(order) == list(range(count))
    assert all(at != n for n, at in enumerate(order))


def test_what_cannot_be_looked_up_or_shuffled() -> None:
    assert (
        error_of(lambda: explain_lookup(["a", "a"]))
        == "expected at least 2 different words for a dictionary, got 1; give more"
    )
    assert error_of(lambda: explain_lookup([])) == "the sentence is empty; give at least one word"
    assert (
        error_of(lambda: explain_lookup(None, 6))
        == "expected a query from 1 to 5, the number of keys, got 6"
    )
    assert "31 words" in error_of(lambda: explain_lookup([str(n) for n in range(31)]))
    wrong = "expected at least 2 different words to put into another order, got 1; give more"
    assert error_of(lambda: explain_shuffle(["cat", "cat"])) == wrong
    assert "31 words" in error_of(lambda: explain_shuffle([str(n) for n in range(31)]))
