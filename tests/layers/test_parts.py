"""Norms, residuals, the MLP, embeddings and blocks against PyTorch and their formulas."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from saccade.core import masks
from saccade.core.positions import sinusoid
from saccade.errors import SaccadeError
from saccade.layers.attention import MultiHeadAttention
from saccade.layers.block import Block, Stack
from saccade.layers.embeddings import Add, Concatenate, Learned, NoPlaces, Sinusoidal, TokenEmbedding, entries
from saccade.layers.embeddings import table as place_embeddings
from saccade.layers.feedforward import MLP, activations
from saccade.layers.norms import LayerNorm, RMSNorm
from saccade.layers.norms import table as norms
from saccade.layers.residuals import PostNorm, PreNorm, Residual
from saccade.layers.residuals import table as residuals

DIM = 6


# --- norms ---


@pytest.mark.parametrize(("ours", "theirs"), [(LayerNorm(DIM), nn.LayerNorm(DIM)), (RMSNorm(DIM), nn.RMSNorm(DIM, eps=1e-6))])
def test_norms_are_pytorchs_forward_and_backward(ours: nn.Module, theirs: nn.Module) -> None:
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.copy_(torch.randn(DIM))
    theirs.load_state_dict(ours.state_dict())
    x = (3 * torch.randn(2, 4, DIM) + 1).requires_grad_()
    pull = torch.randn(2, 4, DIM)
    torch.testing.assert_close(ours(x), theirs(x))
    found = torch.autograd.grad(ours(x), [x, *ours.parameters()], pull)
    for one, other in zip(found, torch.autograd.grad(theirs(x), [x, *theirs.parameters()], pull), strict=True):
        torch.testing.assert_close(one, other)


def test_norms_by_hand_with_the_mean_over_d_and_the_square() -> None:
    x = [1.0, 2.0, 4.0, 9.0, -3.0, 5.0]
    mean = sum(x) / 6
    variance = sum((a - mean) ** 2 for a in x) / 6
    expected = [(a - mean) / math.sqrt(variance + 1e-5) for a in x]
    torch.testing.assert_close(LayerNorm(6)(torch.tensor(x)).tolist(), expected, rtol=1e-5, atol=1e-6)
    size = math.sqrt(sum(a * a for a in x) / 6 + 1e-6)
    torch.testing.assert_close(RMSNorm(6)(torch.tensor(x)).tolist(), [a / size for a in x], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", norms.names())
def test_gradients_of_norms(name: str) -> None:
    norm = norms[name](DIM).double()
    x = torch.randn(2, DIM, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, *_: norm(x), (x, *norm.parameters()))


# --- residuals ---


def test_where_the_norm_stands() -> None:
    norm, x = LayerNorm(DIM), torch.randn(2, 3, DIM)
    part = nn.Linear(DIM, DIM)
    torch.testing.assert_close(PostNorm(norm)(x, part), norm(x + part(x)))
    torch.testing.assert_close(PreNorm(norm)(x, part), x + part(norm(x)))
    assert (PostNorm.ends_normed, PreNorm.ends_normed) == (True, False)


@pytest.mark.parametrize("name", residuals.names())
def test_dropout_falls_on_what_a_part_adds_and_not_on_what_passes(name: str) -> None:
    residual = residuals[name](nn.Identity(), dropout=0.999999)
    x = torch.randn(2, 3, DIM)
    torch.testing.assert_close(residual(x, lambda y: 100 * y), x)
    residual.eval()
    torch.testing.assert_close(residual(x, lambda y: 100 * y), 101 * x)


# --- MLP ---


@pytest.mark.parametrize("name", activations.names())
def test_the_mlp_is_two_linear_maps_around_an_activation(name: str) -> None:
    by_hand = {"relu": lambda a: a.clamp_min(0), "gelu": lambda a: a * (1 + torch.erf(a / math.sqrt(2))) / 2}
    mlp, x = MLP(DIM, 10, activations[name]).double(), torch.randn(2, 3, DIM, dtype=torch.float64)
    nn.init.normal_(mlp.inner.bias)
    hidden = by_hand[name](x @ mlp.inner.weight.T + mlp.inner.bias)
    torch.testing.assert_close(mlp(x), hidden @ mlp.outer.weight.T + mlp.outer.bias)
    torch.testing.assert_close(mlp(x)[:, 1:2], mlp(x[:, 1:2]), msg="each place by itself")
    assert mlp.inner.weight.shape == (10, DIM)


# --- embeddings ---


def test_place_embeddings() -> None:
    at = torch.tensor([[0, 3], [7, 1]])
    torch.testing.assert_close(Sinusoidal(DIM)(at), sinusoid(at, DIM))
    assert (NoPlaces(DIM)(at) == 0).all()
    learned = Learned(DIM, max_len=8)
    torch.testing.assert_close(learned(at), learned.vectors[at])
    with pytest.raises(SaccadeError, match="place 8 in a learned table of 8 places"):
        learned(at + 1)
    assert all(make(DIM)(at).shape == (2, 2, DIM) for make in (entry.make for entry in place_embeddings))


def test_positions_enter_by_adding_or_by_a_joint_projection() -> None:
    x, p = torch.randn(2, 3, DIM), torch.randn(3, DIM)
    torch.testing.assert_close(Add(DIM)(x, p), x + p)
    joined = Concatenate(DIM)
    w, b = joined.join.weight, joined.join.bias
    torch.testing.assert_close(joined(x, p), x @ w[:, :DIM].T + p @ w[:, DIM:].T + b)
    assert entries.names() == ["add", "concatenate"]


def test_token_embeddings_are_scaled_and_stand_at_their_places() -> None:
    embedding = TokenEmbedding(11, DIM, Sinusoidal(DIM), Add(DIM))
    tokens = torch.tensor([[3, 1, 4, 1]])
    expected = embedding.tokens.weight[tokens] * math.sqrt(DIM) + sinusoid(torch.arange(4), DIM)
    torch.testing.assert_close(embedding(tokens), expected)
    torch.testing.assert_close(embedding(tokens[:, 2:], start=2), expected[:, 2:])
    large = TokenEmbedding(3000, 64, NoPlaces(64), Add(64), dropout=0.5).eval()
    assert large(torch.arange(3000)[None]).std().item() == pytest.approx(1.0, abs=0.05)
    large.train()
    assert (large(torch.arange(3000)[None]) == 0).float().mean().item() == pytest.approx(0.5, abs=0.01)


# --- blocks ---


def block(residual: type[Residual], cross: bool = False) -> Block:
    def attention() -> MultiHeadAttention:
        return MultiHeadAttention(DIM, 2)

    return Block(attention(), MLP(DIM, 8), lambda: residual(LayerNorm(DIM)), attention() if cross else None)


@pytest.mark.parametrize("residual", [PreNorm, PostNorm])
def test_a_block_is_attention_then_memory_then_mlp(residual: type[Residual]) -> None:
    one, x, memory = block(residual, cross=True), torch.randn(2, 4, DIM), torch.randn(2, 3, DIM)
    mask, memory_mask = masks.causal(), masks.padding([3, 1])
    y = one.around_attention(x, lambda a: one.attention(a, mask=mask))
    y = one.around_cross(y, lambda a: one.cross(a, memory, memory_mask))
    y = one.around_mlp(y, one.mlp)
    torch.testing.assert_close(one(x, mask, memory, memory_mask), y)


def test_a_stack_is_its_blocks_in_order_and_names_them_by_number() -> None:
    stack, x = Stack([block(PreNorm) for _ in range(3)], LayerNorm(DIM)), torch.randn(2, 4, DIM)
    torch.testing.assert_close(stack(x), stack.norm(stack[2](stack[1](stack[0](x)))))
    assert len(stack) == 3
    assert [name for name, _ in stack.named_children()] == ["0", "1", "2", "norm"]


def test_steps_through_a_stack_are_the_whole_pass() -> None:
    stack = Stack([block(PreNorm, cross=True) for _ in range(2)], LayerNorm(DIM))
    x, memory, memory_mask = torch.randn(2, 5, DIM), torch.randn(2, 3, DIM), masks.padding([1, 3])
    caches, ready = stack.start(memory)
    steps = [stack.step(piece, caches, ready, masks.causal(), memory_mask) for piece in x.split([2, 1, 1, 1], 1)]
    torch.testing.assert_close(torch.cat(steps, 1), stack(x, masks.causal(), memory, memory_mask))
