"""Bodies and language models on a GPU against themselves on a CPU, dropped weights under cuDNN too; skipped where there is no GPU."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn import functional as F

from saccade import config, models
from saccade.layers.dropouts import WeightDropped
from saccade.layers.recurrent import cells

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
BODIES = [entry.name for entry in models.table if entry.make.body is not None]


@pytest.mark.parametrize("cell", cells.names())
def test_dropped_weights_under_cudnn(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here, x = WeightDropped(cells[cell], 8, 16, 0.5), torch.randn(3, 7, 8)
    there = copy.deepcopy(here).cuda()
    keep = torch.rand(here.parameter("weight_hh_l0").shape) < 0.5
    monkeypatch.setattr(F, "dropout", lambda weight, share: weight * keep.to(weight.device) / (1 - share))
    found, expected = there(x.cuda())[0], here(x)[0]
    torch.testing.assert_close(found.cpu(), expected, rtol=2e-2, atol=2e-3)  # cuDNN multiplies in TF32
    found.square().sum().backward()
    expected.square().sum().backward()
    for one, other in zip(there.parameters(), here.parameters(), strict=True):
        torch.testing.assert_close(one.grad.cpu(), other.grad, rtol=1e-2, atol=1e-3)
    copy.deepcopy(there).cuda().eval()(x.cuda())  # moved, its weights are in one piece again


@pytest.mark.parametrize("family", BODIES)
def test_a_body_is_the_same_on_a_gpu(family: str) -> None:
    body = config.build_body(config.complete_model({"family": family, "dim": 64}), 50).eval()
    tokens, lengths = torch.randint(4, 50, (3, 9)), torch.tensor([9, 4, 1])
    here = body(tokens, lengths)
    there = body.cuda()(tokens.cuda(), lengths.cuda())
    for b, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(there[b, :length].cpu(), here[b, :length], rtol=1e-2, atol=1e-3)


def test_a_language_model_trains_under_autocast() -> None:
    settings = config.complete_model({"family": "rnn-decoder", "dim": 32, "hidden": 48})
    model, tokens = config.build_model(settings, 50, 50).cuda(), torch.randint(4, 50, (3, 9), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        logits, state = model.forward_from(tokens, model.start(tokens[:, :0], torch.zeros(3).long()))
        logits, _ = model.forward_from(tokens, state)
    F.cross_entropy(logits.float().flatten(0, 1), tokens.flatten()).backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
