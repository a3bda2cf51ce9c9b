"""Records of models without saccade's layers. B batch, H heads, Q queries, K keys, D width of a head.

The calling layer is read from the stack: the nearest `self` that belongs to the model. Hooks would disable the fast path of `torch.nn`.
Other models and threads are not affected.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .backends.call import repeat_heads
from .record import Look, Looks, Seen, path_of

# Names of cross-attention layers in T5, BART, Marian, BERT, GPT-2 and nn.TransformerDecoderLayer.
CROSS = re.compile(r"cross|encoder_att|EncDec|multihead_attn|src_att", re.IGNORECASE)
open_watches: list[Watch] = []
LOCK = threading.RLock()
thread_calls = threading.local()  # .count: calls noticed in this thread


@dataclass(eq=False)
class ForeignLook(Look):
    """One call: softmax(scale · q·k + added)."""

    q: Tensor  # B H Q D
    k: InitVar[Tensor]  # B H' K D
    # Each B|1 H|1 Q|1 K: booleans (True = may attend) or additive numbers.
    masks: Sequence[Tensor | None] = ()
    # (b, h, i, j) → whether query i may attend to key j.
    visible: Callable[..., Tensor] | None = None
    scale: float | None = None
    softcap: float | None = None
    # Attention sinks: one score per head that takes weight and has no value.
    sinks: Tensor | None = None
    # None if unknown.
    cross: bool | None = None
    # Weights that do not follow the formula above.
    kept: Tensor | None = None
    first: int = 0
    numbers_per_score: int = 1

    def __post_init__(self, k: Tensor) -> None:
        self.q, self.keys, self.shared = own_copy(self.q), k.shape[2], [own_copy(k)]
        self.added = [mask.detach() for mask in self.masks if mask is not None]
        self.masks = ()

    @property
    def key(self) -> Tensor:  # type: ignore[override]
        """The keys of this call. Later steps with the same cache share the storage."""
        return self.shared[0][:, :, : self.keys]

    def follow(self, before: Look) -> None:
        """Shares one tensor of keys among the steps of a growing cache."""
        if isinstance(before, ForeignLook) and torch.equal(
            self.key[:, :, : before.keys], before.key
        ):
            before.shared[0] = self.key
            self.shared = before.shared

    def _rows(self, rows: list[int]) -> Tensor:
        i = torch.tensor(rows, device=self.q.device)
        if self.kept is not None:
            return self.kept.index_select(2, i)
        batch, heads, _, keys = self.sizes
        precise = torch.promote_types(self.q.dtype, torch.float32)
        key = repeat_heads(self.key, heads).to(precise)
        scale = self.q.shape[-1] ** -0.5 if self.scale is None else self.scale
        scores = self.q.index_select(2, i).to(precise) @ key.mT * scale
        if self.softcap is not None:
            scores = (scores / self.softcap).tanh() * self.softcap
        hidden = []
        for mask in self.added:
            part = (mask if mask.shape[-2] == 1 else mask.index_select(-2, i))[..., :keys]
            if part.dtype == torch.bool:
                hidden.append(~part)
            else:
                scores = scores + part.to(precise)
        if self.visible is not None:
            b, h, j = (torch.arange(size, device=i.device) for size in (batch, heads, keys))
            hidden.append(~self.visible(b[:, None, None, None], h[:, None, None], i[:, None], j))
        for one in hidden:
            scores = scores.masked_fill(one, -torch.inf)
        empty = (scores == -torch.inf).all(-1, keepdim=True)
        if self.sinks is not None:
            sink = (
                self.sinks.detach().to(precise).reshape(1, -1, 1, 1).expand(batch, -1, len(rows), 1)
            )
            scores = torch.cat((scores, sink), -1)
        return scores.softmax(-1)[..., :keys].masked_fill(empty, 0.0)


def own_copy(x: Tensor) -> Tensor:
    """A detached tensor that does not keep a larger storage alive."""
    x = x.detach()
    return x.clone() if x.untyped_storage().nbytes() > x.nbytes else x


class Watch:
    """One open record: the modules of the model and their calls."""

    def __init__(self, model: nn.Module, seen: Seen) -> None:
        self.names = {id(module): path_of(path) for path, module in model.named_modules()}
        self.seen = seen
        # Call sites in the code of each module.
        self.lines: dict[str, list[Any]] = {}
        # Rows and keys of each pass so far.
        self.passes: dict[str, list[tuple[int, int]]] = {}
        # Number of queries before those of the last call.
        self.first = 0

    def caller(self) -> tuple[str, Any] | None:
        """The path of the calling module and its call site, or None for other models."""
        frame = sys._getframe(1)
        while frame is not None:
            module = (
                frame.f_locals.get("self") if frame.f_code.co_varnames[:1] == ("self",) else None
            )
            if isinstance(module, nn.Module) and id(module) in self.names:
                path = self.names[id(module)]
                # Its fast path stands for the attention layer inside.
                if isinstance(module, nn.TransformerEncoderLayer):
                    return f"{path}.self_attn".lstrip("."), None
                # torch.nn calls one attention from several lines.
                of_torch = frame.f_globals.get("__name__", "").startswith("torch.nn.")
                return path or "attention", None if of_torch else (frame.f_code, frame.f_lasti)
            frame = frame.f_back  # type: ignore[assignment]
        return None

    def add(self, path: str, line: Any, look: Look) -> None:
        """Adds a call to its module. Further call sites of a module are `path#2`, `path#3` …"""
        lines = self.lines.setdefault(path, [])
        lines += [] if line in lines else [line]
        number = lines.index(line) + 1
        name = path if number == 1 else f"{path}#{number}"
        named = bool(CROSS.search(".".join(path.split(".")[-2:])))
        looks = self.seen.setdefault(name, Looks(name, named, []))
        passes = self.passes.setdefault(name, [])
        queries, keys = look.sizes[2:]
        known = True if named else getattr(look, "cross", None)
        # Keys that grew by the queries are the next step with a cache.
        at = (
            None
            if known
            else next((n for n, (_, before) in enumerate(passes) if before + queries == keys), None)
        )
        if at is None:
            reads_other = queries != keys if known is None else known
            looks.cross |= reads_other
            # Cross-attention is at the step of the self-attention before it.
            look.first = self.first if reads_other else 0
            passes.append((queries, keys))
        else:
            look.first, looks.cross = passes[at][0], False
            passes[at] = (look.first + queries, keys)
            if isinstance(look, ForeignLook):
                look.follow(
                    next(one for one in reversed(looks.calls) if one.sizes[3] + queries == keys)
                )
        self.first = look.first
        looks.calls.append(look)


def recorded_calls() -> int:
    """The number of calls recorded in this thread."""
    return getattr(thread_calls, "count", 0)


@torch.no_grad()
def record_call(make: Callable[[], Look | None]) -> None:
    """Adds a call to every open record whose model made it."""
    for watch in list(open_watches):
        found = watch.caller()
        look = None if found is None else make()
        if found is not None and look is not None:
            thread_calls.count = recorded_calls() + 1
            watch.add(*found, look)
