"""Learning rate schedules: factor of the peak rate at an update (counted from 1), after a linear warm-up."""

import math
from collections.abc import Callable

from ..registry import Table

Schedule = Callable[[int, int, int], float]
table: Table[Schedule] = Table("schedules", "schedule")


@table.add("inverse-sqrt", paper="Vaswani et al. 2017")
def inverse_sqrt(update: int, warmup: int, updates: int) -> float:
    """Linear warm-up, then √(warmup / update)."""
    return min(update / max(warmup, 1), math.sqrt(max(warmup, 1) / update))


@table.add("cosine", paper="Loshchilov & Hutter 2017")
def cosine(update: int, warmup: int, updates: int) -> float:
    """Linear warm-up, then a cosine down to 1% at the last update."""
    if update < warmup:
        return update / warmup
    done = min((update - warmup) / max(updates - warmup, 1), 1.0)
    return 0.01 + 0.99 * (1 + math.cos(math.pi * done)) / 2


@table.add("constant")
def constant(update: int, warmup: int, updates: int) -> float:
    """Linear warm-up, then constant."""
    return min(update / max(warmup, 1), 1.0)
