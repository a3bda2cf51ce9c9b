"""Deep RNN encoder–decoders: GNMT, Deep-Att, experts between LSTMs. B batch, N source, T target, H hidden, M width of the memory.

In all three the bottom layer of the decoder attends by its state before each step, so that it alone goes step by step: the layers
above it, and all of the encoder's, read whole sequences.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..core import Ready, State, normalizers, scores
from ..errors import SaccadeError
from ..layers import feedforward
from ..layers.noisy_experts import NoisyExperts
from ..layers.recurrent import Bidirectional, Carried, Lstm, Recurrence, cells, last_of
from ..settings import Choice, number, part
from .families import Sizes, add_family, named_sizes
from .protocols import Seq2Seq
from .rnn import RnnSeq2Seq, make_reader, prepared
from .rnn_settings import RnnConfig


@dataclass(frozen=True)
class GnmtConfig(RnnConfig):
    """GNMT's settings."""

    sizes: ClassVar[Sizes] = named_sizes(  # big is the paper's
        dim=(64, 128, 256, 512, 1024),
        hidden=(64, 128, 256, 512, 1024),
        depth=(2, 3, 4, 8, 8),
        dropout=(0.1, 0.2, 0.3, 0.2, 0.2),
    )

    depth: int = number(8, 1, 1000, "layers of the encoder, and of the decoder")
    cell: Choice = part(cells, Lstm)
    score: Choice = part(scores.table, scores.Additive)
    normalize: Choice = part(normalizers.table, normalizers.Softmax)


@dataclass(frozen=True)
class DeepAttConfig(GnmtConfig):
    """Deep-Att's settings."""

    sizes: ClassVar[Sizes] = named_sizes(  # base is the paper's
        dim=(64, 128, 256, 256, 512),
        hidden=(64, 128, 256, 512, 1024),
        depth=(2, 3, 4, 9, 9),
        dropout=(0.1, 0.2, 0.3, 0.1, 0.1),
    )

    depth: int = number(9, 1, 1000, "layers in each of the encoder's two columns")
    decoder_depth: int = number(7, 1, 1000, "layers of the decoder")


@dataclass(frozen=True)
class ExpertsConfig(RnnConfig):
    """The settings of an LSTM encoder–decoder with experts."""

    sizes: ClassVar[Sizes] = named_sizes(  # big is the paper's but for the number of experts
        dim=(64, 128, 256, 512, 512),
        hidden=(128, 256, 512, 1024, 2048),
        lstm_width=(128, 256, 512, 1024, 2048),
        depth=(2, 2, 2, 2, 2),
        dropout=(0.1, 0.2, 0.3, 0.2, 0.2),
    )

    dim: int = number(256, 1, 65_536, "width of a token's vector, and of what each layer gives")
    hidden: int = number(512, 1, 65_536, "width of an expert")
    lstm_width: int = number(
        512, 1, 65_536, "width of an LSTM's cell, whose output is projected to dim; at least dim"
    )
    depth: int = number(
        2,
        1,
        1000,
        "layers of the encoder, the first of them in both directions, and of the decoder",
    )
    feedforward: Choice = part(feedforward.table, NoisyExperts, "what is between two LSTMs")
    score: Choice = part(scores.table, scores.Additive)
    normalize: Choice = part(normalizers.table, normalizers.Softmax)


class BottomDecoder(nn.Module):
    """The bottom layer's state before a step asks for the context: a_t = attend(s_(t−1)), s_t = cell([y_(t−1); a_t], s_(t−1))."""

    reads_memory = True
    layers: nn.ModuleList  # above the bottom

    def __init__(self, c: Any, dim_memory: int, bottom: Recurrence, width: int) -> None:
        super().__init__()
        self.dim, self.width, self.bottom = c.dim, width, bottom
        self.cross = make_reader(c, self.width, dim_memory)
        self.dropout = nn.Dropout(c.dropout)

    def above(
        self, x: Tensor, bottom: Tensor, context: Tensor, carried: list[Carried]
    ) -> tuple[Tensor, list[Carried]]:
        """From the embedded targets, the bottom's states and the contexts, B T … or B …, to features and what is carried on."""
        raise NotImplementedError

    def start(self, memory: Tensor, end: Tensor, lengths: Tensor) -> State:
        """Initial states are 0; the source is read by attention."""
        carried = [
            layer.empty(len(memory), memory) for layer in (self.bottom, *recurrences(self.layers))
        ]
        return State(carried=carried, length=0, **prepared(self.cross, memory, lengths))

    def move(
        self, projected: Tensor, state: State, before: Carried, first: int
    ) -> tuple[Tensor, Tensor, Carried]:
        """One step of the bottom layer: its state, the context and the carried state."""
        context = self.cross(
            before[0][:, -1:], Ready(state.key, state.value), state.readable, first
        ).squeeze(1)
        bottom, after = self.bottom.step(projected + self.bottom.project(context, self.dim), before)
        return bottom, context, after

    def forward(self, x: Tensor, state: State) -> Tensor:
        bottoms, contexts, carried = [], [], state.carried[0]
        for n, projected in enumerate(self.bottom.project(x).unbind(1)):
            bottom, context, carried = self.move(projected, state, carried, n)
            bottoms.append(bottom)
            contexts.append(context)
        return self.above(x, torch.stack(bottoms, 1), torch.stack(contexts, 1), state.carried[1:])[
            0
        ]

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        bottom, context, carried = self.move(
            self.bottom.project(x), state, state.carried[0], state.length
        )
        features, above = self.above(x, bottom, context, state.carried[1:])
        return features, state.next(carried=[carried, *above], length=state.length + 1)


def recurrences(layers: nn.ModuleList) -> Iterator[Recurrence]:
    for layer in layers:
        assert isinstance(layer, Recurrence)
        yield layer


# --- GNMT ---


class GnmtEncoder(nn.Module):
    """A layer in both directions, then layers from left to right; from the third on, each adds to what it reads."""

    def __init__(self, c: GnmtConfig) -> None:
        super().__init__()
        cell: Any = c.cell.make
        self.bottom = Bidirectional(cell, c.dim, c.hidden)
        self.layers = nn.ModuleList(
            Recurrence(cell, c.hidden if n else 2 * c.hidden, c.hidden) for n in range(c.depth - 1)
        )
        self.dropout = nn.Dropout(c.dropout)
        self.width = c.hidden if c.depth > 1 else 2 * c.hidden

    def favor_own_word(self) -> None:
        self.bottom.favor_own_word()

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        x, _ = self.bottom(x, lengths)
        for n, layer in enumerate(self.layers, 2):
            y, _ = layer(self.dropout(x))
            x = x + y if n > 2 else y
        return x, last_of(x, lengths)


class GnmtDecoder(BottomDecoder):
    """Each layer reads [what is below; a_t]; from the third on, each adds to what is below."""

    def __init__(self, c: GnmtConfig, dim_memory: int) -> None:
        cell: Any = c.cell.make
        super().__init__(c, dim_memory, Recurrence(cell, c.dim + dim_memory, c.hidden), c.hidden)
        self.layers = nn.ModuleList(
            Recurrence(cell, c.hidden + dim_memory, c.hidden) for _ in range(c.depth - 1)
        )

    def above(
        self, x: Tensor, bottom: Tensor, context: Tensor, carried: list[Carried]
    ) -> tuple[Tensor, list[Carried]]:
        below, after = bottom, []
        for n, (layer, before) in enumerate(zip(recurrences(self.layers), carried, strict=True), 2):
            y, last = layer.read(torch.cat([self.dropout(below), context], -1), before)
            below = below + y if n > 2 else y
            after.append(last)
        return below, after


# --- Deep-Att ---


def fast_layers(cell: Any, dim: int, hidden: int, depth: int) -> nn.ModuleList:
    """Layers with fast-forward connections: f = W x + b feeds a layer's gates, and the next layer reads [first half of f; h].

    No function but W is on the path from f to f, so that gradients pass all layers.
    """
    first = Recurrence(cell, dim, hidden)
    width = half_of(first) + hidden
    return nn.ModuleList([first, *(Recurrence(cell, width, hidden) for _ in range(depth - 1))])


def half_of(layer: Recurrence) -> int:
    """Half of the input width of a layer's gates."""
    return len(layer.parameter("bias_ih_l0")) // 2


class DeepAttEncoder(nn.Module):
    """Two columns of layers whose directions alternate, one from left to right first, the other from right to left.

    The memory is a projection of both columns' f and h at the top to a quarter of their width.
    """

    def __init__(self, c: DeepAttConfig) -> None:
        super().__init__()
        self.columns = nn.ModuleList(
            fast_layers(c.cell.make, c.dim, c.hidden, c.depth) for _ in range(2)
        )
        top = 2 * (len(self.layers(0)[0].parameter("bias_ih_l0")) + c.hidden)
        self.width = max(top // 4, 1)
        self.shorten = nn.Linear(top, self.width, bias=False)
        self.dropout = nn.Dropout(c.dropout)

    def layers(self, column: int) -> list[Recurrence]:
        found = self.columns[column]
        assert isinstance(found, nn.ModuleList)
        return list(recurrences(found))

    def favor_own_word(self) -> None:
        for column in range(2):
            self.layers(column)[0].favor_input()

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        tops = []
        for column in range(2):
            below, layers = x, self.layers(column)
            for n, layer in enumerate(layers):
                h = self.dropout(
                    layer.read_back(below, lengths) if (n + column) % 2 else layer(below)[0]
                )
                f = layer.project(below, gates=None if layer is layers[-1] else half_of(layer))
                below = torch.cat([f, h], -1)
            tops.append(below)
        memory = self.shorten(torch.cat(tops, -1))
        return memory, last_of(memory, lengths)


class DeepAttDecoder(BottomDecoder):
    """Fast-forward connections from [y_(t−1); a_t] up; the output is read from the top layer's state."""

    def __init__(self, c: DeepAttConfig, dim_memory: int) -> None:
        first, *rest = recurrences(
            fast_layers(c.cell.make, c.dim + dim_memory, c.hidden, c.decoder_depth)
        )
        super().__init__(c, dim_memory, first, c.hidden)
        self.layers = nn.ModuleList(rest)

    def above(
        self, x: Tensor, bottom: Tensor, context: Tensor, carried: list[Carried]
    ) -> tuple[Tensor, list[Carried]]:
        layer, below, h, after = self.bottom, torch.cat([x, context], -1), bottom, []
        for above, before in zip(recurrences(self.layers), carried, strict=True):
            below = torch.cat([layer.project(below, gates=half_of(layer)), self.dropout(h)], -1)
            h, last = above.read(below, before)
            layer = above
            after.append(last)
        return h, after


# --- experts between LSTMs ---


def between(c: ExpertsConfig) -> tuple[nn.ModuleList, nn.ModuleList]:
    """For each layer above the first, its experts and its LSTM."""
    facts = {"dim": c.dim, "hidden": c.hidden, "dropout": c.dropout, "depth": c.depth}
    parts = nn.ModuleList(c.feedforward(**facts, n=n) for n in range(1, c.depth))
    return parts, nn.ModuleList(projected_lstm(c, c.dim) for _ in range(1, c.depth))


def projected_lstm(c: ExpertsConfig, dim: int) -> Recurrence:
    """An LSTM of width `lstm_width` whose states are projected to `dim`."""
    if c.lstm_width < c.dim:
        raise SaccadeError(
            f"model.lstm_width is {c.lstm_width}, below model.dim={c.dim}; give at least {c.dim}",
            code="width-out-of-range",
        )
    return Recurrence(Lstm, dim, c.lstm_width, output=c.dim if c.lstm_width > c.dim else None)


class ExpertsEncoder(nn.Module):
    """x + LSTM(x) from both ends, added; then x + experts(x) and x + LSTM(x) for each further layer."""

    def __init__(self, c: ExpertsConfig) -> None:
        super().__init__()
        self.there, self.back = projected_lstm(c, c.dim), projected_lstm(c, c.dim)
        self.experts, self.layers = between(c)
        self.dropout, self.width = nn.Dropout(c.dropout), c.dim

    def favor_own_word(self) -> None:
        for layer in (self.there, self.back):
            layer.favor_input()

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        x = x + self.dropout(self.there(x)[0] + self.back.read_back(x, lengths))
        for experts, layer in zip(self.experts, self.layers, strict=True):
            x = x + self.dropout(experts(x))
            x = x + self.dropout(layer(x)[0])
        return x, last_of(x, lengths)


class ExpertsDecoder(BottomDecoder):
    """y_(t−1) + LSTM([y_(t−1); a_t]); then x + experts(x) and x + LSTM(x) for each further layer."""

    def __init__(self, c: ExpertsConfig, dim_memory: int) -> None:
        super().__init__(c, dim_memory, projected_lstm(c, c.dim + dim_memory), c.dim)
        self.experts, self.layers = between(c)

    def above(
        self, x: Tensor, bottom: Tensor, context: Tensor, carried: list[Carried]
    ) -> tuple[Tensor, list[Carried]]:
        x, after = x + self.dropout(bottom), []
        for experts, layer, before in zip(
            self.experts, recurrences(self.layers), carried, strict=True
        ):
            x = x + self.dropout(experts(x))
            y, last = layer.read(x, before)
            x = x + self.dropout(y)
            after.append(last)
        return x, after


for name, paper, config, decoder, encoder, summary in (
    (
        "gnmt",
        "Wu et al. 2016",
        GnmtConfig,
        GnmtDecoder,
        GnmtEncoder,
        "deep, with residuals; the bottom layer attends for all.",
    ),
    (
        "deep-att",
        "Zhou et al. 2016",
        DeepAttConfig,
        DeepAttDecoder,
        DeepAttEncoder,
        "deep, with fast-forward connections.",
    ),
    (
        "moe-lstm",
        "Shazeer et al. 2017",
        ExpertsConfig,
        ExpertsDecoder,
        ExpertsEncoder,
        "sparsely gated experts between LSTMs.",
    ),
):
    builds = {Seq2Seq: partial(RnnSeq2Seq, decoder=decoder, encoder=encoder)}
    add_family(name, paper, config, builds, f"RNN encoder–decoder; {summary}")  # type: ignore[arg-type]
