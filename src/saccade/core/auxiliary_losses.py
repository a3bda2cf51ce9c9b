"""What a forward pass leaves besides its output: costs that join the loss (balance of experts, halting, activations kept small), the
log-probabilities of choices that were sampled (hard attention), and the weights over a source where the loss asks for them.

A layer calls `x = leave(x, "balance", cost)`; whoever computes a loss opens `with collect() as left:` around the forward pass and adds
`left.total(tokens)`. While nobody collects, `add_loss` returns x as it is and costs nothing.

The other way round, `collect(target)` passes to a head what the loss asks for: a head that finds log p of the targets without computing
those of all tokens asks `wanted(x)`, and answers with one number per target instead of one per token of the vocabulary; one that finds
the targets' losses without keeping all logits asks `asked(x)`, and answers with −loss of each.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .tracing import can_sync


class Join(torch.autograd.Function):
    """The identity on x and what is left, as one node of the graph, whose backward runs when the gradients of all have arrived: FSDP2
    gathers a block's parameters when its output's gradient arrives, and a cost by a path of its own would come before them."""

    @staticmethod
    def forward(*tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None: ...

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        return gradients


@dataclass(eq=False)
class Sample:
    """Choices that one call sampled: log-probabilities (B Q, summed over heads, 0 where nothing was sampled), entropies of what they were
    sampled from (B Q), and which rows sampled (B). Where `in_order`, query t is output first + t and changes none before it."""

    owner: Any  # has `estimate(samples, losses, counted)`
    log_prob: Tensor
    entropy: Tensor
    rows: Tensor
    first: int = 0
    in_order: bool = False


@dataclass(frozen=True, eq=False)
class Weights:
    """The weights of one call over a source (B Q K, the mean over heads), and which positions some query may look at (B|1 K)."""

    site: Any
    values: Tensor
    there: Tensor | None
    first: int


class Collected:
    """What one forward pass leaves. A cost is a scalar (per token of the whole batch) or B numbers (per token of each row)."""

    def __init__(
        self,
        target: Tensor | None = None,
        asks_weights: bool = False,
        ignore: int = -100,
        smoothing: float = 0.0,
    ) -> None:
        self.target, self.asks_weights, self.ignore, self.smoothing = (
            target,
            asks_weights,
            ignore,
            smoothing,
        )
        self.costs: list[tuple[str, Tensor]] = []
        self.samples: list[Sample] = []
        self.weights: list[Weights] = []
        self.drawn: dict[Any, Tensor] = {}

    def total(self, tokens: Tensor, repeats: int = 1) -> Tensor | float:
        """Σ of all costs over the tokens of each row (B), so that they add up as the token loss does; the pass has the batch `repeats` times."""
        each = tokens.repeat(repeats)
        parts = [
            (cost * each).sum() / repeats if cost.dim() else cost * tokens.sum()
            for _, cost in self.costs
        ]
        return sum(parts, 0.0)

    def estimate(self, losses: Tensor, counted: Tensor) -> Tensor | float:
        """What gives the sampled choices their gradient, from each token's loss (B T) where it counts: see `normalizers.Hard`."""
        owners: dict[int, list[Sample]] = {}
        for one in self.samples:
            owners.setdefault(id(one.owner), []).append(one)
        return sum((some[0].owner.estimate(some, losses, counted) for some in owners.values()), 0.0)

    def doubly_stochastic_penalty(self, counted: Tensor) -> Tensor | float:
        """Σ_i (1 − Σ_t α_ti)² over the positions i of each row's source and the outputs t that count (B T), the mean over the layers that
        look at it: 0 where every position is looked at once in all (Xu et al. 2015, eq. 14)."""
        passes: list[list[Weights]] = []
        latest: dict[int, list[Weights]] = {}
        for one in self.weights:
            if not one.first:  # a decoder that goes step by step makes a call for each output
                latest[id(one.site)] = []
                passes.append(latest[id(one.site)])
            latest[id(one.site)].append(one)
        costs = []
        for calls in passes:
            values = torch.cat([one.values for one in calls], 1)
            if values.shape[1] == counted.shape[1]:
                values = values * counted.unsqueeze(-1)
            apart = (1 - values.sum(1)).square()
            there = [one.there for one in calls if one.there is not None]
            costs.append(
                (apart.masked_fill(~torch.stack(there).any(0), 0.0) if there else apart).sum()
            )
        return sum(costs, 0.0) / max(len(costs), 1)


class _Open(threading.local):
    """The passes being collected in this thread, the innermost last: a pass in another thread leaves its costs elsewhere. Not a ContextVar,
    which torch.compile cannot trace."""

    def __init__(self) -> None:
        self.passes: list[Collected] = []


_open = _Open()


def add_loss(x: Tensor, name: str, cost: Tensor) -> Tensor:
    """x unchanged; `cost` joins the loss that is being computed, if one is."""
    if not _open.passes:
        return x
    x, cost = join(x, cost)
    _open.passes[-1].costs.append((name, cost))
    return x


def requested_targets(x: Tensor) -> Tensor | None:
    """The one token for each row of x (… dim) whose log p is all that the loss needs; None where all logits are needed, or where sizes
    may not depend on numbers."""
    left = requested_losses(x)
    return left.target if left is not None and not left.smoothing and can_sync() else None


def requested_losses(x: Tensor) -> Collected | None:
    """What the loss asks for, where it is the sum of the losses of one `target` for each row of x (… dim), with this `smoothing` and but for
    targets to `ignore`: a head may answer with −loss of each. None where all logits are needed."""
    if not _open.passes or _open.passes[-1].target is None:
        return None
    return _open.passes[-1] if _open.passes[-1].target.shape == x.shape[:-1] else None


def is_collecting() -> bool:
    """Whether a loss is being computed."""
    return len(_open.passes) > 0  # not `bool`, which breaks a graph of torch 2.11


def add_sample(x: Tensor, sample: Sample) -> Tensor:
    """x unchanged; the choices are learned by how much better than usual the loss is that follows them (REINFORCE)."""
    if not _open.passes:
        return x
    x, sample.log_prob, sample.entropy = join(x, sample.log_prob, sample.entropy)
    _open.passes[-1].samples.append(sample)
    return x


@contextmanager
def locate_samples(first: int, in_order: bool) -> Iterator[None]:
    """Says of what is sampled within the `with` at which outputs it is."""
    before = len(_open.passes[-1].samples) if _open.passes else 0
    yield
    for one in _open.passes[-1].samples[before:] if _open.passes else ():
        one.first, one.in_order = first, in_order


def draw_once(what: Any, draw: Callable[[], Tensor]) -> Tensor:
    """What `draw` gives, the same for all that ask in one forward pass."""
    if what not in _open.passes[-1].drawn:
        _open.passes[-1].drawn[what] = draw()
    return _open.passes[-1].drawn[what]


def weights_requested() -> bool:
    """Whether the loss needs the weights over the source."""
    return len(_open.passes) > 0 and _open.passes[-1].asks_weights


def add_weights(x: Tensor, site: Any, values: Tensor, there: Tensor | None, first: int) -> Tensor:
    """x unchanged; the loss gets the weights."""
    x, values = join(x, values)
    _open.passes[-1].weights.append(Weights(site, values, there, first))
    return x


def join(x: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
    """x and what is left besides it, in float32 at least, as one node of the graph."""
    found: tuple[Tensor, ...] = Join.apply(
        x, *(value if value.dtype == torch.float64 else value.float() for value in values)
    )
    return found


@contextmanager
def collect(
    target: Tensor | None = None,
    asks_weights: bool = False,
    ignore: int = -100,
    smoothing: float = 0.0,
) -> Iterator[Collected]:
    """Within the `with`, what `add_loss` is called with is kept; a `target` is what the loss needs log p of, and of nothing else."""
    left = Collected(target, asks_weights, ignore, smoothing)
    _open.passes.append(left)
    try:
        yield left
    finally:
        _open.passes.pop()
