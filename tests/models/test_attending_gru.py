"""Bahdanau's decoder as one function: outputs and gradients of the loop over steps, and the loop where somebody looks or changed a part."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from saccade import record
from saccade.building import Builder
from saccade.core import scores
from saccade.layers import attending_gru
from saccade.models.kinds import Seq2Seq

SOURCE = torch.randint(4, 30, (4, 7), generator=torch.Generator().manual_seed(0))
TARGET = torch.randint(4, 30, (4, 5), generator=torch.Generator().manual_seed(1))
LENGTHS = torch.tensor([7, 4, 1, 0])


def model(**more: Any) -> Any:
    torch.manual_seed(0)
    made = Builder({"family": "bahdanau", "dim": 6, "hidden": 8, "dropout": 0.0, **more}).make(Seq2Seq, 30, 30)
    return made.double()


def run(made: Any) -> list[Tensor]:
    made.zero_grad()
    output = made(SOURCE, LENGTHS, TARGET)
    (output * torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)).sum().backward()
    return [output.detach(), *(parameter.grad.clone() for parameter in made.parameters())]


def test_one_function_gives_what_the_steps_give(monkeypatch: pytest.MonkeyPatch) -> None:
    made, runs = model(), []
    plain = attending_gru.run_steps
    monkeypatch.setattr(attending_gru, "run_steps", lambda *given: (runs.append(1), plain(*given))[1])
    got = run(made)
    assert runs
    monkeypatch.setattr(attending_gru, "is_plain", lambda *_: False)
    for one, two in zip(got, run(made), strict=True):
        torch.testing.assert_close(one, two)


def test_steps_where_one_function_would_skip_something(monkeypatch: pytest.MonkeyPatch) -> None:
    class Shifted(scores.Additive):
        """A constant more, which a softmax does not see, and half of it."""

        def compare(self, query: Tensor, key: Tensor) -> Tensor:
            return super().compare(query, key) / 2

    def refuse(*_: Any) -> Any:
        raise AssertionError("these steps are not the paper's")

    monkeypatch.setattr(attending_gru, "run_steps", refuse)
    for more in ({"cell": "lstm"}, {"depth": 2}, {"gated_context": True}, {"normalize": "sparsemax"}, {"score": "bilinear"}):
        run(model(**more))
    changed = model()
    changed.decoder.cross.mechanism.score = Shifted(8, 16).double()
    run(changed)
    looked_at = model().eval()
    with torch.no_grad(), record(looked_at) as seen:
        looked_at(SOURCE, LENGTHS, TARGET)
    assert seen["decoder.cross"].weights().shape == (4, 1, 5, 7)


def test_under_autocast_it_computes_in_32_bits() -> None:
    made = model().float()
    with torch.autocast("cpu", torch.bfloat16):
        low = made(SOURCE, LENGTHS.clamp_min(1), TARGET)
    torch.testing.assert_close(low.float(), made(SOURCE, LENGTHS.clamp_min(1), TARGET), rtol=0.1, atol=0.05)
