"""Convolutions over positions, whole and step by step. B batch, N positions, C channels, W width of a kernel, H kernels."""

from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core import Positions
from ..core.masks import Full, Mask
from ..errors import SaccadeError
from ..settings import Range, Share
from .convolution import LastInputs
from .feedforward import initialize
from .mixers import Mixer, table

KernelWidth = Annotated[int, Range(1, 4096)]


class ConvolutionMixer(Mixer):
    """What convolutions share: the window of W positions is centered, or ends at its own position where the mask is causal."""

    any_mask = False
    width: int
    channels: int

    def inputs(self, x: Tensor) -> Tensor:
        """What is convolved: B N dim → B N C."""
        return x

    def convolve(self, inputs: Tensor, at: Tensor) -> Tensor:
        """B (N + W − 1) C, and the N positions among them that the windows belong to → B N dim."""
        raise NotImplementedError

    def mix(self, x: Tensor, mask: Mask | None, positions: Positions | None) -> Tensor:
        causal, real = direction_and_real(mask, x)
        inputs = self.inputs(x)
        if real is not None:  # padding is zeros, as what lies beyond the ends
            inputs = inputs * real.unsqueeze(-1).to(x.dtype)
        left = self.width - 1 if causal else self.width // 2
        return self.convolve(F.pad(inputs, (0, 0, left, self.width - 1 - left)), inputs)

    def start(self, x: Tensor) -> LastInputs:
        return LastInputs(x.new_zeros(x.shape[0], self.width - 1, self.channels))

    def step(
        self, x: Tensor, cache: LastInputs, mask: Mask | None, positions: Positions
    ) -> tuple[Tensor, LastInputs]:
        new = self.inputs(x)
        inputs = torch.cat([cache.inputs, new], 1)
        return self.convolve(inputs, new), LastInputs(
            inputs[:, inputs.shape[1] - (self.width - 1) :]
        )


def direction_and_real(
    mask: Mask | None, x: Tensor, who: str = "a convolution", instead: str = "mixer=attention"
) -> tuple[bool, Tensor | None]:
    """Whether a mask is causal, and which positions of x (B N …) it says are real, B N: None where all are."""
    parts = (False, Full()) if mask is None else mask.causal_and_keys()
    if parts is None:
        raise SaccadeError(
            f"{who} knows causal and padding masks alone, got {mask!r}; use {instead} for others",
            code="mask-not-supported",
        )
    causal, keys = parts
    if type(keys) is Full:
        return causal, None
    return causal, keys.dense(x.shape[0], 1, 1, x.shape[1], x.device)[:, 0, 0]


@table.add("light-convolution", paper="Wu et al. 2019", example={"width": 3})
class LightConvolution(ConvolutionMixer):
    """W₂ · conv(glu(W₁ x)): y_n = Σ_k softmax(w_h)_k x_(n+k), one kernel per head, the same at every position.

    `kernels` gives another number of kernels than heads, up to one per channel; `pointwise` puts another dim × dim matrix after the
    convolution, as in a separable one: with it a layer has attention's 4 dim² parameters. The code of Narang et al. 2021 has both, one
    kernel per channel and the matrix, and a width of 9.
    """

    def __init__(
        self,
        dim: int,
        heads: int = 8,
        width: KernelWidth = 7,
        kernel_dropout: Share = 0.0,
        kernels: Annotated[int | None, Range(1, 65_536)] = None,
        pointwise: bool = False,
    ) -> None:
        super().__init__()
        self.heads, self.width, self.kernel_dropout = kernels or heads, width, kernel_dropout
        self.channels = dim
        if self.heads < 1 or dim % self.heads:
            name = "heads" if kernels is None else "kernels"
            wrong = f"dim must be a multiple of {name}, got dim={dim} and {name}={self.heads}"
            raise SaccadeError(f"{wrong}; choose {name} that divide it", code="heads-do-not-divide")
        self.inner, self.outer = nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)
        self.pointwise = nn.Linear(dim, dim) if pointwise else None
        initialize(self.inner, self.outer, *([] if self.pointwise is None else [self.pointwise]))
        self.make_kernel(dim)

    def make_kernel(self, dim: int) -> None:
        self.kernel = nn.Parameter(torch.empty(self.heads, self.width))
        nn.init.xavier_uniform_(self.kernel)

    def inputs(self, x: Tensor) -> Tensor:
        return F.glu(self.inner(x))

    def convolve(self, inputs: Tensor, at: Tensor) -> Tensor:
        mixed = self.with_kernels(inputs, at)
        return self.outer(mixed if self.pointwise is None else self.pointwise(mixed))

    def with_kernels(self, inputs: Tensor, at: Tensor) -> Tensor:
        # C 1 W
        per_channel = (
            self.shares(self.kernel, inputs)
            .repeat_interleave(inputs.shape[-1] // self.heads, 0)
            .unsqueeze(1)
        )
        return F.conv1d(inputs.transpose(1, 2), per_channel, groups=inputs.shape[-1]).transpose(
            1, 2
        )

    def shares(self, kernel: Tensor, like: Tensor) -> Tensor:
        """Kernels (… W) as shares that sum to 1, of which training drops some."""
        shares = kernel.softmax(-1, dtype=torch.promote_types(kernel.dtype, torch.float32))
        return F.dropout(shares, self.kernel_dropout, self.training).to(like.dtype)


@table.add("dynamic-convolution", paper="Wu et al. 2019", example={"width": 3})
class DynamicConvolution(LightConvolution):
    """W₂ · conv(z), z = glu(W₁ x): y_n = Σ_k softmax(W_h z_n)_k z_(n+k), kernels computed at each position from its own input.

    The code of Narang et al. 2021 has one kernel per channel (`kernels`), a width of 9 and `pointwise`, and an MLP a sixth as wide.
    """

    def make_kernel(self, dim: int) -> None:
        self.to_kernels = nn.Linear(dim, self.heads * self.width, bias=False)
        initialize(self.to_kernels)

    def with_kernels(self, inputs: Tensor, at: Tensor) -> Tensor:
        # B N H W
        kernels = self.shares(self.to_kernels(at).unflatten(-1, (self.heads, self.width)), inputs)
        windows = inputs.unfold(1, self.width, 1).unflatten(2, (self.heads, -1))  # B N H C/H W
        return (windows @ kernels.unsqueeze(-1)).flatten(2)


class FullConvolution(ConvolutionMixer):
    """y_n = b + Σ_k W_k x_(n+k)"""

    def __init__(self, dim: int, out: int, width: int) -> None:
        super().__init__()
        self.width, self.channels = width, dim
        self.kernel = nn.Parameter(torch.empty(out, dim, width))
        self.bias = nn.Parameter(torch.zeros(out))
        nn.init.xavier_uniform_(self.kernel)

    def convolve(self, inputs: Tensor, at: Tensor) -> Tensor:
        return F.conv1d(inputs.transpose(1, 2), self.kernel, self.bias).transpose(1, 2)


class SeparableConvolution(ConvolutionMixer):
    """y_n = b + P Σ_k d_k ∘ x_(n+k): one kernel per channel, then a matrix."""

    def __init__(self, dim: int, out: int, width: int) -> None:
        super().__init__()
        self.width, self.channels = width, dim
        self.kernel, self.outer = nn.Parameter(torch.empty(dim, 1, width)), nn.Linear(dim, out)
        # keeps the variance
        nn.init.uniform_(self.kernel, -((3 / width) ** 0.5), (3 / width) ** 0.5)
        initialize(self.outer)

    def convolve(self, inputs: Tensor, at: Tensor) -> Tensor:
        return self.outer(
            F.conv1d(inputs.transpose(1, 2), self.kernel, groups=self.channels).transpose(1, 2)
        )
