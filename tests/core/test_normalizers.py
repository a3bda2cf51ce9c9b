"""Normalizers against their definitions, found by other means, and against the `entmax` package."""

from __future__ import annotations

import math
from collections.abc import Callable

import entmax
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from saccade.core import normalizers
from saccade.core.normalizers import Normalizer


def softmax(row: np.ndarray) -> list[float]:
    total = sum(math.exp(s - max(row)) for s in row)
    return [math.exp(s - max(row)) / total for s in row]


def by_threshold(weight: Callable[[float, float], float]) -> Callable[[np.ndarray], list[float]]:
    """Weights that sum to one, by halving the interval in which the threshold must lie."""

    def weights(row: np.ndarray) -> list[float]:
        low, high = float(min(row)) - 2.0, float(max(row)) + 2.0
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if sum(weight(s, middle) for s in row) > 1 else (low, middle)
        return [weight(s, low) for s in row]

    return weights


FORMULAS: dict[str, Callable[[np.ndarray], list[float]]] = {
    "softmax": softmax,
    "relu": lambda row: [max(s, 0.0) for s in row],
    "relu-sum": lambda row: [
        max(s + 1, 0.0) / max(1.0, sum(max(t + 1, 0.0) for t in row)) for s in row
    ],
    "sigmoid": lambda row: [1 / (1 + math.exp(-s)) for s in row],
    "sum": lambda row: [s / sum(row) for s in row],
    "sparsemax": by_threshold(lambda s, t: max(s - t, 0.0)),
    "hard": lambda row: [float(n == row.argmax()) for n in range(len(row))],
    "entmax-1.5": lambda row: by_threshold(lambda s, t: max(s - t, 0.0) ** 2)(row / 2),
}
ALL = normalizers.table.names()
# the place of the largest score jumps
SMOOTH = [name for name in ALL if not normalizers.table[name].samples]
PEERS = {"sparsemax": entmax.sparsemax, "entmax-1.5": entmax.entmax15}


def made(name: str) -> Normalizer:
    return normalizers.table[name]().eval()


def scores_for(name: str, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Random scores; positive ones where the normalizer is made for kernels."""
    scores = 1.5 * torch.randn(*shape, dtype=dtype)
    return scores.exp() if name == "sum" else scores


def some_mask(*shape: int) -> Tensor:
    """A random mask in which every row may attend somewhere."""
    allowed = torch.rand(*shape) < 0.6
    allowed[..., 0] |= ~allowed.any(-1)
    return allowed


def test_every_normalizer_of_the_table_has_a_formula_here() -> None:
    assert set(FORMULAS) == set(ALL)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_weights_are_the_formula_where_allowed_and_zero_elsewhere(name: str, masked: bool) -> None:
    scores = scores_for(name, 4, 3, 7)
    allowed = some_mask(4, 3, 7) if masked else torch.ones(4, 3, 7, dtype=torch.bool)
    found = made(name)(scores, allowed if masked else None)
    for row in np.ndindex(4, 3):
        kept = allowed[row]
        assert (found[row][~kept] == 0).all()
        expected = FORMULAS[name](scores[row][kept].numpy())
        np.testing.assert_allclose(
            found[row][kept].detach().numpy(), expected, rtol=1e-9, atol=1e-12
        )


def test_relu_sum_divides_by_sums_above_one_alone() -> None:
    # sums of 0.7 and 4 after the offset
    scores = torch.tensor([[-0.6, -0.7, -3.0], [-0.5, 0.5, 1.0]], dtype=torch.float64)
    expected = torch.tensor([[0.4, 0.3, 0.0], [0.125, 0.375, 0.5]], dtype=torch.float64)
    torch.testing.assert_close(made("relu-sum")(scores), expected)


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_with_a_mask_an_empty_row_and_without(name: str) -> None:
    scores = scores_for(name, 2, 3, 5).requires_grad_()
    allowed = some_mask(2, 3, 5)
    allowed[1, 1] = False
    normalize = made(name)
    assert torch.autograd.gradcheck(lambda s: normalize(s), (scores,))
    assert torch.autograd.gradcheck(lambda s: normalize(s, allowed), (scores,))


# PyTorch's own rules of forward mode
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", SMOOTH)
def test_second_derivatives_and_those_in_forward_mode(name: str, masked: bool) -> None:
    """Away from where the support changes: no score is nearer to a threshold than the numeric derivatives step."""
    scores, normalize = scores_for(name, 2, 3, 6).requires_grad_(), made(name)
    allowed = some_mask(2, 3, 6) if masked else None
    function = lambda s: normalize(s, allowed)
    assert torch.autograd.gradcheck(
        function, (scores,), check_forward_ad=True, check_batched_grad=True
    )
    assert torch.autograd.gradgradcheck(function, (scores,))
    plain, along = scores.detach(), torch.randn_like(scores)
    _, moved = torch.func.jvp(function, (plain,), (along,))
    step = 1e-6 * along
    torch.testing.assert_close(
        moved, (function(plain + step) - function(plain - step)) / 2e-6, rtol=1e-5, atol=1e-7
    )


# PyTorch's own rules of forward mode
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("name", sorted(PEERS))
def test_the_curvature_of_a_sparse_row_by_hand(name: str) -> None:
    """On the support {0, 1}, with d = s_0 − s_1: sparsemax is (1 + d)/2 and straight; entmax-1.5 solves r² + (r − d/2)² = 1, p = r²."""
    scores = torch.tensor([0.4, 0.1, -9.0, -8.0], dtype=torch.float64, requires_grad=True)
    found = torch.func.hessian(lambda s: made(name)(s)[0])(scores.detach())
    (slope,) = torch.autograd.grad(made(name)(scores)[0], scores, create_graph=True)
    again = torch.stack(
        [
            torch.autograd.grad(one, scores, retain_graph=True)[0]
            if one.requires_grad
            else scores * 0
            for one in slope
        ]
    )
    d, step = 0.3, 1e-4
    first = lambda d: (
        ((d / 2 + math.sqrt(2 - d * d / 4)) / 2) ** 2 if name == "entmax-1.5" else (1 + d) / 2
    )
    bent = (first(d + step) - 2 * first(d) + first(d - step)) / step**2
    expected = torch.zeros(4, 4, dtype=torch.float64)
    expected[:2, :2] = bent * torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(again, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", SMOOTH)
def test_rows_are_mapped_and_have_gradients_of_their_own(name: str, masked: bool) -> None:
    scores, normalize = scores_for(name, 4, 3, 7), made(name)
    allowed = some_mask(4, 3, 7) if masked else torch.ones(4, 3, 7, dtype=torch.bool)
    pull = torch.randn(7, dtype=torch.float64)
    value = lambda s, a: (normalize(s, a) * pull).sum()
    torch.testing.assert_close(torch.vmap(normalize)(scores, allowed), normalize(scores, allowed))
    found = torch.vmap(torch.func.grad(value))(scores, allowed)
    torch.testing.assert_close(
        found,
        torch.stack([torch.func.grad(value)(*one) for one in zip(scores, allowed, strict=True)]),
    )


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["softmax", *sorted(PEERS)])
def test_a_score_that_is_no_number_makes_its_row_none_and_leaves_the_others(
    name: str, bad: float
) -> None:
    scores = torch.randn(4, 5)
    scores[0, 2], scores[1, :], scores[2, 3] = bad, bad, -math.inf
    scores.requires_grad_()
    found = made(name)(scores)
    assert found[:2].isnan().all()
    assert found[2, 3] == 0
    torch.testing.assert_close(found[2:].sum(-1), torch.ones(2))
    (gradient,) = torch.autograd.grad((found * torch.randn_like(found)).sum(), scores)
    assert gradient[:2].isnan().all()
    assert gradient[2:].isfinite().all()
    hidden = torch.tensor([True, True, False, True, True]).expand(4, 5)
    assert made(name)(scores, hidden)[[0, 2, 3]].isfinite().all(), "what is hidden does not count"


@pytest.mark.parametrize("name", sorted(PEERS))
def test_sparse_weights_and_their_gradients_are_those_of_the_entmax_package(name: str) -> None:
    scores = 2 * torch.randn(50, 11, dtype=torch.float64)
    allowed, gradient = some_mask(50, 11), torch.randn(50, 11, dtype=torch.float64)
    for mask in (None, allowed):
        ours = scores.clone().requires_grad_()
        found = made(name)(ours, mask)
        found.backward(gradient)
        for row in range(50):
            kept = slice(None) if mask is None else mask[row]
            theirs = scores[row][kept].clone().requires_grad_()
            expected = PEERS[name](theirs, dim=-1)
            expected.backward(gradient[row][kept])
            torch.testing.assert_close(found[row][kept], expected, rtol=1e-8, atol=1e-10)
            torch.testing.assert_close(ours.grad[row][kept], theirs.grad, rtol=1e-8, atol=1e-10)
    assert (made(name)(scores) == 0).any(), "a sparse normalizer gives zeros"


@pytest.mark.parametrize("name", sorted(PEERS))
def test_sparse_weights_survive_equal_scores_and_large_ones_in_float32(name: str) -> None:
    scores = torch.cat(
        [torch.full((3, 400), 2.0), 1000 + torch.randn(3, 400), -1e4 + torch.randn(3, 400)]
    )
    found = made(name)(scores)
    torch.testing.assert_close(found[:3], torch.full((3, 400), 1 / 400), rtol=1e-4, atol=0)
    expected = PEERS[name]((scores.double() - scores.double().amax(-1, keepdim=True)), dim=-1)
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ALL)
def test_sixteen_bits_are_normalized_in_float32_and_rounded_once(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, plain = [], normalizers.table[name].rows

    def spy(self: Normalizer, scores: Tensor, usable: Tensor | None) -> Tensor:
        seen.append(scores.dtype)
        return plain(self, scores, usable)

    monkeypatch.setattr(normalizers.table[name], "rows", spy)
    scores = scores_for(name, 2, 700, dtype=torch.float32).to(dtype)
    found = made(name)(scores)
    assert found.dtype == dtype
    assert seen == [torch.float32]
    assert torch.equal(found, made(name)(scores.float()).to(dtype))


@pytest.mark.parametrize("name", SMOOTH)
def test_an_empty_row_gives_zeros_and_no_gradient_and_leaves_the_others_alone(name: str) -> None:
    scores = scores_for(name, 3, 4).requires_grad_()
    allowed = torch.tensor([[1, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0]]).bool()
    with torch.autograd.set_detect_anomaly(True):  # also inside no NaN arises
        found = made(name)(scores, allowed)
        assert (found[1] == 0).all()
        (found * torch.randn_like(found)).sum().backward()
    assert torch.isfinite(scores.grad).all()
    assert (scores.grad[~allowed] == 0).all()
    torch.testing.assert_close(found[0], made(name)(scores[:1], allowed[:1])[0])


@pytest.mark.parametrize("name", ALL)
def test_a_mask_that_broadcasts_is_the_mask_it_stands_for(name: str) -> None:
    scores = scores_for(name, 2, 3, 4, 5)
    narrow = some_mask(2, 1, 1, 5)
    assert torch.equal(made(name)(scores, narrow), made(name)(scores, narrow.expand(2, 3, 4, 5)))


ROWS = arrays(
    np.float64,
    st.tuples(st.integers(1, 4), st.integers(1, 9)),
    elements=st.floats(-30, 30, width=32),
)


@pytest.mark.parametrize("name", ALL)
@given(values=ROWS, shift=st.floats(-20, 20))
def test_rows_sum_to_one_where_promised_are_never_negative_and_know_no_order(
    name: str, values: np.ndarray, shift: float
) -> None:
    scores = torch.from_numpy(values)
    scores = scores.abs() + 0.1 if name == "sum" else scores
    normalize = made(name)
    found = normalize(scores)
    assert (found >= 0).all()
    # of equal scores the first is the largest
    if name in SMOOTH or len(set(values.ravel())) == values.size:
        torch.testing.assert_close(normalize(scores.flip(-1)), found.flip(-1))
    if normalize.sums_to_one:
        torch.testing.assert_close(
            found.sum(-1), torch.ones(len(scores), dtype=torch.float64), rtol=1e-9, atol=1e-9
        )
    if normalize.sums_to_one and name != "sum" and name in SMOOTH:
        torch.testing.assert_close(normalize(scores + shift), found, rtol=1e-7, atol=1e-9)


def test_by_count_divides_relu_by_the_number_of_keys_and_shifts_sigmoid_by_its_logarithm() -> None:
    scores, allowed = (
        torch.randn(2, 5, dtype=torch.float64),
        torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]).bool(),
    )
    relu, sigmoid = normalizers.Relu(by_count=True), normalizers.Sigmoid(by_count=True)
    for row, n in ((0, 3), (1, 5)):
        for j in range(n):
            s = scores[row, j].item()
            assert relu(scores, allowed)[row, j].item() == pytest.approx(max(s, 0) / n)
            assert sigmoid(scores, allowed)[row, j].item() == pytest.approx(
                1 / (1 + math.exp(-(s - math.log(n))))
            )
    torch.testing.assert_close(relu(scores)[0], scores[0].clamp_min(0) / 5)
    torch.testing.assert_close(sigmoid(scores), 1 / (1 + 5 * (-scores).exp()))
    assert "by_count=True" in repr(relu)
    assert torch.autograd.gradcheck(lambda s: sigmoid(s, allowed), (scores.requires_grad_(),))
