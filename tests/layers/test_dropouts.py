"""Dropout by a hash of places, as compiled passes on a GPU have it: its share, its independence, its gradient."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from saccade.layers.dropouts import Dropout, scatter_zeros

SHAPE = (1024, 256)


def zeros(share: float, seed: int) -> Tensor:
    return (
        scatter_zeros(torch.ones(SHAPE), share, torch.tensor(seed, dtype=torch.int32)) == 0
    ).double()


def deviations(found: Tensor, other: Tensor, share: float) -> float:
    """How far two patterns of zeros are from independent, in standard deviations."""
    one = (found - share) * (other - share)
    return float(one.mean() / (share * (1 - share)) * math.sqrt(one.numel()))


@settings(max_examples=20, deadline=None)
@given(st.floats(0.02, 0.9), st.integers(0, 2**31 - 2))
def test_the_share_of_zeros_is_right_in_all_rows_and_columns(share: float, seed: int) -> None:
    found = zeros(share, seed)
    spread = math.sqrt(share * (1 - share))
    assert abs(float(found.mean()) - share) < 5.5 * spread / math.sqrt(found.numel())
    for axis in (0, 1):
        means = found.mean(axis)
        assert float(means.std()) * math.sqrt(found.shape[axis]) / spread == pytest.approx(
            1.0, abs=0.25
        )


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31 - 3), st.integers(1, 1000))
def test_two_seeds_and_two_places_have_nothing_in_common(seed: int, further: int) -> None:
    share, found = 0.3, zeros(0.3, seed)
    assert abs(deviations(found, zeros(share, min(seed + further, 2**31 - 2)), share)) < 5.5
    flat = found.flatten()
    assert abs(deviations(flat[further:], flat[:-further], share)) < 5.5


def test_what_stays_is_larger_and_has_the_gradient() -> None:
    x = torch.randn(64, 32, dtype=torch.float64, requires_grad=True)
    seed = torch.tensor(5, dtype=torch.int32)
    y = scatter_zeros(x, 0.2, seed)
    kept = y != 0
    torch.testing.assert_close(y[kept], x[kept] / 0.8)
    assert torch.equal(scatter_zeros(x, 0.2, seed), y), "the same seed gives the same zeros"
    assert torch.autograd.gradcheck(lambda x: scatter_zeros(x, 0.2, seed), x)


def test_without_a_gpu_it_is_pytorchs_own() -> None:
    x, own, other = torch.randn(4, 5), Dropout(0.4), nn.Dropout(0.4)
    for module in (own, other):
        torch.manual_seed(3)
        module.train()
        module.found = module(x)
    assert torch.equal(own.found, other.found)
    assert torch.equal(own.eval()(x), x)
