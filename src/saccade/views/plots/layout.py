"""Panels laid out on one sheet, with one legend for all lines."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D

from .fonts import families, find, width_of
from .panels import Lines, Panel
from .pictures import Picture
from .sheet import GRAY, MARGIN, add_axes, fitted, look, sheet, style, write

LEGEND_STEP, MARK_ROOM = 0.22, 0.95  # inches of a name in a legend, and of the line before it
CAPTION_ROOM = 0.28  # inches


class Block(NamedTuple):
    """Rows of panels in columns of one width (None leaves a place empty), with one panel beside them and a caption above."""

    rows: Sequence[Sequence[Panel | None]]
    beside: Panel | None = None
    caption: tuple[str, str] = ("", "")  # what is bold, and what is gray after it

    def all(self) -> list[Panel]:
        every = [self.beside, *(panel for row in self.rows for panel in row)]
        return [panel for panel in every if panel is not None]


class Grid:
    """The inches of a block's columns and rows."""

    def __init__(self, block: Block) -> None:
        self.block, self.rows = block, [[*row] for row in block.rows]
        count = max(map(len, self.rows), default=0)
        columns = [[row[n] for row in self.rows if n < len(row)] for n in range(count)]
        sides = [self.widths(column) for column in columns]
        self.lefts, self.wides, self.rights = ([side[n] for side in sides] for n in range(3))
        heights = [self.heights(row) for row in self.rows]
        self.aboves, self.talls, self.belows = ([one[n] for one in heights] for n in range(3))
        self.start = 0.0 if block.beside is None else self.outer(block.beside)[0] + 0.25
        self.caption = CAPTION_ROOM if any(block.caption) else 0.0
        self.width = self.start + sum(self.lefts) + sum(self.wides) + sum(self.rights)
        self.width -= self.gap_after(columns[-1]) if columns else 0.0
        body = sum(self.aboves) + sum(self.talls) + sum(self.belows)
        beside = 0.0 if block.beside is None else self.outer(block.beside)[1]
        self.height = self.caption + max(body, beside)

    @staticmethod
    def gap_after(column: Sequence[Panel | None]) -> float:
        """Inches between a column and the next."""
        return max((getattr(panel, "gap", 0.2) for panel in column if panel), default=0.2)

    @staticmethod
    def outer(panel: Panel) -> tuple[float, float]:
        room = panel.room()
        return room.left + panel.wide + room.right, room.above + panel.tall + room.below

    @classmethod
    def widths(cls, panels: Sequence[Panel | None]) -> tuple[float, float, float]:
        found = [panel for panel in panels if panel is not None]
        rooms = [panel.room() for panel in found]
        left = max((room.left for room in rooms), default=0.0)
        right = max((room.right for room in rooms), default=0.0) + cls.gap_after(panels)
        named = (panel for panel in found if not isinstance(panel, Picture))
        titles = [width_of(panel.name, 9, "bold") for panel in named]
        return left, max((*(panel.wide for panel in found), *titles), default=0.0), right

    @staticmethod
    def heights(panels: Sequence[Panel | None]) -> tuple[float, float, float]:
        rooms = [(panel.room(), panel.tall) for panel in panels if panel is not None]
        inches = [(room.above, tall, room.below) for room, tall in rooms]
        above, tall, below = (max(side) for side in zip(*inches, strict=True))
        return above, tall, below

    def corners(self, top: float) -> Iterator[tuple[Panel, float, float]]:
        """Each panel with the upper left corner of its axes."""
        top += self.caption
        if (beside := self.block.beside) is not None:
            yield beside, MARGIN + beside.room().left, top + beside.room().above
        for y, row in enumerate(self.rows):
            down = top + sum(self.talls[:y]) + sum(self.belows[:y]) + sum(self.aboves[: y + 1])
            for x, panel in enumerate(row):
                before = sum(self.wides[:x]) + sum(self.rights[:x]) + sum(self.lefts[: x + 1])
                if panel is not None:
                    yield panel, MARGIN + self.start + before, down

    def hole(self) -> tuple[float, float] | None:
        """From the block's upper left corner to the first free place of its last row."""
        if len(self.rows) < 2 or len(self.rows[-1]) == len(self.wides):
            return None
        n = len(self.rows[-1])
        left = sum(self.wides[:n]) + sum(self.rights[:n]) + sum(self.lefts[: n + 1]) + self.start
        return left, self.height - self.talls[-1] - self.belows[-1]


def panels(title: str, note: str, rows: Sequence[Sequence[Panel | None]]) -> Figure:
    """Rows of panels on one sheet."""
    return blocks(title, note, [Block(rows)])


def in_rows(every: Sequence[Panel], across: int = 3) -> list[Sequence[Panel]]:
    """Panels in rows of `across`."""
    return [every[n : n + across] for n in range(0, len(every), across)]


def blocks(title: str, note: str, of: Sequence[Block]) -> Figure:
    """Blocks of panels below each other, with one legend for all lines: in a free place, beside a single panel, or below."""
    grids = [Grid(block) for block in of]
    every = [panel for grid in grids for panel in grid.block.all()]
    find("".join(text for panel in every for text in panel.texts()))
    lines = [panel for panel in every if isinstance(panel, Lines)]
    names = [*dict.fromkeys(name for one in lines for name in (*one.series, *one.faint))]
    marks = {"markersize": 6, "markeredgecolor": "white", "markeredgewidth": 0.4}
    looks = {name: {**look(n), **marks} for n, name in enumerate(names)}
    width = max(grid.width for grid in grids)
    legend = Legend(names, looks, lines, width, grids[-1].hole()) if len(names) > 1 else None
    inside = max(width + (legend.right if legend else 0.0), min(width_of(note, 8) / 0.94, 6.6))
    body = sum(grid.height for grid in grids) + (legend.below if legend else 0.0)
    figure, top = sheet(2 * MARGIN + max(inside, 3.2), body + MARGIN / 2, title, note)
    for grid in grids:
        write_caption(figure, top, *grid.block.caption)
        for panel, left, above in grid.corners(top):
            axes = add_axes(figure, left, above, panel.wide, panel.tall)
            panel.label(axes)
            panel.draw(axes, looks)
        top += grid.height
    if legend:
        legend.draw(figure, top - grids[-1].height, top)
    return figure


class Legend:
    """The names of all lines with their marks: in a free place, to the right of a single panel, or below all."""

    def __init__(
        self,
        names: list[str],
        looks: Mapping[str, dict[str, Any]],
        lines: Sequence[Lines],
        width: float,
        hole: tuple[float, float] | None,
    ) -> None:
        self.beside, self.hole, self.looks, self.width = len(lines) == 1, hole, looks, width
        # to the right of lines: in the order in which they end
        last = lambda name: -max(lines[0].series.get(name) or lines[0].faint[name])[1]
        self.names = sorted(names, key=last) if self.beside else names
        self.entry = max(width_of(fitted(name, 9, 3.5), 9) for name in names) + MARK_ROOM
        fits = max(1, int(width / self.entry))
        self.columns = 1 if hole or self.beside else min(fits, len(names))
        self.height = LEGEND_STEP * math.ceil(len(names) / self.columns) + 0.1
        self.right = self.entry + 0.2 if self.beside else 0.0
        self.below = 0.0 if hole or self.beside else self.height

    def draw(self, figure: Figure, top: float, bottom: float) -> None:
        """Beside or inside the last block, which is between these inches, or below it."""
        width, height = figure.get_size_inches()
        x, y = self.hole or (self.width + 0.2 if self.beside else 0.0, 0.0)
        y += top if self.hole else bottom
        if self.beside:
            y = max(top, (top + bottom - self.height) / 2 - 0.1)
        handles = [Line2D([], [], linewidth=1.6, **self.looks[name]) for name in self.names]
        shown = [fitted(name, 9, 3.5) for name in self.names]
        font = FontProperties(family=families("".join(shown)), size=9)
        at = ((x + MARGIN) / width, 1 - y / height)
        how: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": at, "frameon": False}
        how |= {"ncols": self.columns, "handlelength": 3.2, "borderaxespad": 0.0}
        for text in figure.legend(handles, shown, prop=font, **how).get_texts():
            text.set_parse_math(False)


def write_caption(figure: Figure, top: float, bold: str, gray: str) -> None:
    """What is above a block: the gray text where it fits behind the bold one."""
    room = float(figure.get_size_inches()[0]) - 2 * MARGIN
    shown = fitted(bold, 11, room, "bold") if bold else ""
    after = width_of(shown, 11, "bold") + MARGIN if shown else 0.0
    if shown:
        write(figure, MARGIN, top, shown, va="top", **style(11, weight="bold", text=shown))
    if gray and room - after > 1:
        name = fitted(gray, 9, room - after)
        write(figure, MARGIN + after, top + 0.025, name, va="top", **style(9, GRAY, text=name))
