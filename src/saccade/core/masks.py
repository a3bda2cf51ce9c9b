"""Masks: who may attend to whom, as a predicate on (b, h, i, j): batch row, head, place of the query, place of the key.

True = may attend. i and j are absolute: the last query stands at the last key. Combine with `&` and `|`. A mask is asked with
index tensors that broadcast, so one predicate serves the dense matrix, the block mask of FlexAttention and a single row.

L0 writes the causal mask as "mask out e_(i>j)"; the future of query i is j > i, and that is what is hidden here.
`torch.nn.MultiheadAttention.key_padding_mask` and its `attn_mask` have the opposite polarity (True = may NOT attend).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import SaccadeError
from .fixed import Made, Memory, memory, version
from .table import Table

table: Table[Callable[..., Mask]] = Table("masks", "mask")


class Mask:
    """A predicate on (b, h, i, j); masks with the same `key` are the same mask."""

    _kept: dict[str, tuple[Memory, tuple[Any, ...], Any]]  # during what it was made, what for, and what it is
    by_batch = False  # the answer depends on b
    by_head = False  # the answer depends on h
    in_line = True  # i is a place among the keys, so that there can be no more queries than keys

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        raise NotImplementedError

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells this mask from others; block masks are cached under it."""
        raise NotImplementedError

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What it looks things up in."""
        return ()

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        """Raises when the mask does not fit these sizes."""

    def to(self, device: torch.device | str) -> Mask:
        """The same mask with its tensors on `device`."""
        return self

    def __and__(self, other: Mask) -> Mask:
        if isinstance(self, Full):
            return other
        return self if other is self or isinstance(other, Full) else Both(self, other)

    def __or__(self, other: Mask) -> Mask:
        if isinstance(self, Full) or other is self:
            return self
        return other if isinstance(other, Full) else Either(self, other)

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self.key[1:]}"

    def __getstate__(self) -> dict[str, Any]:
        """What a copy is made of: not what this one keeps for itself."""
        return {name: value for name, value in vars(self).items() if name != "_kept"}

    def dense(self, batch: int, heads: int, queries: int, keys: int, device: torch.device | str = "cpu") -> Tensor:
        """The mask as booleans, B|1 × H|1 × Q|1 × K: a size it does not depend on stays 1."""
        sizes = (batch, heads, queries, keys, str(device))
        return self._once("dense", sizes, lambda: self._dense(*sizes))

    def added(
        self, batch: int, heads: int, queries: int, keys: int, device: torch.device | str, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """The mask as what is added to scores, 0 or −∞, and which rows may attend nowhere: these have 0 everywhere, since what a
        softmax makes of −∞ alone has no gradient."""
        sizes = (batch, heads, queries, keys, str(device))

        def make() -> tuple[Tensor, Tensor]:
            allowed = self._dense(*sizes)
            empty = ~allowed.any(-1, keepdim=True)
            zeros = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
            return zeros.masked_fill(~(allowed | empty), float("-inf")), empty

        return self._once("added", (*sizes, dtype), make)

    def _once(self, what: str, sizes: tuple[Any, ...], make: Callable[[], Made]) -> Made:
        """What `make` makes. The last one is kept, for all layers of a pass, until other sizes are asked for or what the mask looks up
        was changed."""
        now = memory()
        versions = () if now is None else tuple(version(tensor) for tensor in self.tensors)
        if now is None or None in versions:
            return make()
        kept = vars(self).setdefault("_kept", {})
        if what not in kept or kept[what][0] is not now or kept[what][1] != (sizes, versions):
            kept[what] = (now, (sizes, versions), make())
        found: Made = kept[what][2]
        return found

    def _dense(self, batch: int, heads: int, queries: int, keys: int, device: str) -> Tensor:
        self.check(batch, heads, queries, keys)
        b = torch.arange(batch, device=device).view(-1, 1, 1, 1)
        h = torch.arange(heads, device=device).view(-1, 1, 1)
        i = torch.arange(keys - queries, keys, device=device).view(-1, 1)
        j = torch.arange(keys, device=device)
        allowed = self.to(device)(b, h, i, j)
        return allowed.view((1,) * (4 - allowed.dim()) + tuple(allowed.shape))


class Full(Mask):
    """Everybody may attend to everything."""

    in_line = False
    key = ("full",)

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return j >= 0


class Causal(Mask):
    """j ≤ i."""

    key = ("causal",)

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return j <= i


class Window(Mask):
    """i − left ≤ j ≤ i + right."""

    def __init__(self, left: int, right: int) -> None:
        self.left, self.right = left, right

    @property
    def key(self) -> tuple[Any, ...]:
        return ("window", self.left, self.right)

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (j >= i - self.left) & (j <= i + self.right)


class OfTensor(Mask):
    """A mask that looks things up in a tensor."""

    name = "tensor"

    def __init__(self, values: Tensor) -> None:
        self.values = values

    @property
    def key(self) -> tuple[Any, ...]:
        # Contents are compared where reading them is free; a tensor on a GPU is known by its identity and how often it was changed.
        small = self.values.device.type == "cpu" and self.values.numel() <= 4096
        which = tuple(self.values.flatten().tolist()) if small else (id(self.values), version(self.values))
        return (self.name, which, tuple(self.values.shape))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.values,)

    def to(self, device: torch.device | str) -> Mask:
        if self.values.device == torch.device(device):
            return self
        moved = type(self).__new__(type(self))
        moved.__dict__.update(self.__getstate__(), values=self.values.to(device))
        return moved

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        if self.by_batch and self.values.shape[0] != batch:
            raise SaccadeError(
                f"the {self.name} mask is for a batch of {self.values.shape[0]}, the queries are a batch of {batch}; "
                "make the mask from the same batch"
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({tuple(self.values.shape)})"


class Padding(OfTensor):
    """j < lengths[b]."""

    name, by_batch, in_line = "padding", True, False

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return j < self.values[b]


class Prefix(OfTensor):
    """j ≤ i, or j < lengths[b]."""

    name, by_batch = "prefix", True

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (j <= i) | (j < self.values[b])


class Documents(OfTensor):
    """ids[b, i] = ids[b, j]."""

    name, by_batch = "documents", True

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return self.values[b, i] == self.values[b, j]

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        super().check(batch, heads, queries, keys)
        if self.values.shape[1] < keys:
            raise SaccadeError(
                f"documents are given for {self.values.shape[1]} places, there are {keys} keys; give one for each key"
            )


class BigBird(OfTensor):
    """A table of blocks: allowed[i // size, j // size]."""

    name = "blocks"

    def __init__(self, values: Tensor, size: int) -> None:
        super().__init__(values)
        self.size = size

    @property
    def key(self) -> tuple[Any, ...]:
        return (*super().key, self.size)

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return self.values[i // self.size, j // self.size]

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        if keys > self.values.shape[0] * self.size:
            raise SaccadeError(
                f"the block mask is made for {self.values.shape[0] * self.size} places, there are {keys}; raise `length`"
            )


class Matrix(OfTensor):
    """allowed[(b), (h), row, j] with the last row for the last query."""

    name, in_line = "matrix", False

    @property
    def by_batch(self) -> bool:  # type: ignore[override]
        return self.values.dim() == 4 and self.values.shape[0] > 1

    @property
    def by_head(self) -> bool:  # type: ignore[override]
        return self.values.dim() > 2 and self.values.shape[-3] > 1

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        row = i - (self.values.shape[-1] - self.values.shape[-2])
        if self.values.dim() == 2:
            return self.values[row, j]
        if self.values.dim() == 3:
            return self.values[h if self.values.shape[0] > 1 else h * 0, row, j]
        return self.values[b if self.values.shape[0] > 1 else b * 0, h if self.values.shape[1] > 1 else h * 0, row, j]

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        super().check(batch, heads, queries, keys)
        if self.by_head and self.values.shape[-3] != heads:
            raise SaccadeError(
                f"the mask is for {self.values.shape[-3]} heads, the queries have {heads}; give one matrix a head, or one for all"
            )
        rows, columns = self.values.shape[-2:]
        # A square matrix over more places than there are is read from its first place on.
        if (rows, columns) != (queries, keys) and not (rows == columns >= keys >= queries):
            raise SaccadeError(
                f"the mask is {rows} × {columns}, the scores are {queries} × {keys}; give one row a query, one column a key"
            )


class Pairwise(Mask):
    """Two masks combined."""

    def __init__(self, first: Mask, second: Mask) -> None:
        self.first, self.second = first, second
        self.by_batch = first.by_batch or second.by_batch
        self.by_head = first.by_head or second.by_head
        self.in_line = first.in_line or second.in_line

    @property
    def key(self) -> tuple[Any, ...]:
        return (type(self).__name__, self.first.key, self.second.key)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.first.tensors + self.second.tensors

    def to(self, device: torch.device | str) -> Mask:
        return type(self)(self.first.to(device), self.second.to(device))

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        self.first.check(batch, heads, queries, keys)
        self.second.check(batch, heads, queries, keys)

    def __repr__(self) -> str:
        return f"({self.first!r} {'&' if isinstance(self, Both) else '|'} {self.second!r})"


class Both(Pairwise):
    """first & second."""

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return self.first(b, h, i, j) & self.second(b, h, i, j)


class Either(Pairwise):
    """first | second."""

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return self.first(b, h, i, j) | self.second(b, h, i, j)


@table.add("full", system="A9")
def full() -> Mask:
    """Everybody may attend to everything."""
    return Full()


@table.add("causal", paper="Vaswani et al. 2017", system="A9")
def causal() -> Mask:
    """Nobody sees the future: j ≤ i."""
    return Causal()


@table.add("window", paper="Luong et al. 2015", system="A12")
def window(left: int, right: int | None = None) -> Mask:
    """Neighbors only: i − left ≤ j ≤ i + right; `right` is `left` when not given."""
    right = left if right is None else right
    if not isinstance(left, int) or not isinstance(right, int) or left < 0 or right < 0:
        raise SaccadeError(f"a window of {left} to the left and {right} to the right; both must be whole numbers of 0 or more")
    return Window(left, right)


@table.add("padding", system="A9")
def padding(lengths: Tensor | Sequence[int]) -> Mask:
    """Only the first lengths[b] keys of row b are there."""
    return Padding(whole(lengths, 1, "lengths"))


@table.add("prefix", paper="Raffel et al. 2020", system="A9")
def prefix(lengths: Tensor | Sequence[int]) -> Mask:
    """Causal, but the first lengths[b] keys are seen by everybody."""
    return Prefix(whole(lengths, 1, "lengths"))


@table.add("documents", system="A9")
def documents(ids: Tensor | Sequence[Sequence[int]]) -> Mask:
    """Packed documents: attention stays inside ids[b, i] = ids[b, j]; combine with `causal()` for language models."""
    return Documents(whole(ids, 2, "document numbers"))


@table.add("blocks", paper="Zaheer et al. 2020 (Big Bird)", system="A9")
def blocks(length: int, size: int = 64, window: int = 1, globals: int = 1, random: int = 3, seed: int = 0) -> Mask:
    """Big Bird: a window of blocks, some global blocks, and some random ones.

    Blocks are `size` places; a row of blocks sees `window` blocks either side, the first `globals` blocks (which see everybody, too)
    and `random` more.
    """
    if min(length, size) < 1 or min(window, globals, random) < 0 or -(-length // size) > 65536:
        raise SaccadeError(
            f"blocks of {size} over {length} places with window {window}, globals {globals}, random {random}; "
            "size and length must be positive, the rest not negative, at most 65,536 blocks"
        )
    count = -(-length // size)
    at = np.arange(count)
    allowed = np.abs(at[:, None] - at[None]) <= window
    allowed[:globals] = allowed[:, :globals] = True
    generator = np.random.Generator(np.random.PCG64(seed))
    for row in range(globals, count):
        free = np.flatnonzero(~allowed[row])
        allowed[row, generator.permutation(free)[:random]] = True
    return BigBird(torch.from_numpy(allowed), size)


@table.add("matrix", system="A9")
def matrix(allowed: Tensor | Sequence[Sequence[int]]) -> Mask:
    """Any 0/1 matrix, Q × K, H × Q × K or B × H × Q × K; 1 (True) = may attend. A graph's edges, a tree's arcs."""
    values = tensor_of(allowed, "a mask")
    if values.dim() not in (2, 3, 4):
        raise SaccadeError(f"a mask of shape {tuple(values.shape)}; give Q × K, H × Q × K or B × H × Q × K")
    if values.is_floating_point() or values.is_complex():
        raise SaccadeError("a mask of floating numbers; give booleans or 0/1 integers where 1 = may attend")
    return Matrix(values.bool())


def whole(values: Tensor | Sequence[Any], dims: int, what: str) -> Tensor:
    """`values` as a tensor of whole numbers with `dims` dimensions."""
    tensor = tensor_of(values, what)
    if tensor.dim() != dims or tensor.is_floating_point() or tensor.dtype == torch.bool:
        raise SaccadeError(
            f"{what} of shape {tuple(tensor.shape)} and type {tensor.dtype}; give whole numbers in {dims} dimension(s)"
        )
    return tensor


def tensor_of(values: Any, what: str) -> Tensor:
    """`values` as a tensor, or an error for what is none."""
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        raise SaccadeError(
            f"{what} of {type(values).__name__} that is no table of numbers; give a tensor, or lists of equal lengths"
        ) from None
