"""Caches of keys and values, and the state a decoder carries: growing, and rows that repeat, move and leave."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from saccade.core import KeyValues, State

pieces = st.lists(st.integers(1, 5), min_size=1, max_size=8)


def filled(sizes: list[int], batch: int = 3) -> tuple[KeyValues, Tensor, Tensor]:
    """A cache filled piece by piece, and what should be in it."""
    cache, keys, values = KeyValues(), [], []
    for size in sizes:
        keys.append(torch.randn(batch, 2, size, 4))
        values.append(torch.randn(batch, 2, size, 6))
        seen = cache.append(keys[-1].clone(), values[-1].clone())
        assert torch.equal(seen[0], torch.cat(keys, 2))
        assert torch.equal(seen[1], torch.cat(values, 2))
    return cache, torch.cat(keys, 2), torch.cat(values, 2)


@given(sizes=pieces, inference=st.booleans())
def test_a_cache_holds_what_was_appended_in_buffers_or_with_gradients(sizes: list[int], inference: bool) -> None:
    with torch.set_grad_enabled(not inference):
        cache, keys, values = filled(sizes)
    assert cache.length == sum(sizes)
    assert torch.equal(cache.key, keys)
    assert torch.equal(cache.value, values)


@torch.no_grad()
def test_a_buffer_doubles_so_that_most_appends_copy_one_place() -> None:
    cache = KeyValues()
    buffers = set()
    for _ in range(200):
        seen, _ = cache.append(torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 1, 4))
        buffers.add(seen.untyped_storage().data_ptr())
    assert len(buffers) <= 9
    assert cache.key.shape == (1, 1, 200, 4)


def test_gradients_flow_through_a_cache() -> None:
    cache, parts = KeyValues(), [torch.randn(1, 1, 1, 2, requires_grad=True) for _ in range(3)]
    for n, part in enumerate(parts):
        key, _ = cache.append(part, part)
        (key.sum() * (n + 1)).backward(retain_graph=True)
    assert [part.grad.unique().item() for part in parts] == [6.0, 5.0, 3.0]


@given(sizes=pieces, rows=st.lists(st.integers(0, 2), min_size=1, max_size=6))
@torch.no_grad()
def test_rows_of_a_cache_repeat_move_and_leave(sizes: list[int], rows: list[int]) -> None:
    cache, keys, values = filled(sizes)
    moved = cache.reorder(torch.tensor(rows))
    assert torch.equal(moved.key, keys[rows])
    assert torch.equal(moved.value, values[rows])
    new = torch.randn(len(rows), 2, 1, 4), torch.randn(len(rows), 2, 1, 6)
    assert torch.equal(moved.append(*new)[0], torch.cat([keys[rows], new[0]], 2))
    assert torch.equal(cache.key, keys), "the cache that was left is as it was"


@torch.no_grad()
def test_an_empty_cache_reordered_is_another_cache() -> None:
    cache = KeyValues()
    moved = cache.reorder(torch.tensor([0, 0]))
    moved.append(torch.zeros(2, 1, 1, 4), torch.zeros(2, 1, 1, 4))
    assert (cache.length, moved.length) == (0, 1)


def test_a_state_reorders_all_its_parts_and_keeps_numbers() -> None:
    cache, keys, _ = filled([3])
    carried = (torch.randn(3, 1, 2), torch.randn(3, 1, 2))
    state = State(
        carried=carried, caches=[cache], lengths=torch.tensor([5, 6, 7]), inner=State(x=torch.arange(3)), place=4, none=None
    )
    rows = torch.tensor([2, 0, 0, 2])
    moved = state.reorder(rows)
    assert isinstance(moved.carried, tuple)
    assert torch.equal(moved.carried[1], carried[1][rows])
    assert isinstance(moved.caches, list)
    assert torch.equal(moved.caches[0].key, keys[rows])
    assert moved.lengths.tolist() == [7, 5, 5, 7]
    assert moved.inner.x.tolist() == [2, 0, 0, 2]
    assert (moved.place, moved.none) == (4, None)
    assert state.lengths.tolist() == [5, 6, 7]


def test_next_replaces_some_parts_and_a_missing_part_is_named() -> None:
    state = State(a=1, b=2)
    assert (state.next(b=3).a, state.next(b=3).b, state.b) == (1, 3, 2)
    with pytest.raises(AttributeError, match="this state has no 'c'; it has a, b"):
        _ = state.c
