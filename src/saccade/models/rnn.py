"""RNN encoder–decoders: fixed context, Bahdanau and Luong attention. B batch, N source, T target, H hidden, V vocabulary."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..core import Mechanism, Ready, State, masks
from ..layers import decoder_windows, image_inputs, token_inputs
from ..layers.dropouts import VectorDropout
from ..layers.fast import attending_gru
from ..layers.multihead_attention import Reader
from ..layers.recurrent import Bidirectional, Recurrence, Unidirectional
from .families import Builds, add_family
from .protocols import ImageEncoder, ImageToText, Seq2Seq, TextAutoencoder
from .rnn_settings import AttendingConfig, BahdanauConfig, Config, LuongConfig, RnnConfig


def make_reader(
    c: Any, dim_query: int, dim_memory: int, window: decoder_windows.Window | None = None
) -> Reader:
    """The cross-attention of a decoder, from the settings `score` and `normalize`."""
    facts = {"dim_q": dim_query, "dim_k": dim_memory, "heads": 1}
    return Reader(dim_query, dim_memory, Mechanism(c.score(**facts), c.normalize(**facts)), window)


def prepared(cross: Reader, memory: Tensor, lengths: Tensor) -> dict[str, Any]:
    """The constant parts of a decoder state: the memory's prepared keys and mask."""
    ready = cross.prepare(memory)
    readable = masks.padding(lengths).prepare(len(memory), 1, 1, memory.shape[1], memory.device)
    readable.allowed()
    return {"key": ready.key, "value": ready.value, "readable": readable}


class Decoder(nn.Module):
    """The source vector is the initial state only (Sutskever et al. 2014). Base class of RNN decoders."""

    reads_memory = False  # reads all positions of the encoder's output

    def __init__(self, c: Config, dim_memory: int, dim_input: int | None = None) -> None:
        super().__init__()
        self.rnn = Recurrence(c.cell.make, dim_input or c.dim, c.hidden, c.depth, c.dropout)  # type: ignore[arg-type]
        self.first = nn.Linear(dim_memory, c.depth * c.hidden)
        self.before, self.first_cell = None, None
        if c.first_state == "mlp":
            self.before = nn.Sequential(
                nn.Linear(dim_memory, dim_memory), nn.ReLU(), nn.Dropout(c.dropout)
            )
            self.first_cell = (
                nn.Linear(dim_memory, c.depth * c.hidden) if self.rnn.cell.carries > 1 else None
            )
        self.dim, self.hidden, self.depth, self.width = c.dim, c.hidden, c.depth, c.hidden

    def start(self, memory: Tensor, end: Tensor, lengths: Tensor) -> State:
        """From the encoder's output (B N M) and its last states (B M); an LSTM's cell starts empty, unless `first_state` is mlp."""
        read = end if self.before is None else self.before(end)
        h = torch.tanh(self.first(read)).unflatten(-1, (self.depth, self.hidden))
        if self.first_cell is not None:
            return State(carried=(h, torch.tanh(self.first_cell(read)).view_as(h)), length=0)
        return State(
            carried=(h, *(torch.zeros_like(h) for _ in range(self.rnn.cell.carries - 1))), length=0
        )

    def forward(self, x: Tensor, state: State) -> Tensor:
        """Embedded targets, B T dim → features B T H."""
        return self.rnn(x, state.carried)[0]

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """One embedded token, B dim → features B H."""
        top, carried = self.rnn.step(self.rnn.project(x), state.carried)
        return top, state.next(carried=carried, length=state.length + 1)


class EveryStepDecoder(Decoder):
    """The source vector is the initial state and an input of every step (Cho et al. 2014)."""

    def __init__(self, c: Config, dim_memory: int) -> None:
        super().__init__(c, dim_memory, c.dim + dim_memory)

    def start(self, memory: Tensor, end: Tensor, lengths: Tensor) -> State:
        return super().start(memory, end, lengths).next(context=end)

    def forward(self, x: Tensor, state: State) -> Tensor:
        context = state.context.unsqueeze(1).expand(-1, x.shape[1], -1)
        return self.rnn(torch.cat([x, context], -1), state.carried)[0]

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        projected = self.rnn.project(x) + self.rnn.project(state.context, self.dim)
        top, carried = self.rnn.step(projected, state.carried)
        return top, state.next(carried=carried, length=state.length + 1)


class AttendingDecoder(Decoder):
    """A decoder with attention, and a tanh layer over state and context."""

    reads_memory = True

    def __init__(
        self,
        c: AttendingConfig,
        dim_memory: int,
        dim_input: int,
        dim_readout: int,
        window: decoder_windows.Window | None = None,
    ) -> None:
        super().__init__(c, dim_memory, dim_input)
        self.cross = make_reader(c, c.hidden, dim_memory, window)
        self.readout = nn.Linear(dim_readout, c.hidden)
        self.gate = nn.Linear(c.hidden, 1) if c.gated_context else None

    def start(self, memory: Tensor, end: Tensor, lengths: Tensor) -> State:
        return super().start(memory, end, lengths).next(**prepared(self.cross, memory, lengths))

    def contexts(self, asking: Tensor, state: State) -> Tensor:
        """The contexts of states (B T H): B T M."""
        found = self.cross(asking, Ready(state.key, state.value), state.readable, state.length)
        return found if self.gate is None else found * self.gate(asking).sigmoid()


class BahdanauDecoder(AttendingDecoder):
    """The state *before* a step is the query: c_t = attend(s_(t−1)), s_t = cell([y_(t−1); c_t], s_(t−1)).

    The output is read from [s_t; c_t; y_(t−1)] through one tanh layer (the paper has a maxout there).
    """

    def __init__(self, c: BahdanauConfig, dim_memory: int) -> None:
        super().__init__(c, dim_memory, c.dim + dim_memory, c.hidden + dim_memory + c.dim)
        self.forget = VectorDropout(c.context_dropout)

    def move(
        self, projected: Tensor, state: State, kept: Tensor | None = None
    ) -> tuple[Tensor, Tensor, State]:
        """One step: the new state and context. `kept` (B 1) is 0 for rows whose state ignores the context."""
        before = state.carried[0][:, -1:]
        context = self.contexts(before, state).squeeze(1)
        read = context if kept is None else context * kept
        top, carried = self.rnn.step(projected + self.rnn.project(read, self.dim), state.carried)
        return top, context, state.next(carried=carried, length=state.length + 1)

    def forward(self, x: Tensor, state: State) -> Tensor:
        own = (
            type(self).move is BahdanauDecoder.move
            and type(self).contexts is AttendingDecoder.contexts
        )
        kept = self.forget.kept(x)
        if own and self.gate is None and attending_gru.is_plain(self.cross, self.rnn):
            return self.read(
                *attending_gru.run_steps(self.cross, self.rnn, self.rnn.project(x), state, kept), x
            )
        tops, contexts = [], []
        for t, projected in enumerate(self.rnn.project(x).unbind(1)):
            top, context, state = self.move(projected, state, None if kept is None else kept[:, t])
            tops.append(top)
            contexts.append(context)
        return self.read(torch.stack(tops, 1), torch.stack(contexts, 1), x)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        top, context, state = self.move(self.rnn.project(x), state)
        return self.read(top, context, x), state

    def read(self, top: Tensor, context: Tensor, x: Tensor) -> Tensor:
        return torch.tanh(self.readout(torch.cat([top, context, x], -1)))


class LuongDecoder(AttendingDecoder):
    """The state *after* a step is the query, and a feed-forward layer reads [h_t; a_t].

    No step's state depends on a context, so a whole target is one recurrence and one attention; with input feeding it does, since the
    step reads the layer's output of the step before.
    """

    def __init__(self, c: LuongConfig, dim_memory: int) -> None:
        fed = c.hidden if c.input_feeding else 0
        super().__init__(c, dim_memory, c.dim + fed, c.hidden + dim_memory, c.window(dim=c.hidden))
        self.feeds = c.input_feeding

    def start(self, memory: Tensor, end: Tensor, lengths: Tensor) -> State:
        state = super().start(memory, end, lengths)
        return state.next(fed=memory.new_zeros(len(memory), self.hidden)) if self.feeds else state

    def forward(self, x: Tensor, state: State) -> Tensor:
        if not self.feeds:
            return self.read(self.rnn(x, state.carried)[0], state)
        features = []
        for projected in self.rnn.project(x).unbind(1):
            one, state = self.move(projected, state)
            features.append(one)
        return torch.stack(features, 1)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return self.move(self.rnn.project(x), state)

    def move(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        """One step: features and the state after it."""
        if self.feeds:
            projected = projected + self.rnn.project(state.fed, self.dim)
        top, carried = self.rnn.step(projected, state.carried)
        features = self.read(top.unsqueeze(1), state).squeeze(1)
        after = state.next(carried=carried, length=state.length + 1)
        return features, after.next(fed=features) if self.feeds else after

    def read(self, tops: Tensor, state: State) -> Tensor:
        return torch.tanh(self.readout(torch.cat([tops, self.contexts(tops, state)], -1)))


def shallow(c: Config) -> nn.Module:
    """A bidirectional or unidirectional encoder."""
    kind = Bidirectional if c.bidirectional else Unidirectional
    return kind(c.cell.make, c.dim, c.hidden, c.depth, c.dropout)  # type: ignore[arg-type]


def make_words(vocab: int, c: RnnConfig) -> token_inputs.WordInput:
    return token_inputs.WordInput(c.embedding(vocab=vocab, dim=c.dim), input_dropout(c))


def input_dropout(c: RnnConfig) -> nn.Dropout:
    return nn.Dropout(c.dropout if c.input_dropout is None else c.input_dropout)


class RnnGenerator(Seq2Seq):
    """Base class of RNN generators: target embedding, decoder and head."""

    target: token_inputs.WordInput

    def make_output(
        self, vocab: int, c: RnnConfig, decoder: Callable[..., Any], dim_memory: int
    ) -> None:
        self.decoder = decoder(c, dim_memory)
        self.dropout = nn.Dropout(c.dropout)
        self.head = c.head(dim=self.decoder.width, vocab=vocab, tied=None, bias=True)

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        features = self.decoder(self.target(target), self.start(source, lengths))
        return self.head(self.dropout(features))

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        features, state = self.decoder.step(self.target(tokens), state)
        return self.head(features), state


class RnnSeq2Seq(RnnGenerator):
    """An encoder (B N dim → B N M and its last states, B M) and one of the decoders above."""

    def __init__(
        self,
        source_vocab: int,
        target_vocab: int,
        c: RnnConfig,
        decoder: Callable[..., Any],
        encoder: Callable[..., Any] = shallow,
    ) -> None:
        super().__init__()
        self.source, self.target = (make_words(vocab, c) for vocab in (source_vocab, target_vocab))
        self.encoder = encoder(c)
        self.make_output(target_vocab, c, decoder, self.encoder.width)
        if self.decoder.reads_memory:
            self.encoder.favor_own_word()

    def start(self, source: Tensor, lengths: Tensor) -> State:
        memory, end = self.encoder(self.source(source), lengths)
        return self.decoder.start(memory, end, lengths)


class RnnAutoencoder(RnnGenerator, TextAutoencoder):
    """z = W [last states of both directions] + b, and a decoder that reads z as the source vector. L latent width."""

    def __init__(self, vocab: int, latent: int, c: RnnConfig, decoder: Callable[..., Any]) -> None:
        super().__init__()
        self.source, self.target = make_words(vocab, c), make_words(vocab, c)
        self.encoder = shallow(c)  # type: ignore[arg-type]
        self.squeeze = nn.Linear(self.encoder.width, latent)  # type: ignore[arg-type]
        self.make_output(vocab, c, decoder, latent)

    def latent(self, source: Tensor, lengths: Tensor) -> Tensor:
        """B L"""
        return self.squeeze(self.encoder(self.source(source), lengths)[1])

    def start_from(self, latent: Tensor) -> State:
        return self.decoder.start(latent, latent, torch.ones(len(latent), device=latent.device))


class RnnCaptioner(RnnGenerator, ImageToText):
    """An image encoder and an RNN decoder. The mean of all positions is the source vector."""

    def __init__(
        self, image: ImageEncoder, vocab: int, c: RnnConfig, decoder: Callable[..., Any]
    ) -> None:
        super().__init__()
        self.image, self.target = image, make_words(vocab, c)
        self.make_output(vocab, c, decoder, image.dim)
        self.grid: nn.Module = image_inputs.NoGridEmbedding()
        self.dropout_of_image = input_dropout(c)
        # else one vector of all positions is read, which says nothing of where they are
        if self.decoder.reads_memory:
            self.grid = c.grid_embedding(dim=image.dim, rows=8, columns=8)  # type: ignore[attr-defined]

    def start(self, source: Tensor, lengths: Tensor) -> State:
        found = self.image(source).transpose(1, 2).unflatten(2, self.image.grid(*source.shape[2:]))
        memory = self.dropout_of_image(self.grid(found).flatten(2).transpose(1, 2))
        return self.decoder.start(
            memory,
            memory.mean(1),
            torch.full((len(memory),), memory.shape[1], device=memory.device),
        )


for name, decoder, config, paper, summary in (
    (
        "fixed-first",
        Decoder,
        Config,
        "Sutskever et al. 2014",
        "one fixed context as the first state.",
    ),
    (
        "fixed-context",
        EveryStepDecoder,
        Config,
        "Cho et al. 2014",
        "one fixed context, an input of every step.",
    ),
    (
        "bahdanau",
        BahdanauDecoder,
        BahdanauConfig,
        "Bahdanau et al. 2015",
        "the state before a step attends, additive score.",
    ),
    (
        "luong",
        LuongDecoder,
        LuongConfig,
        "Luong et al. 2015",
        "the state after a step attends, bilinear score.",
    ),
):
    builds: Builds = {
        Seq2Seq: partial(RnnSeq2Seq, decoder=decoder),
        ImageToText: partial(RnnCaptioner, decoder=decoder),
    }
    # else all positions of the encoder are read, and no vector is the text's alone
    if not decoder.reads_memory:
        builds[TextAutoencoder] = partial(RnnAutoencoder, decoder=decoder)
    add_family(name, paper, config, builds, f"RNN encoder–decoder; {summary}")
