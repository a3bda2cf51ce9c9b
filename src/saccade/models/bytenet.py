"""ByteNet: dilated convolutions, the decoder stacked on the encoder position by position. B batch, N source, T target, V vocabulary.

A target position reads the encoder's output at its own number, zeros beyond the source's end (dynamic unfolding): time is linear in the
lengths, and nothing attends. Reordering must happen within the reach of the convolutions. Trains well with learning_rate 0.002.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core import State
from ..layers import embeddings, norms, output_heads, token_inputs
from ..layers.convolution import Convolution, LastInputs, real_positions
from ..registry import Table
from ..settings import Choice, number, part
from .families import Sizes, add_family, named_sizes
from .protocols import Seq2Seq

units: Table[type["ReluUnit"]] = Table(
    "units", "unit", facts=("dim", "hidden", "width", "dilation", "causal", "norm", "dropout")
)


@units.add("relu", paper="Kalchbrenner et al. 2016 (ByteNet)")
class ReluUnit(nn.Module):
    """x + W₂ r(conv(r(W₁ r(x)))), with r(x) = max(norm(x), 0): the unit of the translation model"""

    outputs = 1  # of the convolution, each `hidden` wide

    def __init__(
        self,
        dim: int,
        hidden: int,
        width: int,
        dilation: int,
        causal: bool,
        norm: Choice,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.before, self.inside = norm(dim=dim), norm(dim=hidden)
        self.after = norm(dim=self.outputs * hidden)
        self.inner, self.outer = Convolution(dim, hidden), Convolution(hidden, dim)
        self.dropout = nn.Dropout(dropout)
        self.conv = Convolution(hidden, self.outputs * hidden, width, dilation, causal)

    def enter(self, x: Tensor) -> Tensor:
        """B N dim → what is convolved, B N hidden."""
        return F.relu(self.inside(self.inner(F.relu(self.before(x)))))

    def leave(self, entered: Tensor, convolved: Tensor) -> Tensor:
        """What the map back reads, B N hidden."""
        return F.relu(convolved)

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        entered = self.enter(x)
        return x + self.outer(
            self.dropout(self.leave(entered, self.after(self.conv(entered, real))))
        )

    def step(self, x: Tensor, cache: LastInputs) -> tuple[Tensor, LastInputs]:
        entered = self.enter(x)
        convolved, after = self.conv.step(entered, cache)
        return x + self.outer(self.leave(entered, self.after(convolved))), after


@units.add("multiplicative", paper="Kalchbrenner et al. 2016 (Video Pixel Networks)")
class MultiplicativeUnit(ReluUnit):
    """x + W₂ (σ(g₁) ∘ tanh(σ(g₂) ∘ h + σ(g₃) ∘ tanh(u))), with h = norm(W₁ norm(x)) and [g₁; g₂; g₃; u] = norm(conv(h))"""

    outputs = 4

    def enter(self, x: Tensor) -> Tensor:
        return self.inside(self.inner(self.before(x)))

    def leave(self, entered: Tensor, convolved: Tensor) -> Tensor:
        first, second, third, update = convolved.chunk(4, -1)
        return first.sigmoid() * torch.tanh(
            second.sigmoid() * entered + third.sigmoid() * update.tanh()
        )


@dataclass(frozen=True)
class Config:
    """The settings of a ByteNet."""

    sizes: ClassVar[Sizes] = named_sizes(  # big is the paper's
        dim=(128, 256, 512, 1024, 1600),
        hidden=(64, 128, 256, 512, 800),
        depth=(5, 5, 10, 15, 30),
        dropout=(0.1, 0.2, 0.3, 0.1, 0.1),
    )

    dim: int = number(512, 1, 65_536, "width of a token's vector and between units")
    hidden: int = number(256, 1, 65_536, "width inside a unit")
    depth: int = number(10, 1, 1000, "units of the encoder, and of the decoder")
    width: int = number(3, 1, 64, "width of the convolutions")
    dilations: int = number(
        5,
        1,
        10,
        "dilations double from unit to unit, 1, 2, 4 …, and begin anew after so many units",
    )
    dropout: float = number(
        0.1, 0.0, 0.99, "dropout of the embedded words, and before each unit's end"
    )
    unit: Choice = part(units, ReluUnit, "what surrounds each convolution")
    norm: Choice = part(norms.table, norms.LayerNorm)
    embedding: Choice = part(embeddings.table, embeddings.Tokens)
    head: Choice = part(output_heads.table, output_heads.LinearHead)


class ByteNet(Seq2Seq):
    """An encoder of units that see both sides, and on it a decoder of causal ones."""

    def __init__(self, source_vocab: int, target_vocab: int, c: Config) -> None:
        super().__init__()
        facts = {
            "dim": c.dim,
            "hidden": c.hidden,
            "width": c.width,
            "norm": c.norm,
            "dropout": c.dropout,
        }
        self.source, self.target = (
            token_inputs.WordInput(c.embedding(vocab=vocab, dim=c.dim), nn.Dropout(c.dropout))
            for vocab in (source_vocab, target_vocab)
        )
        self.encoder, self.decoder = (
            nn.ModuleList(
                c.unit(dilation=2 ** (n % c.dilations), causal=causal, **facts)
                for n in range(c.depth)
            )
            for causal in (False, True)
        )
        self.join, self.finish = (
            nn.Sequential(c.norm(dim=c.dim), nn.ReLU(), Convolution(c.dim, c.dim)) for _ in range(2)
        )
        self.head = c.head(dim=c.dim, vocab=target_vocab, tied=None, bias=True)

    def encode(self, source: Tensor, lengths: Tensor) -> Tensor:
        """B N → what the decoder reads, B N dim, zeros at padding."""
        x = self.source(source)
        real = real_positions(lengths, x)
        for unit in self.encoder:
            x = unit(x, real)
        return self.join(x) * real

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        below, size = self.encode(source, lengths), target.shape[1]
        x = self.target(target) + F.pad(below, (0, 0, 0, max(size - below.shape[1], 0)))[:, :size]
        for unit in self.decoder:
            x = unit(x)
        return self.read(x)

    def read(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.finish(x)))

    def start(self, source: Tensor, lengths: Tensor) -> State:
        below = self.encode(source, lengths)
        return State(
            below=below,
            caches=[unit.conv.start(below) for unit in self.decoder],  # type: ignore[operator, union-attr]
            length=0,
        )

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        x, t, after = self.target(tokens.unsqueeze(1)), state.length, []
        x = x + state.below[:, t : t + 1] if t < state.below.shape[1] else x
        for unit, cache in zip(self.decoder, state.caches, strict=True):
            x, cache = unit.step(x, cache)  # type: ignore[operator]
            after.append(cache)
        return self.read(x).squeeze(1), state.next(caches=after, length=t + 1)


about = "Dilated convolutions, the decoder stacked on the encoder; no attention, linear time."
add_family("bytenet", "Kalchbrenner et al. 2016", Config, {Seq2Seq: ByteNet}, about)
