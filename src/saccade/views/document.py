"""The plain document that every view draws: words, an optional picture, and weights as heads × rows × columns.

Where attention goes to a picture, the columns are the positions of a grid over it, row by row.
"""

from __future__ import annotations

import base64
import io
import json
import os
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..errors import SaccadeError, did_you_mean
from ..files import write_atomically

MAX_PICTURE_SIDE = 512  # of the longer side of a picture in a document
MAX_LABEL_LENGTH = 24  # characters of a token in a label
MISSING = "□"
BYTE_ORDER = "\ufeff"  # a mark that no font draws, and at which a writer of PDF fails
SHOWN_AS = {"\n": "↵", "\r": "↵", "\t": "⇥"}
# one attention, or every attention of a model
PICTURES, ALL_SITES = ((".png", ".svg", ".pdf"), (".html", ".json"))
# Each of these may end a <script> or break a script line; inside a JSON string the escaped form means the same.
UNSAFE_IN_SCRIPT = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


@dataclass(frozen=True)
class Long:
    """The words of a site whose rows and columns are groups of neighbors."""

    rows: list[str]
    columns: list[str]
    each: tuple[int, int]  # words of a group of rows, and of columns
    # of each word that looks: the words it looks at most and how much, by the mean of the heads
    strongest: list[list[tuple[int, float]]]


@dataclass(repr=False, eq=False)
class Site:
    """One attention of a model: weights as heads × rows × columns. Rows are queries, columns are keys."""

    name: str
    rows: list[str]
    columns: list[str]
    weights: Any  # anything that becomes an array: lists, a tensor on any device
    grid: tuple[int, int] | None = (
        None  # rows and columns of positions over a picture, if its columns are these
    )
    # how far below and right of its cell's middle a position looks, in heights and widths
    offset: tuple[float, float] = (0.0, 0.0)
    long: Long | None = None  # where rows and columns are groups of words

    @staticmethod
    def over_picture(
        name: str,
        rows: list[str],
        weights: Any,
        grid: Sequence[int],
        offset: tuple[float, float] = (0.0, 0.0),
    ) -> Site:
        """An attention to the positions of a grid over a picture: heads × rows × (grid rows · grid columns) of weights."""
        down, across = range(1, grid[0] + 1), range(1, grid[1] + 1)
        places = [f"row {row}, column {column}" for row in down for column in across]
        return Site(name, rows, places, weights, (grid[0], grid[1]), offset)

    def __post_init__(self) -> None:
        given = self.weights
        given = given.detach().float().cpu() if hasattr(given, "detach") else given
        self.weights = np.asarray(given, dtype=np.float64)
        if self.weights.ndim != 3 or self.weights.shape[1:] != (len(self.rows), len(self.columns)):
            expected = f"expected heads × {len(self.rows)} rows × {len(self.columns)} columns"
            raise SaccadeError(
                f"the weights of site '{self.name}' have the shape {self.weights.shape}; {expected}",
                code="shapes-do-not-fit",
            )
        if not np.isfinite(self.weights).all():
            raise SaccadeError(
                f"the weights of site '{self.name}' are not finite; the model has diverged, train it again",
                code="diverged",
            )
        if self.grid is not None and self.grid[0] * self.grid[1] != len(self.columns):
            got = f"got {self.grid[0]} × {self.grid[1]} for {len(self.columns)}"
            raise SaccadeError(
                f"site '{self.name}' needs one column per position of its grid, {got}; use Site.over_picture",
                code="no-grid",
            )

    def __repr__(self) -> str:
        return f"Site('{self.name}', {' × '.join(map(str, self.weights.shape))} heads × rows × columns)"

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, Site) and self.labels == other.labels
        return same and np.array_equal(self.weights, other.weights)  # type: ignore[attr-defined]

    @property
    def labels(self) -> dict[str, Any]:
        """All but the weights."""
        named: dict[str, Any] = {"name": self.name, "rows": self.rows, "columns": self.columns}
        if self.long is not None:
            strongest = [[[n, round(part, 4)] for n, part in row] for row in self.long.strongest]
            named["long"] = {"rows": self.long.rows, "columns": self.long.columns}
            named["long"] |= {"each": list(self.long.each), "strongest": strongest}
        if self.grid is not None:
            named |= {"grid": list(self.grid), "offset": list(self.offset)}
        return named

    @property
    def document(self) -> Document:
        """This attention by itself."""
        return Document(self.name, self.columns, self.rows, [self], called=("keys", "queries"))

    def save(self, path: str | os.PathLike[str], heads: bool = False) -> Path:
        return self.document.save(path, heads=heads)

    def _repr_html_(self) -> str:
        return self.document._repr_html_()


@dataclass(repr=False)
class Document:
    """A source text, the output for it, and every attention of the model that read them. `document[name]` is a site."""

    title: str
    source: list[str]
    target: list[str]
    sites: list[Site]
    model: str = ""
    called: tuple[str, str] = ("source", "target")  # what the two texts are to a reader
    picture: Any = None  # what was looked at, if it was no text: bytes, height × width × 3; the longer side has at most 512 pixels

    def __post_init__(self) -> None:
        grid = next((site.grid for site in self.sites if site.grid is not None), None)
        if self.picture is not None:
            self.picture = check_picture(self.picture)
        elif grid is not None:  # a gray ground, on which weights can be seen
            self.picture = np.full((16 * grid[0], 16 * grid[1], 3), 160, np.uint8)

    def __getitem__(self, name: str | int) -> Site:
        if isinstance(name, int):
            return self.sites[name]
        found = {site.name: site for site in self.sites}
        if name not in found:
            raise SaccadeError(
                f"no attention named '{name}'{did_you_mean(name, found)}", code="unknown-attention"
            )
        return found[name]

    def __repr__(self) -> str:
        names = ", ".join([*(site.name for site in self.sites[:3]), *["…"] * (len(self.sites) > 3)])
        count = f"{len(self.sites)} site{'s' * (len(self.sites) != 1)}"
        return f"Document({shorten(self.title, 60)!r}, {count}: {names})"

    def _repr_html_(self) -> str:
        from .html_page import notebook_view

        return notebook_view(self)

    def words(self) -> Document:
        """The same document with words instead of their pieces."""
        from .selection import in_words

        return replace(self, sites=[site if site.long else in_words(site) for site in self.sites])

    def save(
        self,
        path: str | os.PathLike[str],
        site: str | None = None,
        heads: bool = False,
        head: int | None = None,
    ) -> Path:
        """Write one site as a picture, or all sites as a page (.html) or numbers (.json) that begin with it.

        A picture has the mean of all heads, each head (`heads`), or one (`head`). Without `site`, the most selective
        site is used.
        """
        from .selection import best_site

        path = check_ending(path)
        chosen = best_site(self.sites) if site is None else self[site]
        if path.suffix.lower() in PICTURES:
            from . import figures, overlay

            if self.picture is not None and (chosen.grid is not None or site is None):
                whole = site is None and len(chosen.rows) == 1
                figure = overlay.of_document(self, None if whole else chosen, heads, head)
            else:
                figure = figures.heat_map(chosen, self.title, self.model, head, heads)
            return figures.save(figure, path)
        ordered = replace(self, sites=[chosen, *(one for one in self.sites if one is not chosen)])
        text = self.to_json() if site is None else ordered.to_json()
        if path.suffix.lower() == ".html":
            from .html_page import attention_page

            text = attention_page(ordered)
        write_atomically(path, text.encode())
        return path

    def to_json(self) -> str:
        """The document as ASCII JSON with 4 digits and keys in the order of the fields; safe inside a <script> tag."""
        usual = self.called == ("source", "target")
        plain: dict[str, Any] = {} if usual else {"called": list(self.called)}
        plain |= {name: getattr(self, name) for name in ("title", "model", "source", "target")}
        plain |= {} if self.picture is None else {"picture": data_of(self.picture)}

        # one site after another, so that the numbers of all are never objects at once; adding 0 turns -0.0 into 0.0, so that equal
        # documents are equal texts
        def text(one: dict[str, Any]) -> str:
            return json.dumps(one, separators=(",", ":")).translate(UNSAFE_IN_SCRIPT)

        sites = [
            text({**site.labels, "weights": (np.round(site.weights, 4) + 0.0).tolist()})
            for site in self.sites
        ]
        return f'{text(plain)[:-1]},"sites":[{",".join(sites)}]}}'


def check_picture(pixels: Any) -> NDArray[np.uint8]:
    """Check that pixels are bytes of height × width × 3, and shrink a picture whose side is too long."""
    given = pixels.detach().cpu().numpy() if hasattr(pixels, "detach") else np.asarray(pixels)
    if given.ndim != 3 or given.shape[2] != 3 or given.dtype != np.uint8 or 0 in given.shape:
        got = f"got {given.dtype} of shape {given.shape}"
        raise SaccadeError(
            f"expected a picture as bytes, height × width × 3, {got}; permute and convert it first",
            code="image-shape",
        )
    if max(given.shape) <= MAX_PICTURE_SIDE:
        return given
    scale = MAX_PICTURE_SIDE / max(given.shape)
    height, width = (max(1, round(size * scale)) for size in given.shape[:2])
    return np.asarray(Image.fromarray(given).resize((width, height), Image.Resampling.BICUBIC))


def data_of(picture: NDArray[np.uint8]) -> str:
    """A picture as text that a page can show: a PNG in a data address."""
    made = io.BytesIO()
    Image.fromarray(picture).save(made, "PNG")
    return "data:image/png;base64," + base64.b64encode(made.getvalue()).decode("ascii")


def check_ending(path: str | os.PathLike[str]) -> Path:
    """The path, if its ending is supported."""
    found = Path(path)
    if found.suffix.lower() not in (*PICTURES, *ALL_SITES):
        raise SaccadeError(
            f"cannot draw to '{found}'; name a file ending in .png, .svg, .pdf, .html or .json",
            code="unknown-ending",
        )
    return found


def shorten(token: str, longest: int = MAX_LABEL_LENGTH) -> str:
    """At most `longest` characters, ending in … if something was cut. Spaces and control characters are made visible."""
    if not token.strip(" "):
        token = "␣" * max(1, len(token))
    elif token.startswith(" "):  # a piece that begins a word
        token = "▁" * (len(token) - len(token.lstrip(" "))) + token.lstrip(" ")
    shown = "".join(SHOWN_AS.get(sign, MISSING if is_undrawable(sign) else sign) for sign in token)
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def is_undrawable(sign: str) -> bool:
    """Whether no font has a shape for a character: controls, lone surrogates, private and unassigned code points."""
    return sign == BYTE_ORDER or unicodedata.category(sign) in {"Cc", "Cs", "Cn", "Co", "Zl", "Zp"}
