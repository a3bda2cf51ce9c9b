"""Blocks of other parts than the standard one: weighted and evolved, by their formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.support import raises
from torch import Tensor
from torch.nn import functional as F

from saccade.core import masks
from saccade.layers.block import table
from saccade.models import AttendingEncoder, CausalLM, Seq2Seq
from saccade.models.builder import Builder
from saccade.training.flops import counter

D, H, HEADS, N, M = 8, 12, 2, 5, 3


def some(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def blocks(name: str, **changed: Any) -> tuple[Any, Any]:
    """An encoder's and a decoder's block in float64 with parameters far from where they start."""
    settings = {
        "family": "transformer",
        "dim": D,
        "hidden": H,
        "depth": 1,
        "heads": HEADS,
        "dropout": 0.0,
        "block": name,
        **changed,
    }
    made = Builder(settings).make(Seq2Seq, 7, 7).double().eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return made.encoder.block(0), made.decoder.block(0)


def heads_of(layer: Any, x: Tensor, memory: Tensor, causal: bool) -> list[Tensor]:
    """What each head reads, B N width: plain attention."""
    found, (batch, count, _) = [], x.shape
    q, k, v = (
        part(y).unflatten(-1, (layer.heads, layer.width))
        for part, y in ((layer.q, x), (layer.k, memory), (layer.v, memory))
    )
    for head in range(layer.heads):
        fits = torch.einsum("bnd,bmd->bnm", q[:, :, head], k[:, :, head]) / layer.width**0.5
        if causal:
            fits = fits.masked_fill(torch.ones(count, count).triu(1).bool(), float("-inf"))
        found.append(fits.softmax(-1) @ v[:, :, head])
    assert found[0].shape == (batch, count, layer.width)
    return found


def attend(layer: Any, x: Tensor, memory: Tensor, causal: bool = False) -> Tensor:
    return layer.out(torch.cat(heads_of(layer, x, memory, causal), -1))


def branched(layer: Any, x: Tensor, memory: Tensor, causal: bool = False) -> Tensor:
    """Σ_h α_h MLP_h(κ_h W_h head_h); of a shared MLP there is one."""
    kappa, alpha, output = (
        layer.out.kappa.softmax(0),
        layer.out.alpha.softmax(0),
        torch.zeros_like(x),
    )
    for h, head in enumerate(heads_of(layer, x, memory, causal)):
        m = h % len(layer.out.inner)
        inner = (kappa[h] * (head @ layer.out.project[h])) @ layer.out.inner[
            m
        ] + layer.out.inner_bias[m]
        output = output + alpha[h] * (
            inner.clamp_min(0) @ layer.out.outer[m] + layer.out.outer_bias[m]
        )
    return output


def weighted(block: Any, x: Tensor, memory: Tensor | None) -> Tensor:
    y = block.around_mixer.norm(x)
    x = x + branched(block.mixer, y, y, causal=memory is not None)
    return x if memory is None else x + branched(block.cross, block.around_cross.norm(x), memory)


def windows(x: Tensor, width: int, causal: bool) -> Tensor:
    """B N C → B N C W: what each kernel position sees; zeros beyond the ends."""
    left = width - 1 if causal else width // 2
    padded = torch.cat(
        [torch.zeros(len(x), left, x.shape[2]), x, torch.zeros(len(x), width, x.shape[2])], 1
    )
    return torch.stack([padded[:, k : k + x.shape[1]] for k in range(width)], -1)


def separable(layer: Any, x: Tensor, causal: bool) -> Tensor:
    return layer.outer(
        torch.einsum("bncw,cw->bnc", windows(x, layer.width, causal), layer.kernel[:, 0])
    )


def filled(x: Tensor, size: int) -> Tensor:
    return torch.cat([x, torch.zeros(*x.shape[:-1], size - x.shape[-1])], -1)


def evolved(block: Any, x: Tensor, memory: Tensor | None) -> Tensor:
    cell = block.cell
    norms, causal = [one.norm for one in cell.around], memory is not None
    if memory is None:
        value, gate = cell.gated(norms[0](x)).chunk(2, -1)
        x = x + value * gate.sigmoid()
        y = norms[1](x)
        conv = (
            torch.einsum("bncw,ocw->bno", windows(y, 3, causal), cell.mixers[0].kernel)
            + cell.mixers[0].bias
        )
        inner = cell.norm(cell.left(y).clamp_min(0) + filled(conv.clamp_min(0), H))
        x = x + filled(separable(cell.mixers[1], inner, causal), D)
        y = norms[2](x)
        x = x + attend(cell.mixers[2], y, y)
        y = norms[3](x)
        return x + cell.feedforward.outer(cell.feedforward.inner(y).clamp_min(0))
    y = norms[0](x)
    x = x + attend(cell.mixers[0], y, y, True) + attend(cell.readers[0], y, memory)
    y = norms[1](x)
    left, right = (
        separable(cell.mixers[1], y, True).clamp_min(0),
        separable(cell.mixers[2], y, True),
    )
    x = x + separable(cell.mixers[3], cell.norm(left + filled(right, 2 * D)), True)
    y = norms[2](x)
    x = x + attend(cell.mixers[4], y, y, True)
    x = x + attend(cell.readers[1], norms[3](x), memory)
    return x + cell.feedforward.outer(F.silu(cell.feedforward.inner(norms[4](x))))


def standard(block: Any, x: Tensor, memory: Tensor | None) -> Tensor:
    y = block.around_mixer.norm(x)
    x = x + attend(block.mixer, y, y, causal=memory is not None)
    x = x if memory is None else x + attend(block.cross, block.around_cross.norm(x), memory)
    return x + block.feedforward(block.around_feedforward.norm(x))


FORMULAS: dict[str, Callable[[Any, Tensor, Tensor | None], Tensor]] = {
    "standard": standard,
    "weighted": weighted,
    "evolved": evolved,
}


def test_every_block_has_its_formula() -> None:
    assert set(FORMULAS) == set(table.names())


@pytest.mark.parametrize("name", table.names())
def test_a_block_is_its_formula(name: str) -> None:
    encoder, decoder = blocks(name)
    x, memory = some(2, N, D), some(2, M, D)
    torch.testing.assert_close(encoder(x), FORMULAS[name](encoder, x, None))
    torch.testing.assert_close(
        decoder(x, masks.causal(), memory), FORMULAS[name](decoder, x, memory)
    )


def test_a_weighted_block_with_a_shared_mlp_is_its_formula_with_one_mlp_as_wide_as_hidden() -> None:
    encoder, decoder = blocks(
        "weighted", block={"name": "weighted", "shared": True}, heads=4, hidden=6
    )
    assert [tuple(one.mixer.out.inner.shape) for one in (encoder, decoder)] == [(1, D, 6)] * 2
    x, memory = some(2, N, D), some(2, M, D)
    torch.testing.assert_close(encoder(x), weighted(encoder, x, None))
    torch.testing.assert_close(decoder(x, masks.causal(), memory), weighted(decoder, x, memory))
    assert count(encoder) == attention(D, D) - D + 2 * D * 6 + 6 + D + 2 * 4 + 2 * D
    assert operations(encoder) == 2 * 2 * (N * (4 * D * D + 4 * 2 * D * 6) + 2 * N * N * D), (
        "the MLP once per head"
    )


def attention(dim: int, width: int) -> int:
    return 4 * dim * width + 3 * width + dim


def separable_count(dim: int, out: int, width: int) -> int:
    return dim * width + dim * out + out


def test_parameters_and_operations_by_hand() -> None:
    encoder, decoder = blocks("weighted")
    norm, mlp = 2 * D, 2 * D * H + H + HEADS * D
    branches = attention(D, D) - D + mlp + 2 * HEADS  # no bias of its own before the MLPs
    assert count(encoder) == branches + norm
    assert count(decoder) == 2 * (branches + norm)
    assert operations(encoder) == 2 * 2 * (N * (4 * D * D + 2 * D * H) + 2 * N * N * D)
    encoder, decoder = blocks("evolved")
    mlp = 2 * D * H + D + H
    convolutions = D * H + H + 3 * D * (D // 2) + D // 2 + 2 * H + separable_count(H, D // 2, 9)
    assert count(encoder) == 2 * D * D + 2 * D + convolutions + attention(D, D) + mlp + 4 * norm
    each = 2 * D * D + D * H + 3 * D * (D // 2) + 9 * H + H * (D // 2) + 4 * D * D + 2 * D * H
    assert operations(encoder) == 2 * 2 * (N * each + 2 * N * N * D)
    three = (
        separable_count(D, 2 * D, 11)
        + separable_count(D, D // 2, 7)
        + separable_count(2 * D, D, 7)
        + 4 * D
    )
    assert count(decoder) == 4 * attention(D, D) + three + mlp + 5 * norm
    wider = blocks("evolved", head_width=4)[1]
    assert count(wider) == count(decoder) + attention(D, 2 * D) - attention(D, D), (
        "twice the heads, each as wide"
    )


def count(block: Any) -> int:
    return sum(p.numel() for p in block.parameters())


def operations(block: Any) -> int:
    with counter() as found:
        block(some(2, N, D))
    return found.get_total_flops()


def test_weights_of_heads_sum_to_one_and_are_learned() -> None:
    encoder, _ = blocks("weighted")
    assert encoder.feedforward is None
    encoder(some(2, N, D)).square().sum().backward()
    for weight in (encoder.mixer.out.kappa, encoder.mixer.out.alpha):
        assert weight.grad.any()
        assert weight.grad.sum().abs() < 1e-10, "what one head gains, others lose"


def test_mistakes_are_answered_with_sentences() -> None:
    with raises("heads-do-not-divide"):
        blocks("weighted", hidden=13)
    with raises("parts-do-not-combine"):
        blocks("weighted", mixer="light-convolution")
    with raises("heads-do-not-divide"):
        blocks("evolved", heads=8)


def test_an_evolved_block_sees_what_its_mask_lets_it_see() -> None:
    for kind, family in (
        (AttendingEncoder, "transformer-encoder"),
        (CausalLM, "transformer-decoder"),
    ):
        made = Builder(
            {"family": family, "dim": D, "hidden": H, "depth": 1, "heads": 2, "block": "evolved"}
        ).make(kind, 7)
        stack = made.encoder if family == "transformer-encoder" else made.decoder
        x = torch.randn(1, N, D, requires_grad=True)
        # the sum of a norm is constant
        stack.eval()(x, masks.causal() if family == "transformer-decoder" else None)[
            0, 2, 0
        ].backward()
        assert x.grad[0, 4].any() == (family == "transformer-encoder")
