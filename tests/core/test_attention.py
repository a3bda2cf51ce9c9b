"""`attend` by hand, `which_backend`, prepared keys, grouped heads, and every mistake answered with a sentence."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from core_helpers import member
from hypothesis import given
from hypothesis import strategies as st
from tests.support import raises
from torch import Tensor

from saccade.core import (
    Mechanism,
    Positions,
    Ready,
    attend,
    backends,
    masks,
    normalizers,
    positions,
    read,
    scores,
    weights,
    which_backend,
)
from saccade.errors import SaccadeError

sizes = st.integers(1, 5)


def by_loops(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Scaled dot-product attention, number by number; head h of q reads head h // (H / H') of k and v."""
    output = np.zeros((*q.shape[:3], v.shape[-1]))
    for b, h, i in np.ndindex(*q.shape[:3]):
        shared = h // (q.shape[1] // k.shape[1])
        scores = [
            sum(q[b, h, i, d] * k[b, shared, j, d] for d in range(q.shape[3]))
            / math.sqrt(q.shape[3])
            for j in range(k.shape[2])
        ]
        total = sum(math.exp(s) for s in scores)
        for j, s in enumerate(scores):
            output[b, h, i] += math.exp(s) / total * v[b, shared, j]
    return output


# --- the lectures' worked example ---

X = torch.tensor([[1.0, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]], dtype=torch.float64)
W_K = torch.tensor([[0.0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]], dtype=torch.float64)
W_V = torch.tensor([[0.0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]], dtype=torch.float64)
W_Q = torch.tensor([[1.0, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]], dtype=torch.float64)


def test_the_lectures_worked_example_number_for_number() -> None:
    q, k, v = ((X @ w)[None, None] for w in (W_Q, W_K, W_V))
    assert q[0, 0].tolist() == [[1, 0, 2], [2, 2, 2], [2, 1, 3]]
    assert k[0, 0].tolist() == [[0, 1, 1], [4, 4, 0], [2, 3, 1]]
    assert v[0, 0].tolist() == [[1, 2, 3], [2, 8, 0], [2, 6, 3]]
    mechanism = Mechanism(scores.Dot())
    assert mechanism.score(q, k)[0, 0].tolist() == [[2, 4, 4], [4, 16, 12], [4, 12, 10]]
    e = math.exp
    rows = [[1, e(2), e(2)], [e(-12), 1, e(-4)], [e(-8), 1, e(-2)]]
    expected = np.array([[x / sum(row) for x in row] for row in rows])
    np.testing.assert_allclose(weights(q, k, mechanism)[0, 0], expected, rtol=1e-12)
    np.testing.assert_allclose(expected[0], [0.0634, 0.4683, 0.4683], atol=5e-5)
    output = [[1.9366, 6.6831, 1.5951], [2.0000, 7.9640, 0.0540], [1.9997, 7.7599, 0.3584]]
    for backend in ("eager", "sdpa"):
        np.testing.assert_allclose(
            attend(q, k, v, mechanism, backend=backend)[0, 0], output, atol=5e-5
        )


def test_self_attention_without_parameters_by_hand() -> None:
    x = torch.tensor([[[[1.0, 0.0], [0.0, 2.0]]]], dtype=torch.float64)
    near, far = math.e / (math.e + 1), math.exp(4) / (math.exp(4) + 1)
    expected = [[near, 2 * (1 - near)], [1 - far, 2 * far]]
    np.testing.assert_allclose(attend(x, x, x, Mechanism(scores.Dot()))[0, 0], expected)


# --- shapes ---


@given(
    batch=sizes,
    groups=st.integers(1, 3),
    shared=st.integers(1, 2),
    queries=sizes,
    keys=sizes,
    width=sizes,
    width_v=sizes,
)
def test_attend_is_the_definition_for_any_shape(
    batch: int, groups: int, shared: int, queries: int, keys: int, width: int, width_v: int
) -> None:
    generator = np.random.default_rng(0)
    q = generator.normal(size=(batch, groups * shared, queries, width))
    k, v = (
        generator.normal(size=(batch, shared, keys, width)),
        generator.normal(size=(batch, shared, keys, width_v)),
    )
    tensors = [torch.from_numpy(x) for x in (q, k, v)]
    for backend in ("eager", "sdpa", None):
        np.testing.assert_allclose(
            attend(*tensors, backend=backend), by_loops(q, k, v), rtol=1e-9, atol=1e-12
        )


@pytest.mark.parametrize(
    "name", [entry.name for entry in scores.table if entry.make.unequal_widths]
)
def test_queries_keys_and_values_may_all_differ_in_width(name: str) -> None:
    q, k, v = torch.randn(2, 1, 4, 3), torch.randn(2, 1, 5, 7), torch.randn(2, 1, 5, 2)
    mechanism = Mechanism(member(scores.table, name, dim_q=3, dim_k=7, heads=1))
    found = attend(q, k, v, mechanism)
    torch.testing.assert_close(found, mechanism.score(q, k).softmax(-1) @ v)
    with raises("shapes-do-not-fit"):
        attend(q, k, v)


@pytest.mark.parametrize("name", scores.table.names())
def test_grouped_heads_are_repeated_heads_also_for_scores_with_parameters(name: str) -> None:
    q, k, v = torch.randn(2, 6, 3, 4), torch.randn(2, 2, 5, 4), torch.randn(2, 2, 5, 4)
    score = member(scores.table, name, dim_q=4, dim_k=4, heads=6)
    mechanism = Mechanism(score, normalizers.Sum() if score.needs_sum else None)
    wide = [x.repeat_interleave(3, 1) for x in (k, v)]
    for backend in ("eager", None):
        torch.testing.assert_close(
            attend(q, k, v, mechanism, backend=backend),
            attend(q, *wide, mechanism, backend="eager"),
        )
    torch.testing.assert_close(weights(q, k, mechanism), weights(q, wide[0], mechanism))


# --- prepared keys ---


@pytest.mark.parametrize(
    ("name", "position"),
    [
        (name, entry.name)
        for name in (
            "scaled-dot",
            "bilinear",
            "reduced-rank",
            "additive",
            "cosine",
            "elu-kernel",
            "favor",
        )
        for entry in positions.table
        if not entry.make.needs_relation
        and not (scores.table[name].needs_sum and entry.make.bias is not positions.Position.bias)
    ],
)
def test_keys_prepared_once_give_the_same_as_plain_keys(name: str, position: str) -> None:
    q, k, v = torch.randn(2, 2, 3, 4), torch.randn(2, 2, 5, 4), torch.randn(2, 2, 5, 4)
    score, at = (
        member(scores.table, name, dim_q=4, dim_k=4, heads=2),
        member(positions.table, position, dim=4, heads=2),
    )
    mechanism = Mechanism(score, normalizers.Sum() if score.needs_sum else None, position=at)
    ready = mechanism.prepare(k, v, None, 2)
    assert isinstance(ready, Ready)
    torch.testing.assert_close(
        read(q, ready, mechanism, masks.causal()), attend(q, k, v, mechanism, masks.causal())
    )
    later = mechanism.prepare(
        k[:, :, 2:], v[:, :, 2:], Positions(torch.arange(2, 5), torch.arange(2, 5)), 2
    )
    for piece, whole in ((later.key, ready.key), (later.value, ready.value)):
        torch.testing.assert_close(
            piece, whole[:, :, 2:], msg="keys and values may come piece by piece"
        )


@pytest.mark.parametrize("name", ["bilinear", "additive", "cosine"])
def test_prepared_keys_of_few_heads_are_repeated_only_where_each_head_has_parameters(
    name: str,
) -> None:
    q, k, v = torch.randn(2, 6, 3, 4), torch.randn(2, 2, 5, 4), torch.randn(2, 2, 5, 4)
    mechanism = Mechanism(member(scores.table, name, dim_q=4, dim_k=4, heads=6))
    ready = mechanism.prepare(k, v, heads=6)
    assert (ready.key.shape[1], ready.value.shape[1]) == (6, 2)
    assert Mechanism().prepare(k, v, heads=6).key.shape[1] == 2
    torch.testing.assert_close(read(q, ready, mechanism), attend(q, k, v, mechanism))


# --- masks, dropout, weights ---


def test_the_masks_of_mechanism_and_call_both_hold() -> None:
    q = torch.randn(2, 1, 4, 4)
    found = weights(q, q, Mechanism(mask=masks.causal()), masks.padding([2, 4])) > 0
    expected = masks.causal().dense(2, 1, 4, 4) & masks.padding([2, 4]).dense(2, 1, 4, 4)
    assert torch.equal(found, expected)


def test_output_is_weights_times_values() -> None:
    q, k, v = torch.randn(2, 2, 3, 4), torch.randn(2, 2, 5, 4), torch.randn(2, 2, 5, 6)
    for normalize in (normalizers.Softmax(), normalizers.Relu(), normalizers.Entmax15()):
        mechanism = Mechanism(normalize=normalize)
        torch.testing.assert_close(weights(q, k, mechanism) @ v, attend(q, k, v, mechanism))


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_dropout_leaves_out_that_share_of_the_weights_and_makes_up_for_it(backend: str) -> None:
    q, v = torch.zeros(1, 1, 60, 4), torch.eye(60).view(1, 1, 60, 60)
    found = attend(q, q, v, dropout=0.25, backend=backend)
    assert (found == 0).float().mean().item() == pytest.approx(0.25, abs=0.03)
    torch.testing.assert_close(found[found > 0], torch.full_like(found[found > 0], 1 / 60 / 0.75))
    torch.testing.assert_close(attend(q, q, v, backend=backend), torch.full((1, 1, 60, 60), 1 / 60))


def test_gradients_of_the_whole() -> None:
    tensors = [torch.randn(1, 2, n, 4, dtype=torch.float64, requires_grad=True) for n in (2, 3, 3)]
    assert torch.autograd.gradcheck(lambda *qkv: attend(*qkv, mask=masks.causal()), tensors)


# --- which_backend ---


def test_explain_says_who_can_who_is_taken_and_why_the_others_refuse() -> None:
    q = torch.randn(1, 2, 8, 16, requires_grad=True)
    plain = which_backend(q, q)
    assert plain.chosen == "sdpa"
    assert [verdict.backend for verdict in plain if verdict.reason is None] == ["sdpa", "eager"]
    assert "→ sdpa    can" in str(plain)
    assert "flex    refuses: it has no backward on a CPU" in str(plain)
    additive = which_backend(q, q, Mechanism(scores.Additive(16, 16)))
    assert additive.chosen == "eager"
    assert {verdict.backend: verdict.reason for verdict in additive}[
        "sdpa"
    ] == "the score is not a dot product"
    kernel = which_backend(
        q,
        torch.randn(1, 2, 40, 16),
        Mechanism(scores.EluKernel(), normalizers.Sum()),
        masks.padding([3]),
    )
    assert kernel.chosen == "linear"
    ready = which_backend(q, q, mask=masks.causal())
    assert ready.chosen == "sdpa"
    assert len(ready) == len(backends.all_named())


# --- mistakes ---


def x(*shape: int) -> Tensor:
    return torch.zeros(*shape)


MISTAKES: list[tuple[str, Callable[[], object], str]] = [
    (
        "three dimensions",
        lambda: attend(x(2, 3, 4), x(2, 3, 4), x(2, 3, 4)),
        "four dimensions, batch × heads × positions × width",
    ),
    (
        "batches",
        lambda: attend(x(2, 1, 3, 4), x(3, 1, 3, 4), x(3, 1, 3, 4)),
        r"q \(2, 1, 3, 4\), k .* must share the batch",
    ),
    (
        "positions",
        lambda: attend(x(2, 1, 3, 4), x(2, 1, 3, 4), x(2, 1, 5, 4)),
        "k and v their heads and positions",
    ),
    (
        "heads",
        lambda: attend(x(2, 3, 3, 4), x(2, 2, 3, 4), x(2, 2, 3, 4)),
        "heads of q must be a multiple of those of k and v",
    ),
    (
        "heads of values",
        lambda: attend(x(2, 4, 3, 4), x(2, 4, 3, 4), x(2, 3, 3, 4)),
        "k and v their heads",
    ),
    (
        "no heads",
        lambda: attend(x(2, 0, 3, 4), x(2, 0, 3, 4), x(2, 0, 3, 4)),
        "at least one head, one query and one key",
    ),
    (
        "no keys",
        lambda: attend(x(2, 1, 3, 4), x(2, 1, 0, 4), x(2, 1, 0, 4)),
        "at least one head, one query and one key",
    ),
    (
        "widths",
        lambda: attend(x(2, 1, 3, 4), x(2, 1, 3, 5), x(2, 1, 3, 5)),
        "compares equal widths",
    ),
    (
        "a tensor for a mask",
        lambda: attend(*[x(1, 1, 2, 4)] * 3, mask=x(2, 2).bool()),
        r"expected a mask, got Tensor; .* masks.matrix",
    ),
    (
        "a name for a mechanism",
        lambda: attend(*[x(1, 1, 2, 4)] * 3, "dot"),
        r"expected a Mechanism, got 'dot'; pass Mechanism\(",
    ),
    (
        "a name for a score",
        lambda: Mechanism("dot"),
        "expected a Score object, got 'dot'; build one from saccade.core.scores",
    ),
    (
        "a class for a normalizer",
        lambda: Mechanism(normalize=normalizers.Softmax),
        "expected a Normalizer object, got <class .*; build one from saccade.core.normalizers",
    ),
    (
        "a tensor for the mechanism's mask",
        lambda: Mechanism(mask=x(2, 2)),
        "expected a Mask object, got tensor",
    ),
    (
        "a score for a position",
        lambda: Mechanism(position=scores.Dot()),
        "expected a Position object, got Dot",
    ),
    (
        "a sum of scores",
        lambda: Mechanism(normalize=normalizers.Sum()),
        "use a kernel score such as elu-kernel",
    ),
    (
        "a sum with a bias",
        lambda: Mechanism(scores.EluKernel(), normalizers.Sum(), None, positions.Alibi(1)),
        "position that adds no bias, or the normalizer softmax",
    ),
    (
        "too much dropout",
        lambda: attend(*[x(1, 1, 2, 4)] * 3, dropout=1.0),
        r"dropout must be in \[0, 1\), got 1.0",
    ),
    (
        "a wrong backend",
        lambda: attend(*[x(1, 1, 2, 4)] * 3, backend="spda"),
        "no backend named 'spda'; did you mean 'sdpa'",
    ),
    (
        "a mask of another batch",
        lambda: attend(*[x(2, 1, 2, 4)] * 3, mask=masks.padding([1])),
        "a batch of 1, got a batch of 2; make the mask from the same batch",
    ),
]


@pytest.mark.parametrize(
    ("make", "sentence"), [case[1:] for case in MISTAKES], ids=[case[0] for case in MISTAKES]
)
def test_a_mistake_is_answered_with_a_sentence(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(SaccadeError, match=sentence):
        make()


shapes = st.lists(st.integers(0, 3), min_size=2, max_size=5).map(tuple)
near = st.tuples(*[st.integers(1, 2)] * 4)


@given(q=st.one_of(shapes, near), k=st.one_of(shapes, near), v=st.one_of(shapes, near))
def test_shapes_give_an_output_or_a_sentence_and_nothing_else(
    q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...]
) -> None:
    fits = (
        len(q) == len(k) == len(v) == 4
        and q[0] == k[0]
        and k[:3] == v[:3]
        and q[3] == k[3]
        and min(*q[1:3], *k[1:3]) > 0
    )
    fits = fits and q[1] % k[1] == 0
    if fits and 0 not in (q[0], q[3], v[3]):
        assert attend(x(*q), x(*k), x(*v)).shape == (*q[:3], v[3])
    elif not fits:
        with raises("shapes-do-not-fit"):
            attend(x(*q), x(*k), x(*v))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: attend(
                torch.ones(1, 1, 2, 2).long(), torch.ones(1, 1, 2, 2), torch.ones(1, 1, 2, 2)
            ),
            "q must be a floating-point tensor such as float32 or bfloat16, got torch.int64",
        ),
        (
            lambda: attend(torch.ones(1, 1, 2, 2), [[1.0]], torch.ones(1, 1, 2, 2)),
            "k must be a floating-point tensor .* got list",
        ),  # type: ignore[arg-type]
        (
            lambda: attend(
                torch.ones(1, 1, 2, 2), torch.ones(1, 1, 2, 2).double(), torch.ones(1, 1, 2, 2)
            ),
            "must have one type, got torch.float32, torch.float64 and torch.float32; convert them first",
        ),
        (lambda: positions.Alibi(0), "heads must be at least 1, got 0"),
        (lambda: positions.Shaw(4, max_distance=0), "max_distance must be at least 1, got 0"),
        (lambda: scores.Cosine(2, sharpness=-1.0), "sharpness must be above 0, got -1.0"),
        (lambda: scores.Additive(4, 4, 0), "hidden and heads must be at least 1, got 0 and 1"),
        (lambda: scores.ReducedRank(4, 4, 0), "rank must be at least 1, got 0"),
        (lambda: masks.window(1.5), "0 or more positions to each side, got 1.5 and 1.5"),  # type: ignore[arg-type]
    ],
)
def test_wrong_parts_and_tensors_are_answered_with_a_sentence(
    make: Callable[[], object], sentence: str
) -> None:
    with pytest.raises(SaccadeError, match=sentence):
        make()
