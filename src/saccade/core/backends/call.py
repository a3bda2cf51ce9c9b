"""What a backend is given, and what it must answer."""

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
    """q as passed; query and key encoded and projected by the score; values; the mechanism's parts, and the whole mask."""

    q: Tensor  # B H Q D
    query: Tensor  # B H Q A
    key: Tensor  # B H' K A
    value: Tensor  # B H'' K E
    score: Score
    normalize: Normalizer
    position: Position
    mask: Prepared
    positions: Positions | None  # None where the position asks for none
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
        """True when nothing is hidden: a full mask, or the causal mask of one query, which is at the last key."""
        kind = type(self.mask.mask)
        return kind is Full or (kind is Causal and self.q.shape[2] == 1)

    def allowed(self) -> Tensor | None:
        """The dense mask, B|1 H|1 Q|1 K, or None when nothing is hidden."""
        return None if self.unmasked else self.mask.allowed()

    def bias(self, dtype: torch.dtype | None = None) -> Tensor | None:
        """What the position adds to the scores, in the queries' type by default."""
        if self.positions is None:
            return None
        found = self.position.bias(self.q, self.positions, self.score.scale(self.q.shape[-1]))
        if found is None:
            return None
        _, _, queries, keys = self.sizes  # kernels want at least Q × K numbers
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
    """A backend's kernel cannot be compiled for a call; the next backend runs it."""


class Backend:
    """One way to run a mechanism, or its reason for refusing."""

    def refuses(self, call: Call) -> str | None:
        """Why it cannot run the call, or None when it can."""
        raise NotImplementedError

    def rank(self, call: Call) -> int:
        """Of those that can, the lowest rank is taken."""
        raise NotImplementedError

    def run(self, call: Call) -> Tensor:
        """B H Q E"""
        raise NotImplementedError


def not_dot_softmax(call: Call) -> str | None:
    """Why a kernel for softmax(scale · q·k + bias) cannot run a mechanism, or None. What a subclass changed is never skipped."""
    if not call.score.dot:
        return "the score is not a dot product"
    if not is_unmodified(call.normalize, Softmax):
        return "the normalizer is not softmax"
    if call.positions is not None and call.position.adds_values:
        return "the position adds to the values, which needs the weights"
    return None


def is_unmodified(normalize: Normalizer, kind: type[Normalizer]) -> bool:
    """Whether a normalizer is `kind`'s own: nothing overridden in a subclass, set on the object, or hooked in."""
    own = normalize.__dict__
    # as torch.compile can follow it
    set_here = "rows" in own or "forward" in own or "project" in own
    return type(normalize) is kind and not (
        set_here or normalize._forward_hooks or normalize._forward_pre_hooks
    )


table: Table[Backend] = Table("backends", "backend")


def repeat_heads(x: Tensor, heads: int) -> Tensor:
    """B H' N D → B H N D: head h of the result is head h // (H / H') of x."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], 1)
