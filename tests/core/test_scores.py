"""Scores against their formulas, worked number by number in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from core_helpers import member
from tests.support import raises
from torch import Tensor

from saccade.core import Mechanism, attend, graph_attention, scores
from saccade.errors import SaccadeError

HEADS, WIDTH_Q, WIDTH_K = 2, 4, 3


def numbers(parameter: Tensor) -> np.ndarray:
    return parameter.detach().numpy()


def dot(a: np.ndarray, b: np.ndarray) -> float:
    return sum(float(x) * float(y) for x, y in zip(a, b, strict=True))


def bilinear(score: scores.Bilinear, h: int, q: np.ndarray, k: np.ndarray) -> float:
    w = numbers(score.weight)[h]
    return sum(q[m] * w[m, n] * k[n] for m in range(len(q)) for n in range(len(k)))


def reduced_rank(score: scores.ReducedRank, h: int, q: np.ndarray, k: np.ndarray) -> float:
    u, v = numbers(score.u)[h], numbers(score.v)[h]
    return sum(dot(u[:, r], q) * dot(v[:, r], k) for r in range(u.shape[1]))


def additive(score: scores.Additive, h: int, q: np.ndarray, k: np.ndarray) -> float:
    w_q, w_k, v = numbers(score.w_q)[h], numbers(score.w_k)[h], numbers(score.v)[h]
    return sum(v[a] * math.tanh(dot(w_q[:, a], q) + dot(w_k[:, a], k)) for a in range(len(v)))


def cosine(score: scores.Cosine, h: int, q: np.ndarray, k: np.ndarray) -> float:
    sharpness = math.exp(numbers(score.log_sharpness)[h, 0, 0])
    return sharpness * dot(q, k) / (math.sqrt(dot(q, q)) * math.sqrt(dot(k, k)))


def elu_kernel(score: scores.EluKernel, h: int, q: np.ndarray, k: np.ndarray) -> float:
    def phi(x: float) -> float:
        return x + 1 if x > 0 else math.exp(x)

    return sum(phi(a) * phi(b) for a, b in zip(q, k, strict=True))


def favor(score: scores.Favor, h: int, q: np.ndarray, k: np.ndarray) -> float:
    def phi(x: np.ndarray) -> list[float]:
        scaled = x / len(x) ** 0.25
        return [
            math.exp(dot(omega, scaled) - dot(scaled, scaled) / 2) for omega in numbers(score.omega)
        ]

    return sum(a * b for a, b in zip(phi(q), phi(k), strict=True))


def gat(score: graph_attention.GraphScore, h: int, q: np.ndarray, k: np.ndarray) -> float:
    e = dot(numbers(score.a_q)[h, :, 0], q) + dot(numbers(score.a_k)[h, :, 0], k)
    return e if e > 0 else 0.2 * e


def shares(score: scores.Score, found: Tensor) -> Tensor:
    """The scores, or their shares of each row where a score is known up to a factor per row."""
    return found / found.sum(-1, keepdim=True) if score.needs_sum else found


FORMULAS: dict[str, Callable[..., float]] = {
    "dot": lambda score, h, q, k: dot(q, k),
    "soft-capped": lambda score, h, q, k: (
        score.cap * math.tanh(dot(q, k) / math.sqrt(len(q)) / score.cap)
    ),
    "scaled-dot": lambda score, h, q, k: dot(q, k) / math.sqrt(len(q)),
    "bilinear": bilinear,
    "reduced-rank": reduced_rank,
    "additive": additive,
    "cosine": cosine,
    "elu-kernel": elu_kernel,
    "favor": favor,
    "gat": gat,
}


def built(name: str) -> tuple[scores.Score, Tensor, Tensor]:
    """The score in float64 with parameters that differ from head to head, and q and k to try it on."""
    make = scores.table[name]
    width_k = WIDTH_K if make.unequal_widths else WIDTH_Q
    score = member(scores.table, name, dim_q=WIDTH_Q, dim_k=width_k, heads=HEADS).double()
    with torch.no_grad():
        for parameter in score.parameters():
            parameter.copy_(torch.randn_like(parameter))
    q = torch.randn(2, HEADS, 3, WIDTH_Q, dtype=torch.float64, requires_grad=True)
    k = torch.randn(2, HEADS, 5, width_k, dtype=torch.float64, requires_grad=True)
    return score, q, k


def test_every_score_of_the_table_has_a_formula_here() -> None:
    assert set(FORMULAS) == set(scores.table.names())


@pytest.mark.parametrize("name", scores.table.names())
def test_a_score_is_its_formula(name: str) -> None:
    score, q, k = built(name)
    found = score(q, k)
    assert found.shape == (2, HEADS, 3, 5)
    expected = torch.zeros_like(found)
    for b, h, i, j in np.ndindex(*found.shape):
        expected[b, h, i, j] = FORMULAS[name](score, h, numbers(q)[b, h, i], numbers(k)[b, h, j])
    torch.testing.assert_close(
        shares(score, found), shares(score, expected), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("name", scores.table.names())
def test_gradients_of_a_score_and_of_all_its_parameters(name: str) -> None:
    score, q, k = built(name)
    inputs = (
        q[:1, :, :2].detach().requires_grad_(),
        k[:1, :, :3].detach().requires_grad_(),
        *score.parameters(),
    )
    assert torch.autograd.gradcheck(lambda q, k, *_: shares(score, score(q, k)), inputs)


@pytest.mark.parametrize("name", scores.table.names())
def test_what_a_backend_may_know_of_a_score_is_true(name: str) -> None:
    score, q, k = built(name)
    query, key = score.features(score.query(q), score.key(k))
    product = score.scale(query.shape[-1]) * torch.einsum("bhqd,bhkd->bhqk", query, key)
    assert torch.allclose(score(q, k), product) == score.dot
    if score.kernel:
        assert (score(3 * q, 3 * k) > 0).all()


@pytest.mark.parametrize("name", ["bilinear", "reduced-rank", "additive", "cosine"])
def test_one_set_of_parameters_serves_all_heads(name: str) -> None:
    score, q, k = built(name)
    with torch.no_grad():
        for parameter in score.parameters():
            parameter.copy_(parameter[:1].expand_as(parameter))
    shared = member(scores.table, name, dim_q=q.shape[-1], dim_k=k.shape[-1], heads=1).double()
    shared.load_state_dict({key: value[:1] for key, value in score.state_dict().items()})
    torch.testing.assert_close(shared(q, k), score(q, k))


def test_the_scale_keeps_the_variance_of_scores_at_one() -> None:
    q, k = torch.randn(1, 1, 200, 256), torch.randn(1, 1, 200, 256)
    assert scores.ScaledDot()(q, k).std().item() == pytest.approx(1.0, abs=0.05)
    assert scores.Dot()(q, k).std().item() == pytest.approx(16.0, abs=0.8)


def test_a_reduced_rank_score_has_that_rank() -> None:
    score = scores.ReducedRank(8, 6, rank=2).double()
    matrix = score(
        torch.eye(8, dtype=torch.float64)[None, None], torch.eye(6, dtype=torch.float64)[None, None]
    )[0, 0]
    assert torch.linalg.matrix_rank(matrix) == 2


def test_cosine_looks_at_directions_alone_and_stays_finite_for_a_vector_of_zeros() -> None:
    score, q, k = built("cosine")
    torch.testing.assert_close(score(7 * q, k / 3), score(q, k))
    assert torch.isfinite(score(torch.zeros_like(q), k)).all()
    assert scores.Cosine(1, sharpness=4.0).log_sharpness.exp().item() == pytest.approx(4.0)


def test_further_layers_of_an_additive_score_transform_its_keys_by_hand() -> None:
    torch.manual_seed(1)
    score = scores.Additive(4, 6, hidden=3, heads=2, layers=3).double()
    for b in score.biases:
        torch.nn.init.normal_(b)
    q, k = torch.randn(2, 2, 5, 4).double(), torch.randn(2, 2, 7, 6).double()
    found = score(q, k)
    for at in ((0, 0, 0, 0), (1, 1, 4, 6), (0, 1, 2, 3)):
        b, h, i, j = at
        inner = k[b, h, j] @ score.w_k[h]
        for u, bias in zip(score.deeper, score.biases, strict=True):
            inner = torch.tanh(inner @ u[h] + bias[h, 0])
        assert found[at].item() == pytest.approx(
            (score.v[h] @ torch.tanh(q[b, h, i] @ score.w_q[h] + inner)).item()
        )
    assert torch.autograd.gradcheck(
        lambda q, k: score(q, k), (q.requires_grad_(), k.requires_grad_())
    )


def test_an_additive_score_is_as_wide_as_its_query_unless_it_is_given() -> None:
    assert scores.Additive(5, 7).v.shape == (1, 5)
    assert scores.Additive(5, 7, hidden=3, heads=4).w_k.shape == (4, 7, 3)


@pytest.mark.parametrize("name", ["bilinear", "reduced-rank", "additive", "cosine"])
def test_a_score_for_another_number_of_heads_says_so(name: str) -> None:
    q = torch.randn(1, 4, 2, 4)
    score = member(scores.table, name, dim_q=4, dim_k=4, heads=3)
    with raises("heads-differ"):
        attend(q, q, q, Mechanism(score))


@pytest.mark.parametrize("name", ["bilinear", "reduced-rank", "additive"])
def test_a_score_for_another_width_says_so(name: str) -> None:
    q = torch.randn(1, 2, 2, 4)
    score = member(scores.table, name, dim_q=6, dim_k=4, heads=2)
    with raises("width-differs"):
        attend(q, q, q, Mechanism(score))


def test_a_wrong_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(SaccadeError, match="no score named 'aditive'; did you mean 'additive'"):
        scores.table["aditive"]
    with pytest.raises(
        SaccadeError, match="score 'dot' is already in the table; choose another name"
    ):
        scores.table.add("dot")(scores.Dot)
