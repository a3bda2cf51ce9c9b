"""Permutation language modeling: what comes later in the order is invisible, and the streams are those of a slow loop."""

from __future__ import annotations

import functools

import pytest
import torch
from hypothesis import given
from hypothesis import settings as chosen
from hypothesis import strategies as st
from model_helpers import V, make, shake
from tests.support import raises
from torch import Tensor

from saccade.core import Positions, masks, positions
from saccade.models import AttendingEncoder, Encoder, TwoStream
from saccade.models.two_stream import two_streams

N = 5
POSITIONS = [entry.name for entry in positions.table if not entry.make.needs_relation]
each_position = pytest.mark.parametrize("position", POSITIONS)


def built(
    position: str = "none", position_embedding: str = "sinusoidal", **changed: object
) -> TwoStream:
    torch.manual_seed(0)
    body = make(
        AttendingEncoder,
        "transformer-encoder",
        position=position,
        position_embedding=position_embedding,
        **changed,
    )
    return shake(TwoStream(body, V)).eval()


once = functools.cache(built)  # for a property's many examples


def slow(model: TwoStream, tokens: Tensor, order: Tensor, asked: int) -> Tensor:
    """One text, one asked position: only the tokens before it in the order are there at all, and the query comes last."""
    before = [n for n in range(len(tokens)) if order[n] < order[asked]]
    x = model.body.embedding(tokens[None, before], torch.tensor([before])) if before else None
    query = model.body.embedding.join(model.query.expand(1, 1, -1), torch.tensor([[asked]]))
    at = torch.tensor([*before, asked])
    rows = query if x is None else torch.cat([x, query], 1)
    rank = [order[n].item() for n in before]
    seen = [[other <= mine for other in rank] + [False] for mine in rank] + [
        [True] * len(before) + [False]
    ]
    return model.head(model.body.encoder(rows, masks.matrix(seen), positions=Positions(at, at)))[
        0, -1
    ]


def test_who_sees_whom_by_hand() -> None:
    # first the second position, then the first, then the third
    order, at = (torch.tensor([[1, 0, 2]]), torch.tensor([[0, 1]]))
    found = two_streams(torch.tensor([3]), order, at).dense(1, 1, 5, 5)[0, 0].int().tolist()
    assert found == [
        [1, 1, 0, 0, 0],
        [0, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [0, 1, 0, 0, 0],
        [0, 0, 0, 0, 0],
    ]
    padded = two_streams(torch.tensor([2]), order, at).dense(1, 1, 5, 5)[0, 0].int().tolist()
    assert [row[2] for row in padded] == [0] * 5


@each_position
@chosen(max_examples=8)
@given(order=st.permutations(range(N)), length=st.integers(1, N))
def test_every_prediction_is_that_of_a_text_without_the_later_tokens(
    position: str, order: list[int], length: int
) -> None:
    model = once(position)
    tokens, ranks = torch.randint(0, V, (2, N)), torch.tensor([order, order[::-1]])
    lengths = torch.tensor([N, length])
    found = model(tokens, lengths, ranks, torch.arange(N).expand(2, -1))
    for b in range(2):
        size = int(lengths[b])
        for asked in range(size):
            torch.testing.assert_close(
                found[b, asked], slow(model, tokens[b, :size], ranks[b], asked)
            )


@each_position
def test_hidden_tokens_do_not_change_a_prediction_and_get_no_gradient(position: str) -> None:
    model, order = built(position, "learned"), torch.tensor([[3, 0, 4, 1, 2]])
    tokens, lengths, at = torch.tensor([[3, 1, 4, 2, 5]]), torch.tensor([N]), torch.arange(N)[None]
    found = model.features(tokens, lengths, order, at)
    for asked in range(N):
        other = torch.where(order >= order[0, asked], (tokens + 6) % V, tokens)
        torch.testing.assert_close(
            model.features(other, lengths, order, at)[0, asked], found[0, asked]
        )
        table = model.body.embedding.tokens.weight
        (gradient,) = torch.autograd.grad(
            found[0, asked].square().sum(), table, retain_graph=True, allow_unused=True
        )
        reached = set() if gradient is None else set(gradient.any(-1).nonzero().flatten().tolist())
        assert reached == set(tokens[0, order[0] < order[0, asked]].tolist()), (
            "those before it, and no other"
        )


def test_the_asked_positions_alone_are_the_same_as_all() -> None:
    model, order = built("rotary"), torch.tensor([[3, 0, 4, 1, 2], [0, 1, 2, 3, 4]])
    tokens, lengths, at = (
        torch.randint(0, V, (2, N)),
        torch.tensor([N, 4]),
        torch.tensor([[4, 2], [3, 3]]),
    )
    every = model(tokens, lengths, order, torch.arange(N).expand(2, -1))
    found = model(tokens, lengths, order, at)
    torch.testing.assert_close(found, every.gather(1, at.unsqueeze(-1).expand(-1, -1, V)))
    assert not torch.allclose(every[1, 0], every[1, 1]), (
        "two positions that see nothing or little still know where they are"
    )


def test_everything_learns_the_query_too() -> None:
    model = built("t5").train()
    order, at = torch.tensor([[3, 0, 4, 1, 2]]), torch.tensor([[2, 0]])
    model(torch.tensor([[3, 1, 4, 2, 5]]), torch.tensor([N]), order, at).square().sum().backward()
    assert all(
        parameter.grad is not None and parameter.grad.any()
        for _, parameter in model.named_parameters()
    )
    assert not hasattr(model.head, "weight"), "tied to the embedding"


def test_packed_documents_in_two_streams_are_the_documents_alone() -> None:
    model, order = built("rotary", "none"), torch.tensor([[1, 0, 2, 1, 0]])
    tokens, at, ids = (
        torch.tensor([[3, 1, 4, 2, 5]]),
        torch.arange(5)[None],
        torch.tensor([[0, 0, 0, 1, 1]]),
    )
    found = model(tokens, torch.tensor([5]), order, at, ids)
    for cut in (slice(0, 3), slice(3, 5)):
        size = cut.stop - cut.start
        alone = model(tokens[:, cut], torch.tensor([size]), order[:, cut], torch.arange(size)[None])
        torch.testing.assert_close(found[:, cut], alone)


@pytest.mark.parametrize(
    "changed",
    [
        {"stack": "shared"},
        {"embedding": {"name": "factorized", "rank": 3}},
        {"residual": "post-norm"},
    ],
    ids=str,
)
def test_two_streams_through_other_parts_are_the_slow_loop(changed: dict[str, object]) -> None:
    model, order, tokens = (
        built("alibi", **changed),
        torch.tensor([[3, 0, 4, 1, 2]]),
        torch.tensor([[3, 1, 4, 2, 5]]),
    )
    found = model(tokens, torch.tensor([N]), order, torch.arange(N)[None])
    for asked in range(N):
        torch.testing.assert_close(found[0, asked], slow(model, tokens[0], order[0], asked))


def test_mistakes_are_answered_with_sentences() -> None:
    for changed in (
        {"mask": {"name": "window", "left": 1}},
        {"mixer": "light-convolution"},
        {"stack": "funnel"},
        {"block": "evolved"},
    ):
        with raises("parts-do-not-combine"):
            built(**changed)
    with raises("family-not-supported"):
        TwoStream(make(Encoder, "bag"), V)
    with raises("vocabulary-differs"):
        TwoStream(built().body, 5)
