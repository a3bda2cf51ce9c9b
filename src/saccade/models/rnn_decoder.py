"""The recurrent language model in the manner of AWD-LSTM (Merity et al. 2018). B batch, N places, V vocabulary.

Dropped in training, each by its own share: whole words of the vocabulary, the input, what passes between layers, the output (one
mask for all places each), and the weights from state to state. Kept small in training: the output, and how much it changes from
place to place (Merity et al. 2017).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor, nn

from ..core import State, masks
from ..core.extras import leave
from ..errors import SaccadeError
from ..layers import pooling
from ..layers.dropouts import LockedDropout, WeightDropped
from ..layers.embeddings import WordEmbedding
from ..layers.heads import BiasedHead
from ..layers.recurrent import Cell, Lstm, Memory, cells
from .families import Choice, Family, check_prompts, part, table
from .kinds import CarryingLM, Encoder


@dataclass(frozen=True)
class Shape:
    """The numbers of a recurrent language model; the defaults are the paper's for WikiText-2. The last layer is `dim` wide."""

    dim: int = 400
    hidden: int = 1150
    depth: int = 3
    dropout: float = 0.4
    embedding_dropout: float = 0.1
    input_dropout: float = 0.65
    layer_dropout: float = 0.2
    weight_dropout: float = 0.5
    size_penalty: float = 2.0
    change_penalty: float = 1.0
    tied: bool = True


@dataclass(frozen=True)
class Parts:
    """The built parts: which cell, and how a text's vectors become one for a label."""

    cell: type[Cell] = part(cells, Lstm)
    pool: Choice = part(pooling.pools, Choice(pooling.Attention))


class Layers(nn.Module):
    """Recurrences one after another, of widths dim → hidden → … → hidden → dim."""

    def __init__(self, shape: Shape, cell: type[Cell]) -> None:
        super().__init__()
        widths = [shape.dim, *[shape.hidden] * (shape.depth - 1), shape.dim]
        self.layers = nn.ModuleList(WeightDropped(cell, here, there, shape.weight_dropout) for here, there in pairwise(widths))
        self.between, self.after = LockedDropout(shape.layer_dropout), LockedDropout(shape.dropout)

    def __iter__(self) -> Iterator[WeightDropped]:
        for layer in self.layers:
            assert isinstance(layer, WeightDropped)
            yield layer

    def empty(self, batch: int, like: Tensor) -> list[Memory]:
        return [layer.empty(batch, like) for layer in self]

    def forward(self, x: Tensor, carried: list[Memory]) -> tuple[Tensor, list[Memory]]:
        """B N dim → B N dim, not yet dropped, and what is carried on."""
        after = []
        for n, (layer, memory) in enumerate(zip(self, carried, strict=True)):
            x, memory = layer(self.between(x) if n else x, memory)
            after.append(memory)
        return x, after

    def step(self, x: Tensor, carried: list[Memory]) -> tuple[Tensor, list[Memory]]:
        """One place, B dim."""
        after = []
        for layer, memory in zip(self, carried, strict=True):
            x, memory = layer.step(layer.project(x), memory)
            after.append(memory)
        return x, after


class Reading(nn.Module):
    """Embedding and layers, and how they read on from what is carried."""

    def __init__(self, vocab: int, shape: Shape, parts: Parts) -> None:
        super().__init__()
        self.embedding = WordEmbedding(vocab, shape.dim, LockedDropout(shape.input_dropout), shape.embedding_dropout)
        nn.init.uniform_(self.embedding.tokens.weight, -0.1, 0.1)
        self.decoder = Layers(shape, parts.cell)

    def empty(self, tokens: Tensor) -> list[Memory]:
        """What is carried before the first token."""
        return self.decoder.empty(len(tokens), self.embedding.tokens.weight)

    def read(self, tokens: Tensor, carried: list[Memory]) -> tuple[Tensor, list[Memory]]:
        """B N → B N dim and what is carried on."""
        x, after = self.decoder(self.embedding(tokens), carried)
        return self.decoder.after(x), after


class RnnDecoder(Reading, Encoder):
    """Each place knows the tokens up to its own: B N dim."""

    sees_ahead = False

    def __init__(self, vocab: int, shape: Shape, parts: Parts) -> None:
        super().__init__(vocab, shape, parts)
        self.dim = shape.dim

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return self.read(tokens, self.empty(tokens))[0]


class RnnLanguageModel(Reading, CarryingLM):
    """Each token from those before it; a long text may be read in pieces, the state carried on."""

    def __init__(self, vocab: int, shape: Shape, parts: Parts) -> None:
        super().__init__(vocab, shape, parts)
        self.head = BiasedHead(self.embedding.tokens.weight, shape.tied)
        self.size_penalty, self.change_penalty = shape.size_penalty, shape.change_penalty

    def read(self, tokens: Tensor, carried: list[Memory]) -> tuple[Tensor, list[Memory]]:
        plain, after = self.decoder(self.embedding(tokens), carried)
        dropped = self.decoder.after(plain)
        return (leave(dropped, "activations", self.penalty(plain, dropped)) if self.training else dropped), after

    def penalty(self, plain: Tensor, dropped: Tensor) -> Tensor:
        """Added to the loss of each token of a row, B: α · mean(output²) after dropout, and β · mean of the squared changes from
        position to position before it (Merity et al. 2017)."""
        size = self.size_penalty * dropped.float().square().mean((1, 2))
        if plain.shape[1] < 2:
            return size
        return size + self.change_penalty * (plain[:, 1:] - plain[:, :-1]).float().square().mean((1, 2))

    def features(self, tokens: Tensor, mask: masks.Mask | None = None) -> Tensor:
        """What the head reads: B N dim."""
        if mask is not None and mask.key != masks.full().key:
            raise SaccadeError(
                f"the mask {mask!r} for a recurrent model, whose state carries everything before on; give one document a row"
            )
        return self.read(tokens, self.empty(tokens))[0]

    attends = False

    def forward(self, tokens: Tensor, mask: masks.Mask | None = None, positions: Tensor | None = None) -> Tensor:
        """Logits for the token after each: B N V."""
        return self.head(self.features(tokens, mask))

    def forward_from(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Logits (B N V) for tokens that follow those the state has read, and the state after them.

        Gradients stop at the state handed in: backpropagation through time, truncated where a piece begins.
        """
        carried = [tuple(part.detach() for part in memory) for memory in state.carried]
        features, carried = self.read(tokens, carried)
        return self.head(features), state.next(carried=carried)

    def start(self, source: Tensor, lengths: Tensor) -> State:
        """After reading prompts `source` (B N), all equally long; N may be 0."""
        check_prompts(source, lengths)
        carried = self.empty(source)
        return State(carried=self.read(source, carried)[1] if source.shape[1] else carried)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """One token a row (B) → logits (B V) and the state after it."""
        features, carried = self.decoder.step(self.embedding.tokens(tokens), state.carried)
        return self.head(features), state.next(carried=carried)


table.add("rnn-decoder", paper="Merity et al. 2018", system="S1")(
    Family(
        lambda _, vocab, shape, parts: RnnLanguageModel(vocab, shape, parts),
        Shape,
        Parts,
        "RNN decoder alone: a language model in the manner of AWD-LSTM.",
        RnnDecoder,
        CarryingLM,
    )
)
