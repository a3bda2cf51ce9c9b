"""Dice for generated corpora: the same throws for the same seed on every machine and every Python."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

from ..errors import SaccadeError

Item = TypeVar("Item")


class Dice:
    """Draws from a seed; only `Random.random` is used, whose stream every Python version keeps."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed).random

    def pick(self, items: Sequence[Item]) -> Item:
        return items[int(self.random() * len(items))]

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def between(self, low: int, high: int) -> int:
        return low + int(self.random() * (high - low + 1))


def checked_sizes(corpus: str, thing: str, sizes: Mapping[str, int], most: int) -> None:
    """Whether parts of these sizes can be made."""
    for name, size in sizes.items():
        if size < 0:
            raise SaccadeError(f"{name}={size}, but a part of the {corpus} has 0 {thing} or more; give a number from 0")
    if (total := sum(sizes.values())) > most:
        raise SaccadeError(f"{total:,} {thing} asked of the {corpus}, but it has at most {most:,} in all; ask for fewer")
