"""Decoding: one loop for every model that has `start` and `step`."""

from .loop import Decodable, decode
from .searches import Beam, Hypothesis, Sample, Search, greedy

__all__ = ["Beam", "Decodable", "Hypothesis", "Sample", "Search", "decode", "greedy"]
