"""Backends: how a mechanism is run. `eager` is the definition; every other one is tested against it, gradients too.

A kernel of one's own becomes a backend by `table.add("name")(MyBackend())`: it says what it refuses, ranks itself among those that
can, and runs.
"""

from __future__ import annotations

import warnings

from torch import Tensor

from ...errors import SaccadeError
from . import eager, flex, linear, sdpa
from .call import Backend, Call, CannotCompile, table

__all__ = ["Backend", "Call", "all_named", "choose", "eager", "flex", "linear", "run", "sdpa", "table"]


def all_named() -> list[tuple[str, Backend]]:
    return [(entry.name, entry.make) for entry in table]


def choose(call: Call, without: Backend | None = None) -> Backend:
    """The best of those that do not refuse, `without` left out; `eager` never refuses."""
    best, lowest = eager.definition, eager.definition.rank(call)
    for entry in table:  # a plain loop, which torch.compile can follow
        rank = entry.make.rank(call)
        if rank < lowest and entry.make is not without and entry.make.refuses(call) is None:
            best, lowest = entry.make, rank
    return best


def run(call: Call, name: str | None = None) -> Tensor:
    """Runs the call on the best backend, or on the one of that name; one whose kernel does not compile is replaced by the next best."""
    if name is not None:
        reason = table[name].refuses(call)
        if reason is not None:
            raise SaccadeError(f"backend '{name}' refuses: {reason}; leave `backend` out to let one be chosen")
    backend = choose(call) if name is None else table[name]
    try:
        return backend.run(call)
    except CannotCompile as error:
        if name is not None:
            raise SaccadeError(f"backend '{name}' refuses: {error}; leave `backend` out to let one be chosen") from error
        other = choose(call, without=backend)
        warnings.warn(f"backend '{table.name_of(backend)}': {error}; '{table.name_of(other)}' runs instead", stacklevel=3)
        return other.run(call)
