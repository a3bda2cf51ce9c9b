"""The tables of slots, under the name that parts import; `saccade.table` itself loads without PyTorch."""

from ..table import Entry, Table

__all__ = ["Entry", "Table"]
