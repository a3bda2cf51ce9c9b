"""Properties over the whole catalogue: what holds for attention holds for every score, normalizer, mask, position and backend."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from saccade.catalogue import SLOTS, rows, slot
from saccade.core import Mechanism, Places, attend, explain, masks, weights
from saccade.core.masks import Mask
from saccade.data.trees import tree_distances
from saccade.errors import SaccadeError
from saccade.models.families import Choice

BATCH, HEADS, N, WIDTH = 2, 2, 6, 4
SCORES, NORMALIZERS, POSITIONS = (SLOTS[name].names() for name in ("scores", "normalizers", "positions"))
BACKENDS = [name for name in SLOTS["backends"].names() if name != "flex"]  # flex needs its compiler: see test_backends.py

# Each score with each normalizer (dividing by the sum is for kernels alone), then each position with the scaled dot product.
MECHANISMS = [
    (score, normalize, "none")
    for score in SCORES
    for normalize in NORMALIZERS
    if normalize != "sum" or SLOTS["scores"][score].kernel
]
MECHANISMS += [
    ("scaled-dot", normalize, position) for normalize in ("softmax", "sparsemax") for position in POSITIONS if position != "none"
]
MECHANISMS += [("elu-kernel", "sum", "rotary"), ("additive", "softmax", "alibi"), ("cosine", "sigmoid", "shaw")]
MASKS: dict[str, Callable[[], Mask]] = {
    "full": masks.full,
    "causal": masks.causal,
    "window": lambda: masks.window(1),
    "padding": lambda: masks.padding([4, N]),
    "prefix": lambda: masks.prefix([2, 3]),
    "documents": lambda: masks.documents([[0, 0, 0, 1, 1, 1], [0, 1, 1, 1, 1, 2]]),
    "blocks": lambda: masks.blocks(N, size=2, window=0, globals=1, random=1),
    "matrix": lambda: masks.matrix(torch.rand(BATCH, HEADS, N, N) < 0.5),
}
PLACES = Places.in_line(N, N, tree=tree_distances([[-1, 0, 0, 1, 3, 3], [1, 2, -1, 2, 3, 4]]))
each_mechanism = pytest.mark.parametrize("names", MECHANISMS, ids="/".join)


def mechanism(names: tuple[str, str, str]) -> Mechanism:
    facts = {"dim_q": WIDTH, "dim_k": WIDTH, "dim": WIDTH, "heads": HEADS}
    score, normalize, position = (
        Choice(SLOTS[where][name])(**facts) for where, name in zip(("scores", "normalizers", "positions"), names, strict=True)
    )
    made = Mechanism(score, normalize, None, position)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.7)
    return made


def tensors(dtype: torch.dtype = torch.float32, requires_grad: bool = False) -> list[Tensor]:
    return [torch.randn(BATCH, HEADS, N, WIDTH).to(dtype).requires_grad_(requires_grad) for _ in range(3)]


def test_the_catalogue_holds_every_slot_and_answers_a_wrong_name() -> None:
    assert set(MASKS) == set(SLOTS["masks"].names())
    for table in SLOTS.values():
        assert len(table) > 0
        assert all(entry.summary for entry in table), f"every entry of {table.slot} says what it is"
    assert {row["name"] for row in rows("scores", where="bahdanau")} == {"additive"}
    assert {row["slot"] for row in rows(where="rotary")} >= {"positions"}
    with pytest.raises(SaccadeError, match="no slot named 'score'; did you mean 'scores'"):
        slot("score")


@each_mechanism
def test_padding_is_invisible_and_no_gradient_reaches_it(names: tuple[str, str, str]) -> None:
    made, (q, k, v) = mechanism(names), tensors(requires_grad=True)
    padding = masks.padding([4, 1])
    found = attend(q, k, v, made, padding, PLACES)
    found.square().sum().backward()
    hidden = ~padding.dense(BATCH, HEADS, N, N).expand(BATCH, HEADS, 1, N)[:, :, 0]
    assert (k.grad[hidden] == 0).all()
    assert (v.grad[hidden] == 0).all()
    assert (v.grad[~hidden] != 0).any()
    other_k, other_v = k.detach().clone(), v.detach().clone()
    other_k[hidden], other_v[hidden] = 50 * torch.randn_like(k[hidden]), 1e4
    torch.testing.assert_close(attend(q, other_k, other_v, made, padding, PLACES), found)


@each_mechanism
def test_the_future_is_invisible_under_the_causal_mask(names: tuple[str, str, str]) -> None:
    made, (q, k, v) = mechanism(names), tensors(requires_grad=True)
    found = attend(q, k, v, made, masks.causal(), PLACES)
    now = 3
    found[:, :, : now + 1].square().sum().backward()
    assert (k.grad[:, :, now + 1 :] == 0).all()
    assert (v.grad[:, :, now + 1 :] == 0).all()
    assert (v.grad[:, :, 1 : now + 1] != 0).any()
    other_k, other_v = k.detach().clone(), v.detach().clone()
    other_k[:, :, now + 1 :], other_v[:, :, now + 1 :] = 50 * torch.randn(2, 2, 2, WIDTH), 1e4
    torch.testing.assert_close(attend(q, other_k, other_v, made, masks.causal(), PLACES)[:, :, : now + 1], found[:, :, : now + 1])


@each_mechanism
def test_the_order_of_keys_is_invisible_without_a_position_and_visible_with_one(names: tuple[str, str, str]) -> None:
    made, (q, k, v) = mechanism(names), tensors(torch.float64)
    made = made.double()
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    found, moved = attend(q, k, v, made, None, PLACES), attend(q, k[:, :, order], v[:, :, order], made, None, PLACES)
    assert torch.allclose(found, moved) == (names[2] == "none")
    queries = attend(q[:, :, order], k, v, made, None, PLACES)
    assert torch.allclose(queries, found[:, :, order]) == (names[2] == "none")


@each_mechanism
def test_every_backend_is_eager_forward_and_backward_under_every_mask(names: tuple[str, str, str]) -> None:
    made, compared = mechanism(names), 0
    for mask_name, make in MASKS.items():
        mask, qkv, pull = make(), tensors(requires_grad=True), torch.randn(BATCH, HEADS, N, WIDTH)
        inputs = [*qkv, *made.parameters()]
        able = {verdict.backend for verdict in explain(qkv[0], qkv[1], made, mask) if verdict.reason is None}
        expected = attend(*qkv, made, mask, PLACES, backend="eager")
        gradients = torch.autograd.grad(expected, inputs, pull, materialize_grads=True)
        for backend in (*sorted(able & set(BACKENDS)), None):
            found = attend(*qkv, made, mask, PLACES, backend=backend)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5, msg=lambda m, at=(mask_name, backend): f"{at}: {m}")
            for one, other in zip(torch.autograd.grad(found, inputs, pull, materialize_grads=True), gradients, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
            compared += 1
        for backend in set(BACKENDS) - able:
            with pytest.raises(SaccadeError, match=f"'{backend}' refuses: "):
                attend(*qkv, made, mask, PLACES, backend=backend)
    assert compared >= 2 * len(MASKS)


@each_mechanism
def test_a_fully_masked_row_gives_zeros_and_finite_gradients_on_every_backend(names: tuple[str, str, str]) -> None:
    made = mechanism(names)
    empty_row = torch.rand(N, N) < 0.5
    empty_row[1] = False
    for mask, empty in (
        (masks.padding([0, 3]), (0, slice(None), slice(None))),
        (masks.matrix(empty_row), (slice(None), slice(None), 1)),
    ):
        q, k, v = tensors(requires_grad=True)
        for verdict in explain(q, k, made, mask):
            if verdict.reason is None and verdict.backend != "flex":
                found = attend(q, k, v, made, mask, PLACES, backend=verdict.backend)
                assert (found[empty] == 0).all()
                inputs = [q, k, v, *made.parameters()]
                for gradient in torch.autograd.grad(found.square().sum(), inputs, allow_unused=True):
                    assert gradient is None or torch.isfinite(gradient).all()
        assert (weights(q, k, made, mask, PLACES)[empty] == 0).all()


@each_mechanism
def test_the_last_queries_alone_get_what_they_get_among_all(names: tuple[str, str, str]) -> None:
    made, (q, k, v) = mechanism(names), tensors()
    for mask in (masks.causal(), masks.window(2) & masks.padding([4, N]), MASKS["documents"](), MASKS["blocks"]()):
        whole = attend(q, k, v, made, mask, PLACES)
        last = Places(PLACES.i[-2:], PLACES.j, PLACES.tree[:, -2:])
        for verdict in explain(q[:, :, -2:], k, made, mask):
            if verdict.backend in BACKENDS and verdict.reason is None:
                found = attend(q[:, :, -2:], k, v, made, mask, last, backend=verdict.backend)
                torch.testing.assert_close(found, whole[:, :, -2:], rtol=1e-4, atol=1e-5)


@each_mechanism
def test_bfloat16_stays_near_the_exact_numbers_on_every_backend(names: tuple[str, str, str]) -> None:
    made = mechanism(names)
    q, k, v = tensors(torch.bfloat16)
    mask = masks.causal() & masks.padding([4, N])
    with torch.no_grad():
        exact = attend(q.double(), k.double(), v.double(), made.double(), mask, PLACES, backend="eager")
        made = made.to(torch.bfloat16)
        for verdict in explain(q, k, made, mask):
            if verdict.backend in BACKENDS and verdict.reason is None:
                found = attend(q, k, v, made, mask, PLACES, backend=verdict.backend)
                assert found.dtype == torch.bfloat16
                scale = exact.abs().max().clamp_min(1).item()
                torch.testing.assert_close(found.double() / scale, exact / scale, rtol=0, atol=0.06)


@each_mechanism
def test_autocast_runs_every_mechanism_and_stays_near(names: tuple[str, str, str]) -> None:
    made, (q, k, v) = mechanism(names), tensors(requires_grad=True)
    exact = attend(q, k, v, made, masks.causal(), PLACES)
    with torch.autocast("cpu", torch.bfloat16):
        found = attend(q, k, v, made, masks.causal(), PLACES)
    assert (found.float() - exact).abs().max() < 0.06 * exact.abs().max().clamp_min(1)
    found.float().sum().backward()
    assert torch.isfinite(q.grad).all()
