"""Operations of whole encoder–decoders with other stacks, blocks and scores, by closed formulas: forward and backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from saccade.core import Mechanism, attend, scores
from saccade.models import Seq2Seq
from saccade.models.builder import Builder
from saccade.training.flops import counter

B, N, M = 3, 7, 5  # rows, source and target tokens
D, F, L, H, V = 8, 12, 3, 2, 11  # width, hidden width, depth, heads, vocabulary
SIZES = {
    "family": "transformer",
    "dim": D,
    "hidden": F,
    "depth": L,
    "heads": H,
    "dropout": 0.0,
    "shared": True,
}


def counted(device: str = "cpu", **changed: Any) -> tuple[int, int]:
    """Operations of the forward pass, and of the backward pass."""
    with torch.device(device):
        model = Builder({**SIZES, **changed}).make(Seq2Seq, V, V)
        source, target = torch.zeros(B, N, dtype=torch.long), torch.zeros(B, M, dtype=torch.long)
        with counter() as forward:
            logits = model(source, torch.full((B,), N), target)
        with counter() as backward:
            logits.sum().backward()
    return forward.get_total_flops(), backward.get_total_flops()


# Multiplications of one row of a batch; each has its addition.


def attention(queries: int, keys: int, width: int = D) -> int:
    """Projections to and from all heads, `width` wide together; q kᵀ and the weighted sum."""
    return (queries + keys) * 2 * D * width + 2 * queries * keys * width


MLP = 2 * D * F  # at one position
HEAD = M * D * V
ENCODER = attention(N, N) + N * MLP
DECODER = attention(M, M) + attention(M, N) + M * MLP


def separable(width: int, channels: int, out: int) -> int:
    return width * channels + channels * out


def expected(multiplications: int, once: int = 0) -> tuple[int, int]:
    """Each product has two in the backward pass, one for each factor's gradient; `once`: products of a matrix and a vector,
    of which the matrix's gradient is an outer product."""
    forward = 2 * B * (multiplications + once)
    return forward, 2 * 2 * B * multiplications + 2 * B * once


each_device = pytest.mark.parametrize("device", ["cpu", "meta"])


@each_device
def test_standard_blocks(device: str) -> None:
    assert counted(device) == expected(L * (ENCODER + DECODER) + HEAD)


@each_device
def test_a_transparent_decoder_mixes_all_layers_of_the_encoder_in_each_block(device: str) -> None:
    mixes = L * N * D * (L + 1)
    assert counted(device, stack="transparent") == expected(
        L * (ENCODER + DECODER) + HEAD, once=mixes
    )


@each_device
def test_weighted_blocks_have_mlps_behind_each_attention(device: str) -> None:
    """Those of all heads together multiply as much as one MLP; their W_h are as large as the last matrix of attention."""
    encoder = attention(N, N) + N * MLP
    decoder = attention(M, M) + M * MLP + attention(M, N) + M * MLP
    assert counted(device, block="weighted") == expected(L * (encoder + decoder) + HEAD)


@each_device
def test_weighted_blocks_with_a_shared_mlp_apply_all_of_it_to_each_head(device: str) -> None:
    encoder, decoder = (
        attention(N, N) + H * N * MLP,
        attention(M, M) + attention(M, N) + 2 * H * M * MLP,
    )
    assert counted(device, block={"name": "weighted", "shared": True}) == expected(
        L * (encoder + decoder) + HEAD
    )


@each_device
def test_a_universal_stack_counts_every_pass_and_the_gates_around_each_part(device: str) -> None:
    """L steps, and one pass before and two after them; three gates of 2 D × D around each of two and three parts."""
    passes, gates = 1 + L + 2, 3 * 2 * D * D
    stack = {"name": "universal", "ponder": None, "before": 1, "after": 2}
    encoder, decoder = ENCODER + 2 * N * gates, DECODER + 3 * M * gates
    assert counted(device, stack=stack, residual="gru-gate") == expected(
        passes * (encoder + decoder) + HEAD
    )


@each_device
@pytest.mark.parametrize("head_width", [None, D // H], ids=["half as wide", "as wide"])
def test_evolved_blocks(device: str, head_width: int | None) -> None:
    """The first attention of a decoder has twice the heads, of half the width or, where it is given, of the same."""
    gated, left, full = 2 * D * D, D * F, 3 * D * (D // 2)
    encoder = N * (gated + left + full + separable(9, F, D // 2)) + attention(N, N) + N * MLP
    first = attention(M, M, D if head_width is None else 2 * D)
    convolutions = separable(11, D, 2 * D) + separable(7, D, D // 2) + separable(7, 2 * D, D)
    decoder = first + 2 * attention(M, N) + M * convolutions + attention(M, M) + M * MLP
    found = counted(device, block="evolved", head_width=head_width)
    assert found == expected(L * (encoder + decoder) + HEAD)


@each_device
@pytest.mark.parametrize("heads", [1, 2, 4])
def test_additive_scores(device: str, heads: int) -> None:
    """W₁ q and W₂ k in each head, and the product with v instead of q kᵀ: for one head it is one of a matrix and a vector."""
    width = D // heads
    # queries and keys of the encoder, of the decoder, and between them
    tokens = 2 * N + 2 * M + (M + N)
    projections = tokens * heads * width * width
    pairs = (N * N + M * M + M * N) * D  # tanh(…) times v
    rest = L * (ENCODER + DECODER - pairs + projections) + HEAD
    if heads == 1:
        assert counted(device, score="additive", heads=heads) == expected(rest, once=L * pairs)
    else:
        assert counted(device, score="additive", heads=heads) == expected(rest + L * pairs)


@pytest.mark.parametrize("heads", [1, 2])
def test_an_additive_score_alone(heads: int) -> None:
    hidden, wide = 6, 9
    q, k, v = (
        torch.randn(B, heads, M, D),
        torch.randn(B, heads, N, D + 1),
        torch.randn(B, heads, N, wide),
    )
    score = scores.Additive(D, D + 1, hidden, heads)
    with counter() as found:
        attend(q, k, v, Mechanism(score))
    each = M * D * hidden + N * (D + 1) * hidden + M * N * hidden + M * N * wide
    assert found.get_total_flops() == 2 * B * heads * each


def test_rows_together_add_up() -> None:
    """A transparent stack of weighted blocks, with additive scores: each changes its own term."""
    plain, stack, block, score = (
        counted(**changed)
        for changed in ({}, {"stack": "transparent"}, {"block": "weighted"}, {"score": "additive"})
    )
    together = counted(stack="transparent", block="weighted", score="additive")
    for n in range(2):
        assert together[n] - plain[n] == (stack[n] - plain[n]) + (block[n] - plain[n]) + (
            score[n] - plain[n]
        )
