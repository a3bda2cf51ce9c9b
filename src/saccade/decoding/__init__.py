"""Decoding: one loop for every model that has `start` and `step`."""

from .ensemble import Ensemble
from .loop import Decodable, decode
from .searches import Beam, Hypothesis, Sample, Search, greedy

__all__ = ["Beam", "Decodable", "Ensemble", "Hypothesis", "Sample", "Search", "decode", "greedy"]
