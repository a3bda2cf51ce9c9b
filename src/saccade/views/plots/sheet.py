"""The look that all figures share: colors, text, sheets measured in inches, and files."""

import io
import os
import re
import textwrap
import warnings
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Figure
from matplotlib.text import Text

from ...files import write_atomically
from ..document import is_undrawable, shorten
from .fonts import boxed, families, find, ignore_missing_glyphs, width_of

DPI, PAGE_DPI = 150, 110  # of a file, and of a picture inside a page
MARGIN = 0.2  # inches around everything
INK, GRAY, FAINT, EDGE = "#1a1a1a", "#5a5a5a", "#e2e2e2", "#9a9a9a"
# Okabe & Ito's colors are distinct with any kind of color vision; their yellow is left out, for it is faint on white.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", "--", "-.", ":")
SVG_FONT = re.compile(rb"(style=\"[^\"]*font(?:-family)?: [^\";]*)")
# Neither date nor program is written: the same data gives the same bytes.
UNWRITTEN = {
    "png": ("Software",),
    "svg": ("Date", "Creator"),
    "pdf": ("CreationDate", "Creator", "Producer"),
}


def look(n: int) -> dict[str, Any]:
    """The style of the n-th series. Colors, markers and dashes repeat after different counts, so that series differ in gray too."""
    return {
        "color": COLORS[n % len(COLORS)],
        "marker": MARKERS[n % len(MARKERS)],
        "linestyle": DASHES[n % len(DASHES)],
    }


def style(
    size: float, color: str = INK, weight: str = "normal", text: str = "", **more: Any
) -> dict[str, Any]:
    """Keywords of a text, in fonts that have its characters. Without `parse_math`, a token with two dollar signs stays text."""
    return {
        "fontsize": size,
        "color": color,
        "fontweight": weight,
        "fontfamily": families(text),
        "parse_math": False,
        **more,
    }


def short_number(value: float) -> str:
    """A number for a cell or the end of a scale: .87, 1.0, .0012, 8,192."""
    if value == 0 or abs(value) >= 99.95:
        return f"{value:,.0f}"
    if abs(value) >= 0.995:
        return f"{value:.1f}"
    return (f"{value:.2f}" if abs(value) >= 0.05 else f"{value:.2g}").replace("0.", ".", 1)


def two_digits(value: float) -> str:
    """A weight as it is written into its cell: .87, 1.0."""
    return f"{value:.1f}" if abs(value) >= 0.995 else f"{value:.2f}".replace("0.", ".", 1)


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
    """A white figure with a title, a gray note and `body` inches of room; returns it and where the room begins."""
    find(title)
    inside = width - 2 * MARGIN
    headings = wrap(title, 12, inside, "bold")
    lines = [(line, style(12, weight="bold", text=line), 0.23) for line in headings]
    lines += [(line, style(8, GRAY, text=line), 0.17) for line in wrap(note, 8, inside)]
    height = MARGIN + sum(step for _, _, step in lines) + (0.08 if lines else 0.0) + body
    figure, top = Figure(figsize=(width, height), dpi=DPI, facecolor="white"), MARGIN
    figure.set_label(" ".join(headings))
    for line, how, step in lines:
        write(figure, MARGIN, top, line, va="top", **how)
        top += step
    return figure, height - body


def write(figure: Figure, left: float, top: float, text: str, **how: Any) -> None:
    """A text at a position in inches from the top left corner."""
    width, height = figure.get_size_inches()
    figure.text(left / width, 1 - top / height, text, **how)


def add_axes(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes at a position in inches from the top left corner."""
    across, down = figure.get_size_inches()
    return figure.add_axes(
        (left / across, 1 - (top + height) / down, width / across, height / down)
    )


def size_of(axes: Axes) -> tuple[float, float]:
    """Width and height of axes in inches."""
    figure = axes.get_figure(root=True)
    assert figure is not None, "axes of no figure"
    across, down = figure.get_size_inches()
    box = axes.get_position()
    return float(box.width * across), float(box.height * down)


def save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Writes PNG, SVG or PDF by the file's ending, as a whole or not at all."""
    path = Path(path)
    write_atomically(path, content_of(figure, path.suffix.lower().removeprefix(".")))
    return path


def png(figure: Figure) -> bytes:
    """The picture for a page."""
    return content_of(figure, "png", PAGE_DPI)


def content_of(figure: Figure, kind: str, dpi: float = DPI) -> bytes:
    """The content of a file of this kind, with the figure's title in its metadata."""
    content = io.BytesIO()
    if kind != "svg":  # there a viewer may have the font
        put_boxes(figure)
    metadata: dict[str, str | None] = dict.fromkeys(UNWRITTEN.get(kind, ()))
    if kind in UNWRITTEN and figure.get_label():
        metadata["Title"] = str(figure.get_label())
    with (
        matplotlib.rc_context({"svg.hashsalt": "saccade", "svg.fonttype": "none"}),
        warnings.catch_warnings(),
    ):
        ignore_missing_glyphs()
        figure.savefig(content, format=kind, dpi=dpi, metadata=metadata)
    # text stays text, so that a viewer draws it with fonts of its own where it lacks these
    made = content.getvalue()
    return SVG_FONT.sub(rb"\1, sans-serif", made) if kind == "svg" else made


def put_boxes(figure: Figure) -> None:
    """Replaces each character that no font has with a box."""
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        names = [one.get_text() for one in axis.get_ticklabels()]
        # an axis writes its labels anew when it is drawn
        if [boxed(name) for name in names] != names:
            axis.set_ticklabels([boxed(name) for name in names])
    for text in figure.findobj(Text):
        text.set_text(boxed(text.get_text()))
