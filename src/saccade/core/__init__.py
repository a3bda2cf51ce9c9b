"""What attention is: mechanisms, how they are run, and how they are looked at. Needs torch alone."""

from . import masks, normalizers, positions, scores
from .attention import attend, explain, weights
from .mechanism import Keys, Mechanism
from .places import Places, tree_distances
from .record import Site, record, sites
from .state import KeyValues, State
from .table import Table

__all__ = [
    "KeyValues",
    "Keys",
    "Mechanism",
    "Places",
    "Site",
    "State",
    "Table",
    "attend",
    "explain",
    "masks",
    "normalizers",
    "positions",
    "record",
    "scores",
    "sites",
    "tree_distances",
    "weights",
]
