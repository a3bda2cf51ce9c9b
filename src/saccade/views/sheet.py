"""The parts that pictures are put together from: a sheet measured in inches, its heading, heat maps, labels and a scale."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from .lettering import style, width_of, wrapped

DPI = 150
MARGIN = 0.2  # inches around everything
TILT = 60  # degrees of the words along the top
GRAY = "#5a5a5a"
FAINT = "#e2e2e2"
SMALLEST = 5.0  # points; smaller letters cannot be read


class Heading:
    """A title and a gray line under it, wrapped to the width of the sheet."""

    def __init__(self, title: str, note: str, width: float) -> None:
        inside = width - 2 * MARGIN
        self.lines = [(line, style(12, weight="bold"), 0.23) for line in wrapped(title, 12, inside, "bold")]
        self.lines += [(line, style(8, GRAY), 0.17) for line in wrapped(note, 8, inside)]
        self.height = MARGIN + sum(step for _, _, step in self.lines) + (0.08 if self.lines else 0.0)

    def write(self, figure: Figure) -> None:
        """Puts the lines at the top left."""
        width, height = figure.get_size_inches()
        top = height - MARGIN
        for line, how, step in self.lines:
            figure.text(MARGIN / width, top / height, line, ha="left", va="top", **how)
            top -= step


def sheet(width: float, height: float) -> Figure:
    """An empty white figure of that many inches with a canvas of its own."""
    figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def place(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes at a place in inches from the top left corner."""
    across, down = figure.get_size_inches()
    return figure.add_axes((left / across, 1 - (top + height) / down, width / across, height / down))


def label_size(cell: float) -> float:
    """The font size in points that fits a cell's side in inches."""
    return float(np.clip(72 * cell * 0.8, SMALLEST, 10))


def label_room(rows: Sequence[str], columns: Sequence[str], size: float) -> tuple[float, float, float]:
    """Inches that labels need to the left of the cells, above them, and to the right, where the last one leans over."""
    longest = max(width_of(name, size) for name in columns)
    lean, line = math.radians(TILT), size / 72
    above = longest * math.sin(lean) + line * math.cos(lean) + 0.1
    return max(width_of(name, size) for name in rows) + 0.12, above, longest * math.cos(lean)


def heat(axes: Axes, values: np.ndarray, colors: str, low: float, high: float) -> AxesImage:
    """One shade a cell, exactly as large as the axes, without ticks."""
    image = axes.imshow(values, cmap=colors, vmin=low, vmax=high, aspect="auto", interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.tick_params(length=0, pad=2)
    for spine in axes.spines.values():
        spine.set(color="#9a9a9a", linewidth=0.6)
    return image


def rule(axes: Axes, shape: tuple[int, ...], cell: float, color: str = FAINT) -> None:
    """Thin lines between the cells, where cells are large enough to bear them."""
    if cell < 0.1:
        return
    for x in range(1, shape[1]):
        axes.axvline(x - 0.5, color=color, linewidth=0.5)
    for y in range(1, shape[0]):
        axes.axhline(y - 0.5, color=color, linewidth=0.5)


def name_rows(axes: Axes, names: Sequence[str], cell: float) -> None:
    """Words down the left; every n-th only, where cells are too small for one each."""
    size = label_size(cell)
    every = max(1, math.ceil(size / (72 * cell)))
    axes.set_yticks(range(0, len(names), every), names[::every], **style(size))


def name_columns(axes: Axes, names: Sequence[str], cell: float, tilt: float = TILT) -> None:
    """Words along the top, each leaning over its own column; every n-th only, where cells are too small for one each."""
    size = label_size(cell)
    every = max(1, math.ceil(size / (72 * cell)))
    for x in range(0, len(names), every):
        axes.annotate(
            names[x],
            xy=(x, 1),
            xycoords=axes.get_xaxis_transform(),
            xytext=(0, 4),
            textcoords="offset points",
            rotation=tilt,
            rotation_mode="anchor",
            ha="left" if tilt else "center",
            va="center" if tilt else "bottom",
            annotation_clip=False,
            **style(size),
        )


def write_cells(axes: Axes, image: AxesImage, texts: Sequence[Sequence[str]], size: float) -> None:
    """A text in the middle of each cell, white on dark shades and black on light ones."""
    values = np.asarray(image.get_array())
    shades = np.asarray(image.to_rgba(values))[..., :3]
    linear = np.where(shades <= 0.04045, shades / 12.92, ((shades + 0.055) / 1.055) ** 2.4)
    dark = linear @ [0.2126, 0.7152, 0.0722] < 0.2  # luminance (WCAG 2); at 0.2 both inks stand out equally, by more than 4 to 1
    for y, row in enumerate(texts):
        for x, text in enumerate(row):
            if text:
                axes.text(x, y, text, ha="center", va="center_baseline", **style(size, "white" if dark[y, x] else "#1a1a1a"))


def scale_bar(figure: Figure, image: AxesImage, axes: Axes) -> None:
    """What the shades mean, with numbers at both ends."""
    bar = figure.colorbar(image, cax=axes)
    low, high = image.get_clim()
    bar.set_ticks([low, high], labels=[f"{low:.3g}", f"{high:.3g}"], **style(8, GRAY))
    bar.minorticks_off()
    bar.outline.set(color="#9a9a9a", linewidth=0.6)
    axes.tick_params(length=0, pad=3)
