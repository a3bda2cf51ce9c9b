"""Compositions: a paper's model is a class that is built from settings (`Config`) and the parts they name."""

from .encoders import Bag, RnnEncoder
from .families import Family, table
from .kinds import AttendingEncoder, CarryingLM, CausalLM, Decodable, Encoder, Seq2Seq
from .labels import Classifier, MaskedModel, Tagger
from .rnn import RnnSeq2Seq
from .rnn_decoder import RnnDecoder, RnnLanguageModel
from .transformer import LanguageModel, Transformer, TransformerDecoder, TransformerEncoder
from .transformer_xl import TransformerXL
from .two_stream import TwoStream

__all__ = ["AttendingEncoder", "Bag", "CarryingLM", "CausalLM", "Classifier", "Decodable", "Encoder", "Family", "LanguageModel"]
__all__ += ["MaskedModel", "RnnDecoder", "RnnEncoder", "RnnLanguageModel", "RnnSeq2Seq", "Seq2Seq", "Tagger", "Transformer"]
__all__ += ["TransformerDecoder", "TransformerEncoder", "TransformerXL", "TwoStream", "table"]
