"""Squeeze–excite and CBAM by loops in float64, against timm where that can be imported, and how their weights are looked at."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from saccade.layers.feature_attention import (
    Cbam,
    FeatureAttention,
    SqueezeExcite,
    feature_weights,
    table,
)
from saccade.models import ImageEncoder
from saccade.models.builder import Builder
from saccade.settings import Choice

B, C, H, W = 2, 6, 5, 4


def sigmoid(x: float) -> float:
    return 1 / (1 + float(torch.tensor(-x, dtype=torch.float64).exp()))


def squeezed(layer: Any, numbers: list[float]) -> list[float]:
    """W₂ relu(W₁ s + b₁) + b₂ number by number."""
    inner, outer = layer.squeeze.inner, layer.squeeze.outer

    def linear(part: nn.Linear, row: int, given: list[float]) -> float:
        bias = 0.0 if part.bias is None else float(part.bias[row])
        return bias + sum(float(part.weight[row, n]) * given[n] for n in range(len(given)))

    hidden = [max(linear(inner, row, numbers), 0.0) for row in range(inner.out_features)]
    return [linear(outer, row, hidden) for row in range(outer.out_features)]


def squeeze_excite_by_loops(layer: SqueezeExcite, x: Tensor) -> Tensor:
    found = torch.zeros_like(x)
    for b in range(len(x)):
        means = [sum(float(v) for v in x[b, c].flatten()) / (H * W) for c in range(C)]
        for c, logit in enumerate(squeezed(layer, means)):
            found[b, c] = x[b, c] * sigmoid(logit)
    return found


def cbam_by_loops(layer: Cbam, x: Tensor) -> Tensor:
    found, kernel, norm = torch.zeros_like(x), layer.convolution.weight[0], layer.norm
    reach = kernel.shape[-1] // 2
    for b in range(len(x)):
        means = [float(x[b, c].mean()) for c in range(C)]
        most = [max(float(v) for v in x[b, c].flatten()) for c in range(C)]
        logits = [
            one + other
            for one, other in zip(squeezed(layer, means), squeezed(layer, most), strict=True)
        ]
        y = torch.stack([x[b, c] * sigmoid(logits[c]) for c in range(C)])
        for i in range(H):
            for j in range(W):
                total = 0.0
                for di in range(-reach, reach + 1):
                    for dj in range(-reach, reach + 1):
                        if 0 <= i + di < H and 0 <= j + dj < W:
                            place = y[:, i + di, j + dj]
                            total += (
                                float(kernel[0, di + reach, dj + reach]) * float(place.sum()) / C
                            )
                            total += float(kernel[1, di + reach, dj + reach]) * max(
                                float(v) for v in place
                            )
                scaled = (total - float(norm.running_mean)) / (
                    float(norm.running_var) + norm.eps
                ) ** 0.5
                found[b, :, i, j] = y[:, i, j] * sigmoid(
                    scaled * float(norm.weight) + float(norm.bias)
                )
    return found


ORACLES = {
    "none": lambda layer, x: x,
    "squeeze-excite": squeeze_excite_by_loops,
    "cbam": cbam_by_loops,
}


def made(name: str) -> FeatureAttention:
    torch.manual_seed(0)
    layer: FeatureAttention = Choice(table[name], table.entry(name).example)(dim=C).double().eval()
    with torch.no_grad():
        for tensor in [*layer.parameters(), *(b for b in layer.buffers() if b.is_floating_point())]:
            tensor.copy_(torch.rand_like(tensor) + 0.1)
    return layer


@torch.no_grad()
@pytest.mark.parametrize("name", table.names())
def test_a_feature_attention_is_its_formula(name: str) -> None:
    assert set(ORACLES) == set(table.names())
    layer, x = made(name), torch.randn(B, C, H, W, dtype=torch.float64)
    found = layer(x)
    torch.testing.assert_close(found, ORACLES[name](layer, x))
    weights = layer.weights(x)
    again = (
        x
        * weights.get("channels", x.new_ones(B, C))[:, :, None, None]
        * weights.get("positions", x.new_ones(B, H, W))[:, None]
    )
    torch.testing.assert_close(
        again, found, msg="what it says it multiplies by is what it multiplies by"
    )


@torch.no_grad()
def test_both_are_those_of_timm() -> None:
    cbam = pytest.importorskip("timm.layers.cbam", exc_type=ImportError)
    x, theirs, ours = (
        torch.randn(2, 32, 9, 7),
        cbam.CbamModule(32, rd_channels=2).eval(),
        Cbam(32).eval(),
    )
    for own, given in (
        (ours.squeeze.inner, theirs.channel.fc1),
        (ours.squeeze.outer, theirs.channel.fc2),
    ):
        own.weight.copy_(given.weight.flatten(1))
    nn.init.normal_(theirs.spatial.conv.bn.weight)
    ours.convolution.load_state_dict(theirs.spatial.conv.conv.state_dict())
    ours.norm.load_state_dict(theirs.spatial.conv.bn.state_dict())
    torch.testing.assert_close(ours(x), theirs(x))
    squeeze = pytest.importorskip("timm.layers.squeeze_excite", exc_type=ImportError)
    others, own_layer = squeeze.SEModule(32, rd_channels=2), SqueezeExcite(32)
    for own, given in (
        (own_layer.squeeze.inner, others.fc1),
        (own_layer.squeeze.outer, others.fc2),
    ):
        own.weight.copy_(given.weight.flatten(1))
        own.bias.copy_(given.bias)
    torch.testing.assert_close(own_layer(x), others(x))


def test_the_weights_of_a_cnn_can_be_looked_at() -> None:
    settings = {
        "family": "cnn",
        "dim": 8,
        "depths": [1, 1],
        "attention": "squeeze-excite",
        "stage_attention": "cbam",
    }
    model = Builder(settings).make(ImageEncoder).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    seen = feature_weights(model, torch.rand(2, 3, 16, 12))
    shapes = {
        path: {name: tuple(value.shape) for name, value in weights.items()}
        for path, weights in seen.items()
    }
    assert shapes == {
        "encoder.0.gate": {"channels": (2, 8)},
        "encoder.1": {"channels": (2, 8), "positions": (2, 16, 12)},
        "encoder.2.gate": {"channels": (2, 16)},
        "encoder.3": {"channels": (2, 16), "positions": (2, 8, 6)},
    }
    assert all(
        float(value.min()) >= 0 and float(value.max()) <= 1
        for weights in seen.values()
        for value in weights.values()
    )
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items()), (
        "looking changes nothing"
    )
    assert not any(module._forward_pre_hooks for module in model.modules())
