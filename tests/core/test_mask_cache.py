"""What is kept with a mask is made once, and anew when what it depends on has changed."""

from __future__ import annotations

import gc

import pytest
import torch

from saccade.core import attend, masks, which_backend
from saccade.core.mask_cache import cache, cached_for_mask


def count(mask: masks.Mask, sizes: object = 1) -> int:
    calls = []
    for _ in range(2):
        cached_for_mask(mask, "tested", sizes, lambda: calls.append(1))
    return len(calls)


@pytest.mark.parametrize(
    "make",
    [lambda: masks.causal() & masks.window(2), lambda: masks.blocks(64, 16), masks.full],
    ids=["both", "blocks", "full"],
)
def test_the_same_mask_is_planned_once(make: type[masks.Mask]) -> None:
    mask = make()
    assert count(mask) == 1
    assert count(mask) == 0
    assert count(mask, sizes=2) == 1
    assert count(make()) == 1, "another mask"


def test_a_changed_tensor_is_noticed() -> None:
    mask = masks.padding(torch.tensor([3, 4]))
    assert count(mask) == 1
    mask.values[0] = 1
    assert count(mask) == 1
    mask.values = torch.tensor([1, 4])
    assert count(mask) == 1
    assert count(mask) == 0


def test_a_function_of_ones_own_is_asked_again() -> None:
    class Mine(masks.Mask):
        def __call__(
            self, b: torch.Tensor, h: torch.Tensor, i: torch.Tensor, j: torch.Tensor
        ) -> torch.Tensor:
            return j <= i

    assert count(masks.where(lambda b, h, i, j: j <= i)) == 2
    assert count(Mine()) == 2
    assert count(masks.causal() & Mine()) == 2


def test_a_window_made_wider_between_two_calls_counts_and_may_run_elsewhere() -> None:
    q, mask = torch.randn(1, 1, 600, 8), masks.window(16)
    assert which_backend(q, q, mask=mask).chosen == "blocked"
    for left in (16, 40, 600):
        mask.left = mask.right = left
        expected = attend(q, q, q, mask=masks.window(left), backend="eager")
        torch.testing.assert_close(attend(q, q, q, mask=mask), expected, rtol=1e-4, atol=1e-5)
    assert which_backend(q, q, mask=mask).chosen == "sdpa", "too little is hidden"


def test_it_goes_with_the_mask() -> None:
    mask = masks.window(5)
    count(mask)
    before = len(cache)
    del mask
    gc.collect()
    assert len(cache) < before


def test_a_mask_changed_between_two_calls_of_attend_counts() -> None:
    q = torch.randn(2, 1, 600, 8)
    mask = masks.padding(torch.tensor([600, 600])) & masks.window(16)
    first = attend(q, q, q, mask=mask)
    mask.first.values[0] = 8  # type: ignore[attr-defined]
    second = attend(q, q, q, mask=mask)
    torch.testing.assert_close(
        second, attend(q, q, q, mask=mask, backend="eager"), rtol=1e-4, atol=1e-5
    )
    assert not torch.equal(first, second)
