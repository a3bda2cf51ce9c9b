"""Blocks chosen by their mean key: against loops, in cached steps, looked at, and without a gradient through the choice."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from core_helpers import tensors
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from saccade.core import Mechanism, attend, masks, record, scores, weights, which_backend
from saccade.layers.multihead_attention import MultiHeadAttention


def by_loops(query: np.ndarray, key: np.ndarray, size: int, count: int) -> np.ndarray:
    """B H Q K: a query sees the past of its own block, and the `count` earlier blocks with the greatest query · mean key."""
    batch, heads, queries, _ = query.shape
    keys, group = key.shape[2], heads // key.shape[1]
    allowed = np.zeros((batch, heads, queries, keys), dtype=bool)
    for b, h, row in np.ndindex(batch, heads, queries):
        i = keys - queries + row
        own = i // size
        fits = []
        for block in range(own):
            members = [key[b, h // group, j] for j in range(block * size, (block + 1) * size)]
            fits.append((float(query[b, h, row] @ (sum(members) / size)), block))
        chosen = {block for _, block in sorted(fits, reverse=True)[:count]} | {own}
        for j in range(i + 1):
            allowed[b, h, row, j] = j // size in chosen
    return allowed


@given(
    size=st.integers(1, 5),
    count=st.integers(0, 4),
    queries=st.integers(1, 13),
    more=st.integers(0, 6),
    groups=st.integers(1, 2),
    shared=st.integers(1, 2),
)
def test_a_query_sees_its_own_block_and_the_best_earlier_ones(
    size: int, count: int, queries: int, more: int, groups: int, shared: int
) -> None:
    q, k, v = tensors(
        queries, queries + more, heads=groups * shared, kv_heads=shared, dtype=torch.float64
    )
    mechanism = Mechanism(mask=masks.top_blocks(size, count))
    expected = by_loops(q.numpy(), k.numpy(), size, count)
    np.testing.assert_array_equal(weights(q, k, mechanism).numpy() > 0, expected)
    torch.testing.assert_close(
        attend(q, k, v, mechanism), attend(q, k, v, mask=masks.matrix(expected), backend="eager")
    )


def test_the_choice_is_made_among_projected_queries_and_keys() -> None:
    q, k, _ = tensors(9, 9, dtype=torch.float64)
    score = scores.ReducedRank(4, 4, rank=3, heads=2).double()
    found = weights(q, k, Mechanism(score, mask=masks.top_blocks(2, 1))) > 0
    np.testing.assert_array_equal(
        found.numpy(),
        by_loops(score.query(q).detach().numpy(), score.key(k).detach().numpy(), 2, 1),
    )


@pytest.mark.parametrize("pieces", [[1] * 11, [4, 1, 6], [10, 1]])
def test_cached_steps_choose_what_the_whole_pass_does(pieces: list[int]) -> None:
    (q, k, v), at = tensors(11, 11, dtype=torch.float64), 0
    mechanism = Mechanism(mask=masks.top_blocks(3, 1))
    whole = attend(q, k, v, mechanism)
    for size in pieces:
        end = at + size
        found = attend(q[:, :, at:end], k[:, :, :end], v[:, :, :end], mechanism)
        torch.testing.assert_close(found, whole[:, :, at:end])
        at = end


def test_other_masks_narrow_the_blocks_and_are_narrowed_by_them() -> None:
    q, k, _ = tensors(8, 8, dtype=torch.float64)
    other = masks.padding([5, 8]) & masks.window(4)
    chosen = by_loops(q.numpy(), k.numpy(), 2, 1)
    for found in (
        weights(q, k, Mechanism(mask=masks.top_blocks(2, 1)), other),
        weights(q, k, Mechanism(mask=other), masks.top_blocks(2, 1)),
        weights(q, k, Mechanism(mask=masks.top_blocks(2, 1)), other.prepare(2, 2, 8, 8)),
        weights(q, k, None, (masks.top_blocks(2, 1) & other).prepare(2, 2, 8, 8)),
    ):
        np.testing.assert_array_equal(found.numpy() > 0, chosen & other.dense(2, 2, 8, 8).numpy())
    found = weights(q, k, None, masks.top_blocks(2, 1) | masks.window(1)) > 0
    np.testing.assert_array_equal(found.numpy(), chosen | masks.window(1).dense(2, 2, 8, 8).numpy())


def test_no_gradient_flows_through_the_choice() -> None:
    q, k, v = tensors(8, 8, dtype=torch.float64, requires_grad=True)
    chosen = by_loops(q.detach().numpy(), k.detach().numpy(), 2, 1)
    mask = masks.top_blocks(2, 1).given(q, k)
    assert not mask.dense(2, 2, 8, 8).requires_grad
    found, pull = (
        attend(q, k, v, mask=masks.top_blocks(2, 1)),
        torch.randn(2, 2, 8, 4, dtype=torch.float64),
    )
    fixed = attend(q, k, v, mask=masks.matrix(chosen), backend="eager")
    for one, other in zip(
        torch.autograd.grad(found, (q, k, v), pull),
        torch.autograd.grad(fixed, (q, k, v), pull),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("rows", [None, [0], [7], [3, 4, 5], [6, 1, 1], [0, 7]])
def test_chosen_blocks_are_looked_at_in_whole_and_in_part(rows: list[int] | None) -> None:
    layer = MultiHeadAttention(8, 2, mechanism=Mechanism(mask=masks.top_blocks(2, 1))).double()
    x = torch.randn(2, 8, 8, dtype=torch.float64)
    with record(layer) as seen:
        layer(x)
    q, k = layer.split(layer.q(x), 2), layer.split(layer.k(x), 2)
    whole = weights(q, k, layer.mechanism)
    torch.testing.assert_close(
        seen["attention"].weights(rows), whole if rows is None else whole[:, :, rows]
    )


def test_who_runs_chosen_blocks() -> None:
    q, k, _ = tensors(40, 40)
    assert which_backend(q, k, mask=masks.top_blocks(4, 2)).chosen == "sdpa"
    reasons = {
        verdict.backend: verdict.reason
        for verdict in which_backend(q, k, Mechanism(scores.EluKernel()), masks.top_blocks(4, 2))
    }
    assert reasons["sdpa"] is None


def visible(found: Tensor) -> list[int]:
    return found[0, 0, -1].nonzero().flatten().tolist()


def test_chosen_blocks_by_hand() -> None:
    k = torch.tensor(
        [[1.0, 0.0], [1.0, 0.0], [0.0, 3.0], [0.0, 0.0], [2.0, 0.0], [-2.0, 0.0], [0.0, 0.0]]
    )[None, None]
    q = torch.tensor([[[[0.0, 1.0]]]])
    assert visible(weights(q, k, None, masks.top_blocks(2, 1))) == [2, 3, 6]
    assert visible(weights(torch.tensor([[[[1.0, 0.0]]]]), k, None, masks.top_blocks(2, 1))) == [
        0,
        1,
        6,
    ]
    assert visible(weights(q, k, None, masks.top_blocks(2, 0))) == [6]
    assert visible(weights(q, k, None, masks.top_blocks(2, 9))) == [0, 1, 2, 3, 4, 5, 6]
    assert visible(weights(q, k, None, masks.top_blocks(100, 1))) == [0, 1, 2, 3, 4, 5, 6]
