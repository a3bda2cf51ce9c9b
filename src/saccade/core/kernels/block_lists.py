"""Any mask as lists of blocks of SIZE × SIZE: for each block of queries the blocks of keys that it sees partly, and those it sees whole;
and the same the other way round. What is hidden in a block seen partly is kept as one bit per pair, 64 pairs to a number."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..masks import Mask, any_head, check_booleans

WORD_BITS = 64  # bits of a number
MAX_CHUNK_PAIRS = 2**23  # pairs of a mask that are looked at together
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
    here, offset = mask.to(device), keys - queries
    zero = torch.zeros(1, dtype=torch.int64, device=device)
    # shows whether the batch row and the head matter
    rows, planes = mask.answer(batch, heads, zero + offset, zero).shape[:2]
    first, start = np.arange(offset, keys, WORD_BITS), np.arange(0, keys, WORD_BITS)
    known = mask.needed(first, start, WORD_BITS)
    which = np.ones((len(first), len(start)), dtype=bool) if known is None else any_head(known)
    b = torch.arange(rows, device=device).view(-1, 1, 1, 1, 1)
    h = torch.arange(planes, device=device).view(-1, 1, 1, 1)
    inside = torch.arange(WORD_BITS, device=device)
    tiles = torch.full((rows, planes, *which.shape), UNSEEN, dtype=torch.int32, device=device)
    words, count = [], 0
    for r, c in (
        part.unbind(1)
        for part in torch.from_numpy(which).nonzero().to(device).split(chunk(rows * planes))
    ):
        i = r.view(-1, 1, 1) * WORD_BITS + inside.view(-1, 1)
        j = c.view(-1, 1, 1) * WORD_BITS + inside
        answer = check_booleans(
            here(b, h, i.clamp_max(queries - 1) + offset, j.clamp_max(keys - 1)), mask
        )
        allowed = (answer & (i < queries) & (j < keys)).expand(
            rows, planes, len(r), WORD_BITS, WORD_BITS
        )
        some, every = allowed.flatten(3).any(3), allowed.flatten(3).all(3)
        found = torch.where(every, WHOLE, UNSEEN).to(torch.int32)
        at = some & ~every
        packed = (allowed[at].long() << inside).sum(-1)
        found[at] = torch.arange(count, count + len(packed), dtype=torch.int32, device=device)
        tiles[:, :, r, c] = found
        words.append(packed)
        count += len(packed)
    bits = torch.cat([*words, torch.zeros(1, WORD_BITS, dtype=torch.int64, device=device)])
    (by_row, wide), (by_column, high) = list_tiles(tiles), list_tiles(tiles.transpose(2, 3))
    return Plan(by_row, by_column, bits, (wide, high))


def chunk(planes: int) -> int:
    return max(1, MAX_CHUNK_PAIRS // (planes * WORD_BITS**2))


def list_tiles(tiles: Tensor) -> tuple[Tensor, int]:
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
