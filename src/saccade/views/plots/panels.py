"""Panels with axes: heat maps, lines, dots, bars and contours."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from .fonts import width_of
from .sheet import COLORS, EDGE, FAINT, GRAY, INK, short_number, style

DARK = 0.516  # of the scale; above it white letters have more contrast than black ones (WCAG 2)
TILT = math.radians(60)  # of column names
BAR_ROOM, BAR_GAP, MAX_BAR = 0.72, 0.18, 3.0  # inches of a color scale
MIN_LINED_CELL = 0.07  # inches from which thin lines separate cells
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Room(NamedTuple):
    """Inches around axes for names and numbers."""

    left: float
    above: float
    right: float
    below: float


@dataclass
class Panel:
    """What all panels have: a name above, names of the axes, and inches."""

    name: str = ""
    x: str = ""
    y: str = ""
    wide: float = 3.0
    tall: float = 2.5

    def room(self) -> Room:
        return Room(0.62, 0.32 if self.name else 0.1, 0.18, 0.6 if self.x else 0.34)

    def draw(self, axes: Axes, looks: Mapping[str, dict[str, Any]]) -> None:
        raise NotImplementedError

    def texts(self) -> Iterator[str]:
        """Everything it writes that a user may have written."""
        yield from (self.name, self.x, self.y)

    def label(self, axes: Axes) -> None:
        """Its name, and those of its axes."""
        axes.set_title(self.name, loc="left", pad=6, y=1, **style(9, weight="bold", text=self.name))
        axes.set_xlabel(self.x, **style(8, text=self.x))
        axes.set_ylabel(self.y, **style(8, text=self.y))


def open_frame(axes: Axes, grid: str = "both") -> None:
    """Lines at the left and below, and a light grid behind the data."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(EDGE)
    axes.grid(axis=grid, color=FAINT, linewidth=0.6)  # type: ignore[arg-type]
    axes.set_axisbelow(True)
    axes.tick_params(which="both", colors=GRAY, labelsize=8, length=3)


def closed_frame(axes: Axes, ticks: bool = False) -> None:
    """A thin line around."""
    axes.spines[:].set(color=EDGE, linewidth=0.6)
    if not ticks:
        axes.set(xticks=[], yticks=[])


@dataclass
class Heat(Panel):
    """A matrix as shades from white at `low` to black at `high`; where `low` is below 0, from blue over white at 0 to red.

    `rows` and `columns` name its sides, else they are numbered. `text` is written into the cells where it fits.
    """

    values: Any = None
    low: float | None = None
    high: float | None = None
    rows: Sequence[str] | None = None
    columns: Sequence[str] | None = None
    text: Any = None
    text_size: float = 7.0
    bar: bool = False
    edges: bool = False  # a line between two cells that differ, as between windows
    inverted: bool = False  # black at `low`

    def __post_init__(self) -> None:
        self.values = np.asarray(self.values, dtype=float)
        low = float(self.values.min()) if self.low is None else self.low
        high = float(self.values.max()) if self.high is None else self.high
        if low < 0 < high:
            low, high = min(low, -high), max(high, -low)
        # all values are equal: white
        self.low, self.high = low, high if high > low else low + 1

    @property
    def cell(self) -> float:
        """Inches of the shorter side of a cell."""
        return float(min(self.wide / self.values.shape[1], self.tall / self.values.shape[0]))

    @property
    def label_size(self) -> float:
        """Points that fit a cell; letters smaller than 5 cannot be read."""
        return float(np.clip(72 * self.cell * 0.8, 5, 10))

    @property
    def tilted(self) -> bool:
        """Whether a column's name is too wide for its column."""
        room = self.wide / max(1, self.values.shape[1]) - 0.08
        return any(width_of(name, self.label_size) > room for name in self.columns or ())

    def texts(self) -> Iterator[str]:
        yield from (*super().texts(), *(self.rows or ()), *(self.columns or ()))

    def room(self) -> Room:
        size = self.label_size
        left, longest = (
            max((width_of(name, size) for name in names or ()), default=0.0)
            for names in (self.rows, self.columns)
        )
        numbered = self.rows is None and self.columns is None
        left = (0.36 if numbered else left + 0.12 if self.rows else 0.0) + 0.26 * bool(self.y)
        above = 0.32 if self.name else 0.0
        if self.columns and self.tilted:
            above += longest * math.sin(TILT) + size / 72 * math.cos(TILT) + 0.1
        elif self.columns:
            above += 1.4 * size / 72 + 0.1
        over = longest * math.cos(TILT) if self.columns and self.tilted else 0.1
        below = (0.3 if numbered else 0.05) + 0.31 * bool(self.x)
        return Room(left, above, max(over, BAR_GAP + BAR_ROOM if self.bar else 0.0), below)

    @property
    def scale(self) -> tuple[float, float]:
        """The values that are white (or blue) and black (or red)."""
        assert self.low is not None
        assert self.high is not None
        return self.low, self.high

    def draw(self, axes: Axes, looks: Mapping[str, dict[str, Any]]) -> None:
        low, high = self.scale
        kind = "RdBu_r" if low < 0 < high else "gray" if self.inverted else "gray_r"
        how: dict[str, Any] = {"cmap": kind, "vmin": low, "vmax": high, "aspect": "auto"}
        image = axes.imshow(self.values, interpolation="nearest", **how)
        closed_frame(axes, ticks=True)
        if self.cell >= MIN_LINED_CELL:
            height, width = self.values.shape
            for line, count in ((axes.axvline, width), (axes.axhline, height)):
                for n in range(1, count):
                    line(n - 0.5, color=FAINT, linewidth=0.5)
        self.write_cells(axes)
        self.write_names(axes)
        if self.edges:
            draw_edges(axes, self.values)
        if self.bar:
            add_bar(axes, image, self)

    def write_cells(self, axes: Axes) -> None:
        if self.text is None or self.cell < MIN_LINED_CELL:
            return
        low, high = self.scale
        for (down, across), shown in np.ndenumerate(np.asarray(self.text, dtype=object)):
            part = (self.values[down, across] - low) / (high - low)
            dark = abs(2 * part - 1) > 0.7 if low < 0 < high else part > DARK
            how = style(self.text_size, "white" if dark != self.inverted else INK)
            if shown != "":
                axes.text(across, down, shown, ha="center", va="center_baseline", **how)

    def write_names(self, axes: Axes) -> None:
        """The names of rows and columns, every n-th where cells are too small for all."""
        if self.rows is None and self.columns is None:
            axes.tick_params(colors=GRAY, labelsize=8, length=3)
            return
        size = self.label_size
        axes.tick_params(length=0, pad=3)
        axes.xaxis.tick_top()
        tilt: dict[str, Any] = {"rotation": 60, "rotation_mode": "anchor", "ha": "left"}
        tilt = {**tilt, "va": "center"} if self.tilted else {}
        for axis, names, inches, more in (
            (axes.yaxis, self.rows or [], self.tall, {}),
            (axes.xaxis, self.columns or [], self.wide, tilt),
        ):
            every = max(1, math.ceil(size * len(names) / (72 * inches)))
            how = style(size, text="".join(names), **more)
            axis.set_ticks(range(0, len(names), every), names[::every], **how)


def add_bar(axes: Axes, image: AxesImage, shown: Heat) -> None:
    """The color scale to the right of a heat map, with the values of its ends."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    low, high = shown.scale
    box, (across, down) = axes.get_position(), figure.get_size_inches()
    at = (box.x1 + BAR_GAP / across, box.y0, 0.12 / across, min(MAX_BAR / down, box.height))
    bar = figure.colorbar(image, cax=figure.add_axes(at))
    ends = {end: short_number(end) for end in (low, high)}
    if low > 0 and float(shown.values.min()) < low:
        ends[low] = f"≤ {ends[low]}"
    ends |= {0.0: "0"} if low < 0 < high else {}
    bar.set_ticks([*ends], labels=[*ends.values()], **style(8, GRAY))
    bar.minorticks_off()
    bar.outline.set(color=EDGE, linewidth=0.6)
    bar.ax.tick_params(length=0, pad=3)


def draw_edges(axes: Axes, values: np.ndarray) -> None:
    """Thick lines between neighbors that differ."""
    for row, column in np.argwhere(values[:, 1:] != values[:, :-1]):
        axes.plot([column + 0.5] * 2, [row - 0.5, row + 0.5], color="black", linewidth=1.6)
    for row, column in np.argwhere(values[1:] != values[:-1]):
        axes.plot([column - 0.5, column + 0.5], [row + 0.5] * 2, color="black", linewidth=1.6)


Points = Sequence[tuple[float, float]]


@dataclass
class Lines(Panel):
    """One line per name through its (x, y) points. `faint` lines have the color of their name and no markers."""

    series: Mapping[str, Points] = field(default_factory=dict)
    log: str = ""  # the axes with logarithms: "x", "y", "xy"
    faint: Mapping[str, Points] = field(default_factory=dict)
    limits: tuple[float, float] | None = None  # of y
    ticks: Sequence[float] | None = None  # of a logarithmic x-axis

    def draw(self, axes: Axes, looks: Mapping[str, dict[str, Any]]) -> None:
        for name, points in self.faint.items():
            how = {**looks[name], "marker": "", "linewidth": 1.0, "alpha": 0.5}
            axes.plot(*zip(*sorted(points), strict=True), **how)
        for name, points in self.series.items():
            how = {**looks[name], "linewidth": 1.6, "markevery": max(1, len(points) // 12)}
            axes.plot(*zip(*sorted(points), strict=True), zorder=3, **how)
        open_frame(axes)
        axes.locator_params(nbins=6)
        if "x" in self.log:
            axes.set_xscale("log", base=2)
            ticks = sorted(self.ticks or {x for points in self.series.values() for x, _ in points})
            ticks = ticks[:: math.ceil(len(ticks) / 6)]
            axes.set_xticks(ticks, [f"{tick:,g}" for tick in ticks])
            axes.minorticks_off()
        if "y" in self.log:
            axes.set_yscale("log")
            log_ticks(axes)
        if self.limits is not None:
            axes.set_ylim(*self.limits)


def log_ticks(axes: Axes) -> None:
    """Plain numbers on a logarithmic y-axis, or powers of ten where it spans many of them."""
    low, high = axes.get_ylim()
    wide = high / low > 1000
    power: Callable[[float, int], str] = lambda value, _: (
        "10" + f"{math.log10(value):.0f}".translate(SUPERSCRIPT)
    )
    plain: Callable[[float, int], str] = lambda value, _: (
        f"{value / 1e6:,g} M" if value >= 1e6 else f"{value:,g}"
    )
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(power if wide and low < 1e-3 else plain))
    axes.yaxis.set_minor_locator(NullLocator())


@dataclass
class Dots(Panel):
    """One row per name: a dot for each value, and a bar at their mean."""

    series: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def room(self) -> Room:
        left = max((width_of(name, 9) for name in self.series), default=0.0) + 0.2
        return super().room()._replace(left=left)

    def texts(self) -> Iterator[str]:
        yield from (*super().texts(), *self.series)

    def draw(self, axes: Axes, looks: Mapping[str, dict[str, Any]]) -> None:
        open_frame(axes)
        axes.locator_params(nbins=5)
        bar: dict[str, Any] = {"marker": "|", "markersize": 15, "markeredgewidth": 2.4}
        dot: dict[str, Any] = {"marker": "o", "markersize": 5, "alpha": 0.7, "zorder": 3}
        for n, values in enumerate(self.series.values()):
            axes.plot([float(np.mean(values))], [n], color=INK, **bar)
            axes.plot(values, [n] * len(values), linestyle="", color=COLORS[0], **dot)
        axes.set_ylim(len(self.series) - 0.5, -0.5)
        names = [*self.series]
        axes.set_yticks(range(len(names)), names, **style(9, text="".join(names)))


@dataclass
class Bars(Panel):
    """Factors by name: to the right of 1 where they are greater, to the left and hatched where they are smaller."""

    values: Mapping[str, float] = field(default_factory=dict)

    def room(self) -> Room:
        left = max((width_of(name, 8) for name in self.values), default=0.0) + 0.15
        return super().room()._replace(left=left)

    def draw(self, axes: Axes, looks: Mapping[str, dict[str, Any]]) -> None:
        for n, value in enumerate(self.values.values()):
            greater = value >= 1
            color = COLORS[0] if greater else COLORS[1]
            [bar] = axes.barh(n, value - 1, left=1, height=0.72, color=color, zorder=3)
            bar.set(hatch="" if greater else "////", edgecolor="white")
            how: dict[str, Any] = {"textcoords": "offset points", "va": "center", **style(8)}
            how["ha"] = "left" if greater else "right"
            axes.annotate(f"{value:.3g}", (value, n), (4 if greater else -4, 0), **how)
        open_frame(axes, "x")
        axes.axvline(1, color=INK, linewidth=1, zorder=4)
        axes.set_xscale("log")
        axes.set_xlim(min(self.values.values()) * 0.6, max(self.values.values()) * 2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_ylim(len(self.values) - 0.4, -0.6)
        names = [*self.values]
        axes.set_yticks(range(len(names)), names, **style(8, text="".join(names)))
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)


@dataclass
class Contours(Panel):
    """Lines of equal height over a square, dark where it is low, with a cross at its middle."""

    at: Any = None
    values: Any = None
    levels: Any = None

    def draw(self, axes: Axes, looks: Mapping[str, dict[str, Any]]) -> None:
        at, values = self.at, self.values
        axes.contourf(at, at, values, levels=self.levels, cmap="gray", extend="both")
        inside = [level for level in self.levels if values.min() < level < values.max()]
        if inside:
            lines = axes.contour(at, at, values, levels=inside, colors="black", linewidths=0.5)
            axes.clabel(lines, inside[::2], fontsize=7, fmt="%.3g", colors="black")
            for text in lines.labelTexts:
                text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.8})
        axes.plot([0], [0], "+", color="white", markersize=12, markeredgewidth=3.5)
        axes.plot([0], [0], "+", color="black", markersize=10, markeredgewidth=1.5)
        axes.tick_params(colors=GRAY, labelsize=8, length=3)
