"""The table of model families, and how a family says which numbers and which parts it takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from ..core import Mechanism, masks, normalizers, positions, scores
from ..core.table import Table


@dataclass(frozen=True)
class Family:
    """`build(source_vocab, target_vocab, shape, parts)`; `shape` and `parts` are dataclasses with defaults for all."""

    build: Callable[[int, int, Any, Any], nn.Module]
    shape: type
    parts: type
    __doc__: str = ""


table: Table[Family] = Table("models", "model")


@dataclass(frozen=True)
class Choice:
    """A class or function of a slot and the options it was chosen with; what a layer knows (widths, heads) is added when it is made."""

    make: Callable[..., Any]
    options: dict[str, Any] = field(default_factory=dict)

    def __call__(self, **facts: Any) -> Any:
        """Made from the options and those of the facts that its signature asks for."""
        wanted = takes(self.make)
        return self.make(**{**{name: fact for name, fact in facts.items() if name in wanted}, **self.options})


def constructor(make: type) -> Any:
    """The constructor of a class, its own or taken over; None when that is `object`'s or a module's bare one."""
    owner = next(parent for parent in make.__mro__ if "__init__" in vars(parent))
    return None if owner in (object, nn.Module) else vars(owner)["__init__"]


def takes(make: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The parameters by name; none for a class that takes over `object`'s or a module's bare constructor."""
    if isinstance(make, type) and constructor(make) is None:
        return {}
    return dict(inspect.signature(make).parameters)


@dataclass(frozen=True)
class MechanismPlan:
    """Makes a fresh mechanism for one layer: four choices."""

    score: Choice = field(default=Choice(scores.ScaledDot), metadata={"table": scores.table})
    normalize: Choice = field(default=Choice(normalizers.Softmax), metadata={"table": normalizers.table})
    mask: Choice = field(default=Choice(masks.full), metadata={"table": masks.table})
    position: Choice = field(default=Choice(positions.NoPosition), metadata={"table": positions.table})

    def __call__(self, *, dim_q: int, dim_k: int, heads: int, first: bool = True, cross: bool = False) -> Mechanism:
        """`first`: in the first block of a stack. `cross`: a memory is read, where places of queries and keys have nothing to do
        with each other, so that the position and the mask between them stay out."""
        facts = {"dim_q": dim_q, "dim_k": dim_k, "dim": dim_k, "heads": heads}
        position = self.position(**facts)
        if cross or (position.first_layer_only and not first):
            position = positions.NoPosition()
        return Mechanism(self.score(**facts), self.normalize(**facts), masks.full() if cross else self.mask(), position)


def part(slot: Table[Any], default: Any) -> Any:
    """A field of a `Parts` class: which table its names come from, and the default, a member of that table."""
    return field(default=default, metadata={"table": slot})
