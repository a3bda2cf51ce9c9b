"""ViT and Swin against transformers' and timm's with the same random parameters, and what they do with other sizes, settings and inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.support import raises
from torch import Tensor, nn

from saccade.config.recipes import recipe
from saccade.core import attend, record
from saccade.core.window_masks import ShiftedWindows
from saccade.errors import SaccadeError
from saccade.layers.image_inputs import table as grid_embeddings
from saccade.layers.pooling import pools
from saccade.layers.residuals import DropPath
from saccade.models import Encoder, ImageEncoder, Swin, ViT
from saccade.models.builder import Builder, complete
from saccade.models.classifiers import ImageClassifier
from saccade.models.cnn import ResidualBlock
from saccade.models.protocols import maps_of
from saccade.settings import Choice

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
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
    }
    config = transformers.ViTConfig(
        image_size=16, patch_size=4, layer_norm_eps=1e-5, **sizes, **changed
    )
    return randomize(transformers.ViTModel(config, add_pooling_layer=False))


def like_vit(theirs: Any, **changed: Any) -> ViT:
    ours = make("vit", dim=16, hidden=24, depth=3, heads=2, image=16, patch=4, **changed)
    ours.add_token()
    return copy_vit(ours, theirs)


def copy_vit(ours: Any, theirs: Any) -> ViT:
    """The parameters of transformers' into ours."""
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
    expected = theirs(
        ours.normalized(images), interpolate_pos_encoding=size != (16, 16)
    ).last_hidden_state
    torch.testing.assert_close(ours(images), expected, atol=1e-5, rtol=1e-5)
    assert ours.grid(*size) == (size[0] // 4, size[1] // 4)


def classifier(body: Any, pool: str, head: nn.Linear) -> ImageClassifier:
    made = ImageClassifier(body, Choice(pools[pool])(dim=body.dim, vocab=1), head.out_features)
    made.head.load_state_dict(head.state_dict())
    return made.eval()


@torch.no_grad()
def test_logits_from_the_class_token_are_those_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
    }
    config = transformers.ViTConfig(
        image_size=16, patch_size=4, layer_norm_eps=1e-5, num_labels=5, **sizes
    )
    theirs = randomize(transformers.ViTForImageClassification(config))
    ours = classifier(
        make("vit", dim=16, hidden=24, depth=3, heads=2, image=16, patch=4),
        "token",
        theirs.classifier,
    )
    copy_vit(ours.body, theirs.vit)
    torch.testing.assert_close(
        ours(IMAGES), theirs(ours.body.normalized(IMAGES)).logits, atol=1e-5, rtol=1e-5
    )
    torch.testing.assert_close(
        ours.weights(IMAGES), torch.eye(17)[:1].expand(2, -1), msg="nothing but the token"
    )


def copy_timm_block(block: Any, attention: Any, theirs: Any) -> None:
    """A block of timm's, whose queries, keys and values are one matrix, into one of ours."""
    for n, part in enumerate((attention.q, attention.k, attention.v)):
        part.load_state_dict(
            {name: one.chunk(3)[n] for name, one in theirs.attn.qkv.state_dict().items()}
        )
    pairs = [
        (attention.out, theirs.attn.proj),
        (block.around_mixer.norm, theirs.norm1),
        (block.around_feedforward.norm, theirs.norm2),
        (block.feedforward.inner, theirs.mlp.fc1),
        (block.feedforward.outer, theirs.mlp.fc2),
    ]
    for ours, given in pairs:
        ours.load_state_dict(given.state_dict())


@torch.no_grad()
@pytest.mark.parametrize("pool", ["token", "mean"])
def test_a_classifier_is_timms_with_each_readout(pool: str) -> None:
    timm = pytest.importorskip("timm.models.vision_transformer", exc_type=ImportError)
    how = {
        "token": {"global_pool": "token"},
        "mean": {"global_pool": "avg", "class_token": False, "fc_norm": False},
    }[pool]
    sizes = {
        "img_size": 16,
        "patch_size": 4,
        "embed_dim": 16,
        "depth": 3,
        "num_heads": 2,
        "mlp_ratio": 1.5,
        "num_classes": 5,
    }
    theirs = randomize(timm.VisionTransformer(norm_layer=nn.LayerNorm, **sizes, **how))
    ours = classifier(
        make("vit", dim=16, hidden=24, depth=3, heads=2, image=16, patch=4), pool, theirs.head
    )
    ours.body.embedding.stem.project.load_state_dict(theirs.patch_embed.proj.state_dict())
    ours.body.embedding.grid.vectors.copy_(theirs.pos_embed[0, -16:])
    if pool == "token":
        ours.body.embedding.token.copy_(theirs.cls_token[0, 0] + theirs.pos_embed[0, 0])
    for block, layer in zip(ours.body.encoder, theirs.blocks, strict=True):
        copy_timm_block(block, block.mixer, layer)
    ours.body.encoder.norm.load_state_dict(theirs.norm.state_dict())
    torch.testing.assert_close(
        ours(IMAGES), theirs(ours.body.normalized(IMAGES)), atol=1e-5, rtol=1e-5
    )


def their_swin(depths: list[int], window: int, patch: int) -> Any:
    transformers = pytest.importorskip("transformers")
    heads = [2 * 2**n for n in range(len(depths))]
    config = transformers.SwinConfig(
        image_size=32,
        patch_size=patch,
        embed_dim=8,
        depths=depths,
        num_heads=heads,
        window_size=window,
        mlp_ratio=2.0,
    )
    return randomize(transformers.SwinModel(config, add_pooling_layer=False))


def like_swin(theirs: Any, depths: list[int], window: int, patch: int) -> Swin:
    ours = make("swin", dim=8, heads=2, depths=depths, window_size=window, patch=patch, ratio=2)
    ours.embedding.stem.stem.project.load_state_dict(
        theirs.embeddings.patch_embeddings.projection.state_dict()
    )
    ours.embedding.stem.norm.load_state_dict(theirs.embeddings.norm.state_dict())
    for stage, given in zip(ours.encoder.stages, theirs.encoder.layers, strict=True):
        for block, layer in zip(stage.blocks, given.blocks, strict=True):
            attention = block.mixer
            copy_block(block, attention, layer)
            with torch.no_grad():
                attention.mechanism.position.table.copy_(
                    layer.attention.relative_position_bias.relative_position_bias_table
                )
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
def test_a_swin_is_that_of_transformers(
    depths: list[int], window: int, patch: int, size: tuple[int, int]
) -> None:
    theirs = their_swin(depths, window, patch)
    ours, images = like_swin(theirs, depths, window, patch), torch.rand(2, 3, *size)
    expected = theirs(ours.normalized(images)).last_hidden_state
    found = ours(images)
    rows, columns = ours.grid(*size)
    assert found.shape == (2, rows * columns, 8 * 2 ** (len(depths) - 1))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    how = {"output_hidden_states": True, "output_hidden_states_before_downsampling": True}
    # first the patches
    _, *expected = theirs(ours.normalized(images), **how).reshaped_hidden_states
    *between, last = ours.feature_maps(images)
    assert len(between) == len(depths) - 1
    for one, other in zip(between, expected, strict=False):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(last.flatten(2).mT, found, rtol=0, atol=0)


@torch.no_grad()
@pytest.mark.parametrize(("depths", "window"), [([2, 2, 2], 2), ([2, 1], 4)], ids=str)
def test_feature_maps_of_a_swin_are_timms(depths: list[int], window: int) -> None:
    timm = pytest.importorskip("timm.models.swin_transformer", exc_type=ImportError)
    heads, size = (
        [2 * 2**n for n in range(len(depths))],
        {"img_size": 32, "patch_size": 2, "window_size": window, "embed_dim": 8},
    )
    theirs = randomize(
        timm.SwinTransformer(depths=depths, num_heads=heads, mlp_ratio=2.0, num_classes=3, **size)
    )
    ours: Any = make("swin", dim=8, heads=2, depths=depths, window_size=window, patch=2, ratio=2)
    ours.embedding.stem.stem.project.load_state_dict(theirs.patch_embed.proj.state_dict())
    ours.embedding.stem.norm.load_state_dict(theirs.patch_embed.norm.state_dict())
    for n, (stage, given) in enumerate(zip(ours.encoder.stages, theirs.layers, strict=True)):
        for block, layer in zip(stage.blocks, given.blocks, strict=True):
            copy_timm_block(block, block.mixer, layer)
            block.mixer.mechanism.position.table.copy_(layer.attn.relative_position_bias_table)
        # timm merges at the beginning of a stage, and reads the four positions in another order
        if n:
            merge, theirs_merge = ours.encoder.stages[n - 1].merge, given.downsample
            merge.norm.load_state_dict(theirs_merge.norm.state_dict())
            merge.reduce.load_state_dict(theirs_merge.reduction.state_dict())
    ours.encoder.norm.load_state_dict(theirs.norm.state_dict())
    images = torch.rand(2, 3, 32, 32)
    last, between = theirs.forward_intermediates(ours.normalized(images), norm=False)
    found = ours.feature_maps(images)
    assert [tuple(one.shape) for one in found] == [
        (2, 8 * 2**n, 16 >> n, 16 >> n) for n in range(len(depths))
    ]
    for one, other in zip(found[:-1], between[:-1], strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found[-1].movedim(1, -1), last, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_cnn_is_the_resnet_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {
        "embedding_size": 8,
        "hidden_sizes": [8, 16, 32],
        "depths": [2, 1, 2],
        "layer_type": "basic",
    }
    theirs = randomize(transformers.ResNetModel(transformers.ResNetConfig(**sizes)))
    ours: Any = make("cnn", dim=8, depths=[2, 1, 2])
    blocks = [block for block in ours.encoder if isinstance(block, ResidualBlock)]
    layers = [layer for stage in theirs.encoder.stages for layer in stage.layers]
    for block, layer in zip(blocks, layers, strict=True):
        first, second = layer.layer
        pairs = [(block.first, first.convolution), (block.first_norm, first.normalization)]
        pairs += [(block.second, second.convolution), (block.second_norm, second.normalization)]
        if len(block.state_dict()) > 12:
            pairs += [
                (block.shortcut[0], layer.shortcut.convolution),
                (block.shortcut[1], layer.shortcut.normalization),
            ]
        for one, given in pairs:
            one.load_state_dict(given.state_dict())
    x = torch.randn(2, 8, 16, 12)
    expected = theirs.encoder(x, output_hidden_states=True).hidden_states[1:]
    for one, other in zip(maps_of(ours.encoder, x), expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
    # with ten labels the 11,173,962 parameters of github.com/kuangliu/pytorch-cifar
    published = make("cnn")
    assert sum(one.numel() for one in published.parameters()) + 512 * 10 + 10 == 11_173_962


@torch.no_grad()
@pytest.mark.parametrize(
    ("family", "settings", "shapes"),
    [
        (
            "cnn",
            {"dim": 4, "depths": [2, 1, 1], "stage_attention": "cbam"},
            [(4, 20, 12), (8, 10, 6), (16, 5, 3)],
        ),
        ("efficientnet-lite0", {"stages": 3}, [(16, 10, 6), (24, 5, 3), (40, 3, 2)]),
        ("vit", {"dim": 8, "hidden": 8, "depth": 1, "heads": 2}, [(8, 5, 3)]),
        ("group-cnn", {"dim": 4, "depth": 2}, [(4, 10, 6)]),
    ],
)
def test_every_encoder_of_images_has_the_maps_of_its_resolutions(
    family: str, settings: dict[str, Any], shapes: list[tuple[int, int, int]]
) -> None:
    body, images = make(family, **settings), torch.rand(2, 3, 20, 12)
    maps = body.feature_maps(images)
    assert [tuple(one.shape[1:]) for one in maps] == shapes
    torch.testing.assert_close(maps[-1].flatten(2).mT, body(images))
    x = images
    if family == "cnn":  # the output of the first stage, by hand
        x = body.embedding(body.normalized(images))
        for layer in body.encoder[:3]:
            x = layer(x)
        torch.testing.assert_close(maps[0], x)


# --- what a user sees


@pytest.mark.parametrize("family", ["vit", "swin", "cnn", "efficientnet-lite0"])
def test_an_encoder_of_images_is_none_of_texts(family: str) -> None:
    with pytest.raises(SaccadeError) as error:
        Builder({"family": family}).make(Encoder, 9)
    assert str(error.value).startswith(
        f"model.family is '{family}', which is not an encoder; choose one of: bag, "
    )
    assert family not in str(error.value).partition("choose")[2]
    with raises("family-not-supported"):
        Builder({"family": "bag"}).make(ImageEncoder)


@pytest.mark.parametrize(
    "shape", [(3, 16, 16), (2, 1, 16, 16), (2, 16, 16, 3), (2, 3, 0, 16)], ids=str
)
def test_what_is_no_batch_of_images_is_refused(shape: tuple[int, ...]) -> None:
    with raises("image-shape"):
        make("vit", dim=8, depth=1)(torch.rand(shape))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"family": "swin", "dim": 10, "heads": 4},
            "model.dim=10 is not a multiple of model.heads=4; choose heads",
        ),
        (
            {"family": "swin", "depths": []},
            "model.depths is []; its numbers must lie between 1 and 100, at least one",
        ),
        (
            {"family": "swin", "depths": [2, 0]},
            "model.depths is [2, 0]; its numbers must lie between 1 and 100",
        ),
        (
            {"family": "swin", "depths": [2, "x"]},
            "model.depths is [2, 'x']; it must be a list of whole numbers",
        ),
        ({"family": "swin", "depths": 2}, "model.depths is 2; it must be a list"),
        (
            {"family": "swin", "depths": [1] * 9},
            "model.depths has 9 stages, each twice as wide as the one before; choose at most 8",
        ),
        (
            {"family": "cnn", "depths": [1] * 9},
            "model.depths has 9 stages, each twice as wide as the one before; choose at most 8",
        ),
        (
            {"family": "vit", "stem": "convolution", "patch": 3},
            "model.stem=convolution halves images and doubles widths, got model.",
        ),
        (
            {"family": "vit", "dim": 30, "heads": 2, "grid_embedding": "sinusoidal"},
            "sinusoids of rows and columns need a width that",
        ),
        (
            {"family": "vit", "position": "syntax"},
            "model.position=syntax needs the parse trees of tagging data",
        ),
        (
            {"family": "cnn", "attention": {"name": "cbam", "width": 4}},
            "expected an odd width of cbam's convolution, got 4; choose 3",
        ),
    ],
    ids=str,
)
def test_wrong_settings_are_answered_with_sentences(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SaccadeError) as error:
        Builder(values).make(ImageEncoder)
    assert str(error.value).startswith(sentence)


@pytest.mark.parametrize(
    ("family", "name", "value"),
    [
        ("vit", "tied", False),
        ("vit", "embedding", "tokens"),
        ("vit", "position_embedding", "learned"),
        ("vit", "pool", "mean"),
    ],
)
def test_a_setting_of_texts_has_no_effect_on_images(family: str, name: str, value: Any) -> None:
    with pytest.raises(
        SaccadeError, match=rf"model\.{name} has no effect on this {family}; leave it out"
    ):
        complete({"family": family, name: value}, lambda builder: builder.make(ImageEncoder))


CHANGES = [
    (
        "vit",
        {"dim": 8, "hidden": 8, "depth": 2, "heads": 2},
        {"image": 16},
        {"patch": 8},
        {"stem": "convolution"},
    ),
    (
        "swin",
        {"dim": 8, "heads": 2, "depths": [2]},
        {"window_size": 2},
        {"ratio": 2},
        {"patch": 2},
        {"relative_bias": False},
        {"stem": "convolution"},
    ),
    (
        "cnn",
        {"dim": 8, "depths": [1, 1]},
        {"stem_stride": 2},
        {"attention": "cbam"},
        {"stage_attention": "squeeze-excite"},
    ),
    ("efficientnet-lite0", {"stages": 2}, {"stages": 3}),
]


@torch.no_grad()
@pytest.mark.parametrize(
    ("family", "base", "changed"),
    [(family, base, change) for family, base, *every in CHANGES for change in every],
    ids=str,
)
def test_a_changed_setting_changes_what_comes_out(
    family: str, base: dict[str, Any], changed: dict[str, Any]
) -> None:
    one, other = (
        make(family, **values)(IMAGES.repeat(1, 1, 2, 2)) for values in (base, {**base, **changed})
    )
    assert one.shape != other.shape or not torch.allclose(one, other)


@pytest.mark.parametrize(("family", "base"), [row[:2] for row in CHANGES[:2]], ids=str)
def test_whole_rows_leave_a_block_out_in_training_alone(family: str, base: dict[str, Any]) -> None:
    model, plain = make(family, **base, drop_path=0.5), make(family, **base)
    assert torch.equal(model(IMAGES), plain(IMAGES))
    drops = [module for module in model.modules() if isinstance(module, DropPath)]
    assert [drop.rate for drop in drops] == [0.0, 0.0, 0.5, 0.5], "never in the first block"
    x = torch.ones(4000, 2, 3)
    kept = drops[-1].train()(x)[:, 0, 0]
    assert set(kept.tolist()) == {0.0, 2.0}
    assert 0.45 < (kept > 0).float().mean() < 0.55
    torch.testing.assert_close(drops[-1](x).std((1, 2)), torch.zeros(4000))


@torch.no_grad()
def test_attention_of_both_can_be_looked_at() -> None:
    model = make("vit", dim=8, hidden=8, depth=2, heads=2)
    model.add_token()
    with record(model) as seen:
        model(IMAGES)
    assert seen["encoder.1.mixer"].weights().shape == (2, 2, 17, 17), "16 patches and the token"
    model = make("swin", dim=8, heads=2, depths=[2], patch=2, window_size=4)
    with record(model) as seen:
        model(IMAGES)
    # 4 windows of 16 places in each image
    weights = seen["encoder.stages.0.blocks.1.mixer"].weights().unflatten(0, (2, 4))
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 2, 16))
    # the last of the shifted windows holds corners of the image that are no neighbors: four groups that see themselves alone
    groups = torch.tensor([2 * (n // 4 >= 2) + (n % 4 >= 2) for n in range(16)])
    assert ((weights[:, 3] > 0) == (groups[:, None] == groups)).all()
    assert (weights[:, 0] > 0).all()


@torch.no_grad()
def test_weights_within_windows_become_weights_between_all_positions() -> None:
    model = make("swin", dim=8, heads=2, depths=[2], patch=2, window_size=3)
    images = torch.rand(2, 3, 10, 14)  # 5 × 7 positions, which windows do not divide
    with record(model) as seen:
        model(images)
    for name, shifted in (
        ("encoder.stages.0.blocks.0.mixer", False),
        ("encoder.stages.0.blocks.1.mixer", True),
    ):
        look = seen[name].calls[0]
        found = look.positions.spread(look.weights(), shifted)
        assert found.shape == (2, 2, 35, 35)
        # shifted by one, windows begin at −2, 1, 4 …
        at = [((n // 7 + 2 * shifted) // 3, (n % 7 + 2 * shifted) // 3) for n in range(35)]
        same = torch.tensor([[one == other for other in at] for one in at])
        assert ((found > 0) == same).all()
        assert (found.sum(-1) < 1 + 1e-5).all()
        # its window has no padding in either block
        torch.testing.assert_close(found.sum(-1)[:, :, 8], torch.ones(2, 2))


@pytest.mark.parametrize("family", ["swin", "cnn", "group-cnn"])
def test_only_a_vit_has_a_class_token(family: str) -> None:
    values = {"task": "image-classification", "model": {"family": family, "pool": "token"}}
    with raises("pool-not-supported"):
        recipe(values)
    with raises("unknown-setting"):
        recipe({"task": "image-classification", "model": {"family": "vit", "token": True}})


def test_windows_that_do_not_fit_are_refused() -> None:
    with raises("windows-do-not-fit"):
        ShiftedWindows((4, 6), (3, 3), (1, 1))
    q = torch.rand(3, 1, 4, 2)
    with raises("windows-do-not-fit"):
        attend(q, q, q, mask=ShiftedWindows((4, 4), (2, 2), (1, 1)))


# --- grid embeddings


def sinusoids_by_loops(dim: int, rows: int, columns: int) -> Tensor:
    found = torch.zeros(dim, rows, columns)
    for row in range(rows):
        for column in range(columns):
            for half, at in enumerate((row, column)):
                for k in range(dim // 4):
                    angle = torch.tensor(at / 10000 ** (4 * k / dim))
                    found[half * dim // 2 + 2 * k, row, column] = angle.sin()
                    found[half * dim // 2 + 2 * k + 1, row, column] = angle.cos()
    return found


@torch.no_grad()
def test_every_grid_embedding_is_its_formula() -> None:
    x, facts = torch.randn(2, 8, 3, 5), {"dim": 8, "rows": 3, "columns": 5}
    expected = {
        "none": lambda part: x,
        "learned": lambda part: x + part.vectors.view(3, 5, 8).permute(2, 0, 1),
        "sinusoidal": lambda part: x + sinusoids_by_loops(8, 3, 5),
    }
    assert set(expected) == set(grid_embeddings.names())
    for name, formula in expected.items():
        part = Choice(grid_embeddings[name])(**facts)
        torch.testing.assert_close(part(x), formula(part))
