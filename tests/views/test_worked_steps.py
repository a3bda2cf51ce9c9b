"""The worked example against numbers computed by hand, and the reader's own sentence against plain loops."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.teaching.explain.worked_attention import (
    choose_parts,
    explain,
    worked_example,
    worked_sentence,
)
from saccade.views.worked_steps import Worked
from support import error_of


def test_the_lectures_queries_keys_and_values() -> None:
    worked = worked_example()
    assert worked.q.tolist() == [[1, 0, 2], [2, 2, 2], [2, 1, 3]]
    assert worked.k.tolist() == [[0, 1, 1], [4, 4, 0], [2, 3, 1]]
    assert worked.v.tolist() == [[1, 2, 3], [2, 8, 0], [2, 6, 3]]


def test_the_lectures_scores_weights_and_outputs() -> None:
    worked = worked_example()
    assert worked.scores.tolist() == [[2, 4, 4], [4, 16, 12], [4, 12, 10]]
    total = math.exp(2) + 2 * math.exp(4)
    small, large = math.exp(2) / total, math.exp(4) / total
    np.testing.assert_allclose(worked.weights[0], [small, large, large], rtol=1e-15)
    np.testing.assert_allclose(worked.weights[0], [0.0634, 0.4683, 0.4683], atol=5e-5)
    by_hand = [
        small * 1 + large * 2 + large * 2,
        small * 2 + large * 8 + large * 6,
        small * 3 + large * 0 + large * 3,
    ]
    np.testing.assert_allclose(worked.outputs[0], by_hand, rtol=1e-14)
    np.testing.assert_allclose(worked.outputs[0], [1.9366, 6.6831, 1.5951], atol=5e-5)
    assert worked.outputs.dtype == np.float64


def test_scaling_divides_the_scores_by_the_root_of_the_key_width() -> None:
    worked = worked_example(scaled=True)
    assert worked.scores.tolist() == worked_example().scores.tolist()
    powers = [math.exp(score / math.sqrt(3)) for score in (2, 4, 4)]
    np.testing.assert_allclose(worked.weights[0], np.array(powers) / sum(powers), rtol=1e-14)
    assert "divide the scores by √3" in worked.steps()[3].text
    assert "divide the scores" not in worked_example().steps()[3].text


def slow_outputs(worked: Worked) -> list[list[float]]:
    """Self-attention in plain loops, as one would do it on paper."""

    def project(vector: list[float], matrix: list[list[float]]) -> list[float]:
        return [
            sum(vector[i] * matrix[i][j] for i in range(len(vector))) for j in range(len(matrix[0]))
        ]

    x = worked.x.tolist()
    q, k, v = (
        [project(row, matrix.tolist()) for row in x]
        for matrix in (worked.W_q, worked.W_k, worked.W_v)
    )
    outputs = []
    for query in q:
        powers = [math.exp(sum(a * b for a, b in zip(query, key, strict=True))) for key in k]
        outputs.append(
            [
                sum(p * value[j] for p, value in zip(powers, v, strict=True)) / sum(powers)
                for j in range(len(v[0]))
            ]
        )
    return outputs


@given(st.lists(st.text(max_size=4), min_size=1, max_size=8))
def test_any_sentence_equals_plain_loops(tokens: list[str]) -> None:
    worked = worked_sentence(tokens)
    np.testing.assert_allclose(worked.outputs, slow_outputs(worked), rtol=1e-12)
    np.testing.assert_allclose(worked.weights.sum(axis=1), 1, rtol=1e-12)
    assert worked.x.shape == (len(tokens), 4)
    assert (worked.x == worked.x.round()).all()


@given(st.lists(st.text(max_size=2), min_size=1, max_size=30))
def test_words_have_one_vector_each_and_no_two_words_the_same(tokens: list[str]) -> None:
    vectors = [tuple(row) for row in worked_sentence(tokens).x.tolist()]
    pairs = set(zip(tokens, vectors, strict=True))
    assert len(pairs) == len(set(tokens)) == len(set(vectors))


def test_a_sentence_is_the_same_each_time() -> None:
    tokens = ["the", "cat", "saw", "the", "dog"]
    one, again = worked_sentence(tokens), worked_sentence(tokens)
    assert one.to_dict() == again.to_dict()
    # Written down once, so that another version of anything shows.
    assert one.x.tolist() == [[0, 0, 2, 1], [1, 1, 2, 1], [0, 1, 0, 0], [0, 0, 2, 1], [1, 0, 0, 2]]


def test_seven_steps_explain_the_example_in_numbers() -> None:
    steps = worked_example().steps()
    assert [step.title[:2] for step in steps] == [f"{number}." for number in range(1, 8)]
    assert "q = x W_q = [1, 0, 1, 0] W_q = [1, 0, 2]" in steps[1].text
    assert "with 'input 2': 1·4 + 0·4 + 2·0 = 4" in steps[2].text
    assert "softmax([2, 4, 4]) = [0.0634, 0.4683, 0.4683]" in steps[3].text
    assert "It looks most at 'input 2' and 'input 3'." in steps[3].text
    assert "0.4683 · [2, 8, 0] = [0.9366, 3.7465, 0]" in steps[4].text
    assert "[1.9366, 6.6831, 1.5951]" in steps[5].text
    np.testing.assert_allclose(
        steps[4].matrices[0].matrix.sum(axis=0), steps[5].matrices[0].matrix[0]
    )
    assert [shown.name for shown in steps[6].matrices] == ["weights", "v", "outputs"]


def test_every_matrix_of_every_step_has_a_name_a_row_and_a_column() -> None:
    for step in worked_sentence(["one", "two", "one"]).steps():
        for _, matrix, row_names, column_names, _ in step.matrices:
            assert matrix.shape == (len(row_names), len(column_names))


def test_long_sentences_are_explained_for_the_first_words_only() -> None:
    text = worked_sentence([f"w{index}" for index in range(12)]).steps()[2].text
    assert "'w4'" in text
    assert "'w5'" not in text
    assert "and so on for the other 7" in text


def test_the_dictionary_is_plain_json() -> None:
    plain = json.loads(json.dumps(worked_example().to_dict()))
    assert plain["scores"][0] == [2, 4, 4]
    assert plain["scaled"] is False
    assert plain["steps"][2]["matrices"][0]["row_names"] == ["input 1", "input 2", "input 3"]


@pytest.mark.parametrize(
    ("tokens", "sentence"),
    [
        ([], "the sentence is empty; give at least one word"),
        (["a"] * 31, "the sentence has 31 words, but 30 are the most one can follow; shorten it"),
    ],
)
def test_what_cannot_be_followed_is_refused(tokens: list[str], sentence: str) -> None:
    assert error_of(lambda: worked_sentence(tokens)) == sentence


# the lectures' vectors have their 1 at this number
ONE_HOT = {"This": 3, "is": 1, "a": 2, "cat": 4}


def test_one_column_each_is_the_lectures_scalar_algebra() -> None:
    """q^i = a^i W^q and so on are single numbers, α_(i,j) = q^i k^j, b = A′ v, all in plain numbers."""
    worked = explain(None, choose_parts(dim=1))
    assert list(worked.tokens) == list(ONE_HOT)
    assert [[int(n) for n in vector] for vector in worked.x.tolist()] == [
        [int(n == at) for n in range(1, 5)] for at in ONE_HOT.values()
    ]
    assert {worked.W_q.shape, worked.W_k.shape, worked.W_v.shape} == {(4, 1)}
    # a one-hot vector picks one number of each column
    q, k, v = (
        [float(column[at - 1, 0]) for at in ONE_HOT.values()]
        for column in (worked.W_q, worked.W_k, worked.W_v)
    )
    assert (q, k, v) == ([2, 1, 0, 1], [0, 1, 0, 2], [3, 2, 1, 4])
    assert worked.scores.tolist() == [[qi * kj for kj in k] for qi in q]
    total = 1 + math.exp(2) + 1 + math.exp(4)
    # α′ of "This": scores 0 2 0 4
    first = [1 / total, math.exp(2) / total, 1 / total, math.exp(4) / total]
    np.testing.assert_allclose(worked.weights[0], first, rtol=1e-15)
    b = sum(weight * value for weight, value in zip(first, v, strict=True))
    np.testing.assert_allclose(worked.outputs[0], [b], rtol=1e-15)
    np.testing.assert_allclose(worked.weights[2], [1 / 4] * 4, rtol=1e-15)  # the query of "a" is 0
    assert worked.outputs.shape == (4, 1)


def test_heads_are_columns_and_w_o_mixes_them() -> None:
    """W^q, W^k, W^v: d × M. Head m is column m alone; b^i = W^o [b^(i,1); b^(i,2)]. The lectures' A has keys down: it is the transpose."""
    worked = explain(None, choose_parts(dim=1, heads=2))
    assert {worked.W_q.shape, worked.W_k.shape, worked.W_v.shape, worked.W_o.T.shape} == {(4, 2)}
    found = []
    for head in range(2):
        q, k, v = (
            [float(column[at - 1, head]) for at in ONE_HOT.values()]
            for column in (worked.W_q, worked.W_k, worked.W_v)
        )
        powers = [[math.exp(qi * kj) for qi in q] for kj in k]  # keys down, queries across
        sums = [sum(column) for column in zip(*powers, strict=True)]
        shares = [[power / sums[i] for i, power in enumerate(row)] for row in powers]
        np.testing.assert_allclose(worked.weights[head], np.array(shares).T, rtol=1e-14)
        found.append([sum(shares[j][i] * v[j] for j in range(4)) for i in range(4)])
    by_hand = [
        [sum(found[m][i] * worked.W_o[m, n] for m in range(2)) for n in range(4)] for i in range(4)
    ]
    np.testing.assert_allclose(worked.outputs, by_hand, rtol=1e-14)
    alone = explain(None, choose_parts(dim=1))
    np.testing.assert_allclose(worked.weights[0], alone.weights, rtol=1e-15)
    assert "with W_o all are 32" in worked.steps()[-1].text
    assert sum(matrix.size for matrix in (worked.W_q, worked.W_k, worked.W_v, worked.W_o)) == 32


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"dim": 0}, "expected a dim of 1 to 4, the width of one of 1 heads, got 0"),
        ({"dim": 3, "heads": 2}, "expected a dim of 1 to 2, the width of one of 2 heads, got 3"),
        ({"dim": True}, "expected a dim of 1 to 4"),
        ({"dim": 1, "plain": True}, "both dim and plain were given"),
    ],
)
def test_a_width_that_an_input_does_not_have_is_refused(
    given: dict[str, int], sentence: str
) -> None:
    assert sentence in error_of(lambda: choose_parts(**given))
