"""Decoding: one loop for every model that has `start` and `step`."""

from .ensemble import Ensemble
from .loop import Sliding, decode, steps
from .searches import Beam, Hypothesis, Sample, Search

__all__ = ["Beam", "Ensemble", "Hypothesis", "Sample", "Search", "Sliding", "decode", "steps"]
