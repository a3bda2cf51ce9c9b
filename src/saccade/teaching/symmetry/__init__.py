"""Tests of a layer's symmetries: it runs on inputs whose positions, nodes or grids were moved, and the outputs are compared."""

from .checking import Row, Verdict, check_all, check_model, example, find  # noqa: F401
from .moves import SYMMETRIES, TOLERANCE, Symmetry  # noqa: F401
