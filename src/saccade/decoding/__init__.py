"""Decoding: one loop for every model that has `start` and `step`."""

from .loop import Ensemble, Sliding, decode, steps
from .searches import Beam, Hypothesis, Sample, Search

__all__ = ["Beam", "Ensemble", "Hypothesis", "Sample", "Search", "Sliding", "decode", "steps"]
