"""Positions encode where queries and keys are. H heads, Q queries, K keys, D key width, E value width.

A position may *encode* q and k before scoring (rotary), add a *bias* to the scores (ALiBi, T5, Shaw), and add to the values (Shaw).
Positions that are added to the input of a model are embeddings: see layers/token_inputs.py.

>>> import torch
>>> from saccade import Mechanism, attend, positions
>>> q = k = v = torch.randn(1, 4, 6, 8)
>>> attend(q, k, v, Mechanism(position=positions.Alibi(heads=4))).shape
torch.Size([1, 4, 6, 8])
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import SaccadeError
from ..registry import Table
from ..settings import Positive, Range, overrides
from . import kernels
from .cache import Memo
from .initialization import normal_parameter
from .tracing import can_sync

table: Table[type[Position]] = Table(
    "positions", "position", facts=("dim", "dim_values", "heads", "causal")
)


@dataclass(frozen=True, eq=False)
class Positions(Memo):
    """Positions of queries and keys. One object serves a whole pass, so angles are computed once.

    Args:
        i: Query positions, Q or B Q.
        j: Key positions, K or B K.
        relation: B|1 Q K, the relation of each pair, such as steps along a parse tree.
        in_line: Keys are at 0, 1, 2 …, the last query at the last key.

    >>> from saccade.core import Positions
    >>> Positions.line(queries=2, keys=4).i
    tensor([2, 3])
    """

    i: Tensor
    j: Tensor
    relation: Tensor | None = None
    in_line: bool = False
    kept: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    @staticmethod
    def line(
        queries: int, keys: int, device: torch.device | str = "cpu", relation: Tensor | None = None
    ) -> Positions:
        """Keys at 0, 1, 2 …, the last query at the last key. With Q > K, the first queries are at negative positions."""
        j = torch.arange(keys, device=device)
        i = j if queries == keys else torch.arange(keys - queries, keys, device=device)
        return Positions(i, j, relation, in_line=True)

    @staticmethod
    def same(
        at: Tensor | None, relation: Tensor | None, count: int, device: torch.device
    ) -> Positions:
        """Self-attention over `count` tokens at 0, 1, 2 …, or at the given positions (N or B N)."""
        if at is None:
            return Positions.line(count, count, device, relation)
        return Positions(at, at, relation)

    @property
    def distance(self) -> Tensor:
        """j − i: Q × K or B × Q × K."""
        return self.j.unsqueeze(-2) - self.i.unsqueeze(-1)

    def rows(self, cut: slice) -> Positions:
        """The positions of a range of queries."""
        relation = None if self.relation is None else self.relation[:, cut]
        return Positions(self.i[..., cut], self.j, relation)


class Position(nn.Module):
    """Base class of positions. Subclasses override `encode`, `bias` or `values`; capabilities are derived from that."""

    first_layer_only = False  # used by the first block of a stack alone
    absolute = False  # depends on the start of a sequence, so a segment cannot be read alone
    needs_relation = False  # requires `Positions.relation`
    bias_of_pairs = False  # the bias depends on positions and relation alone, not on q
    shared = False  # all blocks of a stack share one instance
    heads: int | None = None  # the number of heads it is built for, if it matters

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # It would apply on some backends only.
        if "bias_at" in vars(cls) and "bias" not in vars(cls):
            raise SaccadeError(
                f"{cls.__name__} defines `bias_at` without `bias`, which is the definition; override both",
                code="override-missing",
            )

    @property
    def encodes(self) -> bool:
        return any(
            overrides(self, name, Position) for name in ("encode", "encode_query", "encode_values")
        )

    @property
    def biases(self) -> bool:
        return overrides(self, "bias", Position)

    @property
    def biases_by_position(self) -> bool:
        """Whether `bias_at` matches `bias`: one class defines both, and neither is replaced alone."""
        owners = [
            next(c for c in type(self).__mro__ if name in vars(c)) for name in ("bias", "bias_at")
        ]
        return owners[0] is owners[1] is not Position and not {"bias", "bias_at"} & set(vars(self))

    @property
    def adds_values(self) -> bool:
        return overrides(self, "values", Position)

    def encode(self, x: Tensor, at: Tensor, positions: Positions) -> Tensor:
        """Encodes q or k (B H N D) at positions `at` (N or B N; `positions.i` or `positions.j`)."""
        return x

    def encode_query(self, q: Tensor, at: Tensor, positions: Positions) -> Tensor:
        """Encodes q, if it differs from k."""
        return self.encode(q, at, positions)

    def encode_values(self, v: Tensor, at: Tensor, positions: Positions) -> Tensor:
        """Encodes v (B H K E)."""
        return v

    def bias(self, q: Tensor, positions: Positions, scale: float) -> Tensor | None:
        """The bias added to the scores, broadcastable to B H Q K. `q` is not yet encoded; `scale` is the score's."""
        return None

    def bias_at(self, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """The bias of head h, query i and key j, for kernels, if it depends on nothing else."""
        raise NotImplementedError

    def values(self, weights: Tensor, positions: Positions) -> Tensor | None:
        """The term added to the output, B H Q E, or None."""
        return None


@table.add("none")
class NoPosition(Position):
    """The order of keys does not matter."""


@table.add("rotary", paper="Su et al. 2021")
class Rotary(Position):
    """Rotates pairs (x_m, x_(m+D/2)) by the angle position · base^(−2m/D): scores depend on distances alone."""

    def __init__(self, base: Annotated[float, Range(1.0, 1e9)] = 10000.0) -> None:
        super().__init__()
        self.base = base

    def encode(self, x: Tensor, at: Tensor, positions: Positions) -> Tensor:
        half = x.shape[-1] // 2
        if x.shape[-1] % 2:
            raise SaccadeError(
                f"rotary positions rotate pairs and need an even head width, got {x.shape[-1]}; change dim or heads",
                code="width-not-even",
            )
        which = "i" if at is positions.i else "j" if at is positions.j else None
        if which is None or overrides(self, "angles", Rotary):
            cos, sin = self.angles(at, half, x.dtype)
        else:
            cos, sin = positions.once(
                (which, self.base, half, x.dtype), lambda: self.angles(at, half, x.dtype)
            )
        rotated = kernels.rotate(x, cos, sin)
        if rotated is not None:
            return rotated
        left, right = x.chunk(2, -1)
        return torch.cat(
            [
                torch.addcmul(left * cos, right, sin, value=-1),
                torch.addcmul(left * sin, right, cos),
            ],
            -1,
        )

    def angles(self, at: Tensor, half: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosine and sine of each position's angles: N half, or B 1 N half."""
        speed = self.base ** (-torch.arange(half, device=at.device, dtype=torch.float64) / half)
        # float64 keeps the angle of position 100,000 exact.
        angle = at.unsqueeze(-1).to(torch.float64) * speed
        angle = angle if at.dim() == 1 else angle.unsqueeze(-3)
        return angle.cos().to(dtype), angle.sin().to(dtype)


@table.add("added")
class Added(Position):
    """p_t added to q, k and v (and only in the first layer of a stack): sinusoidal, or a learned table of `max_len` positions."""

    first_layer_only = absolute = True

    def __init__(self, dim: int, max_len: Annotated[int | None, Range(1, 10**6)] = None) -> None:
        super().__init__()
        self.vectors = None if max_len is None else normal_parameter(max_len, dim, std=0.02)

    def encode(self, x: Tensor, at: Tensor, positions: Positions) -> Tensor:
        if self.vectors is None:
            added = sinusoid(at, x.shape[-1], dtype=x.dtype)
        else:
            check_within(at, self.vectors.shape[0])
            # Unlike indexing, it refuses negative positions.
            added = F.embedding(at, self.vectors)
        return x + (added if at.dim() == 1 else added.unsqueeze(-3)).to(x.dtype)

    def encode_values(self, v: Tensor, at: Tensor, positions: Positions) -> Tensor:
        return self.encode(v, at, positions)


@table.add("alibi", paper="Press et al. 2022")
class Alibi(Position):
    """−slope_h · |i − j| with slopes 2^(−8/H), 2^(−16/H), …"""

    bias_of_pairs = True
    slopes: Tensor

    def __init__(self, heads: int) -> None:
        super().__init__()
        if heads < 1:
            raise SaccadeError(f"heads must be at least 1, got {heads}", code="heads-out-of-range")
        self.heads = heads
        self.register_buffer("slopes", torch.tensor(alibi_slopes(heads)), persistent=False)

    def bias(self, q: Tensor, positions: Positions, scale: float) -> Tensor:
        # 16-bit floats count exactly to 2,048 or 256 only.
        dtype = torch.promote_types(q.dtype, torch.float32)
        distance = positions.distance.abs().to(dtype)
        distance = distance if distance.dim() == 2 else distance.unsqueeze(1)
        return -self.slopes.to(dtype)[:, None, None] * distance

    def bias_at(self, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return -self.slopes[h] * (j - i).abs()


def alibi_slopes(heads: int) -> list[float]:
    """Geometric slopes for a power of two; otherwise those of the power below and every other one of the power above."""
    if math.log2(heads).is_integer():
        return [2.0 ** (-8.0 * (h + 1) / heads) for h in range(heads)]
    lower = 2 ** math.floor(math.log2(heads))
    return alibi_slopes(lower) + alibi_slopes(2 * lower)[0::2][: heads - lower]


@table.add("t5", paper="Raffel et al. 2020", example={"buckets": 8, "max_distance": 16})
class T5Buckets(Position):
    """A learned bias per head and bucket of distances: exact when near, logarithmic when far, one bucket beyond `max_distance`.

    With `both_sides: null`, as in T5, half of the buckets are for keys to the right, and none where nobody sees the future. T5 also has
    one table for all blocks of a stack: `shared`.
    """

    bias_of_pairs = True

    def __init__(
        self,
        heads: int,
        buckets: Annotated[int, Range(4, 65536)] = 32,
        max_distance: Annotated[int, Range(5, 10**6)] = 128,
        both_sides: bool | None = True,
        shared: bool = False,
        causal: bool = False,
    ) -> None:
        super().__init__()
        if buckets < 4 or max_distance <= buckets:
            raise SaccadeError(
                f"expected at least 4 buckets and max_distance > buckets, got {buckets} and {max_distance}",
                code="buckets-out-of-range",
            )
        self.heads, self.buckets, self.max_distance = heads, buckets, max_distance
        self.both_sides, self.shared = not causal if both_sides is None else both_sides, shared
        self.table = normal_parameter(buckets, heads, std=0.02)

    def bucket(self, distance: Tensor) -> Tensor:
        """The bucket of j − i. With `both_sides`, half of the buckets are for keys to the right."""
        buckets, base = self.buckets, torch.zeros_like(distance)
        if self.both_sides:
            buckets //= 2
            base = (distance > 0).long() * buckets
            far = distance.abs()
        else:
            far = (-distance).clamp_min(0)
        exact = buckets // 2
        spread = (
            (far.clamp_min(1).float() / exact).log()
            / math.log(self.max_distance / exact)
            * (buckets - exact)
        )
        return base + torch.where(far < exact, far, (exact + spread.long()).clamp_max(buckets - 1))

    def bias(self, q: Tensor, positions: Positions, scale: float) -> Tensor:
        if overrides(self, "bucket", T5Buckets):
            which = self.bucket(positions.distance)
        else:
            key = ("t5", self.buckets, self.max_distance, self.both_sides)
            which = positions.once(key, lambda: self.bucket(positions.distance))
        return self.table[which].movedim(-1, -3).to(q.dtype)

    def bias_at(self, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return self.table[self.bucket(j - i), h]


@table.add("shaw", paper="Shaw et al. 2018", example={"max_distance": 3})
class Shaw(Position):
    """Learned vectors for distances clipped to ±`max_distance`: q·a^K_(j−i) added to the scores, a^V_(j−i) to the values."""

    # Smallest distance as a multiple of `max_distance`.
    least = -1

    def __init__(
        self,
        dim: int,
        max_distance: Positive = 16,
        values: bool = True,
        dim_values: int | None = None,
    ) -> None:
        super().__init__()
        if max_distance < 1:
            raise SaccadeError(
                f"max_distance must be at least 1, got {max_distance}", code="distance-out-of-range"
            )
        self.max_distance = max_distance
        distances = max_distance + 1 - self.least * max_distance
        width = dim if dim_values is None else dim_values
        self.keys = nn.Parameter(torch.randn(distances, dim) / math.sqrt(dim))
        self.value_vectors = (
            nn.Parameter(torch.randn(distances, width) / math.sqrt(width)) if values else None
        )

    @property
    def adds_values(self) -> bool:
        return self.value_vectors is not None or overrides(self, "values", Shaw)

    def index(self, positions: Positions) -> Tensor:
        return positions.distance.clamp(-self.max_distance, self.max_distance) + self.max_distance

    def bias(self, q: Tensor, positions: Positions, scale: float) -> Tensor:
        if q.shape[-1] != self.keys.shape[1]:
            wanted, got = self.keys.shape[1], q.shape[-1]
            raise SaccadeError(
                f"the position expects queries of width {wanted}, got {got}; build it with that dim",
                code="width-differs",
            )
        # A score may exceed 65,504.
        q = q.float() if q.dtype is torch.float16 else q
        # B H Q R: one score per distance instead of one vector per pair.
        by_distance = scale * (q @ self.keys.to(q.dtype).transpose(0, 1))
        return by_distance.gather(-1, broadcast_index(self.index(positions), by_distance))

    def values(self, weights: Tensor, positions: Positions) -> Tensor | None:
        if self.value_vectors is None:
            return None
        by_distance = weights.new_zeros(*weights.shape[:-1], self.value_vectors.shape[0])
        by_distance = by_distance.scatter_add(
            -1, broadcast_index(self.index(positions), weights), weights
        )
        return by_distance @ self.value_vectors.to(weights.dtype)


@table.add("syntax", paper="Wang et al. 2019", example={"max_distance": 3})
class SyntaxDistance(Shaw):
    """Shaw's vectors with distances along a parse tree instead of along the line; `signed`: other vectors up the tree than down it.

    Signs are those of `tree_distances(heads, signed=True)`; without `signed` they do not matter.
    """

    needs_relation = True

    def __init__(
        self,
        dim: int,
        max_distance: Positive = 16,
        values: bool = True,
        dim_values: int | None = None,
        signed: bool = False,
    ) -> None:
        self.signed, self.least = signed, -1 if signed else 0
        super().__init__(dim, max_distance, values, dim_values)

    def index(self, positions: Positions) -> Tensor:
        if positions.relation is None:
            raise SaccadeError(
                "syntax positions need parse trees; pass `Positions.line(Q, K, relation=tree_distances(heads))`",
                code="relation-missing",
            )
        steps = positions.relation if self.signed else positions.relation.abs()
        return (
            steps.clamp(self.least * self.max_distance, self.max_distance)
            - self.least * self.max_distance
        )


def broadcast_index(index: Tensor, like: Tensor) -> Tensor:
    """Q × K or B × Q × K → B H Q K."""
    index = index if index.dim() == 2 else index.unsqueeze(1)
    return index.expand(*like.shape[:-1], index.shape[-1])


def check_within(at: Tensor, size: int) -> None:
    """Checks that all positions are in a learned table."""
    if not at.numel() or at.is_meta or not can_sync():
        return
    first, last = int(at.min()), int(at.max())
    if last >= size:
        wrong = f"position {last} is beyond the learned table of {size}"
        raise SaccadeError(
            f"{wrong}; shorten the text, or train with a larger max_len or with sinusoidal positions",
            code="position-out-of-range",
        )
    if first < 0:
        raise SaccadeError(
            f"position {first} is before the learned table of {size} begins; pass Positions(i, j) from 0 on",
            code="position-out-of-range",
        )


def sinusoid(
    at: Tensor, dim: int, base: float = 10000.0, dtype: torch.dtype | None = None
) -> Tensor:
    """p_t = [sin(t ω_0), cos(t ω_0), sin(t ω_1), …] with ω_k = base^(−2k/dim).

    Some slides start at k = 1 and end at k = d/2; Vaswani et al. and this start at k = 0, so that the first frequency is 1.
    """
    if dim % 2:
        raise SaccadeError(
            f"sinusoidal positions are pairs of sine and cosine and need an even width, got {dim}; change dim",
            code="width-not-even",
        )
    speed = base ** (-torch.arange(0, dim, 2, device=at.device, dtype=torch.float64) / dim)
    angle = at.unsqueeze(-1).to(torch.float64) * speed
    return (
        torch.stack([angle.sin(), angle.cos()], -1)
        .flatten(-2)
        .to(torch.get_default_dtype() if dtype is None else dtype)
    )
