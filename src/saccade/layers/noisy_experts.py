"""Experts whose router is noisy in training, with costs that keep all of them in use. T tokens, E experts."""

from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import SaccadeError
from ..settings import Range
from .feedforward import RELU, Activating, Experts, table


@table.add("noisy-experts", paper="Shazeer et al. 2017", example={"count": 4, "top": 2})
class NoisyExperts(Experts):
    """Σ of `top` of `count` MLPs by softmax(the `top` largest of h), h = W x + ε · softplus(W' x), ε normal, 0 outside training.

    Two costs join the loss: `importance` · CV(Σ_x gates)² and `load` · CV(Σ_x P(x, e))², CV being the standard deviation over the mean
    of the experts' numbers, and P(x, e) the probability that e is among the `top` if its own noise is drawn again.
    """

    only_in_training = ("noise.weight",)  # parameters that nothing else depends on

    def __init__(
        self,
        dim: int,
        hidden: int,
        dropout: float = 0.0,
        count: Annotated[int, Range(3, 4096)] = 8,
        top: Annotated[int, Range(2, 64)] = 2,
        capacity: Annotated[float, Range(0.1, 4096.0)] = 2.0,
        importance: Annotated[float, Range(0.0, 100.0)] = 0.01,
        load: Annotated[float, Range(0.0, 100.0)] = 0.01,
        activation: Activating = RELU,
    ) -> None:
        if top >= count:
            raise SaccadeError(
                f"top must be below count, got {top} of {count} experts; choose fewer, or the feedforward 'experts'",
                code="experts-out-of-range",
            )
        super().__init__(dim, hidden, dropout, count, top, capacity, 0.0, activation)
        self.importance, self.load = importance, load
        self.noise = nn.Linear(dim, count, bias=False)
        for layer in (self.router, self.noise):  # all experts alike at first, chosen by noise
            nn.init.zeros_(layer.weight)

    def route(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        clean = self.router(tokens)
        clean = clean.to(torch.promote_types(clean.dtype, torch.float32))
        if not self.training:
            fits, chosen = clean.topk(self.top, -1)
            return fits.softmax(-1), chosen, None
        spread = F.softplus(self.noise(tokens).to(clean.dtype))
        noisy = clean + torch.randn_like(clean) * spread
        largest, order = noisy.topk(self.top + 1, -1)
        gates, chosen = largest[:, :-1].softmax(-1), order[:, :-1]
        cost = self.importance * squared_variation(
            torch.zeros_like(clean).scatter(-1, chosen, gates).sum(0)
        )
        return (
            gates,
            chosen,
            cost
            + self.load * squared_variation(self.chances(clean, noisy, spread, largest).sum(0)),
        )

    def chances(self, clean: Tensor, noisy: Tensor, spread: Tensor, largest: Tensor) -> Tensor:
        """P(x, e), T E: Φ of how far W x is above what e must exceed, the `top`-th largest of the others."""
        last, next_one = largest[:, -2:-1], largest[:, -1:]
        bar = torch.where(noisy >= last, next_one, last)
        return torch.special.ndtr((clean - bar) / spread.clamp_min(1e-6))


def squared_variation(numbers: Tensor) -> Tensor:
    """The squared coefficient of variation: 0 where all are alike."""
    return numbers.var(correction=0) / numbers.mean().square().clamp_min(1e-10)
