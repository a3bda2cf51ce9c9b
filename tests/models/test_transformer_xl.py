"""Transformer-XL: with a memory it is a long window without one. Its parity with `transformers` is in test_xlnet.py."""

from __future__ import annotations

import pytest
import torch
from model_helpers import V, make, shake
from tests.support import raises
from torch import Tensor

from saccade.core import Positions, masks
from saccade.models import CarryingLM, TransformerXL
from saccade.models.builder import Builder
from saccade.training.flops import counter

TEXT = torch.randint(0, V, (2, 21), generator=torch.Generator().manual_seed(3))


def built(memory: int, **changed: object) -> TransformerXL:
    torch.manual_seed(1)
    model = shake(make(CarryingLM, "transformer-xl", memory=memory, depth=3, **changed))
    assert isinstance(model, TransformerXL)
    return model


def in_segments(model: TransformerXL, tokens: Tensor, size: int) -> Tensor:
    """The logits of a text that is read in segments."""
    state, found = model.start(tokens[:, :0], torch.zeros(len(tokens)).long()), []
    for at in range(0, tokens.shape[1], size):
        logits, state = model.forward_from(tokens[:, at : at + size], state)
        found.append(logits)
    assert state.length == tokens.shape[1]
    return torch.cat(found, 1)


def under(model: TransformerXL, tokens: Tensor, allowed: masks.Mask) -> Tensor:
    """The logits of one pass without a memory, each layer seeing what a mask allows."""
    at = Positions.line(tokens.shape[1], tokens.shape[1])
    return model.head(model.decoder(model.embedding(tokens, at.i), allowed, positions=at))


@pytest.mark.parametrize("position", ["xl", "rotary", "t5", "none"])
@pytest.mark.parametrize(("memory", "size"), [(3, 4), (7, 4), (4, 1), (30, 5), (2, 6)])
@torch.no_grad()
def test_with_a_memory_it_is_a_long_window_without(position: str, memory: int, size: int) -> None:
    """A query sees its own segment and `memory` positions before it; one token at a time that is a sliding window."""
    model = built(memory, position=position)
    seen = masks.where(lambda b, h, i, j: (j <= i) & (j >= i // size * size - memory))
    found = in_segments(model, TEXT, size)
    torch.testing.assert_close(found, under(model, TEXT, seen))
    if size == 1:
        torch.testing.assert_close(found, under(model, TEXT, masks.causal() & masks.window(memory)))
    other = TEXT.clone()
    other[:, 0] = (other[:, 0] + 1) % V
    reached = (in_segments(model, other, size) - found).abs().amax((0, 2)) > 1e-9
    assert reached[1 : 1 + memory].all()
    assert reached[10] or memory < 4, "further than one layer sees"


@torch.no_grad()
def test_generating_step_by_step_is_reading_with_a_memory() -> None:
    model = built(4)
    state = model.start(TEXT[:, :9], torch.full((2,), 9))
    found = []
    for at in range(9, 21):
        logits, state = model.step(TEXT[:, at], state)
        found.append(logits)
    seen = masks.where(lambda b, h, i, j: (j <= i) & (j >= torch.where(i < 9, 0, i - 4)))
    torch.testing.assert_close(torch.stack(found, 1), under(model, TEXT, seen)[:, 9:])


def test_gradients_stop_at_the_memory_but_reach_what_projects_it() -> None:
    model = built(6)
    state = model.start(TEXT[:, :6], torch.full((2,), 6))
    carried = [tuple(part.requires_grad_() for part in state.carried[0])]
    logits, after = model.forward_from(TEXT[:, 6:7], state.next(carried=carried))
    key = model.decoder.block(0).mixer.k.weight  # type: ignore[union-attr]
    gradients = torch.autograd.grad(logits.square().sum(), (key, *carried[0]), allow_unused=True)
    assert all(gradient is None for gradient in gradients[1:])
    assert not any(part.requires_grad for part in after.carried[0])
    alone = torch.autograd.grad(model(TEXT[:, 6:7]).square().sum(), key)[0]
    assert alone.abs().max() < 1e-12, (
        "one token alone has nothing to choose from: its keys come from the memory"
    )
    assert gradients[0].abs().max() > 1e-6


def test_parameters_and_operations_are_those_of_the_formula() -> None:
    d, h, f, layers, vocab, memory, size, batch = 8, 2, 6, 2, V, 5, 4, 3
    values = {
        "family": "transformer-xl",
        "dim": d,
        "hidden": f,
        "depth": layers,
        "heads": h,
        "memory": memory,
        "dropout": 0.0,
    }
    model = Builder(values).make(CarryingLM, vocab)
    attention = 4 * d * d  # q, k, v, out without biases
    position = d * d + 2 * d  # W for all heads, u and v
    layer = attention + position + (2 * d * f + f + d) + 2 * 2 * d
    assert sum(p.numel() for p in model.parameters()) == vocab * d + layers * layer + 2 * d
    state = model.start(TEXT[:1, :0].expand(batch, 0), torch.zeros(batch).long())
    tokens, keys = torch.zeros(batch, size).long(), memory + size
    with counter() as found, torch.no_grad():
        model.forward_from(tokens, state)
    projections = 2 * batch * (2 * size + 2 * keys) * d * d
    # scores and values; for each head a position of all d numbers
    pairs = 2 * batch * size * keys * (2 * d + h * d)
    rest = 2 * batch * size * (d * d + 2 * d * f)  # W, and the feed-forward part
    assert (
        found.get_total_flops()
        == layers * (projections + pairs + rest) + 2 * batch * size * d * vocab
    )


def test_what_would_count_from_the_first_token_is_refused() -> None:
    with raises("position-not-supported"):
        built(4, position="added")
    with raises("mask-not-supported"):
        built(4)(TEXT, masks.documents(torch.zeros(2, 21).long()))
    with raises("mask-not-supported"):
        built(4)(TEXT, positions=torch.arange(21))
