"""The recurrent language model in the manner of AWD-LSTM (Merity et al. 2018). B batch, N positions, V vocabulary.

Dropped in training, each by its own share: whole words of the vocabulary, the input, what passes between layers, the output (one
mask for all positions each), and the weights from state to state. Kept small in training: the output, and how much it changes from
position to position (Merity et al. 2017).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from torch import Tensor, nn

from ..core import State, masks
from ..core.auxiliary_losses import add_loss
from ..errors import SaccadeError
from ..layers import embeddings, output_heads, pooling, token_inputs
from ..layers.dropouts import LockedDropout, WeightDropped
from ..layers.recurrent import Carried, Lstm, cells
from ..settings import Choice, number, part, setting
from .families import Builds, Sizes, add_family, check_prompts, named_sizes
from .protocols import CarryingLM, Encoder


@dataclass(frozen=True)
class Config:
    """The settings of a recurrent language model; the defaults are the paper's for WikiText-2. The last layer is `dim` wide."""

    sizes: ClassVar[Sizes] = named_sizes(  # base is the paper's for WikiText-2
        dim=(64, 128, 200, 400, 600),
        hidden=(128, 256, 500, 1150, 1500),
        depth=(2, 2, 3, 3, 4),
        dropout=(0.1, 0.2, 0.3, 0.4, 0.4),
    )

    dim: int = number(400, 1, 65_536, "width of a token's vector, and of the last layer")
    hidden: int = number(1150, 1, 65_536, "width of the states between")
    depth: int = number(3, 1, 1000, "layers")
    dropout: float = number(0.4, 0.0, 0.99, "dropout of the output, one mask for all positions")
    embedding_dropout: float = number(0.1, 0.0, 0.99, "dropout of whole words")
    input_dropout: float = number(
        0.65, 0.0, 0.99, "dropout of the embedded words, one mask for all positions"
    )
    layer_dropout: float = number(
        0.2, 0.0, 0.99, "dropout between layers, one mask for all positions"
    )
    weight_dropout: float = number(0.5, 0.0, 0.99, "dropout of the weights from state to state")
    size_penalty: float = number(
        2.0, 0.0, 1000.0, "cost of large outputs in training (α of Merity et al. 2017)"
    )
    change_penalty: float = number(
        1.0, 0.0, 1000.0, "cost of outputs that change from position to position (β)"
    )
    tied: bool = setting(True, "tie the output projection to the embedding")
    cell: Choice = part(cells, Lstm)
    embedding: Choice = part(embeddings.table, embeddings.Tokens)
    head: Choice = part(output_heads.table, output_heads.LinearHead)
    pool: Choice = part(
        pooling.pools, pooling.Attention, "how a text's vectors become one, for a label"
    )


class Layers(nn.Module):
    """Recurrences one after another, of widths dim → hidden → … → hidden → dim."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        widths = [c.dim, *[c.hidden] * (c.depth - 1), c.dim]
        cell = c.cell.make
        self.layers = nn.ModuleList(
            WeightDropped(cell, here, there, c.weight_dropout)  # type: ignore[arg-type]
            for here, there in pairwise(widths)
        )
        self.between, self.after = LockedDropout(c.layer_dropout), LockedDropout(c.dropout)

    def __iter__(self) -> Iterator[WeightDropped]:
        for layer in self.layers:
            assert isinstance(layer, WeightDropped)
            yield layer

    def forward(self, x: Tensor, carried: list[Carried]) -> tuple[Tensor, list[Carried]]:
        """B N dim → B N dim before dropout, and the new state."""
        after = []
        for n, (layer, state) in enumerate(zip(self, carried, strict=True)):
            x, state = layer(self.between(x) if n else x, state)
            after.append(state)
        return x, after

    def step(self, x: Tensor, carried: list[Carried]) -> tuple[Tensor, list[Carried]]:
        """One position, B dim."""
        after = []
        for layer, state in zip(self, carried, strict=True):
            x, state = layer.step(layer.project(x), state)
            after.append(state)
        return x, after


class RnnReader(nn.Module):
    """Embedding and layers with a carried state."""

    def __init__(self, vocab: int, c: Config) -> None:
        super().__init__()
        tokens = c.embedding(vocab=vocab, dim=c.dim)
        self.embedding = token_inputs.WordInput(
            tokens, LockedDropout(c.input_dropout), c.embedding_dropout, std=0.1 / 3**0.5
        )
        self.decoder, self.dim = Layers(c), c.dim

    def empty(self, tokens: Tensor) -> list[Carried]:
        """The initial state."""
        like = next(self.embedding.parameters())
        return [layer.empty(len(tokens), like) for layer in self.decoder]

    def read(self, tokens: Tensor, carried: list[Carried]) -> tuple[Tensor, list[Carried]]:
        """B N → B N dim and the new state."""
        x, after = self.decoder(self.embedding(tokens), carried)
        return self.decoder.after(x), after


class RnnDecoder(RnnReader, Encoder):
    """Causal encoder, B N dim."""

    sees_ahead = False

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return self.read(tokens, self.empty(tokens))[0]


class RnnLanguageModel(RnnReader, CarryingLM):
    """Recurrent language model. Long texts are read in pieces with a carried state."""

    attends = False

    def __init__(self, vocab: int, c: Config) -> None:
        super().__init__(vocab, c)
        self.head = c.head(
            dim=c.dim, vocab=vocab, tied=self.embedding.tokens if c.tied else None, bias=True
        )
        self.size_penalty, self.change_penalty = c.size_penalty, c.change_penalty

    def read(self, tokens: Tensor, carried: list[Carried]) -> tuple[Tensor, list[Carried]]:
        plain, after = self.decoder(self.embedding(tokens), carried)
        dropped = self.decoder.after(plain)
        return (
            add_loss(dropped, "activations", self.penalty(plain, dropped))
            if self.training
            else dropped
        ), after

    def penalty(self, plain: Tensor, dropped: Tensor) -> Tensor:
        """Added to the loss of each token of a row, B: α · mean(output²) after dropout + β · mean(change²) between positions before it."""
        size = self.size_penalty * dropped.float().square().mean((1, 2))
        if plain.shape[1] < 2:
            return size
        return size + self.change_penalty * (plain[:, 1:] - plain[:, :-1]).float().square().mean(
            (1, 2)
        )

    def features(self, tokens: Tensor, mask: masks.Mask | None = None) -> Tensor:
        """The head's input, B N dim."""
        if mask is not None and type(mask) is not masks.Full:
            why = "its state carries everything before"
            raise SaccadeError(
                f"a recurrent model takes no mask, got {mask!r}: {why}; give one document per row",
                code="mask-not-supported",
            )
        return self.read(tokens, self.empty(tokens))[0]

    def forward(
        self, tokens: Tensor, mask: masks.Mask | None = None, positions: Tensor | None = None
    ) -> Tensor:
        if positions is not None:
            raise SaccadeError(
                "a recurrent model takes no positions: it reads one token after another",
                code="positions-not-supported",
            )
        return self.head(self.features(tokens, mask))

    def forward_from(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """As in `CarryingLM`: backpropagation through time is truncated where a piece begins."""
        carried = [tuple(part.detach() for part in one) for one in state.carried]
        features, carried = self.read(tokens, carried)
        return self.head(features), state.next(
            carried=carried, length=state.length + tokens.shape[1]
        )

    def start(self, source: Tensor, lengths: Tensor) -> State:
        """After reading prompts `source` (B N), all equally long; N may be 0."""
        check_prompts(source, lengths)
        carried = self.empty(source)
        return State(
            carried=self.read(source, carried)[1] if source.shape[1] else carried,
            length=source.shape[1],
        )

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        features, carried = self.decoder.step(
            self.embedding(tokens.unsqueeze(1)).squeeze(1), state.carried
        )
        return self.head(features), state.next(carried=carried, length=state.length + 1)


kinds: Builds = {CarryingLM: RnnLanguageModel, Encoder: RnnDecoder}
about = "RNN decoder alone: a language model in the manner of AWD-LSTM."
add_family("rnn-decoder", "Merity et al. 2018", Config, kinds, about)
