"""What a forward pass leaves besides its output: costs that join the loss (balance of experts, halting, activations kept small), and
the log-probabilities of choices that were sampled (hard attention).

A layer calls `x = leave(x, "balance", cost)`; whoever computes a loss opens `with collect() as left:` around the forward pass and adds
`left.total(tokens)`. While nobody collects, `leave` returns x as it is and costs nothing.

The other way round, `collect(target)` passes to a head what the loss asks for: a head that finds log p of the targets without computing
those of all tokens asks `wanted(x)`, and answers with one number per target instead of one per token of the vocabulary.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from .masks import may_read


class Join(torch.autograd.Function):
    """The identity on x and a cost, as one node of the graph, whose backward runs when the gradients of both have arrived: FSDP2
    gathers a block's parameters when its output's gradient arrives, and a cost by a path of its own would come before them."""

    @staticmethod
    def forward(x: Tensor, cost: Tensor) -> tuple[Tensor, Tensor]:
        return x.view_as(x), cost.view_as(cost)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None: ...

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        return gradients


class Left:
    """The costs of one forward pass, by name: a scalar (the cost per token of the whole batch) or B numbers (per token of each row)."""

    def __init__(self, target: Tensor | None = None) -> None:
        self.target = target
        self.costs: list[tuple[str, Tensor]] = []
        self.samples: list[tuple[str, Tensor]] = []  # log-probabilities of the choices that each row made, B

    def total(self, tokens: Tensor, repeats: int = 1) -> Tensor | float:
        """Σ of all costs over the tokens of each row (B), so that they add up as the token loss does; the pass has the batch `repeats` times."""
        each = tokens.repeat(repeats)
        parts = [(cost * each).sum() / repeats if cost.dim() else cost * tokens.sum() for _, cost in self.costs]
        return sum(parts, 0.0)


_open: list[Left] = []


def leave(x: Tensor, name: str, cost: Tensor) -> Tensor:
    """x unchanged; `cost` joins the loss that is being computed, if one is."""
    return keep(x, name, cost, _open[-1].costs) if _open else x


def wanted(x: Tensor) -> Tensor | None:
    """The one token for each row of x (… dim) whose log p is all that the loss needs; None where all logits are needed, or where sizes
    may not depend on numbers."""
    if not may_read() or not _open or _open[-1].target is None:
        return None
    return _open[-1].target if _open[-1].target.shape == x.shape[:-1] else None


def leave_sample(x: Tensor, name: str, log_prob: Tensor) -> Tensor:
    """x unchanged; the choices that each row (B) made are learned by how much better than others its loss is (REINFORCE)."""
    return keep(x, name, log_prob, _open[-1].samples) if _open else x


def keep(x: Tensor, name: str, value: Tensor, kept: list[tuple[str, Tensor]]) -> Tensor:
    """x, joined with a value that is kept."""
    x, value = Join.apply(x, value.float())
    kept.append((name, value))
    return x


@contextmanager
def collect(target: Tensor | None = None) -> Iterator[Left]:
    """Within the `with`, what `leave` is called with is kept; a `target` is what the loss needs log p of, and of nothing else."""
    left = Left(target)
    _open.append(left)
    try:
        yield left
    finally:
        _open.pop()
