"""Properties over the whole catalogue: what holds for attention holds for every score, normalizer, mask, position and backend."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from core_helpers import BACKENDS, BATCH, HEADS, WIDTH, N, line, mask_examples, mechanism, tensors
from torch import Tensor

from saccade.core import (
    Mechanism,
    Positions,
    attend,
    backends,
    masks,
    normalizers,
    positions,
    scores,
    weights,
)
from saccade.core.attention import build_call
from saccade.core.masks import Mask
from saccade.errors import SaccadeError

SCORES, NORMALIZERS, POSITIONS = (slot.table.names() for slot in (scores, normalizers, positions))

# Each score with each normalizer (dividing by the sum is for kernels alone), then each position with the scaled dot product.
MECHANISMS = [
    (score, normalize, "none")
    for score in SCORES
    for normalize in NORMALIZERS
    if (scores.table[score].kernel if normalize == "sum" else not scores.table[score].needs_sum)
]
MECHANISMS += [
    ("scaled-dot", normalize, position)
    for normalize in ("softmax", "sparsemax")
    for position in POSITIONS
    if position != "none"
]
MECHANISMS += [
    ("elu-kernel", "sum", "rotary"),
    ("additive", "softmax", "alibi"),
    ("cosine", "sigmoid", "shaw"),
]
LINE = line()
MASKS: dict[str, Callable[[], Mask]] = {
    **{name: lambda name=name: mask_examples()[name] for name in masks.table.names()},
    "where": lambda: masks.where(lambda b, h, i, j: (i + 2 * j + h) % 3 != b),
    "packed documents": lambda: (
        masks.documents([[0, 0, 0, 1, 1, 1], [0, 1, 1, 1, 1, 2]]) & masks.causal()
    ),
    "top-blocks & padding": lambda: masks.top_blocks(2, 1) & masks.padding([4, N]),
}
each_mechanism = pytest.mark.parametrize("names", MECHANISMS, ids="/".join)


def able(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    made: Mechanism,
    mask: Mask | None,
    at: Positions | None = None,
    *,
    refused: bool = False,
) -> list[str]:
    """The names of the backends that run a call, or of those that refuse it."""
    call = build_call(q, k, v, made, mask, at, 0.0)
    return [
        name for name in BACKENDS if (backends.table[name].refuses(call) is not None) == refused
    ]


def test_the_members_of_every_table_are_described() -> None:
    for table in (scores.table, normalizers.table, masks.table, positions.table, backends.table):
        assert len(table) > 0
        assert all(entry.summary for entry in table), f"every entry of {table.slot} says what it is"
    assert set(mask_examples()) == set(masks.table.names())


@each_mechanism
def test_padding_is_invisible_and_no_gradient_reaches_it(names: tuple[str, str, str]) -> None:
    made, (q, k, v) = mechanism(*names), tensors(requires_grad=True)
    padding = masks.padding([4, 1])
    found = attend(q, k, v, made, padding, LINE)
    of_k, of_v = torch.autograd.grad(found.square().sum(), (k, v), materialize_grads=True)
    hidden = ~padding.dense(BATCH, HEADS, N, N).expand(BATCH, HEADS, 1, N)[:, :, 0]
    assert (of_k[hidden] == 0).all()
    assert (of_v[hidden] == 0).all()
    assert (of_v[~hidden] != 0).any()
    other_k, other_v = k.detach().clone(), v.detach().clone()
    other_k[hidden], other_v[hidden] = 50 * torch.randn_like(k[hidden]), 1e4
    torch.testing.assert_close(attend(q, other_k, other_v, made, padding, LINE), found)


@each_mechanism
@pytest.mark.parametrize("mask", [masks.causal(), masks.top_blocks(2, 1)], ids=str)
def test_the_future_is_invisible_under_the_causal_mask(
    names: tuple[str, str, str], mask: Mask
) -> None:
    made, (q, k, v) = mechanism(*names), tensors(requires_grad=True)
    found = attend(q, k, v, made, mask, LINE)
    now = 3
    of_k, of_v = torch.autograd.grad(
        found[:, :, : now + 1].square().sum(), (k, v), materialize_grads=True
    )
    assert (of_k[:, :, now + 1 :] == 0).all()
    assert (of_v[:, :, now + 1 :] == 0).all()
    assert (of_v[:, :, 1 : now + 1] != 0).any()
    other_k, other_v = k.detach().clone(), v.detach().clone()
    other_k[:, :, now + 1 :], other_v[:, :, now + 1 :] = 50 * torch.randn(2, 2, 2, WIDTH), 1e4
    torch.testing.assert_close(
        attend(q, other_k, other_v, made, mask, LINE)[:, :, : now + 1], found[:, :, : now + 1]
    )


@each_mechanism
def test_the_order_of_keys_is_invisible_without_a_position_and_visible_with_one(
    names: tuple[str, str, str],
) -> None:
    made, (q, k, v) = mechanism(*names).double(), tensors(dtype=torch.float64)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    found, moved = (
        attend(q, k, v, made, None, LINE),
        attend(q, k[:, :, order], v[:, :, order], made, None, LINE),
    )
    assert torch.allclose(found, moved) == (names[2] == "none")
    queries = attend(q[:, :, order], k, v, made, None, LINE)
    assert torch.allclose(queries, found[:, :, order]) == (names[2] == "none")


@pytest.mark.usefixtures("plain_flex")
@each_mechanism
def test_every_backend_is_eager_forward_and_backward_under_every_mask(
    names: tuple[str, str, str],
) -> None:
    made, compared = mechanism(*names), 0
    for mask_name, make in MASKS.items():
        mask, qkv, pull = make(), tensors(requires_grad=True), torch.randn(BATCH, HEADS, N, WIDTH)
        inputs = [*qkv, *made.parameters()]
        expected = attend(*qkv, made, mask, LINE, backend="eager")
        gradients = torch.autograd.grad(expected, inputs, pull, materialize_grads=True)
        for backend in (*able(*qkv, made, mask, LINE), None):
            found = attend(*qkv, made, mask, LINE, backend=backend)
            torch.testing.assert_close(
                found,
                expected,
                rtol=1e-4,
                atol=1e-5,
                msg=lambda m, at=(mask_name, backend): f"{at}: {m}",
            )
            for one, other in zip(
                torch.autograd.grad(found, inputs, pull, materialize_grads=True),
                gradients,
                strict=True,
            ):
                torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
            compared += 1
        for backend in able(*qkv, made, mask, LINE, refused=True):
            with pytest.raises(SaccadeError, match=f"'{backend}' refuses: "):
                attend(*qkv, made, mask, LINE, backend=backend)
    assert compared >= 2 * len(MASKS)


# What flex can run: a dot product, softmax, positions that add nothing to the values.
DOTS = [
    (score, "none")
    for score in SCORES
    if score not in ("additive", "soft-capped", "gat") and not scores.table[score].needs_sum
]
DOTS += [
    ("scaled-dot", position) for position in POSITIONS if position not in ("none", "shaw", "syntax")
]
DOTS += [("bilinear", "alibi"), ("cosine", "rotary"), ("reduced-rank", "t5")]


@pytest.mark.usefixtures("plain_flex")
@pytest.mark.parametrize(
    ("score", "position", "queries", "kv_heads"),
    [(*names, N, HEADS) for names in DOTS]
    + [(*names, *sizes) for names in DOTS[-4:] for sizes in ((2, HEADS), (N, 1), (1, 1))],
)
@torch.no_grad()
def test_flex_is_eager_for_every_dot_product_mask_and_size(
    score: str, position: str, queries: int, kv_heads: int
) -> None:
    made = mechanism(score, "softmax", position)
    for name, make in MASKS.items():
        mask, qkv, at = make(), tensors(queries, N, kv_heads=kv_heads), line(queries)
        if name == "matrix":
            mask = masks.matrix(torch.rand(BATCH, HEADS, queries, N) < 0.5)
        assert "flex" in able(*qkv, made, mask, at)
        expected = attend(*qkv, made, mask, at, backend="eager")
        for given in (mask, mask.prepare(BATCH, HEADS, queries, N)):
            for backend in ("flex", "sdpa") if queries < N or given is mask else ("sdpa",):
                found = attend(*qkv, made, given, at, backend=backend)
                torch.testing.assert_close(
                    found,
                    expected,
                    rtol=1e-4,
                    atol=1e-5,
                    msg=lambda m, at=(name, backend): f"{at}: {m}",
                )


@pytest.mark.usefixtures("plain_flex")
@each_mechanism
def test_a_fully_masked_row_gives_zeros_and_finite_gradients_on_every_backend(
    names: tuple[str, str, str],
) -> None:
    made = mechanism(*names)
    empty_row = torch.rand(N, N) < 0.5
    empty_row[1] = False
    for mask, empty in (
        (masks.padding([0, 3]), (0, slice(None), slice(None))),
        (masks.matrix(empty_row), (slice(None), slice(None), 1)),
    ):
        qkv = tensors(requires_grad=True)
        for backend in able(*qkv, made, mask, LINE):
            found = attend(*qkv, made, mask, LINE, backend=backend)
            assert (found[empty] == 0).all()
            inputs = [*qkv, *made.parameters()]
            for gradient in torch.autograd.grad(found.square().sum(), inputs, allow_unused=True):
                assert gradient is None or torch.isfinite(gradient).all()
        with torch.no_grad():
            for backend in set(able(*qkv, made, mask, LINE)) & {"flex"}:
                assert (attend(*qkv, made, mask, LINE, backend=backend)[empty] == 0).all()
        assert (weights(*qkv[:2], made, mask, LINE)[empty] == 0).all()


@pytest.mark.usefixtures("plain_flex")
@each_mechanism
@torch.no_grad()
def test_the_last_queries_alone_get_what_they_get_among_all(names: tuple[str, str, str]) -> None:
    made, (q, k, v) = mechanism(*names), tensors()
    for name in (
        "causal",
        "window",
        "documents",
        "blocks",
        "top-blocks",
        "where",
        "top-blocks & padding",
    ):
        mask = MASKS[name]()
        whole, last = attend(q, k, v, made, mask, LINE), (q[:, :, -2:], k, v)
        for backend in able(*last, made, mask, line(2)):
            found = attend(*last, made, mask, line(2), backend=backend)
            torch.testing.assert_close(
                found,
                whole[:, :, -2:],
                rtol=1e-4,
                atol=1e-5,
                msg=lambda m, at=(name, backend): f"{at}: {m}",
            )


@pytest.mark.usefixtures("plain_flex")
@each_mechanism
@torch.no_grad()
def test_bfloat16_stays_near_the_exact_numbers_on_every_backend(
    names: tuple[str, str, str],
) -> None:
    made, qkv = mechanism(*names), tensors(dtype=torch.bfloat16)
    mask = masks.causal() & masks.padding([4, N])
    exact = attend(*(x.double() for x in qkv), made.double(), mask, LINE, backend="eager")
    made = made.to(torch.bfloat16)
    for backend in able(*qkv, made, mask, LINE):
        found = attend(*qkv, made, mask, LINE, backend=backend)
        assert found.dtype == torch.bfloat16
        apart = (found.double() - exact).abs().amax(-1) / exact.abs().max().clamp_min(1)
        # which of two keys a hard choice takes that are alike in 16 bits is a matter of rounding, in one row at most
        assert int((apart > 0.06).sum()) <= (names[1] == "hard"), f"{backend}: {apart.max():.2g}"


@each_mechanism
def test_autocast_runs_every_mechanism_and_stays_near(names: tuple[str, str, str]) -> None:
    made, (q, k, v) = mechanism(*names), tensors(requires_grad=True)
    exact = attend(q, k, v, made, masks.causal(), LINE)
    with torch.autocast("cpu", torch.bfloat16):
        found = attend(q, k, v, made, masks.causal(), LINE)
    assert (found.float() - exact).abs().max() < 0.06 * exact.abs().max().clamp_min(1)
    [of_q] = torch.autograd.grad(found.float().sum(), [q], materialize_grads=True)
    assert torch.isfinite(of_q).all()
