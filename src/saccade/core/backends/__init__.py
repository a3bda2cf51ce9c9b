"""Backends: how a mechanism is run. `eager` is the definition; every other one is tested against it, gradients too.

A kernel of our own becomes a backend by `table.add("name")(MyBackend())` in a file here: it says what it refuses, ranks itself
among those that can, and runs.
"""

from __future__ import annotations

from ...errors import SaccadeError
from . import eager, flex, linear, sdpa
from .problem import Backend, Problem, table

__all__ = ["Backend", "Problem", "all_named", "choose", "eager", "flex", "linear", "named", "sdpa", "table"]


def all_named() -> list[tuple[str, Backend]]:
    return [(entry.name, entry.make) for entry in table]


def choose(problem: Problem) -> Backend:
    """The best of those that do not refuse; `eager` never does."""
    best = eager.definition
    for _, backend in all_named():  # a plain loop, which torch.compile can follow
        if backend.refuses(problem) is None and backend.rank(problem) < best.rank(problem):
            best = backend
    return best


def named(name: str, problem: Problem) -> Backend:
    """The backend of that name, or an error with its reason for refusing."""
    backend = table[name]
    reason = backend.refuses(problem)
    if reason is not None:
        raise SaccadeError(f"backend '{name}' refuses: {reason}; leave `backend` out to let one be chosen")
    return backend
