"""Caches and the state a decoder carries, as values: nothing that is done with one changes another."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from saccade.core import KeyValues, State
from saccade.models import Seq2Seq
from saccade.models.builder import Builder

pieces = st.lists(st.integers(1, 5), min_size=1, max_size=8)


def filled(sizes: list[int], batch: int = 3) -> tuple[KeyValues, Tensor, Tensor]:
    """A cache filled piece by piece, and what should be in it."""
    cache, keys, values = KeyValues(), [], []
    for size in sizes:
        keys.append(torch.randn(batch, 2, size, 4))
        values.append(torch.randn(batch, 2, size, 6))
        cache = cache.append(keys[-1].clone(), values[-1].clone())
        assert torch.equal(cache.key, torch.cat(keys, 2))
        assert torch.equal(cache.value, torch.cat(values, 2))
    return cache, torch.cat(keys, 2), torch.cat(values, 2)


@given(sizes=pieces, inference=st.booleans())
def test_a_cache_holds_what_was_appended_in_buffers_or_with_gradients(
    sizes: list[int], inference: bool
) -> None:
    with torch.set_grad_enabled(not inference):
        cache, keys, values = filled(sizes)
    assert cache.length == sum(sizes)
    assert torch.equal(cache.key, keys)
    assert torch.equal(cache.value, values)


@torch.no_grad()
def test_a_buffer_doubles_so_that_most_appends_copy_one_position() -> None:
    cache = KeyValues()
    buffers = set()
    for _ in range(200):
        cache = cache.append(torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 1, 4))
        buffers.add(cache.key.untyped_storage().data_ptr())
    assert len(buffers) <= 9
    assert cache.key.shape == (1, 1, 200, 4)


def test_gradients_flow_through_a_cache() -> None:
    cache, parts = KeyValues(), [torch.randn(1, 1, 1, 2, requires_grad=True) for _ in range(3)]
    for n, part in enumerate(parts):
        cache = cache.append(part, part)
        (cache.key.sum() * (n + 1)).backward(retain_graph=True)
    assert [part.grad.unique().item() for part in parts] == [6.0, 5.0, 3.0]


@given(sizes=pieces, rows=st.lists(st.integers(0, 2), min_size=1, max_size=6))
@torch.no_grad()
def test_rows_of_a_cache_repeat_move_and_leave(sizes: list[int], rows: list[int]) -> None:
    cache, keys, values = filled(sizes)
    moved = cache.reorder(torch.tensor(rows))
    assert torch.equal(moved.key, keys[rows])
    assert torch.equal(moved.value, values[rows])
    new = torch.randn(len(rows), 2, 1, 4), torch.randn(len(rows), 2, 1, 6)
    assert torch.equal(moved.append(*new).key, torch.cat([keys[rows], new[0]], 2))
    assert torch.equal(cache.key, keys), "the cache that was left is as it was"


@torch.no_grad()
def test_an_empty_cache_can_be_reordered() -> None:
    cache = KeyValues()
    moved = cache.reorder(torch.tensor([0, 0])).append(
        torch.zeros(2, 1, 1, 4), torch.zeros(2, 1, 1, 4)
    )
    assert (cache.length, moved.length) == (0, 1)
    assert moved.key.shape == (2, 1, 1, 4)


def test_a_state_reorders_all_its_parts_and_keeps_numbers() -> None:
    cache, keys, _ = filled([3])
    carried = (torch.randn(3, 1, 2), torch.randn(3, 1, 2))
    state = State(
        carried=carried,
        caches=[cache],
        lengths=torch.tensor([5, 6, 7]),
        inner=State(x=torch.arange(3)),
        length=4,
        none=None,
    )
    rows = torch.tensor([2, 0, 0, 2])
    moved = state.reorder(rows)
    assert isinstance(moved.carried, tuple)
    assert torch.equal(moved.carried[1], carried[1][rows])
    assert isinstance(moved.caches, list)
    assert torch.equal(moved.caches[0].key, keys[rows])
    assert moved.lengths.tolist() == [7, 5, 5, 7]
    assert moved.inner.x.tolist() == [2, 0, 0, 2]
    assert (moved.length, moved.none) == (4, None)
    assert state.lengths.tolist() == [5, 6, 7]


def test_next_replaces_some_parts_and_a_missing_part_is_named() -> None:
    state = State(a=1, b=2)
    assert (state.next(b=3).a, state.next(b=3).b, state.b) == (1, 3, 2)
    with pytest.raises(AttributeError, match="this state has no 'c'; it has a, b"):
        _ = state.c


# --- values ---


def piece(cache: KeyValues, number: float, size: int = 1) -> KeyValues:
    """The cache with `size` further positions that hold a number."""
    return cache.append(torch.full((2, 1, size, 3), number), torch.full((2, 1, size, 2), -number))


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("before", [0, 1, 5])
def test_two_steps_from_one_cache_do_not_see_each_other(before: int, grad: bool) -> None:
    with torch.set_grad_enabled(grad):
        cache = KeyValues()
        for n in range(before):
            cache = piece(cache, n)
        kept = list(range(before))
        first, second = piece(cache, 10), piece(cache, 20)
        third = piece(piece(first, 11), 12)
        fourth = piece(second, 21)
        again = piece(cache, 10)
        for one, expected in (
            (cache, kept),
            (first, [*kept, 10]),
            (second, [*kept, 20]),
            (third, [*kept, 10, 11, 12]),
            (fourth, [*kept, 20, 21]),
            (again, [*kept, 10]),
        ):
            assert one.length == len(expected)
            if expected:
                assert one.key[1, 0, :, 2].tolist() == expected
                assert (-one.value[0, 0, :, 1]).tolist() == expected


def test_what_was_appended_is_neither_changed_nor_watched() -> None:
    with torch.no_grad():
        key, value = torch.zeros(1, 1, 2, 3), torch.zeros(1, 1, 2, 3)
        cache = KeyValues().append(key, value)
        for _ in range(5):
            cache = cache.append(torch.ones(1, 1, 1, 3), torch.ones(1, 1, 1, 3))
        assert (key == 0).all()
        assert (value == 0).all()


@pytest.mark.parametrize("first", ["inference", "no grad", "grad"])
@pytest.mark.parametrize("then", ["inference", "no grad", "grad"])
def test_a_cache_made_in_one_mode_continues_in_another(first: str, then: str) -> None:
    modes = {"inference": torch.inference_mode, "no grad": torch.no_grad, "grad": torch.enable_grad}
    with modes[first]():
        cache = piece(piece(piece(KeyValues(), 1), 2), 3)
    with modes[then]():
        found = piece(piece(cache, 4), 5)
    assert found.key[0, 0, :, 0].tolist() == [1, 2, 3, 4, 5]
    assert cache.key[0, 0, :, 0].tolist() == [1, 2, 3]


steps = st.lists(
    st.tuples(
        st.sampled_from(["append", "reorder"]), st.integers(0, 10), st.integers(1, 4), st.booleans()
    ),
    min_size=1,
    max_size=25,
)


@given(steps=steps)
def test_any_tree_of_appends_and_reorders_is_a_tree_of_lists(
    steps: list[tuple[str, int, int, bool]],
) -> None:
    found: list[KeyValues] = [KeyValues()]
    model: list[list[list[float]]] = [[[], []]]  # of each cache, of each row, the numbers appended
    for n, (what, which, size, grad) in enumerate(steps):
        cache, rows = found[which % len(found)], model[which % len(found)]
        with torch.set_grad_enabled(grad):
            if what == "append":
                numbers = torch.arange(len(rows) * size).view(len(rows), 1, size, 1) + 100.0 * n
                found.append(cache.append(numbers, -numbers))
                model.append([row + numbers[b].flatten().tolist() for b, row in enumerate(rows)])
            elif cache.length:  # an empty cache knows no rows
                order = [(which + k) % len(rows) for k in range(size)]
                found.append(cache.reorder(torch.tensor(order)))
                model.append([rows[b] for b in order])
    for cache, rows in zip(found, model, strict=True):
        assert cache.length == len(rows[0])
        if cache.length:
            assert cache.key[:, 0, :, 0].tolist() == rows
            assert (-cache.value[:, 0, :, 0]).tolist() == rows


MODELS = {
    "transformer": {"family": "transformer", "dim": 8, "hidden": 8, "depth": 2, "heads": 2},
    "shared": {
        "family": "transformer",
        "dim": 8,
        "hidden": 8,
        "depth": 2,
        "heads": 2,
        "stack": "shared",
        "position": "rotary",
    },
    "convolution": {
        "family": "transformer",
        "dim": 8,
        "hidden": 8,
        "depth": 1,
        "heads": 2,
        "mixer": {"name": "light-convolution", "width": 3},
    },
    "bahdanau": {"family": "bahdanau", "dim": 8, "hidden": 6},
    "luong": {"family": "luong", "dim": 8, "hidden": 6},
}
SOURCE, LENGTHS = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 0, 0]]), torch.tensor([5, 3])


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_state_is_a_value_whatever_the_model(name: str, grad: bool) -> None:
    model = Builder(MODELS[name]).make(Seq2Seq, 11, 12).eval()
    with torch.set_grad_enabled(grad):
        state = model.start(SOURCE, LENGTHS)
        for tokens in ([1, 2], [3, 4], [5, 6]):
            once, after = model.step(torch.tensor(tokens), state)
            aside, _ = model.step(torch.tensor([7, 7]), model.step(torch.tensor([8, 9]), state)[1])
            twice, again = model.step(torch.tensor(tokens), state)
            assert torch.equal(once, twice)
            ahead, later = (
                model.step(torch.tensor([2, 3]), after)[0],
                model.step(torch.tensor([2, 3]), again)[0],
            )
            assert torch.equal(ahead, later)
            assert after.length == state.length + 1
            swapped, _ = model.step(torch.tensor(tokens[::-1]), state.reorder(torch.tensor([1, 0])))
            torch.testing.assert_close(swapped, once.flip(0))
            assert not torch.equal(aside, ahead)
            state = after
