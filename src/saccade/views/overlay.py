"""Where a model looked in a picture: the weights over it word by word, the scan path, and sheets of several pictures (matplotlib)."""

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from ..errors import SaccadeError
from .document import Document, Site
from .figures import EDGE, GRAY, MARGIN, MOST_HEADS, NARROWEST, add_axes, fitted, heat, sheet, style
from .fonts import find, width_of
from .scan_path import Fixation, draw_path, fixations, legend, legend_height
from .selection import SPECIAL, best_site

Picture = NDArray[np.uint8]
Weights = NDArray[np.floating]
# how far below and right of its cell a position looks, in heights and widths of the picture
Offset = tuple[float, float]
# a title, and weights over the picture (rows × columns), or the picture as it is
Panel = tuple[str, Weights | None, Offset]
PLAIN: Panel = ("picture", None, (0.0, 0.0))
UNNAMED: Panel = ("", None, (0.0, 0.0))
# of a pixel's brightness where nothing is looked at; of the way to white at the strongest position
DIM, GLOW = (0.32, 0.25)
PANEL, LARGE, SMALL = 1.42, 3.0, 0.92  # inches of the longer side of a picture in a panel
GAP, TITLE_ROOM = 0.1, 0.24  # inches between panels, and for the title above each
STRIP = 0.52  # inches of a strip of channels and its title
LEGEND = 1.75  # inches for the words of a scan path
MOST_PANELS = 60
MARK = "#ffd23f"


def word_maps(site: Site, weights: Weights) -> list[Panel]:
    """Each word and its weights as rows × columns of the grid; <eos> and its like are no words."""
    words = [n for n, word in enumerate(site.rows) if not SPECIAL.fullmatch(word)][:MOST_PANELS]
    return [(site.rows[n], weights[n].reshape(site.grid), site.offset) for n in words]


def is_hard(weights: Weights) -> bool:
    """Whether one position has all the weight there is."""
    return weights.size > 1 and np.count_nonzero(weights) == 1


def upsample(weights: Weights, height: int, width: int, offset: Offset = (0.0, 0.0)) -> Weights:
    """Weights of a grid (rows × columns) at each pixel: bilinear between the middles of its positions, constant beyond the outermost."""

    def between(count: int, at: NDArray[np.floating]) -> NDArray[np.floating]:
        """How much each of `count` positions counts at each pixel."""
        return np.clip(
            1 - np.abs(np.clip(at - 0.5, 0, count - 1)[:, None] - np.arange(count)), 0, None
        )

    down, across = pixels_in_grid(weights.shape, (height, width), offset)
    return between(weights.shape[0], down) @ weights @ between(weights.shape[1], across).T


def pixels_in_grid(
    grid: Sequence[int], sizes: Sequence[int], offset: Offset
) -> list[NDArray[np.floating]]:
    """Of each side, where the middles of pixels lie in positions of a grid."""
    each = zip(grid, sizes, offset, strict=True)
    return [((np.arange(size) + 0.5) / size - by) * count for count, size, by in each]


def lit(picture: Picture, weights: Weights, offset: Offset = (0.0, 0.0)) -> Picture:
    """The picture as bright as its weights say: dark where nothing is looked at, brightest at the strongest position (Xu et al. 2015,
    Figure 2). Where one position has all the weight, that one alone."""
    height, width = picture.shape[:2]
    if is_hard(weights):
        at = zip(pixels_in_grid(weights.shape, (height, width), offset), weights.shape, strict=True)
        smooth = np.asarray(
            weights[
                np.ix_(*(np.clip(np.floor(place), 0, count - 1).astype(int) for place, count in at))
            ]
        )
    else:
        smooth = upsample(weights, height, width, offset)
    part = np.clip(smooth / (weights.max() or 1.0), 0, 1)[:, :, None]
    bright = picture * (DIM + (1 - DIM) * part)
    return np.round(bright + GLOW * part**2 * (255 - bright)).astype(np.uint8)


def draw_panel(
    axes: Axes, picture: Picture, panel: Panel, size: float = 9, least: float = 0.0
) -> None:
    """A picture without axes, its title above, as wide as it or at least as `least` inches; of hard attention the one position is outlined."""
    (height, width), (title, weights, offset) = picture.shape[:2], panel
    axes.imshow(
        picture if weights is None else lit(picture, weights, offset),
        extent=(0, width, height, 0),
        interpolation="antialiased",
    )
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(color=EDGE, linewidth=0.6)
    if weights is not None and is_hard(weights):
        row, column = divmod(int(weights.argmax()), weights.shape[1])
        down, across = height / weights.shape[0], width / weights.shape[1]
        corner = column * across + offset[1] * width, row * down + offset[0] * height
        axes.add_patch(Rectangle(corner, across, down, fill=False, edgecolor=MARK, linewidth=1.6))
    if title:
        wide = axes.get_position().width * axes.get_figure(root=True).get_size_inches()[0]  # type: ignore[union-attr]
        axes.set_title(fitted(title, size, max(wide, least)), pad=3, **style(size, text=title))


def draw_scan_path(
    axes: Axes, picture: Picture, site: Site, found: Sequence[Fixation], digits: float = 8
) -> list[str]:
    """The picture, a little paler, and the scan path over it; the colors of its fixations."""
    draw_panel(axes, np.round(0.8 * picture + 0.2 * 128).astype(np.uint8), UNNAMED)
    return draw_path(axes, (picture.shape[0], picture.shape[1]), found, site, digits)


def sizes_of(picture: Picture, longer: float) -> tuple[float, float]:
    """Width and height in inches of a picture whose longer side has a length."""
    height, width = picture.shape[:2]
    return longer * width / max(height, width), longer * height / max(height, width)


def of_document(document: Document, site: Site | None, heads: bool, head: int | None) -> Figure:
    """The picture of a site: of words, word by word with the scan path; of anything else, its map. Without a site, all sites over the
    picture, and the weights of channels."""
    if site is None:
        over = [one for one in document.sites if one.grid is not None]
        maps: list[Panel] = [
            (one.name, np.mean(one.weights, 0)[0].reshape(one.grid), one.offset) for one in over
        ]
        strips = {
            one.name: np.mean(one.weights, 0)[0] for one in document.sites if one.grid is None
        }
        return panels(
            document.picture, [PLAIN, *maps], titled(document), (document.model,), 0, strips
        )
    weights, count = (
        np.mean(site.weights, 0) if head is None else site.weights[head],
        len(site.weights),
    )
    which = (
        "" if count == 1 else f"head {head}" if head is not None else f"average of {count} heads"
    )
    several = len(site.rows) > 1
    if not heads and several:
        return words(document, site, weights, (document.model, site.name, which), head)
    shown: list[Panel] = [(site.rows[0], weights[0].reshape(site.grid), site.offset)]
    if heads:
        which = (
            f"the first {MOST_HEADS} of {count} heads"
            if count > MOST_HEADS
            else f"{count} head{'s' * (count > 1)}"
        )
        shown = [
            (f"{word} {n}" if several else f"head {n}", row, offset)
            for n, one in enumerate(site.weights[:MOST_HEADS])
            for word, row, offset in word_maps(site, one)
        ]
    across = len(word_maps(site, weights)) if several else 0
    first: list[Panel] = [] if several else [PLAIN]
    return panels(
        document.picture,
        [*first, *shown],
        titled(document),
        (document.model, site.name, which),
        min(across, 12),
    )


def titled(document: Document) -> str:
    """The name of the picture, and what the model made of it."""
    return " → ".join(filter(None, (document.title, " ".join(document.target))))


def panels(
    picture: Picture,
    shown: Sequence[Panel],
    title: str,
    notes: Sequence[str],
    across: int = 0,
    strips: Mapping[str, Weights] | None = None,
) -> Figure:
    """The picture, and the picture with each weights over it, in rows; under them strips of weights that lie over no picture."""
    shown, strips = shown[:MOST_PANELS], strips or {}
    find("".join((title, *(name for name, *_ in shown))))
    across = across or evenly(len(shown), 6 if len(shown) <= 30 else 8)
    wide, tall = sizes_of(picture, PANEL if len(shown) > 3 else 0.8 * LARGE)
    down, above = (
        tall + TITLE_ROOM + GAP,
        math.ceil(len(shown) / across) * (tall + TITLE_ROOM + GAP),
    )
    width = max(2 * MARGIN + across * (wide + GAP) - GAP, NARROWEST)
    most = max((float(weights.max()) for weights in strips.values()), default=0.0)
    scale = (f"strips: 0 is black, {most:.2f} is white",) if strips else ()
    figure, top = sheet(width, above + len(strips) * STRIP + 0.1, title, _note((*notes, *scale)))
    for n, (name, weights, offset) in enumerate(shown):
        y, x = divmod(n, across)
        axes = add_axes(figure, MARGIN + x * (wide + GAP), top + y * down + TITLE_ROOM, wide, tall)
        draw_panel(axes, picture, (panel_name(name), weights, offset))
    for n, (name, weights) in enumerate(strips.items()):
        axes = add_axes(
            figure,
            MARGIN,
            top + above + n * STRIP + TITLE_ROOM,
            width - 2 * MARGIN,
            STRIP - TITLE_ROOM - GAP,
        )
        heat(axes, weights[None], 0.0, min(0.0, float(weights.min())), most, "gray")
        axes.set(xticks=[], yticks=[])
        text = f"{panel_name(name)}: {len(weights)}, {weights.min():.2f} to {weights.max():.2f}"
        text = fitted(text, 8, width - 2 * MARGIN)
        axes.set_title(text, loc="left", pad=3, **style(8, GRAY))
    return figure


def evenly(count: int, most: int) -> int:
    """How many panels are side by side, at most so many, for rows of about the same length."""
    return math.ceil(max(1, count) / math.ceil(max(1, count) / most))


def panel_name(site: str) -> str:
    """The path of a layer as short as it can be understood."""
    name = site.removesuffix(".mixer")
    return re.sub(r"^encoder\.stages\.(\d+)\.blocks\.(\d+)$", r"stage \1, block \2", name)


def words(
    document: Document, site: Site, weights: Weights, notes: Sequence[str], head: int | None = None
) -> Figure:
    """The picture and its scan path, large; under them the picture word by word as bright as the word looked at it."""
    picture, found = document.picture, fixations(site, head)
    caption = titled(document)
    shown = word_maps(site, weights)
    find("".join((caption, *site.rows)))
    wide, tall = sizes_of(picture, LARGE)
    width = 2 * MARGIN + 2 * wide + GAP + LEGEND
    across = evenly(
        len(shown), max(1, int((width - 2 * MARGIN + GAP) / (sizes_of(picture, PANEL)[0] + GAP)))
    )
    small_wide = min((width - 2 * MARGIN + GAP) / across - GAP, 0.65 * wide)
    small_tall = small_wide * tall / wide
    rows = math.ceil(len(shown) / across)
    down = small_tall + TITLE_ROOM + GAP
    high = max(tall, legend_height(len(found)))  # of the first row
    figure, top = sheet(width, high + GAP + rows * down + 0.1, caption, _note(notes))
    draw_panel(add_axes(figure, MARGIN, top, wide, tall), picture, UNNAMED)
    axes = add_axes(figure, MARGIN + wide + GAP, top, wide, tall)
    colors = draw_scan_path(axes, picture, site, found)
    legend(figure, MARGIN + 2 * (wide + GAP), top, LEGEND - GAP, high, found, colors)
    for n, panel in enumerate(shown):
        y, x = divmod(n, across)
        left, above = MARGIN + x * (small_wide + GAP), top + high + GAP + y * down + TITLE_ROOM
        draw_panel(add_axes(figure, left, above, small_wide, small_tall), picture, panel, 10)
    return figure


def contact_sheet(
    documents: Sequence[Document], title: str = "", note: str = "", across: int = 6
) -> Figure:
    """For each picture its scan path, its caption, and where each word looked: as many rows of panels as the words need."""
    if not documents or any(document.picture is None for document in documents):
        raise SaccadeError(
            "a contact sheet needs documents with a picture; look at one picture at a time and pass them all"
        )
    chosen = [best_site(document.sites) for document in documents]
    down = SMALL + TITLE_ROOM
    shown = [word_maps(site, np.mean(site.weights, 0)) for site in chosen]
    lines = [max(2, math.ceil((1 + len(found)) / across)) for found in shown]
    left = 2 * down - TITLE_ROOM + 0.25
    find("".join((title, *(word for site in chosen for word in site.rows))))
    body = sum(count * down + 0.5 for count in lines)
    figure, top = sheet(2 * MARGIN + left + across * (SMALL + GAP), body, title, note)
    page = figure.get_size_inches()
    for document, site, found, count in zip(documents, chosen, shown, lines, strict=True):
        caption = fitted(" ".join(document.target), 11, page[0] - 2 * MARGIN, "bold")
        figure.text(
            MARGIN / page[0],
            1 - top / page[1],
            caption,
            ha="left",
            va="top",
            **style(11, text=caption, weight="bold"),
        )
        after = 2 * MARGIN + width_of(caption, 11, "bold")
        if page[0] - MARGIN - after > 1:
            name = fitted(document.title, 9, page[0] - MARGIN - after)
            figure.text(
                after / page[0],
                1 - (top + 0.025) / page[1],
                name,
                ha="left",
                va="top",
                **style(9, GRAY, text=name),
            )
        top += 0.2
        wide, tall = sizes_of(document.picture, left - 0.25)
        draw_scan_path(
            add_axes(figure, MARGIN, top + TITLE_ROOM, wide, tall),
            document.picture,
            site,
            fixations(site),
            7,
        )
        small_wide, small_tall = sizes_of(document.picture, SMALL)
        for n, panel in enumerate([PLAIN, *found]):
            y, x = divmod(n, across)
            axes = add_axes(
                figure,
                MARGIN + left + x * (SMALL + GAP),
                top + y * down + TITLE_ROOM,
                small_wide,
                small_tall,
            )
            draw_panel(axes, document.picture, panel, 8.5, SMALL)
        top += count * down + 0.3
    return figure


def _note(notes: Sequence[str]) -> str:
    return " · ".join(filter(None, [*notes, "brighter = more weight"]))
