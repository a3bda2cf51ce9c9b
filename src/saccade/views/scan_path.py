"""The scan path: fixation after fixation, where the words of a text look most in a picture, as people's eyes move over one."""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..errors import SaccadeError
from .document import Site
from .selection import SPECIAL, in_words

MAX_FIXATIONS = 20
MAX_RINGS = 9  # around a fixation, within which its circle gives way to earlier ones
# Words that name nothing which can be looked at; a caption in another language keeps all of its words.
FUNCTION_WORDS = re.compile(
    "an?|the|of|and|or|is|are|was|were|be|been|to|in|on|at|by|with|for|from|as|its?|this|that|there",
    re.IGNORECASE,
)
Point = tuple[float, float]


class Fixation(NamedTuple):
    """The strongest position while some consecutive words were read or generated, and their total weight there."""

    words: tuple[str, ...]
    row: int
    column: int
    dwell: float


def fixations(site: Site, head: int | None = None) -> list[Fixation]:
    """Where the content words of a site over a picture look most, in their order; words that stay at one position are one fixation."""
    if site.grid is None:
        raise SaccadeError(
            f"'{site.name}' does not look at a picture, so it has no scan path; choose a site over one",
            code="no-picture",
        )
    whole = in_words(site)
    weights = np.mean(whole.weights, 0) if head is None else whole.weights[head]
    words = [
        n
        for n, word in enumerate(whole.rows)
        if any(map(str.isalnum, word)) and not SPECIAL.fullmatch(word)
    ]
    named = [n for n in words if not FUNCTION_WORDS.fullmatch(whole.rows[n])] or words
    found: list[Fixation] = []
    for n in named:
        row, column = divmod(int(weights[n].argmax()), site.grid[1])
        stays = bool(found) and (found[-1].row, found[-1].column) == (row, column)
        before = found.pop() if stays else Fixation((), row, column, 0.0)
        dwell = before.dwell + float(weights[n].max())
        found.append(Fixation((*before.words, whole.rows[n]), row, column, dwell))
    return found[:MAX_FIXATIONS]


def circles_of(
    found: Sequence[Fixation], site: Site, size: tuple[int, int]
) -> list[tuple[float, float, float]]:
    """A circle (x, y, radius) per fixation over a picture of this height and width, the larger the longer it lasts."""
    height, width = size
    (rows, columns), unit = site.grid or (1, 1), max(height, width)
    longest = max([one.dwell for one in found], default=1.0) or 1.0
    made: list[tuple[float, float, float]] = []
    for one in found:
        radius = unit * (0.03 + 0.03 * math.sqrt(one.dwell / longest))
        x = ((one.column + 0.5) / columns + site.offset[1]) * width
        y = ((one.row + 0.5) / rows + site.offset[0]) * height
        made.append((*beside((x, y), radius, made, (width, height)), radius))
    return made


def beside(
    place: Point, radius: float, others: Sequence[tuple[float, float, float]], size: Point
) -> Point:
    """The middle of a circle where it was asked for, or the nearest around that hides none of the others; inside the picture (width, height)."""
    nearest = None
    for away in range(MAX_RINGS):
        for turn in range(12 if away else 1):
            angle, far = math.radians(30 * turn + 40), 0.4 * away * radius
            moved = place[0] + far * math.cos(angle), place[1] + far * math.sin(angle)
            x, y = (
                float(np.clip(at, radius, side - radius))
                for at, side in zip(moved, size, strict=True)
            )
            nearest = nearest or (x, y)
            if all(math.dist((x, y), other[:2]) > 0.8 * (radius + other[2]) for other in others):
                return x, y
    assert nearest is not None, "the first ring is the middle itself"
    return nearest
