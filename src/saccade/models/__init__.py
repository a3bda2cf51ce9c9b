"""Compositions: a paper's model is a function from numbers (`Shape`) and built parts (`Parts`) to a module."""

from .families import Family, table
from .rnn import RnnSeq2Seq
from .transformer import LanguageModel, Transformer, TransformerEncoder

__all__ = ["Family", "LanguageModel", "RnnSeq2Seq", "Transformer", "TransformerEncoder", "table"]
