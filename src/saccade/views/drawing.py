"""The pieces that pictures are made of: text in fonts that know its letters, a sheet measured in inches, heat maps and their labels."""

from __future__ import annotations

import functools
import math
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.image import AxesImage
from matplotlib.textpath import text_to_path

from .document import LONGEST, MISSING, is_undrawable, shorten

BASE_FAMILY = "DejaVu Sans"  # comes with matplotlib, so it is always installed
# They know letters that the base family lacks; only those that are installed are ever asked for.
WIDE_FAMILIES = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "Source Han Sans SC", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei",
    "Droid Sans Fallback", "Arial Unicode MS", "PingFang SC", "Hiragino Sans", "Microsoft YaHei", "SimHei", "Yu Gothic",
    "Malgun Gothic", "Noto Sans Devanagari", "Noto Sans Thai", "Noto Sans Bengali", "Noto Sans Tamil", "Unifont",
)  # fmt: skip
DPI = 150
MARGIN = 0.2  # inches around everything
TILT = math.radians(60)  # of the words along the top
GRAY, FAINT, EDGE = "#5a5a5a", "#e2e2e2", "#9a9a9a"
DARK = 0.516  # of the greatest weight; above it white letters have more contrast than black ones (WCAG 2)


@functools.cache
def families() -> list[str]:
    """The base family and every installed one that may know letters it lacks."""
    installed = {entry.name for entry in font_manager.fontManager.ttflist}
    return [BASE_FAMILY, *(name for name in WIDE_FAMILIES if name in installed)]


def drawable(text: str) -> str:
    """The text with □ for each letter that no font here can draw, because matplotlib would warn for each one."""
    faces = [font_manager.get_font(font_manager.findfont(name)) for name in families()]
    return "".join(sign if any(face.get_char_index(ord(sign)) for face in faces) else MISSING for sign in text)


def label(token: str, longest: int = LONGEST) -> str:
    """A token or a name as a label in a picture."""
    return drawable(shorten(token, longest))


def style(size: float, color: str = "#1a1a1a", weight: str = "normal") -> dict[str, Any]:
    """The keywords of every text in a picture; without `parse_math` a token with two dollar signs would become a formula."""
    return {"fontsize": size, "color": color, "fontweight": weight, "fontfamily": families(), "parse_math": False}


def width_of(text: str, size: float, weight: str = "normal") -> float:
    """The width in inches of a line of text at a font size in points."""
    font = FontProperties(family=families(), size=size, weight=weight)
    width, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return float(width) / 72


def wrap(text: str, size: float, width: float, weight: str = "normal") -> list[str]:
    """The text in at most 3 lines of about `width` inches."""
    text = drawable(" ".join("".join(" " if is_undrawable(sign) else sign for sign in text).split()))
    if not text:
        return []
    letters = max(8, int(0.95 * len(text) * width / max(width_of(text, size, weight), 1e-6)))
    return textwrap.wrap(text, letters, max_lines=3, placeholder=" …")


def sheet(width: float, body: float, title: str, note: str = "") -> tuple[Figure, float]:
    """A white figure with a title, a gray note under it and `body` inches of room; returns it and where the room begins."""
    inside = width - 2 * MARGIN
    lines = [(line, style(12, weight="bold"), 0.23) for line in wrap(title, 12, inside, "bold")]
    lines += [(line, style(8, GRAY), 0.17) for line in wrap(note, 8, inside)]
    height = MARGIN + sum(step for _, _, step in lines) + (0.08 if lines else 0.0) + body
    figure, top = Figure(figsize=(width, height), dpi=DPI, facecolor="white"), MARGIN
    for line, how, step in lines:
        figure.text(MARGIN / width, 1 - top / height, line, ha="left", va="top", **how)
        top += step
    return figure, height - body


def add_axes(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes at a position in inches from the top left corner."""
    across, down = figure.get_size_inches()
    return figure.add_axes((left / across, 1 - (top + height) / down, width / across, height / down))


def label_size(cell: float) -> float:
    """The font size in points that fits a cell's side in inches; letters smaller than 5 points cannot be read."""
    return float(np.clip(72 * cell * 0.8, 5, 10))


def label_room(rows: Sequence[str], columns: Sequence[str], cell: float) -> tuple[float, float, float]:
    """Inches that labels need to the left of the cells, above them, and to the right, where the last one leans over."""
    size = label_size(cell)
    longest = max(width_of(name, size) for name in columns)
    above = longest * math.sin(TILT) + size / 72 * math.cos(TILT) + 0.1
    return max(width_of(name, size) for name in rows) + 0.12, above, longest * math.cos(TILT)


def heat(axes: Axes, values: np.ndarray, cell: float, low: float, high: float) -> AxesImage:
    """One shade per cell, without ticks, with thin lines between cells that are large enough for them."""
    image = axes.imshow(values, cmap="gray_r", vmin=low, vmax=high, aspect="auto", interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.tick_params(length=0, pad=2)
    for spine in axes.spines.values():
        spine.set(color=EDGE, linewidth=0.6)
    if cell >= 0.1:
        for draw, count in ((axes.axvline, values.shape[1]), (axes.axhline, values.shape[0])):
            for n in range(1, count):
                draw(n - 0.5, color=FAINT, linewidth=0.5)
    return image


def name_rows(axes: Axes, names: Sequence[str], cell: float) -> None:
    """Words down the left; only every n-th where cells are too small."""
    every = max(1, math.ceil(label_size(cell) / (72 * cell)))
    axes.set_yticks(range(0, len(names), every), names[::every], **style(label_size(cell)))


def name_columns(axes: Axes, names: Sequence[str], cell: float) -> None:
    """Words along the top, each leaning over its own column; only every n-th where cells are too small."""
    every = max(1, math.ceil(label_size(cell) / (72 * cell)))
    how: dict[str, Any] = {"rotation": math.degrees(TILT), "rotation_mode": "anchor", "ha": "left", "va": "center"}
    how |= {"xycoords": axes.get_xaxis_transform(), "xytext": (0, 4), "textcoords": "offset points", "annotation_clip": False}
    for x in range(0, len(names), every):
        axes.annotate(names[x], xy=(x, 1), **how, **style(label_size(cell)))


def write_cells(axes: Axes, values: np.ndarray, low: float, high: float, size: float) -> None:
    """Each weight in the middle of its cell with two digits, as .87; nothing for what rounds to zero."""
    for (y, x), value in np.ndenumerate(values):
        text = f"{value:.2f}".replace("0.", ".", 1) if abs(value) < 0.995 else f"{round(value, 2):.3g}"
        if text.strip("-") != ".00":
            ink = "white" if (value - low) / (high - low) > DARK else "#1a1a1a"
            axes.text(x, y, text, ha="center", va="center_baseline", **style(size, ink))


def scale_bar(figure: Figure, image: AxesImage, axes: Axes) -> None:
    """What the shades mean, with numbers at both ends."""
    low, high = image.get_clim()
    bar = figure.colorbar(image, cax=axes)
    bar.set_ticks([low, high], labels=[f"{low:.3g}", f"{high:.3g}"], **style(8, GRAY))
    bar.minorticks_off()
    bar.outline.set(color=EDGE, linewidth=0.6)
    axes.tick_params(length=0, pad=3)
