"""Backends run mechanisms. `eager` is the definition; all others are tested against it, gradients included.

Register a custom backend with `table.add("name")(MyBackend())`. It states what it refuses, its rank, and how it runs.
"""

import warnings
from typing import Any

import torch
from torch import Tensor

from ...errors import SaccadeError
from . import blocked, eager, flex, gather, linear, sdpa, short, triton, triton_forms
from .call import Backend, Call, CannotCompile, table

__all__ = [
    "Backend",
    "Call",
    "all_named",
    "blocked",
    "choose",
    "eager",
    "flex",
    "gather",
    "linear",
    "run",
    "sdpa",
    "short",
    "table",
    "triton",
    "triton_forms",
]


def all_named() -> list[tuple[str, Backend]]:
    return [(entry.name, entry.make) for entry in table]


def choose(call: Call, without: Backend | None = None) -> Backend:
    """The supporting backend with the lowest rank, except `without`. `eager` supports everything. Cached per kind of call."""
    if (
        without is not None
        or call.score.kernel
        or flex.backend.failed
        or triton_forms.backend.failed
        or triton.backend.failed
        or short.backend.failed
        or len(table._entries) > BUILT_IN_COUNT
        or torch.compiler.is_compiling()
    ):
        return best_of(call, without)
    key = choice_key(call)
    found = _chosen.get(key)
    # Unknown, or it depends on how much a mask hides, which is the slowest test.
    if found is None:
        gathers = (key, blocked.pays_off(call))
        found = _chosen.get(gathers)
        if found is None:
            if len(_chosen) > 4096:
                _chosen.clear()
            found = best_of(call)
            # Gathering never pays off for these masks.
            alike = call.mask.mask.causal_and_keys() is not None
            _chosen[key if alike or found.rank(call) < blocked.RANK else gathers] = found
    return found


_chosen: dict[tuple[Any, ...], Backend] = {}
# The choice is not cached once custom backends are registered.
BUILT_IN_COUNT = len(table)


def choice_key(call: Call) -> tuple[Any, ...]:
    """Cache key of `choose`: every fact a backend may look at, except how much a mask hides.

    Not for kernel scores. Methods replaced on an instance or a class change the key.
    """
    query, value, score, normalize = call.query, call.value, call.score, call.normalize
    position = call.position
    by, norm, at = type(score), type(normalize), type(position)
    methods = (by, by.compare, by.scale, norm, norm.rows, norm.forward, at, at.bias, at.values)
    added = (len(score.__dict__), len(normalize.__dict__), len(position.__dict__))
    hooks = (len(normalize._forward_hooks), len(normalize._forward_pre_hooks), normalize.training)
    _, _, queries, width = query.shape
    long = queries * call.key.shape[2] >= flex.GPU_MIN_LENGTH**2
    grad = torch.is_grad_enabled() and (
        query.requires_grad or call.key.requires_grad or value.requires_grad
    )
    sizes = (queries == 1, long, width, value.shape[3], query.device, query.dtype, grad)
    # A position that wraps another one has its properties.
    at_all = call.positions is not None and (True, position.adds_values)
    mask = (type(call.mask.mask), call.mask.mask.causal_and_keys() is None)
    return (
        methods,
        added,
        hooks,
        sizes,
        mask,
        call.dropout > 0,
        at_all,
        triton.choice_key(call),
        short.choice_key(call),
    )


def best_of(call: Call, without: Backend | None = None) -> Backend:
    best, lowest = eager.definition, eager.definition.rank(call)
    # A plain loop, which torch.compile can trace.
    for entry in table:
        rank = entry.make.rank(call)
        if rank < lowest and entry.make is not without and entry.make.refuses(call) is None:
            best, lowest = entry.make, rank
    return best


def run(call: Call, name: str | None = None) -> Tensor:
    """Runs a call on the best backend or the named one. If its kernel does not compile, the next best one runs."""
    if name is not None:
        reason = table[name].refuses(call)
        if reason is not None:
            raise SaccadeError(
                f"backend '{name}' refuses: {reason}; leave `backend` out to let one be chosen",
                code="backend-refuses",
            )
    backend = choose(call) if name is None else table[name]
    try:
        return backend.run(call)
    except CannotCompile as error:
        if name is not None:
            raise SaccadeError(
                f"backend '{name}' refuses: {error}; leave `backend` out to let one be chosen",
                code="backend-refuses",
            ) from error
        other = choose(call, without=backend)
        warnings.warn(
            f"backend '{table.name_of(backend)}': {error}; '{table.name_of(other)}' runs instead",
            stacklevel=3,
        )
        return other.run(call)
