"""Pools: each weight by its formula in plain Python, padding without weight, a corpus worked by hand, gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support import raises
from torch import Tensor, nn

from saccade.core import normalizers, record, scores
from saccade.layers.pooling import Attention, DeepSets, Mean, Pool, Static, TfIdf, pools
from saccade.settings import Choice

VOCAB, DIM = 9, 4
each_pool = pytest.mark.parametrize("name", pools.names())
# 4 occurs in all of four texts, 5 in two, 6 in three, 7 in one
CORPUS = [[4, 5, 5, 6], [4, 6, 7], [4, 5], [4, 6, 6]]


def made(name: str) -> Pool:
    """A pool in float64 whose parameters matter, prepared from the corpus."""
    pool = Choice(pools[name])(dim=DIM, vocab=VOCAB).double()
    with torch.no_grad():
        for parameter in pool.parameters():
            parameter.copy_(torch.randn_like(parameter))
    pool.prepare(CORPUS)
    return pool


def some(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


# --- the formulas, one text at a time


def shares(amounts: Sequence[float]) -> list[float]:
    total = sum(amounts)
    return [amount / total for amount in amounts] if total else [1 / len(amounts)] * len(amounts)


def mean(pool: Pool, text: list[int], x: Tensor) -> list[float]:
    return [1 / len(text)] * len(text)


def last(pool: Pool, text: list[int], x: Tensor) -> list[float]:
    return [0.0] * (len(text) - 1) + [1.0]


def tf_idf(pool: Pool, text: list[int], x: Tensor) -> list[float]:
    held = {token: sum(token in other for other in CORPUS) for token in set(text)}
    idf = {token: math.log(len(CORPUS) / (n or 1)) for token, n in held.items()}
    of_token = {token: text.count(token) / len(text) * idf[token] for token in set(text)}
    return shares([of_token[token] / text.count(token) for token in text])


def static(pool: Static, text: list[int], x: Tensor) -> list[float]:
    return shares([math.exp(pool.score[token].item()) for token in text])


def attention(pool: Attention, text: list[int], x: Tensor) -> list[float]:
    score = pool.mechanism.score
    b = score.w_q[0].T @ pool.query
    return shares(
        [math.exp((score.v[0] @ torch.tanh(score.w_k[0].T @ row + b)).item()) for row in x]
    )


def two_layers(part: Any, x: Tensor) -> Tensor:
    """W₂ max(W₁ x + b₁, 0) + b₂"""
    first, _, second = part
    inside = first.weight @ x + (0 if first.bias is None else first.bias)
    return second.weight @ inside.clamp_min(0) + (0 if second.bias is None else second.bias)


FORMULAS: dict[str, Callable[..., list[float]]] = {
    "mean": mean,
    "last": last,
    "token": lambda pool, text, x: [1.0] + [0.0] * (len(text) - 1),
    "deep-sets": lambda pool, text, x: [1.0] * len(text),
    "tf-idf": tf_idf,
    "static": static,
    "attention": attention,
}


def test_every_pool_of_the_table_has_its_formula() -> None:
    assert set(FORMULAS) == set(pools.names())


@each_pool
@given(
    texts=st.lists(
        st.lists(st.integers(4, VOCAB - 1), min_size=1, max_size=5), min_size=1, max_size=4
    ),
    more=st.integers(0, 2),
)
def test_weights_are_the_formula_and_padding_has_none(
    name: str, texts: list[list[int]], more: int
) -> None:
    torch.manual_seed(0)
    pool, size = made(name), max(map(len, texts)) + more
    tokens = torch.tensor([text + [8] * (size - len(text)) for text in texts])
    x, lengths = some(len(texts), size, DIM), torch.tensor([len(text) for text in texts])
    weights, pooled = pool.weights(tokens, x, lengths), pool(tokens, x, lengths)
    for b, text in enumerate(texts):
        expected = FORMULAS[name](pool, text, x[b, : len(text)])
        torch.testing.assert_close(
            weights[b, : len(text)], torch.tensor(expected, dtype=torch.float64)
        )
        assert (weights[b, len(text) :] == 0).all()
        deep = isinstance(pool, DeepSets)
        by_hand = sum(
            weight * (two_layers(pool.each, row) if deep else row)
            for weight, row in zip(expected, x[b], strict=False)
        )
        torch.testing.assert_close(pooled[b], two_layers(pool.whole, by_hand) if deep else by_hand)


@each_pool
def test_gradients(name: str) -> None:
    pool, x = made(name), some(2, 3, DIM).requires_grad_()
    tokens, lengths = torch.tensor([[4, 5, 7], [6, 5, 0]]), torch.tensor([3, 2])
    assert torch.autograd.gradcheck(lambda x, *_: pool(tokens, x, lengths), (x, *pool.parameters()))
    (gradient,) = torch.autograd.grad(pool(tokens, x, lengths).sum(), x)
    assert (gradient[1, 2] == 0).all(), "padding"


@each_pool
def test_a_text_of_nothing_gives_zeros(name: str) -> None:
    found = made(name)(torch.zeros(1, 2).long(), some(1, 2, DIM), torch.tensor([0]))
    assert found.tolist() == [[0.0] * DIM]


# --- tf-idf


def test_a_corpus_worked_by_hand() -> None:
    pool = TfIdf(VOCAB)
    pool.prepare(CORPUS)
    expected = [math.log(4)] * VOCAB  # never seen: the largest, that of token 7
    expected[4], expected[5], expected[6], expected[7] = (
        0.0,
        math.log(2),
        math.log(4 / 3),
        math.log(4),
    )
    torch.testing.assert_close(pool.idf, torch.tensor(expected))
    weights = pool.weights(torch.tensor([CORPUS[0]]), torch.zeros(1, 4, 2), torch.tensor([4]))[0]
    # tf·idf of the first text: 4: 1/4 · 0, 5: 2/4 · log 2, 6: 1/4 · log 4/3; their sum 0.4185
    total = 0.5 * math.log(2) + 0.25 * math.log(4 / 3)
    torch.testing.assert_close(weights[[1, 2]].sum(), torch.tensor(0.5 * math.log(2) / total))
    torch.testing.assert_close(weights[3], torch.tensor(0.25 * math.log(4 / 3) / total))
    assert weights[0] == 0, "a word of every text has no weight"


def test_a_text_of_words_that_occur_everywhere_falls_back_to_the_mean() -> None:
    pool = TfIdf(VOCAB)
    pool.prepare(CORPUS)
    assert pool.weights(
        torch.tensor([[4, 4, 0]]), torch.zeros(1, 3, 2), torch.tensor([2])
    ).tolist() == [[0.5, 0.5, 0.0]]


def test_counts_are_kept_in_the_models_files_and_are_not_learned() -> None:
    pool, again = TfIdf(VOCAB), nn.Sequential(TfIdf(VOCAB))
    pool.prepare(iter(CORPUS))
    assert not list(pool.parameters())
    again.load_state_dict({"0.idf": pool.state_dict()["idf"]})
    copied = TfIdf(VOCAB)
    copied.idf.copy_(pool.idf)  # as a model's file fills it
    tokens, x, lengths = torch.tensor([CORPUS[0]]), torch.zeros(1, 4, 2), torch.tensor([4])
    for other in (again[0], copied):
        assert torch.equal(other.weights(tokens, x, lengths), pool.weights(tokens, x, lengths))


def test_mistakes_are_answered_with_sentences() -> None:
    pool = TfIdf(VOCAB)
    with raises("pool-not-prepared"):
        pool(torch.tensor([[4]]), torch.zeros(1, 1, 2), torch.tensor([1]))
    with raises("no-tokens"):
        pool.prepare([[], []])
    with raises("index-out-of-range"):
        pool.prepare([[9]])


# --- static and attention


def test_a_static_weight_begins_as_the_mean_and_is_read_as_score() -> None:
    pool, tokens, x, lengths = (
        Static(VOCAB),
        torch.tensor([[4, 5, 6]]),
        some(1, 3, DIM),
        torch.tensor([2]),
    )
    torch.testing.assert_close(
        pool.weights(tokens, x, lengths), Mean().weights(tokens, x.float(), lengths)
    )
    with torch.no_grad():
        pool.score[5] += math.log(3)
    torch.testing.assert_close(pool.weights(tokens, x, lengths), torch.tensor([[0.25, 0.75, 0.0]]))


@pytest.mark.parametrize(
    ("score", "normalize"),
    [
        (score.name, normalize)
        for score in scores.table
        for normalize in (["sum"] if score.make.needs_sum else ["softmax", "sparsemax", "sigmoid"])
    ],
)
def test_attention_takes_any_score_and_normalizer_and_is_seen_by_a_record(
    score: str, normalize: str
) -> None:
    pool = Attention(
        DIM, Choice(scores.table[score]), Choice(normalizers.table[normalize])
    ).double()
    tokens, x, lengths = torch.zeros(2, 5).long(), some(2, 5, DIM), torch.tensor([5, 2])
    with record(nn.ModuleDict({"pool": pool})) as seen:
        pooled = pool(tokens, x, lengths)
    weights = pool.weights(tokens, x, lengths)
    torch.testing.assert_close(seen["pool"].weights()[:, 0, 0], weights)
    torch.testing.assert_close(pooled, torch.einsum("bn,bnd->bd", weights, x))
    assert (weights[1, 2:] == 0).all()
    assert weights[0].any()
