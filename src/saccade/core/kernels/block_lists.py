"""Any mask as lists of blocks of SIZE × SIZE: for each block of queries the blocks of keys that it sees partly, and those it sees whole;
and the same the other way round. What is hidden in a block seen partly is kept as one bit per pair, 64 pairs to a number."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..masks import Mask, booleans, of_any_head

SIZE = 64  # bits of a number
AT_ONCE = 2**23  # pairs of a mask that are looked at together
UNSEEN, WHOLE = -2, -1


class Plan(NamedTuple):
    """`rows`, B|1 H|1 R N: how many blocks are seen partly and whole, the former, the numbers of their tiles, the latter; `columns` the
    same for blocks of keys; `bits`: the tiles, a number per query. `partly`: how many of the former rows and columns can hold."""

    rows: Tensor
    columns: Tensor
    bits: Tensor
    partly: tuple[int, int]


def make_plan(mask: Mask, sizes: tuple[int, int, int, int], device: torch.device) -> Plan:
    """Asks the mask about the blocks that it says it needs, or about all of them where it says nothing."""
    batch, heads, queries, keys = sizes
    mask.check(*sizes)
    here, offset, zero = (
        mask.to(device),
        keys - queries,
        torch.zeros(1, dtype=torch.int64, device=device),
    )
    # shows whether the batch row and the head matter
    rows, planes = mask.answer(batch, heads, zero + offset, zero).shape[:2]
    first, start = np.arange(offset, keys, SIZE), np.arange(0, keys, SIZE)
    known = mask.needed(first, start, SIZE)
    which = np.ones((len(first), len(start)), dtype=bool) if known is None else of_any_head(known)
    b = torch.arange(rows, device=device).view(-1, 1, 1, 1, 1)
    h, inside = (
        torch.arange(planes, device=device).view(-1, 1, 1, 1),
        torch.arange(SIZE, device=device),
    )
    tiles = torch.full((rows, planes, *which.shape), UNSEEN, dtype=torch.int32, device=device)
    words, count = [], 0
    for r, c in (
        part.unbind(1)
        for part in torch.from_numpy(which).nonzero().to(device).split(chunk(rows * planes))
    ):
        i, j = r.view(-1, 1, 1) * SIZE + inside.view(-1, 1), c.view(-1, 1, 1) * SIZE + inside
        answer = booleans(
            here(b, h, i.clamp_max(queries - 1) + offset, j.clamp_max(keys - 1)), mask
        )
        allowed = (answer & (i < queries) & (j < keys)).expand(rows, planes, len(r), SIZE, SIZE)
        some, every = allowed.flatten(3).any(3), allowed.flatten(3).all(3)
        found = torch.where(every, WHOLE, UNSEEN).to(torch.int32)
        at = some & ~every
        packed = (allowed[at].long() << inside).sum(-1)
        found[at] = torch.arange(count, count + len(packed), dtype=torch.int32, device=device)
        tiles[:, :, r, c] = found
        words.append(packed)
        count += len(packed)
    bits = torch.cat([*words, torch.zeros(1, SIZE, dtype=torch.int64, device=device)])
    (by_row, wide), (by_column, high) = listed(tiles), listed(tiles.transpose(2, 3))
    return Plan(by_row, by_column, bits, (wide, high))


def chunk(planes: int) -> int:
    return max(1, AT_ONCE // (planes * SIZE**2))


def listed(tiles: Tensor) -> tuple[Tensor, int]:
    """Of each row of blocks: counts of those seen partly and whole, the former, their tiles, the latter."""
    counts, orders = [], []
    for some in (tiles >= 0, tiles == WHOLE):
        count = some.sum(-1, keepdim=True)
        order = torch.argsort((~some).int(), dim=-1, stable=True)[..., : int(count.max())]
        counts.append(count)
        orders.append(order)
    partly, whole = orders
    found = torch.cat([*counts, partly, tiles.gather(-1, partly), whole], -1).int().contiguous()
    return found, partly.shape[-1]
