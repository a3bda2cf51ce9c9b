"""The kernels of other scores and normalizers against the definition in float64: in Triton's interpreter by `make test-kernels`, or on a GPU."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from saccade.core import (
    Mechanism,
    attend,
    backends,
    kernels,
    masks,
    normalizers,
    scores,
    which_backend,
)
from saccade.core.masks import Mask
from saccade.errors import SaccadeError
from saccade.training.flops import counter

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
needs_kernels = pytest.mark.skipif(
    not kernels.available(DEVICE), reason="needs TRITON_INTERPRET=1 or a GPU"
)
ALLOWED = {torch.float32: 1e-3, torch.bfloat16: 1e-2, torch.float16: 1e-2}
DTYPES = (
    [torch.float32, torch.bfloat16, torch.float16] if DEVICE.type == "cuda" else [torch.float32]
)

FORMS = {
    "relu": lambda width: Mechanism(None, normalizers.Relu()),
    "relu by count": lambda width: Mechanism(None, normalizers.Relu(by_count=True)),
    "sigmoid": lambda width: Mechanism(scores.Dot(), normalizers.Sigmoid()),
    "sigmoid by count": lambda width: Mechanism(None, normalizers.Sigmoid(by_count=True)),
    "sparsemax": lambda width: Mechanism(None, normalizers.Sparsemax()),
    "entmax": lambda width: Mechanism(None, normalizers.Entmax15()),
    "elu": lambda width: Mechanism(scores.EluKernel(), normalizers.Sum()),
    "favor": lambda width: Mechanism(scores.Favor(width, 32), normalizers.Sum()),
    "additive": lambda width: Mechanism(scores.Additive(width, width, 18)),
}


@pytest.fixture(autouse=True)
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fills a GPU takes long one after another."""
    if kernels.available(DEVICE) and DEVICE.type == "cpu":
        from saccade.core.kernels import additive

        monkeypatch.setattr(additive, "SPREAD_PROGRAMS", 4)


def distance(found: Tensor, expected: Tensor) -> float:
    """‖found − expected‖ / ‖expected‖"""
    found, expected = found.detach().double(), expected.detach().double()
    return float((found - expected).norm() / expected.norm().clamp_min(1e-30))


def check(
    mechanism: Mechanism, qkv: list[Tensor], mask: Mask | None, dtype: torch.dtype = torch.float32
) -> None:
    """Output and all gradients, against eager in float64 on the same numbers: as near as is allowed, or as eager itself is in this type."""
    inputs = [x.to(DEVICE, dtype).requires_grad_() for x in qkv]
    mechanism, exact = (
        mechanism.to(DEVICE, dtype),
        copy.deepcopy(mechanism).to(DEVICE, torch.float64),
    )
    wide = [x.detach().double().requires_grad_() for x in inputs]
    pull, results = torch.randn(*qkv[0].shape[:3], qkv[2].shape[3]).to(DEVICE, dtype), []
    for given, made, backend in (
        (inputs, mechanism, "triton"),
        (wide, exact, "eager"),
        (inputs, mechanism, "eager"),
    ):
        output = attend(*given, made, mask, backend=backend)
        results.append(
            (
                output,
                *torch.autograd.grad(output, [*given, *made.parameters()], pull.to(output.dtype)),
            )
        )
    assert results[0][0].dtype == dtype
    batch, heads, queries, _ = qkv[0].shape
    # a score so near to 0 that its sign is rounded away gains or loses its whole gradient: as much as two pairs that are seen may do so
    pairs = (
        (masks.full() if mask is None else mask)
        .dense(batch, heads, queries, qkv[1].shape[2])
        .expand(batch, heads, -1, -1)
        .sum()
    )
    flips = (
        2 / max(float(pairs), 1.0) ** 0.5
        if isinstance(mechanism.normalize, normalizers.Relu)
        else 0.0
    )
    for name, one, other, rounded in zip(
        ["output", "q", "k", "v", *dict(mechanism.named_parameters())], *results, strict=True
    ):
        assert one.isfinite().all(), name
        if other.norm() > 1e-6:  # nothing can be seen where nothing is allowed
            allowed = max(ALLOWED[dtype], distance(rounded, other), flips)
            assert distance(one, other) <= allowed, f"{name}: {distance(one, other):.1e}"


def some_sizes(name: str, number: int) -> tuple[list[Tensor], Mask | None]:
    """Random sizes, odd lengths, shared heads, padding up to texts without a key."""
    draw = random.Random(f"{name} {number}")
    heads, shared = draw.choice([(1, 1), (2, 1), (2, 2)])
    queries = draw.randint(1, 30 if name == "additive" else 70)
    causal = name in ("elu", "favor") or draw.random() < 0.5
    keys = queries + draw.randint(0, 40) if causal else draw.randint(1, 80)
    width, wide = draw.choice([(16, 16), (24, 40), (33, 16)])
    mask: Mask | None = masks.causal() if causal else None
    if draw.random() < 0.6:
        padding = masks.padding([draw.randint(1, keys), draw.choice([0, keys])])
        mask = padding if mask is None else mask & padding
    shapes = ((2, heads, queries, width), (2, shared, keys, width), (2, shared, keys, wide))
    return [torch.randn(shape) for shape in shapes], mask


@needs_kernels
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("number", range(3 if DEVICE.type == "cpu" else 12))
@pytest.mark.parametrize("name", FORMS)
def test_a_kernel_is_its_definition_on_random_sizes(
    name: str, number: int, dtype: torch.dtype
) -> None:
    qkv, mask = some_sizes(name, number)
    check(FORMS[name](qkv[0].shape[-1]), qkv, mask, dtype)


@needs_kernels
@pytest.mark.skipif(DEVICE.type == "cpu", reason="too slow in the interpreter")
@pytest.mark.parametrize("width", [16, 32, 64, 128, 256])
@pytest.mark.parametrize("name", FORMS)
def test_heads_of_every_width(name: str, width: int) -> None:
    torch.manual_seed(width)
    qkv = [torch.randn(2, 2, 300, width) for _ in range(3)]
    for dtype in DTYPES:
        if width < 256 or name not in ("elu", "favor"):
            check(FORMS[name](width), qkv, masks.causal(), dtype)


@needs_kernels
def test_a_long_text_in_several_segments_is_one_text() -> None:
    check(
        FORMS["elu"](16),
        [torch.randn(1, 1, n, 16) for n in (590, 600, 600)],
        masks.causal() & masks.padding([551]),
    )


@needs_kernels
@pytest.mark.parametrize("heads", [1, 2])
def test_additive_scores_over_several_chunks_of_queries(
    heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from saccade.core.kernels import additive

    monkeypatch.setattr(additive, "PAIRS", 64)
    mechanism = Mechanism(scores.Additive(6, 5, 16, heads))
    check(
        mechanism,
        [torch.randn(1, heads, 70, 6), torch.randn(1, 1, 72, 5), torch.randn(1, 1, 72, 8)],
        masks.causal(),
    )


@needs_kernels
def test_additive_scores_hold_where_exponentials_would_overflow() -> None:
    mechanism, q, k = (
        Mechanism(scores.Additive(4, 4, 16)),
        torch.randn(2, 1, 20, 4),
        torch.randn(2, 1, 20, 4),
    )
    with torch.no_grad():
        mechanism.score.w_q.copy_(torch.randn(1, 4, 16) * 60)
        mechanism.score.w_k.copy_(-mechanism.score.w_q)
    check(mechanism, [q, q + 0.01 * k, torch.randn(2, 1, 20, 16)], None)


@needs_kernels
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # the interpreter's
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["sparsemax", "entmax", "relu"])
def test_a_score_that_is_no_number_makes_its_row_none(name: str, bad: float) -> None:
    q, k, v = (torch.randn(1, 1, 20, 16, device=DEVICE, requires_grad=True) for _ in range(3))
    with torch.no_grad():
        q[0, 0, 7, 2] = bad
        k[0, 0, 3, 2] = k[0, 0, 4, 2] = 1.0
    results = []
    for backend in ("eager", "triton"):
        output = attend(q, k, v, FORMS[name](16).to(DEVICE), masks.causal(), backend=backend)
        results.append((output, *torch.autograd.grad(output.sum(), (q, k, v))))
    bad_rows = torch.arange(20, device=DEVICE) == 7
    if name != "relu" or bad != bad:  # of ∞, a ReLU has ∞ and 0
        assert results[1][0][0, 0, bad_rows].isnan().all()
        assert results[1][1][0, 0, bad_rows].isnan().all()
    torch.testing.assert_close(
        results[1][0][0, 0, ~bad_rows], results[0][0][0, 0, ~bad_rows], rtol=1e-3, atol=1e-4
    )


@needs_kernels
@pytest.mark.parametrize("name", ["sparsemax", "entmax"])
def test_large_and_equal_scores_have_a_threshold(name: str) -> None:
    check(
        FORMS[name](16),
        [torch.randn(1, 1, 9, 16) * 30, *(torch.randn(1, 1, 40, 16) for _ in range(2))],
        None,
    )
    q = torch.zeros(1, 1, 4, 16)
    found = (
        attend(q, q, torch.arange(64.0).view(1, 1, 4, 16), FORMS[name](16), backend="triton")
        if DEVICE.type == "cpu"
        else None
    )
    if found is not None:
        torch.testing.assert_close(
            found, torch.arange(64.0).view(1, 1, 4, 16).mean(2, keepdim=True).expand(1, 1, 4, 16)
        )


@needs_kernels
@pytest.mark.parametrize("name", ["sigmoid", "sparsemax", "additive", "elu"])
def test_operations_are_counted_as_those_of_the_definition(name: str) -> None:
    mechanism, counts = FORMS[name](16).to(DEVICE), {}
    for backend in ("triton", "linear" if name == "elu" else "eager"):
        q, k, v = (
            torch.randn(2, 1, 130 if name == "elu" else 30, 16, device=DEVICE, requires_grad=True)
            for _ in range(3)
        )
        with counter() as forward:
            output = attend(q, k, v, mechanism, masks.causal(), backend=backend)
        with counter() as backward:
            output.sum().backward()
        counts[backend] = (forward.get_total_flops(), backward.get_total_flops())
    one, other = counts.values()
    assert one[0] == other[0] > 0
    assert one[1] == pytest.approx(other[1], rel=0.2 if name == "elu" else 0)


class TwiceAdditive(scores.Additive):
    """Another comparison."""

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return 2 * super().compare(query, key)


class ShiftedRelu(normalizers.Relu):
    """Other rows."""

    def rows(self, scores: Tensor, hidden: Tensor | None) -> Tensor:
        return super().rows(scores - 1, hidden)


def hooked() -> normalizers.Normalizer:
    made = normalizers.Sigmoid()
    made.register_forward_hook(lambda module, given, found: 2 * found)
    return made


def projected() -> normalizers.Normalizer:
    made = normalizers.Sparsemax()
    made.project = normalizers.Entmax15().project  # type: ignore[method-assign]
    return made


def replaced() -> scores.Score:
    made = scores.Additive(4, 4, 5)
    made.compare = lambda query, key: query @ key.mT  # type: ignore[method-assign]
    return made


OWN: dict[str, Any] = {
    "a comparison": lambda: Mechanism(TwiceAdditive(4, 4, 5)),
    "a comparison on the object": lambda: Mechanism(replaced()),
    "rows": lambda: Mechanism(None, ShiftedRelu()),
    "a hook": lambda: Mechanism(None, hooked()),
    "a projection on the object": lambda: Mechanism(None, projected()),
}


@pytest.mark.parametrize("name", OWN)
def test_what_a_part_of_ones_own_changes_is_never_skipped(name: str) -> None:
    q = torch.randn(2, 1, 6, 4)
    with pytest.raises(SaccadeError, match="backend 'triton' refuses: "):
        attend(q, q, q, OWN[name](), backend="triton")


def test_a_projection_of_ones_own_in_an_additive_score_is_kept() -> None:
    class Doubled(scores.Additive):
        def query(self, q: Tensor) -> Tensor:
            return 2 * super().query(q)

    mechanism, q = Mechanism(Doubled(4, 4, 5)).to(DEVICE), torch.randn(2, 1, 6, 4, device=DEVICE)
    if kernels.available(DEVICE):
        expected = attend(q, q, q, mechanism, backend="eager")
        torch.testing.assert_close(
            attend(q, q, q, mechanism, backend="triton"), expected, rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize(
    ("mechanism", "mask", "reason"),
    [
        (Mechanism(None, normalizers.Relu()), masks.window(2), "is more than causal and padding"),
        (Mechanism(scores.EluKernel(), normalizers.Sum()), None, "is not causal"),
    ],
    ids=["window", "linear and not causal"],
)
def test_what_it_cannot_do_it_refuses_by_name(
    mechanism: Mechanism, mask: Mask | None, reason: str
) -> None:
    q = torch.randn(2, 1, 6, 4)
    verdict = next(one for one in which_backend(q, q, mechanism, mask) if one.backend == "triton")
    assert verdict.reason is not None
    assert reason in verdict.reason


def test_on_a_cpu_it_runs_only_in_the_interpreter_and_when_asked_for() -> None:
    q, mechanism = torch.randn(2, 1, 6, 4), Mechanism(None, normalizers.Sparsemax())
    found = which_backend(q, q, mechanism)
    assert found.chosen != "triton"
    if not kernels.available(torch.device("cpu")):
        with pytest.raises(
            SaccadeError, match=r"backend 'triton' refuses: .*; leave `backend` out"
        ):
            attend(q, q, q, mechanism, backend="triton")


@needs_kernels
def test_a_kernel_that_does_not_compile_is_replaced_and_the_next_call_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from saccade.core.kernels import pointwise_weights

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("PTXAS Error: too many registers")

    monkeypatch.setattr(pointwise_weights, "layout", fail)
    monkeypatch.setattr(backends.forms.Forms, "rank", lambda self, call: 1)
    monkeypatch.setattr(backends.forms, "backend", backends.forms.backend)
    monkeypatch.setattr(backends.forms.backend, "failed", {})
    monkeypatch.setattr(backends.forms.backend, "compiled", set())
    backends._chosen.clear()
    mechanism, q = Mechanism(None, normalizers.Sigmoid()), torch.randn(2, 1, 6, 7, device=DEVICE)
    expected = attend(q, q, q, mechanism, backend="eager")
    with pytest.warns(
        UserWarning,
        match="backend 'triton': its kernel does not compile here .*too many registers.*'eager' runs",
    ):
        torch.testing.assert_close(attend(q, q, q, mechanism), expected)
    torch.testing.assert_close(attend(q, q, q, mechanism), expected)  # without another warning
    backends._chosen.clear()


@needs_kernels
def test_a_mask_of_another_batch_is_named() -> None:
    q = torch.randn(2, 1, 6, 4, device=DEVICE)
    with pytest.raises(SaccadeError, match="made for a batch of 3, got a batch of 2"):
        attend(
            q, q, q, Mechanism(None, normalizers.Relu()), masks.padding([1, 2, 3]), backend="triton"
        )


@needs_kernels
def test_under_autocast_the_output_has_its_type() -> None:
    layer, q = nn.Linear(16, 16).to(DEVICE), torch.randn(2, 1, 20, 16, device=DEVICE)
    # NumPy has no bfloat16
    with torch.autocast(DEVICE.type, torch.bfloat16 if DEVICE.type == "cuda" else torch.float16):
        found = attend(
            layer(q), q, layer(q), Mechanism(None, normalizers.Sigmoid()), backend="triton"
        )
        expected = attend(
            layer(q), q, layer(q), Mechanism(None, normalizers.Sigmoid()), backend="eager"
        )
    assert found.dtype == expected.dtype
    assert distance(found, expected) < 2e-2
