"""Pictures of attention and of results, as matplotlib Figures; weights are dark on white, readable and fit for a printer."""

import functools
import io
import math
import os
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.image import AxesImage
from matplotlib.textpath import text_to_path

from ..files import write_atomically
from .document import LONGEST, MISSING, Site, is_undrawable, shorten

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
MOST_HEADS = 16
MOST_NUMBERED = 40  # words per side up to which every cell is large enough for its number
NARROWEST = 3.6  # inches, so that a title over one single cell is not broken into syllables
THINNEST = 0.2  # inches, so that one word against hundreds is still a strip
BAR_ROOM, GAP = 0.9, 0.18
NAME_STEP, LONGEST_NAME = 0.2, 40  # inches between two names in a legend, and letters of a name
# Okabe & Ito's colors, which people with any kind of color vision can distinguish, without the yellow that white swallows.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
# Neither date nor program is written: the same weights give the same bytes.
METADATA = {"png": ("Software",), "svg": ("Date", "Creator"), "pdf": ("CreationDate", "Creator", "Producer")}


def alignment(site: Site, title: str = "") -> Figure:
    """Who looked at whom, by the mean of the heads: queries down the left, keys along the top (Bahdanau et al. 2015, Figure 3)."""
    longest, count = max(len(site.rows), len(site.columns)), len(site.weights)
    cell = 0.4 if longest <= 16 else 0.34 * min(1.0, MOST_NUMBERED / longest)
    note = f"average of {count} heads" if count > 1 else ""
    return _panels(site, title, note, {"": np.mean(site.weights, 0)}, max(0.02, cell))


def heads(site: Site, title: str = "") -> Figure:
    """All heads of a site side by side on one scale, up to 16 of them (Vaswani et al. 2017, appendix)."""
    count = len(site.weights)
    note = f"the first {MOST_HEADS} of {count} heads" if count > MOST_HEADS else f"{count} head{'s' * (count > 1)}"
    shown = {f"head {n}": np.asarray(weights) for n, weights in enumerate(site.weights[:MOST_HEADS])}
    return _panels(site, title, note, shown, min(0.34, 2.4 / max(len(site.rows), len(site.columns))))


def _panels(site: Site, title: str, note: str, panels: Mapping[str, np.ndarray], cell: float) -> Figure:
    """Heat maps of one scale, each with its name under it; a single one without a name gets numbers where they fit."""
    named, weights = "" not in panels, np.stack(list(panels.values()))
    low, high = min(0.0, float(weights.min())), float(weights.max()) if weights.max() > 0 else 1.0
    rows, columns = [label(token) for token in site.rows], [label(token) for token in site.columns]
    across = {1: 1, 2: 2, 3: 3, 4: 2, 5: 3, 6: 3, 9: 3}.get(len(panels), 4)  # so that few positions stay empty
    size = float(np.clip(72 * cell * 0.8, 5, 10))  # points that fit a cell; letters smaller than 5 cannot be read
    left, longest = (max(width_of(name, size) for name in names) for names in (rows, columns))
    left, right = left + 0.12, longest * math.cos(TILT)  # the last of the leaning labels needs room to the right
    above = longest * math.sin(TILT) + size / 72 * math.cos(TILT) + 0.1
    every = max(1, math.ceil(size / (72 * cell)))  # only every n-th word is written where cells are too small
    tilt: dict[str, Any] = {"rotation": math.degrees(TILT), "rotation_mode": "anchor", "ha": "left", "va": "center"}
    wide, tall = max(cell * len(columns), THINNEST), max(cell * len(rows), THINNEST)
    step, down = max(wide + GAP, 0.6), tall + (0.36 if named else 0.0)
    end = MARGIN + left + (across - 1) * step + wide
    body = above + math.ceil(len(panels) / across) * down + (0.08 if named else MARGIN)
    note = " · ".join(filter(None, [site.name, note, "darker = more weight"]))
    figure, top = sheet(max(end + max(right, BAR_ROOM) + MARGIN, NARROWEST), body, title, note)
    for index, (name, values) in enumerate(panels.items()):
        y, x = divmod(index, across)
        axes = add_axes(figure, MARGIN + left + x * step, top + above + y * down, wide, tall)
        image = heat(axes, values, cell, low, high)
        beside, over = rows if x == 0 else [], columns if y == 0 else []
        axes.set_yticks(range(0, len(beside), every), beside[::every], **style(size))
        axes.xaxis.tick_top()
        axes.set_xticks(range(0, len(over), every), over[::every], **style(size), **tilt)
        if named:
            axes.set_xlabel(name, labelpad=4, **style(8, GRAY))
        elif max(values.shape) <= MOST_NUMBERED:
            for (down_at, across_at), value in np.ndenumerate(values):  # two digits, as .87; nothing for what rounds to zero
                text = f"{value:.2f}".replace("0.", ".", 1) if abs(value) < 0.995 else f"{round(value, 2):.3g}"
                ink = "white" if (value - low) / (high - low) > DARK else "#1a1a1a"
                if text.strip("-") != ".00":
                    axes.text(across_at, down_at, text, ha="center", va="center_baseline", **style(72 * cell * 0.27, ink))
    height = min(tall, 1.6)
    bar = figure.colorbar(image, cax=add_axes(figure, end + GAP, top + above + tall - height, 0.12, height))
    bar.set_ticks([low, high], labels=[f"{low:.3g}", f"{high:.3g}"], **style(8, GRAY))
    bar.minorticks_off()
    bar.outline.set(color=EDGE, linewidth=0.6)
    bar.ax.tick_params(length=0, pad=3)
    return figure


def lines(series: Mapping[str, Sequence[tuple[float, float]]], x_label: str, y_label: str, title: str) -> Figure:
    """One line per name through its (x, y) points, such as BLEU against sentence length; names are in the order of the lines' ends."""
    names = [label(name, LONGEST_NAME) for name in series]
    wide, tall = 5.2, max(3.1, NAME_STEP * len(series))
    name_room = max(width_of(name, 9) for name in names) + 0.95
    figure, top = sheet(MARGIN + 0.75 + wide + name_room + MARGIN, 0.1 + tall + 0.45 + MARGIN, title)
    axes = add_axes(figure, MARGIN + 0.75, top + 0.1, wide, tall)
    drawn = []
    for n, points in enumerate(series.values()):  # colors and markers have different periods, so that many lines differ
        look: dict[str, Any] = {"color": COLORS[n % len(COLORS)], "marker": MARKERS[n % len(MARKERS)], "markeredgecolor": "white"}
        drawn += axes.plot(*zip(*sorted(points), strict=True), linewidth=1.8, zorder=3, **look)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(EDGE)
    axes.grid(color=FAINT, linewidth=0.6)
    axes.tick_params(colors=GRAY, labelsize=8, length=3)
    axes.set_xlabel(drawable(x_label), **style(9))
    axes.set_ylabel(drawable(y_label), **style(9))
    order = sorted(range(len(drawn)), key=lambda n: -float(np.asarray(drawn[n].get_ydata())[-1]))
    look = {"loc": "center left", "bbox_to_anchor": (1, 0.5), "prop": FontProperties(family=families(), size=9)}
    look |= {
        "frameon": True,
        "edgecolor": EDGE,
        "fancybox": False,
        "handlelength": 3.2,
    }  # a box of its own: its marks are not data
    legend = axes.legend([drawn[n] for n in order], [names[n] for n in order], borderaxespad=1.4, labelspacing=0.3, **look)
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure


def save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Writes PNG, SVG or PDF by the name's ending, as a whole or not at all."""
    path = Path(path)
    kind = path.suffix.lower().removeprefix(".")
    content = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "saccade"}):
        figure.savefig(content, format=kind, dpi=figure.dpi, metadata=dict.fromkeys(METADATA.get(kind, ())))
    write_atomically(path, content.getvalue())
    return path


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


def heat(axes: Axes, values: np.ndarray, cell: float, low: float, high: float) -> AxesImage:
    """One shade per cell, with thin lines between cells that are large enough for them."""
    image = axes.imshow(values, cmap="gray_r", vmin=low, vmax=high, aspect="auto", interpolation="nearest")
    axes.tick_params(length=0, pad=3)
    for spine in axes.spines.values():
        spine.set(color=EDGE, linewidth=0.6)
    if cell >= 0.1:
        for draw, count in ((axes.axvline, values.shape[1]), (axes.axhline, values.shape[0])):
            for n in range(1, count):
                draw(n - 0.5, color=FAINT, linewidth=0.5)
    return image
