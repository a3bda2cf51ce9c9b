"""Named points, whose names are placed so that none lies over another."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from .fonts import width_of
from .panels import Panel, Room, closed_frame, open_frame
from .sheet import COLORS, EDGE, GRAY, MARKERS, fitted, size_of, style

Box = tuple[float, float, float, float]  # left, bottom, right, top


@dataclass
class Scatter(Panel):
    """Named points, with a marker per group. A name is beside its point, or further away with a line; it is left out
    where it would lie over others."""

    points: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)  # name → group
    size: float = 8.0  # of the names, in points
    ticks: bool = True

    def room(self) -> Room:
        return super().room() if self.ticks else Room(0.1, 0.0, 0.1, 0.1)

    def texts(self) -> Iterator[str]:
        yield from (*super().texts(), *self.points)

    def draw(self, axes: Axes, looks: Mapping[str, dict[str, Any]]) -> None:
        every = dict.fromkeys(self.groups.get(name, "") for name in self.points)
        for n, group in enumerate(every):
            mine = [at for name, at in self.points.items() if self.groups.get(name, "") == group]
            how: dict[str, Any] = {"color": COLORS[n % len(COLORS)], "markersize": 4, "zorder": 3}
            axes.plot(*zip(*mine, strict=True), MARKERS[n], linestyle="", label=group, **how)
        axes.margins(0.1, 0.06)
        axes.autoscale_view()  # else only done when it is drawn
        open_frame(axes) if self.ticks else closed_frame(axes)
        if len(every) > 1:
            axes.legend(frameon=False, fontsize=8, labelcolor=GRAY, loc="best", handletextpad=0.2)
        places = axes.transAxes.inverted().transform(
            axes.transData.transform(np.array([*self.points.values()], dtype=float))
        ) * size_of(axes)
        names = [fitted(name, self.size, 2.5) for name in self.points]
        sizes = [(1.05 * width_of(name, self.size), 1.1 * self.size / 72) for name in names]
        found = place_names(places, sizes, size_of(axes))
        for name, point, move in zip(names, self.points.values(), found, strict=True):
            if move is None:
                continue
            line: dict[str, Any] = {"arrowstyle": "-", "color": EDGE, "linewidth": 0.5}
            line |= {"shrinkA": 0, "shrinkB": 2, "relpos": nearest_corner(*move[:2])}
            how = style(self.size, text=name, textcoords="offset points", va="bottom")
            how["arrowprops"] = line if move[2] else None
            axes.annotate(name, point, (72 * move[0], 72 * move[1]), **how)


def nearest_corner(right: float, up: float) -> tuple[float, float]:
    """Where a line meets a name that was moved by so much."""
    return 0.0 if right > 0 else 1.0 if right < -0.3 else 0.5, 0.0 if up > 0 else 1.0


def place_names(
    places: np.ndarray, sizes: Sequence[tuple[float, float]], area: tuple[float, float]
) -> list[tuple[float, float, bool] | None]:
    """From each place to the lower left corner of its name, and whether a line leads there. No name lies over others or a line."""
    taken: list[Box] = [(x - 0.04, y - 0.04, x + 0.04, y + 0.04) for x, y in places]
    found: list[tuple[float, float, bool] | None] = []
    for n, ((x, y), (long, high)) in enumerate(zip(places, sizes, strict=True)):
        near = [(0.07, -high / 2), (-0.07 - long, -high / 2), (-long / 2, 0.06)]
        near += [(-long / 2, -0.06 - high), (0.05, 0.02), (-0.05 - long, 0.02)]
        far = [
            (right * side if side > 0 else -right - long, up * away - high * (away < 0))
            for right, up in ((0.15, 0.16), (0.1, 0.3), (0.3, 0.3), (0.25, 0.45), (0.4, 0.6))
            for away in (1, -1)
            for side in (1, -1)
        ]
        others = taken[:n] + taken[n + 1 :]
        chosen = None
        for step, (right, up) in enumerate([*near, *far]):
            box = (x + right, y + up, x + right + long, y + up + high)
            inside = box[0] > 0 and box[1] > 0 and box[2] < area[0] and box[3] < area[1]
            way = leader((x, y), box) if step >= len(near) else []
            if inside and not any(overlap(one, other) for one in (box, *way) for other in others):
                chosen = (right, up, bool(way))
                taken += [box, *way]
                break
        found.append(chosen)
    return found


def leader(start: tuple[float, float], box: Box) -> list[Box]:
    """Small boxes along the line from a point to the corner of a box that is nearest to it."""
    x, y = (np.clip(at, *ends) for at, ends in zip(start, (box[::2], box[1::2]), strict=True))
    parts = [
        (start[0] + t * (x - start[0]), start[1] + t * (y - start[1])) for t in (0.4, 0.6, 0.8)
    ]
    return [(a - 0.01, b - 0.01, a + 0.01, b + 0.01) for a, b in parts]


def overlap(one: Box, other: Box) -> bool:
    """Whether two boxes share a point."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
