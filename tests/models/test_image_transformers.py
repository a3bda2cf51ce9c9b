"""ViT and Swin against transformers' with the same random parameters, and what they do with other sizes, settings and inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from saccade.building import Builder, complete
from saccade.core import attend, record
from saccade.core.grids import ShiftedWindows
from saccade.errors import SaccadeError
from saccade.layers.images import table as grid_embeddings
from saccade.layers.residuals import DropPath
from saccade.models import Encoder, ImageEncoder, Swin, ViT

IMAGES = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def make(family: str, **changed: Any) -> Any:
    torch.manual_seed(1)
    return Builder({"family": family, **changed}).make(ImageEncoder).eval()


def randomize(model: nn.Module) -> nn.Module:
    """Every parameter so large that it matters."""
    torch.manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn_like(parameter))
    return model.eval()


def copy_block(block: Any, attention: Any, theirs: Any) -> None:
    """A layer of transformers into a block of ours."""
    pairs = [
        (attention.q, theirs.attention.q_proj),
        (attention.k, theirs.attention.k_proj),
        (attention.v, theirs.attention.v_proj),
        (attention.out, theirs.attention.o_proj),
        (block.around_mixer.norm, theirs.layernorm_before),
        (block.around_feedforward.norm, theirs.layernorm_after),
        (block.feedforward.inner, theirs.mlp.fc1),
        (block.feedforward.outer, theirs.mlp.fc2),
    ]
    for ours, given in pairs:
        ours.load_state_dict(given.state_dict())


def their_vit(**changed: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2}
    config = transformers.ViTConfig(image_size=16, patch_size=4, layer_norm_eps=1e-5, **sizes, **changed)
    return randomize(transformers.ViTModel(config, add_pooling_layer=False))


def like_vit(theirs: Any, **changed: Any) -> ViT:
    ours = make("vit", dim=16, hidden=24, depth=3, heads=2, image=16, patch=4, token=True, **changed)
    given = theirs.embeddings
    ours.embedding.stem.project.load_state_dict(given.patch_embeddings.projection.state_dict())
    with torch.no_grad():
        ours.embedding.token.copy_(given.cls_token[0, 0] + given.position_embeddings[0, 0])
        ours.embedding.grid.vectors.copy_(given.position_embeddings[0, 1:])
    for block, layer in zip(ours.encoder, theirs.layers, strict=True):
        copy_block(block, block.mixer, layer)
    ours.encoder.norm.load_state_dict(theirs.layernorm.state_dict())
    return ours


@torch.no_grad()
@pytest.mark.parametrize("size", [(16, 16), (24, 16), (32, 40)], ids=str)
def test_a_vit_is_that_of_transformers(size: tuple[int, int]) -> None:
    theirs = their_vit()
    ours, images = like_vit(theirs), torch.rand(2, 3, *size)
    expected = theirs(ours.normalized(images), interpolate_pos_encoding=size != (16, 16)).last_hidden_state[:, 1:]
    torch.testing.assert_close(ours(images), expected, atol=1e-5, rtol=1e-5)
    assert ours.grid(*size) == (size[0] // 4, size[1] // 4)


def their_swin(depths: list[int], window: int, patch: int) -> Any:
    transformers = pytest.importorskip("transformers")
    heads = [2 * 2**n for n in range(len(depths))]
    config = transformers.SwinConfig(
        image_size=32, patch_size=patch, embed_dim=8, depths=depths, num_heads=heads, window_size=window, mlp_ratio=2.0
    )
    return randomize(transformers.SwinModel(config, add_pooling_layer=False))


def like_swin(theirs: Any, depths: list[int], window: int, patch: int) -> Swin:
    ours = make("swin", dim=8, heads=2, depths=depths, window=window, patch=patch, ratio=2)
    ours.embedding.stem.stem.project.load_state_dict(theirs.embeddings.patch_embeddings.projection.state_dict())
    ours.embedding.stem.norm.load_state_dict(theirs.embeddings.norm.state_dict())
    for stage, given in zip(ours.encoder.stages, theirs.encoder.layers, strict=True):
        for block, layer in zip(stage.blocks, given.blocks, strict=True):
            attention = block.mixer.attention
            copy_block(block, attention, layer)
            with torch.no_grad():
                attention.mechanism.position.table.copy_(layer.attention.relative_position_bias.relative_position_bias_table)
        if stage.merge is not None:
            stage.merge.norm.load_state_dict(given.downsample.norm.state_dict())
            stage.merge.reduce.load_state_dict(given.downsample.reduction.state_dict())
    ours.encoder.norm.load_state_dict(theirs.layernorm.state_dict())
    return ours


@torch.no_grad()
@pytest.mark.parametrize(
    ("depths", "window", "patch", "size"),
    [
        ([2, 2], 4, 2, (16, 16)),  # shifted in the first stage, one window in the second
        ([2, 2, 2], 2, 2, (32, 32)),
        ([2, 2], 3, 2, (32, 40)),  # windows divide neither side: 16 × 20 and 8 × 10
        ([2, 3], 3, 4, (30, 45)),  # patches do not divide it, and an odd number of them is merged
        ([3, 1], 5, 1, (11, 13)),
    ],
    ids=str,
)
def test_a_swin_is_that_of_transformers(depths: list[int], window: int, patch: int, size: tuple[int, int]) -> None:
    theirs = their_swin(depths, window, patch)
    ours, images = like_swin(theirs, depths, window, patch), torch.rand(2, 3, *size)
    expected = theirs(ours.normalized(images)).last_hidden_state
    found = ours(images)
    rows, columns = ours.grid(*size)
    assert found.shape == (2, rows * columns, 8 * 2 ** (len(depths) - 1))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
