"""Sparse masks on the `blocked` backend: blocks that are left out hold nothing, results are eager's, and what is held grows with the length alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from core_helpers import BATCH, HEADS, WIDTH, mask_examples, mechanism, tensors
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from saccade.core import (
    Mechanism,
    Positions,
    Site,
    attend,
    masks,
    positions,
    record,
    weights,
    which_backend,
)
from saccade.core.backends import blocked
from saccade.core.masks import Mask
from saccade.core.mechanism import Ready
from saccade.training.flops import counter

N = 23
near = {"rtol": 1e-4, "atol": 1e-5}


def sparse_masks() -> dict[str, Mask]:
    """Masks that tell their blocks, alone and combined with some that do not."""
    return {
        "window": masks.window(3, 1),
        "causal window": masks.causal() & masks.window(4),
        "window and padding": masks.window(2) & masks.padding([N, 5]),
        "an empty row": masks.window(2) & masks.padding([0, N]),
        "big bird": masks.blocks(N, size=3, random=1),
        "its last blocks": masks.blocks(N, size=2, random=2, globals=0, last=2, seed=3),
        "big bird by head": masks.blocks(N, size=2, window=0, random=2, heads=HEADS, seed=1),
        "extra tokens": masks.blocks(N - 5, size=3, random=1, globals=0, extra=5),
        "documents in a window": masks.window(6)
        & masks.documents(torch.arange(2 * N).view(2, N) // 7),
        "one or the other": masks.window(1) | masks.blocks(N, size=4, window=0, random=0),
        "a function in a window": masks.window(7)
        & masks.where(lambda b, h, i, j: (i + j + h) % 3 != b),
        "a matrix in a window": masks.window(7)
        & masks.matrix(torch.rand(BATCH, HEADS, N, N) < 0.6),
    }


SPARSE = sparse_masks()


@pytest.mark.parametrize("name", sorted(SPARSE))
@pytest.mark.parametrize("size", [1, 2, 5, 8, 40])
def test_a_block_that_is_left_out_holds_nothing(name: str, size: int) -> None:
    mask, starts = SPARSE[name], np.arange(0, N, size)
    needed = mask.needed(starts, starts, size)
    assert needed is not None
    heads = 1 if needed.ndim == 2 else HEADS
    needed = needed.reshape(heads, len(starts), len(starts))
    dense = mask.dense(BATCH, HEADS, N, N).expand(BATCH, HEADS, N, N).any(0).numpy()
    for h in range(heads):
        for r, row in enumerate(starts):
            for c, column in enumerate(starts):
                some = dense[
                    h if heads > 1 else slice(None), row : row + size, column : column + size
                ].any()
                assert needed[h, r, c] >= some
                if type(mask) in (masks.Window, masks.Blocks):
                    assert needed[h, r, c] == some, "and nothing more is computed than must be"


@pytest.mark.parametrize("name", sorted(SPARSE))
@pytest.mark.parametrize("size", [2, 5])
def test_blocks_are_eager_forward_and_backward(
    name: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queries fewer than keys, that begin inside a block; groups of heads; every position that adds something."""
    monkeypatch.setattr(blocked, "BLOCK_SIZES", (size,))
    for queries in (N, 9, 1):
        for position in ("none", "rotary", "alibi", "t5", "shaw", "xl"):
            made = mechanism(position=position)
            q, k, v = tensors(queries, N, kv_heads=1, requires_grad=True)
            inputs, pull = [q, k, v, *made.parameters()], torch.randn(BATCH, HEADS, queries, WIDTH)
            found, expected = (
                attend(q, k, v, made, SPARSE[name], backend=one) for one in ("blocked", "eager")
            )
            torch.testing.assert_close(found, expected, **near)
            pairs = (
                torch.autograd.grad(x, inputs, pull, materialize_grads=True)
                for x in (found, expected)
            )
            for one, other in zip(*pairs, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("queries", "keys"), [(4, 100), (5, 200), (2, N), (40, 100)])
def test_a_matrix_has_no_row_before_its_first(queries: int, keys: int) -> None:
    """Blocks of queries begin where blocks of keys do, before the first query of a later part of a text."""
    for rows in (masks.matrix(torch.rand(queries, keys) < 0.6), masks.top_blocks(8, 2)):
        mask = masks.window(16, 0) & rows
        q, k, v = tensors(queries, keys, requires_grad=True)
        found, expected = (attend(q, k, v, mask=mask, backend=one) for one in ("blocked", "eager"))
        torch.testing.assert_close(found, expected, **near)
        pairs = (torch.autograd.grad(x.square().sum(), (q, k, v)) for x in (found, expected))
        for one, other in zip(*pairs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(attend(q, k, v, mask=mask), expected, **near)


def test_blocks_know_the_positions_they_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked, "BLOCK_SIZES", (4,))
    q, k, v = tensors(N, N)
    for at in (
        Positions(torch.randint(0, 90, (N,)), torch.randint(0, 90, (N,))),
        Positions(*torch.randint(0, 90, (2, BATCH, N))),
    ):
        for position in ("alibi", "t5", "shaw", "xl"):
            made = mechanism(position=position)
            for _ in range(2):  # the second time from what is kept
                found = attend(q, k, v, made, masks.window(3), at, backend="blocked")
                torch.testing.assert_close(
                    found, attend(q, k, v, made, masks.window(3), at, backend="eager"), **near
                )


# --- which is taken ---


def long(count: int = 600, **options: Any) -> Tensor:
    return torch.randn(1, 2, count, 8, **options)


@pytest.mark.parametrize(
    ("mask", "chosen"),
    [
        (masks.window(16), "blocked"),
        (masks.window(500), "sdpa"),
        (masks.window(16) & masks.padding([400]), "blocked"),
        (masks.window(16) & masks.causal(), "blocked"),
        (masks.causal(), "sdpa"),
        (masks.causal() & masks.padding([9]), "sdpa"),
        (masks.full(), "sdpa"),
        (masks.blocks(600, size=16, random=1, globals=0), "blocked"),
        (masks.blocks(600, size=16, random=30), "sdpa"),
        (masks.documents(torch.arange(600).view(1, 600) // 40), "sdpa"),
        (masks.matrix(masks.window(16).dense(1, 1, 600, 600)), "sdpa"),
    ],
    ids=repr,
)
def test_blocks_are_taken_where_enough_is_hidden(mask: Mask, chosen: str) -> None:
    q = long(requires_grad=True)
    assert which_backend(q, q, mask=mask).chosen == chosen
    assert which_backend(q, q, Mechanism(mask=mask)).chosen == chosen
    assert which_backend(q[:, :, :100], q[:, :, :100], mask=masks.window(2)).chosen == "sdpa", (
        "a short text"
    )
    text = str(which_backend(q, q, mask=mask))
    assert f"→ {chosen:<7} can" in text
    if isinstance(mask, masks.Documents):
        assert (
            "blocked refuses: Documents((1, 600)) hides no blocks of keys that are known beforehand"
            in text
        )
    if isinstance(mask, masks.Causal):
        assert (
            "blocked refuses: Causal() is no more than causal and padding, of which it would save half at most"
            in text
        )


class Far(masks.Window):
    """Everything but the neighbors; what it inherits would hide the rest."""

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return ~super().__call__(b, h, i, j)


class NoBlocks(masks.Blocks):
    """The blocks that Big Bird leaves out."""

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return ~super().__call__(b, h, i, j)


class NotBoth(masks.Both):
    """What one of two hides."""

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return ~super().__call__(b, h, i, j)


class Neither(masks.Either):
    """What both hide."""

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return ~super().__call__(b, h, i, j)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Far(16),
        lambda: NoBlocks(600, size=16),
        lambda: NotBoth(masks.window(16), masks.window(20)),
        lambda: Neither(masks.window(16), masks.window(20)),
        lambda: Far(16) | masks.window(3),
    ],
    ids=["window", "blocks", "both", "either", "within either"],
)
@torch.no_grad()
def test_a_mask_of_ones_own_never_runs_on_what_its_parent_tells(make: Callable[[], Mask]) -> None:
    q, mask = long(), make()
    assert which_backend(q, q, mask=mask).chosen != "blocked"
    torch.testing.assert_close(
        attend(q, q, q, mask=mask), attend(q, q, q, mask=mask, backend="eager"), **near
    )
    inside = mask & masks.window(30)  # beside one that tells, what a subclass says is still asked
    assert which_backend(q, q, mask=inside).chosen == "blocked"
    torch.testing.assert_close(
        attend(q, q, q, mask=inside), attend(q, q, q, mask=inside, backend="eager"), **near
    )


class Slope(positions.Alibi):
    """A bias that looks at all keys at once."""

    def bias(self, q: Tensor, positions: Positions, scale: float) -> Tensor:
        return super().bias(q, positions, scale).cumsum(-1)


def test_parts_of_ones_own_that_may_look_at_all_keys_are_refused() -> None:
    q, mask = long(), masks.window(16)
    flipped = Mechanism()
    flipped.normalize.rows = lambda scores, hidden: scores.flip(-1)  # type: ignore[method-assign]
    apart = Mechanism()
    apart.score.compare = lambda query, key: torch.cdist(query, key).cumsum(-1)  # type: ignore[method-assign]
    for made, what in (
        (flipped, "normalizer's own rows"),
        (apart, "score's own"),
        (Mechanism(position=Slope(2)), "position's own bias"),
    ):
        reasons = {verdict.backend: verdict.reason for verdict in which_backend(q, q, made, mask)}
        assert what in str(reasons["blocked"])
    hooked = Mechanism()
    hooked.normalize.register_forward_hook(lambda module, scores, found: found)
    assert which_backend(q, q, hooked, mask).chosen == "eager"


def test_one_kind_of_call_is_taken_by_how_much_it_hides_each_time() -> None:
    q = long()
    found = [which_backend(q, q, mask=masks.window(size)).chosen for size in (16, 500, 16)]
    assert found == ["blocked", "sdpa", "blocked"]


# --- what it costs ---


class Largest(TorchDispatchMode):
    """The most numbers that one tensor holds while it is open."""

    most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for one in found if isinstance(found, tuple) else (found,):
            if isinstance(one, Tensor):
                self.most = max(self.most, one.untyped_storage().nbytes() // one.element_size())
        return found


@pytest.mark.parametrize(
    "make",
    [lambda n: masks.window(16) & masks.causal(), lambda n: masks.blocks(n, size=16)],
    ids=["window", "blocks"],
)
def test_operations_and_memory_are_linear_in_the_length(make: Callable[[int], Mask]) -> None:
    found = []
    for count in (1024, 2048):
        q = long(count, requires_grad=True)
        with counter() as operations, Largest() as held:
            attend(q, q, q, mask=make(count)).sum().backward()
        found.append((operations.get_total_flops(), held.most))
    assert found[1][0] < 2.1 * found[0][0]
    assert found[1][1] < 2.1 * found[0][1]
    assert found[1][1] < 2048 * 2048 / 2


def test_a_record_gives_the_weights_of_a_pass_in_blocks() -> None:
    site, q = Site(), long()
    site.mechanism = Mechanism(mask=masks.window(16))
    with record(site) as seen:
        found = site.look(q, Ready(q, q))
    expected = weights(q, q, site.mechanism)
    torch.testing.assert_close(seen["attention"].weights(), expected)
    torch.testing.assert_close(found, expected @ q, **near)


def test_dropout_falls_on_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    q, ones = long(), torch.ones(1, 2, 600, 8)
    torch.manual_seed(0)
    found = attend(q, q, ones, mask=masks.window(16), dropout=0.5, backend="blocked")
    assert found.std() > 0.05
    assert found.mean().item() == pytest.approx(1, abs=0.05)


def test_every_mask_of_the_table_tells_its_blocks_or_says_nothing() -> None:
    starts = np.arange(0, 6, 2)
    told = {
        name for name, mask in mask_examples().items() if mask.needed(starts, starts, 2) is not None
    }
    assert told == {"causal", "window", "blocks"}
