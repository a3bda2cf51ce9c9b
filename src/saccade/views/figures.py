"""Pictures of attention and of results, as matplotlib Figures; weights are dark on white, readable and fit for a printer."""

import io
import math
import os
import re
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.image import AxesImage
from matplotlib.text import Text

from ..files import write_atomically
from .document import Site, is_undrawable, shorten
from .fonts import boxed, find, ignore_missing_glyphs
from .fonts import families as families
from .fonts import width_of as width_of
from .selection import is_flat, shade_range

label = shorten  # a token or a name in a picture
DPI = 150
MARGIN = 0.2  # inches around everything
TILT = math.radians(60)  # of the words along the top
GRAY, FAINT, EDGE = "#5a5a5a", "#e2e2e2", "#9a9a9a"
DARK = 0.516  # of the greatest weight; above it white letters have more contrast than black ones (WCAG 2)
MOST_HEADS = 16
MOST_NUMBERED = 40  # words per side up to which every cell is large enough for its number
LEGEND = "darker = more weight"
WIDEST_NOTE = 7.0  # inches that a picture of few cells is widened to, so that its note is one line
NARROWEST = 3.6  # inches, so that a title over one single cell is not broken into syllables
THINNEST = 0.2  # inches, so that one word against hundreds is still a strip
PICTURE = 1.1  # inches of the longer side of a picture
BAR_ROOM, GAP = 0.9, 0.18
NAME_STEP, LONGEST_NAME = 0.2, 40  # inches between two names in a legend, and letters of a name
# Okabe & Ito's colors, which people with any kind of color vision can distinguish, without the yellow that white swallows.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
# Neither date nor program is written: the same weights give the same bytes.
SVG_FONT = re.compile(rb"(style=\"[^\"]*font(?:-family)?: [^\";]*)")
METADATA = {
    "png": ("Software",),
    "svg": ("Date", "Creator"),
    "pdf": ("CreationDate", "Creator", "Producer"),
}


def alignment(
    site: Site, title: str = "", model: str = "", head: int | None = None, legend: str = LEGEND
) -> Figure:
    """Who looked at whom, by one head or the mean of all: queries down the left, keys along the top (Bahdanau et al. 2015, Figure 3)."""
    longest, count = max(len(site.rows), len(site.columns)), len(site.weights)
    cell = 0.4 if longest <= 16 else 0.34 * min(1.0, MOST_NUMBERED / longest)
    weights = np.mean(site.weights, 0) if head is None else np.asarray(site.weights[head])
    which = f"head {head}" if head is not None else f"average of {count} heads" if count > 1 else ""
    flat = (
        "nearly the same for all"
        if len(weights) == 1 < weights.shape[1] and is_flat(weights[0])
        else ""
    )
    return _panels(
        site, title, (model, site.name, which, flat, legend), {"": weights}, max(0.02, cell)
    )


def heads(site: Site, title: str = "", model: str = "") -> Figure:
    """All heads of a site side by side on one scale, up to 16 of them (Vaswani et al. 2017, appendix)."""
    count = len(site.weights)
    which = (
        f"the first {MOST_HEADS} of {count} heads"
        if count > MOST_HEADS
        else f"{count} head{'s' * (count > 1)}"
    )
    shown = {
        f"head {n}": np.asarray(weights) for n, weights in enumerate(site.weights[:MOST_HEADS])
    }
    return _panels(
        site,
        title,
        (model, site.name, which, LEGEND),
        shown,
        min(0.34, 2.4 / max(len(site.rows), len(site.columns))),
    )


def _panels(
    site: Site, title: str, notes: Sequence[str], panels: Mapping[str, np.ndarray], cell: float
) -> Figure:
    """Heat maps of one scale, each with its name under it; a single one without a name gets numbers where they fit."""
    named, weights = "" not in panels, np.stack(list(panels.values()))
    low, high = shade_range(weights)
    rows, columns = [label(token) for token in site.rows], [label(token) for token in site.columns]
    find("".join((title, *rows, *columns)))
    # so that few positions stay empty
    across = {1: 1, 2: 2, 3: 3, 4: 2, 5: 3, 6: 3, 9: 3}.get(len(panels), 4)
    # points that fit a cell; letters smaller than 5 cannot be read
    size = float(np.clip(72 * cell * 0.8, 5, 10))
    left, longest = (max(width_of(name, size) for name in names) for names in (rows, columns))
    # the last of the leaning labels needs room to the right
    left, right = (left + 0.12, longest * math.cos(TILT))
    above = longest * math.sin(TILT) + size / 72 * math.cos(TILT) + 0.1
    # only every n-th word is written where cells are too small
    every = max(1, math.ceil(size / (72 * cell)))
    tilt: dict[str, Any] = {
        "rotation": math.degrees(TILT),
        "rotation_mode": "anchor",
        "ha": "left",
        "va": "center",
    }
    wide, tall = max(cell * len(columns), THINNEST), max(cell * len(rows), THINNEST)
    step, down = max(wide + GAP, 0.6), tall + (0.36 if named else 0.0)
    end = MARGIN + left + (across - 1) * step + wide
    body = above + math.ceil(len(panels) / across) * down + (0.08 if named else MARGIN)
    note = " · ".join(filter(None, notes))
    narrowest = max(NARROWEST, min(width_of(note, 8) / 0.94 + 2 * MARGIN, WIDEST_NOTE))
    figure, top = sheet(max(end + max(right, BAR_ROOM) + MARGIN, narrowest), body, title, note)
    for index, (name, values) in enumerate(panels.items()):
        y, x = divmod(index, across)
        axes = add_axes(figure, MARGIN + left + x * step, top + above + y * down, wide, tall)
        image = heat(axes, values, cell, low, high)
        beside, over = rows if x == 0 else [], columns if y == 0 else []
        axes.set_yticks(
            range(0, len(beside), every), beside[::every], **style(size, text="".join(rows))
        )
        axes.xaxis.tick_top()
        axes.set_xticks(
            range(0, len(over), every), over[::every], **style(size, text="".join(columns)), **tilt
        )
        if named:
            axes.set_xlabel(name, labelpad=4, **style(8, GRAY))
        elif max(values.shape) <= MOST_NUMBERED:
            # nothing for what rounds to zero
            for (down_at, across_at), value in np.ndenumerate(values):
                ink = "white" if (value - low) / (high - low) > DARK else "#1a1a1a"
                if abs(value) >= 0.005:
                    how = style(72 * cell * 0.27, ink)
                    axes.text(
                        across_at,
                        down_at,
                        two_digits(value),
                        ha="center",
                        va="center_baseline",
                        **how,
                    )
    height = min(tall, 1.6)
    bar = figure.colorbar(
        image, cax=add_axes(figure, end + GAP, top + above + tall - height, 0.12, height)
    )
    ends = [
        "0"
        if end == 0
        else two_digits(end)
        if abs(end) >= 0.05
        else f"{end:.2g}".replace("0.", ".", 1)
        for end in (low, high)
    ]
    bar.set_ticks(
        [low, high], labels=[f"≤ {ends[0]}" if low > 0 else ends[0], ends[1]], **style(8, GRAY)
    )
    bar.minorticks_off()
    bar.outline.set(color=EDGE, linewidth=0.6)
    bar.ax.tick_params(length=0, pad=3)
    return figure


def lines(
    series: Mapping[str, Sequence[tuple[float, float]]], x_label: str, y_label: str, title: str
) -> Figure:
    """One line per name through its (x, y) points, such as BLEU against sentence length; names are in the order of the lines' ends."""
    names = [label(name, LONGEST_NAME) for name in series]
    find("".join((title, x_label, y_label, *names)))
    wide, tall = 5.2, max(3.1, NAME_STEP * len(series))
    name_room = max(width_of(name, 9) for name in names) + 0.95
    figure, top = sheet(
        MARGIN + 0.75 + wide + name_room + MARGIN, 0.1 + tall + 0.45 + MARGIN, title
    )
    axes = add_axes(figure, MARGIN + 0.75, top + 0.1, wide, tall)
    drawn = []
    # colors and markers have different periods, so that many lines differ
    for n, points in enumerate(series.values()):
        look: dict[str, Any] = {
            "color": COLORS[n % len(COLORS)],
            "marker": MARKERS[n % len(MARKERS)],
            "markeredgecolor": "white",
        }
        look |= {"markersize": 7, "markeredgewidth": 0.5}  # a wider edge would hide a star
        drawn += axes.plot(*zip(*sorted(points), strict=True), linewidth=1.8, zorder=3, **look)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(EDGE)
    axes.grid(color=FAINT, linewidth=0.6)
    axes.tick_params(colors=GRAY, labelsize=8, length=3)
    axes.set_xlabel(x_label, **style(9, text=x_label))
    axes.set_ylabel(y_label, **style(9, text=y_label))
    order = sorted(range(len(drawn)), key=lambda n: -float(np.asarray(drawn[n].get_ydata())[-1]))
    font = FontProperties(family=families("".join(names)), size=9)
    # a box of its own: its marks are not data
    look = {
        "loc": "center left",
        "bbox_to_anchor": (1, 0.5),
        "prop": font,
        "frameon": True,
        "edgecolor": EDGE,
    }
    look |= {"fancybox": False, "handlelength": 3.2}
    legend = axes.legend(
        [drawn[n] for n in order],
        [names[n] for n in order],
        borderaxespad=1.4,
        labelspacing=0.3,
        **look,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure


def before_after(made: Sequence[Any], title: str = "") -> Figure:
    """Pictures as they were, as they were read where noise was added, and as a model made them: a column for each."""
    kinds = {
        "before": [one.before for one in made],
        "noisy": [one.noisy for one in made],
        "after": [one.after for one in made],
    }
    rows = {name: pictures for name, pictures in kinds.items() if pictures[0] is not None}
    high, wide = made[0].before.shape[:2]
    scale = PICTURE / max(high, wide)
    left, across, down = (
        width_of("before", 9) + 0.12,
        scale * wide + GAP / 2,
        scale * high + GAP / 2,
    )
    note = "PSNR in decibels: more is closer"
    width = max(2 * MARGIN + left + across * len(made), NARROWEST)
    figure, top = sheet(width, down * len(rows) + 0.3, title, note)
    for y, (name, pictures) in enumerate(rows.items()):
        for x, pixels in enumerate(pictures):
            axes = add_axes(
                figure, MARGIN + left + x * across, top + y * down, scale * wide, scale * high
            )
            axes.imshow(pixels, interpolation="nearest", aspect="auto")
            axes.set_xticks([])
            axes.set_yticks([])
            axes.spines[:].set_visible(False)
            if x == 0:
                axes.set_ylabel(name, rotation=0, ha="right", va="center", **style(9))
            if name == "after":
                axes.set_xlabel(f"{made[x].psnr:.1f}", labelpad=3, **style(8, GRAY))
    return figure


def save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Writes PNG, SVG or PDF by the name's ending, as a whole or not at all."""
    path = Path(path)
    kind = path.suffix.lower().removeprefix(".")
    content = io.BytesIO()
    if kind != "svg":  # there a viewer may have the font
        put_boxes(figure)
    with (
        matplotlib.rc_context({"svg.hashsalt": "saccade", "svg.fonttype": "none"}),
        warnings.catch_warnings(),
    ):
        ignore_missing_glyphs()
        figure.savefig(
            content, format=kind, dpi=figure.dpi, metadata=dict.fromkeys(METADATA.get(kind, ()))
        )
    made = content.getvalue()
    # text stays text, so that a viewer draws it with fonts of its own where it lacks these
    if kind == "svg":
        made = SVG_FONT.sub(rb"\1, sans-serif", made)
    write_atomically(path, made)
    return path


def put_boxes(figure: Figure) -> None:
    """A box instead of each character that no font has."""
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        names = [one.get_text() for one in axis.get_ticklabels()]
        # an axis writes its labels anew when it is drawn
        if [boxed(name) for name in names] != names:
            axis.set_ticklabels([boxed(name) for name in names])
    for text in figure.findobj(Text):
        text.set_text(boxed(text.get_text()))


def two_digits(value: float) -> str:
    """A weight as it is written into its cell: .87, 1.0."""
    return f"{value:.1f}" if abs(value) >= 0.995 else f"{value:.2f}".replace("0.", ".", 1)


def style(
    size: float, color: str = "#1a1a1a", weight: str = "normal", text: str = ""
) -> dict[str, Any]:
    """The keywords of a text in fonts that have it; without `parse_math` a token with two dollar signs would become a formula."""
    return {
        "fontsize": size,
        "color": color,
        "fontweight": weight,
        "fontfamily": families(text),
        "parse_math": False,
    }


def wrap(text: str, size: float, width: float, weight: str = "normal") -> list[str]:
    """The text in at most 3 lines of about `width` inches."""
    text = " ".join("".join(" " if is_undrawable(sign) else sign for sign in text).split())
    if not text:
        return []
    letters = max(8, int(0.95 * len(text) * width / max(width_of(text, size, weight), 1e-6)))
    return textwrap.wrap(text, letters, max_lines=3, placeholder=" …")


def fitted(text: str, size: float, width: float, weight: str = "normal") -> str:
    """As much of a text as fits into a width in inches, with … where something was left out."""
    shown = shorten(text, max(24, int(20 * width)))
    while len(shown) > 2 and width_of(shown, size, weight) > width:
        shown = shown[:-2] + "…"
    return shown


def sheet(width: float, body: float, title: str, note: str = "") -> tuple[Figure, float]:
    """A white figure with a title, a gray note under it and `body` inches of room; returns it and where the room begins."""
    inside = width - 2 * MARGIN
    lines = [
        (line, style(12, weight="bold", text=line), 0.23)
        for line in wrap(title, 12, inside, "bold")
    ]
    lines += [(line, style(8, GRAY, text=line), 0.17) for line in wrap(note, 8, inside)]
    height = MARGIN + sum(step for _, _, step in lines) + (0.08 if lines else 0.0) + body
    figure, top = Figure(figsize=(width, height), dpi=DPI, facecolor="white"), MARGIN
    for line, how, step in lines:
        figure.text(MARGIN / width, 1 - top / height, line, ha="left", va="top", **how)
        top += step
    return figure, height - body


def add_axes(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes at a position in inches from the top left corner."""
    across, down = figure.get_size_inches()
    return figure.add_axes(
        (left / across, 1 - (top + height) / down, width / across, height / down)
    )


def heat(
    axes: Axes, values: np.ndarray, cell: float, low: float, high: float, shades: str = "gray_r"
) -> AxesImage:
    """One shade per cell, with thin lines between cells that are large enough for them."""
    image = axes.imshow(
        values, cmap=shades, vmin=low, vmax=high, aspect="auto", interpolation="nearest"
    )
    axes.tick_params(length=0, pad=3)
    for spine in axes.spines.values():
        spine.set(color=EDGE, linewidth=0.6)
    if cell >= 0.1:
        for draw, count in ((axes.axvline, values.shape[1]), (axes.axhline, values.shape[0])):
            for n in range(1, count):
                draw(n - 0.5, color=FAINT, linewidth=0.5)
    return image
