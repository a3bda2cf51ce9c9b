"""The scan path: fixation after fixation, where the words of a text look most in a picture, as people's eyes move over one."""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch
from matplotlib.patheffects import withStroke

from ..errors import SaccadeError
from .document import Site
from .figures import GRAY, fitted, style
from .selection import SPECIAL, in_words

MOST_FIXATIONS = 20
RINGS = 9  # around a fixation, within which its circle gives way to earlier ones
LEGEND_TITLE, LEAST_STEP = 0.25, 0.14  # inches: above the words of a legend, and between them
# Words that name nothing which can be looked at; a caption in another language keeps all of its words.
FUNCTION_WORDS = re.compile(
    "an?|the|of|and|or|is|are|was|were|be|been|to|in|on|at|by|with|for|from|as|its?|this|that|there",
    re.IGNORECASE,
)


class Fixation(NamedTuple):
    """The strongest position while some words that follow each other were read or generated, and how much they looked there in all."""

    words: tuple[str, ...]
    row: int
    column: int
    dwell: float


def fixations(site: Site, head: int | None = None) -> list[Fixation]:
    """Where the content words of a site over a picture look most, in their order; words that stay at one position are one fixation."""
    if site.grid is None:
        raise SaccadeError(
            f"'{site.name}' does not look at a picture, so it has no scan path; choose a site over one"
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
        before = (
            found[-1]
            if found and (found[-1].row, found[-1].column) == (row, column)
            else Fixation((), row, column, 0.0)
        )
        found[len(found) - bool(before.words) :] = [
            Fixation(
                (*before.words, whole.rows[n]), row, column, before.dwell + float(weights[n].max())
            )
        ]
    return found[:MOST_FIXATIONS]


def draw_path(
    axes: Axes, size: tuple[int, int], found: Sequence[Fixation], site: Site, digits: float = 8
) -> list[str]:
    """Numbered circles at the fixations, the larger the longer they last, joined by arrows, from dark (early) to light, over a
    picture of this height and width; their colors."""
    height, width = size
    (rows, columns), unit = site.grid or (1, 1), max(height, width)
    colors = _hex_colors(len(found))
    most = max([one.dwell for one in found], default=1.0) or 1.0
    radii = [unit * (0.03 + 0.03 * math.sqrt(one.dwell / most)) for one in found]
    places: list[tuple[float, float]] = []
    for one, radius in zip(found, radii, strict=True):
        x = ((one.column + 0.5) / columns + site.offset[1]) * width
        y = ((one.row + 0.5) / rows + site.offset[0]) * height
        places.append(
            beside((x, y), radius, list(zip(places, radii, strict=False)), (width, height))
        )
    inches = axes.get_position().width * axes.get_figure(root=True).get_size_inches()[0]  # type: ignore[union-attr]
    points = 72 * inches / width  # of one pixel
    for n in range(len(found) - 1):
        how = {
            "arrowstyle": "-|>,head_length=3.5,head_width=2",
            "connectionstyle": "arc3,rad=0.12",
            "linewidth": 1.5,
        }
        ends = {
            "shrinkA": radii[n] * points,
            "shrinkB": radii[n + 1] * points + 0.5,
            "zorder": 3 + n / 100,
        }
        # circles that touch need no arrow
        if math.dist(places[n], places[n + 1]) > radii[n] + radii[n + 1] + 0.03 * unit:
            line = FancyArrowPatch(places[n], places[n + 1], color=colors[n], **how, **ends)  # type: ignore[arg-type]
            line.set_path_effects([withStroke(linewidth=3.2, foreground="white")])
            axes.add_patch(line)
    for n, (place, radius, color) in enumerate(zip(places, radii, colors, strict=True)):
        axes.add_patch(
            Circle(
                place,
                radius,
                facecolor=color,
                edgecolor="white",
                linewidth=1.2,
                alpha=0.85,
                zorder=5 + n / 100,
            )
        )
        ink = style(digits, _ink(color), "bold")
        axes.text(
            *place, str(n + 1), ha="center", va="center_baseline", zorder=5.005 + n / 100, **ink
        )
    return colors


def beside(
    place: tuple[float, float],
    radius: float,
    others: Sequence[tuple[tuple[float, float], float]],
    size: tuple[float, float],
) -> tuple[float, float]:
    """The middle of a circle where it was asked for, or the nearest around that hides none of the others; inside the picture (width, height)."""
    nearest = None
    for away in range(RINGS):
        for turn in range(12 if away else 1):
            angle, far = math.radians(30 * turn + 40), 0.4 * away * radius
            moved = place[0] + far * math.cos(angle), place[1] + far * math.sin(angle)
            inside = tuple(
                float(np.clip(at, radius, side - radius))
                for at, side in zip(moved, size, strict=True)
            )
            nearest = nearest or inside
            if all(math.dist(inside, other) > 0.8 * (radius + its) for other, its in others):
                return inside[0], inside[1]
    assert nearest is not None, "the first ring is the middle itself"
    return nearest[0], nearest[1]


def _hex_colors(count: int) -> list[str]:
    """Colors from early to late, equally far from each other, the last still dark enough for white paper."""
    return [to_hex(colormaps["plasma"](0.86 * n / max(1, count - 1))) for n in range(count)]


def _ink(color: str) -> str:
    red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return "white" if 0.3 * red + 0.59 * green + 0.11 * blue < 150 else "#1a1a1a"


def legend_height(count: int) -> float:
    """Inches that the legend of so many fixations needs at least, to be read."""
    return LEGEND_TITLE + LEAST_STEP * count


def legend(
    figure: Figure,
    left: float,
    top: float,
    wide: float,
    tall: float,
    found: Sequence[Fixation],
    colors: Sequence[str],
) -> None:
    """The numbers of a scan path and their words, from the top down."""
    across, down = figure.get_size_inches()
    step = min(0.27, (tall - LEGEND_TITLE) / max(1, len(found)))
    size = min(10.0, 72 * step * 0.75)
    figure.text(left / across, 1 - top / down, "scan path", ha="left", va="top", **style(8, GRAY))
    for n, (one, color) in enumerate(zip(found, colors, strict=True)):
        y, text = 1 - (top + LEGEND_TITLE + (n + 0.5) * step) / down, " ".join(one.words)
        figure.text(
            (left + 0.1) / across,
            y,
            str(n + 1),
            ha="center",
            va="center_baseline",
            **style(size, color, "bold"),
        )
        name = fitted(text, size, wide - 0.25)
        figure.text(
            (left + 0.25) / across,
            y,
            name,
            ha="left",
            va="center_baseline",
            **style(size, text=text),
        )
