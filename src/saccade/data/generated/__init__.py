"""Generated corpora: the same examples for the same seed on every machine and every Python, with no download."""

import json
import random
from collections.abc import Callable, Iterable, Sequence
from importlib.resources import files
from typing import Any, TypeVar

from ...errors import SaccadeError

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

    def take(self, items: list[Item]) -> Item:
        """One item, which is removed."""
        return items.pop(self.between(0, len(items) - 1))

    def shuffled(self, items: Iterable[Item]) -> list[Item]:
        left = list(items)
        return [self.take(left) for _ in range(len(left))]


def load_words(corpus: str) -> Any:
    """The word tables of a corpus, `CORPUS.json` beside this file."""
    return json.loads(files(__package__).joinpath(f"{corpus}.json").read_text(encoding="utf-8"))


def draw_parts(
    corpus: str,
    most: int,
    sizes: Sequence[int],
    draw: Callable[[int], Item],
    text: str,
    meaning: str = "",
    known: Iterable[str] = (),
) -> dict[str, list[Item]]:
    """Parts of these sizes of what `draw(line)` gives: no `text` twice or among the `known`, no `meaning` (else the text) in two parts."""
    parts: dict[str, list[Item]] = {"train": [], "dev": [], "test": []}
    if min(sizes) < 0 or sum(sizes) > most:
        asked = ", ".join(f"{name}={size}" for name, size in zip(parts, sizes, strict=True))
        raise SaccadeError(
            f"{asked}, but '{corpus}' has parts of 0 or more examples, at most {most:,} in all; ask for fewer",
            code="out-of-range",
        )
    seen, owner = set(known), dict[str, str]()
    # the test part first, so that it does not depend on the other sizes
    for (name, part), size in reversed(list(zip(parts.items(), sizes, strict=True))):
        while len(part) < size:
            item = draw(len(part) + 1)
            said, meant = getattr(item, text), getattr(item, meaning or text)
            if said not in seen and owner.setdefault(meant, name) == name:
                seen.add(said)
                part.append(item)
    return parts
