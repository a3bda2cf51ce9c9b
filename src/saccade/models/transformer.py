"""Transformers: encoder, decoder (language model), encoder–decoder. B batch, N source positions, T target positions, V vocabulary."""

import torch
from torch import Tensor, nn

from ..core import Positions, State, masks
from ..errors import SaccadeError
from ..layers import norms, stack, token_inputs
from .assembly import (
    Config,
    extra_tokens,
    fitting,
    make_bridge,
    make_head,
    make_input,
    make_stack,
    reading_images,
    without_relation,
)
from .families import Builds, add_family, check_prompts
from .protocols import (
    AttendingEncoder,
    CausalLM,
    Encoder,
    ImageEncoder,
    ImageToText,
    LookingEncoder,
    Seq2Seq,
)


class TransformerEncoder(AttendingEncoder):
    """Tokens (B N) → one vector per position (B N dim), every position seeing every other."""

    def __init__(self, vocab: int, config: Config) -> None:
        super().__init__()
        self.dim, self.heads = config.dim, config.heads
        self.embedding = make_input(vocab, config)
        self.encoder = fitting(config, "encoder")
        self.extra = extra_tokens(self.encoder)
        # Part of `encoder`, so they move with it. As large as scaled token vectors.
        if self.extra:
            self.encoder.register_parameter(
                "extra", nn.Parameter(torch.randn(self.extra, self.dim))
            )

    @property
    def needs_relation(self) -> bool:  # type: ignore[override]
        return self.encoder.needs_relation or self.embedding.needs_relation

    def forward(
        self,
        tokens: Tensor,
        lengths: Tensor,
        mask: masks.Mask | None = None,
        positions: Tensor | None = None,
        relation: Tensor | None = None,
        depth: Tensor | None = None,
    ) -> Tensor:
        extra, size = self.extra, tokens.shape[1]
        if extra and any(given is not None for given in (mask, positions, relation)):
            wrong = "the tokens of model.mask.extra see a whole row, and would join packed documents or parse trees"
            raise SaccadeError(
                f"{wrong}; leave it out, or give one document per row", code="mask-not-supported"
            )
        at = Positions.same(positions, relation, extra + size, tokens.device)
        both = masks.padding(lengths + extra) if mask is None else masks.padding(lengths) & mask
        ready = both.prepare(len(tokens), self.heads, extra + size, extra + size, tokens.device)
        x = self.embedding(tokens, at.i[..., :size], depth)
        if extra:
            x = torch.cat(
                [self.encoder.get_parameter("extra").to(x.dtype).expand(len(x), -1, -1), x], 1
            )
        norms.real_tokens(self.encoder.batch_norms, lengths + extra, extra + size)
        return self.encoder(x, ready, positions=at)[:, extra:]

    def segments(self, tokens: Tensor) -> Tensor | None:
        """The segment of each token, B N, if the encoder has segments."""
        return None


class ReadingDecoder(Seq2Seq):
    """Causal decoder with cross-attention to a memory from `encode`."""

    heads: int
    target: token_inputs.PositionedInput
    decoder: stack.Stack
    head: nn.Module
    # Self-attention mask in training; replaced in control experiments.
    visible: masks.Mask = masks.causal()

    def encode(self, source: Tensor, lengths: Tensor) -> Tensor:
        """The memory of a source, B N dim."""
        raise NotImplementedError

    def readable(self, memory: Tensor, lengths: Tensor, queries: int) -> masks.Prepared:
        """The padding mask of a memory."""
        raise NotImplementedError

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        batch, size = target.shape
        at = Positions.line(size, size, target.device)
        own = self.visible.prepare(batch, self.heads, size, size, target.device)
        memory = self.encode(source, lengths)
        readable = self.readable(memory, lengths, size)
        norms.counted_tokens(self.decoder.batch_norms, target)
        return self.head(self.decoder(self.target(target, at.i), own, memory, readable, at))

    def start(self, source: Tensor, lengths: Tensor) -> State:
        memory = self.encode(source, lengths)
        readable = self.readable(memory, lengths, 1)
        # Make the mask dense once per sentence.
        readable.allowed()
        return State(caches=self.decoder.start(memory, memory), readable=readable, length=0)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        at = Positions.line(1, state.length + 1, tokens.device)
        x = self.target(tokens.unsqueeze(1), at.i)
        x, caches = self.decoder.step(x, state.caches, None, state.readable, at)
        return self.head(x).squeeze(1), state.next(caches=caches, length=state.length + 1)


class Transformer(ReadingDecoder):
    """Encoder–decoder Transformer (Vaswani et al. 2017)."""

    def __init__(self, source_vocab: int, target_vocab: int, config: Config) -> None:
        super().__init__()
        if config.shared and source_vocab != target_vocab:
            got = f"{source_vocab} source and {target_vocab} target tokens"
            raise SaccadeError(
                f"model.shared needs one vocabulary, got {got}; set vocabulary.joint=true, or model.shared=false",
                code="vocabulary-differs",
            )
        self.heads = config.heads
        self.source = without_relation(make_input(source_vocab, config))
        self.target = self.source if config.shared else make_input(target_vocab, config)
        self.encoder = without_relation(make_stack(config, "encoder"))
        self.decoder = make_stack(config, "decoder", causal=True)
        self.head = make_head(target_vocab, self.target.tokens, config)

    @property
    def shares_embedding(self) -> bool:  # type: ignore[override]
        return self.source is self.target

    def encode(self, source: Tensor, lengths: Tensor) -> Tensor:
        at = Positions.line(source.shape[1], source.shape[1], source.device)
        mask = masks.padding(lengths).prepare(
            len(source), self.heads, source.shape[1], source.shape[1], source.device
        )
        norms.real_tokens(self.encoder.batch_norms, lengths, source.shape[1])
        return self.encoder(self.source(source, at.i), mask, positions=at)

    def readable(self, memory: Tensor, lengths: Tensor, queries: int) -> masks.Prepared:
        """The padding mask of a memory, which may be shorter than the source."""
        real = masks.padding(self.encoder.shortened(lengths))
        return real.prepare(len(memory), self.heads, queries, memory.shape[1], memory.device)


class Captioner(ReadingDecoder, ImageToText):
    """An image encoder, a projection and a Transformer decoder."""

    def __init__(self, image: ImageEncoder, vocab: int, config: Config) -> None:
        super().__init__()
        self.heads, self.image = config.heads, image
        self.bridge = make_bridge(image.dim, config)
        self.target = without_relation(make_input(vocab, config))
        self.decoder = reading_images(config, causal=True)
        self.head = make_head(vocab, self.target.tokens, config)

    def encode(self, source: Tensor, lengths: Tensor) -> Tensor:
        memory: Tensor = self.bridge(self.image(source), self.image.grid(*source.shape[2:]))
        return memory

    def readable(self, memory: Tensor, lengths: Tensor, queries: int) -> masks.Prepared:
        return masks.full().prepare(
            len(memory), self.heads, queries, memory.shape[1], memory.device
        )


class LookingTransformer(LookingEncoder):
    """Text encoder with cross-attention to all positions of an image."""

    def __init__(self, image: ImageEncoder, vocab: int, config: Config) -> None:
        super().__init__()
        self.dim, self.heads, self.image = config.dim, config.heads, image
        self.bridge = make_bridge(image.dim, config)
        self.embedding = without_relation(make_input(vocab, config))
        self.encoder = without_relation(reading_images(config))

    def forward(
        self,
        tokens: Tensor,
        lengths: Tensor,
        images: Tensor | None = None,
        which: Tensor | None = None,
    ) -> Tensor:
        batch, size = tokens.shape[:2]
        at = Positions.line(size, size, tokens.device)
        memory = self.memory(images, which)
        own = masks.padding(lengths).prepare(batch, self.heads, size, size, tokens.device)
        everywhere = masks.full().prepare(batch, self.heads, size, memory.shape[1], tokens.device)
        norms.real_tokens(self.encoder.batch_norms, lengths, size)
        return self.encoder(self.embedding(tokens, at.i), own, memory, everywhere, at)


class CausalStack(nn.Module):
    """Embedding and causal blocks."""

    def __init__(self, vocab: int, config: Config) -> None:
        super().__init__()
        self.dim, self.heads = config.dim, config.heads
        self.embedding = without_relation(make_input(vocab, config))
        self.decoder = without_relation(fitting(config, "causal"))

    def features(
        self, tokens: Tensor, mask: masks.Mask | None = None, positions: Tensor | None = None
    ) -> Tensor:
        """One vector per position, B N dim. `mask` is added to the causal one; `positions` (N or B N) are 0, 1, 2 … by default."""
        batch, size = tokens.shape[:2]
        at = Positions.same(positions, None, size, tokens.device)
        both = masks.causal() if mask is None else masks.causal() & mask
        ready = both.prepare(batch, self.heads, size, size, tokens.device)
        norms.counted_tokens(self.decoder.batch_norms, tokens)
        return self.decoder(self.embedding(tokens, at.i), ready, positions=at)


class TransformerDecoder(CausalStack, Encoder):
    """Causal encoder, B N dim. Padding at the end is invisible."""

    sees_ahead = False

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return self.features(tokens)


class LanguageModel(CausalStack, CausalLM):
    """Decoder-only language model."""

    def __init__(self, vocab: int, config: Config) -> None:
        super().__init__(vocab, config)
        self.head = make_head(vocab, self.embedding.tokens, config)

    def forward(
        self, tokens: Tensor, mask: masks.Mask | None = None, positions: Tensor | None = None
    ) -> Tensor:
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
        mask = masks.causal().prepare(
            len(tokens), self.heads, size, state.length + size, tokens.device
        )
        x, caches = self.decoder.step(self.embedding(tokens, at.i), state.caches, mask, None, at)
        return x, state.next(caches=caches, length=state.length + size)


pair: Builds = {Seq2Seq: Transformer, AttendingEncoder: TransformerEncoder, ImageToText: Captioner}
causal: Builds = {CausalLM: LanguageModel, Encoder: TransformerDecoder}
add_family("transformer", "Vaswani et al. 2017", Config, pair, "Encoder–decoder Transformer.")
add_family(
    "transformer-decoder", "Radford et al. 2018", Config, causal, "Decoder alone: a language model."
)
encoder: Builds = {AttendingEncoder: TransformerEncoder, LookingEncoder: LookingTransformer}
add_family(
    "transformer-encoder",
    "Devlin et al. 2019",
    Config,
    encoder,
    "Encoder alone: one vector per token.",
)
