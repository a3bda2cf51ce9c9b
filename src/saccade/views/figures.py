"""Figures of attention and of results. Here data becomes panels; `plots` draws them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .document import Site, shorten
from .plots.layout import in_rows, panels
from .plots.panels import Dots, Heat, Lines
from .plots.pictures import Picture
from .plots.scatter import Scatter
from .plots.sheet import Figure, two_digits
from .plots.sheet import png as png
from .plots.sheet import save as save
from .selection import heads_of, is_flat, shade_range

MAX_NUMBERED = 40  # rows or columns up to which every cell is large enough for its number
LEGEND, SIGNED_LEGEND = "darker = more weight", "red: above 0 · blue: below 0"
MIN_SIDE = 0.2  # inches, so that one word against hundreds is still a strip
PICTURE = 1.1  # inches of the longer side of a picture
MAX_POINTS = 300  # of a line
LONG_NAME = 40  # characters of a series' name
SHADES = {"no": 0.0, "–": 0.12, "equivariant": 0.75, "invariant": 0.55}
MARKS = {"no": "no", "–": "–", "equivariant": "yes", "invariant": "inv"}
# number of panels → how many are side by side, so that few places stay empty
ACROSS = {1: 1, 2: 2, 3: 3, 4: 2, 5: 3, 6: 3, 9: 3}


def heat_map(
    site: Site,
    title: str = "",
    model: str = "",
    head: int | None = None,
    each: bool = False,
    legend: str = "",
    numbers: Any = None,
) -> Figure:
    """Which query attends to which key: queries down the left, keys along the top (Bahdanau et al. 2015, Figure 3).

    The mean of all heads, one `head`, or each of up to 16 on one scale (Vaswani et al. 2017, appendix). The cells of a
    single map have their weights or `numbers` in them.
    """
    maps, which = heads_of(site, head, each)
    weights = np.stack([*maps.values()])
    low, high = shade_range(weights)
    longest, count = max(weights.shape[1:]), len(maps)
    cell = 0.4 if longest <= 16 else max(0.02, 0.34 * min(1.0, MAX_NUMBERED / longest))
    cell = min(0.34, 2.4 / longest) if each else cell
    rows, columns = ([shorten(token) for token in names] for names in (site.rows, site.columns))
    wide, tall = (max(cell * len(names), MIN_SIDE) for names in (columns, rows))
    if numbers is None and not each and longest <= MAX_NUMBERED:
        # nothing for what rounds to zero
        numbers = [[two_digits(v) if abs(v) >= 0.005 else "" for v in row] for row in weights[0]]
    across, shown = ACROSS.get(count, 4), list[Heat]()
    for n, (name, values) in enumerate(maps.items()):
        one = Heat("", name, "", wide, tall, values, low, high, text=numbers, bar=n == across - 1)
        one.rows = rows if n % across == 0 else []
        one.columns = columns if n < across else []
        one.text_size = min(8.0, 72 * cell * 0.27)
        shown.append(one)
    same = not each and len(rows) == 1 < len(columns) and is_flat(weights[0, 0])
    flat = "nearly the same for all" if same else ""
    legend = legend or (SIGNED_LEGEND if low < 0 < high else LEGEND)
    note = " · ".join(filter(None, (model, site.name, which, flat, legend)))
    return panels(title, note, in_rows(shown, across))


def confusion(labels: Sequence[str], counts: Sequence[Sequence[int]], title: str = "") -> Figure:
    """How many examples of each true label (rows) the model gave each label (columns), shaded by their share of the row."""
    table = np.asarray(counts, dtype=np.float64)
    share = table / np.maximum(table.sum(1, keepdims=True), 1)
    names = list(labels)
    site = Site("rows: the true label, columns: the model's", names, names, share[None])
    written = [[f"{count:,}" if count else "" for count in row] for row in counts]
    legend = "number: examples · darker = a larger share of the true label's examples"
    return heat_map(site, title, legend=legend, numbers=written)


def curves(runs: Mapping[str, Sequence[Mapping[str, Any]]], title: str = "") -> Figure:
    """Loss, every dev metric and the learning rate against updates: a panel for each, a line for each run."""
    logged = dict.fromkeys(name for rows in runs.values() for row in rows for name in row)
    metrics = [name for name in logged if name.startswith("dev_") and name != "dev_loss"]
    shown = []
    for name in ("loss", *metrics, "learning_rate"):
        dev = {
            run: points(rows, "dev_loss" if name == "loss" else name) for run, rows in runs.items()
        }
        training = {run: points(rows, name) for run, rows in runs.items()}
        faint = {} if name in metrics else {run: found for run, found in training.items() if found}
        dev = {} if name == "learning_rate" else {run: found for run, found in dev.items() if found}
        log = "y" if name == "dev_perplexity" and dev else ""
        what = name.replace("_", " ")
        shown.append(Lines(what, "updates", "", 3.3, 1.9, dev, log, faint))
    note = "with markers: dev set · without: training, where the loss includes dropout and label smoothing"
    return panels(title, note, in_rows(shown, 2 if len(shown) == 4 else 3))


def points(rows: Sequence[Mapping[str, Any]], name: str) -> list[tuple[float, float]]:
    """(update, value) of a logged number, thinned to what can be seen."""
    found = [
        (float(row["update"]), float(row[name]))
        for row in rows
        if isinstance(row.get(name), int | float) and "update" in row
    ]
    return found[:: len(found) // MAX_POINTS + 1]


def lines(
    series: Mapping[str, Sequence[tuple[float, float]]],
    x_label: str,
    y_label: str,
    title: str,
    log: str = "",
) -> Figure:
    """One line per name through its (x, y) points, such as BLEU against sentence length."""
    named = {shorten(name, LONG_NAME): [*points] for name, points in series.items()}
    return panels(
        title, "", [[Lines("", x_label, y_label, 5.2, max(3.1, 0.22 * len(series)), named, log)]]
    )


def dots(series: Mapping[str, Sequence[float]], metric: str, title: str = "") -> Figure:
    """One row for each name: a dot for each seed, and a bar at their mean."""
    named = {shorten(name, LONG_NAME): values for name, values in series.items()}
    one = Dots("", metric, "", 4.2, 0.34 * len(named) + 0.1, named)
    return panels(title, "dot: one seed · bar: mean of the seeds", [[one]])


def scatter(
    points: Mapping[str, tuple[float, float]], x_label: str, y_label: str, title: str = ""
) -> Figure:
    """A dot for each pair of numbers, such as a paper's and ours, with its name where that fits."""
    one = Scatter("", x_label, y_label, 6.4, 4.8, points, size=6)
    return panels(title, "names that would lie over others are left out", [[one]])


def before_after(made: Sequence[Any], title: str = "") -> Figure:
    """Images as they were, with noise where it was added, and as a model reconstructed them: a column for each."""
    kinds = {"before": "before", "noisy": "noisy", "after": "after"}
    high, wide = (
        PICTURE * size / max(made[0].before.shape[:2]) for size in made[0].before.shape[:2]
    )
    rows = [
        [
            Picture(
                "",
                f"{one.psnr:.1f}" if kind == "after" else "",
                kind if n == 0 else "",
                wide,
                high,
                getattr(one, kind),
            )
            for n, one in enumerate(made)
        ]
        for kind in kinds
        if getattr(made[0], kind) is not None
    ]
    return panels(title, "PSNR in decibels: higher is closer", rows)


def symmetry_example(
    rows: Mapping[str, Mapping[str, NDArray[np.float64]]], title: str, note: str
) -> Figure:
    """A row of matrices for each name; positions go down, numbers or other positions across. A row with fewer matrices has
    them below the last of the others, with which they are to be compared. A column has one scale."""
    count = max(map(len, rows.values()))
    every = [one for named in rows.values() for one in named.values()]
    cell = 0.13 if max(one.size for one in every) > 40 else 0.26
    grid: list[list[Heat | None]] = []
    for row, named in rows.items():
        made = [
            Heat(what, "", "", one.shape[1] * cell, one.shape[0] * cell, one, rows=[], columns=[])
            for what, one in named.items()
        ]
        made[0].y = row
        grid.append([*[None] * (count - len(made)), *made])
    for column in zip(*grid, strict=True):
        shown = [one for one in column if one is not None]
        low, high = min(one.low or 0.0 for one in shown), max(one.high or 0.0 for one in shown)
        for one in shown:
            one.low, one.high = low, high
    return panels(title, f"{note} · {SIGNED_LEGEND}", grid)


def symmetry_table(
    names: Sequence[str],
    columns: Sequence[str],
    words: Sequence[Sequence[str]],
    title: str,
    note: str,
) -> Figure:
    """Yes, invariant or no for each layer and symmetry."""
    values = [[SHADES[word] for word in row] for row in words]
    text = [[MARKS[word] for word in row] for row in words]
    wide, tall = 0.85 * len(columns), 0.19 * len(names)
    one = Heat("", "", "", wide, tall, values, 0, 1, names, columns, text, 6)
    return panels(title, note, [[one]])


def evenly(count: int, most: int) -> int:
    """How many panels are side by side, at most `most`, for rows of about the same length."""
    return math.ceil(max(1, count) / math.ceil(max(1, count) / most))
