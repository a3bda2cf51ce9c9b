"""Attention between thousands of words. Neighbors are pooled and each word keeps its strongest keys, so that documents stay small."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from .document import Long, Site

MAX_WEIGHTS = 2**23  # weights of a document in which every word has its own row and column
# of a document in which they are pooled; groups of each side of a site
MAX_POOLED_WEIGHTS, MAX_GROUPS, MIN_GROUPS = (2**21, 256, 16)
MAX_STRONGEST = 5  # words that are kept of each row
CHUNK_WEIGHTS = 2**22  # weights that are computed at a time


class Found(NamedTuple):
    """An attention whose weights are computed on demand, for some rows or for all: heads × rows × columns."""

    name: str
    rows: list[str]
    columns: list[str]
    heads: int
    weights: Callable[[Sequence[int] | None], Tensor]

    @property
    def numbers(self) -> int:
        return self.heads * len(self.rows) * len(self.columns)


def make_sites(found: Sequence[Found], whole: bool = False) -> list[Site]:
    """The sites of a document. They are pooled if they have too many weights in all, unless `whole` is set."""
    if whole or sum(one.numbers for one in found) <= MAX_WEIGHTS:
        return [Site(one.name, one.rows, one.columns, one.weights(None)) for one in found]
    groups = math.isqrt(MAX_POOLED_WEIGHTS // sum(one.heads for one in found))
    return [pooled(one, max(MIN_GROUPS, min(groups, MAX_GROUPS))) for one in found]


def pooled(found: Found, groups: int) -> Site:
    """A site with at most `groups` groups of neighbors on each side. Weights are summed over a group of keys and averaged over a
    group of queries, so that a row keeps its sum."""
    count, width = len(found.rows), len(found.columns)
    size, across = -(-count // groups), -(-width // groups)
    if size == across == 1:
        return Site(found.name, found.rows, found.columns, found.weights(None))
    # made beforehand: what is kept must not lie between the parts that are freed, or the memory is never used again
    tiles = torch.empty(found.heads, -(-count // size), -(-width // across))
    most = min(MAX_STRONGEST, width)
    values, at = torch.empty(count, most), torch.empty(count, most, dtype=torch.long)
    step = size * max(1, CHUNK_WEIGHTS // (found.heads * width * size))
    for start in range(0, count, step):
        end = min(start + step, count)
        part = found.weights(range(start, end)).float().cpu()
        torch.topk(part.mean(0), most, out=(values[start:end], at[start:end]))
        summed = pad(part, (0, -width % across)).unflatten(-1, (-1, across)).sum(-1)
        for n, group in enumerate(summed.split(size, 1), start // size):
            torch.mean(group, 1, out=tiles[:, n])
    each = zip(at.tolist(), values.tolist(), strict=True)
    strongest = [list(zip(*both, strict=True)) for both in each]
    names = group_names(found.rows, size), group_names(found.columns, across)
    long = Long(found.rows, found.columns, (size, across), strongest)
    return Site(found.name, *names, tiles, long=long)


def group_names(words: list[str], size: int) -> list[str]:
    """The first and the last word of each group of neighbors, and their numbers, counted from 1."""
    ends = ((start, min(start + size, len(words)) - 1) for start in range(0, len(words), size))
    return [words[a] if size == 1 else f"{a + 1}–{b + 1}: {words[a]} … {words[b]}" for a, b in ends]
