"""The kernels of a GRU that attends, against its definition step by step in float64, forward and backward, over shapes drawn at random."""

from __future__ import annotations

import random
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from test_flash_kernels import DEVICE, difference, runs
from torch import Tensor

from saccade.core.backends.call import CannotCompile
from saccade.layers.fast import attending_gru
from saccade.models.builder import Builder
from saccade.models.protocols import Seq2Seq
from saccade.training.flops import counter

MOST = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 5e-3}
# K, V and matrices, which products take in their type: what is compared is what is computed with them
ROUNDED = (2, 3, 6, 8)
Given = tuple[list[Tensor], Tensor | None]


def by_definition(x: Tensor, state: Tensor, key: Tensor, value: Tensor, added: Tensor, v: Tensor, joint: Tensor, bias: Tensor,
                  w_c: Tensor, read: Tensor | None) -> tuple[Tensor, Tensor]:  # fmt: skip
    """With PyTorch's gradients."""
    width, states, contexts = len(v), [], []
    for t, projected in enumerate(x):
        query, *inner = (state @ joint + bias).split([width, *[state.shape[1]] * 3], 1)
        weights = ((key + query[:, None]).tanh() @ v + added).softmax(-1)
        contexts.append((weights[:, :, None] * value).sum(1))
        seen = contexts[-1] if read is None else contexts[-1] * read[t]
        outer = (projected + seen @ w_c.t()).chunk(3, 1)
        reset, update = (outer[0] + inner[0]).sigmoid(), (outer[1] + inner[1]).sigmoid()
        state = (1 - update) * (outer[2] + reset * inner[2]).tanh() + update * state
        states.append(state)
    return torch.stack(states), torch.stack(contexts)


def draw(
    batch: int, steps: int, positions: int, hidden: int, a: int, m: int, dropped: bool
) -> Given:
    """Of four rows in turn one is whole, one half, one has a single position, and one has none."""
    lengths = torch.tensor([(positions, positions // 2 + 1, 1, 0)[row % 4] for row in range(batch)])
    allowed = torch.arange(positions) < lengths[:, None]
    added = torch.zeros(batch, positions).masked_fill(~allowed, torch.finfo(torch.float32).min)
    value = torch.randn(batch, positions, m) * allowed.any(-1).view(-1, 1, 1)
    x = torch.randn(batch, steps, 3 * hidden).transpose(0, 1)
    joint, w_c = (
        torch.randn(hidden, a + 3 * hidden) / hidden**0.5,
        torch.randn(3 * hidden, m) / m**0.5,
    )
    rest = [2 * torch.randn(a) / a**0.5, joint, torch.randn(a + 3 * hidden) / 5, w_c]
    given = [
        x,
        torch.randn(batch, hidden).tanh(),
        torch.randn(batch, positions, a),
        value,
        added,
        *rest,
    ]
    read = (
        (torch.rand(batch, steps, 1) > 0.4).float().to(DEVICE).transpose(0, 1) if dropped else None
    )
    return [one.to(DEVICE) for one in given], read


def shapes(count: int) -> list[tuple[Any, ...]]:
    some = random.Random(4)
    return [
        (
            *(
                some.randint(least, most)
                for least, most in ((1, 5), (1, 4), (1, 40), (1, 33), (1, 40), (1, 70))
            ),
            some.random() < 0.5,
        )
        for _ in range(count)
    ]


SHAPES = [
    (4, 3, 7, 8, 8, 16, False),
    (5, 2, 33, 6, 11, 5, True),
    (2, 2, 9, 300, 70, 20, True),
    (4, 2, 5, 3, 17, 600, False),
]


def results(found: tuple[Tensor, Tensor] | None, inputs: list[Tensor]) -> list[Tensor]:
    """Outputs, and the gradients of all inputs but what is added to scores; nothing of nothing."""
    if found is None:
        return []
    state = torch.random.get_rng_state()
    torch.manual_seed(1)
    pulls = [torch.randn(one.shape).to(one) for one in found]
    torch.random.set_rng_state(state)
    return [
        *found,
        *torch.autograd.grad(found, [one for one in inputs if one.requires_grad], pulls),
    ]


def ready(given: list[Tensor], kind: torch.dtype) -> list[Tensor]:
    return [one.to(kind).requires_grad_(n != 4) for n, one in enumerate(given)]


@runs
@pytest.mark.parametrize("kind", MOST, ids=str)
@pytest.mark.parametrize("shape", [*SHAPES, *shapes(4)], ids=str)
def test_kernels_give_the_outputs_and_gradients_of_the_definition(
    shape: tuple[Any, ...], kind: torch.dtype
) -> None:
    from saccade.layers.fast import fused_gru

    torch.manual_seed(sum(shape))
    given, read = draw(*shape)
    given = [one.to(kind).float() if n in ROUNDED else one for n, one in enumerate(given)]
    exact, inputs = ready(given, torch.float64), ready(given, torch.float32)
    wanted = results(by_definition(*exact, None if read is None else read.double()), exact)
    found = fused_gru.run(tuple(inputs), read, kind)
    assert found is not None
    for one, two in zip(results(found, inputs), wanted, strict=True):
        assert one.dtype == torch.float32
        assert difference(one, two) < MOST[kind] or float(two.norm()) < 1e-12


@runs
def test_gradients_that_are_one_number_for_all_and_inputs_of_16_bits() -> None:
    from saccade.layers.fast import fused_gru

    torch.manual_seed(0)
    given, read = draw(3, 2, 6, 8, 8, 16, True)
    inputs = [one.bfloat16() if n in (0, 2, 3) else one for n, one in enumerate(given)]
    inputs = [one.requires_grad_(n != 4) for n, one in enumerate(inputs)]
    exact = [one.detach().double().requires_grad_(one.requires_grad) for one in inputs]
    assert read is not None
    for run, those in (
        (fused_gru.run(tuple(inputs), read, torch.bfloat16), inputs),
        (by_definition(*exact, read.double()), exact),
    ):
        assert run is not None
        (run[0].sum() + run[1].sum()).backward()
        assert all(
            one.grad.dtype == one.dtype
            for one in those
            if one.requires_grad and one.grad is not None
        )
    for one, two in zip(inputs, exact, strict=True):
        if one.requires_grad:
            assert one.grad is not None
            assert two.grad is not None
            assert difference(one.grad, two.grad) < 1e-2


@runs
@pytest.mark.parametrize("where", ["attend", "advance_back"])
def test_without_a_kernel_that_does_not_compile(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from saccade.layers.fast import fused_gru

    def refuse(*_: Any) -> None:
        raise CannotCompile("no such instruction")

    torch.manual_seed(0)
    given, _ = draw(4, 3, 7, 8, 8, 16, False)
    inputs, plain = ready(given, torch.float32), ready(given, torch.float32)
    wanted = results(attending_gru.AttendingGru.apply(*plain, None), plain)
    monkeypatch.setattr(fused_gru, "failed", set())
    monkeypatch.setattr(fused_gru, where, refuse)
    with pytest.warns(
        UserWarning, match=r"does not compile here \(no such instruction\); continuing without"
    ):
        found = results(fused_gru.run(tuple(inputs), None, torch.float32), inputs)
    for one, two in zip(found, wanted if where == "advance_back" else [], strict=True):
        assert difference(one, two.double()) < 1e-5
    assert fused_gru.run(tuple(inputs), None, torch.float32) is None, "it is not tried again"


def model(dropped: float = 0.0) -> Any:
    torch.manual_seed(0)
    return (
        Builder(
            {
                "family": "bahdanau",
                "dim": 6,
                "hidden": 8,
                "dropout": 0.0,
                "context_dropout": dropped,
            }
        )
        .make(Seq2Seq, 30, 30)
        .to(DEVICE)
    )


def run_model(made: Any, low: bool) -> list[Tensor]:
    source, target = (torch.arange(4 * n, device=DEVICE).view(4, n) % 26 + 4 for n in (7, 5))
    made.zero_grad()
    torch.manual_seed(1)
    with torch.autocast(DEVICE.type, torch.bfloat16) if low else nullcontext():
        output = made(source, torch.tensor([7, 4, 1, 3], device=DEVICE), target)
    (output * torch.linspace(-1, 1, output.numel(), device=DEVICE).view_as(output)).sum().backward()
    return [output.detach(), *(parameter.grad.clone() for parameter in made.parameters())]


@runs
@pytest.mark.parametrize("low", [False, True])
@pytest.mark.parametrize("dropped", [0.0, 0.5])
def test_a_model_runs_on_them_and_learns_the_same(
    low: bool, dropped: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    from saccade.layers.fast import fused_gru

    made, kinds, plain = model(dropped), [], fused_gru.run
    monkeypatch.setattr(fused_gru, "run", lambda *given: (kinds.append(given[2]), plain(*given))[1])
    found = run_model(made, low)
    assert kinds == [torch.bfloat16 if low else torch.float32]
    monkeypatch.setattr(attending_gru, "available", lambda _: False)
    wanted = run_model(made, low)
    assert len(kinds) == 1
    for one, two in zip(found, wanted, strict=True):
        assert difference(one, two.double()) < (3e-2 if low else 1e-4) or float(two.norm()) < 1e-6


@runs
def test_operations_are_counted_as_those_of_the_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    made, counts = model(), []
    for _ in range(2):
        with counter() as counted:
            run_model(made, False)
        counts.append(counted.get_total_flops())
        monkeypatch.setattr(attending_gru, "available", lambda _: False)
    assert counts[0] == counts[1] > 0


@runs
def test_double_precision_stays_double() -> None:
    made = model().double()
    assert run_model(made, False)[0].dtype == torch.float64
