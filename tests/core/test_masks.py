"""Masks against loops over (b, h, i, j), and what they say when they do not fit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support import raises

from saccade.core import Mechanism, attend, masks
from saccade.core.masks import Mask
from saccade.core.window_masks import ShiftedWindows
from saccade.errors import SaccadeError

BATCH, HEADS, KEYS = 2, 3, 6
LENGTHS, IDS = [2, 5], [[0, 0, 1, 1, 1, 2], [7, 7, 7, 7, 3, 3]]
EDGES = np.random.default_rng(0).integers(0, 2, (KEYS, KEYS)).tolist()
Predicate = Callable[[int, int, int, int], bool]

# One of each kind, and its predicate; `blocks` has tests of its own below, `top-blocks` in test_top_blocks.py.
EXAMPLES: dict[str, tuple[Mask, Predicate]] = {
    "full": (masks.full(), lambda b, h, i, j: True),
    "causal": (masks.causal(), lambda b, h, i, j: j <= i),
    "window": (masks.window(2, 1), lambda b, h, i, j: -2 <= j - i <= 1),
    "padding": (masks.padding(LENGTHS), lambda b, h, i, j: j < LENGTHS[b]),
    "prefix": (masks.prefix(LENGTHS), lambda b, h, i, j: j <= i or j < LENGTHS[b]),
    "documents": (masks.documents(IDS), lambda b, h, i, j: IDS[b][i] == IDS[b][j]),
    "matrix": (masks.matrix(EDGES), lambda b, h, i, j: EDGES[i][j] == 1),
    "blocks": (
        masks.blocks(KEYS, size=1, window=1, globals=0, random=0),
        lambda b, h, i, j: abs(i - j) <= 1,
    ),
    "where": (
        masks.where(lambda b, h, i, j: (i + 2 * j + h) % 3 == b),
        lambda b, h, i, j: (i + 2 * j + h) % 3 == b,
    ),
}
# windows of 2 × 3 over a grid of 2 × 6 that was rolled by one row and one column: who came from the other end sees only such
EXAMPLES["shifted-windows"] = (
    ShiftedWindows((2, 6), (2, 3), (1, 1)),
    lambda b, h, i, j: (
        ((i // 3 == 1) == (j // 3 == 1)) and ((3 * b + i % 3 == 5) == (3 * b + j % 3 == 5))
    ),
)
names = st.sampled_from(sorted(EXAMPLES))


def by_loops(predicate: Predicate, queries: int, keys: int = KEYS) -> np.ndarray:
    """B H Q K; the last query is at the last key."""
    allowed = np.zeros((BATCH, HEADS, queries, keys), dtype=bool)
    for b, h, row, j in np.ndindex(*allowed.shape):
        allowed[b, h, row, j] = predicate(b, h, keys - queries + row, j)
    return allowed


def dense(mask: Mask, queries: int, keys: int = KEYS) -> np.ndarray:
    found = mask.dense(BATCH, HEADS, queries, keys)
    assert found.dim() == 4
    assert found.dtype == torch.bool
    return found.expand(BATCH, HEADS, queries, keys).numpy()


def test_every_mask_of_the_table_is_tried_here() -> None:
    assert set(EXAMPLES) - {"where"} == set(masks.table.names()) - {"top-blocks"}


@pytest.mark.parametrize("queries", [KEYS, 2, 1])
@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_a_mask_is_its_predicate_also_for_the_last_queries_alone(name: str, queries: int) -> None:
    mask, predicate = EXAMPLES[name]
    np.testing.assert_array_equal(dense(mask, queries), by_loops(predicate, queries))


@given(first=names, second=names, third=names, queries=st.integers(1, KEYS))
def test_masks_combine_as_their_predicates_do(
    first: str, second: str, third: str, queries: int
) -> None:
    (a, is_a), (b, is_b), (c, is_c) = EXAMPLES[first], EXAMPLES[second], EXAMPLES[third]
    mask = (a & b) | c
    expected = by_loops(lambda *at: (is_a(*at) and is_b(*at)) or is_c(*at), queries)
    np.testing.assert_array_equal(dense(mask, queries), expected)
    mask = (a | b) & c
    expected = by_loops(lambda *at: (is_a(*at) or is_b(*at)) and is_c(*at), queries)
    np.testing.assert_array_equal(dense(mask, queries), expected)


def test_a_size_on_which_a_mask_does_not_depend_stays_one() -> None:
    assert masks.causal().dense(5, 4, 3, 7).shape == (1, 1, 3, 7)
    assert masks.padding([1, 2]).dense(2, 4, 3, 7).shape == (2, 1, 1, 7)
    assert (masks.causal() & masks.padding([1, 2])).dense(2, 4, 3, 7).shape == (2, 1, 3, 7)
    assert masks.matrix(torch.ones(3, 7).bool()).dense(2, 4, 3, 7).shape == (1, 1, 3, 7)
    assert masks.matrix(torch.ones(2, 1, 1, 7).bool()).dense(2, 4, 3, 7).shape == (2, 1, 1, 7)
    assert masks.where(lambda b, h, i, j: h > 0).dense(2, 4, 3, 7).shape == (1, 4, 1, 7)


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("queries", [2, KEYS])
def test_the_opposite_of_a_mask(name: str, queries: int) -> None:
    mask, predicate = EXAMPLES[name]
    sizes = BATCH, HEADS, queries, KEYS
    wanted = np.array([[[[not predicate(b, h, i, j) for j in range(KEYS)] for i in range(KEYS - queries, KEYS)]
                        for h in range(HEADS)] for b in range(BATCH)])  # fmt: skip
    assert np.array_equal((~mask).dense(*sizes).expand(sizes).numpy(), wanted)
    assert (~~mask) is mask
    q, k = torch.randn(BATCH, HEADS, queries, 4), torch.randn(BATCH, HEADS, KEYS, 4)
    by_matrix = attend(q, k, k, mask=masks.matrix(torch.tensor(wanted)))
    for backend in (None, "eager", "sdpa"):
        torch.testing.assert_close(attend(q, k, k, mask=~mask, backend=backend), by_matrix)
        torch.testing.assert_close(
            attend(q, k, k, Mechanism(mask=~mask), backend=backend), by_matrix
        )
    rows = torch.tensor([1, 0, 1])
    turned = (~mask).prepare(*sizes).reorder(rows)
    assert np.array_equal(
        turned.dense(3, HEADS, queries, KEYS).expand(3, HEADS, queries, KEYS).numpy(), wanted[rows]
    )


def test_full_disappears_in_a_combination() -> None:
    causal, full = masks.causal(), masks.full()
    assert causal & full is causal
    assert full & causal is causal
    assert full | causal is full
    assert causal | full is full
    assert causal & causal is causal


def test_masks_are_written_as_they_are_made() -> None:
    assert repr(masks.causal() & masks.window(1, 2)) == "(Causal() & Window(1, 2))"
    assert (
        repr(masks.padding([3, 4]) | masks.full() & masks.prefix([1]))
        == "(Padding((2,)) | Prefix((1,)))"
    )
    assert masks.causal is masks.Causal is masks.table["causal"]


@pytest.mark.parametrize(
    "shape",
    [(4, 6), (HEADS, 4, 6), (1, 4, 6), (BATCH, HEADS, 4, 6), (1, HEADS, 4, 6), (BATCH, 1, 4, 6)],
)
def test_a_matrix_may_have_two_three_or_four_dimensions(shape: tuple[int, ...]) -> None:
    allowed = torch.rand(shape) < 0.5
    expected = allowed.view((1,) * (4 - len(shape)) + shape).expand(BATCH, HEADS, 4, 6)
    np.testing.assert_array_equal(dense(masks.matrix(allowed), 4, 6), expected)
    np.testing.assert_array_equal(dense(masks.matrix(allowed.long()), 4, 6), expected)


def test_a_square_matrix_over_all_positions_serves_the_first_positions_and_the_last_queries() -> (
    None
):
    allowed = torch.rand(8, 8) < 0.5
    np.testing.assert_array_equal(dense(masks.matrix(allowed), 5, 5)[0, 0], allowed[:5, :5])
    np.testing.assert_array_equal(dense(masks.matrix(allowed), 2, 5)[0, 0], allowed[3:5, :5])


def test_a_matrix_may_have_more_queries_than_keys() -> None:
    allowed = torch.rand(7, 3) < 0.5
    np.testing.assert_array_equal(dense(masks.matrix(allowed), 7, 3)[0, 0], allowed)
    q, k = torch.randn(BATCH, 1, 7, 4), torch.randn(BATCH, 1, 3, 4)
    seen = attend(q, k, torch.eye(3).expand(BATCH, 1, 3, 3), mask=masks.matrix(allowed))
    np.testing.assert_array_equal(seen[0, 0] > 0, allowed)


@given(left=st.integers(0, 5), right=st.integers(0, 5), keys=st.integers(1, 9), data=st.data())
def test_attention_over_a_window_is_attention_under_the_dense_band(
    left: int, right: int, keys: int, data: st.DataObject
) -> None:
    queries = data.draw(st.integers(1, keys))
    q, k = torch.randn(1, 2, queries, 4), torch.randn(1, 2, keys, 4)
    band = torch.ones(keys, keys, dtype=torch.bool).tril(right).triu(-left)[keys - queries :]
    found = attend(q, k, k, mask=masks.window(left, right), backend="eager")
    scores = (q @ k.mT / 2).masked_fill(~band, -torch.inf)
    torch.testing.assert_close(found, scores.softmax(-1) @ k)


def test_the_structure_of_big_birds_blocks() -> None:
    size, window, first, random = 4, 1, 2, 3
    mask = masks.blocks(64, size, window, first, random, seed=5)
    whole = dense(mask, 64, 64)[0, 0]
    blocks = whole.reshape(16, size, 16, size)
    table = blocks[:, 0, :, 0]
    assert (blocks == table[:, None, :, None]).all(), "a block is seen whole or not at all"
    assert table[:first].all()
    assert table[:, :first].all()
    for row in range(first, 16):
        near = {c for c in range(16) if abs(c - row) <= window} | set(range(first))
        seen = set(np.flatnonzero(table[row]).tolist())
        assert near <= seen
        assert len(seen - near) == random
    assert torch.equal(mask.values, masks.blocks(64, size, window, first, random, seed=5).values)
    assert not torch.equal(
        mask.values, masks.blocks(64, size, window, first, random, seed=6).values
    )
    np.testing.assert_array_equal(dense(mask, 3, 50)[0, 0], whole[47:50, :50])


def test_each_head_of_each_layer_draws_its_own_random_blocks() -> None:
    make = lambda **more: masks.blocks(60, 4, globals=1, last=1, random=2, seed=3, **more)
    known = masks.blocks(60, 4, window=1, globals=1, last=1, random=0).values[0]
    patterns = [one for n in range(3) for one in make(heads=4, n=n).values]
    for one in patterns:
        more = (one & ~known).sum(1)
        # the rows next to the global ones have as many blocks to draw from as the others less one
        assert more[[0, -1]].tolist() == [0, 0]
        assert (more[1:-1] == 2).all()
        assert not (known & ~one).any()
    assert len({one.numpy().tobytes() for one in patterns}) == 12, "no two are alike"
    assert torch.equal(make(heads=4, n=1).values, make(heads=4, n=1).values)
    assert torch.equal(make(heads=2, n=1).values, make(heads=4, n=1).values[:2])
    assert make().values.shape[0] == 1, "one pattern for all heads unless they are counted"
    assert masks.blocks(60, 4, random=0, heads=4).values.shape[0] == 1
    whole = make(heads=4).dense(1, 4, 60, 60)
    at = torch.arange(60) // 4
    for head, pattern in enumerate(make(heads=4).values):
        assert torch.equal(whole[0, head], pattern[at][:, at])
    needed = make(heads=4).needed(np.arange(0, 60, 6), np.arange(0, 60, 6), 6)
    cells = whole[0].reshape(4, 10, 6, 10, 6).any(4).any(2)
    np.testing.assert_array_equal(needed, cells.numpy())
    with raises("mask-heads-differ"):
        make(heads=4).dense(1, 3, 60, 60)
    with raises("mask-sizes"):
        masks.blocks(23_171, 1, heads=8)


def test_documents_do_not_see_each_other() -> None:
    x = torch.randn(1, 2, 6, 4)
    ids = masks.documents([[0, 0, 0, 1, 1, 2]])
    whole = attend(x, x, x, mask=ids & masks.causal())
    for a, b in ((0, 3), (3, 5), (5, 6)):
        part = x[:, :, a:b]
        torch.testing.assert_close(whole[:, :, a:b], attend(part, part, part, mask=masks.causal()))


def test_a_mask_moves_with_its_tensor() -> None:
    mask = masks.causal() & (masks.padding([1, 2]) | masks.blocks(8, 2))
    moved = mask.to("meta")
    assert moved.second.first.values.device.type == "meta"
    assert moved.second.second.size == 2
    assert mask.second.first.values.device.type == "cpu"
    assert masks.padding(torch.tensor([1])).to("cpu").values.device.type == "cpu"


WRONG: list[tuple[str, Callable[[], object], str]] = [
    (
        "negative window",
        lambda: masks.window(-1),
        "must reach 0 or more positions to each side, got -1 and -1",
    ),
    (
        "negative right",
        lambda: masks.window(1, -2),
        "0 or more positions to each side, got 1 and -2",
    ),
    (
        "floating mask",
        lambda: masks.matrix(torch.rand(3, 3)),
        "must be booleans or 0/1 integers .* got floating-point numbers",
    ),
    (
        "one dimension",
        lambda: masks.matrix([1, 0]),
        r"must be Q × K, H × Q × K or B × H × Q × K, got shape \(2,\)",
    ),
    ("ragged", lambda: masks.matrix([[1, 0], [1]]), "lists of equal lengths, got list"),
    (
        "text",
        lambda: masks.padding("long"),
        "lengths must be a tensor, or lists of equal lengths, got str",
    ),
    (
        "lengths in two dimensions",
        lambda: masks.padding([[1], [2]]),
        r"lengths must be whole numbers in 1 dimension\(s\), got shape \(2, 1\)",
    ),
    (
        "floating lengths",
        lambda: masks.prefix([1.5]),
        "lengths must be whole numbers .* of torch.float32",
    ),
    (
        "booleans for lengths",
        lambda: masks.padding(torch.tensor([True, False])),
        "must be whole numbers .* of torch.bool",
    ),
    (
        "documents in one dimension",
        lambda: masks.documents([1, 2]),
        "document ids must be whole numbers in 2 dimension",
    ),
    ("blocks of nothing", lambda: masks.blocks(10, 0), "blocks of 0 over 10 positions"),
    ("negative random blocks", lambda: masks.blocks(10, 2, random=-1), "random -1"),
    (
        "another batch",
        lambda: masks.padding([1, 2]).dense(3, 1, 4, 4),
        "the padding mask was made for a batch of 2, got a batch of 3",
    ),
    (
        "another batch of matrices",
        lambda: masks.matrix(torch.ones(2, 1, 4, 4).bool()).dense(3, 1, 4, 4),
        "the mask is for batch 2 and 1 heads, got batch 3 and 1 heads",
    ),
    (
        "other heads",
        lambda: masks.matrix(torch.ones(2, 4, 4).bool()).dense(1, 3, 4, 4),
        "and 2 heads, got batch 1 and 3 heads; give 1 for all",
    ),
    (
        "few documents",
        lambda: masks.documents([[1, 2]]).dense(1, 1, 3, 3),
        "given for 2 positions, got 3 keys; give one per key",
    ),
    (
        "few blocks",
        lambda: masks.blocks(8, 4).dense(1, 1, 9, 9),
        "covers 8 positions, got 9; raise `length`",
    ),
    (
        "small matrix",
        lambda: masks.matrix(torch.ones(4, 4).bool()).dense(1, 1, 5, 5),
        "mask is 4 × 4, the scores are 5 × 5",
    ),
    (
        "wrong rows",
        lambda: masks.matrix(torch.ones(2, 5).bool()).dense(1, 1, 3, 5),
        "give one row per query, one column per key",
    ),
    (
        "square, too few keys",
        lambda: masks.matrix(torch.ones(5, 5).bool()).dense(1, 1, 5, 3),
        "the scores are 5 × 3",
    ),
    (
        "inside a prepared one",
        lambda: (masks.causal() & masks.padding([1]).prepare(1, 1, 3, 3)).dense(2, 1, 3, 3),
        "batch of 1",
    ),
    (
        "a tensor",
        lambda: masks.causal() & torch.ones(3, 3).bool(),
        "combined with another mask, got Tensor; .* masks.matrix",
    ),
    (
        "a function",
        lambda: masks.causal() | (lambda b, h, i, j: j > i),
        "got function; .* masks.where",
    ),  # type: ignore[operator]
    (
        "a function first",
        lambda: (lambda b, h, i, j: j > i) & masks.causal(),
        "got function; .* masks.where",
    ),  # type: ignore[operator]
    (
        "and between masks",
        lambda: masks.causal() and masks.window(1),
        r"Causal\(\) is neither true nor false; combine masks with & and",
    ),
    (
        "and in a predicate",
        lambda: masks.where(lambda b, h, i, j: j <= i and j > 0).dense(1, 1, 3, 3),  # type: ignore[arg-type, return-value]
        "line .* asks whether a whole tensor is true; write & and | for `and` and `or`",
    ),
    (
        "inside a pair",
        lambda: (masks.causal() & masks.padding([1])).dense(2, 1, 3, 3),
        "batch of 1",
    ),
]


@pytest.mark.parametrize(
    ("make", "sentence"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG]
)
def test_what_is_not_a_mask_or_does_not_fit_is_answered_with_a_sentence(
    make: Callable[[], object], sentence: str
) -> None:
    with pytest.raises(SaccadeError, match=sentence):
        make()


@pytest.mark.parametrize(
    "mask",
    [masks.causal(), masks.window(3), masks.prefix([1]), masks.causal() & masks.padding([2])],
)
def test_a_mask_that_compares_positions_needs_no_more_queries_than_keys(mask: Mask) -> None:
    q, k = torch.randn(1, 1, 5, 4), torch.randn(1, 1, 3, 4)
    with raises("more-queries-than-keys"):
        attend(q, k, k, mask=mask)
    assert attend(q, k, k, mask=masks.padding([2])).shape == (1, 1, 5, 4)
