"""Compositions: a paper's model is a function from numbers (`Shape`) and built parts (`Parts`) to a module."""

from .families import MEANINGS, Family, table
from .kinds import AttendingEncoder, CarryingLM, CausalLM, Decodable, Encoder, Seq2Seq
from .labels import Classifier, MaskedModel, Tagger
from .rnn import RnnSeq2Seq
from .rnn_decoder import RnnDecoder, RnnLanguageModel
from .rnn_encoder import Bag, RnnEncoder
from .transformer import LanguageModel, Transformer, TransformerDecoder, TransformerEncoder
from .two_stream import TwoStream

__all__ = [
    "MEANINGS",
    "AttendingEncoder",
    "Bag",
    "CarryingLM",
    "CausalLM",
    "Classifier",
    "Decodable",
    "Encoder",
    "Family",
    "LanguageModel",
    "MaskedModel",
    "RnnDecoder",
    "RnnEncoder",
    "RnnLanguageModel",
    "RnnSeq2Seq",
    "Seq2Seq",
    "Tagger",
    "Transformer",
    "TransformerDecoder",
    "TransformerEncoder",
    "TwoStream",
    "table",
]
