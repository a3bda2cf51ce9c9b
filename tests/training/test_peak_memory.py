"""The peak of memory on a CPU: by how much the process grew, and never less than what every update holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from saccade.training import cost
from saccade.training.cost import PeakMemory, bytes_per_update


def trained(frozen: bool = False) -> torch.optim.AdamW:
    model = nn.Linear(30, 20)
    model.bias.requires_grad_(not frozen)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 30)).sum().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return optimizer


def test_what_an_update_holds_by_hand() -> None:
    assert bytes_per_update(torch.optim.AdamW(nn.Linear(30, 20).parameters())) == 4 * 2 * 620, (
        "no state before the first update"
    )
    assert bytes_per_update(trained()) == 4 * (4 * 620 + 2), (
        "parameters, gradients, two means, and a step each"
    )
    assert bytes_per_update(trained(frozen=True)) == 4 * (4 * 600 + 20 + 1)
    doubled = torch.optim.SGD(nn.Linear(30, 20).double().parameters())
    assert bytes_per_update(doubled) == 8 * 2 * 620


@pytest.mark.parametrize(
    "before", [0.0, 1e15], ids=["the system says nothing", "the process had more"]
)
def test_a_training_that_needs_no_new_memory_is_not_for_free(
    before: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "highest_memory", lambda: before)
    optimizer = trained()
    assert PeakMemory(torch.device("cpu")).read(optimizer) == {
        "peak_memory_process": bytes_per_update(optimizer)
    }


def test_a_process_that_grew_says_by_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    heights = iter([3e9, 5e9])
    monkeypatch.setattr(cost, "highest_memory", lambda: next(heights))
    assert PeakMemory(torch.device("cpu")).read(trained()) == {"peak_memory_process": 2e9}


def test_the_smallest_run_keeps_more_than_its_parameters(
    stage: Any, toy: Callable[..., Any]
) -> None:
    for name in ("first", "second"):  # the second finds what the first has freed
        training = stage.training(name, toy(), updates=2)
        ended = training.run()
        assert ended.costs["peak_memory_process"] >= bytes_per_update(training.update.optimizer) > 0
