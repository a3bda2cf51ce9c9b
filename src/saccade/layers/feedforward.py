"""The part of a block that works on each place by itself."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

from ..core.table import Table

activations: Table[Callable[[Tensor], Tensor]] = Table("activations", "activation")


@activations.add("relu", paper="Nair & Hinton 2010", system="B1")
def relu(x: Tensor) -> Tensor:
    """max(x, 0)"""
    return F.relu(x)


@activations.add("gelu", paper="Hendrycks & Gimpel 2016", system="N")
def gelu(x: Tensor) -> Tensor:
    """x Φ(x), Φ the normal distribution function"""
    return F.gelu(x)


class MLP(nn.Module):
    """W₂ activation(W₁ x + b₁) + b₂"""

    def __init__(self, dim: int, hidden: int, activation: Callable[[Tensor], Tensor] = relu, dropout: float = 0.0) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(dim, hidden), nn.Linear(hidden, dim)
        self.activation, self.dropout = activation, nn.Dropout(dropout)
        for layer in (self.inner, self.outer):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.dropout(self.activation(self.inner(x))))
