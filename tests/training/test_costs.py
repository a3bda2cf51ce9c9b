"""Costs that layers leave besides their output join the loss: by hand, accumulated, read twice, compiled, cast, on two ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from launcher import Launcher
from test_distributed import assert_same, parameters
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.core.auxiliary_losses import add_loss
from saccade.training.losses import Batch, batch_loss
from saccade.training.update_capture import LowPrecision

KINDS = ("row", "scalar")


class Costly(nn.Module):
    """Logits for each of 3 tokens; leaves a cost for each row, a scalar for the batch, or both. `noise` stands for dropout: it depends
    on where a row is in the batch."""

    def __init__(self, kinds: Sequence[str], noise: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.kinds, self.noise = kinds, noise
        self.embedding, self.gate, self.head = nn.Embedding(11, 6), nn.Linear(6, 6), nn.Linear(6, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) * (
            1 + self.noise * torch.arange(len(tokens), device=tokens.device).view(-1, 1, 1)
        )
        gate = self.gate(x)
        if "row" in self.kinds:
            x = add_loss(x, "row", row_cost(gate))
        if "scalar" in self.kinds:
            x = add_loss(x, "scalar", scalar_cost(gate))
        return self.head(x * gate.sigmoid())


def row_cost(gate: Tensor) -> Tensor:
    return gate.square().mean((1, 2))


def scalar_cost(gate: Tensor) -> Tensor:
    return 3 * gate.mean().square()


def example() -> Batch:
    target = torch.tensor([[1, 2, 3], [4, 0, 0], [3, 1, 0], [2, 2, 2]])
    return Batch((torch.randint(0, 11, (4, 3)),), target, 0, 9, [1, 2, 3, 4])


def part(batch: Batch, rows: slice) -> Batch:
    target = batch.target[rows]
    return Batch((batch.inputs[0][rows],), target, 0, int((target != 0).sum()), batch.lines[rows])


def by_hand(model: Costly, batch: Batch, agreement: float = 0.0) -> Tensor:
    """In float64, token by token; with an agreement the batch is read as rows 0 to 3 and again as rows 4 to 7."""
    repeats = 2 if agreement else 1
    rows = batch.inputs[0].repeat(repeats, 1)
    x = model.embedding.weight[rows] * (1 + model.noise * torch.arange(len(rows)).view(-1, 1, 1))
    gate = x @ model.gate.weight.T + model.gate.bias
    log_p = ((x * gate.sigmoid()) @ model.head.weight.T + model.head.bias).log_softmax(-1)
    total = torch.zeros((), dtype=torch.float64)
    for b, wanted in enumerate(batch.target.tolist() * repeats):
        for n, token in enumerate(wanted):
            if token:
                total = total - log_p[b, n, token] / repeats
                if "row" in model.kinds:
                    total = total + row_cost(gate)[b] / repeats
                if "scalar" in model.kinds:
                    total = total + scalar_cost(gate) / repeats
                if agreement and b < 4:
                    p, q = log_p[b, n], log_p[b + 4, n]
                    total = total + agreement / 4 * ((p.exp() - q.exp()) * (p - q)).sum()
    return total


def gradients(loss: Tensor, model: nn.Module) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(model.parameters())))


def assert_alike(
    one: tuple[Tensor, list[Tensor]], other: tuple[Tensor, list[Tensor]], exact: bool = False
) -> None:
    how = {"rtol": 0.0, "atol": 0.0} if exact else {"rtol": 1e-5, "atol": 1e-6}
    for a, b in zip((one[0], *one[1]), (other[0], *other[1]), strict=True):
        torch.testing.assert_close(a, b, check_dtype=False, **how)


@pytest.mark.parametrize("agreement", [0.0, 2.0])
@pytest.mark.parametrize("kinds", [KINDS[:1], KINDS[1:], KINDS], ids=str)
def test_costs_are_counted_once_per_token_by_hand(kinds: Sequence[str], agreement: float) -> None:
    model, batch = Costly(kinds, noise=0.1).double(), example()
    found, expected = batch_loss(model, batch, 0.0, agreement), by_hand(model, batch, agreement)
    assert_alike((found, gradients(found, model)), (expected, gradients(expected, model)))
    plain = batch_loss(Costly(()).double(), batch, 0.0, agreement)
    assert found.item() > plain.item() + 0.1, "the costs are a part of it"


def test_costs_of_rows_add_up_over_batches_and_a_scalar_is_weighted_by_tokens() -> None:
    batch = example()
    parts = [part(batch, slice(0, 1)), part(batch, slice(1, 4))]
    model = Costly(("row",)).double()
    whole, apart = (
        batch_loss(model, batch),
        sum((batch_loss(model, one) for one in parts), torch.zeros(())),
    )
    assert_alike((whole, gradients(whole, model)), (apart, gradients(apart, model)))
    both = Costly(KINDS).double()
    apart = sum((batch_loss(both, one) - batch_loss(model, one) for one in parts), torch.zeros(()))
    costs = [scalar_cost(both.gate(both.embedding(one.inputs[0]))) * one.tokens for one in parts]
    assert apart.item() == pytest.approx(sum(cost.item() for cost in costs), rel=1e-4), (
        "the difference of two losses in float32"
    )


def test_labels_of_whole_rows_have_costs_too() -> None:
    model = Costly(("row",)).double()
    labels = Batch((torch.randint(0, 11, (4, 1)),), torch.tensor([[1], [0], [2], [3]]), 0, 3, ())
    flat = Batch(labels.inputs, labels.target.flatten(), 0, 3, ())
    squeezed = nn.Sequential(model, nn.Flatten())
    torch.testing.assert_close(batch_loss(squeezed, flat), batch_loss(model, labels))


@pytest.mark.parametrize(
    "backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
)
# torch.compile makes an autograd function in a way that torch deprecates
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_costs_leave_a_compiled_model(backend: str) -> None:
    model, batch = Costly(KINDS), example()
    compiled = torch.compile(model, backend=backend)
    expected = batch_loss(model, batch)
    for _ in range(2):
        found = batch_loss(compiled, batch)  # type: ignore[arg-type]
        assert_alike(
            (found, gradients(found, model)), (expected, gradients(batch_loss(model, batch), model))
        )


def test_costs_leave_a_model_whose_matrices_are_cast() -> None:
    model, batch = Costly(KINDS), example()
    answers = []
    for call in (model, LowPrecision(model, torch.bfloat16)):
        with torch.autocast("cpu", torch.bfloat16):
            loss = batch_loss(call, batch)
        answers.append((loss, gradients(loss, model)))
    assert_alike(*answers, exact=True)


def test_accumulated_batches_with_costs_train_as_one(
    stage: Any, toy: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.model = lambda: Costly(("row",))
    monkeypatch.setattr(
        toy,
        "batch",
        lambda self, plan: Batch(
            (self.x[plan],), self.y[plan].view(-1, 1) + 0 * self.x[plan], -1, 3 * len(plan), []
        ),
    )
    monkeypatch.setattr(toy, "loss", lambda self, model, batch: batch_loss(model, batch))
    monkeypatch.setattr(
        toy,
        "evaluate",
        lambda self, model: {"loss": float(F.cross_entropy(model(self.x).mean(1), self.y))},
    )
    stage.training("at-once", toy(size=13), updates=2).run()
    stage.training("bit-by-bit", toy(size=4), updates=2, accumulate=4).run()
    a, b = stage.tensors("at-once"), stage.tensors("bit-by-bit")
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
@pytest.mark.slow
def test_two_ranks_with_costs_train_as_one(
    launcher: Launcher, tmp_path: Path, parallel: str
) -> None:
    """Each block, which FSDP gathers by itself, leaves a cost for each row."""
    alone = launcher.root / "costs"
    if not alone.exists():
        assert launcher(alone, count=1, prank="costs").codes == [0]
        without = parameters(launcher.alone("training.accumulate=1") / "last")
        assert any(
            float((tensor - without[name]).abs().max()) > 0.01
            for name, tensor in parameters(alone / "last").items()
        )
    ended = launcher(tmp_path / "run", f"training.parallel={parallel}", prank="costs")
    assert ended.codes == [0, 0], ended.err
    # the costs are large, and Adam divides by small gradients
    assert_same(alone, tmp_path / "run", atol=2e-5)
