"""Encoders and language models on a GPU against themselves on a CPU, dropped weights under cuDNN too; skipped where there is no GPU."""

from __future__ import annotations

import copy

import pytest
import torch
from model_helpers import make
from torch.nn import functional as F

from saccade import models
from saccade.layers.dropouts import WeightDropped
from saccade.layers.recurrent import cells
from saccade.models import CarryingLM, Encoder, Seq2Seq
from saccade.models.builder import Builder

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here"),
    # the compiler's, once per process
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
]
ENCODERS = [entry.name for entry in models.table if entry.make.build(Encoder) is not None]


@pytest.mark.parametrize("cell", cells.names())
def test_dropped_weights_under_cudnn(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here, x = WeightDropped(cells[cell], 8, 16, 0.5), torch.randn(3, 7, 8)
    there = copy.deepcopy(here).cuda()
    keep = torch.rand(here.parameter("weight_hh_l0").shape) < 0.5
    monkeypatch.setattr(
        F, "dropout", lambda weight, share: weight * keep.to(weight.device) / (1 - share)
    )
    found, expected = there(x.cuda())[0], here(x)[0]
    # cuDNN multiplies in TF32
    torch.testing.assert_close(found.cpu(), expected, rtol=2e-2, atol=2e-3)
    found.square().sum().backward()
    expected.square().sum().backward()
    for one, other in zip(there.parameters(), here.parameters(), strict=True):
        torch.testing.assert_close(one.grad.cpu(), other.grad, rtol=1e-2, atol=1e-3)
    copy.deepcopy(there).cuda().eval()(x.cuda())  # moved, its weights are in one piece again


@pytest.mark.parametrize("family", ENCODERS)
def test_an_encoder_is_the_same_on_a_gpu(family: str) -> None:
    body = Builder({"family": family, "dim": 64}).make(Encoder, 50).eval()
    tokens, lengths = torch.randint(4, 50, (3, 9)), torch.tensor([9, 4, 1])
    here = body(tokens, lengths)
    there = body.cuda()(tokens.cuda(), lengths.cuda())
    for b, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(there[b, :length].cpu(), here[b, :length], rtol=1e-2, atol=1e-3)


def test_a_language_model_trains_under_autocast() -> None:
    model = Builder({"family": "rnn-decoder", "dim": 32, "hidden": 48}).make(CarryingLM, 50).cuda()
    tokens = torch.randint(4, 50, (3, 9), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        logits, state = model.forward_from(
            tokens, model.start(tokens[:, :0], torch.zeros(3).long())
        )
        logits, _ = model.forward_from(tokens, state)
    F.cross_entropy(logits.float().flatten(0, 1), tokens.flatten()).backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize(
    "changed",
    [
        {"feedforward": {"name": "experts", "top": 2}},
        {"mixer": "light-convolution"},
        {"head": "mixture", "stack": "shared"},
    ],
    ids=str,
)
def test_slots_train_under_autocast_and_step_as_on_a_cpu(changed: dict[str, object]) -> None:
    model = make(Seq2Seq, "transformer", dim=32, hidden=48, **changed)
    there, source, target = (
        copy.deepcopy(model).cuda(),
        torch.randint(0, 13, (3, 9)),
        torch.randint(0, 13, (3, 7)),
    )
    lengths = torch.tensor([9, 4, 1])
    found = there(source.cuda(), lengths.cuda(), target.cuda())
    torch.testing.assert_close(found.cpu(), model(source, lengths, target), rtol=1e-2, atol=1e-3)
    there.train()
    with torch.autocast("cuda", torch.bfloat16):
        logits = there(source.cuda(), lengths.cuda(), target.cuda())
    F.cross_entropy(logits.float().flatten(0, 1), target.cuda().flatten()).backward()
    assert all(parameter.grad.isfinite().all() for parameter in there.parameters())
