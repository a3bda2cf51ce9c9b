"""The plain document between a record of attention and everything that draws it: words, and heads × rows × columns of weights."""

import json
import unicodedata
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import SaccadeError

LONGEST = 24  # characters of a token in a label
MISSING = "□"
SHOWN_AS = {"\n": "↵", "\r": "↵", "\t": "⇥"}
# Each of these may end a <script> or break a script line; inside a JSON string the escaped form means the same.
UNSAFE_IN_SCRIPT = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


@dataclass
class Site:
    """One attention of a model: weights[head][row][column]; rows are queries, columns are keys."""

    name: str
    rows: list[str]
    columns: list[str]
    weights: list[list[list[float]]]

    def __post_init__(self) -> None:
        if not np.isfinite(self.weights).all():
            raise SaccadeError(f"the weights of site '{self.name}' are not finite; the model has diverged, train it again")


@dataclass
class Document:
    """A sentence pair and every attention of a model while it worked on it."""

    title: str
    source: list[str]
    target: list[str]
    sites: list[Site]
    model: str = ""
    called: tuple[str, str] = ("source", "target")  # what the two texts are to a reader

    def words(self) -> "Document":
        """The same document with words instead of their pieces."""
        from .choosing import in_words

        return replace(self, sites=[in_words(site) for site in self.sites])

    def to_json(self) -> str:
        """The document as ASCII JSON with 4 digits and keys in the order of the fields; safe inside a <script> tag."""
        plain: dict[str, Any] = {} if self.called == ("source", "target") else {"called": list(self.called)}
        plain |= {name: getattr(self, name) for name in ("title", "model", "source", "target")}
        # adding 0 turns -0.0 into 0.0, so that equal documents are equal texts
        plain["sites"] = [{**vars(site), "weights": (np.round(site.weights, 4) + 0.0).tolist()} for site in self.sites]
        return json.dumps(plain, separators=(",", ":")).translate(UNSAFE_IN_SCRIPT)


def shorten(token: str, longest: int = LONGEST) -> str:
    """At most `longest` characters, the last of them … where something was left out, with spaces and controls made visible."""
    if not token.strip(" "):
        token = "␣" * max(1, len(token))
    elif token.startswith(" "):  # a piece that begins a word
        token = "▁" * (len(token) - len(token.lstrip(" "))) + token.lstrip(" ")
    shown = "".join(SHOWN_AS.get(sign, MISSING if is_undrawable(sign) else sign) for sign in token)
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def is_undrawable(sign: str) -> bool:
    """Whether no font has a shape for a character: controls, lone surrogates, private and unassigned code points."""
    return unicodedata.category(sign) in {"Cc", "Cs", "Cn", "Co", "Zl", "Zp"}
