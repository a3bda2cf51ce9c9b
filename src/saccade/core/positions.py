"""Positions: how the mechanism knows where queries and keys are. H heads, Q queries, K keys, D key width, E value width.

A position may *encode* q and k before they are scored (rotary), add a *bias* to the scores (ALiBi, T5, Shaw), and add to the values
(Shaw). A position that is only added to the input of a model is an embedding: see layers/embeddings.py.
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
    """Where queries and keys are. i: Q or B × Q; j: K or B × K; `relation`: B|1 × Q × K, what each pair is to each other (steps
    along a parse tree), for positions that ask for it. One object serves a whole pass, so that angles are computed once."""

    i: Tensor
    j: Tensor
    relation: Tensor | None = None
    in_line: bool = False  # 0, 1, 2 … and the last query at the last key
    kept: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    @staticmethod
    def line(
        queries: int, keys: int, device: torch.device | str = "cpu", relation: Tensor | None = None
    ) -> Positions:
        """0, 1, 2 … for the keys. The last query is at the last key: of more queries than keys, the first are at −1, −2 …"""
        j = torch.arange(keys, device=device)
        i = j if queries == keys else torch.arange(keys - queries, keys, device=device)
        return Positions(i, j, relation, in_line=True)

    @staticmethod
    def same(
        at: Tensor | None, relation: Tensor | None, count: int, device: torch.device
    ) -> Positions:
        """Of self-attention over `count` tokens: at 0, 1, 2 …, or at the given positions (N or B N)."""
        return (
            Positions.line(count, count, device, relation)
            if at is None
            else Positions(at, at, relation)
        )

    @property
    def distance(self) -> Tensor:
        """j − i: Q × K or B × Q × K."""
        return self.j.unsqueeze(-2) - self.i.unsqueeze(-1)

    def rows(self, cut: slice) -> Positions:
        """The same for some of the queries."""
        relation = None if self.relation is None else self.relation[:, cut]
        return Positions(self.i[..., cut], self.j, relation)


class Position(nn.Module):
    """What all positions share. One of one's own overrides `encode`, `bias` or `values`: what it does is derived from that."""

    first_layer_only = False  # in a stack, only the first block has it
    absolute = False  # knows where a text begins, so that a part of one cannot be read without what came before
    needs_relation = False  # asks for `Positions.relation`
    bias_of_pairs = (
        False  # its bias is one for all texts where their positions and relation are the same
    )
    shared = False  # all blocks of a stack have the same one, with the same parameters
    heads: int | None = None  # the number of heads it is made for, where it has something per head

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # it would hold on some backends alone
        if "bias_at" in vars(cls) and "bias" not in vars(cls):
            raise SaccadeError(
                f"{cls.__name__} defines `bias_at` without `bias`, which is the definition; override both"
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
        """Whether `bias_at` gives what `bias` does: both come from one class, and nothing replaced one of them alone."""
        owners = [
            next(c for c in type(self).__mro__ if name in vars(c)) for name in ("bias", "bias_at")
        ]
        return owners[0] is owners[1] is not Position and not {"bias", "bias_at"} & set(vars(self))

    @property
    def adds_values(self) -> bool:
        return overrides(self, "values", Position)

    def encode(self, x: Tensor, at: Tensor, positions: Positions) -> Tensor:
        """q or k (B H N D) with its positions `at` (N or B × N; `positions.i` or `positions.j`) worked into it."""
        return x

    def encode_query(self, q: Tensor, at: Tensor, positions: Positions) -> Tensor:
        """q alone, where it differs from k."""
        return self.encode(q, at, positions)

    def encode_values(self, v: Tensor, at: Tensor, positions: Positions) -> Tensor:
        """v (B H K E) with its positions worked into it."""
        return v

    def bias(self, q: Tensor, positions: Positions, scale: float) -> Tensor | None:
        """What is added to the scores, broadcasting to B H Q K. `q` is as passed, before `encode`; `scale` is the score's."""
        return None

    def bias_at(self, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """The same for one head, query and key: where the bias depends on nothing else, kernels ask for it one by one."""
        raise NotImplementedError

    def values(self, weights: Tensor, positions: Positions) -> Tensor | None:
        """What is added to the output, B H Q E."""
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
                f"rotary positions rotate pairs and need an even head width, got {x.shape[-1]}; change dim or heads"
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
        # float64: position 100,000 still gets the right angle
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
            # unlike an index, it takes no position from the table's end
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
            raise SaccadeError(f"heads must be at least 1, got {heads}")
        self.heads = heads
        self.register_buffer("slopes", torch.tensor(alibi_slopes(heads)), persistent=False)

    def bias(self, q: Tensor, positions: Positions, scale: float) -> Tensor:
        # 16 bits count exactly to 2,048, or 256, alone
        dtype = torch.promote_types(q.dtype, torch.float32)
        distance = positions.distance.abs().to(dtype)
        distance = distance if distance.dim() == 2 else distance.unsqueeze(1)
        return -self.slopes.to(dtype)[:, None, None] * distance

    def bias_at(self, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return -self.slopes[h] * (j - i).abs()


def alibi_slopes(heads: int) -> list[float]:
    """A geometric row for a power of two; else that of the next lower power and every other one of the next higher (the paper's)."""
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
                f"expected at least 4 buckets and max_distance > buckets, got {buckets} and {max_distance}"
            )
        self.heads, self.buckets, self.max_distance = heads, buckets, max_distance
        self.both_sides, self.shared = not causal if both_sides is None else both_sides, shared
        self.table = normal_parameter(buckets, heads, std=0.02)

    def bucket(self, distance: Tensor) -> Tensor:
        """Which bucket j − i falls into; with `both_sides` half of the buckets are for keys to the right."""
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

    least = -1  # the least distance is this times `max_distance`

    def __init__(
        self,
        dim: int,
        max_distance: Positive = 16,
        values: bool = True,
        dim_values: int | None = None,
    ) -> None:
        super().__init__()
        if max_distance < 1:
            raise SaccadeError(f"max_distance must be at least 1, got {max_distance}")
        self.max_distance = max_distance
        distances, width = (
            max_distance + 1 - self.least * max_distance,
            dim if dim_values is None else dim_values,
        )
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
                f"the position expects queries of width {wanted}, got {got}; build it with that dim"
            )
        q = q.float() if q.dtype is torch.float16 else q  # a score may be larger than 65,504
        # B H Q R: one score per distance, not one vector per pair
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
                "syntax positions need parse trees; pass `Positions.line(Q, K, relation=tree_distances(heads))`"
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
    """A clear error for a position that a learned table does not have."""
    if not at.numel() or at.is_meta or not can_sync():
        return
    first, last = int(at.min()), int(at.max())
    if last >= size:
        wrong = f"position {last} is beyond the learned table of {size}"
        raise SaccadeError(
            f"{wrong}; shorten the text, or train with a larger max_len or with sinusoidal positions"
        )
    if first < 0:
        raise SaccadeError(
            f"position {first} is before the learned table of {size} begins; pass Positions(i, j) from 0 on"
        )


def sinusoid(
    at: Tensor, dim: int, base: float = 10000.0, dtype: torch.dtype | None = None
) -> Tensor:
    """p_t = [sin(t ω_0), cos(t ω_0), sin(t ω_1), …] with ω_k = base^(−2k/dim).

    Some slides start at k = 1 and end at k = d/2; Vaswani et al. and this start at k = 0, so that the first frequency is 1.
    """
    if dim % 2:
        raise SaccadeError(
            f"sinusoidal positions are pairs of sine and cosine and need an even width, got {dim}; change dim"
        )
    speed = base ** (-torch.arange(0, dim, 2, device=at.device, dtype=torch.float64) / dim)
    angle = at.unsqueeze(-1).to(torch.float64) * speed
    return (
        torch.stack([angle.sin(), angle.cos()], -1)
        .flatten(-2)
        .to(torch.get_default_dtype() if dtype is None else dtype)
    )
