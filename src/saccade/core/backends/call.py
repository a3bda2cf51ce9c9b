"""The interface of backends: `Call` and `Backend`."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ...registry import Table
from ..masks import Causal, Full, Prepared
from ..normalizers import Normalizer, Softmax
from ..positions import Position, Positions
from ..scores import Score


@dataclass(eq=False, slots=True)
class Call:
    """The arguments of one attention call: tensors, the mechanism's parts and the combined mask.

    `q` is as passed; `query` and `key` are encoded and projected. `positions` is None if the position needs none.
    """

    q: Tensor  # B H Q D
    query: Tensor  # B H Q A
    key: Tensor  # B H' K A
    value: Tensor  # B H'' K E
    score: Score
    normalize: Normalizer
    position: Position
    mask: Prepared
    positions: Positions | None
    dropout: float

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """B H Q K"""
        batch, heads, queries, _ = self.q.shape
        return batch, heads, queries, self.key.shape[2]

    @property
    def causal(self) -> bool:
        return type(self.mask.mask) is Causal

    @property
    def unmasked(self) -> bool:
        """Whether nothing is hidden: a full mask, or a causal mask with one query."""
        kind = type(self.mask.mask)
        return kind is Full or (kind is Causal and self.q.shape[2] == 1)

    def allowed(self) -> Tensor | None:
        """The dense mask, B|1 H|1 Q|1 K, or None if nothing is hidden."""
        return None if self.unmasked else self.mask.allowed()

    def bias(self, dtype: torch.dtype | None = None) -> Tensor | None:
        """The bias of the position, in the queries' type by default."""
        if self.positions is None:
            return None
        found = self.position.bias(self.q, self.positions, self.score.scale(self.q.shape[-1]))
        if found is None:
            return None
        # Kernels need at least Q × K numbers.
        _, _, queries, keys = self.sizes
        return found.to(self.query.dtype if dtype is None else dtype).expand(
            torch.broadcast_shapes(found.shape, (queries, keys))
        )

    @property
    def scale(self) -> float:
        return self.score.scale(self.query.shape[-1])

    @property
    def needs_grad(self) -> bool:
        if not torch.is_grad_enabled():
            return False
        if self.query.requires_grad or self.key.requires_grad or self.value.requires_grad:
            return True
        parts = (self.score, self.normalize, self.position)
        return any(parameter.requires_grad for part in parts for parameter in part.parameters())


class CannotCompile(Exception):
    """A backend's kernel does not compile for a call. The next backend runs it."""


class Backend:
    """One implementation of attention."""

    def refuses(self, call: Call) -> str | None:
        """The reason why the call is not supported, or None."""
        raise NotImplementedError

    def rank(self, call: Call) -> int:
        """The priority: the lowest rank among supporting backends wins."""
        raise NotImplementedError

    def run(self, call: Call) -> Tensor:
        """B H Q E"""
        raise NotImplementedError


def not_dot_softmax(call: Call) -> str | None:
    """The reason why softmax(scale · q·k + bias) is not what the mechanism computes, or None. Overrides are respected."""
    if not call.score.dot:
        return "the score is not a dot product"
    if not is_unmodified(call.normalize, Softmax):
        return "the normalizer is not softmax"
    if call.positions is not None and call.position.adds_values:
        return "the position adds to the values, which needs the weights"
    return None


def is_unmodified(normalize: Normalizer, kind: type[Normalizer]) -> bool:
    """Whether a normalizer is exactly `kind`: no subclass, no attribute set on the instance, no hooks."""
    own = normalize.__dict__
    # Written so that torch.compile can trace it.
    set_here = "rows" in own or "forward" in own or "project" in own
    return type(normalize) is kind and not (
        set_here or normalize._forward_hooks or normalize._forward_pre_hooks
    )


table: Table[Backend] = Table("backends", "backend")


def repeat_heads(x: Tensor, heads: int) -> Tensor:
    """B H' N D → B H N D: head h is head h // (H / H') of x."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], 1)
