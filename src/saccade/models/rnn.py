"""Sequence to sequence with RNNs: a fixed context, Bahdanau's and Luong's attention. B batch, N source, T target, H hidden, V vocabulary."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..core import State, masks
from ..core.scores import Additive, Bilinear
from ..layers.attention import Reader
from ..layers.recurrent import Bidirectional, Cell, Gru, Recurrence, cells
from .families import Choice, Family, MechanismPlan, part, table
from .kinds import Seq2Seq


@dataclass(frozen=True)
class Shape:
    """The numbers of an RNN encoder–decoder; `hidden` is the width of a state, each direction of the encoder has it."""

    dim: int = 256
    hidden: int = 256
    depth: int = 1
    dropout: float = 0.1


@dataclass(frozen=True)
class Parts:
    """The built parts: which cell, and a mechanism where the decoder attends."""

    cell: type[Cell] = part(cells, Gru)


@dataclass(frozen=True)
class BahdanauParts(Parts):
    """Bahdanau's parts: an additive score unless another mechanism is named."""

    mechanism: MechanismPlan = MechanismPlan(score=Choice(Additive))


@dataclass(frozen=True)
class LuongParts(Parts):
    """Luong's parts: a bilinear score unless another mechanism is named."""

    mechanism: MechanismPlan = MechanismPlan(score=Choice(Bilinear))


class Decoder(nn.Module):
    """What the decoders share: `start` from the encoder's output, `forward` over a whole target, `step` over one token."""

    reads_memory = False  # every place of the encoder's output, not its end alone

    def __init__(self, parts: Parts, shape: Shape, dim_input: int) -> None:
        super().__init__()
        self.rnn = Recurrence(parts.cell, dim_input, shape.hidden, shape.depth, shape.dropout)
        self.first = nn.Linear(2 * shape.hidden, shape.depth * shape.hidden)
        self.dim, self.hidden, self.depth = shape.dim, shape.hidden, shape.depth

    def first_memory(self, end: Tensor) -> tuple[Tensor, ...]:
        """The decoder's first state, from the encoder's last states (B 2H); an LSTM's cell starts empty."""
        h = torch.tanh(self.first(end)).unflatten(-1, (self.depth, self.hidden))
        return (h, *(torch.zeros_like(h) for _ in range(self.rnn.cell.carries - 1)))

    def start(self, memory: Tensor, end: Tensor, lengths: Tensor) -> State:
        raise NotImplementedError

    def forward(self, x: Tensor, state: State) -> Tensor:
        """Embedded targets, B T dim → features B T H."""
        raise NotImplementedError

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """One embedded token, B dim → features B H."""
        raise NotImplementedError


class FirstStateDecoder(Decoder):
    """The source's one vector is the decoder's first state, and nothing else (Sutskever et al. 2014)."""

    def __init__(self, parts: Parts, shape: Shape) -> None:
        super().__init__(parts, shape, shape.dim)

    def start(self, memory: Tensor, end: Tensor, lengths: Tensor) -> State:
        return State(carried=self.first_memory(end))

    def forward(self, x: Tensor, state: State) -> Tensor:
        return self.rnn(x, state.carried)[0]

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        top, carried = self.rnn.step(self.rnn.project(x), state.carried)
        return top, state.next(carried=carried)


class EveryStepDecoder(Decoder):
    """The source's one vector is the first state and an input of every step (Cho et al. 2014)."""

    def __init__(self, parts: Parts, shape: Shape) -> None:
        super().__init__(parts, shape, shape.dim + 2 * shape.hidden)

    def start(self, memory: Tensor, end: Tensor, lengths: Tensor) -> State:
        return State(carried=self.first_memory(end), context=end)

    def forward(self, x: Tensor, state: State) -> Tensor:
        context = state.context.unsqueeze(1).expand(-1, x.shape[1], -1)
        return self.rnn(torch.cat([x, context], -1), state.carried)[0]

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        projected = self.rnn.project(x) + self.rnn.project(state.context, self.dim)
        top, carried = self.rnn.step(projected, state.carried)
        return top, state.next(carried=carried)


class BahdanauDecoder(Decoder):
    """The state *before* a step asks for the step's context: c_t = attend(s_(t−1)), s_t = cell([y_(t−1); c_t], s_(t−1)).

    The output is read from [s_t; c_t; y_(t−1)] through one tanh layer (the paper has a maxout there).
    """

    reads_memory = True

    def __init__(self, parts: BahdanauParts, shape: Shape) -> None:
        super().__init__(parts, shape, shape.dim + 2 * shape.hidden)
        mechanism = parts.mechanism(dim_q=shape.hidden, dim_k=2 * shape.hidden, heads=1, first=True, cross=True)
        self.cross = Reader(shape.hidden, 2 * shape.hidden, mechanism)
        self.cross.cross = True
        self.readout = nn.Linear(3 * shape.hidden + shape.dim, shape.hidden)

    def start(self, memory: Tensor, end: Tensor, lengths: Tensor) -> State:
        return State(carried=self.first_memory(end), memory=memory, key=self.cross.ready(memory), lengths=lengths)

    def move(self, projected: Tensor, state: State, mask: masks.Mask) -> tuple[Tensor, Tensor, State]:
        """One step: state and context after it."""
        before = state.carried[0][:, -1:]
        context = self.cross(before, state.key, state.memory, mask).squeeze(1)
        top, carried = self.rnn.step(projected + self.rnn.project(context, self.dim), state.carried)
        return top, context, state.next(carried=carried)

    def forward(self, x: Tensor, state: State) -> Tensor:
        mask, tops, contexts = masks.padding(state.lengths), [], []
        for projected in self.rnn.project(x).unbind(1):
            top, context, state = self.move(projected, state, mask)
            tops.append(top)
            contexts.append(context)
        return self.read(torch.stack(tops, 1), torch.stack(contexts, 1), x)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        top, context, state = self.move(self.rnn.project(x), state, masks.padding(state.lengths))
        return self.read(top, context, x), state

    def read(self, top: Tensor, context: Tensor, x: Tensor) -> Tensor:
        return torch.tanh(self.readout(torch.cat([top, context, x], -1)))


class LuongDecoder(Decoder):
    """The state *after* a step asks for a context, and [h_t; a_t] goes through a feed-forward layer to the output.

    No step's state depends on a context, so a whole target is one recurrence and one attention.
    """

    reads_memory = True

    def __init__(self, parts: LuongParts, shape: Shape) -> None:
        super().__init__(parts, shape, shape.dim)
        mechanism = parts.mechanism(dim_q=shape.hidden, dim_k=2 * shape.hidden, heads=1, first=True, cross=True)
        self.cross = Reader(shape.hidden, 2 * shape.hidden, mechanism)
        self.cross.cross = True
        self.readout = nn.Linear(3 * shape.hidden, shape.hidden)

    def start(self, memory: Tensor, end: Tensor, lengths: Tensor) -> State:
        return State(carried=self.first_memory(end), memory=memory, key=self.cross.ready(memory), lengths=lengths)

    def forward(self, x: Tensor, state: State) -> Tensor:
        return self.read(self.rnn(x, state.carried)[0], state)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        top, carried = self.rnn.step(self.rnn.project(x), state.carried)
        return self.read(top.unsqueeze(1), state).squeeze(1), state.next(carried=carried)

    def read(self, tops: Tensor, state: State) -> Tensor:
        contexts = self.cross(tops, state.key, state.memory, masks.padding(state.lengths))
        return torch.tanh(self.readout(torch.cat([tops, contexts], -1)))


class RnnSeq2Seq(Seq2Seq):
    """A bidirectional encoder and one of the decoders above."""

    def __init__(self, source_vocab: int, target_vocab: int, shape: Shape, parts: Parts, decoder: Decoder) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(source_vocab, shape.dim), nn.Embedding(target_vocab, shape.dim)
        self.encoder = Bidirectional(parts.cell, shape.dim, shape.hidden, shape.depth, shape.dropout)
        self.decoder = decoder
        self.dropout = nn.Dropout(shape.dropout)
        self.head = nn.Linear(shape.hidden, target_vocab)
        for table_ in (self.source, self.target):
            nn.init.normal_(table_.weight, std=0.2)  # wide enough for attention to tell words apart from the start
        if decoder.reads_memory:
            self.encoder.favor_own_word()

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Logits for the token after each of `target`: B T V."""
        features = self.decoder(self.dropout(self.target(target)), self.start(source, lengths))
        return self.head(self.dropout(features))

    def start(self, source: Tensor, lengths: Tensor) -> State:
        memory, end = self.encoder(self.dropout(self.source(source)), lengths)
        return self.decoder.start(memory, end, lengths)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        features, state = self.decoder.step(self.target(tokens), state)
        return self.head(features), state


def family(decoder: type[Decoder], parts: type[Parts], summary: str) -> Family:
    return Family(
        lambda source, target, shape, p: RnnSeq2Seq(source, target, shape, p, decoder(p, shape)),  # type: ignore[call-arg]
        Shape,
        parts,
        summary,
        kind=Seq2Seq,
    )


table.add("fixed-first", paper="Sutskever et al. 2014", system="S1")(
    family(FirstStateDecoder, Parts, "RNN encoder–decoder; one fixed context as the first state.")
)
table.add("fixed-context", paper="Cho et al. 2014", system="S1")(
    family(EveryStepDecoder, Parts, "RNN encoder–decoder; one fixed context, an input of every step.")
)
table.add("bahdanau", paper="Bahdanau et al. 2015", system="S2")(
    family(BahdanauDecoder, BahdanauParts, "RNN encoder–decoder; the state before a step attends, additive score.")
)
table.add("luong", paper="Luong et al. 2015", system="S3")(
    family(LuongDecoder, LuongParts, "RNN encoder–decoder; the state after a step attends, bilinear score.")
)
