"""The kernel of the backend `short` against eager in float64, forward and backward, over shapes drawn at random."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from test_flash_kernels import DEVICE, KINDS, TYPES, compare, difference, lengths, runs

from saccade.core import Mechanism, attend, masks, normalizers, positions, which_backend
from saccade.core.masks import Mask
from saccade.core.window_masks import ShiftedWindows
from saccade.errors import SaccadeError
from saccade.layers.grid_windows import GridBias, Windows
from saccade.training.flops import counter

TYPE, MOST = TYPES[-1]  # 16 bits on a GPU, float32 in the interpreter
NAMES = [
    "plain",
    "causal",
    "padding",
    "causal padding",
    "window",
    "causal window padding",
    "alibi",
    "alibi both sides",
    "t5",
    "t5 causal",
]


def shape(name: str) -> tuple[int, int, int, int, int, int]:
    draw = random.Random("short" + name)
    keys = draw.randint(5, 64)
    return (
        draw.choice([1, 3]),
        2,
        2,
        draw.choice([keys, draw.randint(2, keys)]),
        keys,
        draw.choice([8, 16, 24, 40]),
    )


@runs
@pytest.mark.parametrize(("dtype", "most"), TYPES[-1:], ids=lambda one: str(one))
@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_is_eager_forward_and_backward(name: str, dtype: torch.dtype, most: float) -> None:
    sizes = shape(name)
    made, mask = KINDS[name](sizes[0], sizes[1], sizes[4], sizes[5])
    compare(made, mask, sizes, dtype, most, backend="short")


@runs
@pytest.mark.parametrize(
    "sizes",
    [(1, 1, 1, 2, 64, 16), (2, 1, 1, 64, 3, 128), (70, 2, 2, 16, 16, 32), (1, 2, 2, 9, 8, 16)],
    ids=str,
)
@pytest.mark.parametrize("position", ["none", "alibi", "t5"])
def test_a_kernel_runs_with_more_and_fewer_queries_than_keys(
    sizes: tuple[int, ...], position: str
) -> None:
    made = Mechanism() if position == "none" else KINDS[position](*sizes[:2], sizes[4], sizes[5])[0]
    compare(made, None, sizes, TYPE, MOST, backend="short")


@runs
@pytest.mark.parametrize("shifted", [False, True])
def test_windows_have_their_bias_and_their_mask(shifted: bool) -> None:
    """More texts than one program adds up the bias's gradient of."""
    torch.manual_seed(1)
    at = Windows.over(8, 8, 4, DEVICE)
    made = Mechanism(position=GridBias(2, 4)).to(DEVICE)
    torch.nn.init.normal_(made.position.table, std=0.5)
    mask: Mask | None = ShiftedWindows((8, 8), (4, 4), (2, 2), DEVICE) if shifted else None
    given = [torch.randn(72, 2, 16, 16).to(TYPE) for _ in range(4)]
    found = []
    for backend, kind in (("eager", torch.float64), ("short", TYPE)):
        made.to(torch.float64 if backend == "eager" else torch.float32)
        *inputs, pull = (x.to(DEVICE, kind) for x in given)
        inputs = [x.requires_grad_() for x in inputs]
        output = attend(*inputs, made, mask, positions=at, backend=backend)
        found.append((output, *torch.autograd.grad(output, [*inputs, made.position.table], pull)))
    for expected, got in zip(*found, strict=True):
        assert difference(got, expected) < MOST


@runs
def test_dropout_drops_weights_and_the_gradient_knows_which() -> None:
    torch.manual_seed(0)
    n = 48
    q, k = (
        torch.randn(1, 1, n, 16, device=DEVICE, dtype=TYPE, requires_grad=True) for _ in range(2)
    )
    # the output is the weights
    v = torch.eye(n, device=DEVICE, dtype=TYPE)[None, None].requires_grad_()
    output = attend(q, k, v, mask=masks.causal(), dropout=0.4, backend="short")
    whole = attend(q, k, v, mask=masks.causal(), backend="eager")
    kept = (output != 0).to(q.dtype)
    share = float(kept.sum() / (whole != 0).sum())
    assert 0.5 < share < 0.7
    assert difference(output, (whole * kept / 0.6).double()) < MOST
    pull = torch.randn_like(output)
    expected = torch.autograd.grad(whole * kept / 0.6, [q, k], pull)
    for one, other in zip(torch.autograd.grad(output, [q, k], pull), expected, strict=True):
        assert difference(one, other.double()) < 3 * MOST


@runs
def test_heads_side_by_side_stay_so() -> None:
    q, k, v = torch.randn(2, 9, 3, 4, 16, device=DEVICE, dtype=TYPE).unbind(2)
    q, k, v = (x.transpose(1, 2).requires_grad_() for x in (q, k, v))
    output = attend(q, k, v, backend="short")
    assert output.transpose(1, 2).is_contiguous()
    assert difference(output, attend(q, k, v, backend="eager").double()) < MOST


REFUSED: dict[
    str, tuple[tuple[int, int, int, int], Callable[[], tuple[Mechanism, Mask | None]], str]
] = {
    "long": ((1, 2, 65, 16), lambda: (Mechanism(), None), "64 queries and keys at most, got 65"),
    "wide": ((1, 2, 8, 160), lambda: (Mechanism(), None), "128 wide at most"),
    "one": ((1, 2, 1, 16), lambda: (Mechanism(), None), "one query"),
    "mask": (
        (1, 2, 8, 16),
        lambda: (Mechanism(), masks.where(lambda b, h, i, j: j != h)),
        "mask is more than",
    ),
    "shaw": (
        (1, 2, 8, 16),
        lambda: (Mechanism(position=positions.Shaw(16, 3)), None),
        "position adds to the values",
    ),
    "relu": (
        (1, 2, 8, 16),
        lambda: (Mechanism(normalize=normalizers.Relu()), None),
        "normalizer is not softmax",
    ),
}


@runs
@pytest.mark.parametrize("name", REFUSED)
def test_what_it_cannot_do_is_refused_by_name(name: str) -> None:
    size, make, reason = REFUSED[name]
    q = torch.randn(size, device=DEVICE, dtype=TYPE)
    made, mask = make()
    with pytest.raises(SaccadeError, match=f"backend 'short' refuses: .*{reason}"):
        attend(q, q, q, made.to(DEVICE), mask, backend="short")


@runs
def test_lengths_that_do_not_fit_are_said() -> None:
    q = torch.randn(2, 1, 8, 16, device=DEVICE, dtype=TYPE)
    with pytest.raises(SaccadeError, match="made for a batch of 3, got a batch of 2"):
        attend(q, q, q, mask=masks.padding(lengths(3, 8)), backend="short")


@runs
def test_operations_are_counted() -> None:
    q = torch.randn(2, 2, 8, 16, device=DEVICE, dtype=TYPE)
    counts = []
    for backend in ("eager", "short"):
        with counter() as counted:
            attend(q, q, q, backend=backend)
        counts.append(counted.get_total_flops())
    assert counts[0] == counts[1] > 0


@runs
def test_a_compiled_function_holds_the_kernel_as_one_operator() -> None:
    made = Mechanism(position=positions.T5Buckets(2, 8, 12)).to(DEVICE)
    q, k, v = (
        torch.randn(3, 2, 20, 16, device=DEVICE, dtype=TYPE, requires_grad=True) for _ in range(3)
    )
    lengths = torch.tensor([20, 3, 9], device=DEVICE)
    run = lambda *qkv: attend(*qkv, made, masks.causal() & masks.padding(lengths), backend="short")
    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    inputs = [q, k, v, made.position.table]
    plain, found = (
        torch.autograd.grad(one(q, k, v).square().sum(), inputs) for one in (run, compiled)
    )
    for one, other in zip(found, plain, strict=True):
        assert difference(one, other.double()) < MOST


@pytest.mark.skipif(DEVICE.type != "cuda", reason="there is no GPU here")
def test_short_rows_run_on_it_on_a_gpu() -> None:
    q = torch.randn(2, 2, 32, 16, device=DEVICE, dtype=TYPE)
    assert which_backend(q, q, Mechanism(), masks.causal()).chosen == "short"
