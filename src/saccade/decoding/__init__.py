"""Decoding: one loop for every model that has `start` and `step`."""

from .decode_loop import Ensemble, PromptedModel, SlidingWindow, decode, steps
from .fast_support import why_plain
from .searches import Beam, Hypothesis, MakeSearch, Sample, Search, searcher

__all__ = [
    "Beam",
    "Ensemble",
    "Hypothesis",
    "MakeSearch",
    "PromptedModel",
    "Sample",
    "Search",
    "SlidingWindow",
    "decode",
    "searcher",
    "steps",
    "why_plain",
]
