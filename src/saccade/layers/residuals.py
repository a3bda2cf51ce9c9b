"""Residual connections around parts of a block. A residual creates its own norm, or none."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from ..errors import SaccadeError
from ..registry import Table
from .dropouts import Dropout
from .feedforward import initialize

table: Table[type[Residual]] = Table(
    "residuals", "residual", facts=("norm", "dropout", "dim", "n", "depth", "role")
)
MakeNorm = Callable[[], nn.Module]


class Residual(nn.Module):
    """Base class of residual connections.

    Available facts: `norm` (a factory), `dropout`, `dim`, block number `n` of `depth`, and the `role` of the stack ("encoder",
    "decoder" or "alone").
    """

    final_norm = True  # a stack of these wants a norm after its last block

    def __init__(self, norm: MakeNorm, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm, self.dropout = norm(), Dropout(dropout)

    def initialize(self, part: nn.Module) -> None:
        """Called once with the wrapped part after its initialization."""

    def forward(self, x: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
        raise NotImplementedError


class DropPath(Dropout):
    """Dropout, and in training whole rows of the batch at 0 with probability `rate`, the others larger (stochastic depth, Huang et al. 2016)."""

    def __init__(self, p: float, rate: float) -> None:
        super().__init__(p)
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        x = super().forward(x)
        if not self.training or self.rate == 0.0:
            return x
        stays = torch.rand(len(x), *[1] * (x.dim() - 1), device=x.device) >= self.rate
        return x * (stays.to(x.dtype) / (1 - self.rate))


def drop_paths(blocks: Iterable[nn.Module], rate: float) -> None:
    """Adds stochastic depth to all residuals, with a rate growing from 0 in the first block to `rate` in the last."""
    every = list(blocks)
    for n, block in enumerate(every):
        for around in block.modules():
            if isinstance(around, Residual):
                around.dropout = DropPath(around.dropout.p, rate * n / max(len(every) - 1, 1))


@table.add("post-norm", paper="Vaswani et al. 2017")
class PostNorm(Residual):
    """norm(x + part(x))"""

    final_norm = False

    def forward(self, x: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
        return self.norm(x + self.dropout(part(x)))


@table.add("pre-norm", paper="Xiong et al. 2020")
class PreNorm(Residual):
    """x + part(norm(x))"""

    def forward(self, x: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
        return x + self.dropout(part(self.norm(x)))


@table.add("none")
class NoResidual(Residual):
    """part(norm(x)): nothing is carried around the part; a control, to see what residuals are for."""

    def forward(self, x: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
        return self.dropout(part(self.norm(x)))


@table.add("rezero", paper="Bachlechner et al. 2020")
class ReZero(Residual):
    """x + α · part(x) with a learned α that starts at 0: each block begins as the identity. With `normed`, part(norm(x))."""

    def __init__(self, norm: MakeNorm, dropout: float = 0.0, normed: bool = False) -> None:
        super().__init__(norm if normed else nn.Identity, dropout)
        self.final_norm = normed
        self.alpha = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
        return x + self.alpha.to(x.dtype) * self.dropout(part(self.norm(x)))


@table.add("gru-gate", paper="Dehghani et al. 2019 (code)")
class GruGate(Residual):
    """x + (1 − u) ∘ y + u ∘ c with y = part(norm(x)): a GRU's gates inside a pre-norm residual.

    u = σ(W [n(x); n(y)] + b), r likewise with weights of its own, and c = σ(V [n(r ∘ x); n(y)] + d), n being a norm of the gates' own.
    c has σ where a GRU has tanh. The Universal Transformer of Narang et al. 2021 has these gates around each part.
    """

    def __init__(self, norm: MakeNorm, dim: int, dropout: float = 0.0) -> None:
        super().__init__(norm, dropout)
        self.gate_norm = norm()
        self.update, self.reset, self.candidate = (nn.Linear(2 * dim, dim) for _ in range(3))
        initialize(self.update, self.reset, self.candidate)

    def forward(self, x: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
        y = part(self.norm(x))
        before, made = self.gate_norm(x), self.gate_norm(y)
        both = torch.cat([before, made], -1)
        update, reset = self.update(both).sigmoid(), self.reset(both).sigmoid()
        candidate = self.candidate(torch.cat([self.gate_norm(reset * x), made], -1)).sigmoid()
        return x + self.dropout((1 - update) * y + update * candidate)


def matrices(part: nn.Module) -> dict[str, nn.Parameter]:
    """The weights of a part's linear layers by name. Experts have one three-dimensional tensor."""
    found = {}
    for name, parameter in part.named_parameters():
        layer, *rest = name.split(".")
        if (parameter.dim() == 2 and rest == ["weight"]) or name in ("inner", "outer"):
            found[layer] = parameter
    return found


@table.add("fixup", paper="Zhang et al. 2019")
class Fixup(Residual):
    """x + scale · part(x + a) + b without a norm: learned scalars scale, a and b, from 1, 0 and 0, and an initialization by depth.

    The last linear layer of each part starts at 0, so that a block begins as the identity, and the m − 1 others are drawn L^(−1/(2m−2))
    times as large as usual: L residuals in the model, m = 4 matrices in attention and 2 in an MLP (where the paper wants scalar
    biases inside a part, its layers have biases of their own). L is 2 per block, and 5 for a block of the encoder and one of the decoder.
    """

    final_norm = False

    def __init__(self, dropout: float = 0.0, depth: int = 1, role: str = "alone") -> None:
        super().__init__(nn.Identity, dropout)
        self.count = (2 if role == "alone" else 5) * depth
        self.before, self.after = nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(()))
        self.scale = nn.Parameter(torch.ones(()))

    @torch.no_grad()
    def initialize(self, part: nn.Module) -> None:
        last = [
            one
            for name, one in part.named_parameters()
            if name.split(".")[0] in ("out", "outer", "outer_bias")
        ]
        layers = matrices(part)
        if not last or len(layers) < 2:
            wrong = f"{type(part).__name__} has no last linear layer named `out` or `outer` after others"
            raise SaccadeError(
                f"expected a part whose last layer fixup can start at 0, and {wrong}; choose residual=rezero",
                code="parts-do-not-combine",
            )
        for layer in layers.values():
            layer.mul_(self.count ** (-1 / (2 * len(layers) - 2)))
        for parameter in last:
            nn.init.zeros_(parameter)

    def forward(self, x: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
        before, scale, after = (one.to(x.dtype) for one in (self.before, self.scale, self.after))
        return x + scale * self.dropout(part(x + before)) + after


@table.add("deepnorm", paper="Wang et al. 2022 (DeepNet)")
class DeepNorm(Residual):
    """norm(α x + part(x)): a large α and small weights at first keep the updates of hundreds of layers small.

    The weights of the feed-forward part and of the projections to values and outputs are drawn β times as large as Xavier's:

        N layers alone                α = (2N)^¼                β = (8N)^−¼
        an encoder of N, decoder M    α = 0.81 (N⁴M)^(1/16)     β = 0.87 (N⁴M)^(−1/16)
        a decoder of M                α = (3M)^¼                β = (12M)^−¼
    """

    final_norm = False
    choosing = ("q", "k", "router")  # layers that decide where to look, which keep their size

    def __init__(
        self, norm: MakeNorm, dropout: float = 0.0, depth: int = 1, role: str = "alone"
    ) -> None:
        super().__init__(norm, dropout)
        self.alpha, self.beta = {
            "alone": ((2 * depth) ** 0.25, (8 * depth) ** -0.25),
            # both stacks have the same depth
            "encoder": (0.81 * depth ** (5 / 16), 0.87 * depth ** (-5 / 16)),
            "decoder": ((3 * depth) ** 0.25, (12 * depth) ** -0.25),
        }[role]

    @torch.no_grad()
    def initialize(self, part: nn.Module) -> None:
        for name, layer in matrices(part).items():
            if name not in self.choosing:
                layer.mul_(self.beta)

    def forward(self, x: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
        return self.norm(self.alpha * x + self.dropout(part(x)))
