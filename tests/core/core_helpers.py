"""What several tests of the core share: tensors, members of tables built from facts, trees, a kernel without its compiler."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import torch
from torch import Tensor

from saccade.core import Mechanism, Positions, masks, normalizers, positions, scores
from saccade.core.backends import table as backends
from saccade.core.window_masks import ShiftedWindows
from saccade.registry import Table
from saccade.settings import Choice

BATCH, HEADS, N, WIDTH = 2, 2, 6, 4
BACKENDS = backends.names()


def member(table: Table[Any], name: str, **facts: Any) -> Any:
    """A member of a table, built from facts and the options that its entry gives for tests."""
    entry = table.entry(name)
    return Choice(entry.make, entry.example)(**facts)


def mechanism(
    score: str = "scaled-dot", normalize: str = "softmax", position: str = "none", mask: Any = None
) -> Mechanism:
    """Parts by their names, for heads WIDTH wide, with parameters that differ from head to head; as they are used, not trained."""
    facts = {"dim_q": WIDTH, "dim_k": WIDTH, "dim": WIDTH, "heads": HEADS}
    parts = ((scores, score), (normalizers, normalize), (positions, position))
    built = [member(slot.table, name, **facts) for slot, name in parts]
    made = Mechanism(built[0], built[1], mask, built[2])
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.7)
    return made.eval()


def tensors(
    queries: int = N,
    keys: int = N,
    heads: int = HEADS,
    width: int = WIDTH,
    batch: int = BATCH,
    kv_heads: int | None = None,
    **options: Any,
) -> list[Tensor]:
    """q, k and v."""
    shared = heads if kv_heads is None else kv_heads
    return [
        torch.randn(batch, h, n, width, **options)
        for h, n in ((heads, queries), (shared, keys), (shared, keys))
    ]


def mask_examples(n: int = N) -> dict[str, masks.Mask]:
    """One of each kind of mask for a batch of two and two heads of n positions, by their names in the table."""
    made = {
        entry.name: Choice(entry.make, entry.example)()
        for entry in masks.table
        if not entry.per_batch
    }
    ids = torch.stack([torch.arange(n) // 3, (torch.arange(n) + 5) // 4])
    per_batch = {
        "padding": [n - 2, n],
        "prefix": [2, 3],
        "documents": ids,
        "matrix": torch.rand(BATCH, HEADS, n, n) < 0.5,
    }
    # each of the two rows of the batch is a column of a grid
    windows = ShiftedWindows((n, 2), (n, 1), (n // 2, 0))
    return {
        **made,
        **{name: masks.table[name](value) for name, value in per_batch.items()},
        "shifted-windows": windows,
    }


def random_tree(size: int, seed: int) -> list[int]:
    """Heads of a random dependency tree over words in random order; −1 is the root's."""
    generator = random.Random(seed)
    order = generator.sample(range(size), size)
    heads = [-1] * size
    for n in range(1, size):
        heads[order[n]] = order[generator.randrange(n)]
    return heads


def steps_from(word: int, heads: list[int]) -> list[int]:
    """Breadth-first search over the tree's edges in both directions."""
    neighbors = [
        {n for n, head in enumerate(heads) if head == w} | ({heads[w]} - {-1})
        for w in range(len(heads))
    ]
    steps, queue = {word: 0}, deque([word])
    while queue:
        here = queue.popleft()
        for near in neighbors[here] - set(steps):
            steps[near] = steps[here] + 1
            queue.append(near)
    return [steps[w] for w in range(len(heads))]


def steps_between(*trees: list[int]) -> Tensor:
    """Distances between the words of trees of equal sizes: B N N."""
    return torch.tensor(
        [[steps_from(word, heads) for word in range(len(heads))] for heads in trees]
    )


TREE = steps_between([-1, 0, 0, 1, 3, 3], [1, 2, -1, 2, 3, 4])


def line(queries: int = N, keys: int = N) -> Positions:
    """Positions in a line and a tree over the keys, for positions of every kind."""
    return Positions.line(queries, keys, relation=TREE[:, keys - queries : keys, :keys])
