"""Text in pictures: fonts that know the letters, how wide a line gets, and where a title breaks."""

from __future__ import annotations

import functools
import textwrap
from typing import Any

from matplotlib import font_manager
from matplotlib.font_manager import FontProperties
from matplotlib.ft2font import FT2Font
from matplotlib.textpath import text_to_path

from .labels import LONGEST, MISSING, is_undrawable, shorten

BASE_FAMILY = "DejaVu Sans"  # comes with matplotlib, so it is always there
# They know letters that the base family lacks; only those that are installed are ever asked for.
WIDE_FAMILIES = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "Source Han Sans SC", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei",
    "Droid Sans Fallback", "Arial Unicode MS", "PingFang SC", "Hiragino Sans", "Microsoft YaHei", "SimHei", "Yu Gothic",
    "Malgun Gothic", "Noto Sans Devanagari", "Noto Sans Thai", "Noto Sans Bengali", "Noto Sans Tamil", "Unifont",
)  # fmt: skip


@functools.cache
def families() -> tuple[str, ...]:
    """The base family and every installed one that may know letters it lacks."""
    installed = {entry.name for entry in font_manager.fontManager.ttflist}
    return (BASE_FAMILY, *(name for name in WIDE_FAMILIES if name in installed))


@functools.cache
def _faces() -> tuple[FT2Font, ...]:
    """The opened font files behind `families`."""
    return tuple(font_manager.get_font(font_manager.findfont(FontProperties(family=name))) for name in families())


def drawable(text: str) -> str:
    """The text with □ for each letter that no font here can draw, because matplotlib would warn for each one."""
    return "".join(sign if any(face.get_char_index(ord(sign)) for face in _faces()) else MISSING for sign in text)


def label(token: str, longest: int = LONGEST) -> str:
    """A token or a name as a label in a picture."""
    return drawable(shorten(token, longest))


def style(size: float, color: str = "#1a1a1a", weight: str = "normal") -> dict[str, Any]:
    """The keywords of every text in a picture; without `parse_math` a token with two dollar signs would become a formula."""
    return {"fontsize": size, "color": color, "fontweight": weight, "fontfamily": list(families()), "parse_math": False}


def width_of(text: str, size: float, weight: str = "normal") -> float:
    """The width in inches of a line of text at a font size in points."""
    font = FontProperties(family=list(families()), size=size, weight=weight)
    width, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return float(width) / 72


def wrapped(text: str, size: float, width: float, weight: str = "normal", most: int = 3) -> list[str]:
    """The text in at most `most` lines of about `width` inches."""
    text = drawable(" ".join("".join(" " if is_undrawable(sign) else sign for sign in text).split()))
    if not text:
        return []
    letters = max(8, int(0.95 * len(text) * width / max(width_of(text, size, weight), 1e-6)))
    return textwrap.wrap(text, letters, max_lines=most, placeholder=" …")
