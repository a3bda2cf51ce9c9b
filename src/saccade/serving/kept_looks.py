"""What models looked at: documents that are kept for a minute, and the parts of them that are asked for."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import SaccadeError, did_you_mean
from ..views.document import Document, Site
from ..views.selection import best_site
from .messages import Look
from .schema import Refused
from .service_settings import Limits

if TYPE_CHECKING:
    from .served_models import Served

LONG = 256  # tokens, from which on one attention is computed at a time
BEGINNING = 200  # characters of a long text, by which its first attention is chosen
MOST_CELLS = 32_000_000  # weights that are kept, 8 bytes each: 8 heads of 2,000 × 2,000
SECONDS = 60.0  # that a document is kept after it was asked for


class Looks:
    """The documents of the last minute, so that the parts of a large one can be asked for one after another."""

    def __init__(self, most: int = MOST_CELLS, seconds: float = SECONDS) -> None:
        self.most, self.seconds = most, seconds
        self.kept: dict[Hashable, tuple[Document, float]] = {}  # the one that was used last is last
        self.lock = threading.Lock()
        self.timer: threading.Timer | None = None  # the one that is running

    def find(self, key: Hashable, make: Callable[[], Document]) -> Document:
        with self.lock:
            found = self.kept.pop(key, (None, 0.0))[0]
        document = make() if found is None else found
        with self.lock:
            self.kept[key] = document, time.monotonic()
            while sum(cells_of(one) for one, _ in self.kept.values()) > self.most:
                del self.kept[next(iter(self.kept))]
            if self.timer is None:
                self.wait(self.seconds)
        return document

    def wait(self, seconds: float) -> None:
        self.timer = threading.Timer(seconds, self.forget)
        self.timer.daemon = True
        try:
            self.timer.start()
        except RuntimeError:  # the system allows no further thread: the next request tries again
            self.timer = None

    def forget(self) -> None:
        """Leaves out what nobody has asked for in a while."""
        now = time.monotonic()
        with self.lock:
            self.kept = {
                key: (one, used)
                for key, (one, used) in self.kept.items()
                if used > now - self.seconds
            }
            self.timer = None
            if self.kept:  # the one that was used longest ago is first
                self.wait(next(iter(self.kept.values()))[1] + self.seconds - now)


def cells_of(document: Document) -> int:
    return sum(site.weights.size for site in document.sites)


def looked(served: Served, look: Look, *given: Any) -> dict[str, Any]:
    """What a model looked at, as the document of a view. Of a long text one attention at a time is computed: the one that was asked for, or
    the one that singles out the most words at its beginning."""
    looks, limits, show = served.looks, served.limits, served.system.look
    tokens = served.task.count_tokens(given[0], *(one or "" for one in given[1:]))
    if tokens <= LONG:
        whole = looks.find((served, given), lambda: show(*given))
        names = [site.name for site in whole.sites]
        return view(
            whole,
            best_site(whole.sites) if look.layer is None else whole[look.layer],
            names,
            look,
            limits,
        )
    if not isinstance(given[0], str):
        raise Refused(
            422,
            f"expected at most {LONG} tokens beside an image, got {tokens:,}; send a shorter text",
            code="text-too-long",
        )
    start = tuple(one and one[:BEGINNING] for one in given)
    first = looks.find((served, start), lambda: show(*start))
    names = [site.name for site in first.sites]
    name = best_site(first.sites).name if look.layer is None else look.layer
    if name not in names:
        raise SaccadeError(
            f"no attention named '{name}'{did_you_mean(name, names)}", code="unknown-attention"
        )
    cells = len(first[name].weights) * tokens**2
    if cells > MOST_CELLS:
        raise Refused(
            422,
            f"{tokens:,} tokens give up to {cells:,} weights, more than {MOST_CELLS:,}; send a shorter text",
            code="too-many-weights",
        )
    text, target = (*given, None)[:2]
    whole = looks.find((served, given, name), lambda: show(text, target, only=name))
    return view(whole, whole[name], names, look, limits)


def view(
    document: Document, site: Site, names: list[str], look: Look, limits: Limits
) -> dict[str, Any]:
    """One attention of a document, of some heads, rows and columns, pooled where it is asked for; with the names of all."""
    shape = site.weights.shape
    heads = list(range(shape[0])) if look.heads is None else look.heads
    rows, columns = look.rows or [0, shape[1]], look.columns or [0, shape[2]]
    first, last, left, right = rows[0], rows[-1], columns[0], columns[-1]
    if (
        max(heads) >= shape[0]
        or not 0 <= first < last <= shape[1]
        or not 0 <= left < right <= shape[2]
    ):
        has = f"'{site.name}' has {shape[0]} heads, {shape[1]} rows and {shape[2]} columns"
        asked = f"heads {heads[:8]} of rows {first} to {last} and columns {left} to {right} were asked for"
        raise Refused(422, f"{has}, and {asked}; choose among these", code="out-of-range")
    if site.grid is not None and (look.pool > 1 or (left, right) != (0, shape[2])):
        raise Refused(
            422,
            "weights over a picture are answered whole; leave out 'columns' and 'pool'",
            code="setting-without-effect",
        )
    pool = 1 if look.pool == 0 and site.grid is not None else look.pool

    def cells(size: int) -> int:
        return (
            (1 if look.mean else len(heads))
            * -(-(last - first) // size)
            * -(-(right - left) // size)
        )

    if pool == 0:
        pool = next(
            size
            for size in range(1, max(shape) + 1)
            if cells(size) <= limits.cells or size == max(shape)
        )
    if cells(pool) > limits.cells:
        most = f"expected at most {limits.cells:,} weights in an answer"
        raise Refused(
            422,
            f"{most}, got {cells(pool):,}; ask for fewer rows or heads",
            code="too-many-weights",
        )
    weights = site.weights[:, first:last, left:right]
    weights = weights if look.heads is None else weights[heads]
    weights = pooled(weights.mean(0, keepdims=True) if look.mean else weights, pool)
    part = replace(
        site,
        rows=site.rows[first:last:pool],
        columns=site.columns[left:right:pool],
        weights=weights,
    )
    whole = replace(document, sites=[])
    if look.columns is not None:  # who asks for parts has the texts
        whole = replace(whole, title="", source=[], target=[])
    found: dict[str, Any] = json.loads(whole.to_json())
    found["sites"] = [{**part.labels, "weights": (np.round(part.weights, 4) + 0.0).tolist()}]
    ranges = {
        "row_range": [first, last],
        "column_range": [left, right],
        "pool": pool,
        "shape": list(shape),
    }
    return {**found, "layers": names, "heads": heads, **ranges}


def pooled(weights: np.ndarray, size: int) -> np.ndarray:
    """The greatest weight of each square of rows and columns; those at the end may be smaller."""
    for axis in (1, 2) if size > 1 else ():
        weights = np.maximum.reduceat(weights, range(0, weights.shape[axis], size), axis)
    return weights
