"""Fonts for figures: an installed family for every character, including families installed a moment ago."""

import contextlib
import functools
import logging
import unicodedata
import warnings

from matplotlib import font_manager
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from ..document import MISSING

BASE_FAMILY = "DejaVu Sans"  # comes with matplotlib, so it is always installed
# Asked first of families that have equally many of the characters; Japanese before Chinese ones, which have all that those have.
PREFERRED = (
    "Noto Sans CJK JP", "Noto Sans JP", "IPAGothic", "TakaoGothic", "Hiragino Sans", "Yu Gothic", "Noto Sans CJK SC", "Noto Sans SC",
    "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "PingFang SC", "Microsoft YaHei", "Droid Sans Fallback", "Noto Sans KR", "NanumGothic",
    "UnBatang", "Malgun Gothic", "Noto Sans Devanagari", "Noto Sans Thai", "Noto Sans Arabic", "Arial Unicode MS", "Unifont",
)  # fmt: skip
# how families begin that have boxes or glyphs of formulas instead of letters
NO_LETTERS = ("Last Resort", "Adobe Blank", "cm")
# A family without the exact weight is right where only it has a character.
logging.getLogger("matplotlib.font_manager").addFilter(
    lambda record: "Failed to find font" not in record.getMessage()
)


def families(text: str = "") -> list[str]:
    """The base family, and a few installed families for the characters that it lacks."""
    return [BASE_FAMILY, *_cover(_beyond_base(text))[0]]


def find(text: str) -> str:
    """Find fonts for a text, including new ones. Returns a sentence about characters that no font has, and which package to install."""
    # matplotlib keeps its list in a cache for ever
    known = {entry.fname for entry in font_manager.fontManager.ttflist}
    for path in (
        sorted(set(font_manager.findSystemFonts()) - known) if _cover(_beyond_base(text))[1] else ()
    ):
        # a broken file, letters made of pixels
        with contextlib.suppress(OSError, RuntimeError, ValueError, NotImplementedError):
            font_manager.fontManager.addfont(path)
            _cover.cache_clear()
    left = _cover(_beyond_base(text))[1]
    signs = [sign for sign in dict.fromkeys(text) if sign in left]
    shown = " ".join(signs[:8]) + (" …" if len(signs) > 8 else "")
    package = (
        "fonts-noto-cjk"
        if any(unicodedata.east_asian_width(sign) == "W" for sign in signs)
        else "fonts-noto-core"
    )
    return f"no font here has {shown}; install {package}, or write .html" if signs else ""


def boxed(text: str) -> str:
    """The text with a box for each character that no font has. Matplotlib would draw a sign of its last font, which reads as another letter."""
    left = _cover(_beyond_base(text))[1]
    return "".join(MISSING if sign in left else sign for sign in text)


def width_of(text: str, size: float, weight: str = "normal") -> float:
    """The width in inches of a line of text at a font size in points."""
    font = FontProperties(family=families(text), size=size, weight=weight)
    with warnings.catch_warnings():
        ignore_missing_glyphs()
        width, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return float(width) / 72


def ignore_missing_glyphs() -> None:
    """Silence matplotlib's warning for each missing character. Call it inside `catch_warnings`."""
    warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from")


@functools.cache
def _cover(signs: frozenset[str]) -> tuple[list[str], frozenset[str]]:
    """Few installed families that have these characters, and the characters that none has."""
    found: list[str] = []
    installed = {
        entry.name
        for entry in font_manager.fontManager.ttflist
        if not entry.name.startswith(NO_LETTERS)
    }
    order = [name for name in PREFERRED if name in installed] + sorted(installed - {*PREFERRED})
    while signs:
        best = max(order, key=lambda name: len(signs & _signs_of(name)))
        if not signs & _signs_of(best):
            break
        found.append(best)
        signs -= _signs_of(best)
    return found, signs


@functools.cache
def _signs_of(family: str) -> frozenset[str]:
    face = font_manager.get_font(font_manager.findfont(FontProperties(family=[family])))
    return frozenset(map(chr, face.get_charmap()))


def _beyond_base(text: str) -> frozenset[str]:
    """The characters of a text that the base family lacks; blanks, joiners and variation selectors need no glyph."""
    lacking = {*text} - _signs_of(BASE_FAMILY)
    return frozenset(
        sign
        for sign in lacking
        if unicodedata.category(sign)[0] not in "CZ" and not "\ufe00" <= sign <= "\ufe0f"
    )
