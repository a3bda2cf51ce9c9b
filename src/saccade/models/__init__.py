"""Compositions: a paper's model is a class that is built from settings (`Config`) and the parts they name."""

from . import deep_rnn as deep_rnn
from .bytenet import ByteNet
from .classifiers import Answerer, Classifier, MaskedModel, Tagger
from .cnn import CNN
from .convs2s import ConvS2S
from .efficientnet import EfficientNetLite0
from .encoders import Bag, RnnEncoder, WindowMLP
from .families import Family, table
from .graph_network import GraphNetwork
from .group_cnn import GroupCNN
from .mesh_network import MeshNetwork
from .protocols import (
    AttendingEncoder,
    Carrying,
    CarryingLM,
    CausalLM,
    Decodable,
    Encoder,
    ImageEncoder,
    ImageToText,
    LookingEncoder,
    Seq2Seq,
    TextAutoencoder,
)
from .rnn import RnnSeq2Seq
from .rnn_decoder import RnnDecoder, RnnLanguageModel
from .swin import Swin
from .transformer import LanguageModel, Transformer, TransformerDecoder, TransformerEncoder
from .transformer_xl import TransformerXL
from .two_stream import TwoStream
from .vaswani import BaseConfig, BigConfig
from .vit import ViT
from .xlnet import RecurrentTwoStream, XLNet

__all__ = [
    "CNN",
    "Answerer",
    "AttendingEncoder",
    "Bag",
    "BaseConfig",
    "BigConfig",
    "ByteNet",
    "Carrying",
    "CarryingLM",
    "CausalLM",
    "Classifier",
    "ConvS2S",
    "Decodable",
    "EfficientNetLite0",
    "Encoder",
    "Family",
    "GraphNetwork",
    "GroupCNN",
    "ImageEncoder",
    "ImageToText",
    "LanguageModel",
    "LookingEncoder",
    "MaskedModel",
    "MeshNetwork",
    "RecurrentTwoStream",
    "RnnDecoder",
    "RnnEncoder",
    "RnnLanguageModel",
    "RnnSeq2Seq",
    "Seq2Seq",
    "Swin",
    "Tagger",
    "TextAutoencoder",
    "Transformer",
    "TransformerDecoder",
    "TransformerEncoder",
    "TransformerXL",
    "TwoStream",
    "ViT",
    "WindowMLP",
    "XLNet",
    "table",
]
