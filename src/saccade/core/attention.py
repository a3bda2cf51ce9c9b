"""`attend`: any mechanism, on the best backend that can run it. B batch, H heads, Q queries, K keys, D key width, E value width."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import SaccadeError
from . import backends
from .backends.problem import Problem
from .masks import Mask
from .mechanism import Keys, Mechanism
from .places import Places

DEFAULT = Mechanism()


def attend(
    q: Tensor,
    k: Tensor | Keys,
    v: Tensor,
    mechanism: Mechanism | None = None,
    mask: Mask | None = None,
    places: Places | None = None,
    dropout: float = 0.0,
    backend: str | None = None,
) -> Tensor:
    """weights(q, k) @ v: B H Q D, B H K D, B H K E → B H Q E. Fewer heads of k and v than of q are shared by groups of q's heads.

    `mask` is added (`&`) to the mechanism's own. A query that may attend nowhere gets zeros. `dropout` falls on the weights.
    `backend` names one; without it the fastest that can run the mechanism here is taken (see `explain`).
    """
    problem = pose(q, k, v, mechanism, mask, places, dropout)
    chosen = backends.choose(problem) if backend is None else backends.named(backend, problem)
    return chosen.run(problem)


def weights(
    q: Tensor, k: Tensor | Keys, mechanism: Mechanism | None = None, mask: Mask | None = None, places: Places | None = None
) -> Tensor:
    """The weights alone, B H Q K, by the definition."""
    keys = k.tensor if isinstance(k, Keys) else k
    return backends.eager.weights(pose(q, k, keys, mechanism, mask, places, 0.0))


@dataclass(frozen=True)
class Verdict:
    """What one backend says to a problem: `reason` is None when it can run it."""

    backend: str
    reason: str | None
    chosen: bool

    def __str__(self) -> str:
        return f"{'→' if self.chosen else ' '} {self.backend:<7} {'can' if self.reason is None else 'refuses: ' + self.reason}"


class Explanation(list[Verdict]):
    """The verdicts of all backends, the best first; prints as a small table."""

    def __str__(self) -> str:
        return "\n".join(map(str, self))

    @property
    def chosen(self) -> str:
        return next(verdict.backend for verdict in self if verdict.chosen)


def explain(
    q: Tensor, k: Tensor | Keys, mechanism: Mechanism | None = None, mask: Mask | None = None, v: Tensor | None = None
) -> Explanation:
    """Which backends can run the mechanism on these tensors, which one is taken, and why the others refuse."""
    keys = k.tensor if isinstance(k, Keys) else k
    problem = pose(q, k, keys if v is None else v, mechanism, mask, None, 0.0)
    chosen = backends.choose(problem)
    found = sorted(
        (backend.refuses(problem) is not None, backend.rank(problem), name, backend) for name, backend in backends.all_named()
    )
    return Explanation(Verdict(name, backend.refuses(problem), backend is chosen) for _, _, name, backend in found)


def pose(
    q: Tensor, k: Tensor | Keys, v: Tensor, mechanism: Mechanism | None, mask: Mask | None, places: Places | None, dropout: float
) -> Problem:
    """The problem as backends see it: sizes checked, queries and keys turned and projected."""
    mechanism = DEFAULT if mechanism is None else mechanism
    check_kinds(mechanism, mask, dropout)
    keys = k.tensor if isinstance(k, Keys) else k
    check(q, keys, v, mechanism, ready=isinstance(k, Keys))
    position = mechanism.position
    if places is None and (position.turns or position.bends or position.adds_values):
        places = Places.in_line(q.shape[-2], keys.shape[-2], q.device)
    if not isinstance(k, Keys):
        if keys.shape[1] != q.shape[1] and next(mechanism.score.parameters(), None) is not None:
            keys = keys.repeat_interleave(q.shape[1] // keys.shape[1], 1)  # each query head has a projection of its own
        at = None if places is None else places.j
        keys, v = mechanism.keys(keys, at).tensor, mechanism.values(v, at)
    query = mechanism.score.query(q if places is None else position.turn(q, places.i))
    both = mechanism.mask if mask is None else mechanism.mask & mask
    if both.in_line and q.shape[-2] > keys.shape[-2]:
        raise SaccadeError(
            f"{q.shape[-2]} queries and {keys.shape[-2]} keys under {both!r}: the last query stands at the last key, "
            "so the first would stand before the first key; use a mask on keys alone"
        )
    return Problem(q, query, keys, v, mechanism, both, places, dropout)


def check_kinds(mechanism: Mechanism, mask: Mask | None, dropout: float) -> None:
    """Raises when what is handed in beside the tensors is of the wrong kind."""
    if not isinstance(mechanism, Mechanism):
        raise SaccadeError(f"{mechanism!r} is no mechanism; hand in Mechanism(score, normalize, mask, position)")
    if mask is not None and not isinstance(mask, Mask):
        raise SaccadeError(
            f"a mask of type {type(mask).__name__}; make one by saccade.masks, such as masks.matrix(allowed) of 0/1 numbers"
        )
    if not 0.0 <= dropout < 1.0:
        raise SaccadeError(f"a dropout of {dropout}; it is the share of weights left out, from 0 to less than 1")


def check(q: Tensor, k: Tensor, v: Tensor, mechanism: Mechanism, ready: bool) -> None:
    """Raises when q, k and v are not tensors of one floating type, or their shapes do not belong together."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor) or not x.is_floating_point():
            what = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise SaccadeError(f"{name} is {what}; hand in a tensor of floating numbers, such as float32 or bfloat16")
    if not q.dtype == k.dtype == v.dtype and not torch.is_autocast_enabled(q.device.type):  # autocast brings them together itself
        raise SaccadeError(f"q is {q.dtype}, k {k.dtype}, v {v.dtype}; bring them to one type first")
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if not q.dim() == k.dim() == v.dim() == 4:
        raise SaccadeError(f"{shapes}: each must have four dimensions, batch × heads × places × width")
    if q.shape[0] != k.shape[0] or (
        k.shape[:3] != v.shape[:3] and not (ready and k.shape[0] == v.shape[0] and k.shape[2] == v.shape[2])
    ):
        raise SaccadeError(f"{shapes}: q, k and v must share the batch, and k and v their heads and places")
    if min(q.shape[1:3] + k.shape[1:3] + v.shape[1:3]) < 1:
        raise SaccadeError(f"{shapes}: there must be at least one head, one query and one key")
    if q.shape[1] % k.shape[1] or q.shape[1] % v.shape[1]:
        raise SaccadeError(f"{shapes}: the heads of q must be a multiple of those of k and v")
    if mechanism.position.heads not in (None, q.shape[1]):
        raise SaccadeError(
            f"{shapes}: the position is made for {mechanism.position.heads} heads; make it with heads={q.shape[1]}"
        )
    if not ready and not mechanism.score.unequal_widths and q.shape[-1] != k.shape[-1]:
        raise SaccadeError(
            f"{shapes}: this score compares equal widths; use bilinear, reduced-rank or additive, or project first"
        )


__all__ = ["Explanation", "Verdict", "attend", "explain", "weights"]
