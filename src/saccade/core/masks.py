"""Masks are predicates on (b, h, i, j): batch row, head, query position and key position. True = may attend.

i and j are absolute: the last query is at the last key. They are index tensors that broadcast. Combine masks with `&`, `|` and `~`.
A custom mask is `masks.where(lambda b, h, i, j: …)` or a subclass with `__call__`.

Some slides write the causal mask as "mask out e_(i>j)" with i and j swapped: the future of query i is j > i, and that is hidden here.
`key_padding_mask` and `attn_mask` of `torch.nn.MultiheadAttention` have the opposite polarity (True = may NOT attend).

>>> from saccade import masks
>>> mask = masks.causal() & masks.padding([3, 2])
>>> mask.dense(batch=2, heads=1, queries=3, keys=3)[1, 0].int()
tensor([[1, 0, 0],
        [1, 1, 0],
        [1, 1, 0]], dtype=torch.int32)
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import SaccadeError
from ..registry import Table
from ..settings import Natural, Positive, Range
from .cache import Cache, Memo
from .tracing import can_sync, is_on_device

table: Table[type[Mask]] = Table("masks", "mask", facts=("heads", "n"))
Predicate = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
Starts = NDArray[np.int64]  # first positions of blocks
MAX_BLOCKS = 65_536  # per sequence, if all heads share one pattern


class Mask:
    """Base class: a predicate on (b, h, i, j). Subclasses override the hints below where they know more."""

    compares_positions = True  # i is a key position, so there cannot be more queries than keys
    computed = False  # from queries and keys; derived: True for classes that override `given`
    extra = 0  # number of global tokens that an encoder prepends

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.computed = cls.given is not Mask.given

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        raise NotImplementedError

    def given(self, query: Tensor, key: Tensor) -> Mask:
        """The mask for these projected queries (B H Q A) and keys (B H' K A), by default itself."""
        return self

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        """Raises a SaccadeError if the mask does not fit these sizes."""

    def causal_and_keys(self) -> tuple[bool, Mask] | None:
        """(is causal, remaining mask on keys alone) if the mask is a conjunction of these, else None."""
        if type(self) is Causal:
            return True, Full()
        return (False, self) if type(self) in (Full, Padding) else None

    def needed(self, rows: Starts, columns: Starts, size: int) -> NDArray[np.bool_] | None:
        """Which blocks may contain an allowed pair: R C, or H R C if heads differ. None if unknown, as for subclasses.
        Blocks have `size` positions and start at `rows` (R, queries) and `columns` (C, keys)."""
        return None

    def to(self, device: torch.device | str) -> Mask:
        """The mask with its tensors on `device`."""
        if is_on_device(self, torch.device(device)):
            return self
        return self.map(lambda tensor: tensor.to(device))

    def map(self, change: Callable[[Tensor], Tensor]) -> Mask:
        """A copy with `change` applied to every tensor, nested masks included."""
        moved = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(moved, name, change(value))
            elif isinstance(value, Mask):
                setattr(moved, name, value.map(change))
        return moved

    def __and__(self, other: Mask) -> Mask:
        check_mask(other)
        if type(self) is Full:
            return other
        return self if other is self or type(other) is Full else Both(self, other)

    def __or__(self, other: Mask) -> Mask:
        check_mask(other)
        if type(self) is Full or other is self:
            return self
        return other if type(other) is Full else Either(self, other)

    def __rand__(self, other: object) -> Mask:
        return check_mask(other)

    __ror__ = __rand__

    def __invert__(self) -> Mask:
        return self.first if isinstance(self, Not) else Not(self)

    def __bool__(self) -> bool:
        # torch.compile tests callables for truth.
        if sys._getframe(1).f_globals.get("__name__", "").startswith("torch."):
            return True
        raise SaccadeError(
            f"the mask {self!r} is neither true nor false; combine masks with & and |, not with `and` and `or`",
            code="mask-truth-value",
        )

    def __repr__(self) -> str:
        inner = (
            str(tuple(v.shape)) if isinstance(v, Tensor) else repr(v) for v in vars(self).values()
        )
        return f"{type(self).__name__}({', '.join(inner)})"

    def prepare(
        self, batch: int, heads: int, queries: int, keys: int, device: torch.device | str = "cpu"
    ) -> Prepared:
        """The mask for fixed sizes, made dense at most once per pass or decoded sentence."""
        return Prepared(self, (batch, heads, queries, keys), device)

    def dense(
        self, batch: int, heads: int, queries: int, keys: int, device: torch.device | str = "cpu"
    ) -> Tensor:
        """The mask as booleans, B|1 H|1 Q|1 K. Dimensions it does not depend on have size 1."""
        self.check(batch, heads, queries, keys)
        j = torch.arange(keys, device=device)
        return self.answer(
            batch, heads, torch.arange(keys - queries, keys, device=device), j
        ).expand(-1, -1, -1, keys)

    def answer(self, batch: int, heads: int, i: Tensor, j: Tensor) -> Tensor:
        """The predicate for all rows and heads at positions i (Q) and j (K), B|1 × H|1 × Q|1 × K|1."""
        b = torch.arange(batch, device=i.device).view(-1, 1, 1, 1)
        h = torch.arange(heads, device=i.device).view(-1, 1, 1)
        allowed = check_booleans(self.to(i.device)(b, h, i.view(-1, 1), j), self)
        return allowed.view((1,) * (4 - allowed.dim()) + tuple(allowed.shape))


class Prepared(Mask, Cache, Memo):
    """A mask for fixed sizes with cached dense and block forms. Prepare it again after changing its tensors."""

    def __init__(
        self, mask: Mask, sizes: tuple[int, int, int, int], device: torch.device | str
    ) -> None:
        self.mask, self.sizes, self.device = mask, sizes, device
        self.compares_positions, self.computed = mask.compares_positions, mask.computed
        self.kept = {}

    def allowed(self) -> Tensor:
        """B|1 H|1 Q|1 K"""
        return self.once("allowed", lambda: self.mask.dense(*self.sizes, self.device))

    def added(self, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """The additive form (0 or −∞), and which rows are fully masked: these are 0, since a softmax of −∞ alone has no gradient.
        The second value is None if a CPU finds no such row; a GPU is not asked, to avoid a synchronization."""
        found: tuple[Tensor, Tensor | None] | None = self.kept.get(dtype)
        if found is None:
            allowed = self.allowed()
            some = allowed.any(-1, keepdim=True)
            readable = (
                can_sync()
                and type(some) is Tensor
                and not torch._C._functorch.is_batchedtensor(some)
            )
            if readable and some.device.type == "cpu" and bool(some.all()):
                empty = None
            else:
                allowed, empty = allowed | ~some, ~some
            zero = torch.zeros((), dtype=dtype, device=allowed.device)
            found = self.kept[dtype] = (torch.where(allowed, zero, float("-inf")), empty)
        return found

    def within(self, other: Mask) -> Prepared:
        """`other & self`, cached for all layers with the same mask object."""
        if type(other) is Full:
            return self
        # Caching `other` keeps its id valid.
        make = lambda: (other, (other & self.mask).prepare(*self.sizes, self.device))
        return self.once(id(other), make)[1]

    def reorder(self, rows: Tensor) -> Prepared:
        """Row n of the new mask is row rows[n] of this one."""
        _, heads, queries, keys = self.sizes
        made = Prepared(self.mask, (len(rows), heads, queries, keys), self.device)
        for key, value in self.kept.items():
            if isinstance(value, Tensor):
                made.kept[key] = pick_rows(value, rows)
            elif isinstance(key, torch.dtype):
                made.kept[key] = tuple(
                    one if one is None else pick_rows(one, rows) for one in value
                )
        made.mask = self._reorder(self.mask, rows)
        return made

    def _reorder(self, mask: Mask, rows: Tensor) -> Mask:
        # Dense, because only the answers of a mask are known to have the batch first.
        if not mask.computed:
            return Matrix(
                pick_rows(
                    self.allowed() if mask is self.mask else mask.dense(*self.sizes, self.device),
                    rows,
                )
            )
        if isinstance(mask, Pair):
            return type(mask)(self._reorder(mask.first, rows), self._reorder(mask.second, rows))
        return mask

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        self.mask.check(batch, heads, queries, keys)

    def map(self, change: Callable[[Tensor], Tensor]) -> Mask:
        return self.mask.map(change)

    def given(self, query: Tensor, key: Tensor) -> Mask:
        return self.mask.given(query, key)

    def causal_and_keys(self) -> tuple[bool, Mask] | None:
        return self.mask.causal_and_keys()

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return self.mask(b, h, i, j)

    def __repr__(self) -> str:
        return repr(self.mask)


def check_booleans(answer: Any, mask: Mask) -> Tensor:
    """Checks the type of a predicate's answer. Backends disagree about the truth of numbers such as 2 and −1."""
    if not isinstance(answer, Tensor) or answer.dtype != torch.bool:
        kind = answer.dtype if isinstance(answer, Tensor) else type(answer).__name__
        raise SaccadeError(
            f"{mask!r} answered with {kind}, expected booleans; compare, as in `j <= i`",
            code="mask-not-boolean",
        )
    return answer


def any_head(needed: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The blocks that any head needs (R C), from the result of `Mask.needed` (R C or H R C)."""
    return np.asarray(np.logical_or.reduce(needed.reshape(-1, *needed.shape[-2:]), 0))


def pick_rows(tensor: Tensor, rows: Tensor) -> Tensor:
    """tensor[rows], or the tensor itself if its one row is shared."""
    return tensor if tensor.shape[0] == 1 else tensor.index_select(0, rows)


class Where(Mask):
    """A custom predicate: `masks.where(lambda b, h, i, j: (i - j) % 4 == 0)`."""

    def __init__(self, predicate: Predicate) -> None:
        if not callable(predicate):
            raise SaccadeError(
                f"expected a function of (b, h, i, j), got {predicate!r}; for a 0/1 matrix use masks.matrix",
                code="not-a-predicate",
            )
        self.predicate = predicate

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        try:
            return self.predicate(b, h, i, j)
        except RuntimeError as error:
            if "Boolean value of Tensor" not in str(error):
                raise
            wrong = f"{self!r} asks whether a whole tensor is true"
            raise SaccadeError(
                f"{wrong}; write & and | for `and` and `or`, ~ for `not`, and torch.where for `if`",
                code="mask-truth-value",
            ) from error

    def __repr__(self) -> str:
        code = getattr(self.predicate, "__code__", None)
        return f"Where({getattr(self.predicate, '__name__', self.predicate)}{f', line {code.co_firstlineno}' if code else ''})"


@table.add("full")
class Full(Mask):
    """Everybody may attend to everything."""

    compares_positions = False

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return j >= 0


@table.add("causal", paper="Vaswani et al. 2017")
class Causal(Mask):
    """Nobody sees the future: j ≤ i."""

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return j <= i

    def needed(self, rows: Starts, columns: Starts, size: int) -> NDArray[np.bool_] | None:
        return columns <= rows[:, None] + size - 1 if type(self) is Causal else None


@table.add("window", paper="Luong et al. 2015", example={"left": 2, "right": 1})
class Window(Mask):
    """Neighbors only: i − left ≤ j ≤ i + right; `right` is `left` when not given."""

    def __init__(self, left: Natural, right: Annotated[int | None, Range(0, 10**6)] = None) -> None:
        right = left if right is None else right
        if not isinstance(left, int) or not isinstance(right, int) or left < 0 or right < 0:
            raise SaccadeError(
                f"a window must reach 0 or more positions to each side, got {left!r} and {right!r}",
                code="window-out-of-range",
            )
        self.left, self.right = left, right

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (j >= i - self.left) & (j <= i + self.right)

    def needed(self, rows: Starts, columns: Starts, size: int) -> NDArray[np.bool_] | None:
        ahead = columns - rows[:, None]
        if type(self) is Window:
            return (ahead > -self.left - size) & (ahead < self.right + size)
        return None


class PerRow(Mask):
    """Base class of masks with one value or list per batch row."""

    def __init__(self, lengths: Tensor | Sequence[int]) -> None:
        self.values = integers(lengths, 1, "lengths")

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        size, name = self.values.shape[0], table.name_of(self)
        if size != batch:
            raise SaccadeError(
                f"the {name} mask was made for a batch of {size}, got a batch of {batch}; make the mask from the same batch",
                code="mask-batch-differs",
            )


@table.add("padding", per_batch=True)
class Padding(PerRow):
    """Only the first lengths[b] keys of row b are there."""

    compares_positions = False

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return j < self.values[b]


@table.add("prefix", paper="Raffel et al. 2020", per_batch=True)
class Prefix(PerRow):
    """Causal, but the first lengths[b] keys are seen by everybody."""

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (j <= i) | (j < self.values[b])


@table.add("documents", per_batch=True)
class Documents(PerRow):
    """Packed documents: attention stays inside ids[b, i] = ids[b, j]; combine with `causal()` for language models."""

    def __init__(self, ids: Tensor | Sequence[Sequence[int]]) -> None:
        self.values = integers(ids, 2, "document ids")

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return self.values[b, i] == self.values[b, j]

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        super().check(batch, heads, queries, keys)
        if self.values.shape[1] < keys:
            raise SaccadeError(
                f"document ids are given for {self.values.shape[1]} positions, got {keys} keys; give one per key",
                code="mask-too-short",
            )


@table.add(
    "blocks", paper="Zaheer et al. 2020 (Big Bird)", example={"length": 16, "size": 2, "random": 1}
)
class Blocks(Mask):
    """Big Bird: a window of blocks, global blocks, random ones. ITC: the first (and `last`) of the blocks are global; ETC: `extra` tokens
    in front, which belong to no word and are not counted in `length`, are; an encoder puts them there. Each head of each layer draws its
    own random blocks: head h of block `n` by (`seed`, n, h). With `heads: 1`, the default in Python, all heads share those of head 0."""

    def __init__(
        self,
        length: Positive,
        size: Positive = 64,
        window: Natural = 1,
        globals: Natural = 1,
        random: Natural = 3,
        seed: Natural = 0,
        last: Natural = 0,
        extra: Natural = 0,
        heads: int = 1,
        n: int = 0,
    ) -> None:
        count, patterns = -(-length // max(size, 1)), heads if random else 1
        if (
            min(length, size) < 1
            or min(window, globals, random, last, extra) < 0
            or count**2 * patterns > MAX_BLOCKS**2
        ):
            got = f"blocks of {size} over {length} positions with window {window}, globals {globals} and {last}, random {random}"
            most = f"at most {math.isqrt(MAX_BLOCKS**2 // max(patterns, 1)):,} blocks"
            raise SaccadeError(
                f"{got}; size and length must be positive, the rest not negative, {most}",
                code="mask-sizes",
            )
        at = np.arange(count)
        ends = (at < globals) | (at >= count - last)
        known = (np.abs(at[:, None] - at[None]) <= window) | ends | ends[:, None]
        allowed = np.repeat(known[None], patterns, 0)
        for head in range(patterns if random else 0):
            generator = np.random.Generator(np.random.PCG64([seed, n, head]))
            for row in range(globals, count - last):
                allowed[head, row, generator.permutation(np.flatnonzero(~known[row]))[:random]] = (
                    True
                )
        if extra:
            allowed = np.pad(allowed, ((0, 0), (1, 0), (1, 0)), constant_values=True)
        # values: H|1, blocks, blocks
        self.values, self.size, self.extra = (torch.from_numpy(allowed), size, extra)

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        rows, columns = self.block(i), self.block(j)
        if len(self.values) == 1:
            return self.values[0][rows, columns]
        return self.values[h, rows, columns]

    def block(self, at: Tensor) -> Tensor:
        """The block of a position. The extra tokens form the first block."""
        return ((at - self.extra) // self.size + 1).clamp_min(0) if self.extra else at // self.size

    def needed(self, rows: Starts, columns: Starts, size: int) -> NDArray[np.bool_] | None:
        if type(self) is not Blocks:
            return None
        found = np.pad(self.values.cpu().numpy(), ((0, 0), (0, 1), (0, 1)))
        for starts in (rows, columns):
            # The first of the mask's own blocks and the one after the last.
            edges = self.block(
                torch.from_numpy(np.stack([starts, starts + size - 1], 1))
            ).numpy() + np.array([0, 1])
            found = np.logical_or.reduceat(found, edges.ravel().clip(max=self.values.shape[1]), 1)[
                :, ::2
            ].swapaxes(1, 2)
        return found[0] if len(found) == 1 else found

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        patterns, count, _ = self.values.shape
        covered = (count - 1 if self.extra else count) * self.size + self.extra
        if keys > covered:
            raise SaccadeError(
                f"the block mask covers {covered} positions, got {keys}; raise `length`",
                code="mask-too-short",
            )
        if patterns not in (1, heads):
            raise SaccadeError(
                f"the block mask draws blocks for {patterns} heads, got {heads}; build it with heads={heads}",
                code="mask-heads-differ",
            )


@table.add("top-blocks", paper="Lu et al. 2025 (MoBA)", example={"size": 2, "count": 1})
class TopBlocks(Mask):
    """Computed from q and k: a query sees, causally, its own block and the `count` earlier blocks whose mean key fits it best."""

    def __init__(self, size: Positive = 64, count: Natural = 3) -> None:
        self.size, self.count = size, count

    def given(self, query: Tensor, key: Tensor) -> Mask:
        """The mask of one call (B H Q K). Earlier blocks are complete, so a cached step selects what a full pass does."""
        size, keys, queries = self.size, key.shape[2], query.shape[2]
        whole, block = keys // size, torch.arange(keys, device=key.device) // size
        at = block[keys - queries :].unsqueeze(-1)
        allowed = (block == at).expand(*query.shape[:3], keys)
        if whole and self.count:
            means = key[:, :, : whole * size].unflatten(2, (whole, size)).mean(3)
            means = means.repeat_interleave(query.shape[1] // key.shape[1], 1)
            fit = (query @ means.transpose(-2, -1)).detach()  # B H Q blocks
            fit = fit.masked_fill(torch.arange(whole, device=key.device) >= at, float("-inf"))
            best = fit.topk(min(self.count, whole), -1)
            chosen = torch.zeros_like(fit, dtype=torch.bool).scatter(
                -1, best.indices, best.values.isfinite()
            )
            chosen = torch.nn.functional.pad(chosen, (0, -(-keys // size) - whole))
            allowed = allowed | chosen[..., block]
        return Matrix(allowed) & Causal()


@table.add("matrix", per_batch=True)
class Matrix(Mask):
    """Any 0/1 matrix, Q × K, H × Q × K or B × H × Q × K; 1 (True) = may attend. A graph's edges, a tree's arcs."""

    compares_positions = False

    def __init__(self, allowed: Tensor | Sequence[Sequence[int]]) -> None:
        values = as_tensor(allowed, "a mask")
        if values.dim() not in (2, 3, 4):
            raise SaccadeError(
                f"a mask must be Q × K, H × Q × K or B × H × Q × K, got shape {tuple(values.shape)}",
                code="mask-shape",
            )
        if values.is_floating_point() or values.is_complex():
            raise SaccadeError(
                "a mask must be booleans or 0/1 integers (1 = may attend), got floating-point numbers",
                code="mask-not-boolean",
            )
        self.shape = (1,) * (4 - values.dim()) + tuple(values.shape)  # B H Q K
        self.values = values.bool().view(
            [size for size in self.shape[:3] if size > 1] + [self.shape[3]]
        )

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        indices = (b, h, i - (self.shape[3] - self.shape[2]))
        return self.values[
            *(index for index, size in zip(indices, self.shape, strict=False) if size > 1), j
        ]

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        of, planes, rows, columns = self.shape
        if of not in (1, batch) or planes not in (1, heads):
            got = f"got batch {batch} and {heads} heads"
            raise SaccadeError(
                f"the mask is for batch {of} and {planes} heads, {got}; give 1 for all",
                code="mask-batch-differs",
            )
        # A square matrix over more positions than there are is read from its first position on.
        if (
            not (columns == keys and rows in (1, queries))
            and not rows == columns >= keys >= queries
        ):
            got = f"the mask is {rows} × {columns}, the scores are {queries} × {keys}"
            raise SaccadeError(
                f"{got}; give one row per query, one column per key", code="mask-shape"
            )


class Pair(Mask):
    """Two masks combined."""

    sign = ""

    def __init__(self, first: Mask, second: Mask) -> None:
        self.first, self.second = first, second
        self.compares_positions = first.compares_positions or second.compares_positions
        self.computed = first.computed or second.computed

    def given(self, query: Tensor, key: Tensor) -> Mask:
        first, second = self.first.given(query, key), self.second.given(query, key)
        return self if first is self.first and second is self.second else type(self)(first, second)

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        self.first.check(batch, heads, queries, keys)
        self.second.check(batch, heads, queries, keys)

    def __repr__(self) -> str:
        return f"({self.first!r} {self.sign} {self.second!r})"


class Both(Pair):
    """first & second."""

    sign = "&"

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return self.first(b, h, i, j) & self.second(b, h, i, j)

    def causal_and_keys(self) -> tuple[bool, Mask] | None:
        one, two = self.first.causal_and_keys(), self.second.causal_and_keys()
        if one is None or two is None or type(self) is not Both:
            return None
        return (one[0] or two[0], one[1] & two[1])

    def needed(self, rows: Starts, columns: Starts, size: int) -> NDArray[np.bool_] | None:
        one, two = self.first.needed(rows, columns, size), self.second.needed(rows, columns, size)
        both = two if one is None else one if two is None else one & two
        return both if type(self) is Both else None


class Either(Pair):
    """first | second."""

    sign = "|"

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return self.first(b, h, i, j) | self.second(b, h, i, j)

    def needed(self, rows: Starts, columns: Starts, size: int) -> NDArray[np.bool_] | None:
        one, two = self.first.needed(rows, columns, size), self.second.needed(rows, columns, size)
        return None if one is None or two is None or type(self) is not Either else one | two


class Not(Pair):
    """~mask: a query may attend to what the mask hides."""

    def __init__(self, mask: Mask, same: Mask | None = None) -> None:
        super().__init__(mask, mask)

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return ~check_booleans(self.first(b, h, i, j), self.first)

    def __repr__(self) -> str:
        return f"~{self.first!r}"


def mask_hint(given: object) -> str:
    """How to make a mask from what was given instead."""
    predicate = callable(given) and not isinstance(given, Tensor)
    return f"make one with saccade.masks, such as {'masks.where(function)' if predicate else 'masks.matrix(allowed) of 0/1 numbers'}"


def check_mask(given: object) -> Mask:
    if not isinstance(given, Mask):
        raise SaccadeError(
            f"a mask is combined with another mask, got {type(given).__name__}; {mask_hint(given)}",
            code="not-a-mask",
        )
    return given


def integers(values: Tensor | Sequence[Any], dims: int, what: str) -> Tensor:
    """`values` as a tensor of whole numbers with `dims` dimensions."""
    tensor = as_tensor(values, what)
    if tensor.dim() != dims or tensor.is_floating_point() or tensor.dtype == torch.bool:
        got = f"got shape {tuple(tensor.shape)} of {tensor.dtype}"
        raise SaccadeError(
            f"{what} must be whole numbers in {dims} dimension(s), {got}", code="not-whole-numbers"
        )
    return tensor


def as_tensor(values: Any, what: str) -> Tensor:
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        raise SaccadeError(
            f"{what} must be a tensor, or lists of equal lengths, got {type(values).__name__}",
            code="not-a-tensor",
        ) from None


# Lowercase aliases for use as functions: masks.causal() & masks.padding(lengths).
full, causal, window, padding, prefix, documents = Full, Causal, Window, Padding, Prefix, Documents
blocks, top_blocks, matrix, where = Blocks, TopBlocks, Matrix, Where
