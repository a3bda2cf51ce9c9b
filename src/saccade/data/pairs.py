"""A pair: one sentence in two languages, with what is known about it."""

from __future__ import annotations

from dataclasses import dataclass

Links = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """Source and target text; words are what white space separates, and alignments and tags count words from 0.

    `alignment` holds (source word, target word) pairs that are surely linked, `possible` those that may be linked too.
    `line` is where the pair stood in its file, counted from 1.
    """

    source: str
    target: str
    line: int = 0
    alignment: Links | None = None
    possible: Links | None = None
    tags: tuple[str, ...] | None = None
