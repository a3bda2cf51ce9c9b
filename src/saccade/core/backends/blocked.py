"""Block-sparse masks in pure PyTorch. R blocks of queries, C blocks of keys, S positions each.

Each block of queries attends to the gathered blocks of keys that its mask may allow. Time and memory are linear in the length, forward
and backward.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ..mask_cache import cached_for_mask
from ..masks import Mask, Prepared, any_head, check_booleans
from ..positions import Positions
from ..scores import Additive
from ..tracing import can_sync
from .call import Backend, Call, is_unmodified, table
from .eager import definition
from .flex import GPU_MIN_LENGTH
from .sdpa import backend as sdpa

# Block sizes for long sequences.
BLOCK_SIZES = (32, 64, 128)
# Above this number of blocks only the largest size is tried, since planning is quadratic.
MAX_COMPARED_BLOCKS = 512
# Shorter calls are faster on SDPA with a dense mask.
CPU_MIN_LENGTH = 512
RANK = 15
# Cost of gathering one key, in scores, measured on a CPU.
GATHER_COST = 128


class Layout(NamedTuple):
    """Block size, and which blocks (H|1 R C) may contain an allowed pair."""

    size: int
    needed: NDArray[np.bool_]

    @property
    def cost(self) -> float:
        """Cost per head, in scores."""
        return float(self.needed.sum(2).max(0).sum()) * self.size * (self.size + GATHER_COST)


class Blocked(Backend):
    """Masks whose blocks are known beforehand (windows, Big Bird), with the scores, normalizers and positions of the tables."""

    def refuses(self, call: Call) -> str | None:
        score, normalize, position = call.score, call.normalize, call.position
        if not score.dot and not (type(score) is Additive and is_plain(score)):
            return "the score's own comparison may look at all keys at once"
        if not is_plain(normalize) or not is_unmodified(normalize, type(normalize)):
            return "the normalizer's own rows may look at all keys at once"
        if (
            call.positions is not None
            and (position.biases or position.adds_values)
            and not is_plain(position)
        ):
            return "the position's own bias may look at all keys at once"
        if call.positions is not None and (
            position.needs_relation or call.positions.relation is not None
        ):
            return "it does not gather a relation of pairs"
        if not can_sync():
            return "its blocks cannot be planned while a pass is compiled or captured"
        if call.mask.mask.causal_and_keys() is not None:
            return f"{call.mask!r} is no more than causal and padding, of which it would save half at most"
        if layout(call) is None:
            return f"{call.mask!r} hides no blocks of keys that are known beforehand"
        return None

    def rank(self, call: Call) -> int:
        return RANK if pays_off(call) else 120

    def run(self, call: Call) -> Tensor:
        (batch, _, queries, keys), found = call.sizes, layout(call)
        assert found is not None, "a mask whose blocks are unknown is refused"
        (_, rows, columns), size, at = found.needed.shape, found.size, needed_positions(call)
        make = lambda: make_plan(call.mask.mask, call.sizes, found, call.q.device)
        plan = call.mask.once(("plan", at is None), make)
        front = (keys - queries) % size  # blocks of queries begin where blocks of keys do
        query = cut_blocks(call.query, front, rows, size)
        q = query if call.q is call.query else cut_blocks(call.q, front, rows, size)
        key = cut_blocks(call.key, 0, columns, size)
        value = cut_blocks(call.value, 0, columns, size)
        outputs = list[Tensor]()
        for group in plan:
            projected = group.pick(query)
            inner = replace(
                call,
                q=projected if q is query else group.pick(q),
                query=projected,
                key=group.gather(key),
                value=group.gather(value),
                mask=group.mask,
                positions=None if at is None else group.positions(at, front, batch, size),
            )
            runs = sdpa if sdpa.refuses(inner) is None else definition
            outputs.append(runs.run(inner).unflatten(0, (batch, -1)))
        output = outputs[0]
        if len(plan) > 1:
            output = torch.cat(outputs, 1).index_select(
                1, torch.cat([group.rows for group in plan]).argsort()
            )
        return output.transpose(1, 2).flatten(2, 3)[:, :, front : front + queries]


def cut_blocks(x: Tensor, front: int, count: int, size: int) -> Tensor:
    """B H N D → B H R S D, with zeros in front and behind."""
    behind = count * size - front - x.shape[2]
    padded = F.pad(x, (0, 0, front, behind)) if front or behind else x
    return padded.view(*x.shape[:2], count, size, x.shape[-1])


def is_plain(part: torch.nn.Module) -> bool:
    """Whether a part is a built-in class without methods replaced on the instance."""
    package = __name__.removesuffix("backends.blocked")
    return type(part).__module__.startswith(package) and not any(map(callable, vars(part).values()))


def needed_positions(call: Call) -> Positions | None:
    """The positions, if a bias or an output depends on them. All heads then gather the same keys."""
    return call.positions if call.position.biases or call.position.adds_values else None


def layout(call: Call) -> Layout | None:
    """The cheapest block layout of a mask, or None if its blocks are unknown."""
    (_, _, queries, keys), mask, apart = call.sizes, call.mask.mask, needed_positions(call) is None
    make = lambda: find_layout(mask, queries, keys, apart)
    return call.mask.once(
        ("layout", apart), lambda: cached_for_mask(mask, "layout", (queries, keys, apart), make)
    )


def find_layout(mask: Mask, queries: int, keys: int, apart: bool) -> Layout | None:
    found: list[Layout] = []
    long = keys >= 4 * BLOCK_SIZES[0]
    for size in (
        [
            size
            for size in BLOCK_SIZES
            if keys <= MAX_COMPARED_BLOCKS * size or size == BLOCK_SIZES[-1]
        ]
        if long
        else [max(1, keys // 4)]
    ):
        starts = np.arange(0, keys, size)
        needed = mask.needed(starts[(keys - queries) // size :], starts, size)
        if needed is None:
            return None
        found.append(
            Layout(
                size, needed.reshape(-1, *needed.shape[-2:]) if apart else any_head(needed)[None]
            )
        )
    return min(found, key=lambda one: one.cost)


def pays_off(call: Call) -> bool:
    """Whether the mask hides enough for gathering to pay off."""
    _, _, queries, keys = call.sizes
    short = CPU_MIN_LENGTH if call.q.device.type == "cpu" else GPU_MIN_LENGTH
    if (
        not can_sync()
        or call.mask.mask.causal_and_keys() is not None
        or queries * keys < short * short
    ):
        # The order matters: a pass exported for any length must not compare it.
        return False
    found = layout(call)
    # A dense mask makes a score more expensive.
    return found is not None and found.cost < 1.5 * queries * keys


@dataclass(frozen=True, eq=False)
class Group:
    """Blocks of queries with up to W blocks of keys each, run as one batch (B R) H S D."""

    rows: Tensor  # R, blocks of queries
    columns: Tensor  # R H|1 W, blocks of keys
    mask: Prepared  # (B R) H|1 S (W S)

    def pick(self, x: Tensor) -> Tensor:
        """Queries, B H R S D → (B R) H S D"""
        chosen = x if len(self.rows) == x.shape[2] else x.index_select(2, self.rows)
        return chosen.transpose(1, 2).flatten(0, 1)

    def gather(self, x: Tensor) -> Tensor:
        """Keys or values, B H' C S D → (B R) H (W S) D in one copy. H = H' if heads share the blocks."""
        _, given, columns, _, width = x.shape
        rows, heads = len(self.rows), max(given, self.columns.shape[1])
        head = torch.arange(heads, device=x.device) // (heads // given)
        index = head.view(-1, 1) * columns + self.columns  # R H W
        return (
            x.flatten(1, 2).index_select(1, index.flatten()).view(len(x) * rows, heads, -1, width)
        )

    def positions(self, given: Positions, front: int, batch: int, size: int) -> Positions:
        """Positions of the gathered queries, (B R) S, and keys, (B R) (W S)."""
        return given.once(
            (id(self), batch), lambda: (self, self._positions(given, front, batch, size))
        )[1]

    def _positions(self, given: Positions, front: int, batch: int, size: int) -> Positions:
        inside = torch.arange(size, device=self.rows.device)
        i = (self.rows.unsqueeze(-1) * size + inside - front).clamp(0, given.i.shape[-1] - 1)
        j = (
            (self.columns[:, 0].unsqueeze(-1) * size + inside)
            .flatten(1)
            .clamp_max(given.j.shape[-1] - 1)
        )
        every = [
            x[..., at].expand(batch, *at.shape).flatten(0, 1)
            for x, at in ((given.i, i), (given.j, j))
        ]
        return Positions(every[0], every[1])


def make_plan(
    mask: Mask, sizes: tuple[int, int, int, int], found: Layout, device: torch.device
) -> list[Group]:
    """Groups blocks of queries by the number of key blocks. Within a group it differs by at most a factor of two."""
    mask.check(*sizes)
    counts, groups = found.needed.sum(2).max(0).clip(min=1), []
    while counts.any():
        width = counts.max()
        rows = np.flatnonzero(2 * counts >= width)
        counts[rows] = 0
        needed = found.needed[:, rows].swapaxes(0, 1)
        columns = np.argsort(~needed, 2, kind="stable")[..., :width]
        there = np.take_along_axis(needed, columns, 2)
        groups.append(
            make_group(
                mask,
                sizes,
                found.size,
                *(torch.from_numpy(x).to(device) for x in (rows, columns, there)),
            )
        )
    return groups


def make_group(
    mask: Mask,
    sizes: tuple[int, int, int, int],
    size: int,
    rows: Tensor,
    columns: Tensor,
    there: Tensor,
) -> Group:
    batch, heads, queries, keys = sizes
    inside = torch.arange(size, device=rows.device)
    zero = torch.zeros(1, dtype=torch.int64, device=rows.device)
    # The shape of one answer tells whether batch rows and heads differ.
    different, planes = mask.answer(batch, heads, zero + keys - queries, zero).shape[:2]
    i = (rows + (keys - queries) // size).view(-1, 1, 1, 1) * size + inside.unsqueeze(-1)  # R 1 S 1
    j = (columns.unsqueeze(-1) * size + inside).flatten(2).unsqueeze(2)  # R H|1 1 (W S)
    real = (j < keys) & there.repeat_interleave(size, 2).unsqueeze(2)
    b = torch.arange(different, device=rows.device).repeat_interleave(len(rows)).view(-1, 1, 1, 1)
    h = torch.arange(planes, device=rows.device).view(-1, 1, 1)
    # Blocks may begin before the first query and end after the last key.
    at = (
        x.clamp(first, keys - 1).repeat(different, 1, 1, 1)
        for x, first in ((i, keys - queries), (j, 0))
    )
    allowed = (
        check_booleans(mask.to(rows.device)(b, h, *at), mask).unflatten(0, (-1, len(rows))) & real
    )
    allowed = allowed.expand(batch, -1, max(planes, columns.shape[1]), size, -1).flatten(0, 1)
    made = Prepared(mask, (len(allowed), heads, size, j.shape[-1]), rows.device)
    made.kept["allowed"] = allowed
    return Group(rows, columns, made)


table.add("blocked")(Blocked())
