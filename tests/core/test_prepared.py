"""Prepared masks: made dense once for a pass, narrowed by layers, reordered with the rows of a batch; rows that may attend nowhere."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from core_helpers import BATCH, HEADS, N, mask_examples, tensors
from hypothesis import given
from hypothesis import strategies as st
from tests.support import raises
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from saccade.core import Mechanism, attend, masks, normalizers, positions, scores
from saccade.core.masks import Mask
from saccade.layers.multihead_attention import MultiHeadAttention

EXAMPLES = mask_examples()
PLAIN = sorted(name for name, mask in EXAMPLES.items() if not mask.computed)
SIZES = (BATCH, HEADS, N, N)


class Counted(Mask):
    """Causal, and counts how often it is asked."""

    asked = 0

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        Counted.asked += 1
        return j <= i


@pytest.fixture(autouse=True)
def nothing_asked() -> None:
    Counted.asked = 0


@pytest.mark.parametrize("name", PLAIN)
def test_a_prepared_mask_is_the_mask(name: str) -> None:
    mask, (q, k, v) = EXAMPLES[name], tensors()
    ready = mask.prepare(*SIZES)
    assert torch.equal(ready.allowed(), mask.dense(*SIZES))
    assert repr(ready) == repr(mask)
    assert ready.compares_positions == mask.compares_positions
    torch.testing.assert_close(attend(q, k, v, mask=ready), attend(q, k, v, mask=mask))
    torch.testing.assert_close(
        attend(q[:, :, -2:], k, v, mask=ready),
        attend(q[:, :, -2:], k, v, mask=mask),
        msg="other sizes",
    )
    both = masks.window(2) & ready
    torch.testing.assert_close(
        attend(q, k, v, mask=both), attend(q, k, v, mask=masks.window(2) & mask)
    )


def test_a_mask_is_made_dense_once_for_all_layers_of_a_pass() -> None:
    ready, (q, k, v) = Counted().prepare(*SIZES), tensors()
    for _ in range(3):
        attend(q, k, v, mask=ready)
        attend(q, k, v, Mechanism(normalize=normalizers.Relu()), mask=ready)
    assert Counted.asked == 1
    own, first = Mechanism(mask=masks.window(1)), None
    for _ in range(3):
        attend(q, k, v, own, mask=ready)
        first = ready.within(own.mask) if first is None else first
        assert ready.within(own.mask) is first
    assert Counted.asked == 2, "once by itself and once with the mask that the layers share"
    attend(q, k, v, mask=Counted())
    attend(q, k, v, mask=Counted())
    assert Counted.asked == 4, "a mask that was not prepared is made for each call"


def test_what_a_prepared_mask_makes_is_made_once() -> None:
    ready = (masks.padding([2, 5]) & masks.causal()).prepare(2, 1, 5, 5)
    assert ready.allowed() is ready.allowed()
    assert ready.added(torch.float32) is ready.added(torch.float32)
    assert ready.added(torch.float64)[0].dtype == torch.float64
    assert ready.within(masks.full()) is ready
    window = masks.window(1)
    assert ready.within(window) is ready.within(window)
    assert ready.within(masks.window(1)) is not ready.within(masks.window(2))
    assert torch.equal(ready.within(window).allowed(), ready.allowed() & window.dense(2, 1, 5, 5))


def test_what_a_mask_adds_by_hand() -> None:
    added, empty = masks.padding([2, 0]).prepare(2, 1, 3, 3).added(torch.bfloat16)
    assert added.dtype == torch.bfloat16
    assert added[:, 0, 0].tolist() == [[0.0, 0.0, float("-inf")], [0.0, 0.0, 0.0]]
    assert empty[:, 0, 0, 0].tolist() == [False, True]


@pytest.mark.parametrize(
    ("mask", "known"),
    [
        (masks.padding([1, 3]), True),
        (masks.padding([0, 3]), False),
        (masks.causal(), True),
        (masks.matrix([[1, 0, 0], [0, 0, 0], [1, 1, 1]]), False),
    ],
    ids=str,
)
def test_whether_every_row_attends_somewhere_is_known_on_a_cpu(mask: Mask, known: bool) -> None:
    assert (mask.prepare(2, 1, 3, 3).added(torch.float32)[1] is None) is known


@given(
    rows=st.lists(st.integers(0, BATCH - 1), min_size=1, max_size=5),
    name=st.sampled_from(PLAIN),
    dense=st.booleans(),
    added=st.booleans(),
)
def test_rows_of_a_prepared_mask_repeat_move_and_leave(
    rows: list[int], name: str, dense: bool, added: bool
) -> None:
    ready = EXAMPLES[name].prepare(*SIZES)
    if dense:
        ready.allowed()
    if added:
        ready.added(torch.float32)
    moved, expected = (
        ready.reorder(torch.tensor(rows)),
        EXAMPLES[name].dense(*SIZES).expand(SIZES)[rows],
    )
    q, k, v = tensors(batch=len(rows))
    assert torch.equal(moved.allowed().expand(len(rows), HEADS, N, N), expected)
    assert torch.equal(
        moved.mask.dense(len(rows), HEADS, N, N).expand(len(rows), HEADS, N, N), expected
    )
    torch.testing.assert_close(
        attend(q, k, v, mask=moved), attend(q, k, v, mask=masks.matrix(expected))
    )
    again = moved.reorder(torch.tensor([0]))
    assert torch.equal(again.allowed().expand(1, HEADS, N, N), expected[:1])
    narrow = moved.within(masks.window(1)).allowed()
    assert torch.equal(narrow.expand(expected.shape), expected & masks.window(1).dense(1, 1, N, N))


def test_rows_of_a_mask_that_is_computed_from_queries_are_reordered_where_they_are_known() -> None:
    mask = (
        masks.top_blocks(2, 1)
        & masks.padding([3, 6])
        & masks.blocks(6, 2, window=0, globals=0, random=1)
    )
    (q, k, v), rows = tensors(), torch.tensor([1, 1, 0])
    ready = mask.prepare(*SIZES).reorder(rows)
    torch.testing.assert_close(
        attend(q[rows], k[rows], v[rows], mask=ready), attend(q, k, v, mask=mask)[rows]
    )


def test_one_row_serves_all_that_come_of_it() -> None:
    ready = masks.padding([2]).prepare(1, HEADS, 1, N)
    q, k, v = tensors(1, N, batch=3)
    moved = ready.reorder(torch.tensor([0, 0, 0]))
    torch.testing.assert_close(attend(q, k, v, mask=moved), attend(q, k[:, :, :2], v[:, :, :2]))


def test_a_prepared_mask_does_not_see_later_changes_and_a_plain_one_does() -> None:
    lengths, (q, k, v) = torch.tensor([3, 3]), tensors()
    for mask in (masks.padding(lengths), masks.padding(lengths) & masks.causal()):
        lengths[:] = 3
        ready = mask.prepare(*SIZES)
        before = attend(q, k, v, mask=ready)
        torch.testing.assert_close(attend(q, k, v, mask=mask), before)
        lengths[0] = 1
        fresh = masks.padding(torch.tensor([1, 3]))
        expected = attend(
            q, k, v, mask=fresh if mask.causal_and_keys()[0] is False else fresh & masks.causal()
        )
        torch.testing.assert_close(attend(q, k, v, mask=mask), expected)
        torch.testing.assert_close(attend(q, k, v, mask=ready), before)


def test_a_prepared_mask_moved_elsewhere_keeps_nothing_of_where_it_was() -> None:
    ready = masks.padding([1, 2]).prepare(2, 1, 3, 3)
    ready.allowed()
    assert ready.to("meta").dense(2, 1, 3, 3, "meta").device.type == "meta"
    assert ready.to("meta").values.device.type == "meta"
    assert ready.allowed().device.type == "cpu"


def test_a_prepared_mask_checks_the_sizes_of_what_it_was_made_of() -> None:
    with raises("mask-batch-differs"):
        attend(*tensors(batch=3), mask=masks.padding([1, 2]).prepare(2, HEADS, N, N))


# --- rows that may attend nowhere ---

MECHANISMS: dict[str, tuple[Callable[[], Mechanism], list[str]]] = {
    "scaled dot": (Mechanism, ["eager", "sdpa", "flex"]),
    "with a bias": (lambda: Mechanism(position=positions.Alibi(HEADS)), ["eager", "sdpa", "flex"]),
    "kernel": (lambda: Mechanism(scores.EluKernel(), normalizers.Sum()), ["eager", "linear"]),
    "additive, sparsemax": (
        lambda: Mechanism(scores.Additive(4, 4), normalizers.Sparsemax()),
        ["eager"],
    ),
}
EMPTY = {
    "a row of the batch": (masks.padding([0, 3]), (0,)),
    "a head": (masks.where(lambda b, h, i, j: (h == 1) & (j <= i)), (slice(None), 0)),
    "a query": (masks.where(lambda b, h, i, j: (i != 2) & (j != 1)), (slice(None), slice(None), 2)),
}


@pytest.mark.usefixtures("plain_flex")
@pytest.mark.parametrize("where", sorted(EMPTY))
@pytest.mark.parametrize("name", sorted(MECHANISMS))
def test_rows_that_may_attend_nowhere_give_zeros_and_finite_gradients_on_every_backend(
    name: str, where: str
) -> None:
    make, able = MECHANISMS[name]
    mechanism, (mask, empty) = make(), EMPTY[where]
    for backend in able:
        if backend == "linear" and mask.causal_and_keys() is None:
            continue
        for one in (mask, mask.prepare(*SIZES)):
            qkv = tensors(requires_grad=backend != "flex")
            with torch.set_grad_enabled(backend != "flex"):
                found = attend(*qkv, mechanism, one, backend=backend)
            assert (found[empty] == 0).all()
            assert (found != 0).any()
            if backend != "flex":
                inputs = [*qkv, *mechanism.parameters()]
                gradients = torch.autograd.grad(found.square().sum(), inputs, allow_unused=True)
                assert all(gradient is None or gradient.isfinite().all() for gradient in gradients)
                assert (gradients[0][empty] == 0).all()


# --- where masks are used ---


def test_a_layer_with_a_mask_of_its_own_can_be_copied_after_a_pass() -> None:
    layer, x = (
        MultiHeadAttention(16, 2, None, Mechanism(mask=masks.window(1))),
        torch.randn(2, 5, 16),
    )
    expected = layer(x)
    torch.testing.assert_close(copy.deepcopy(layer)(x), expected)


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # PyTorch's, of its kernel
@pytest.mark.parametrize("backend", [None, "eager", "sdpa"])
def test_a_mask_that_is_computed_from_mapped_queries_is_mapped(backend: str | None) -> None:
    q = torch.randn(3, 1, 2, 8, 4)
    run = lambda q: attend(q, q, q, mask=masks.top_blocks(2, 1), backend=backend)
    torch.testing.assert_close(torch.vmap(run)(q), torch.stack([run(one) for one in q]))


def test_tensors_without_numbers_leave_nothing_behind() -> None:
    mechanism = Mechanism(position=positions.Rotary(), mask=masks.window(2))
    with FakeTensorMode():
        q = torch.randn(1, 1, 6, 8)
        assert tuple(attend(q, q, q, mechanism, masks.causal()).shape) == (1, 1, 6, 8)
    q = torch.randn(1, 1, 6, 8)
    assert bool(attend(q, q, q, mechanism, masks.causal()).isfinite().all())


def test_what_inference_made_can_be_read_outside_of_it() -> None:
    with torch.inference_mode():
        lengths = torch.tensor([2, 3])
    assert torch.equal(
        masks.padding(lengths).dense(2, 1, 3, 3),
        masks.padding(torch.tensor([2, 3])).dense(2, 1, 3, 3),
    )
