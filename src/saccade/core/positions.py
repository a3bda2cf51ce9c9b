"""Positions: how the mechanism knows where queries and keys stand. H heads, Q queries, K keys, D key width, E value width.

A position may *turn* q and k before they are scored (rotary), *bend* the scores by adding to them (ALiBi, T5, Shaw), and add to
what is summed (Shaw's values). A position that is only added to the input of a model is an embedding: see layers/embeddings.py.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..errors import SaccadeError
from .fixed import made_of, written_down
from .places import Places
from .table import Table

table: Table[type[Position]] = Table("positions", "position")


class Position(nn.Module):
    """What all positions share; this one knows nothing of places."""

    turns = False
    bends = False
    bends_by_place = False  # the bend depends on head and places alone
    adds_values = False
    first_layer_only = False  # in a stack, only the first block has it
    heads: int | None = None  # the number of heads it is made for, where it has something for each

    def turn(self, x: Tensor, at: Tensor) -> Tensor:
        """q or k (B H N D) with the places `at` (N or B × N) worked into it."""
        return x

    def turn_values(self, v: Tensor, at: Tensor) -> Tensor:
        """v (B H K E) with its places worked into it."""
        return v

    def bend(self, q: Tensor, places: Places, scale: float) -> Tensor | None:
        """What is added to the scores, broadcasting to B H Q K, or None. `q` is as handed in, before any turn; `scale` is the score's."""
        return None

    def bend_at(self, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """The bend of one head, query and key, for kernels that ask one by one; only where `bends_by_place`."""
        raise NotImplementedError

    def values(self, weights: Tensor, places: Places) -> Tensor | None:
        """What is added to the output, B H Q E, or None."""
        return None


@table.add("none", system="P6")
class NoPosition(Position):
    """The order of keys does not matter."""


@table.add("rotary", paper="Su et al. 2021", system="P6")
class Rotary(Position):
    """Turns pairs (x_m, x_(m+D/2)) by the angle place · base^(−2m/D): scores depend on distances alone."""

    turns = True

    def __init__(self, base: float = 10000.0) -> None:
        super().__init__()
        self.base = base

    def turn(self, x: Tensor, at: Tensor) -> Tensor:
        half, odd = divmod(x.shape[-1], 2)
        if odd:
            raise SaccadeError(f"rotary positions turn pairs, and a head's width is {x.shape[-1]}; choose an even width")
        cos, sin = made_of(at, (self.base, half, x.dtype), lambda: self.angles(at, half, x.dtype))
        left, right = x.chunk(2, -1)
        return torch.cat([torch.addcmul(left * cos, right, sin, value=-1), torch.addcmul(left * sin, right, cos)], -1)

    def angles(self, at: Tensor, half: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosine and sine of each place's angles: N half, or B 1 N half."""
        speed = self.base ** (-torch.arange(half, device=at.device, dtype=torch.float64) / half)
        angle = at.unsqueeze(-1).to(torch.float64) * speed  # float64: place 100,000 still turns by the right angle
        angle = angle if at.dim() == 1 else angle.unsqueeze(-3)
        return angle.cos().to(dtype), angle.sin().to(dtype)


@table.add("added", system="P5")
class Added(Position):
    """p_t added to q, k and v (and only in the first layer of a stack): sinusoidal, or a learned table of `max_len` places."""

    turns = True
    first_layer_only = True

    def __init__(self, dim: int, max_len: int | None = None) -> None:
        super().__init__()
        self.vectors = None if max_len is None else nn.Parameter(torch.randn(max_len, dim) * 0.02)

    def turn(self, x: Tensor, at: Tensor) -> Tensor:
        if self.vectors is None:
            added = sinusoid(at, x.shape[-1], dtype=x.dtype)
        else:
            check_places(at, self.vectors.shape[0])
            added = self.vectors[at]
        return x + (added if at.dim() == 1 else added.unsqueeze(-3)).to(x.dtype)

    def turn_values(self, v: Tensor, at: Tensor) -> Tensor:
        return self.turn(v, at)


@table.add("alibi", paper="Press et al. 2022", system="P6")
class Alibi(Position):
    """−slope_h · |i − j| with slopes 2^(−8/H), 2^(−16/H), …"""

    bends = True
    bends_by_place = True
    slopes: Tensor

    def __init__(self, heads: int) -> None:
        super().__init__()
        if heads < 1:
            raise SaccadeError(f"ALiBi for {heads} heads; there is at least one")
        self.heads = heads
        self.register_buffer("slopes", torch.tensor(alibi_slopes(heads)), persistent=False)

    def bend(self, q: Tensor, places: Places, scale: float) -> Tensor:
        distance = places.distance.abs().to(q.dtype)
        distance = distance if distance.dim() == 2 else distance.unsqueeze(1)
        return -self.slopes.to(q.dtype)[:, None, None] * distance

    def bend_at(self, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return -self.slopes[h] * (j - i).abs()


def alibi_slopes(heads: int) -> list[float]:
    """A geometric row for a power of two; else that of the next lower power and every other one of the next higher (the paper's)."""
    if math.log2(heads).is_integer():
        return [2.0 ** (-8.0 * (h + 1) / heads) for h in range(heads)]
    lower = 2 ** math.floor(math.log2(heads))
    return alibi_slopes(lower) + alibi_slopes(2 * lower)[0::2][: heads - lower]


@table.add("t5", paper="Raffel et al. 2020", system="P6")
class T5Buckets(Position):
    """A learned bias a head for each bucket of distances: exact when near, logarithmic when far, one bucket beyond `max_distance`."""

    bends = True
    bends_by_place = True

    def __init__(self, heads: int, buckets: int = 32, max_distance: int = 128, both_sides: bool = True) -> None:
        super().__init__()
        if buckets < 4 or max_distance <= buckets:
            raise SaccadeError(f"{buckets} buckets up to distance {max_distance}; give at least 4 buckets and a longer distance")
        self.heads, self.buckets, self.max_distance, self.both_sides = heads, buckets, max_distance, both_sides
        self.bias = nn.Parameter(torch.randn(buckets, heads) * 0.02)

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
        spread = (far.clamp_min(1).float() / exact).log() / math.log(self.max_distance / exact) * (buckets - exact)
        return base + torch.where(far < exact, far, (exact + spread.long()).clamp_max(buckets - 1))

    def bend(self, q: Tensor, places: Places, scale: float) -> Tensor:
        return self.bias[self.bucket(places.distance)].movedim(-1, -3).to(q.dtype)

    def bend_at(self, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return self.bias[self.bucket(j - i), h]


@table.add("shaw", paper="Shaw et al. 2018", system="P3")
class Shaw(Position):
    """Learned vectors for distances clipped to ±`max_distance`: q·a^K_(j−i) added to the scores, a^V_(j−i) to what is summed.

    The score's own scale holds for both: with scaled dot, (q·k + q·a)/√D, as in the paper.
    """

    bends = True
    nearest = -1  # the least distance is this times `max_distance`

    def __init__(self, dim: int, max_distance: int = 16, values: bool = True, dim_values: int | None = None) -> None:
        super().__init__()
        if max_distance < 1:
            raise SaccadeError(f"relative positions up to a distance of {max_distance}; give at least 1")
        self.max_distance, self.adds_values = max_distance, values
        distances = max_distance + 1 - self.nearest * max_distance
        self.keys = nn.Parameter(torch.randn(distances, dim) / math.sqrt(dim))
        if values:
            width = dim if dim_values is None else dim_values
            self.value_vectors = nn.Parameter(torch.randn(distances, width) / math.sqrt(width))

    def index(self, places: Places) -> Tensor:
        return places.distance.clamp(-self.max_distance, self.max_distance) + self.max_distance

    def bend(self, q: Tensor, places: Places, scale: float) -> Tensor:
        if q.shape[-1] != self.keys.shape[1]:
            raise SaccadeError(
                f"the position's vectors are {self.keys.shape[1]} wide, the queries {q.shape[-1]}; make it with dim={q.shape[-1]}"
            )
        by_distance = scale * (q @ self.keys.to(q.dtype).transpose(0, 1))  # B H Q R: one score a distance, not one vector a pair
        return by_distance.gather(-1, broadcast_index(self.index(places), by_distance))

    def values(self, weights: Tensor, places: Places) -> Tensor | None:
        if not self.adds_values:
            return None
        by_distance = weights.new_zeros(*weights.shape[:-1], self.value_vectors.shape[0])
        by_distance = by_distance.scatter_add(-1, broadcast_index(self.index(places), weights), weights)
        return by_distance @ self.value_vectors.to(weights.dtype)


@table.add("syntax", paper="Wang et al. 2019", system="P4")
class SyntaxDistance(Shaw):
    """Shaw's vectors with distances along a parse tree, which are never negative, in place of distances along the line."""

    nearest = 0

    def index(self, places: Places) -> Tensor:
        if places.tree is None:
            raise SaccadeError(
                "syntax positions need a parse tree; hand in `places=Places.in_line(Q, K, tree=tree_distances(heads))`"
            )
        return places.tree.clamp(0, self.max_distance)


def broadcast_index(index: Tensor, like: Tensor) -> Tensor:
    """Q × K or B × Q × K → B H Q K."""
    index = index if index.dim() == 2 else index.unsqueeze(1)
    return index.expand(*like.shape[:-1], index.shape[-1])


def check_places(at: Tensor, size: int) -> None:
    """A clear error for a place beyond a learned table (not inside a graph, where reading a number would break it)."""
    if at.numel() and not written_down() and int(at.max()) >= size:
        raise SaccadeError(
            f"place {int(at.max())} in a learned table of {size} places; shorten the text, or train with a larger max_len "
            "or with sinusoidal places"
        )


def sinusoid(places: Tensor, dim: int, base: float = 10000.0, dtype: torch.dtype | None = None) -> Tensor:
    """p_t = [sin(t ω_0), cos(t ω_0), sin(t ω_1), …] with ω_k = base^(−2k/dim).

    L0's slide starts at k = 1 and ends at k = d/2; Vaswani et al. and this start at k = 0, so that the first frequency is 1.
    """
    if dim % 2:
        raise SaccadeError(f"sinusoidal positions come in pairs of sine and cosine, and the width is {dim}; choose an even width")
    speed = base ** (-torch.arange(0, dim, 2, device=places.device, dtype=torch.float64) / dim)
    angle = places.unsqueeze(-1).to(torch.float64) * speed
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2).to(torch.get_default_dtype() if dtype is None else dtype)
