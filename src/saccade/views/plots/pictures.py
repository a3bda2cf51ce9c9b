"""Panels with a picture, and a scan path of numbered circles over it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.patches import Circle, FancyArrowPatch, Rectangle
from matplotlib.patheffects import withStroke

from .fonts import width_of
from .panels import Panel, Room, closed_frame
from .sheet import GRAY, INK, fitted, size_of, style

FRAME_COLOR = "#ffd23f"
CircleAt = tuple[float, float, float]  # x, y and radius in pixels


@dataclass
class Picture(Panel):
    """A picture without axes, its name above; over it a frame, or numbered circles joined by arrows."""

    pixels: Any = None
    size: float = 9.0  # of its name, in points
    frame: tuple[float, float, float, float] | None = None  # left, top, right, bottom in pixels
    circles: Sequence[CircleAt] = ()
    gap: float = 0.1  # inches to the next one

    def room(self) -> Room:
        left = width_of(self.y, 9) + 0.12 if self.y else 0.0
        return Room(left, 0.24 if self.name else 0.0, 0.0, self.gap + 0.22 * bool(self.x))

    def draw(self, axes: Axes, looks: Mapping[str, dict[str, Any]]) -> None:
        height, width = self.pixels.shape[:2]
        axes.imshow(
            self.pixels, extent=(0, width, height, 0), interpolation="antialiased", aspect="auto"
        )
        closed_frame(axes)
        if self.frame is not None:
            left, top, right, bottom = self.frame
            how: dict[str, Any] = {"fill": False, "edgecolor": FRAME_COLOR, "linewidth": 1.6}
            axes.add_patch(Rectangle((left, top), right - left, bottom - top, **how))
        draw_circles(axes, self.circles, max(height, width), 72 * size_of(axes)[0] / width)

    def label(self, axes: Axes) -> None:
        name = fitted(self.name, self.size, max(self.wide, 0.92)) if self.name else ""
        axes.set_title(name, pad=3, y=1, **style(self.size, text=name))
        axes.set_xlabel(self.x, labelpad=3, **style(8, GRAY))
        axes.set_ylabel(self.y, rotation=0, ha="right", va="center", **style(9, text=self.y))


def draw_circles(axes: Axes, circles: Sequence[CircleAt], unit: float, points: float) -> None:
    """Numbered circles joined by arrows, from dark (first) to light. `unit` is the longer side in pixels, `points` the size of a pixel."""
    colors, size = sequence_colors(len(circles)), 8 if unit * points > 130 else 7
    how: dict[str, Any] = {"arrowstyle": "-|>,head_length=3.5,head_width=2", "linewidth": 1.5}
    how["connectionstyle"] = "arc3,rad=0.12"
    for n, (one, other) in enumerate(pairwise(circles)):
        # circles that touch need no arrow
        if math.dist(one[:2], other[:2]) > one[2] + other[2] + 0.03 * unit:
            ends: dict[str, Any] = {"shrinkA": one[2] * points, "shrinkB": other[2] * points + 0.5}
            line = FancyArrowPatch(
                one[:2], other[:2], color=colors[n], zorder=3 + n / 100, **ends, **how
            )
            line.set_path_effects([withStroke(linewidth=3.2, foreground="white")])
            axes.add_patch(line)
    for n, ((x, y, radius), color) in enumerate(zip(circles, colors, strict=True)):
        look: dict[str, Any] = {"edgecolor": "white", "linewidth": 1.2, "alpha": 0.85}
        axes.add_patch(Circle((x, y), radius, facecolor=color, zorder=5 + n / 100, **look))
        where: dict[str, Any] = {"ha": "center", "va": "center_baseline", "zorder": 5.005 + n / 100}
        axes.text(x, y, str(n + 1), **where, **style(size, contrast(color), "bold"))


def sequence_colors(count: int) -> list[str]:
    """Colors from first to last, equally far from each other, the last still dark enough for white paper."""
    return [to_hex(colormaps["plasma"](0.86 * n / max(1, count - 1))) for n in range(count)]


def contrast(color: str) -> str:
    """White on dark colors, black on light ones."""
    red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return "white" if 0.3 * red + 0.59 * green + 0.11 * blue < 150 else INK


@dataclass
class NumberedNames(Panel):
    """Names after the numbers of circles, from the top down."""

    names: Sequence[str] = ()

    def room(self) -> Room:
        return Room(0.0, 0.0, 0.0, 0.1)

    def draw(self, axes: Axes, looks: Mapping[str, dict[str, Any]]) -> None:
        axes.set(xlim=(0, self.wide), ylim=(self.tall, 0), xticks=[], yticks=[])
        axes.axis("off")
        step = min(0.27, (self.tall - 0.25) / max(1, len(self.names)))
        size = min(10.0, 72 * step * 0.75)
        axes.text(0, 0, self.name, va="top", **style(8, GRAY))
        colors = sequence_colors(len(self.names))
        for n, (name, color) in enumerate(zip(self.names, colors, strict=True)):
            y, shown = 0.25 + (n + 0.5) * step, fitted(name, size, self.wide - 0.25)
            middle: dict[str, Any] = {"va": "center_baseline"}
            axes.text(0.1, y, str(n + 1), ha="center", **middle, **style(size, color, "bold"))
            axes.text(0.25, y, shown, **middle, **style(size, text=shown))

    def label(self, axes: Axes) -> None:
        """Nothing around it."""
