"""The table of model families, and how a family says which numbers and which parts it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import nn

from ..core import Mechanism
from ..core.table import Table


@dataclass(frozen=True)
class Family:
    """`build(source_vocab, target_vocab, shape, parts)`; `shape` and `parts` are dataclasses with defaults for all."""

    build: Callable[[int, int, Any, Any], nn.Module]
    shape: type
    parts: type
    __doc__: str = ""


table: Table[Family] = Table("models", "model")


class MakeMechanism(Protocol):
    """Makes a fresh mechanism for one layer from what the layer knows; `first` is True in the first block of a
    stack, `cross` where a memory is read: there places of queries and keys have nothing to do with each other."""

    def __call__(self, *, dim_q: int, dim_k: int, heads: int, first: bool, cross: bool) -> Mechanism: ...


def default_mechanism(*, dim_q: int, dim_k: int, heads: int, first: bool, cross: bool) -> Mechanism:
    """Scaled dot products, softmax, no position."""
    return Mechanism()


def part(slot: Table[Any], default: Any) -> Any:
    """A field of a `Parts` class: which table its names come from, and the default, a member of that table."""
    return field(default=default, metadata={"table": slot})
