"""Figures without axes: nested boxes with arrows, and words joined by links."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from .fonts import find, width_of
from .sheet import EDGE, GRAY, INK, MARGIN, add_axes, fitted, sheet, style

WIDE, ROW, GAP, BETWEEN = 5.0, 0.34, 0.1, 0.2  # inches of boxes, their lines and gaps
GUTTER = 0.2  # inches to the left of boxes, for lines that go around them
STRIP, STRIP_WIDTH = 0.85, 6.8  # inches of a sentence and its translation


class Box(NamedTuple):
    """A box with a name at the left, a text at the right, and boxes inside, read upward."""

    name: str
    right: str
    inside: Sequence["Box"] = ()
    skipped: int = 0  # boxes from this one on that a line goes around

    @property
    def height(self) -> float:
        return ROW + (sum(box.height + GAP for box in self.inside) + GAP if self.inside else 0)


def boxes(title: str, note: str, columns: Sequence[Sequence[Box]]) -> Figure:
    """Columns of boxes, read upward; an arrow leads from the first column to the second."""
    talls = [sum(box.height + BETWEEN for box in column) for column in columns]
    width = len(columns) * (WIDE + 0.5) - 0.5
    figure, top = sheet(2 * MARGIN + width, max(talls) + 0.25, title, note)
    axes = add_axes(figure, MARGIN, top, width, max(talls))
    axes.set(xlim=(0, width), ylim=(0, max(talls)))
    axes.axis("off")
    for n, column in enumerate(columns):
        left, at = n * (WIDE + 0.5), 0.0
        for box in column:
            if at:
                draw_arrow(axes, (left + WIDE / 2, at - BETWEEN), (left + WIDE / 2, at))
            draw_box(axes, box, left + 0.02, at, WIDE - 0.04)
            at += box.height + BETWEEN
    if len(columns) == 2:
        draw_arrow(axes, (WIDE, min(talls) / 2), (WIDE + 0.52, min(talls) / 2))
    return figure


def draw_arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    how: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 9, "color": GRAY}
    axes.add_patch(FancyArrowPatch(start, end, shrinkA=0, shrinkB=0, **how))


def draw_box(axes: Axes, box: Box, left: float, bottom: float, wide: float) -> None:
    """A box with its name in its highest line, and the boxes inside it below that."""
    look: dict[str, Any] = {"boxstyle": "round,pad=0,rounding_size=0.05", "linewidth": 0.9}
    look |= {"facecolor": "white", "edgecolor": INK} if box.inside else {}
    look = {"facecolor": "#eeeeee", "edgecolor": EDGE, **look}
    axes.add_patch(FancyBboxPatch((left, bottom), wide, box.height, **look))
    line = bottom + box.height - ROW / 2
    room = wide - 0.3 - width_of(box.right, 7.5)
    how = style(8, weight="bold" if box.inside else "normal")
    axes.text(left + wide - 0.08, line, box.right, ha="right", va="center", **style(7.5, GRAY))
    axes.text(left + 0.08, line, fitted(box.name, 8, room), ha="left", va="center", **how)
    gutter = GUTTER if any(inner.skipped for inner in box.inside) else 0.0
    at = bottom + GAP
    for n, inner in enumerate(box.inside):
        draw_box(axes, inner, left + 0.12 + gutter, at, wide - 0.24 - gutter)
        if inner.skipped:
            around = box.inside[n : n + inner.skipped]
            draw_skip(axes, left + 0.12, at, sum(one.height + GAP for one in around) - GAP)
        at += inner.height + GAP


def draw_skip(axes: Axes, left: float, bottom: float, tall: float) -> None:
    """A line from below some boxes around them to a + above."""
    low, high = bottom - GAP / 3, bottom + tall + GAP / 3
    x = [left + GUTTER + 0.1, left + 0.06, left + 0.06]
    axes.plot(x, [low, low, high], color=GRAY, linewidth=1.0, zorder=3)
    draw_arrow(axes, (left + 0.06, high), (left + GUTTER + 0.1, high))
    plus: dict[str, Any] = {"ha": "center", "va": "center_baseline", "zorder": 4}
    axes.text(left + GUTTER + 0.16, high, "+", **plus, **style(8, INK, "bold"))


class Translation(NamedTuple):
    """Two sentences, and which words translate each other: surely, and possibly."""

    source: Sequence[str]
    target: Sequence[str]
    sure: Sequence[tuple[int, int]]
    possible: Sequence[tuple[int, int]]


def links(title: str, note: str, strips: Mapping[str, Translation]) -> Figure:
    """A strip per language: words above and below, joined by lines, which are dashed where a link is possible."""
    find("".join(word for one in strips.values() for word in one.target))
    figure, top = sheet(2 * MARGIN + STRIP_WIDTH, 0.95 * len(strips) + 0.1, title, note)
    for n, (name, one) in enumerate(strips.items()):
        axes = add_axes(figure, MARGIN, top + 0.95 * n, STRIP_WIDTH, STRIP)
        axes.set(xlim=(0, STRIP_WIDTH), ylim=(0, STRIP))
        axes.axis("off")
        axes.text(0, STRIP / 2, name, va="center", **style(9, weight="bold", text=name))
        above, below = write_words(axes, one.source, 0.72), write_words(axes, one.target, 0.1)
        for joined, dash, color in ((one.sure, "-", GRAY), (one.possible, "--", EDGE)):
            for a, b in joined:
                axes.plot([above[a], below[b]], [0.6, 0.23], dash, color=color, linewidth=1.0)
    return figure


def write_words(axes: Axes, words: Sequence[str], y: float) -> list[float]:
    """Words in a line, each as wide as it is; returns their middles."""
    wide, at, found = [width_of(word, 10) for word in words], 1.1, list[float]()
    gap = min(0.4, (STRIP_WIDTH - at - sum(wide)) / max(len(words) - 1, 1))
    for word, width in zip(words, wide, strict=True):
        found.append(at + width / 2)
        axes.text(found[-1], y, word, ha="center", va="center", **style(10, text=word))
        at += width + gap
    return found
