"""Schedules by their formulas, the smoothed loss by hand, and one update: accumulated, clipped, in bf16, compiled."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from saccade.training import schedules
from saccade.training.cost import Cost, duration, measure
from saccade.training.distributed import Ranks
from saccade.training.loop import Watcher
from saccade.training.losses import Batch, batch_loss, token_loss


@pytest.mark.parametrize("warmup", [1, 4, 100])
def test_inverse_sqrt_is_the_paper_s_rate_over_its_peak(warmup: int) -> None:
    for update in (1, 2, 3, 4, 5, 99, 100, 101, 5000):
        # Vaswani et al. 2017, eq. 3, without dim^-0.5
        paper = min(update**-0.5, update * warmup**-1.5)
        assert schedules.inverse_sqrt(update, warmup, 9999) == pytest.approx(paper / warmup**-0.5)


def test_cosine_goes_up_in_a_line_and_down_half_a_cosine() -> None:
    assert [schedules.cosine(update, 4, 24) for update in (1, 2, 3, 4)] == pytest.approx(
        [0.25, 0.5, 0.75, 1.0]
    )
    for update in range(4, 25):
        expected = 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * (update - 4) / 20))
        assert schedules.cosine(update, 4, 24) == pytest.approx(expected)
    assert schedules.cosine(14, 4, 24) == pytest.approx(0.505)
    assert schedules.cosine(24, 4, 24) == schedules.cosine(99, 4, 24) == pytest.approx(0.01)


def test_constant_stays_level_after_its_warmup() -> None:
    assert [schedules.constant(update, 4, 9) for update in range(1, 8)] == [
        0.25,
        0.5,
        0.75,
        1,
        1,
        1,
        1,
    ]


@pytest.mark.parametrize("name", schedules.table.names())
@given(warmup=st.integers(0, 50), updates=st.integers(1, 80))
def test_every_schedule_stays_between_nothing_and_its_peak(
    name: str, warmup: int, updates: int
) -> None:
    factors = [schedules.table[name](update, warmup, updates) for update in range(1, updates + 1)]
    assert all(0 < factor <= 1 for factor in factors)
    up, down = factors[: max(warmup, 1)], factors[max(warmup, 1) - 1 :]
    assert up == sorted(up)
    assert down == sorted(down, reverse=True)
    if 1 <= warmup <= updates:
        assert factors[warmup - 1] == 1.0


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_the_smoothed_loss_is_the_sum_by_hand(smoothing: float) -> None:
    logits, target = torch.randn(3, 4, 7, dtype=torch.float64), torch.randint(1, 7, (3, 4))
    target[0, 2:] = 0  # padding
    log_p, by_hand = logits.log_softmax(-1), 0.0
    for b in range(3):
        for t in range(4):
            if target[b, t] != 0:
                wanted = log_p[b, t, target[b, t]]
                by_hand -= float((1 - smoothing) * wanted + smoothing * log_p[b, t].mean())
    assert float(token_loss(logits, target, 0, smoothing)) == pytest.approx(by_hand, rel=1e-6)
    reference = F.cross_entropy(
        logits.flatten(0, 1),
        target.flatten(),
        ignore_index=0,
        label_smoothing=smoothing,
        reduction="sum",
    )
    assert float(reference) == pytest.approx(by_hand, rel=1e-12)


def test_losses_of_parts_add_up_and_padding_has_no_gradient() -> None:
    logits, target = (
        torch.randn(5, 3, 6, requires_grad=True),
        torch.tensor([[1, 2, 3], [4, 5, 0], [1, 0, 0], [2, 2, 2], [5, 0, 0]]),
    )
    whole = token_loss(logits, target, 0, 0.1)
    parts = sum(token_loss(logits[n], target[n], 0, 0.1) for n in range(5))
    torch.testing.assert_close(whole, parts)
    whole.backward()
    assert logits.grad is not None
    assert bool((logits.grad.abs().sum(-1) > 0).eq(target != 0).all())


def test_bf16_logits_are_summed_in_float32() -> None:
    logits = torch.randn(64, 8, 50).bfloat16()
    target = torch.randint(1, 50, (64, 8))
    found = token_loss(logits, target, 0)
    assert found.dtype == torch.float32
    assert float(found) == pytest.approx(float(token_loss(logits.double(), target, 0)), rel=1e-5)


def whole_batch(
    stage: Any, toy: Callable[..., Any], name: str, **settings: Any
) -> dict[str, torch.Tensor]:
    """Parameters after two epochs without dropout; an update sees all examples, in batches of `size`."""
    training = stage.training(name, toy(size=settings.pop("size", 13)), updates=2, **settings)
    for module in training.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    training.run()
    return stage.tensors(name)


class Dropping(torch.nn.Module):
    """Answers with the rows of a table, another one each time a row is read: as if dropout had fallen otherwise."""

    def __init__(self, answers: torch.Tensor) -> None:
        super().__init__()
        self.answers = torch.nn.Parameter(answers)

    def forward(self, rows: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        return self.answers[: len(rows)] + shift.view(-1, 1, 1)


@pytest.mark.parametrize(
    ("smoothing", "agreement"), [(0.0, 0.0), (0.1, 0.0), (0.0, 2.0), (0.1, 5.0)]
)
def test_two_answers_are_drawn_together_by_hand(smoothing: float, agreement: float) -> None:
    answers, target = torch.randn(6, 2, 4), torch.randint(1, 4, (3, 2))
    target[1, 1] = 0  # padding: neither loss nor agreement there
    model = Dropping(answers)
    found = batch_loss(
        model, Batch((torch.arange(3), torch.zeros(3)), target, 0, 5, ()), smoothing, agreement
    )
    first, second = answers[:3].double(), answers[3:].double()
    if not agreement:
        torch.testing.assert_close(found, token_loss(first, target, 0, smoothing).float())
        return
    by_hand = (
        token_loss(first, target, 0, smoothing) + token_loss(second, target, 0, smoothing)
    ).item() / 2
    p, q = first.softmax(-1), second.softmax(-1)
    for b in range(3):
        for t in range(2):
            if target[b, t]:
                there = sum(float(p[b, t, k] * (p[b, t, k] / q[b, t, k]).log()) for k in range(4))
                back = sum(float(q[b, t, k] * (q[b, t, k] / p[b, t, k]).log()) for k in range(4))
                by_hand += agreement / 2 * (there + back) / 2
    assert found.item() == pytest.approx(by_hand, rel=1e-4)
    found.backward()
    assert model.answers.grad is not None
    assert bool((model.answers.grad[1, 1] == 0).all())


def test_accumulating_batches_equals_one_large_batch(stage: Any, toy: Callable[..., Any]) -> None:
    """13 examples as 4 + 4 + 4 + 1: every token counts the same, whatever batch it is in."""
    at_once = whole_batch(stage, toy, "at-once")
    bit_by_bit = whole_batch(stage, toy, "bit-by-bit", size=4, accumulate=4)
    for name, tensor in at_once.items():
        torch.testing.assert_close(bit_by_bit[name], tensor, rtol=1e-4, atol=1e-6)


class Norms(Watcher):
    """Keeps the gradient norms that were told, and those that the optimizer met."""

    def __init__(self) -> None:
        self.told: list[float] = []
        self.met: list[float] = []

    def update(self, at: Any, row: dict[str, float]) -> None:
        self.told.append(row["gradient_norm"])

    def listen(self, training: Any) -> None:
        def look(optimizer: torch.optim.Optimizer, *_: object) -> None:
            grads = [p.grad.flatten() for group in optimizer.param_groups for p in group["params"]]
            self.met.append(float(torch.cat(grads).norm()))

        training.update.optimizer.register_step_pre_hook(look)


@pytest.mark.parametrize("clip", [0.0, 0.05, 100.0])
def test_gradients_are_clipped_to_their_norm(stage: Any, clip: float) -> None:
    norms = Norms()
    training = stage.training("run", watcher=norms, clip=clip, updates=5)
    norms.listen(training)
    training.run()
    assert min(norms.told) > 0.05, "the norm that is told is the one before clipping"
    for told, met in zip(norms.told, norms.met, strict=True):
        assert met == pytest.approx(min(told, clip) if clip else told, rel=1e-4)


def test_the_learning_rate_follows_the_schedule(stage: Any) -> None:
    rates: list[float] = []
    training = stage.training("run", updates=6, learning_rate=0.2, schedule="cosine", warmup=3)
    training.update.optimizer.register_step_pre_hook(
        lambda optimizer, *_: rates.append(optimizer.param_groups[0]["lr"])
    )
    training.run()
    assert rates == pytest.approx([0.2 * schedules.cosine(update, 3, 6) for update in range(1, 7)])


def test_bf16_autocast_trains_nearly_alike_and_keeps_float32_parameters(stage: Any) -> None:
    dtypes = set()
    training = stage.training("bf16", precision="bf16")
    training.model[-1].register_forward_hook(
        lambda _module, _args, output: dtypes.add((training.model.training, output.dtype))
    )
    ended = training.run()
    plain = stage.training("float32")
    plain.run()
    assert (True, torch.bfloat16) in dtypes
    assert ended.best is not None
    assert math.isfinite(ended.best)
    before, after = stage.tensors("float32"), stage.tensors("bf16")
    assert all(tensor.dtype == torch.float32 for tensor in after.values())
    assert any(not torch.equal(before[name], after[name]) for name in before)
    for name in before:
        if name.startswith("model"):
            torch.testing.assert_close(after[name], before[name], rtol=0.2, atol=0.1)


@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=pytest.mark.slow)])
# inductor uses parts of torch that torch calls deprecated
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_model_trains_alike_and_is_saved_under_its_own_names(
    stage: Any, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    compiled = stage.training("compiled", updates=3, compile=True)
    for module in compiled.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0  # compiled code draws other random numbers
    plain = stage.training("plain", updates=3)
    plain.model[2].p = 0.0
    compiled.run()
    plain.run()
    a, b = stage.tensors("compiled"), stage.tensors("plain")
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=1e-4, atol=1e-5)


def test_the_cost_of_captured_updates_is_an_upper_bound() -> None:
    assert "about 90 s here" in str(Cost(1, 1.0, 1.0, 90))
    assert "at most 90 s here" in str(Cost(1, 1.0, 1.0, 90, at_most=True))


def test_the_cost_is_measured_without_a_move(stage: Any) -> None:
    model = stage.training("run").model
    before = [p.clone() for p in model.parameters()]
    cost = measure(model, lambda: model(torch.tensor([[1, 2, 3], [4, 5, 6]])).sum(), 50, 1, Ranks())
    assert all(
        torch.equal(p, q) and p.grad is None
        for p, q in zip(model.parameters(), before, strict=True)
    )
    assert cost.parameters == 11 * 6 + 18 * 5 + 5
    assert cost.flops_per_update == 3 * 2 * (2 * 18 * 5), (
        "2 rows, multiply and add, forward and twice backward"
    )
    assert cost.seconds_per_update > 0
    calm = replace(cost, seconds_per_update=1e-4, slowest=1e-4)  # whatever else the machine does
    assert (
        "about 0 s here: 161 parameters, 50 updates at most, 1.08e+03 FLOPs per update (5.40e+04 in all)"
        in str(calm)
    )


def test_the_cost_is_told_before_the_first_update_and_counts_accumulation(
    stage: Any, toy: Callable[..., Any]
) -> None:
    told: list[object] = []

    class Listener(Watcher):
        def cost(self, cost: Cost) -> None:
            told.append(cost)

        def update(self, at: Any, row: dict[str, float]) -> None:
            told.append(at.update)

    stage.training("one", toy(size=13), Listener(), updates=1).run()
    stage.training("three", toy(size=13), Listener(), updates=1, accumulate=3).run()
    first, update, second, _ = told
    assert isinstance(first, Cost)
    assert isinstance(second, Cost)
    assert update == 1
    assert second.flops_per_update == 3 * first.flops_per_update > 0


def test_seconds_are_spoken_in_the_fitting_unit() -> None:
    assert [duration(s) for s in (1, 90, 149, 150, 720, 12600, 181440)] == [
        "1 s",
        "90 s",
        "149 s",
        "2 min",
        "12 min",
        "3.5 h",
        "2.1 days",
    ]
