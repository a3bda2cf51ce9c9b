"""Fixup and DeepNorm: what they do to the parameters of a part, by formulas written out, in layers and in whole models."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from tests.support import raises
from torch import nn

from saccade.layers.convolution_mixers import LightConvolution
from saccade.layers.feedforward import MLP, Experts
from saccade.layers.feedforward import table as feedforwards
from saccade.layers.multihead_attention import MultiHeadAttention
from saccade.layers.norms import LayerNorm
from saccade.layers.residuals import DeepNorm, Fixup
from saccade.models import CausalLM, Encoder, Seq2Seq
from saccade.models.builder import Builder

DIM = 12
# a part, the layers that are multiplied (m), those that carry values, and the last
PARTS: dict[str, tuple[Callable[[], nn.Module], list[str], list[str], list[str]]] = {
    "attention": (
        lambda: MultiHeadAttention(DIM, 3),
        ["q.weight", "k.weight", "v.weight", "out.weight"],
        ["v.weight", "out.weight"],
        ["out.weight", "out.bias"],
    ),
    "mlp": (
        lambda: MLP(DIM, 20),
        ["inner.weight", "outer.weight"],
        ["inner.weight", "outer.weight"],
        ["outer.weight", "outer.bias"],
    ),
    "swiglu": (
        lambda: feedforwards["swiglu"](DIM, 20),
        ["inner.weight", "linear.weight", "outer.weight"],
        ["inner.weight", "linear.weight", "outer.weight"],
        ["outer.weight", "outer.bias"],
    ),
    "experts": (
        lambda: Experts(DIM, 20, count=3),
        ["router.weight", "inner", "outer"],
        ["inner", "outer"],
        ["outer", "outer_bias"],
    ),
    "light-convolution": (
        lambda: LightConvolution(DIM, 3, 3),
        ["inner.weight", "outer.weight"],
        ["inner.weight", "outer.weight"],
        ["outer.weight", "outer.bias"],
    ),
}


def before_and_after(
    name: str, residual: Fixup | DeepNorm
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    part = PARTS[name][0]()
    with torch.no_grad():
        for parameter in part.parameters():
            parameter.copy_(torch.randn_like(parameter))
    drawn = {key: one.detach().clone() for key, one in part.named_parameters()}
    residual.initialize(part)
    return drawn, dict(part.named_parameters())


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize(("role", "residuals"), [("alone", 2), ("encoder", 5), ("decoder", 5)])
def test_fixup_starts_the_last_layer_at_zero_and_the_others_small(
    name: str, role: str, residuals: int
) -> None:
    residual = Fixup(depth=7, role=role)
    drawn, found = before_and_after(name, residual)
    _, layers, _, last = PARTS[name]
    factor = (residuals * 7) ** (-1 / (2 * len(layers) - 2))
    for key, value in found.items():
        expected = 0 * drawn[key] if key in last else drawn[key] * (factor if key in layers else 1)
        torch.testing.assert_close(value, expected, msg=key)
    assert {key: one.item() for key, one in residual.named_parameters()} == {
        "before": 0,
        "after": 0,
        "scale": 1,
    }
    assert math.isclose(Fixup(depth=12, role="decoder").count, 60), (
        "as in the paper's Transformer: 2 · 12 + 3 · 12"
    )


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize(
    ("role", "alpha", "beta"),
    [
        ("alone", (2 * 18) ** (1 / 4), (8 * 18) ** (-1 / 4)),
        ("encoder", 0.81 * (18**4 * 18) ** (1 / 16), 0.87 * (18**4 * 18) ** (-1 / 16)),
        ("decoder", (3 * 18) ** (1 / 4), (12 * 18) ** (-1 / 4)),
    ],
)
def test_deepnorm_has_the_papers_factors_on_what_carries_values(
    name: str, role: str, alpha: float, beta: float
) -> None:
    residual = DeepNorm(lambda: LayerNorm(DIM), depth=18, role=role)
    assert residual.alpha == pytest.approx(alpha)
    drawn, found = before_and_after(name, residual)
    for key, value in found.items():
        torch.testing.assert_close(
            value, drawn[key] * (beta if key in PARTS[name][2] else 1), msg=key
        )


def test_a_part_without_a_last_layer_is_refused() -> None:
    for part in (nn.Linear(3, 3), nn.Identity()):
        with raises("parts-do-not-combine"):
            Fixup().initialize(part)


SIZES = {"dim": 16, "hidden": 24, "depth": 3, "heads": 2, "dropout": 0.0}
TOKENS = torch.tensor([[1, 2, 3], [4, 5, 6]])


def test_a_model_with_fixup_begins_as_the_identity_and_all_of_it_learns() -> None:
    model = Builder({"family": "transformer-decoder", "residual": "fixup", **SIZES}).make(
        CausalLM, 11
    )
    x = model.embedding(TOKENS, torch.arange(3))
    torch.testing.assert_close(model.features(TOKENS), x)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):  # the last layers first, then what comes before them
        optimizer.zero_grad()
        model(TOKENS).log_softmax(-1)[..., 7].sum().neg().backward()
        optimizer.step()
    still = [
        name
        for name, one in model.named_parameters()
        if not one.grad.any() and not name.endswith((".k.bias", ".q.bias"))
    ]
    assert not still


def test_every_block_of_a_model_is_initialized_by_its_role() -> None:
    depth = SIZES["depth"]
    pair = Builder({"family": "transformer", "residual": "deepnorm", **SIZES}).make(Seq2Seq, 11, 11)
    alone = Builder({"family": "transformer-encoder", "residual": "deepnorm", **SIZES}).make(
        Encoder, 11
    )
    expected = {
        "pair.encoder": 0.87 * depth ** (-5 / 16),
        "pair.decoder": (12 * depth) ** -0.25,
        "alone": (8 * depth) ** -0.25,
    }
    for where, stack in {
        "pair.encoder": pair.encoder,
        "pair.decoder": pair.decoder,
        "alone": alone.encoder,
    }.items():
        for block in stack:
            xavier = math.sqrt(6 / (16 + 24))
            for weight in (block.feedforward.inner.weight, block.feedforward.outer.weight):
                assert 0.9 < weight.abs().max().item() / (xavier * expected[where]) <= 1 + 1e-6
            square = math.sqrt(6 / 32)
            for site in [block.mixer] if block.cross is None else [block.mixer, block.cross]:
                for weight, factor in (
                    (site.q, 1),
                    (site.k, 1),
                    (site.v, expected[where]),
                    (site.out, expected[where]),
                ):
                    assert 0.9 < weight.weight.abs().max().item() / (square * factor) <= 1 + 1e-6
