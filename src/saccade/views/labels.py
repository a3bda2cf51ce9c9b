"""Words as short labels for pictures and the terminal: invisible signs made visible, long words shortened."""

from __future__ import annotations

import unicodedata

LONGEST = 24  # characters of a token
LONGEST_NAME = 40  # characters of the name of a model or a column, which people chose themselves
MISSING = "□"
SHOWN_AS = {"\n": "↵", "\r": "↵", "\t": "⇥"}


def shorten(token: str, longest: int = LONGEST) -> str:
    """At most `longest` characters, the last of them … where something was left out, and spaces and controls made visible."""
    if not token.strip(" "):
        token = "␣" * max(1, len(token))
    shown = "".join(SHOWN_AS.get(sign, MISSING if is_undrawable(sign) else sign) for sign in token)
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def is_undrawable(sign: str) -> bool:
    """Whether no font has a shape for a sign: controls, lone surrogates, private and unassigned code points."""
    return unicodedata.category(sign) in {"Cc", "Cs", "Cn", "Co", "Zl", "Zp"}
