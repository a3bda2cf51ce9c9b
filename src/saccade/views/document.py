"""The plain document between a record of attention and everything that draws it: words, and heads × rows × columns of weights."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ..errors import SaccadeError, did_you_mean

DIGITS = 4
# Each of these may end a <script> or break a script line; inside a JSON string the escaped form means the same.
UNSAFE_IN_SCRIPT = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


@dataclass
class Site:
    """One place where a model looks: weights[head][row][column], rows look (queries), columns are looked at (keys)."""

    name: str
    rows: list[str]
    columns: list[str]
    weights: list[list[list[float]]]

    @property
    def heads(self) -> int:
        """How many heads the site has."""
        return len(self.weights)

    def check(self) -> None:
        """Raises a sentence that names the first word or weight that is out of shape."""
        if not isinstance(self.name, str) or not self.name:
            raise SaccadeError(f"a site is named {self.name!r}, but needs a name of at least one letter, like 'decoder.2.cross'")
        for side in ("rows", "columns"):
            _check_words(getattr(self, side), f"the {side} of site '{self.name}'")
            if not getattr(self, side):
                raise SaccadeError(f"site '{self.name}' has no {side}, so there is nothing to see: give it at least one word")
        if not isinstance(self.weights, list) or not self.weights:
            raise SaccadeError(f"site '{self.name}' has no heads: its weights must be nested lists, heads × rows × columns")
        for index, head in enumerate(self.weights):
            self._check_head(index, head)

    def _check_head(self, index: int, head: Any) -> None:
        """Raises when one head is not rows × columns finite numbers."""
        where = f"head {index} of site '{self.name}'"
        if not isinstance(head, list) or len(head) != len(self.rows):
            raise SaccadeError(
                f"{where} has {_size(head, 'rows')}, but the site has {len(self.rows)} words that look: give each one row"
            )
        for number, row in enumerate(head):
            if not isinstance(row, list) or len(row) != len(self.columns):
                raise SaccadeError(
                    f"row {number} of {where} has {_size(row, 'weights')}, "
                    f"but {len(self.columns)} words are looked at: one weight each"
                )
            for column, weight in enumerate(row):
                if not _is_finite_number(weight):
                    raise SaccadeError(
                        f"the weight at row {number}, column {column} of {where} is {weight!r}, "
                        "but must be a finite number: look for a division by zero or an overflow where it was computed"
                    )

    def head(self, index: int | None = None) -> np.ndarray:
        """The rows × columns weights of one head, counted from 0, or the mean over all heads for None."""
        self.check()
        weights = np.asarray(self.weights, dtype=np.float64)
        if index is None:
            return weights.mean(axis=0)
        if not 0 <= index < self.heads:
            known = "its only head is 0" if self.heads == 1 else f"its {self.heads} heads are 0 to {self.heads - 1}"
            raise SaccadeError(f"there is no head {index} in site '{self.name}'; {known}, and no number means their average")
        return weights[index]

    def head_name(self, index: int | None = None) -> str:
        """How a picture calls what `head(index)` returns: 'head 3 of 8', 'average of 8 heads', or nothing for a lone head."""
        if self.heads == 1:
            return ""
        return f"average of {self.heads} heads" if index is None else f"head {index} of {self.heads}"


@dataclass
class Document:
    """A sentence pair and all places where a model looked while it worked on it."""

    title: str
    source: list[str]
    target: list[str]
    sites: list[Site]
    model: str = ""
    called: tuple[str, str] = ("source", "target")  # what the two texts are to a reader

    def check(self) -> None:
        """Raises a sentence that names what is out of shape; passing means that every view can draw the document."""
        for field in ("title", "model"):
            if not isinstance(getattr(self, field), str):
                raise SaccadeError(f"the {field} of a document is {getattr(self, field)!r}, but must be text")
        if not isinstance(self.called, tuple) or len(self.called) != 2 or not all(isinstance(name, str) for name in self.called):
            raise SaccadeError(f"what the two texts are called is {self.called!r}, but must be two names")
        _check_words(self.source, "the source")
        _check_words(self.target, "the target")
        if not isinstance(self.sites, list) or not self.sites:
            raise SaccadeError("the document has no sites, so there is nothing to see: record a model that has attention")
        for site in self.sites:
            site.check()
        names = [site.name for site in self.sites]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise SaccadeError(f"two sites are named '{twice}', but a reader picks a site by its name: give each its own")

    def to_json(self) -> str:
        """The document as ASCII JSON with 4 digits and keys in the order of the fields; safe inside a <script> tag."""
        self.check()
        plain: dict[str, Any] = {} if self.called == ("source", "target") else {"called": list(self.called)}
        plain |= {
            "title": self.title,
            "model": self.model,
            "source": self.source,
            "target": self.target,
            "sites": [
                {"name": site.name, "rows": site.rows, "columns": site.columns, "weights": _rounded(site.weights)}
                for site in self.sites
            ],
        }
        return json.dumps(plain, allow_nan=False, separators=(",", ":")).translate(UNSAFE_IN_SCRIPT)

    @staticmethod
    def from_json(text: str) -> Document:
        """The document that `to_json` wrote, checked."""
        try:
            plain = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise SaccadeError(f"this is not a JSON document ({error}): give the text that `to_json` wrote") from None
        _check_keys(plain, Document, "the document", optional={"model", "called"})
        if not isinstance(plain["sites"], list):
            raise SaccadeError(f"the sites of the document are {_size(plain['sites'], '')}, but must be a list of sites")
        for index, site in enumerate(plain["sites"]):
            _check_keys(site, Site, f"site {index} of the document", optional=set())
        called = plain.get("called", ["source", "target"])
        sites = [Site(**site) for site in plain["sites"]]
        document = Document(**{**plain, "sites": sites, "called": tuple(called) if isinstance(called, list) else called})
        document.check()
        return document


def _check_words(words: Any, what: str) -> None:
    """Raises when something is not a list of strings."""
    if not isinstance(words, list):
        raise SaccadeError(f"{what} must be a list of words, not {_size(words, 'words')}: split the sentence first")
    for index, word in enumerate(words):
        if not isinstance(word, str):
            raise SaccadeError(f"word {index} of {what} is {word!r}, but must be text")


def _check_keys(plain: Any, kind: type, what: str, optional: set[str]) -> None:
    """Raises when a JSON object has not exactly the keys of the dataclass it should become."""
    if not isinstance(plain, dict):
        raise SaccadeError(f"{what} is {_size(plain, '')}, but must be an object with the keys of a {kind.__name__}")
    known = {field.name for field in fields(kind)}
    for key in plain:
        if key not in known:
            raise SaccadeError(f"{what} has no key named '{key}'{did_you_mean(key, known)}")
    for key in sorted(known - optional):
        if key not in plain:
            raise SaccadeError(f"{what} lacks the key '{key}': every {kind.__name__} needs {', '.join(sorted(known - optional))}")


def _is_finite_number(value: Any) -> bool:
    """Whether a value is a number that fits a float; True and False are not numbers here."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _size(value: Any, unit: str) -> str:
    """How an error calls a value of the wrong size or kind."""
    if isinstance(value, list):
        return f"{len(value)} {unit}".strip()
    return f"a {type(value).__name__}"


def _rounded(weights: list[list[list[float]]]) -> list[list[list[float]]]:
    """The weights with 4 digits; adding 0 turns -0.0 into 0.0, so that equal documents are equal texts."""
    return (np.round(np.asarray(weights, dtype=np.float64), DIGITS) + 0.0).tolist()
