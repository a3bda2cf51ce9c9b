"""ConvS2S: gated convolutions, and attention from every layer of the decoder. B batch, N source, T target, V vocabulary.

Sums of two are multiplied by √½, so that variances stay what they are. Trains well with learning_rate 0.002.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from ..core import Mechanism, Positions, Ready, Site, State, masks, normalizers, scores
from ..layers import embeddings, output_heads, token_inputs
from ..layers.convolution import Convolution, LastInputs, real_positions
from ..settings import Choice, number, part, setting
from .assembly import without_relation
from .families import Sizes, add_family, named_sizes
from .protocols import Seq2Seq

SQRT_HALF = math.sqrt(0.5)
EMBEDDING_STD = 0.1  # of words and positions


@dataclass(frozen=True)
class Config:
    """The settings of a convolutional encoder–decoder. All layers are equally wide (the paper's largest one has three widths)."""

    sizes: ClassVar[Sizes] = named_sizes(  # base is the paper's for English–Romanian
        dim=(64, 128, 256, 512, 768),
        hidden=(64, 128, 256, 512, 768),
        depth=(2, 3, 4, 20, 15),
        dropout=(0.1, 0.2, 0.2, 0.2, 0.1),
    )

    dim: int = number(256, 1, 65_536, "width of a token's vector, and of attention")
    hidden: int = number(256, 1, 65_536, "width between the layers")
    depth: int = number(
        4, 1, 1000, "layers of the encoder, and of the decoder, each of which attends"
    )
    width: int = number(3, 1, 64, "width of the convolutions")
    dropout: float = number(
        0.1, 0.0, 0.99, "dropout of the input, before each convolution and before the output"
    )
    weight_norm: bool = setting(
        True, "length and direction of each output's weights as parameters of their own"
    )
    tied: bool = setting(False, "tie the output projection to the embedding")
    score: Choice = part(scores.table, scores.Dot)
    normalize: Choice = part(normalizers.table, normalizers.Softmax)
    position_embedding: Choice = part(
        token_inputs.table, Choice(token_inputs.Learned, {"max_len": 1024})
    )
    embedding: Choice = part(embeddings.table, embeddings.Tokens)
    head: Choice = part(output_heads.table, output_heads.LinearHead)


def linear(c: Config, dim_in: int, dim_out: int, dropped: bool = False) -> Convolution:
    """A position-wise linear map whose initialization preserves variance under dropout."""
    return Convolution(
        dim_in, dim_out, std=math.sqrt((1 - c.dropout * dropped) / dim_in), normed=c.weight_norm
    )


def make_input(vocab: int, c: Config) -> token_inputs.PositionedInput:
    made = token_inputs.PositionedInput(
        c.embedding(vocab=vocab, dim=c.dim), c.position_embedding(dim=c.dim), c.dim, c.dropout
    )
    made = without_relation(made)
    made.tokens.initialize(EMBEDDING_STD)
    made.scale = 1.0 if made.tokens.scale is None else made.tokens.scale
    if isinstance(made.position, token_inputs.Learned):
        nn.init.normal_(made.position.vectors, std=EMBEDDING_STD)
    return made


def scale_gradient(x: Tensor, factor: float) -> Tensor:
    """x, whose gradient is multiplied by a factor."""
    return x.detach() + factor * (x - x.detach())


class Layer(nn.Module):
    """√½ (x + glu(conv(x))), with glu([a; b]) = a ∘ σ(b)"""

    def __init__(self, c: Config, causal: bool) -> None:
        super().__init__()
        # A gate passes a quarter of the variance.
        std = math.sqrt(4 * (1 - c.dropout) / (c.width * c.hidden))
        self.conv = Convolution(
            c.hidden, 2 * c.hidden, c.width, causal=causal, std=std, normed=c.weight_norm
        )
        self.dropout = nn.Dropout(c.dropout)

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        return SQRT_HALF * (x + F.glu(self.conv(self.dropout(x), real)))


class MultiStepAttention(Site):
    """√½ (h + W₂ √m · Σ_j a_j (z_j + e_j) √½), a = softmax_j(d · z_j), d = √½ (W₁ h + g): one of the decoder's attentions

    h is the layer's output, g the embedded target token before the one to come, z and e the encoder's m outputs and inputs.
    """

    cross = in_order = True

    def __init__(self, c: Config) -> None:
        super().__init__()
        facts = {"dim": c.dim, "dim_q": c.dim, "dim_k": c.dim, "heads": 1}
        self.mechanism = Mechanism(c.score(**facts), c.normalize(**facts))
        self.ask, self.answer = linear(c, c.hidden, c.dim), linear(c, c.dim, c.hidden)

    def forward(self, h: Tensor, target: Tensor, key: Tensor, state: State) -> Tensor:
        """`state.length` queries came in earlier calls."""
        query = (SQRT_HALF * (self.ask(h) + target)).unsqueeze(1)
        context = self.look(
            query, Ready(key, state.value), state.readable, first=state.length
        ).squeeze(1)
        return SQRT_HALF * (h + self.answer(context * state.root))


class DecoderLayer(Layer):
    """√½ (x + attention(glu(conv(x)))), causal"""

    def __init__(self, c: Config) -> None:
        super().__init__(c, causal=True)
        self.cross = MultiStepAttention(c)

    def forward(self, x: Tensor, target: Tensor, key: Tensor, state: State) -> Tensor:  # type: ignore[override]
        return SQRT_HALF * (x + self.cross(F.glu(self.conv(self.dropout(x))), target, key, state))

    def step(
        self, x: Tensor, target: Tensor, key: Tensor, state: State, cache: LastInputs
    ) -> tuple[Tensor, LastInputs]:
        convolved, after = self.conv.step(x, cache)
        return SQRT_HALF * (x + self.cross(F.glu(convolved), target, key, state)), after


class ConvS2S(Seq2Seq):
    """Encoder and decoder of gated convolutions; each layer of the decoder attends with its own state."""

    def __init__(self, source_vocab: int, target_vocab: int, c: Config) -> None:
        super().__init__()
        self.source, self.target = make_input(source_vocab, c), make_input(target_vocab, c)
        self.enter_source = linear(c, c.dim, c.hidden, True)
        self.enter_target = linear(c, c.dim, c.hidden, True)
        self.leave_source = linear(c, c.hidden, c.dim)
        self.leave_target = linear(c, c.hidden, c.dim)
        self.encoder = nn.ModuleList(Layer(c, causal=False) for _ in range(c.depth))
        self.decoder = nn.ModuleList(DecoderLayer(c) for _ in range(c.depth))
        self.dropout = nn.Dropout(c.dropout)
        self.head = c.head(
            dim=c.dim, vocab=target_vocab, tied=self.target.tokens if c.tied else None, bias=True
        )

    def encode(self, source: Tensor, lengths: Tensor, queries: int) -> State:
        """What the decoder reads: each attention's prepared keys, the values that they share, the mask and √m."""
        size = source.shape[1]
        embedded = self.source(source, Positions.line(size, size, source.device).i)
        real, x = real_positions(lengths, embedded), self.enter_source(embedded)
        for layer in self.encoder:
            x = layer(x, real)
        # Every attention sends its gradients of k and v here.
        z = scale_gradient(self.leave_source(x), 1 / (2 * len(self.decoder)))
        value = (SQRT_HALF * (z + embedded)).unsqueeze(1)
        keys = [layer.cross.mechanism.prepare(z.unsqueeze(1), value).key for layer in self.decoder]  # type: ignore[union-attr, operator]
        readable = masks.padding(lengths).prepare(len(source), 1, queries, size, source.device)
        return State(
            keys=keys,
            value=value,
            readable=readable,
            root=lengths.to(z).sqrt().view(-1, 1, 1),
            length=0,
        )

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        size = target.shape[1]
        state = self.encode(source, lengths, size)
        embedded = self.target(target, Positions.line(size, size, target.device).i)
        x = self.enter_target(embedded)
        for layer, key in zip(self.decoder, state.keys, strict=True):
            x = layer(x, embedded, key, state)
        return self.head(self.dropout(self.leave_target(x)))

    def start(self, source: Tensor, lengths: Tensor) -> State:
        state = self.encode(source, lengths, 1)
        # Make the mask dense once per sentence.
        state.readable.allowed()
        return state.next(caches=[layer.conv.start(state.value) for layer in self.decoder])  # type: ignore[union-attr, operator]

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        embedded = self.target(
            tokens.unsqueeze(1), Positions.line(1, state.length + 1, tokens.device).i
        )
        x, after = self.enter_target(embedded), []
        for layer, key, cache in zip(self.decoder, state.keys, state.caches, strict=True):
            x, cache = layer.step(x, embedded, key, state, cache)  # type: ignore[operator]
            after.append(cache)
        return self.head(self.leave_target(x)).squeeze(1), state.next(
            caches=after, length=state.length + 1
        )


about = "Gated convolutions; every layer of the decoder attends with its own state."
add_family("convs2s", "Gehring et al. 2017", Config, {Seq2Seq: ConvS2S}, about)
