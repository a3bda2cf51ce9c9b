"""Which symmetries a layer has, found out by running it: how positions, nodes and grids are moved, what is run, what comes of it."""

from .checking import Row, Verdict, check_all, check_model, example, find
from .moves import SYMMETRIES, TOLERANCE, Symmetry

__all__ = [
    "SYMMETRIES",
    "TOLERANCE",
    "Row",
    "Symmetry",
    "Verdict",
    "check_all",
    "check_model",
    "example",
    "find",
]
