"""Attention inside CNNs: which channels and which positions of a feature map count. B batch, C channels, H × W positions."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import SaccadeError
from ..registry import Table
from ..settings import Range
from . import norms

table: Table[type[FeatureAttention]] = Table(
    "feature-attention", "feature attention", facts=("dim",)
)
Reduction = Annotated[int, Range(1, 1024)]


class FeatureAttention(nn.Module):
    """x (B C H W) → x · weights(x): each number of a feature map, multiplied by what its channel or its position counts."""

    def weights(self, x: Tensor) -> dict[str, Tensor]:
        """What x is multiplied by: `channels` (B C) and `positions` (B H W), of those that there are; 0 to 1."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError


@table.add("none")
class NoFeatureAttention(FeatureAttention):
    """x: all channels and positions count alike."""

    def weights(self, x: Tensor) -> dict[str, Tensor]:
        return {}

    def forward(self, x: Tensor) -> Tensor:
        return x


class ChannelMLP(nn.Module):
    """W₂ relu(W₁ s) of one number per channel, B C → B C; inside C / `reduction` wide."""

    def __init__(self, dim: int, reduction: int, bias: bool) -> None:
        super().__init__()
        width = max(dim // reduction, 1)
        self.inner, self.outer = nn.Linear(dim, width, bias), nn.Linear(width, dim, bias)

    def forward(self, s: Tensor) -> Tensor:
        return self.outer(F.relu(self.inner(s)))


@table.add("squeeze-excite", paper="Hu et al. 2018", example={"reduction": 2})
class SqueezeExcite(FeatureAttention):
    """x · σ(W₂ relu(W₁ mean(x) + b₁) + b₂): one weight per channel, from the means of all channels over all positions."""

    def __init__(self, dim: int, reduction: Reduction = 16) -> None:
        super().__init__()
        self.squeeze = ChannelMLP(dim, reduction, bias=True)

    def weights(self, x: Tensor) -> dict[str, Tensor]:
        return {"channels": self.squeeze(x.mean((2, 3))).sigmoid()}

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weights(x)["channels"][:, :, None, None].to(x.dtype)


@table.add("cbam", paper="Woo et al. 2018", example={"reduction": 2, "width": 3})
class Cbam(FeatureAttention):
    """y = x · σ(f(mean x) + f(max x)) per channel, f(s) = W₂ relu(W₁ s); then y · σ(norm(conv [mean y; max y])) per position, over channels."""

    def __init__(
        self, dim: int, reduction: Reduction = 16, width: Annotated[int, Range(1, 31)] = 7
    ) -> None:
        super().__init__()
        if width % 2 == 0:
            raise SaccadeError(
                f"expected an odd width of cbam's convolution, got {width}; choose {width - 1} or {width + 1}",
                code="width-not-odd",
            )
        self.squeeze = ChannelMLP(dim, reduction, bias=False)
        self.convolution = nn.Conv2d(2, 1, width, padding=width // 2, bias=False)
        self.norm = norms.BatchNorm(1)

    def weights(self, x: Tensor) -> dict[str, Tensor]:
        channels = self.of_channels(x)
        return {
            "channels": channels,
            "positions": self.of_positions(x * channels[:, :, None, None].to(x.dtype)),
        }

    def of_channels(self, x: Tensor) -> Tensor:
        return (self.squeeze(x.mean((2, 3))) + self.squeeze(x.amax((2, 3)))).sigmoid()

    def of_positions(self, x: Tensor) -> Tensor:
        both = torch.stack([x.mean(1), x.amax(1)], 1)
        return self.norm(self.convolution(both)).squeeze(1).sigmoid()

    def forward(self, x: Tensor) -> Tensor:
        x = x * self.of_channels(x)[:, :, None, None].to(x.dtype)
        return x * self.of_positions(x).unsqueeze(1).to(x.dtype)


@torch.no_grad()
def feature_weights(model: nn.Module, images: Tensor) -> dict[str, dict[str, Tensor]]:
    """What each feature attention of a model gives the channels (B C) and positions (B H W) of its feature maps, by its path in the model."""
    found: dict[str, dict[str, Tensor]] = {}
    training, handles = model.training, []

    def look(path: str, layer: FeatureAttention) -> None:
        handles.append(
            layer.register_forward_pre_hook(
                lambda _, inputs: found.update({path: layer.weights(inputs[0])})
            )
        )

    for path, module in model.named_modules():
        if isinstance(module, FeatureAttention) and not isinstance(module, NoFeatureAttention):
            look(path, module)
    try:
        model.eval()(images)
    finally:
        model.train(training)
        for handle in handles:
            handle.remove()
    return found
