"""The settings of RNN encoder–decoders with a fixed context, Bahdanau's and Luong's attention."""

from dataclasses import dataclass
from typing import ClassVar

from ..core import normalizers, scores
from ..layers import decoder_windows, embeddings, image_inputs, output_heads
from ..layers.recurrent import Gru, cells
from ..settings import Choice, number, one_of, part, setting
from .families import Sizes, named_sizes

FORGETS = "share of contexts that the state does not read in training, so that each word looks for itself; the output reads them all"

INPUTS = "dropout of embedded tokens, and of an image's positions; by default `dropout`"
FIRST = "the first state: tanh of a linear layer, or of a ReLU layer and a linear one, for an LSTM's cell too (Xu et al. 2015)"


@dataclass(frozen=True)
class RnnConfig:
    """What the settings of all RNN encoder–decoders share."""

    sizes: ClassVar[Sizes] = named_sizes(  # base is Bahdanau's, big is Luong's
        dim=(64, 128, 256, 620, 1000),
        hidden=(64, 128, 256, 1000, 1000),
        depth=(1, 1, 1, 1, 4),
        dropout=(0.1, 0.2, 0.3, 0.2, 0.2),
    )

    dim: int = number(256, 1, 65_536, "width of a token's vector")
    hidden: int = number(
        256, 1, 65_536, "width of a state; where the encoder has two directions, each has it"
    )
    depth: int = number(1, 1, 1000, "layers")
    dropout: float = number(0.1, 0.0, 0.99, "dropout between layers")
    input_dropout: float | None = number(None, 0.0, 0.99, INPUTS)
    embedding: Choice = part(embeddings.table, embeddings.Tokens)
    head: Choice = part(output_heads.table, output_heads.LinearHead)


@dataclass(frozen=True)
class Config(RnnConfig):
    """The settings of an RNN encoder–decoder."""

    cell: Choice = part(cells, Gru)
    first_state: str = one_of(("linear", "mlp"), FIRST)
    bidirectional: bool = setting(
        True, "the encoder reads from both ends; false: from left to right alone"
    )


@dataclass(frozen=True)
class AttendingConfig(Config):
    """What Bahdanau's and Luong's settings share. Queries and keys have no common order, and so no position."""

    score: Choice = part(scores.table, scores.Additive)
    normalize: Choice = part(normalizers.table, normalizers.Softmax)
    gated_context: bool = setting(
        False,
        "a context is multiplied by σ(w·s + b) of the state s that asked for it (Xu et al. 2015)",
    )
    grid_embedding: Choice = part(
        image_inputs.table,
        image_inputs.NoGridEmbedding,
        "rows and columns of an image that is attended to",
    )


@dataclass(frozen=True)
class BahdanauConfig(AttendingConfig):
    """Bahdanau's settings: an additive score unless another is named."""

    context_dropout: float = number(0.0, 0.0, 0.99, FORGETS)


@dataclass(frozen=True)
class LuongConfig(AttendingConfig):
    """Luong's settings: a bilinear score unless another is named."""

    score: Choice = part(scores.table, scores.Bilinear)
    window: Choice = part(decoder_windows.table, decoder_windows.Everywhere)
    input_feeding: bool = setting(
        False,
        "each step also reads what the step before gave the output; targets are then read step by step",
    )
