"""Batches of similar lengths under a budget of tokens, sequences padded into one tensor, and dependency trees as distances."""

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import SaccadeError

Sizes = TypeVar("Sizes", int, NDArray[np.int64])
Rows = list[list[int]]  # one row per token: [number] or [number, *bytes]


class Plans:
    """Every index once, in batches with (longest source + longest target) × count ≤ budget; a function of (seed, epoch) alone."""

    # Ordered by length, equal ones at random, cut greedily, and shuffled: the cuts are made once, so every epoch has the same shapes.

    def __init__(self, lengths: Sequence[tuple[int, int]], budget: int, multiple: int = 1) -> None:
        self.sizes = rounded(np.asarray(lengths, dtype=np.int64).reshape(-1, 2), multiple)
        ordered = self.sizes[np.lexsort((self.sizes[:, 0], self.sizes[:, 1]))]
        self.cuts = [0]  # where batches begin, and the end
        source = target = 0
        for index, (source_length, target_length) in enumerate(ordered.tolist()):
            source, target = max(source, source_length), max(target, target_length)
            if index > self.cuts[-1] and (source + target) * (index + 1 - self.cuts[-1]) > budget:
                self.cuts.append(index)
                source, target = source_length, target_length
        self.cuts += [len(ordered)] if len(ordered) else []

    def __call__(self, seed: int, epoch: int) -> list[list[int]]:
        # numpy promises the raw numbers of a bit generator for all versions, but not what a Generator makes of them
        chance = np.random.PCG64([seed, epoch])
        order = np.lexsort(
            (chance.random_raw(len(self.sizes)), self.sizes[:, 0], self.sizes[:, 1])
        ).tolist()
        batches = [order[start:end] for start, end in pairwise(self.cuts)]
        return [batches[k] for k in np.argsort(chance.random_raw(len(batches)), kind="stable")]


def padding_share(
    lengths: Sequence[tuple[int, int]], batches: Sequence[Sequence[int]], multiple: int = 1
) -> float:
    """Which part of the padded source and target rectangles is padding, 0 to 1."""
    sizes = np.asarray(lengths, dtype=np.int64).reshape(-1, 2)
    rows = [sizes[np.asarray(batch)] for batch in batches]
    padded = sum(len(row) * int(rounded(row.max(axis=0), multiple).sum()) for row in rows)
    return 1.0 - sum(int(row.sum()) for row in rows) / padded if padded else 0.0


def rounded(sizes: Sizes, multiple: int) -> Sizes:
    """Sizes up to the next multiple."""
    return -(-sizes // multiple) * multiple


def pad(
    sequences: Sequence[Sequence[int]], value: int = 0, multiple: int = 1
) -> tuple[Tensor, Tensor]:
    """Sequences as one B × N tensor filled up with `value`, N a multiple, and their B lengths."""
    lengths = np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences))
    rows = np.full(
        (len(sequences), rounded(int(lengths.max(initial=0)), multiple)), value, dtype=np.int64
    )
    tokens = np.fromiter(chain.from_iterable(sequences), dtype=np.int64, count=int(lengths.sum()))
    rows[np.arange(rows.shape[1]) < lengths[:, None]] = tokens
    return torch.from_numpy(rows), torch.from_numpy(lengths)


def pad_tensors(
    tensors: Sequence[Tensor], value: float = 0, multiple: int = 1, free: int = 1
) -> Tensor:
    """Tensors as one, B …, filled up with `value` along their first `free` dimensions, whose sizes become multiples."""
    sizes = [max(one.shape[d] for one in tensors) for d in range(tensors[0].dim())]
    sizes = [rounded(size, multiple) if d < free else size for d, size in enumerate(sizes)]
    found = tensors[0].new_full((len(tensors), *sizes), value)
    for row, one in zip(found, tensors, strict=True):
        row[tuple(map(slice, one.shape))] = one
    return found


def pad_rows(texts: Sequence[Rows], value: int, multiple: int = 1) -> tuple[Tensor, Tensor]:
    """Texts as one tensor, B N, or B N (1 + bytes) where rows have bytes, N and bytes multiples; and their B lengths."""
    numbers, lengths = pad([[row[0] for row in rows] for rows in texts], value, multiple)
    width = rounded(max((len(row) for rows in texts for row in rows), default=1) - 1, multiple)
    if not width:
        return numbers, lengths
    found = np.zeros((*numbers.shape, width), dtype=np.int64)
    for n, rows in enumerate(texts):
        for at, (_, *letters) in enumerate(rows):
            found[n, at, : len(letters)] = letters
    return torch.cat((numbers.unsqueeze(-1), torch.from_numpy(found)), -1), lengths


def on(device: torch.device, *tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors on a device; the copy to a GPU is not waited for."""
    if device.type == "cuda":
        tensors = tuple(tensor.pin_memory() for tensor in tensors)
    return tuple(tensor.to(device, non_blocking=True) for tensor in tensors)


def tree_distances(
    heads: Sequence[Sequence[int]], length: int | None = None, signed: bool = False
) -> Tensor:
    """Steps between words along dependency trees (Wang et al. 2019): B × N × N, 0 for padding; `heads[b][n]` is -1 for the root.

    `signed`: above 0 from a word to those above it in the tree, below 0 to those below it; between words of different branches
    above 0 to the left, below 0 to the right.
    """
    size = max(map(len, heads), default=0) if length is None else length
    steps = np.zeros((len(heads), size, size), dtype=np.int64)
    for b, row in enumerate(heads):
        above = ancestors(row, f"sentence {b}: ")
        shared, count = above.astype(np.int64) @ above.T, len(row)
        # of each word, the root's being 1; `shared` is the depth of the nearest common ancestor
        depth = np.diagonal(shared)
        steps[b, :count, :count] = depth[:, None] + depth - 2 * shared
        if signed:
            order = np.sign(np.arange(count)[:, None] - np.arange(count))
            steps[b, :count, :count] *= np.where(above, 1, np.where(above.T, -1, order))
    return torch.from_numpy(steps)


def tree_depths(heads: Sequence[Sequence[int]], length: int | None = None) -> Tensor:
    """Steps from each word up to the root of its dependency tree: B × N, 0 for the root and for padding."""
    size = max(map(len, heads), default=0) if length is None else length
    depths = np.zeros((len(heads), size), dtype=np.int64)
    for b, row in enumerate(heads):
        depths[b, : len(row)] = ancestors(row, f"sentence {b}: ").sum(1) - 1
    return torch.from_numpy(depths)


def ancestors(heads: Sequence[int], where: str = "") -> NDArray[np.bool_]:
    """N × N: whether the way from a word (row) up to the root passes a word (column); each passes itself."""
    count = len(heads)
    for n, head in enumerate(heads):
        if not -1 <= head < count:
            raise SaccadeError(
                f"{where}word {n} has head {head}; heads are words of the sentence, -1 for the root",
                code="wrong-tree",
            )
    # from the root one comes to -1, the last, and stays
    up, roots = (np.array([*heads, -1], dtype=np.int64), list(heads).count(-1))
    here, found = np.arange(count), np.zeros((count, count + 1), dtype=bool)
    for _ in range(count):
        found[np.arange(count), here] = True
        here = up[here]
        if (here == -1).all():
            break
    wrong = (
        f"{roots or 'no'} words are roots"
        if roots != 1
        else "there is a cycle"
        if (here != -1).any()
        else ""
    )
    if count and wrong:
        rule = "the heads do not form a tree; all words must lead to one root, without a cycle"
        raise SaccadeError(f"{where}{rule}, and here {wrong}", code="wrong-tree")
    return found[:, :count]
