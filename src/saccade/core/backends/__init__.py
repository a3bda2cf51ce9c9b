"""Backends: how a mechanism is run. `eager` is the definition; every other one is tested against it, gradients too.

A kernel of one's own becomes a backend by `table.add("name")(MyBackend())`: it says what it refuses, ranks itself among those that
can, and runs.
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
    "triton_forms",
]
__all__ += ["run", "sdpa", "short", "table", "triton"]


def all_named() -> list[tuple[str, Backend]]:
    return [(entry.name, entry.make) for entry in table]


def choose(call: Call, without: Backend | None = None) -> Backend:
    """The best of those that do not refuse, `without` left out; `eager` never refuses. The same kind of call gets the same answer."""
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
    # not known yet, or it depends on how much a mask hides, which takes longest to find out
    if found is None:
        gathers = (key, blocked.pays_off(call))
        found = _chosen.get(gathers)
        if found is None:
            if len(_chosen) > 4096:
                _chosen.clear()
            found = best_of(call)
            # where that is known, gathering is never worth it
            alike = call.mask.mask.causal_and_keys() is not None
            _chosen[key if alike or found.rank(call) < blocked.RANK else gathers] = found
    return found


_chosen: dict[tuple[Any, ...], Backend] = {}
# with a backend that somebody has added, nothing is known of what its answers depend on
BUILT_IN_COUNT = len(table)


def choice_key(call: Call) -> tuple[Any, ...]:
    """All that the answers of backends depend on, but for kernel scores, whose masks are taken apart, and for how much a mask hides. A
    method that is set on a part itself, or on its class, makes another kind."""
    query, value, score, normalize, position = (
        call.query,
        call.value,
        call.score,
        call.normalize,
        call.position,
    )
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
    # a position around another one has what that one has
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
            raise SaccadeError(
                f"backend '{name}' refuses: {reason}; leave `backend` out to let one be chosen"
            )
    backend = choose(call) if name is None else table[name]
    try:
        return backend.run(call)
    except CannotCompile as error:
        if name is not None:
            raise SaccadeError(
                f"backend '{name}' refuses: {error}; leave `backend` out to let one be chosen"
            ) from error
        other = choose(call, without=backend)
        warnings.warn(
            f"backend '{table.name_of(backend)}': {error}; '{table.name_of(other)}' runs instead",
            stacklevel=3,
        )
        return other.run(call)
