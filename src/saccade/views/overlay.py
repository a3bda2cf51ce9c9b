"""Where a model looked in a picture: the weights over it word by word, the scan path, and sheets of several pictures."""

import re
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ..errors import SaccadeError
from .document import Document, Site
from .figures import evenly
from .plots.fonts import width_of
from .plots.layout import Block, blocks, in_rows
from .plots.panels import Heat
from .plots.pictures import NumberedNames, Picture
from .plots.sheet import Figure
from .scan_path import circles_of, fixations
from .selection import SPECIAL, best_site, heads_of

Pixels = NDArray[np.uint8]
Weights = NDArray[np.floating]
# how far below and right of its cell a position looks, in heights and widths of the picture
Offset = tuple[float, float]
# a title, and weights over the picture (rows × columns), or the picture as it is
Overlay = tuple[str, Weights | None, Offset]
PLAIN: Overlay = ("picture", None, (0.0, 0.0))
UNNAMED: Overlay = ("", None, (0.0, 0.0))
# of a pixel's brightness where nothing is looked at; of the way to white at the strongest position
DIM, GLOW = (0.32, 0.25)
MEDIUM, LARGE, SMALL = 1.42, 3.0, 0.92  # inches of the longer side of a picture
GAP = 0.1  # inches between pictures
STRIP = 0.18  # inches of a strip of channels
MIN_NAMES, MAX_NAMES = 0.8, 3.0  # inches of a scan path's words
MAX_MAPS = 60  # words whose maps are drawn
LEGEND = "brighter = more weight"


def word_maps(site: Site, weights: Weights) -> list[Overlay]:
    """Each word and its weights as rows × columns of the grid; <eos> and its like are no words."""
    words = [n for n, word in enumerate(site.rows) if not SPECIAL.fullmatch(word)][:MAX_MAPS]
    return [(site.rows[n], weights[n].reshape(site.grid), site.offset) for n in words]


def is_hard(weights: Weights) -> bool:
    """Whether one position has all the weight there is."""
    return weights.size > 1 and np.count_nonzero(weights) == 1


def upsample(weights: Weights, height: int, width: int, offset: Offset = (0.0, 0.0)) -> Weights:
    """Weights of a grid (rows × columns) at each pixel: bilinear between the middles of its positions, constant beyond the outermost."""

    def between(count: int, at: NDArray[np.floating]) -> NDArray[np.floating]:
        """How much each of `count` positions counts at each pixel."""
        middle = np.clip(at - 0.5, 0, count - 1)[:, None]
        shares: NDArray[np.floating] = np.clip(1 - np.abs(middle - np.arange(count)), 0, None)
        return shares

    down, across = pixels_in_grid(weights.shape, (height, width), offset)
    return between(weights.shape[0], down) @ weights @ between(weights.shape[1], across).T


def pixels_in_grid(
    grid: Sequence[int], sizes: Sequence[int], offset: Offset
) -> list[NDArray[np.floating]]:
    """Of each side, where the middles of pixels lie in positions of a grid."""
    each = zip(grid, sizes, offset, strict=True)
    return [((np.arange(size) + 0.5) / size - by) * count for count, size, by in each]


def lit(picture: Pixels, weights: Weights, offset: Offset = (0.0, 0.0)) -> Pixels:
    """The picture as bright as its weights say: dark where nothing is looked at, brightest at the strongest position (Xu et al. 2015,
    Figure 2). Where one position has all the weight, that one alone."""
    height, width = picture.shape[:2]
    if is_hard(weights):
        at = zip(pixels_in_grid(weights.shape, (height, width), offset), weights.shape, strict=True)
        cells = (np.clip(np.floor(place), 0, count - 1).astype(int) for place, count in at)
        smooth = np.asarray(weights[np.ix_(*cells)])
    else:
        smooth = upsample(weights, height, width, offset)
    part = np.clip(smooth / (weights.max() or 1.0), 0, 1)[:, :, None]
    bright = picture * (DIM + (1 - DIM) * part)
    return np.round(bright + GLOW * part**2 * (255 - bright)).astype(np.uint8)


def overlay(
    pixels: Pixels, shown: Overlay, longer: float, size: float = 9, gap: float = GAP
) -> Picture:
    """A picture as bright as its weights; of hard attention the one position is framed."""
    (height, width), (name, weights, offset) = pixels.shape[:2], shown
    scale = longer / max(height, width)
    made = Picture(name, "", "", scale * width, scale * height, pixels, size, gap=gap)
    if weights is not None:
        made.pixels = lit(pixels, weights, offset)
    if weights is not None and is_hard(weights):
        row, column = divmod(int(weights.argmax()), weights.shape[1])
        down, across = height / weights.shape[0], width / weights.shape[1]
        left, top = column * across + offset[1] * width, row * down + offset[0] * height
        made.frame = (left, top, left + across, top + down)
    return made


def with_scan_path(
    pixels: Pixels, site: Site, longer: float, head: int | None = None
) -> tuple[Picture, list[str]]:
    """The picture, a little paler, with its scan path over it; and the words of each fixation."""
    found = fixations(site, head)
    pale = np.round(0.8 * pixels + 0.2 * 128).astype(np.uint8)
    made = overlay(pale, UNNAMED, longer)
    made.circles = circles_of(found, site, (pixels.shape[0], pixels.shape[1]))
    return made, [" ".join(one.words) for one in found]


def of_document(document: Document, site: Site | None, heads: bool, head: int | None) -> Figure:
    """The picture of a site: of words, word by word with the scan path; of anything else, its map. Without a site, all sites over the
    picture, and the weights of channels."""
    if site is None:
        over = [one for one in document.sites if one.grid is not None]
        maps: list[Overlay] = [
            (one.name, np.mean(one.weights, 0)[0].reshape(one.grid), one.offset) for one in over
        ]
        strips = {
            one.name: np.mean(one.weights, 0)[0] for one in document.sites if one.grid is None
        }
        return sheet_of_maps(document, [PLAIN, *maps], (document.model,), 0, strips)
    several = len(site.rows) > 1
    if several and not heads:
        return sheet_of_words(document, site, head)
    found, which = heads_of(site, head, heads)
    shown: list[Overlay] = [] if several else [PLAIN]
    for name, one in found.items():
        for word, weights, offset in word_maps(site, one):
            number = name.removeprefix("head ")
            shown.append((f"{word} {number}" if several else name or word, weights, offset))
    across = min(len(word_maps(site, site.weights[0])), 12) if several else 0
    return sheet_of_maps(document, shown, (document.model, site.name, which), across)


def titled(document: Document) -> str:
    """The name of the picture, and what the model made of it."""
    return " → ".join(filter(None, (document.title, " ".join(document.target))))


def sheet_of_maps(
    document: Document,
    shown: Sequence[Overlay],
    notes: Sequence[str],
    across: int = 0,
    strips: Mapping[str, Weights] | None = None,
) -> Figure:
    """The picture with each weights over it, in rows; under them strips of weights that lie over no picture, on one scale."""
    shown = shown[:MAX_MAPS]
    across = across or evenly(len(shown), 6 if len(shown) <= 30 else 8)
    longer = MEDIUM if len(shown) > 3 else 0.8 * LARGE
    made = [
        overlay(document.picture, (panel_name(name), weights, offset), longer)
        for name, weights, offset in shown
    ]
    parts = [Block(in_rows(made, across))]
    greatest = max((float(one.max()) for one in (strips or {}).values()), default=0.0)
    scale = f"strips: 0 is black, {greatest:.2f} is white" if strips else ""
    wide = max(across * (made[0].wide + GAP) - GAP, 3.2)
    for name, weights in (strips or {}).items():
        about = f"{panel_name(name)}: {len(weights)}, {weights.min():.2f} to {weights.max():.2f}"
        low = min(0.0, float(weights.min()))
        strip = Heat(about, "", "", wide, STRIP, weights[None], low, greatest, [], [])
        strip.inverted = True
        parts.append(Block([[strip]]))
    return blocks(titled(document), _note((*notes, scale)), parts)


def panel_name(site: str) -> str:
    """The path of a layer as short as it can be understood."""
    name = site.removesuffix(".mixer")
    return re.sub(r"^encoder\.stages\.(\d+)\.blocks\.(\d+)$", r"stage \1, block \2", name)


def sheet_of_words(document: Document, site: Site, head: int | None = None) -> Figure:
    """The picture and its scan path, large; under them the picture word by word as bright as the word looked at it."""
    pixels, (maps, which) = document.picture, heads_of(site, head)
    path, names = with_scan_path(pixels, site, LARGE, head)
    widest = max((width_of(name, 10) for name in names), default=0.0) + 0.35
    legend = NumberedNames("scan path", "", "", min(max(widest, MIN_NAMES), MAX_NAMES), path.tall)
    legend.names, legend.tall = names, max(path.tall, 0.25 + 0.14 * len(names))
    first = [overlay(pixels, UNNAMED, LARGE), path, legend]
    width = 2 * (path.wide + GAP) + legend.wide
    shown = word_maps(site, maps[""])
    share = MEDIUM / LARGE
    across = evenly(len(shown), max(1, int((width + GAP) / (share * path.wide + GAP))))
    longer = min((width + GAP) / across - GAP, 0.65 * path.wide) * LARGE / path.wide
    small = [overlay(pixels, one, longer, 10) for one in shown]
    note = _note((document.model, site.name, which))
    return blocks(titled(document), note, [Block([first]), Block(in_rows(small, across))])


def contact_sheet(
    documents: Sequence[Document], title: str = "", note: str = "", across: int = 6
) -> Figure:
    """For each picture its scan path, its caption, and where each word looked: as many rows of panels as the words need."""
    if not documents or any(document.picture is None for document in documents):
        raise SaccadeError(
            "a contact sheet needs documents with a picture; look at one picture at a time and pass them all",
            code="no-picture",
        )
    parts = []
    for document in documents:
        site = best_site(document.sites)
        beside, _ = with_scan_path(document.picture, site, 2 * SMALL + 0.24)
        shown = [PLAIN, *word_maps(site, np.mean(site.weights, 0))]
        maps = [overlay(document.picture, one, SMALL, 8.5) for one in shown]
        caption = (" ".join(document.target), document.title)
        parts.append(Block(in_rows(maps, across), beside, caption))
    return blocks(title, note, parts)


def _note(notes: Sequence[str]) -> str:
    return " · ".join(filter(None, [*notes, LEGEND]))
