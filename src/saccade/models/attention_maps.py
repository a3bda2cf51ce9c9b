"""Attention maps over an image, per layer and over all layers. R × C positions, N of them."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..core import record, sites
from ..core.record import Look
from ..layers.feature_attention import feature_weights
from ..layers.grid_windows import WindowAttention, Windows
from .classifiers import ImageClassifier
from .protocols import ImageEncoder


class Maps(NamedTuple):
    """`layers`: how much each position is looked at, in the mean over all positions that look (H R C), by the layer's path. `token`: how much
    the class token looks at each, if there is one. `rollout`: how much of each position's vector comes from each position (N N, the class
    token first), where all layers look at all positions. `channels` (C) and `positions` (R C): what feature maps are multiplied by, by the
    path of their attention. `features` (R C): the length of each vector of the maps of several resolutions."""

    layers: dict[str, Tensor]
    token: dict[str, Tensor]
    rollout: Tensor | None
    channels: dict[str, Tensor]
    positions: dict[str, Tensor]
    features: list[Tensor]


@torch.no_grad()
def attention_maps(body: ImageEncoder, image: Tensor) -> Maps:
    """The attention maps of an image encoder for one image (1 3 H W)."""
    rows, columns = body.grid(*image.shape[2:])
    count, training = rows * columns, body.training
    with record(body, quiet=True) as seen:
        features = body.eval().feature_maps(image)
    body.train(training)
    layers, token, whole = {}, {}, []
    for name, layer in sites(body).items():
        for call in seen[name].calls[-1:]:
            if isinstance(layer, WindowAttention) and isinstance(call.positions, Windows):
                layers[name] = from_windows(
                    call, call.positions, call.positions.shift if layer.shifted else 0
                )
            elif call.sizes[2] == call.sizes[3] >= count:
                weights = call.weights()[0].float()
                layers[name] = weights[:, -count:, -count:].mean(1).unflatten(1, (rows, columns))
                if call.sizes[3] > count:
                    token[name] = weights[:, 0, -count:].unflatten(1, (rows, columns))
                whole.append(weights.mean(0))
    every = bool(whole) and len(whole) == len(sites(body))
    factors = feature_weights(body, image)
    return Maps(
        layers,
        token,
        rollout(whole) if every else None,
        {name: found["channels"][0] for name, found in factors.items() if "channels" in found},
        {name: found["positions"][0] for name, found in factors.items() if "positions" in found},
        [one[0].float().norm(dim=0) for one in features] if len(features) > 1 else [],
    )


def grad_cam(model: ImageClassifier, image: Tensor, label: int) -> Tensor:
    """Grad-CAM of a label in one image (1 3 H W): relu(Σ_d a_d x_nd) at each position n of the last feature map, where a_d is the mean over
    positions of ∂logit / ∂x_nd, and the map's sum is one; 0 everywhere if nothing speaks for the label. R C (Selvaraju et al. 2017)"""
    with torch.inference_mode(False), torch.enable_grad():
        tokens, x, lengths = (one.detach().clone() for one in model.positions(image))
        grid = model.body.grid(*image.shape[2:])
        logit = model.head(model.pool(tokens, x.requires_grad_(), lengths))[0, label]
        [gradient] = torch.autograd.grad(logit, x)
    # Without the class token.
    found = (x.detach() * gradient.mean(1, keepdim=True)).sum(-1).relu()[0, -math.prod(grid) :]
    return (found / found.sum().clamp(min=torch.finfo(found.dtype).tiny)).view(grid)


def from_windows(call: Look, at: Windows, shift: int) -> Tensor:
    """The mean row of a layer's weights within windows, each window back where it was in the grid: H R C."""
    rows, columns = at.grid
    weights = call.weights().float()
    # 0 at the padding of windows.
    looking = at.divide(weights.new_ones(1, rows * columns, 1), shift)
    received = (weights * looking.unsqueeze(1)).sum(2).transpose(1, 2)
    return at.join(received, shift)[0].T.unflatten(1, at.grid) / (rows * columns)


def rollout(layers: Sequence[Tensor]) -> Tensor:
    """Â_L ⋯ Â_2 Â_1 with Â = (A + I) / 2: attention through all layers, with the residual around each (Abnar & Zuidema 2020); A: N N."""
    found = torch.eye(len(layers[0]), device=layers[0].device)
    for weights in layers:
        mixed = (weights + torch.eye(len(weights), device=weights.device)) / 2
        found = mixed / mixed.sum(-1, keepdim=True) @ found
    return found
