"""What a backend is handed, and what it must answer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..masks import Causal, Full, Mask
from ..mechanism import Mechanism
from ..places import Places
from ..table import Table


@dataclass(frozen=True, eq=False)
class Problem:
    """q as handed in; query and key turned and projected by the score; v, the mechanism, the whole mask, places, dropout."""

    q: Tensor
    query: Tensor
    key: Tensor
    v: Tensor
    mechanism: Mechanism
    mask: Mask
    places: Places | None  # None where the position asks for none
    dropout: float

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """B H Q K"""
        return self.q.shape[0], self.q.shape[1], self.q.shape[2], self.key.shape[2]

    @property
    def unmasked(self) -> bool:
        """True when nothing is hidden: a full mask, or the causal mask of one query, which stands at the last key."""
        return isinstance(self.mask, Full) or (isinstance(self.mask, Causal) and self.q.shape[2] == 1)

    def allowed(self) -> Tensor | None:
        """The dense mask, B|1 H|1 Q|1 K, or None when nothing is hidden."""
        return None if self.unmasked else self.mask.dense(*self.sizes, self.q.device)

    def bend(self) -> Tensor | None:
        """What the position adds to the scores."""
        if self.places is None:
            return None
        return self.mechanism.position.bend(self.q, self.places, self.mechanism.score.scale(self.q.shape[-1]))

    @property
    def scale(self) -> float:
        return self.mechanism.score.scale(self.query.shape[-1])

    @property
    def needs_grad(self) -> bool:
        learned = any(parameter.requires_grad for parameter in self.mechanism.position.parameters())
        return torch.is_grad_enabled() and (learned or self.query.requires_grad or self.key.requires_grad or self.v.requires_grad)


class Backend:
    """One way to run a mechanism, or its reason for refusing."""

    def refuses(self, problem: Problem) -> str | None:
        """Why it cannot run the problem, or None when it can."""
        raise NotImplementedError

    def rank(self, problem: Problem) -> int:
        """Of those that can, the lowest rank is taken."""
        raise NotImplementedError

    def run(self, problem: Problem) -> Tensor:
        """B H Q E"""
        raise NotImplementedError


table: Table[Backend] = Table("backends", "backend")


def repeat_heads(x: Tensor, heads: int) -> Tensor:
    """B H' N D → B H N D: head h of the result is head h // (H / H') of x."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], 1)
