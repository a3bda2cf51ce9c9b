"""XLNet (Yang et al. 2019): a bidirectional encoder with Transformer-XL's memory and relative segments. B batch, N positions, M memory, S vectors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..core import Positions, State, masks, normalizers, scores
from ..core.initialization import normal_parameter
from ..core.xl_positions import TransformerXL as Distances
from ..errors import SaccadeError
from ..layers.block import Block, BlockCache
from ..layers.convolution import LastInputs
from ..layers.stack import Stack
from ..layers.token_inputs import NoPositionEmbedding
from ..settings import Choice, number, setting
from .assembly import Config
from .families import Builds, add_family
from .protocols import AttendingEncoder, Carrying
from .transformer import TransformerEncoder
from .transformer_xl import MAX_MEMORY, FixedSettings, SegmentAttention
from .two_stream import TwoStream, seen_by_streams

# Per position in memory: its mark (B M 1) and the input of each layer (B M dim).
Carried = tuple[Tensor, ...]


@dataclass(frozen=True)
class XLNetConfig(Config):
    """The settings of an XLNet: those of a Transformer, its memory and its segments. The paper has `residual: post-norm`."""

    memory: int = number(
        128,
        0,
        MAX_MEMORY,
        "positions before those read at once that each layer still attends to; 0 for none",
    )
    separator: str | None = setting(
        None, "token between the segments of a text, as between the sentences of a pair"
    )
    piece: int | None = number(
        None, 1, 1_000_000, "tokens of a text read at once, in a task with labels; by default all"
    )

    @staticmethod
    def complete(values: Mapping[str, Any]) -> dict[str, Any]:
        return dict(values)


class SegmentedDistances(Distances):
    """Transformer-XL's positions, and (q_i + s)·e for a vector e of each head: one for keys in the query's segment, one for keys in another.

    `Positions.relation` is not 0 where a query and a key are in different segments; without it all are in one.
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.s = normal_parameter(heads, 1, dim, std=0.02)
        self.segments = normal_parameter(heads, 2, dim, std=0.02)

    def bias(self, q: Tensor, positions: Positions, scale: float) -> Tensor:
        found = super().bias(q, positions, scale)
        if positions.relation is None:
            return found
        same, other = (
            scale * (q.to(found.dtype) + self.s.to(found.dtype)) @ self.segments.to(found.dtype).mT
        ).split(1, -1)
        return found + torch.where(positions.relation.ne(0).unsqueeze(-3), other, same)


class XLNet(TransformerEncoder):
    """An encoder that can remember the last `memory` inputs of each layer, without gradient, from one piece of a text to the next.

    A position in memory has a mark: 0 where nothing is there, else 1 + the number of its document. Tokens see those of their own document.
    """

    def __init__(self, vocab: int, config: Any) -> None:
        fixed = {
            "mixer": Choice(SegmentAttention, {"bias": False}),
            "mask": Choice(masks.Full),
            "score": Choice(scores.ScaledDot),
            "normalize": Choice(normalizers.Softmax),
            "position": Choice(Distances if config.separator is None else SegmentedDistances),
            "position_embedding": Choice(NoPositionEmbedding),
            "block": Choice(Block),
            "stack": Choice(Stack),
        }
        c: Any = FixedSettings(config, **fixed)
        super().__init__(vocab, c)
        self.memory, self.separator, self.piece = c.memory, c.separator, c.piece
        self.separating = -1  # the separator's number, once the vocabulary is known

    def separate(self, number: Callable[[str], int | None]) -> int | None:
        if self.separator is None:
            return None
        found = number(self.separator)
        if found is None:
            wrong = (
                f"model.separator is {self.separator!r}, which is not one token of the vocabulary"
            )
            raise SaccadeError(
                f"{wrong}; give a token that stands between the segments of the texts, or leave it out",
                code="unknown-separator",
            )
        self.separating = found
        return found

    def segments(self, tokens: Tensor) -> Tensor | None:
        """The segment of each token, B N: the number of separators before it."""
        if self.separator is None:
            return None
        ends = (tokens == self.separating).long()
        return ends.cumsum(1) - ends

    def forward(
        self,
        tokens: Tensor,
        lengths: Tensor,
        mask: masks.Mask | None = None,
        positions: Tensor | None = None,
        relation: Tensor | None = None,
        depth: Tensor | None = None,
    ) -> Tensor:
        plain = mask is None and positions is None and relation is None
        if plain and self.piece is not None and tokens.shape[1] > self.piece:
            return self.read_in_pieces(tokens, lengths, self.piece)
        segments = self.segments(tokens)
        if relation is None and segments is not None:
            relation = segments.unsqueeze(2) != segments.unsqueeze(1)
        return super().forward(tokens, lengths, mask, positions, relation, depth)

    def read_in_pieces(self, tokens: Tensor, lengths: Tensor, size: int) -> Tensor:
        """Reads texts (B N) in pieces of `size` tokens with memory: B N dim."""
        carried, found, segments = self.empty(len(tokens)), list[Tensor](), self.segments(tokens)
        for at in range(0, tokens.shape[1], size):
            there = (lengths - at).clamp(0, size)
            cut = None if segments is None else segments[:, at : at + size]
            x, carried = self.read(tokens[:, at : at + size], there, carried, segments=cut)
            found.append(x)
        return torch.cat(found, 1)

    def empty(self, rows: int) -> Carried:
        """The memory before the first piece."""
        like = next(self.parameters())
        # Marks may be large numbers.
        wide = torch.promote_types(like.dtype, torch.float32)
        return tuple(
            like.new_zeros(rows, self.memory, width, dtype=wide)
            for width in [1] + [self.dim] * len(self.encoder)
        )

    def read(
        self,
        tokens: Tensor,
        lengths: Tensor,
        carried: Carried,
        documents: Tensor | None = None,
        segments: Tensor | None = None,
    ) -> tuple[Tensor, Carried]:
        """Reads tokens after the memory. Returns vectors, B N dim, and the new memory. `segments` defaults to the tokens' own."""
        line = torch.arange(tokens.shape[1], device=tokens.device).expand(len(tokens), -1)
        here = line < lengths.unsqueeze(1)
        seen = here.unsqueeze(1).expand(-1, tokens.shape[1], -1)
        if documents is not None:
            seen = seen & (documents.unsqueeze(2) == documents.unsqueeze(1))
        marks = marked(here, documents)
        segments = self.segments(tokens) if segments is None else segments
        return self.run(self.embedding(tokens, line), line, seen, marks, marks, segments, carried)

    def run(
        self,
        x: Tensor,
        at: Tensor,
        seen: Tensor,
        marks: Tensor,
        own: Tensor,
        segments: Tensor | None,
        carried: Carried,
    ) -> tuple[Tensor, Carried]:
        """Runs the stack on vectors x (B S dim) at positions `at` (B S). Returns the output and the new memory.

        `seen` (B S S) is the mask among them; `own` (B S) marks which memory each may attend to. The first vectors are tokens with
        `marks` (B N). The memory has segment 0, as in the authors' code.
        """
        (batch, size), (there, *inputs) = x.shape[:2], (part.detach() for part in carried)
        before = there.shape[1]
        remembered = (there.mT == own.unsqueeze(2)) & (own.unsqueeze(2) > 0)
        mask = masks.matrix(torch.cat([remembered, seen], 2).unsqueeze(1))
        keys = torch.cat([torch.arange(-before, 0, device=x.device).expand(batch, -1), at], 1)
        relation = None
        if segments is not None:
            relation = segments.unsqueeze(2) != F.pad(segments, (before, 0)).unsqueeze(1)
        ready = mask.prepare(batch, self.heads, size, before + size, x.device)
        caches = [BlockCache(LastInputs(one), None) for one in inputs]
        x, after = self.encoder.step(x, caches, ready, None, Positions(at, keys, relation))
        count = marks.shape[1]  # only tokens enter the memory
        read = [cache.mixer.inputs[:, count : before + count].detach() for cache in after]  # type: ignore[attr-defined]
        marks = torch.cat([there, marks.unsqueeze(2).to(there.dtype)], 1)[:, count:]
        return x, (marks, *(one.to(part.dtype) for one, part in zip(read, inputs, strict=True)))


def marked(here: Tensor, documents: Tensor | None) -> Tensor:
    """The marks of tokens, B N. Padding has none."""
    return here.long() if documents is None else (documents + 1) * here


class RecurrentTwoStream(TwoStream, Carrying):
    """Two streams with the memory of an XLNet."""

    body: XLNet

    def start(self, source: Tensor, lengths: Tensor) -> State:
        """The state before the first tokens of B texts; `source` (B 0)."""
        return State(carried=[self.body.empty(len(source))], length=0)

    def forward_from(
        self,
        tokens: Tensor,
        lengths: Tensor,
        order: Tensor,
        at: Tensor,
        documents: Tensor | None,
        state: State,
    ) -> tuple[Tensor, State]:
        """`forward` for the next tokens after the state. Also returns the new state."""
        features, carried = self.features_from(
            tokens, lengths, order, at, documents, state.carried[0]
        )
        return self.head(features), state.next(
            carried=[carried], length=state.length + tokens.shape[1]
        )

    def features_from(
        self,
        tokens: Tensor,
        lengths: Tensor,
        order: Tensor,
        at: Tensor,
        documents: Tensor | None,
        carried: Carried,
    ) -> tuple[Tensor, Carried]:
        """The query stream, B W dim, and the memory after the tokens."""
        both, where = self.streams(tokens, at)
        here = torch.arange(tokens.shape[1], device=tokens.device) < lengths.unsqueeze(1)
        seen = F.pad(seen_by_streams(lengths, order, at, documents), (0, at.shape[1]))
        marks = marked(here, documents)
        own = torch.cat([marks, marks.gather(1, at)], 1)
        x, carried = self.body.run(
            both, where, seen, marks, own, self.segments(tokens, at), carried
        )
        return x[:, tokens.shape[1] :], carried


encoder: Builds = {AttendingEncoder: XLNet}
add_family(
    "xlnet",
    "Yang et al. 2019",
    XLNetConfig,
    encoder,
    "Encoder with Transformer-XL's memory and relative segments.",
)
