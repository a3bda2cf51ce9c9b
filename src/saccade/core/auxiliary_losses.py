"""Auxiliary outputs of a forward pass: extra losses, log-probabilities of sampled choices, and source weights.

A layer calls `x = add_loss(x, "balance", cost)`. The training loop wraps the forward pass in `with collect() as left:` and adds
`left.total(tokens)` to the loss. Without an open `collect`, `add_loss` returns x unchanged and has no overhead.

In the other direction, `collect(target)` tells the output head what the loss needs. A head that can compute log p of the targets alone
calls `requested_targets(x)` and returns one number per target. A head that can compute the losses without storing all logits calls
`requested_losses(x)` and returns the negative losses.
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
    """Identity on x and the auxiliary tensors as one autograd node.

    Its backward runs when all gradients have arrived. FSDP2 gathers a block's parameters when the output's gradient arrives; a cost
    with its own path would arrive earlier.
    """

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
    """The sampled choices of one call.

    log_prob (B Q) is summed over heads, 0 where nothing was sampled. entropy (B Q) belongs to the distributions, rows (B) tells which
    batch rows sampled. With `in_order`, query t is output first + t and changes no earlier output. The owner has
    `estimate(samples, losses, counted)`.
    """

    owner: Any
    log_prob: Tensor
    entropy: Tensor
    rows: Tensor
    first: int = 0
    in_order: bool = False


@dataclass(frozen=True, eq=False)
class Weights:
    """Source weights of one call (B Q K, mean over heads), and which positions are visible (B|1 K)."""

    site: Any
    values: Tensor
    there: Tensor | None
    first: int


class Collected:
    """Auxiliary outputs of one forward pass. A cost is per token: a scalar, or one number per batch row (B)."""

    def __init__(
        self,
        target: Tensor | None = None,
        asks_weights: bool = False,
        ignore: int = -100,
        smoothing: float = 0.0,
    ) -> None:
        self.target, self.asks_weights, self.ignore = target, asks_weights, ignore
        self.smoothing = smoothing
        self.costs: list[tuple[str, Tensor]] = []
        self.samples: list[Sample] = []
        self.weights: list[Weights] = []
        self.drawn: dict[Any, Tensor] = {}

    def total(self, tokens: Tensor, repeats: int = 1) -> Tensor | float:
        """Sum of the costs times the tokens per row (B), like the token loss. The pass contains the batch `repeats` times."""
        each = tokens.repeat(repeats)
        parts = [
            (cost * each).sum() / repeats if cost.dim() else cost * tokens.sum()
            for _, cost in self.costs
        ]
        return sum(parts, 0.0)

    def estimate(self, losses: Tensor, counted: Tensor) -> Tensor | float:
        """The REINFORCE term of the sampled choices from the token losses (B T): see `normalizers.Hard`."""
        owners: dict[int, list[Sample]] = {}
        for one in self.samples:
            owners.setdefault(id(one.owner), []).append(one)
        return sum((some[0].owner.estimate(some, losses, counted) for some in owners.values()), 0.0)

    def doubly_stochastic_penalty(self, counted: Tensor) -> Tensor | float:
        """Doubly stochastic attention penalty Σ_i (1 − Σ_t α_ti)² (Xu et al. 2015, eq. 14), averaged over layers.

        i runs over source positions, t over the counted outputs (B T).
        """
        passes: list[list[Weights]] = []
        latest: dict[int, list[Weights]] = {}
        for one in self.weights:
            # A decoder that steps makes one call per output.
            if not one.first:
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
    """Open `collect` contexts of this thread, innermost last. torch.compile cannot trace a ContextVar."""

    def __init__(self) -> None:
        self.passes: list[Collected] = []


_open = _Open()


def add_loss(x: Tensor, name: str, cost: Tensor) -> Tensor:
    """Returns x and adds `cost` to the open `collect`, if any."""
    if not _open.passes:
        return x
    x, cost = join(x, cost)
    _open.passes[-1].costs.append((name, cost))
    return x


def requested_targets(x: Tensor) -> Tensor | None:
    """The target of each row of x (… dim) if the loss needs log p of these alone, else None.

    Also None while compiling or capturing, where sizes must not depend on values.
    """
    left = requested_losses(x)
    return left.target if left is not None and not left.smoothing and can_sync() else None


def requested_losses(x: Tensor) -> Collected | None:
    """The open `collect` if its loss is a sum over one `target` per row of x (… dim), else None.

    A head may then return −loss of each row, with the context's `smoothing` and `ignore`.
    """
    if not _open.passes or _open.passes[-1].target is None:
        return None
    return _open.passes[-1] if _open.passes[-1].target.shape == x.shape[:-1] else None


def is_collecting() -> bool:
    """Whether a `collect` is open."""
    # `bool` would break a graph of torch 2.11.
    return len(_open.passes) > 0


def add_sample(x: Tensor, sample: Sample) -> Tensor:
    """Returns x and registers sampled choices, which are trained with REINFORCE."""
    if not _open.passes:
        return x
    x, sample.log_prob, sample.entropy = join(x, sample.log_prob, sample.entropy)
    _open.passes[-1].samples.append(sample)
    return x


@contextmanager
def locate_samples(first: int, in_order: bool) -> Iterator[None]:
    """Sets the output positions of all samples inside the `with`."""
    before = len(_open.passes[-1].samples) if _open.passes else 0
    yield
    for one in _open.passes[-1].samples[before:] if _open.passes else ():
        one.first, one.in_order = first, in_order


def draw_once(what: Any, draw: Callable[[], Tensor]) -> Tensor:
    """The result of `draw`, shared by all callers in one forward pass."""
    if what not in _open.passes[-1].drawn:
        _open.passes[-1].drawn[what] = draw()
    return _open.passes[-1].drawn[what]


def weights_requested() -> bool:
    """Whether the loss needs source weights."""
    return len(_open.passes) > 0 and _open.passes[-1].asks_weights


def add_weights(x: Tensor, site: Any, values: Tensor, there: Tensor | None, first: int) -> Tensor:
    """Returns x and registers its source weights with the loss."""
    x, values = join(x, values)
    _open.passes[-1].weights.append(Weights(site, values, there, first))
    return x


def join(x: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
    """x and the auxiliary values (float32 or wider) as one autograd node."""
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
    """Collects the auxiliary outputs of the forward pass inside the `with`.

    Args:
        target: Token ids, if the loss needs log p of these alone.
        asks_weights: Whether the loss needs source weights.
        ignore: Target id that does not count.
        smoothing: Label smoothing of the loss.
    """
    left = Collected(target, asks_weights, ignore, smoothing)
    _open.passes.append(left)
    try:
        yield left
    finally:
        _open.passes.pop()
