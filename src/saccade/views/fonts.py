"""Fonts for pictures: for every character an installed family that has it, also one that was installed a moment ago."""

import functools
import logging
import unicodedata
import warnings

from matplotlib import font_manager
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from .document import is_undrawable

BASE_FAMILY = "DejaVu Sans"  # comes with matplotlib, so it is always installed
# The order among families that have equally many of the characters; a Japanese one first, because it lacks what only Chinese has.
PREFERRED = (
    "Noto Sans CJK JP", "Noto Sans JP", "Source Han Sans JP", "IPAGothic", "IPAexGothic", "TakaoGothic", "VL Gothic", "Hiragino Sans",
    "Yu Gothic", "Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "PingFang SC",
    "Microsoft YaHei", "SimHei", "Droid Sans Fallback", "Noto Sans CJK KR", "Noto Sans KR", "NanumGothic", "UnDotum", "UnBatang",
    "Malgun Gothic", "Noto Sans Devanagari", "Noto Sans Thai", "Noto Sans Arabic", "Noto Sans Bengali", "Noto Sans Tamil",
    "Arial Unicode MS", "Unifont",
)  # fmt: skip
NO_LETTERS = ("Last Resort", "Adobe Blank", "cm")  # how families begin that have boxes or glyphs of formulas in place of letters
EAST_ASIAN = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC")
# A family without the exact weight is no mistake where it is the only one that has a character.
logging.getLogger("matplotlib.font_manager").addFilter(lambda record: "Failed to find font" not in record.getMessage())


def families(text: str = "") -> list[str]:
    """The base family, and few installed ones that have the characters it lacks."""
    return [BASE_FAMILY, *_cover(frozenset(_without_glyph(text, BASE_FAMILY)))[0]]


def missing(text: str) -> str:
    """The characters that no installed family has, each once; fonts are looked for anew before it is said."""
    if _cover(frozenset(_without_glyph(text, BASE_FAMILY)))[1]:
        _find_new_fonts()
    left = _cover(frozenset(_without_glyph(text, BASE_FAMILY)))[1]
    return "".join(sign for sign in dict.fromkeys(text) if sign in left)


def advice(signs: str) -> str:
    """What somebody can do about characters that no font here has."""
    shown = " ".join(signs[:8]) + (" …" if len(signs) > 8 else "")
    east = any(unicodedata.name(sign, "").startswith(EAST_ASIAN) for sign in signs)
    return f"no font here has {shown}; install {'fonts-noto-cjk' if east else 'fonts-noto-core'}, or write .html"


def width_of(text: str, size: float, weight: str = "normal") -> float:
    """The width in inches of a line of text at a font size in points."""
    font = FontProperties(family=families(text), size=size, weight=weight)
    with warnings.catch_warnings():
        ignore_missing_glyphs()
        width, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return float(width) / 72


def ignore_missing_glyphs() -> None:
    """Inside `catch_warnings`: matplotlib would warn for each character by itself, and draws a box for it."""
    warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from")


@functools.cache
def _cover(signs: frozenset[str]) -> tuple[list[str], frozenset[str]]:
    """Families that have these characters, the one with the most of them first, and the characters that none has."""
    if not signs:
        return [], signs
    installed = dict.fromkeys(entry.name for entry in font_manager.fontManager.ttflist)
    asked = [name for name in PREFERRED if name in installed]
    others = sorted(name for name in installed if name not in asked and not name.startswith(NO_LETTERS))
    found: list[str] = []
    for some in (asked, others):
        lacks = {name: _without_glyph("".join(signs), name) for name in some} if signs else {}
        while signs and lacks:
            best = min(lacks, key=lambda name: len(lacks[name] & signs))
            if not signs - lacks[best]:
                break
            found.append(best)
            signs &= lacks.pop(best)
    return found, signs


def _without_glyph(text: str, family: str) -> set[str]:
    """The visible characters of a text for which a family has no glyph."""
    if text.isascii():  # every family that is asked has these
        return set()
    face = font_manager.get_font(font_manager.findfont(FontProperties(family=[family])))
    return {sign for sign in set(text) if not (_is_invisible(sign) or face.get_char_index(ord(sign)))}


def _is_invisible(sign: str) -> bool:
    """Spaces, joiners and variation selectors need no glyph; what no font can have is shown as a box before."""
    return sign.isspace() or is_undrawable(sign) or unicodedata.category(sign) == "Cf" or "\ufe00" <= sign <= "\ufe0f"


def _find_new_fonts() -> None:
    """Adds fonts that were installed after matplotlib made its list, which it keeps in a cache for ever."""
    known = {entry.fname for entry in font_manager.fontManager.ttflist}
    for path in sorted(set(font_manager.findSystemFonts()) - known):
        try:
            font_manager.fontManager.addfont(path)
        except (OSError, RuntimeError, ValueError, NotImplementedError):  # a broken file, or letters made of pixels
            continue
    _cover.cache_clear()
