"""A choice: a class or function of a table with the options it was chosen with, made when a layer knows its widths."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import nn


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
