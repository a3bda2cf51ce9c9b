"""Transformers: encoder, decoder (language model), encoder–decoder. B batch, N source positions, T target positions, V vocabulary."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from torch import Tensor, nn

from ..core import Mechanism, Positions, State, masks, normalizers, positions, scores
from ..core.options import Choice, Later, number, part, setting
from ..errors import SaccadeError
from ..layers import embeddings, feedforward, inputs, linformer, mixers, norms, pooling, residuals, stack, synthesizers  # noqa: F401
from ..layers.attention import MultiHeadAttention
from ..layers.block import Block
from ..layers.block import table as block_table
from ..layers.heads import LinearHead
from ..layers.heads import table as head_table
from .families import Builds, Sizes, add_family, check_prompts, named_sizes
from .kinds import AttendingEncoder, CausalLM, Encoder, Seq2Seq


@dataclass(frozen=True)
class Config:
    """The settings of a Transformer; the default sizes are those of the base model of Vaswani et al. 2017.

    That model itself differs in two: `residual: post-norm`, and one embedding (`shared: true` with `vocabulary.joint`).
    """

    sizes: ClassVar[Sizes] = named_sizes(  # base and big are the paper's
        dim=(64, 128, 256, 512, 1024),
        hidden=(256, 512, 1024, 2048, 4096),
        depth=(2, 2, 4, 6, 6),
        heads=(2, 4, 4, 8, 16),
        dropout=(0.1, 0.2, 0.3, 0.1, 0.3),
    )

    dim: int = number(512, 1, 65_536, "width of a token's vector")
    hidden: int = number(2048, 1, 65_536, "width inside the feed-forward part")
    depth: int = number(6, 1, 1000, "blocks")
    heads: int = number(8, 1, 65_536, "heads of each mixer; they must divide `dim` unless `head_width` is given")
    kv_heads: int | None = number(None, 1, 65_536, "heads of keys and values, where they are fewer")
    head_width: int | None = number(None, 1, 65_536, "width of a head; by default `dim` / `heads`")
    cross_heads: int | None = number(None, 1, 65_536, "heads of the attention that reads a memory, where they differ")
    cross_width: int | None = number(None, 1, 65_536, "width of these heads; by default that of the others")
    dropout: float = number(0.1, 0.0, 0.99, "dropout between layers")
    attention_dropout: float = number(0.0, 0.0, 0.99, "dropout of attention weights")
    tied: bool = setting(True, "tie the output projection to the embedding")
    shared: bool = setting(False, "one embedding for source and target (needs `vocabulary.joint`)")
    score: Choice = part(scores.table, scores.ScaledDot)
    normalize: Choice = part(normalizers.table, normalizers.Softmax)
    mask: Choice = part(masks.table, masks.Full, "of self-attention, added to the causal and padding masks")
    position: Choice = part(positions.table, positions.NoPosition, "positions inside self-attention")
    position_embedding: Choice = part(
        inputs.table, inputs.Sinusoidal, "positions at the input; by default `sinusoidal`, or `none` where `position` is set"
    )
    embedding: Choice = part(embeddings.table, embeddings.Tokens)
    mixer: Choice = part(mixers.table, MultiHeadAttention, "how positions exchange information in each block")
    feedforward: Choice = part(feedforward.table, feedforward.MLP)
    residual: Choice = part(residuals.table, residuals.PreNorm)
    norm: Choice = part(norms.table, norms.LayerNorm)
    block: Choice = part(block_table, Block, "what a block consists of")
    stack: Choice = part(stack.table, stack.Stack, "how blocks follow one another")
    head: Choice = part(head_table, LinearHead)
    pool: Choice = part(pooling.pools, pooling.Attention, "how a text's vectors become one, for a label")

    @staticmethod
    def complete(values: Mapping[str, Any]) -> dict[str, Any]:
        """Defaults that depend on other settings: a mechanism that knows positions needs no sinusoids at the input."""
        chosen = values.get("position", "none")
        name = chosen.get("name") if isinstance(chosen, dict) else chosen
        known = {} if name == "none" else {"position_embedding": "none"}
        return {**known, **values}


def make_input(vocab: int, c: Config) -> inputs.PositionedInput:
    tokens = c.embedding(vocab=vocab, dim=c.dim)
    return inputs.PositionedInput(tokens, c.position_embedding(dim=c.dim), c.dim, c.dropout)


def check_mixer(c: Config, causal: bool) -> None:
    """Raises when heads do not divide the width, or when a mixer that sees all tokens should hide the future."""
    if causal and not c.mixer.make.causal:  # type: ignore[attr-defined]
        wrong = f"model.mixer={mixers.table.name_of(c.mixer.make)} sees a text as a whole, and this model hides the future"
        raise SaccadeError(f"{wrong}; choose another mixer such as attention, or model.family=transformer-encoder")
    if c.dim % c.heads and c.head_width is None:
        wrong = f"model.dim={c.dim} is not a multiple of model.heads={c.heads}"
        raise SaccadeError(f"{wrong}; choose heads that divide it, or set model.head_width")


def make_stack(c: Config, role: str = "alone", causal: bool = False) -> stack.Stack:
    """`depth` blocks by the stack's plan; `role` is "encoder" or "decoder" of a pair, whose blocks attend to a memory, or "alone"."""
    check_mixer(c, causal)
    width = c.head_width or c.dim // c.heads
    mask: list[masks.Mask] = []  # one object for all blocks, so that a pass prepares it once

    def self_attention(n: int, score: scores.Score | None = None) -> Mechanism:
        """Block n's mechanism, with the score of the settings unless another is given."""
        if not mask:
            mask.append(c.mask())
        facts = {"dim": width, "dim_q": width, "dim_k": width, "heads": c.heads}
        position = c.position(**facts)
        if position.first_layer_only and n:
            position = positions.NoPosition()
        return Mechanism(c.score(**facts) if score is None else score, c.normalize(**facts), mask[0], position)

    def attention(make: Choice, n: int, mechanism: Callable[[], Mechanism], **sizes: int) -> Any:
        late = {"kv_heads": Later(lambda: c.kv_heads), "dropout": Later(lambda: c.attention_dropout)}
        return make(dim=c.dim, n=n, mechanism=Later(mechanism), make_mechanism=partial(self_attention, n), **late, **sizes)

    def mixer(n: int) -> mixers.Mixer:
        made: mixers.Mixer = attention(c.mixer, n, lambda: self_attention(n), heads=c.heads, head_width=width)
        return made

    def reader(n: int) -> MultiHeadAttention | None:
        """Attention to a memory, whose positions have nothing to do with those of the queries: no position, and no mask between them."""
        if role != "decoder":
            return None
        make = Choice(MultiHeadAttention, {name: value for name, value in c.mixer.options.items() if name == "bias"})
        heads, wide = c.cross_heads or c.heads, c.cross_width or width
        mechanism = lambda: Mechanism(c.score(dim_q=wide, dim_k=wide, heads=heads), c.normalize(heads=heads))  # noqa: E731
        made: MultiHeadAttention = attention(make, n, mechanism, heads=heads, head_width=wide)
        return made

    def block(n: int) -> Block:
        at = {"n": n, "depth": c.depth, "role": role}
        made: Block = c.block(
            mixer=Later(lambda: mixer(n)),
            make_mixer=partial(mixer, n),
            feedforward=Later(lambda: c.feedforward(dim=c.dim, hidden=c.hidden, dropout=c.dropout, n=n, depth=c.depth)),
            cross=Later(lambda: reader(n)),
            residual=partial(c.residual, norm=norm, dropout=c.dropout, **at),
            norm=norm,
            dim=c.dim,
            hidden=Later(lambda: c.hidden),
            heads=c.heads,
            dropout=c.dropout,
            **at,
        )
        return made

    def norm() -> nn.Module:
        made: nn.Module = c.norm(dim=c.dim)
        return made

    made: stack.Stack = c.stack(block=block, depth=c.depth, norm=norm, dim=c.dim, role=role)
    return made


def without_relation(made: stack.Stack) -> stack.Stack:
    """The stack of a model that reads no pairwise relation, if it needs none."""
    if made.needs_relation:
        raise SaccadeError("model.position=syntax needs the parse trees of tagging data; choose another position")
    return made


def make_head(vocab: int, tokens: embeddings.Embedding, c: Config) -> LinearHead:
    made: LinearHead = c.head(dim=c.dim, vocab=vocab, tied=tokens if c.tied else None, bias=False)
    return made


class TransformerEncoder(AttendingEncoder):
    """Tokens (B N) → one vector per position (B N dim), every position seeing every other."""

    def __init__(self, vocab: int, config: Config) -> None:
        super().__init__()
        self.dim, self.heads = config.dim, config.heads
        self.embedding = make_input(vocab, config)
        self.encoder = make_stack(config)

    @property
    def needs_relation(self) -> bool:  # type: ignore[override]
        return self.encoder.needs_relation

    def forward(
        self,
        tokens: Tensor,
        lengths: Tensor,
        mask: masks.Mask | None = None,
        positions: Tensor | None = None,
        relation: Tensor | None = None,
    ) -> Tensor:
        at = Positions.same(positions, relation, tokens.shape[1], tokens.device)
        both = masks.padding(lengths) if mask is None else masks.padding(lengths) & mask
        ready = both.prepare(len(tokens), self.heads, tokens.shape[1], tokens.shape[1], tokens.device)
        return self.encoder(self.embedding(tokens, at.i), ready, positions=at)


class Transformer(Seq2Seq):
    """Encoder and decoder; the decoder sees its own past and, by `cross`, all of the encoder's output."""

    def __init__(self, source_vocab: int, target_vocab: int, config: Config) -> None:
        super().__init__()
        if config.shared and source_vocab != target_vocab:
            got = f"{source_vocab} source and {target_vocab} target tokens"
            raise SaccadeError(f"model.shared needs one vocabulary, got {got}; set vocabulary.joint=true, or model.shared=false")
        self.heads = config.heads
        self.source = make_input(source_vocab, config)
        self.target = self.source if config.shared else make_input(target_vocab, config)
        self.encoder = without_relation(make_stack(config, "encoder"))
        self.decoder = make_stack(config, "decoder", causal=True)
        self.head = make_head(target_vocab, self.target.tokens, config)

    @property
    def shares_embedding(self) -> bool:  # type: ignore[override]
        return self.source is self.target

    def encode(self, source: Tensor, lengths: Tensor) -> Tensor:
        at = Positions.line(source.shape[1], source.shape[1], source.device)
        mask = masks.padding(lengths).prepare(len(source), self.heads, source.shape[1], source.shape[1], source.device)
        return self.encoder(self.source(source, at.i), mask, positions=at)

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        batch, size = target.shape
        at = Positions.line(size, size, target.device)
        own = masks.causal().prepare(batch, self.heads, size, size, target.device)
        readable = masks.padding(lengths).prepare(batch, self.heads, size, source.shape[1], target.device)
        memory = self.encode(source, lengths)
        return self.head(self.decoder(self.target(target, at.i), own, memory, readable, at))

    def start(self, source: Tensor, lengths: Tensor) -> State:
        memory = self.encode(source, lengths)
        readable = masks.padding(lengths).prepare(len(source), self.heads, 1, source.shape[1], source.device)
        readable.allowed()  # made dense once per sentence, not once per step
        return State(caches=self.decoder.start(memory, memory), readable=readable, length=0)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        at = Positions.line(1, state.length + 1, tokens.device)
        x = self.target(tokens.unsqueeze(1), at.i)
        x, caches = self.decoder.step(x, state.caches, None, state.readable, at)
        return self.head(x).squeeze(1), state.next(caches=caches, length=state.length + 1)


class CausalStack(nn.Module):
    """Embedding and blocks in which nobody sees the future."""

    def __init__(self, vocab: int, config: Config) -> None:
        super().__init__()
        self.dim, self.heads = config.dim, config.heads
        self.embedding = make_input(vocab, config)
        self.decoder = without_relation(make_stack(config, causal=True))

    def features(self, tokens: Tensor, mask: masks.Mask | None = None, positions: Tensor | None = None) -> Tensor:
        """One vector per position, B N dim. `mask` is added to the causal one; `positions` (N or B N) are 0, 1, 2 … by default."""
        batch, size = tokens.shape[:2]
        at = Positions.same(positions, None, size, tokens.device)
        both = masks.causal() if mask is None else masks.causal() & mask
        ready = both.prepare(batch, self.heads, size, size, tokens.device)
        return self.decoder(self.embedding(tokens, at.i), ready, positions=at)


class TransformerDecoder(CausalStack, Encoder):
    """Each position knows the tokens up to its own, so that padding behind them is invisible: B N dim."""

    sees_ahead = False

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return self.features(tokens)


class LanguageModel(CausalStack, CausalLM):
    """A decoder alone: each token from those before it."""

    def __init__(self, vocab: int, config: Config) -> None:
        super().__init__(vocab, config)
        self.head = make_head(vocab, self.embedding.tokens, config)

    def forward(self, tokens: Tensor, mask: masks.Mask | None = None, positions: Tensor | None = None) -> Tensor:
        return self.head(self.features(tokens, mask, positions))

    def start(self, source: Tensor, lengths: Tensor) -> State:
        """After reading prompts `source` (B N), all equally long; N may be 0."""
        check_prompts(source, lengths)
        like = next(self.parameters()).new_empty(len(source), 0)
        state = State(caches=self.decoder.start(like), length=0)
        return self.read(source, state)[1] if source.shape[1] else state

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        x, state = self.read(tokens.unsqueeze(1), state)
        return self.head(x).squeeze(1), state

    def read(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Further tokens, B N → B N dim and the state after them."""
        size = tokens.shape[1]
        at = Positions.line(size, state.length + size, tokens.device)
        mask = masks.causal().prepare(len(tokens), self.heads, size, state.length + size, tokens.device)
        x, caches = self.decoder.step(self.embedding(tokens, at.i), state.caches, mask, None, at)
        return x, state.next(caches=caches, length=state.length + size)


pair: Builds = {Seq2Seq: Transformer, AttendingEncoder: TransformerEncoder}
causal: Builds = {CausalLM: LanguageModel, Encoder: TransformerDecoder}
add_family("transformer", "Vaswani et al. 2017", Config, pair, "Encoder–decoder Transformer.")
add_family("transformer-decoder", "Radford et al. 2018", Config, causal, "Decoder alone: a language model.")
encoder: Builds = {AttendingEncoder: TransformerEncoder}
add_family("transformer-encoder", "Devlin et al. 2019", Config, encoder, "Encoder alone: one vector per token.")
