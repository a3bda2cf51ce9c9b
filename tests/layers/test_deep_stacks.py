"""Stacks of which an encoder and a decoder know each other, or that repeat and shorten: transparent, universal, funnel."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from saccade.building import Builder
from saccade.core import masks
from saccade.errors import SaccadeError
from saccade.models import AttendingEncoder, CausalLM, Seq2Seq

SMALL = {"dim": 8, "hidden": 12, "depth": 2, "heads": 2, "dropout": 0.0}
SOURCE, LENGTHS, TARGET = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 0, 0]]), torch.tensor([5, 3]), torch.tensor([[1, 2], [3, 4]])


def some(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def model(kind: type[nn.Module], family: str = "transformer", **changed: object) -> nn.Module:
    """A small model in float64 with parameters far from where they start."""
    vocabularies = (13, 13) if kind is Seq2Seq else (13,)
    made = Builder({"family": family, **SMALL, **changed}).make(kind, *vocabularies).double().eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return made


def test_transparent_decoder_blocks_read_their_own_mix_of_all_encoder_layers() -> None:
    made = model(Seq2Seq, stack="transparent", depth=3)
    memory = made.encode(SOURCE, LENGTHS)
    assert memory.shape == (2, 5, 8, 4)
    x, mask = made.source(SOURCE, torch.arange(5)), masks.padding(LENGTHS)
    for layer in range(4):
        torch.testing.assert_close(memory[..., layer], made.encoder.norm(x), msg=f"layer {layer}")
        x = made.encoder.block(layer)(x, mask) if layer < 3 else x
    assert made.encoder.mixes is None
    assert made.decoder.mixes.shape == (3, 4)
    y = made.target(TARGET, torch.arange(2))
    for n in range(3):
        shares = made.decoder.mixes[n].softmax(0)
        own = sum(shares[layer] * memory[..., layer] for layer in range(4))
        y = made.decoder.block(n)(y, masks.causal(), own, mask)
    torch.testing.assert_close(made(SOURCE, LENGTHS, TARGET), made.head(made.decoder.norm(y)))
    plain = model(Seq2Seq, depth=3)
    assert sum(p.numel() for p in made.parameters()) == sum(p.numel() for p in plain.parameters()) + 3 * 4


def test_stacks_that_do_not_fit_are_answered_with_sentences() -> None:
    with pytest.raises(
        SaccadeError, match=r"model\.stack=transparent is not for an encoder without a decoder; choose one of: plain"
    ):
        model(AttendingEncoder, "transformer-encoder", stack="transparent")
    with pytest.raises(
        SaccadeError, match=r"model\.stack=transparent is not for a model in which nobody sees the future; choose"
    ):
        model(CausalLM, "transformer-decoder", stack="transparent")
