"""Maps of image encoders: rollout by hand, windows back where they were, layers against their own weights, factors of feature maps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from model_helpers import shake

from saccade.core import record
from saccade.layers.feature_attention import feature_weights
from saccade.layers.grid_windows import Windows
from saccade.layers.pooling import DeepSets, Mean
from saccade.models.attention_maps import attention_maps, grad_cam, rollout
from saccade.models.builder import Builder
from saccade.models.classifiers import ImageClassifier
from saccade.models.protocols import ImageEncoder


def encoder(family: str, **settings: Any) -> ImageEncoder:
    torch.manual_seed(0)
    return shake(Builder({"family": family, **settings}).make(ImageEncoder)).float()


def test_rollout_is_the_product_of_layers_with_their_residuals() -> None:
    first, second = (np.random.default_rng(n).dirichlet(np.ones(3), 3) for n in (0, 1))
    wanted = np.zeros((3, 3))
    for i, j, k in np.ndindex(3, 3, 3):
        wanted[i, k] += (second[i, j] + (i == j)) / 2 * (first[j, k] + (j == k)) / 2
    found = rollout([torch.from_numpy(first).float(), torch.from_numpy(second).float()])
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-6)


@pytest.mark.parametrize("token", [False, True])
def test_a_vision_transformer_has_a_map_per_layer_and_head_over_its_patches(token: bool) -> None:
    body, image = (
        encoder("vit", dim=16, hidden=8, depth=3, heads=2, image=20, patch=4),
        torch.rand(1, 3, 20, 12),
    )
    if token:
        body.add_token()
    found = attention_maps(body, image)
    with record(body) as seen:
        body(image)
    assert list(found.layers) == [f"encoder.{n}.mixer" for n in range(3)]
    for name, weights in found.layers.items():
        assert weights.shape == (2, 5, 3)
        every = seen[name].weights()[0].detach()
        torch.testing.assert_close(weights.flatten(1), every[:, -15:, -15:].mean(1))
        if token:
            torch.testing.assert_close(found.token[name].flatten(1), every[:, 0, 1:])
        assert torch.all(weights.sum((1, 2)) <= 1 + 1e-5)
    assert found.rollout is not None
    assert found.rollout.shape == (15 + token, 15 + token)
    torch.testing.assert_close(found.rollout.sum(1), torch.ones(15 + token))
    assert set(found.token) == (set(found.layers) if token else set())


@pytest.mark.parametrize(
    ("height", "width"), [(24, 24), (20, 28)], ids=["windows divide it", "padded"]
)
def test_windows_are_put_back_where_they_were(height: int, width: int) -> None:
    body = encoder("swin", dim=8, heads=2, depths=[2, 1], window_size=3, patch=4)
    image = torch.rand(1, 3, height, width)
    found = attention_maps(body, image)
    with record(body) as seen:
        body(image)
    assert found.rollout is None
    assert len(found.layers) == 3
    for name, weights in found.layers.items():
        call = seen[name].calls[0]
        at = call.positions
        assert isinstance(at, Windows)
        shift = at.shift if name == "encoder.stages.0.blocks.1.mixer" else 0
        rows, columns = at.grid
        wanted = np.zeros((weights.shape[0], *at.padded))
        for window, each in enumerate(call.weights().detach().numpy()):
            for head, query, key in np.ndindex(*each.shape):
                row, column = place(at, shift, window, query)
                if row < rows and column < columns:
                    wanted[(head, *place(at, shift, window, key))] += each[head, query, key] / (
                        rows * columns
                    )
        np.testing.assert_allclose(weights.numpy(), wanted[:, :rows, :columns], atol=1e-5)
        if at.padded == at.grid:
            torch.testing.assert_close(weights.sum((1, 2)), torch.ones(len(weights)))


def place(at: Windows, shift: int, window: int, position: int) -> tuple[int, int]:
    """Where a position of a window was before the grid was rolled."""
    rows, columns = at.padded
    down, across = divmod(window, columns // at.size)
    row, column = divmod(position, at.size)
    return (down * at.size + row + shift) % rows, (across * at.size + column + shift) % columns


def test_factors_of_channels_and_positions_are_those_of_the_feature_maps() -> None:
    body = encoder(
        "cnn", dim=8, depths=[1, 1], attention="squeeze-excite", stage_attention="cbam"
    ).eval()
    image = torch.rand(1, 3, 16, 16)
    found, wanted = attention_maps(body, image), feature_weights(body, image)
    assert (found.layers, found.rollout) == ({}, None)
    assert set(found.channels) == set(wanted)
    assert {name: tuple(one.shape) for name, one in found.positions.items()} == {
        "encoder.1": (16, 16),
        "encoder.3": (8, 8),
    }
    for name, one in found.positions.items():
        torch.testing.assert_close(one, wanted[name]["positions"][0])


def test_looking_leaves_the_model_in_its_mode() -> None:
    body = encoder("vit", dim=8, hidden=8, depth=1, heads=2, patch=8)
    for mode in (True, False):
        attention_maps(body.train(mode), torch.rand(1, 3, 32, 32))
        assert body.training is mode


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("cnn", {"dim": 4, "depths": [1, 1, 1], "stem_stride": 2}),
        ("vit", {"dim": 8, "hidden": 8, "depth": 1, "heads": 2, "patch": 8, "stem": "convolution"}),
        ("vit", {"dim": 8, "hidden": 8, "depth": 1, "heads": 2, "patch": 8}),
        ("efficientnet-lite0", {"stages": 3}),
    ],
)
def test_positions_look_where_their_offset_says(family: str, settings: dict[str, Any]) -> None:
    """Which pixels a feature map depends on: with equal weights everywhere, the middle of the gradient is the middle of what is seen."""
    body = Builder({"family": family, **settings}).make(ImageEncoder).eval()
    stem = body.embedding.stem if family == "vit" else None
    with torch.no_grad():
        for module in body.modules():
            if isinstance(module, torch.nn.Conv2d):
                module.weight.fill_(1 / module.weight[0].numel())
    image = torch.full((1, 3, 128, 128), 0.9, requires_grad=True)
    features = (
        body(image).unflatten(1, body.grid(128, 128)).movedim(-1, 1)
        if stem is None
        else stem(body.normalized(image))
    )
    rows, columns = features.shape[2:]
    features[0, :, rows // 2, columns // 2].sum().backward()
    assert image.grad is not None
    seen = image.grad[0].abs().sum(0)
    middle = [(seen.sum(side) * (torch.arange(128) + 0.5)).sum() / seen.sum() for side in (1, 0)]
    down, across = body.offset(128, 128, rows, columns)
    assert middle[0] == pytest.approx(128 * ((rows // 2 + 0.5) / rows + down), abs=0.6)
    assert middle[1] == pytest.approx(128 * ((columns // 2 + 0.5) / columns + across), abs=0.6)


class Colors(ImageEncoder):
    """Each pixel's color as its vector."""

    def __init__(self) -> None:
        super().__init__()
        self.dim = 3

    def forward(self, images: torch.Tensor, lengths: torch.Tensor | None = None) -> torch.Tensor:
        return images.flatten(2).mT

    def grid(self, height: int, width: int) -> tuple[int, int]:
        return height, width


def test_grad_cam_by_hand() -> None:
    """With a mean over N positions ∂logit / ∂x_nd = w_d / N: at each position relu(w · x_n), as a share of the sum of all."""
    model = ImageClassifier(Colors(), Mean(), 2)
    weights = np.array([[1.0, -2.0, 0.5], [0.0, 0.0, -1.0]])
    with torch.no_grad():
        model.head.weight.copy_(torch.from_numpy(weights))
    # 3 colors of 1 × 3 pixels
    image = np.array([[[1.0, 0.0, 2.0]], [[0.25, 1.0, 0.5]], [[1.0, 0.0, 4.0]]])
    given = torch.from_numpy(image)[None].float()
    # 1 - 0.5 + 0.5 = 1;  0 - 2 + 0 < 0;  2 - 1 + 2 = 3
    np.testing.assert_allclose(grad_cam(model, given, 0).numpy(), [[0.25, 0.0, 0.75]], atol=1e-6)
    assert not grad_cam(model, given, 1).any(), "nothing speaks for the label"
    with torch.inference_mode():
        np.testing.assert_allclose(
            grad_cam(model, given, 0).numpy(), [[0.25, 0.0, 0.75]], atol=1e-6
        )
    assert model.head.weight.grad is None


def test_grad_cam_is_what_small_changes_of_the_last_feature_map_say() -> None:
    torch.manual_seed(0)
    body = encoder("cnn", dim=4, depths=[1, 1]).eval()
    model = ImageClassifier(body, DeepSets(body.dim), 3).double().eval()
    image, step = torch.rand(1, 3, 8, 6, dtype=torch.float64), 1e-5
    x = body(image).detach()[0].numpy()

    def logit(x: np.ndarray) -> float:
        """The label 2 of DeepSets, ρ(Σ φ(x_n)), by hand."""
        each, whole = (
            [layer.weight.detach().numpy() for layer in net if hasattr(layer, "weight")]
            for net in (model.pool.each, model.pool.whole)
        )
        bias = [layer.bias.detach().numpy() for layer in model.pool.each if hasattr(layer, "bias")]
        summed = (np.maximum(x @ each[0].T + bias[0], 0) @ each[1].T + bias[1]).sum(0)
        pooled = whole[1] @ np.maximum(whole[0] @ summed, 0)
        return float(model.head.weight.detach().numpy()[2] @ pooled)

    slopes = np.zeros_like(x)
    for n, d in np.ndindex(*x.shape):
        up, down = x.copy(), x.copy()
        up[n, d], down[n, d] = up[n, d] + step, down[n, d] - step
        slopes[n, d] = (logit(up) - logit(down)) / (2 * step)
    wanted = np.maximum(x @ slopes.mean(0), 0)
    assert wanted.max() > 0
    found = grad_cam(model, image, 2).numpy()
    assert found.shape == (4, 3)
    np.testing.assert_allclose(found.ravel(), wanted / wanted.sum(), atol=1e-6)
