"""What every view shows of a document: words instead of pieces, the first site, the heads, and the range of shades."""

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .document import Site

BLANK = "▁ \t\r\n"
SPECIAL = re.compile(r"<(?!0x)[^<>\s]+>|\[[A-Z]+\]")  # <eos>, [CLS]; but not a byte such as <0xE4>
PARTS = re.compile("(.)₁((?:\0\\1[₂₃₄])+)", re.DOTALL)  # 你₁ 你₂: pieces of one character
FLAT_RATIO = 1.2  # times the mean weight; where no word has more, none stands out
MAX_HEADS = 16  # that are drawn side by side


def shade_range(weights: NDArray[np.floating]) -> tuple[float, float]:
    """The weights with no shade and with full shade. A single row begins at its mean and ends at its maximum, or at twice the mean."""
    if weights.shape[-2] == 1 < weights.shape[-1] and weights.sum() > 0:
        return float(weights.mean()), max(float(weights.max()), 2 * float(weights.mean()))
    return min(0.0, float(weights.min())), float(weights.max()) if weights.max() > 0 else 1.0


def heads_of(
    site: Site, head: int | None = None, each: bool = False
) -> tuple[dict[str, NDArray[np.floating]], str]:
    """The maps of a site by name, and what a note says of them: the mean of all heads, one head, or each of the first 16."""
    count, weights = len(site.weights), np.asarray(site.weights)
    if each:
        maps = {f"head {n}": one for n, one in enumerate(weights[:MAX_HEADS])}
        first = f"the first {MAX_HEADS} of " if count > MAX_HEADS else ""
        return maps, f"{first}{count} head{'s' * (count > 1)}"
    if head is not None:
        return {"": weights[head]}, f"head {head}" if count > 1 else ""
    return {"": weights.mean(0)}, f"average of {count} heads" if count > 1 else ""


def is_flat(weights: Sequence[float]) -> bool:
    """Whether all words have about the same weight."""
    return max(weights) <= FLAT_RATIO * sum(weights) / len(weights)


def best_site(sites: Sequence[Site]) -> Site:
    """The site to show first: the most selective attention between two texts, else within one text.

    With a picture: the most selective attention from words to the picture, else the first site over it.
    """

    def singled_out(site: Site) -> float:
        """How selective a site is: the largest weight that a word gets from another, averaged over words (without <eos> and the like)."""
        weights = np.mean(site.weights, 0)
        if site.rows == site.columns:
            np.fill_diagonal(weights, 0.0)
        return float(
            sum(weights.max(0)[[not SPECIAL.fullmatch(label) for label in site.columns]])
            / len(site.columns)
        )

    over = [site for site in sites if site.grid is not None]
    if over:
        return max([site for site in over if len(site.rows) > 1] or over[:1], key=singled_out)
    return max([site for site in sites if site.rows != site.columns] or sites, key=singled_out)


def in_words(site: Site) -> Site:
    """The same site with words instead of pieces. Weights are summed over the pieces of a key and averaged over those of a query."""
    (rows, to), (columns, of) = _words(site.rows), _words(site.columns)
    weights = (to / to.sum(1, keepdims=True)) @ np.asarray(site.weights) @ of.T
    return Site(site.name, rows, columns, weights.tolist(), site.grid, site.offset)


def _words(labels: Sequence[str]) -> tuple[list[str], NDArray[np.floating]]:
    """Words, and which pieces each is made of: ▁ or a blank begins a word, ## continues one; without a mark each piece is one."""
    continued = any(label.startswith("##") for label in labels)
    begins = [
        not label.startswith("##") if continued else label.startswith(tuple(BLANK))
        for label in labels
    ]
    groups: list[list[int]] = []
    for n, label in enumerate(labels):
        special = SPECIAL.fullmatch(label) or (n and SPECIAL.fullmatch(labels[n - 1]))
        # they belong to the word that follows
        only_blanks = bool(groups) and not any(labels[i].strip(BLANK) for i in groups[-1])
        if not groups or special or not any(begins) or (begins[n] and not only_blanks):
            groups.append([])
        groups[-1].append(n)
    texts = ["\0".join(labels[n].removeprefix("##") for n in group) for group in groups]
    names = [PARTS.sub(r"\1", text).replace("\0", "") for text in texts]
    pieces = np.array([[n in group for n in range(len(labels))] for group in groups])
    return [name.strip(BLANK) or name for name in names], pieces
