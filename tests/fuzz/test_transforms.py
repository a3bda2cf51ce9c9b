"""Random mechanisms under PyTorch's transforms: compile, export, vmap, jvp, double backward, trace.

`FUZZ_SEED=123 pytest tests/fuzz/test_transforms.py` runs one case alone, with its whole traceback.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from fuzz_helpers import ONLY, Case, draw_case, draw_parts, run_all, seeds
from torch import Tensor, nn
from torch.func import functional_call, jvp, stack_module_state, vmap

from saccade.core import attend, masks
from saccade.layers.multihead_attention import MultiHeadAttention

COMPILED, EXPORTED, TRACED = 12, 4, 60  # in `make test`; 20 times as many in `make test-all`
MAPPED, DOUBLED = 60, 60
quiet = pytest.mark.filterwarnings("ignore")  # PyTorch's compiler and tracer warn of themselves


def small(seed: int, **given: Any) -> Case:
    """A call of at most a dozen keys, at positions that `attend` chooses."""
    case = draw_case(seed, largest=12, dtypes=(torch.float64,), **given)
    if case.made.position.needs_relation:
        return case
    return (
        case
        if case.sizes[2] > case.sizes[3] and hasattr(case.made.position, "vectors")
        else replace(case, at=None)
    )


def call(case: Case, backend: str | None = None) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    return lambda q, k, v: attend(q, k, v, case.made, case.mask, case.at, backend=backend)


# --- compile ---


def draw_compiled(seed: int) -> Case:
    return replace(small(seed), seed=seed)


def check_compiled(case: Case, backend: str) -> None:
    torch._dynamo.reset()
    given = [x.contiguous().requires_grad_(case.grad) for x in (case.q, case.k, case.v)]
    found = torch.compile(call(case), backend=backend, fullgraph=True)(*given)
    expected = call(case)(*given)
    torch.testing.assert_close(found, expected)
    if case.grad and expected.requires_grad:
        pull = torch.randn_like(expected)
        pairs = (
            torch.autograd.grad(x, given, pull, materialize_grads=True) for x in (found, expected)
        )
        for one, other in zip(*pairs, strict=True):
            torch.testing.assert_close(one, other)


@quiet
@seeds(COMPILED, chunk=6)
def test_a_mechanism_is_one_graph_for_the_compiler(cases: range) -> None:
    run_all(
        cases,
        draw_compiled,
        lambda case: check_compiled(case, ("eager", "aot_eager")[case.seed % 2]),
    )
    torch._dynamo.reset()


@quiet
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(COMPILED) if ONLY is None else [int(ONLY)])
def test_inductor_compiles_a_mechanism(seed: int) -> None:
    run_all(range(seed, seed + 1), draw_compiled, lambda case: check_compiled(case, "inductor"))
    torch._dynamo.reset()


# --- export ---


class Layer(nn.Module):
    """Self-attention under a mask that knows no length."""

    def __init__(self, layer: MultiHeadAttention, mask: masks.Mask | None) -> None:
        super().__init__()
        self.layer, self.mask = layer, mask

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x, None, self.mask)


@dataclass(frozen=True)
class Exported:
    layer: Layer
    parts: tuple[str, ...]

    def __str__(self) -> str:
        return f"{' × '.join(self.parts)}, mask {self.layer.mask!r}"


def draw_exported(seed: int) -> Exported:
    draw = random.Random(seed)
    while True:
        made, parts = draw_parts(draw, 2, (8, 8, 8))
        if not made.position.needs_relation and getattr(made.position, "vectors", None) is None:
            break
    mask = draw.choice(
        [None, masks.causal(), masks.window(5, 2), masks.causal() & masks.window(300)]
    )
    layer = MultiHeadAttention(12, 2, mechanism=made, head_width=8).eval()
    return Exported(Layer(layer, mask), parts)


def check_exported(drawn: Exported) -> None:
    """Once for one length, and once for all lengths up to 4,096."""
    layer = drawn.layer
    x = torch.randn(2, 9, 12)
    torch.testing.assert_close(torch.export.export(layer, (x,)).module()(x), layer(x))
    length = torch.export.Dim("length", min=4, max=4096)
    exported = torch.export.export(layer, (x,), dynamic_shapes={"x": {1: length}}).module()
    for size in (9, 4, 40, 600):
        x = torch.randn(2, size, 12)
        torch.testing.assert_close(exported(x), layer(x), rtol=1e-4, atol=1e-5)


@quiet
@seeds(EXPORTED, chunk=2)
@torch.no_grad()
def test_a_layer_is_exported_for_one_length_and_for_all(cases: range) -> None:
    run_all(cases, draw_exported, check_exported)


# --- trace ---


def check_traced(case: Case) -> None:
    given = [x.contiguous() for x in (case.q, case.k, case.v)]
    traced = torch.jit.trace(Attending(case, None), tuple(given), check_trace=False)
    other = [torch.randn_like(x) for x in given]
    torch.testing.assert_close(traced(*other), call(case)(*other))


@quiet
@seeds(TRACED, chunk=60)
@torch.no_grad()
def test_a_mechanism_is_traced(cases: range) -> None:
    run_all(cases, draw_compiled, check_traced)


# --- vmap ---


def draw_mapped(seed: int) -> Case:
    """A mask without rows of a batch, since `vmap` hides the batch."""
    draw, case = random.Random(-seed), small(seed)
    choices = [None, masks.full(), masks.matrix(torch.rand(case.sizes[2:]) < 0.6)]
    if case.sizes[2] <= case.sizes[3]:
        choices += [
            masks.causal(),
            masks.window(3, 1),
            masks.top_blocks(2, 1),
            masks.causal() & masks.window(2),
        ]
    case.made.mask = masks.full()
    at = case.at
    if at is not None:
        relation = None if at.relation is None else at.relation[:1]
        at = replace(
            at,
            i=at.i if at.i.dim() == 1 else at.i[0],
            j=at.j if at.j.dim() == 1 else at.j[0],
            relation=relation,
            kept={},
        )
    return replace(case, mask=draw.choice(choices), at=at)


def check_mapped(case: Case) -> None:
    """Over rows of data, over sets of parameters, and the gradients of each row by itself."""
    given = case.q, case.k, case.v
    alone = lambda q, k, v: call(case, "eager")(q[None], k[None], v[None])[0]
    expected = torch.stack([alone(*row) for row in zip(*given, strict=True)])
    torch.testing.assert_close(vmap(alone)(*given), expected)
    gradients = torch.func.grad(lambda *row: alone(*row).square().sum(), (0, 1, 2))
    rows = [gradients(*row) for row in zip(*given, strict=True)]
    for one, other in zip(vmap(gradients)(*given), zip(*rows, strict=True), strict=True):
        torch.testing.assert_close(one, torch.stack(other))
    several = [copy.deepcopy(case.made) for _ in range(3)]
    if not any(True for _ in case.made.parameters()):
        return
    with torch.no_grad():
        for made in several:
            for parameter in made.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
    parameters, buffers = stack_module_state(several)  # type: ignore[arg-type]
    inner = Attending(case, "eager")
    run_one = lambda p, b: functional_call(
        inner, {f"made.{n}": x for n, x in {**p, **b}.items()}, given
    )
    with torch.no_grad():
        found = vmap(run_one)(parameters, buffers)
        for one, made in zip(found, several, strict=True):
            torch.testing.assert_close(
                one, attend(*given, made, case.mask, case.at, backend="eager")
            )


class Attending(nn.Module):
    """One call as a module, so that its parameters can be given."""

    def __init__(self, case: Case, backend: str | None) -> None:
        super().__init__()
        self.made, self.case, self.backend = copy.deepcopy(case.made), case, backend

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(q, k, v, self.made, self.case.mask, self.case.at, backend=self.backend)


@quiet
@seeds(MAPPED, chunk=30)
def test_vmap_over_rows_and_over_parameters_is_the_loop(cases: range) -> None:
    run_all(cases, draw_mapped, check_mapped)


# --- derivatives ---


def tiny(seed: int) -> Case:
    """A call with so few numbers that each derivative can be found by differences."""
    return draw_case(seed, largest=4, dtypes=(torch.float64,), widest=6)


def check_jvp(case: Case) -> None:
    """⟨J t, u⟩ = ⟨t, Jᵀ u⟩"""
    given = tuple(x.contiguous() for x in (case.q, case.k, case.v))
    tangents = tuple(torch.randn_like(x) for x in given)
    output, forward = jvp(call(case, "eager"), given, tangents)
    pull = torch.randn_like(output)
    back = run_back(case, given, pull)
    torch.testing.assert_close(
        (forward * pull).sum(), sum((t * g).sum() for t, g in zip(tangents, back, strict=True))
    )


def run_back(case: Case, given: tuple[Tensor, ...], pull: Tensor) -> tuple[Tensor, ...]:
    inputs = [x.detach().requires_grad_() for x in given]
    return torch.autograd.grad(call(case, "eager")(*inputs), inputs, pull, materialize_grads=True)


def check_double(case: Case) -> None:
    """The second derivative in one random direction of q, k, v and all parameters is the difference of first ones along it."""
    given = [x.contiguous().requires_grad_() for x in (case.q, case.k, case.v)]
    inputs = [*given, *case.made.parameters()]
    along = [torch.randn_like(x) for x in inputs]
    pull = torch.randn(*case.q.shape[:3], case.v.shape[3]).double()

    def first(create_graph: bool = False) -> list[Tensor]:
        work = (call(case, "eager")(*given) * pull).sum()
        return list(
            torch.autograd.grad(work, inputs, create_graph=create_graph, materialize_grads=True)
        )

    def moved(by: float) -> list[Tensor]:
        with torch.no_grad():
            for x, t in zip(inputs, along, strict=True):
                x.add_(t, alpha=by)
        return first()

    slope = sum((x * t).sum() for x, t in zip(first(True), along, strict=True))
    assert isinstance(slope, Tensor)
    found = (
        torch.autograd.grad(slope, inputs, materialize_grads=True)
        if slope.requires_grad
        else [x * 0 for x in inputs]
    )
    step = 1e-6
    for one, high, low in zip(found, moved(step), moved(-2 * step), strict=True):
        torch.testing.assert_close(one, (high - low) / (2 * step), rtol=1e-3, atol=1e-5)


@quiet
@seeds(DOUBLED, chunk=30)
def test_derivatives_forward_are_those_backward(cases: range) -> None:
    run_all(cases, tiny, check_jvp)


@quiet
@seeds(DOUBLED, chunk=30)
def test_second_derivatives_are_differences_of_first_ones(cases: range) -> None:
    run_all(cases, tiny, check_double)
