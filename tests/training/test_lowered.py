"""Matrices brought to 16 bits all at once give what autocast gives, number for number, forward and backward."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from saccade.config import recipes
from saccade.models.protocols import Seq2Seq
from saccade.training.update_capture import LowPrecision, matrices


def built(**more: Any) -> nn.Module:
    torch.manual_seed(0)
    sizes = {"dim": 16, "hidden": 32, "depth": 2, "heads": 2, "dropout": 0.0}
    return recipes.Builder({"family": "transformer", **sizes, **more}).make(Seq2Seq, 30, 30)


@pytest.mark.parametrize(
    "more",
    [{}, {"shared": True}, {"tied": False}, {"position": "rotary", "position_embedding": "none"}],
    ids=str,
)
def test_it_is_autocast_number_for_number(more: dict[str, Any]) -> None:
    plain = built(**more)
    other = copy.deepcopy(plain)
    source, lengths, target = (
        torch.randint(4, 30, (3, 7)),
        torch.tensor([7, 4, 1]),
        torch.randint(4, 30, (3, 5)),
    )
    answers = []
    for model, call in ((plain, plain), (other, LowPrecision(other, torch.bfloat16))):
        with torch.autocast("cpu", torch.bfloat16):
            answer = call(source, lengths, target)
        answer.float().square().sum().backward()
        answers.append((answer, [parameter.grad for parameter in model.parameters()]))
    torch.testing.assert_close(answers[1][0], answers[0][0], rtol=0, atol=0)
    for one, two in zip(answers[1][1], answers[0][1], strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=0)


def test_only_what_multiplies_alone_is_brought_down() -> None:
    model = built(shared=True)
    names = set(matrices(model))
    assert "source.tokens.weight" not in names, "the embedding is the output's matrix too"
    assert not [name for name in names if "norm" in name]
    assert len(names) > 20
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    assert set(matrices(tied)) == {"0.bias", "1.bias"}


def test_the_model_is_as_it_was_afterwards() -> None:
    model = built()
    before = dict(model.named_parameters())
    with torch.autocast("cpu", torch.bfloat16):
        LowPrecision(model, torch.bfloat16)(
            torch.ones(1, 3).long(), torch.tensor([3]), torch.ones(1, 2).long()
        )
    assert all(parameter is before[name] for name, parameter in model.named_parameters())
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
