"""Synthesizers: attention whose scores do not come from comparing queries and keys. B batch, H heads, Q queries, K keys, D width of a head."""

import math
from collections.abc import Callable
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core import Mechanism, Positions
from ..core.positions import Position
from ..core.scores import Score
from ..errors import SaccadeError
from ..settings import Range
from .mixers import check_length, table
from .multihead_attention import MultiHeadAttention

KINDS = ("dense", "factorized-dense", "random", "factorized")
COMBINATIONS = ("none", "add", "alpha")


class NoScore(Score):
    """0 for every query and key: the scores come from elsewhere."""

    def key(self, k: Tensor) -> Tensor:
        return k[..., :1]  # a cache need not keep more

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return query.new_zeros(()).expand(*query.shape[:3], key.shape[2])


class Weakened(Score):
    """(1 − σ(α)) · the scores of another score."""

    def __init__(self, inner: Score, alpha: nn.Parameter) -> None:
        super().__init__()
        self.inner, self.alpha, self.unequal_widths = inner, alpha, inner.unequal_widths

    def query(self, q: Tensor) -> Tensor:
        return self.inner.query(q)

    def key(self, k: Tensor) -> Tensor:
        return self.inner.key(k)

    def scale(self, width: int) -> float:
        return self.inner.scale(width)

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return (1 - self.alpha.sigmoid()) * self.inner.compare(query, key)


class Synthesized(Position):
    """Scores made from a query alone, or from nothing, for each position of a key; added to what another position adds."""

    def __init__(
        self,
        heads: int,
        width: int,
        kind: str,
        max_len: int,
        rank: int,
        alpha: nn.Parameter | None,
        inner: Position,
    ) -> None:
        super().__init__()
        self.heads, self.kind, self.max_len, self.alpha = heads, kind, max_len, alpha
        self.inner = inner
        self.needs_relation, self.first_layer_only = inner.needs_relation, inner.first_layer_only
        shapes: dict[str, list[tuple[int, ...]]] = {
            "dense": [(width, max_len)],
            "factorized-dense": [(width, rank), (width, -(-max_len // rank))],
            "random": [(heads, max_len, max_len)],
            "factorized": [(heads, max_len, rank), (heads, max_len, rank)],
        }
        # random scores begin as those of a dot product do, of variance 1; a product of two sums `rank` of them
        spread = {"random": 1.0, "factorized": rank**-0.25}.get(kind, math.sqrt(2 / width))
        self.tables = nn.ParameterList(torch.empty(shape) for shape in shapes[kind])
        for one in self.tables:
            nn.init.normal_(one, std=spread)

    @property
    def encodes(self) -> bool:
        return self.inner.encodes

    @property
    def adds_values(self) -> bool:
        return self.inner.adds_values

    def encode(self, x: Tensor, at: Tensor, positions: Positions) -> Tensor:
        return self.inner.encode(x, at, positions)

    def encode_values(self, v: Tensor, at: Tensor, positions: Positions) -> Tensor:
        return self.inner.encode_values(v, at, positions)

    def values(self, weights: Tensor, positions: Positions) -> Tensor | None:
        return self.inner.values(weights, positions)

    def bias(self, q: Tensor, positions: Positions, scale: float) -> Tensor:
        check_length(positions, self.max_len)
        own = self.own_scores(q, positions)
        own = own if self.alpha is None else self.alpha.sigmoid() * own
        added = self.inner.bias(q, positions, scale)
        return own if added is None else own + added

    def own_scores(self, q: Tensor, positions: Positions) -> Tensor:
        """H Q K or B H Q K, as `positions` are the same for all rows or not and as the kind depends on q."""
        i, j = self.spans(positions)
        if self.kind == "random":
            table = self.tables[0]
            return (
                table[:, i, j]
                if isinstance(j, slice)
                else heads_second(table[:, i.unsqueeze(-1), j.unsqueeze(-2)])  # type: ignore[union-attr]
            )
        if self.kind == "factorized":
            rows, columns = (
                heads_second(table[:, at]) for table, at in zip(self.tables, (i, j), strict=True)
            )
            return rows @ columns.transpose(-2, -1)
        active = F.relu(q)
        if self.kind == "dense" and positions.j.dim() == 1:
            return active @ self.tables[0][:, j].to(q.dtype)
        found = [active @ table.to(q.dtype) for table in self.tables]
        if self.kind == "dense":
            return at_keys(found[0], positions.j)
        rank = found[0].shape[-1]  # key j has the product of the scores j mod rank and j div rank
        return at_keys(found[0], positions.j % rank) * at_keys(found[1], positions.j // rank)

    def spans(self, positions: Positions) -> tuple[Tensor | slice, Tensor | slice]:
        """Where queries and keys are, as slices where they are in a line: these copy nothing."""
        queries, keys = positions.i.shape[-1], positions.j.shape[-1]
        if positions.in_line:
            return (slice(keys - queries, keys), slice(0, keys))
        return (positions.i, positions.j)


def heads_second(x: Tensor) -> Tensor:
    """H N D as it is; H B N D → B H N D."""
    return x if x.dim() == 3 else x.transpose(0, 1)


def at_keys(scores: Tensor, j: Tensor) -> Tensor:
    """Of scores for all positions, B H Q L, those of the keys: B H Q K."""
    if j.dim() == 1:
        return scores[..., j]
    return scores.gather(-1, j[:, None, None].expand(*scores.shape[:3], -1))


class ZeroProjection(nn.Module):
    """Stands where a projection is not needed: zeros that take no memory."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features

    def forward(self, x: Tensor) -> Tensor:
        return x.new_zeros(()).expand(*x.shape[:-1], self.out_features)


@table.add("synthesizer", paper="Tay et al. 2020", example={"max_len": 16})
class Synthesizer(MultiHeadAttention):
    """softmax(R) v with R from each token alone (`dense`: relu(q) W) or learned (`random`; `factorized`: R₁R₂ᵀ); `plus` adds q·k, or mixes by α.

    `factorized-dense` is relu(q) W₁ and relu(q) W₂ with `rank` and max_len / `rank` scores, tiled and multiplied. `plus: alpha` is
    (1 − a) q·k + a R, a = σ(α). As in the code of Narang et al. 2021, W is shared by all heads, R is not, q and k are projected only
    where they are used, and `factorized` is a random matrix of rank 16. There 8 heads 128 wide are synthesized, beside 12 heads 64 wide
    that read the encoder: `heads`, `head_width`, `cross_heads`, `cross_width`. What the position adds joins R, as it joins q·k.
    """

    def __init__(
        self,
        dim: int,
        heads: int = 8,
        kind: Annotated[str, KINDS] = "dense",
        plus: Annotated[str, COMBINATIONS] = "none",
        max_len: Annotated[int, Range(1, 65536)] = 512,
        rank: Annotated[int | None, Range(1, 4096)] = None,
        make_mechanism: Callable[[Score | None], Mechanism] | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        head_width: int | None = None,
    ) -> None:
        """`make_mechanism` makes the mechanism to be changed, with a given score where there is one; `rank` is 16 unless given."""
        for name, value, known in (("kind", kind, KINDS), ("plus", plus, COMBINATIONS)):
            if value not in known:
                raise SaccadeError(
                    f"expected a {name} that is one of {', '.join(known)}, got {value!r}; choose one of these",
                    code="unknown-choice",
                )
        if rank is not None and not kind.startswith("factorized"):
            raise SaccadeError(
                f"rank has no effect on a synthesizer of kind '{kind}', got {rank}; leave it out",
                code="setting-without-effect",
            )
        make = (lambda score: Mechanism(score)) if make_mechanism is None else make_mechanism
        plain = make(NoScore() if plus == "none" else None)
        if plus == "none" and plain.mask.computed:
            wrong = f"{plain.mask!r} is computed from keys, which a synthesizer without q·k does not have"
            raise SaccadeError(
                f"{wrong}; choose another mask, or plus=add", code="parts-do-not-combine"
            )
        super().__init__(
            dim, heads, mechanism=plain, bias=bias, dropout=dropout, head_width=head_width
        )
        alpha = nn.Parameter(torch.zeros(())) if plus == "alpha" else None
        position = Synthesized(heads, self.width, kind, max_len, rank or 16, alpha, plain.position)
        score = plain.score if alpha is None else Weakened(plain.score, alpha)
        self.mechanism = Mechanism(score, plain.normalize, plain.mask, position)
        nothing = ZeroProjection(dim, heads * self.width)
        if plus == "none":
            self.k = nothing
            if not kind.endswith("dense"):
                self.q = nothing
