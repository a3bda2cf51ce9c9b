"""Compositions: a paper's model is a function from numbers (`Shape`) and built parts (`Parts`) to a module."""

from .families import MEANINGS, Body, Family, table
from .labels import Classifier, MaskedModel, Tagger
from .rnn import RnnSeq2Seq
from .rnn_decoder import RnnDecoder, RnnLanguageModel
from .rnn_encoder import Bag, RnnEncoder
from .transformer import LanguageModel, Transformer, TransformerDecoder, TransformerEncoder
from .two_stream import TwoStream

__all__ = [
    "MEANINGS",
    "Bag",
    "Body",
    "Classifier",
    "Family",
    "LanguageModel",
    "MaskedModel",
    "RnnDecoder",
    "RnnEncoder",
    "RnnLanguageModel",
    "RnnSeq2Seq",
    "Tagger",
    "Transformer",
    "TransformerDecoder",
    "TransformerEncoder",
    "TwoStream",
    "table",
]
