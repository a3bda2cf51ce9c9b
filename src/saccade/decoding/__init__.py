"""Decoding: one loop for every model that has `start` and `step`."""

from .able import why_plain
from .loop import Ensemble, Prompted, Sliding, decode, steps
from .searches import Beam, Hypothesis, MakeSearch, Sample, Search, searcher

__all__ = [
    "Beam",
    "Ensemble",
    "Hypothesis",
    "MakeSearch",
    "Prompted",
    "Sample",
    "Search",
    "Sliding",
    "decode",
    "searcher",
    "steps",
    "why_plain",
]
