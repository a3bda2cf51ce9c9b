"""Distances along dependency trees: the shortest paths, in any order of the words, and what is not a tree."""

from __future__ import annotations

import random
from collections import deque
from itertools import product
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support import raises

from saccade.data.batches import tree_depths, tree_distances
from saccade.data.corpora import sentences


def random_tree(size: int, seed: int) -> list[int]:
    """Heads of a random dependency tree over words in random order."""
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


@given(sizes=st.lists(st.integers(1, 12), min_size=1, max_size=3), seed=st.integers(0, 10**6))
def test_tree_distances_are_the_shortest_paths(sizes: list[int], seed: int) -> None:
    trees = [random_tree(size, seed + n) for n, size in enumerate(sizes)]
    found = tree_distances(trees)
    assert found.shape == (len(trees), max(sizes), max(sizes))
    for b, heads in enumerate(trees):
        size = len(heads)
        assert found[b, :size, :size].tolist() == [steps_from(word, heads) for word in range(size)]
        assert (found[b, size:] == 0).all()
        assert (found[b, :, size:] == 0).all()
    signed, depths = tree_distances(trees, signed=True), tree_depths(trees)
    assert torch.equal(signed.abs(), found)
    for b, heads in enumerate(trees):
        root = heads.index(-1)
        assert depths[b].tolist() == [
            *found[b, root, : len(heads)].tolist(),
            *[0] * (max(sizes) - len(heads)),
        ]
        for i, j in product(range(len(heads)), repeat=2):
            way = 1 if j in up(i, heads) else -1 if i in up(j, heads) else 1 if i > j else -1
            assert signed[b, i, j] == way * found[b, i, j], (
                "up the tree, down the tree, to the left, to the right"
            )


def up(word: int, heads: list[int]) -> list[int]:
    """The words above one, the nearest first."""
    return [] if heads[word] == -1 else [heads[word], *up(heads[word], heads)]


def test_lengths_and_the_empty_batch() -> None:
    found = tree_distances([[1, -1], [-1]], length=4)
    assert found.shape == (2, 4, 4)
    assert found.dtype == torch.long
    assert found.nonzero().tolist() == [[0, 0, 1], [0, 1, 0]]
    assert tree_distances([]).shape == (0, 0, 0)
    assert tree_distances([[]], length=2).tolist() == [[[0, 0], [0, 0]]]
    assert tree_depths([[1, -1], [-1]], length=4).tolist() == [[1, 0, 0, 0], [0, 0, 0, 0]]
    assert tree_depths([]).shape == (0, 0)


def test_the_heads_of_a_file_give_distances(tmp_path: Path) -> None:
    rows = (
        "1-2\tal\t_\t_\t_\t_\t_",
        "1\ta\t_\tADP\t_\t_\t3",
        "2\tel\t_\tDET\t_\t_\t3",
        "3\tmar\t_\tNOUN\t_\t_\t0",
    )
    (tmp_path / "a.conllu").write_text(
        "".join(f"{row}\t_\t_\t_\n" for row in rows), encoding="utf-8"
    )
    (sentence,) = sentences(tmp_path / "a.conllu")
    assert sentence.heads == (2, 2, -1)
    assert tree_distances([sentence.heads]).tolist() == [[[0, 2, 1], [2, 0, 1], [1, 1, 0]]]


@pytest.mark.parametrize(
    ("heads", "sentence"),
    [
        (
            [[-1, 0], [1, 0]],
            "sentence 1: the heads do not form a tree; all words must lead to one root, without a cycle, and here no words are roots",
        ),
        ([[0]], "sentence 0: the heads do not form a tree.* here no words are roots"),
        ([[-1, 1]], "sentence 0: the heads do not form a tree.* here there is a cycle"),
        ([[-1, 2, 3, 2]], "sentence 0: the heads do not form a tree.* here there is a cycle"),
        (
            [[-1, 5]],
            "sentence 0: word 1 has head 5; heads are words of the sentence, -1 for the root",
        ),
        ([[-1, -2]], "sentence 0: word 1 has head -2"),
        ([[-1], [-1, 0, -1]], "sentence 1: the heads do not form a tree.* here 2 words are roots"),
    ],
)
def test_what_is_not_a_tree_is_named(heads: list[list[int]], sentence: str) -> None:
    for make in (tree_distances, tree_depths):
        with raises("wrong-tree", match=sentence):
            make(heads)
