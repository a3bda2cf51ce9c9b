"""Transformers: encoder, decoder (language model), encoder–decoder. B batch, N source places, T target places, V vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from ..core import KeyValues, State, masks
from ..errors import SaccadeError
from ..layers import embeddings, feedforward, norms, residuals
from ..layers.attention import MultiHeadAttention
from ..layers.block import Block, Stack
from .families import Family, MechanismPlan, part, table


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


@dataclass(frozen=True)
class Parts:
    """The built parts of a Transformer."""

    mechanism: MechanismPlan = MechanismPlan()
    norm: type[nn.Module] = part(norms.table, norms.LayerNorm)
    residual: type[residuals.Residual] = part(residuals.table, residuals.PreNorm)
    activation: Callable[[Tensor], Tensor] = part(feedforward.activations, feedforward.relu)
    places: type[embeddings.PlaceEmbedding] = part(embeddings.table, embeddings.Sinusoidal)
    entry: type[embeddings.Entry] = part(embeddings.entries, embeddings.Add)


def embedding(vocab: int, shape: Shape, parts: Parts) -> embeddings.TokenEmbedding:
    learned = issubclass(parts.places, embeddings.Learned)
    places = parts.places(shape.dim, shape.max_len) if learned else parts.places(shape.dim)  # type: ignore[call-arg]
    return embeddings.TokenEmbedding(vocab, shape.dim, places, parts.entry(shape.dim), shape.dropout)


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


class Head(nn.Module):
    """Logits over the vocabulary, with the embedding's own vectors when tied."""

    def __init__(self, embedding: embeddings.TokenEmbedding, vocab: int, dim: int, tied: bool) -> None:
        super().__init__()
        self.weight = (
            embedding.tokens.weight
            if tied
            else nn.Parameter(nn.init.normal_(embedding.tokens.weight.new_empty(vocab, dim), std=dim**-0.5))
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight)


class TransformerEncoder(nn.Module):
    """Tokens (B N) → a vector a place (B N dim), every place seeing every other."""

    def __init__(self, vocab: int, shape: Shape, parts: Parts) -> None:
        super().__init__()
        self.embedding, self.encoder = embedding(vocab, shape, parts), stack(shape, parts)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return self.encoder(self.embedding(tokens), masks.padding(lengths))


class Transformer(nn.Module):
    """Encoder and decoder; the decoder sees its own past and, by `cross`, all of the encoder's output."""

    def __init__(self, source_vocab: int, target_vocab: int, shape: Shape, parts: Parts) -> None:
        super().__init__()
        self.source, self.target = embedding(source_vocab, shape, parts), embedding(target_vocab, shape, parts)
        self.encoder, self.decoder = stack(shape, parts), stack(shape, parts, cross=True)
        self.head = Head(self.target, target_vocab, shape.dim, shape.tied)

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


class LanguageModel(nn.Module):
    """A decoder alone: each token from those before it."""

    def __init__(self, vocab: int, shape: Shape, parts: Parts) -> None:
        super().__init__()
        self.embedding, self.decoder = embedding(vocab, shape, parts), stack(shape, parts)
        self.head = Head(self.embedding, vocab, shape.dim, shape.tied)

    def forward(self, tokens: Tensor, mask: masks.Mask | None = None) -> Tensor:
        """Logits for the token after each: B N V. `mask` is added to the causal one (packed documents, say)."""
        causal = masks.causal()
        return self.head(self.decoder(self.embedding(tokens), causal if mask is None else causal & mask))

    def start(self, source: Tensor, lengths: Tensor) -> State:
        """After reading prompts `source` (B N), all equally long."""
        if int(lengths.min()) != source.shape[1]:
            raise SaccadeError(
                f"prompts of {int(lengths.min())} to {source.shape[1]} tokens in one batch; give prompts of one length"
            )
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
    Family(Transformer, Shape, Parts, "Encoder–decoder Transformer.")
)
table.add("transformer-decoder", paper="Radford et al. 2018", system="B3")(
    Family(lambda _, vocab, shape, parts: LanguageModel(vocab, shape, parts), Shape, Parts, "Decoder alone: a language model.")
)
table.add("transformer-encoder", paper="Devlin et al. 2019", system="B3")(
    Family(
        lambda vocab, _, shape, parts: TransformerEncoder(vocab, shape, parts), Shape, Parts, "Encoder alone: a vector a token."
    )
)
