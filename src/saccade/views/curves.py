"""Pictures of results: the curves of training runs, metrics of several recipes, a confusion matrix. All of them can be read in gray."""

import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

from . import figures
from .document import Site
from .figures import COLORS, EDGE, FAINT, GRAY, MARGIN, MARKERS, label, style

POINTS = 300  # of a line, at most
PANEL = (3.3, 1.9)  # inches
STYLES = ("-", "--", ":", "-.")


def curves(runs: Mapping[str, Sequence[Mapping[str, Any]]], title: str = "") -> Figure:
    """Loss, every dev metric and the learning rate against updates: a panel for each, a line for each run."""
    names = list(
        dict.fromkeys(
            name
            for rows in runs.values()
            for row in rows
            for name in row
            if name.startswith("dev_")
        )
    )
    panels = ["loss", *(name for name in names if name != "dev_loss"), "learning_rate"]
    across = 2 if len(panels) == 4 else min(len(panels), 3)
    step, down = PANEL[0] + 0.75, PANEL[1] + 0.85
    shown = [label(name, 40) for name in runs]
    legend = 0.22 * len(runs) if len(runs) > 1 else 0.0
    body = math.ceil(len(panels) / across) * down + legend
    note = (
        "dark: dev set · light: training"
        if len(runs) == 1
        else "with marks: dev set · without: training"
    )
    figure, top = figures.sheet(MARGIN + across * step + MARGIN, body, title, note)
    for at, panel in enumerate(panels):
        y, x = divmod(at, across)
        axes = figures.add_axes(figure, MARGIN + 0.55 + x * step, top + 0.3 + y * down, *PANEL)
        for n, rows in enumerate(runs.values()):
            draw_run(axes, rows, panel, n, len(runs))
        frame(axes, panel.replace("_", " "), "updates")
        if panel == "dev_perplexity":
            axes.set_yscale("log")
    if legend:
        handles = [figure.axes[0].plot([], [], **look(n))[0] for n in range(len(runs))]
        font = FontProperties(family=figures.families(), size=8)
        box = figure.legend(
            handles,
            shown,
            loc="lower left",
            frameon=False,
            prop=font,
            handlelength=3,
            borderaxespad=0.4,
        )
        for text in box.get_texts():
            text.set_parse_math(False)
    return figure


def look(n: int) -> dict[str, Any]:
    """How the n-th run is drawn: colors, dashes and marks have different periods, so that many differ without colors too."""
    return {
        "color": COLORS[n % len(COLORS)],
        "linestyle": STYLES[n % len(STYLES)],
        "marker": MARKERS[n % len(MARKERS)],
    }


def draw_run(axes: Axes, rows: Sequence[Mapping[str, Any]], panel: str, n: int, count: int) -> None:
    """One run's lines in a panel."""
    for name in ("loss", "dev_loss") if panel == "loss" else (panel,):
        points = [
            (row["update"], row[name])
            for row in rows
            if isinstance(row.get(name), int | float) and "update" in row
        ]
        if not points:
            continue
        x, y = np.array(points[:: len(points) // POINTS + 1], dtype=np.float64).T
        how: dict[str, Any] = {
            **look(n),
            "linewidth": 1.5,
            "markersize": 4,
            "markeredgecolor": "white",
            "markeredgewidth": 0.4,
        }
        how |= {"color": "#1a1a1a", "linestyle": "-"} if count == 1 else {}
        if not name.startswith("dev_"):
            how |= {"marker": "", "linewidth": 1.0, "alpha": 0.5 if name == "loss" else 1.0}
        axes.plot(x, y, **how)


def frame(axes: Axes, above: str, below: str) -> None:
    """The names above and below the panel, light lines behind, and nothing to the right; matplotlib's own titles take twice the time."""
    at: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}
    axes.annotate(above, (0, 1), (0, 6), va="bottom", **at, **style(9, weight="bold", text=above))
    axes.annotate(
        below, (0.5, 0), (0, -18), ha="center", va="top", **at, **style(8, GRAY, text=below)
    )
    axes.locator_params(nbins=5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(EDGE)
    axes.grid(color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(colors=GRAY, labelsize=7, length=2)
    axes.tick_params(which="minor", labelsize=7, length=2)


def dots(series: Mapping[str, Sequence[float]], metric: str, title: str = "") -> Figure:
    """One line for each name: a dot for each seed, and a bar at their mean."""
    names = [label(name, 40) for name in series]
    left, tall = max(figures.width_of(name, 9) for name in names) + 0.25, 0.34 * len(names) + 0.1
    figure, top = figures.sheet(
        MARGIN + left + 4.2 + 2 * MARGIN,
        tall + 0.65,
        title,
        "dot: one seed · bar: mean of the seeds",
    )
    axes = figures.add_axes(figure, MARGIN + left, top + 0.05, 4.2, tall)
    frame(axes, " ", metric)
    for n, values in enumerate(series.values()):
        axes.plot(
            [float(np.mean(values))],
            [n],
            marker="|",
            markersize=15,
            markeredgewidth=2.4,
            color="#1a1a1a",
        )
        axes.plot(
            values,
            [n] * len(values),
            linestyle="",
            marker="o",
            markersize=5,
            color=COLORS[0],
            alpha=0.7,
            zorder=3,
        )
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_yticks(range(len(names)), names, **style(9))
    return figure


def confusion(labels: Sequence[str], counts: Sequence[Sequence[int]], title: str = "") -> Figure:
    """The share of each right label (rows) that the model gave each label (columns)."""
    table = np.asarray(counts, dtype=np.float64)
    share = table / np.maximum(table.sum(1, keepdims=True), 1)
    names = list(labels)
    site = Site("rows: the right label, columns: the model's", names, names, [share.tolist()])
    return figures.alignment(
        site, title, legend="darker = a larger share of the right label's examples"
    )


def png(figure: Figure) -> bytes:
    """The picture as a file's content."""
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=110, metadata={"Software": None})
    return content.getvalue()


def against(
    points: Mapping[str, tuple[float, float]], x_label: str, y_label: str, title: str = ""
) -> Figure:
    """A dot for each pair of numbers, such as a paper's and ours, with its name where that fits."""
    wide, tall, size = 5.6, 4.8, 6
    note = "names that would lie over others are left out"
    figure, top = figures.sheet(7.6, 5.6, title, note)
    axes = figures.add_axes(figure, MARGIN + 0.6, top + 0.1, wide, tall)
    frame(axes, y_label, x_label)
    x, y = np.array(list(points.values()), dtype=np.float64).T
    axes.plot(x, y, linestyle="", marker="o", markersize=4, color="#1a1a1a", zorder=3)
    axes.autoscale_view()  # else only done when it is drawn
    shares = axes.transAxes.inverted().transform(axes.transData.transform(np.stack([x, y], 1)))
    places = shares * (wide, tall)  # in inches
    taken = [(*(at - 0.03), *(at + 0.03)) for at in places]  # the dots: left, bottom, right, top
    for name, at, (left, bottom) in zip(points, points.values(), places, strict=True):
        shown, high = label(name, 30), size / 72
        long = 1.1 * figures.width_of(shown, size)
        for right, up in (
            (0.06, 0.02),
            (-0.06 - long, 0.02),
            (0.06, -0.02 - high),
            (-0.06 - long, -0.02 - high),
        ):
            box = (left + right, bottom + up, left + right + long, bottom + up + high)
            if box[0] > 0 and not any(overlap(box, other) for other in taken):
                where: dict[str, Any] = {
                    "textcoords": "offset points",
                    "annotation_clip": False,
                    **style(size, GRAY, text=name),
                }
                axes.annotate(shown, at, (72 * right, 72 * up), **where)
                taken.append(box)
                break
    return figure


def overlap(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether two boxes (left, bottom, right, top) share a point."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
