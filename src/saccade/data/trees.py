"""Dependency trees as distances between words."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..errors import SaccadeError


def tree_distances(heads: Sequence[Sequence[int]], length: int | None = None) -> Tensor:
    """Steps between words along dependency trees (Wang et al. 2019): B × N × N, 0 for padding; `heads[b][n]` is -1 for the root."""
    size = max(map(len, heads), default=0) if length is None else length
    steps = np.zeros((len(heads), size, size), dtype=np.int64)
    for b, row in enumerate(heads):
        count = len(row)
        near = np.where(np.eye(count, dtype=bool), 0, count)  # `count` steps: further than any path
        for n, head in enumerate(row):
            if not -1 <= head < count:
                raise SaccadeError(f"sentence {b}: word {n} has head {head}; heads are words of the sentence, -1 for the root")
            if head not in (-1, n):
                near[n, head] = near[head, n] = 1
        for k in range(count):  # Floyd and Warshall: shortest paths by way of the first k words
            near = np.minimum(near, near[:, k, None] + near[k])
        if count and (list(row).count(-1) != 1 or near.max() == count):
            raise SaccadeError(f"sentence {b}: the heads do not form a tree; all words must lead to one root, without a cycle")
        steps[b, :count, :count] = near
    return torch.from_numpy(steps)
