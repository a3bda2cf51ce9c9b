"""Transformers: encoder, decoder (language model), encoder–decoder. B batch, N source places, T target places, V vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from ..core import KeyValues, Places, State, masks
from ..errors import SaccadeError
from ..layers import embeddings, feedforward, norms, pooling, residuals, words
from ..layers.attention import MultiHeadAttention
from ..layers.block import Block, Stack
from ..layers.heads import Head
from .families import Choice, Family, MechanismPlan, check_prompts, part, table
from .kinds import AttendingEncoder, CausalLM, Encoder, Seq2Seq


@dataclass(frozen=True)
class Shape:
    """The numbers of a Transformer; the defaults are the base model of Vaswani et al. 2017."""

    dim: int = 512
    hidden: int = 2048
    depth: int = 6
    heads: int = 8
    kv_heads: int | None = None
    dropout: float = 0.1
    attention_dropout: float = 0.0
    max_len: int = 512
    tied: bool = True
    shared: bool = False  # one embedding for source and target


@dataclass(frozen=True)
class Parts:
    """The built parts of a Transformer."""

    mechanism: MechanismPlan = MechanismPlan()
    norm: type[nn.Module] = part(norms.table, norms.LayerNorm)
    residual: type[residuals.Residual] = part(residuals.table, residuals.PreNorm)
    activation: Callable[[Tensor], Tensor] = part(feedforward.activations, feedforward.relu)
    places: type[embeddings.PlaceEmbedding] = part(embeddings.table, embeddings.Sinusoidal)
    entry: type[embeddings.Entry] = part(embeddings.entries, embeddings.Add)
    pool: Choice = part(pooling.pools, Choice(pooling.Attention))


@dataclass(frozen=True)
class EncoderParts(Parts):
    """The built parts of an encoder alone, which may read words by their bytes."""

    words: Choice = part(words.words, Choice(words.Embedding))


def embedding(vocab: int, shape: Shape, parts: Parts, reader: Choice = embeddings.PLAIN) -> embeddings.TokenEmbedding:
    learned = issubclass(parts.places, embeddings.Learned)
    places = parts.places(shape.dim, shape.max_len) if learned else parts.places(shape.dim)  # type: ignore[call-arg]
    return embeddings.TokenEmbedding(vocab, shape.dim, places, parts.entry(shape.dim), shape.dropout, reader)


def stack(shape: Shape, parts: Parts, cross: bool = False) -> Stack:
    """`depth` blocks, each with parts of its own."""

    def attention(n: int, self_attention: bool) -> MultiHeadAttention:
        width = shape.dim // max(shape.heads, 1)
        mechanism = parts.mechanism(dim_q=width, dim_k=width, heads=shape.heads, first=n == 0, cross=not self_attention)
        return MultiHeadAttention(shape.dim, shape.heads, shape.kv_heads, mechanism, dropout=shape.attention_dropout)

    def residual() -> residuals.Residual:
        return parts.residual(parts.norm(shape.dim), shape.dropout)

    blocks = [
        Block(
            attention(n, True),
            feedforward.MLP(shape.dim, shape.hidden, parts.activation, shape.dropout),
            residual,
            attention(n, False) if cross else None,
        )
        for n in range(shape.depth)
    ]
    return Stack(blocks, nn.Identity() if parts.residual.ends_normed else parts.norm(shape.dim))


def standing(places: Tensor | None) -> Places | None:
    """Queries and keys of self-attention stand at the same places."""
    return None if places is None else Places(places, places)


class TransformerEncoder(AttendingEncoder):
    """Tokens (B N) → one vector per position (B N dim), every position seeing every other."""

    def __init__(self, vocab: int, shape: Shape, parts: Parts, reader: Choice = embeddings.PLAIN) -> None:
        super().__init__()
        self.dim = shape.dim
        self.embedding = embedding(vocab, shape, parts, reader)
        self.encoder = stack(shape, parts)

    def forward(
        self,
        tokens: Tensor,
        lengths: Tensor,
        mask: masks.Mask | None = None,
        positions: Tensor | None = None,
        relation: Tensor | None = None,
    ) -> Tensor:
        padding = masks.padding(lengths)
        x = self.embedding(tokens, places=positions)
        return self.encoder(x, padding if mask is None else padding & mask, places=standing(positions))


class Transformer(Seq2Seq):
    """Encoder and decoder; the decoder sees its own past and, by `cross`, all of the encoder's output."""

    def __init__(self, source_vocab: int, target_vocab: int, shape: Shape, parts: Parts) -> None:
        super().__init__()
        if shape.shared and source_vocab != target_vocab:
            raise SaccadeError(
                f"one embedding for {source_vocab} source and {target_vocab} target tokens; set vocabulary.joint=true, or "
                "model.shared=false"
            )
        self.source = embedding(source_vocab, shape, parts)
        self.shares_embedding = shape.shared
        self.target = self.source if shape.shared else embedding(target_vocab, shape, parts)
        self.encoder, self.decoder = stack(shape, parts), stack(shape, parts, cross=True)
        self.head = Head(self.target.tokens.weight, shape.tied)

    def encode(self, source: Tensor, lengths: Tensor) -> Tensor:
        return self.encoder(self.source(source), masks.padding(lengths))

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Logits for the token after each of `target`: B T V."""
        memory = self.encode(source, lengths)
        return self.head(self.decoder(self.target(target), masks.causal(), memory, masks.padding(lengths)))

    def start(self, source: Tensor, lengths: Tensor) -> State:
        caches, ready = self.decoder.start(self.encode(source, lengths))
        return State(caches=caches, ready=ready, lengths=lengths)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """One token a row (B) → logits (B V) and the state after it. The caches grow in place: to step twice from one state,
        `reorder` it first."""
        x = self.target(tokens.unsqueeze(1), state.caches[0].length)
        x = self.decoder.step(x, state.caches, state.ready, masks.causal(), masks.padding(state.lengths))
        return self.head(x).squeeze(1), state


class CausalStack(nn.Module):
    """Embedding and blocks in which nobody sees the future."""

    def __init__(self, vocab: int, shape: Shape, parts: Parts) -> None:
        super().__init__()
        self.embedding = embedding(vocab, shape, parts)
        self.decoder = stack(shape, parts)

    def features(self, tokens: Tensor, mask: masks.Mask | None = None, places: Tensor | None = None) -> Tensor:
        """A vector a place, B N dim, from the tokens up to it. `mask` is added to the causal one (packed documents, say); `places`
        (N or B N): where the tokens stand, so that each document may begin at 0."""
        causal = masks.causal()
        x = self.embedding(tokens, places=places)
        return self.decoder(x, causal if mask is None else causal & mask, places=standing(places))


class TransformerDecoder(CausalStack, Encoder):
    """Each place knows the tokens up to its own, so that padding behind them is invisible: B N dim."""

    sees_ahead = False

    def __init__(self, vocab: int, shape: Shape, parts: Parts) -> None:
        super().__init__(vocab, shape, parts)
        self.dim = shape.dim

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return self.features(tokens)


class LanguageModel(CausalStack, CausalLM):
    """A decoder alone: each token from those before it."""

    def __init__(self, vocab: int, shape: Shape, parts: Parts) -> None:
        super().__init__(vocab, shape, parts)
        self.head = Head(self.embedding.tokens.weight, shape.tied)

    def forward(self, tokens: Tensor, mask: masks.Mask | None = None, positions: Tensor | None = None) -> Tensor:
        """Logits for the token after each: B N V; `mask` and `positions` as in `features`."""
        return self.head(self.features(tokens, mask, positions))

    def start(self, source: Tensor, lengths: Tensor) -> State:
        """After reading prompts `source` (B N), all equally long."""
        check_prompts(source, lengths)
        caches, _ = self.decoder.start()
        if source.shape[1]:
            self._read(source, caches)
        return State(caches=caches)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        return self.head(self._read(tokens.unsqueeze(1), state.caches)).squeeze(1), state

    def _read(self, tokens: Tensor, caches: list[KeyValues]) -> Tensor:
        x = self.embedding(tokens, caches[0].length)
        return self.decoder.step(x, caches, [None] * len(caches), masks.causal())


def count(module: nn.Module) -> int:
    """How many numbers are learned; shared ones count once."""
    return sum(parameter.numel() for parameter in module.parameters())


table.add("transformer", paper="Vaswani et al. 2017", system="B3")(
    Family(Transformer, Shape, Parts, "Encoder–decoder Transformer.", TransformerEncoder, Seq2Seq)
)
table.add("transformer-decoder", paper="Radford et al. 2018", system="B3")(
    Family(
        lambda _, vocab, shape, parts: LanguageModel(vocab, shape, parts),
        Shape,
        Parts,
        "Decoder alone: a language model.",
        TransformerDecoder,
        CausalLM,
    )
)
table.add("transformer-encoder", paper="Devlin et al. 2019", system="B3")(
    Family(
        lambda vocab, _, shape, parts: TransformerEncoder(vocab, shape, parts, parts.words),
        Shape,
        EncoderParts,
        "Encoder alone: a vector a token.",
        lambda vocab, shape, parts: TransformerEncoder(vocab, shape, parts, parts.words),
    )
)
