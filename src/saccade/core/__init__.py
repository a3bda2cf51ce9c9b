"""The core: mechanisms, backends and recording. Depends on torch alone."""

from ..registry import Table
from . import (
    graph_attention,
    intercepts,
    masks,
    normalizers,
    positions,
    scores,
    window_masks,
    xl_positions,
)
from .attention import attend, explain, read, weights, which_backend
from .cache import Cache, KeyValues, State
from .mechanism import Mechanism, Ready
from .positions import Positions
from .record import Site, sites
from .recorder import record

__all__ = [
    "Cache",
    "KeyValues",
    "Mechanism",
    "Positions",
    "Ready",
    "Site",
    "State",
    "Table",
    "attend",
    "explain",
    "graph_attention",
    "intercepts",
    "masks",
    "normalizers",
    "positions",
    "read",
    "record",
    "scores",
    "sites",
    "weights",
    "which_backend",
    "window_masks",
    "xl_positions",
]
