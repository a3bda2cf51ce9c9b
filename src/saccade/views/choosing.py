"""What of a document is worth seeing: words in place of their pieces, the site to begin with, from where to where weights are shaded."""

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .document import Site

BLANK = "▁ \t\r\n"
SPECIAL = re.compile(r"<(?!0x)[^<>\s]+>|\[[A-Z]+\]")  # <eos>, [CLS]; but not a byte such as <0xE4>
PARTS = re.compile("(.)₁((?:\0\\1[₂₃₄])+)", re.DOTALL)  # 你₁ 你₂: pieces of one character
FLAT = 1.2  # times the mean weight; where no word has more, none stands out


def shade_range(weights: NDArray[np.floating]) -> tuple[float, float]:
    """The weights that get no shade and the full one: of one row alone, its mean and the greatest, if that is twice the mean."""
    if weights.shape[-2] == 1 < weights.shape[-1] and weights.sum() > 0:
        return float(weights.mean()), max(float(weights.max()), 2 * float(weights.mean()))
    return min(0.0, float(weights.min())), float(weights.max()) if weights.max() > 0 else 1.0


def is_flat(weights: Sequence[float]) -> bool:
    """Whether no word stands out from the others."""
    return max(weights) < FLAT * sum(weights) / len(weights)


def best_site(sites: Sequence[Site]) -> Site:
    """The site to begin with: of attention from one text to another, else within one, that which singles out the most words."""
    return max([site for site in sites if site.rows != site.columns] or sites, key=singled_out)


def singled_out(site: Site) -> float:
    """The greatest weight that any other word gives a word, in the mean over words and heads; <eos> and its like are no words."""
    weights = np.mean(site.weights, 0)
    if site.rows == site.columns:
        np.fill_diagonal(weights, 0.0)
    words = [n for n, label in enumerate(site.columns) if not SPECIAL.fullmatch(label)]
    return float(weights.max(0)[words].mean()) if words else 0.0


def in_words(site: Site) -> Site:
    """The same site with words in place of pieces: weights of a looked-at word's pieces are added, those of a looking word's averaged."""
    rows, columns = _group(site.rows), _group(site.columns)
    to = np.array([[n in group for n in range(len(site.rows))] for group in rows], dtype=float)
    of = np.array([[n in group for n in range(len(site.columns))] for group in columns], dtype=float)
    weights = (to / to.sum(1, keepdims=True)) @ np.asarray(site.weights) @ of.T
    return Site(site.name, _names(site.rows, rows), _names(site.columns, columns), weights.tolist())


def _group(labels: Sequence[str]) -> list[list[int]]:
    """The pieces of each word by their marks: ▁ or a blank begins a word, ## goes on with one; without a mark each piece is one."""
    goes_on = any(label.startswith("##") for label in labels)
    begins = [not label.startswith("##") if goes_on else label.startswith(tuple(BLANK)) for label in labels]
    if not any(begins):
        begins = [True] * len(labels)
    groups: list[list[int]] = []
    for n, label in enumerate(labels):
        special = SPECIAL.fullmatch(label) or (n and SPECIAL.fullmatch(labels[n - 1]))
        only_blanks = bool(groups) and not any(labels[i].strip(BLANK) for i in groups[-1])  # they belong to the word that follows
        if not groups or special or (begins[n] and not only_blanks):
            groups.append([])
        groups[-1].append(n)
    return groups


def _names(labels: Sequence[str], groups: Sequence[Sequence[int]]) -> list[str]:
    """The words' texts without marks."""
    texts = ["\0".join(labels[n].removeprefix("##") for n in group) for group in groups]
    joined = [PARTS.sub(r"\1", text).replace("\0", "") for text in texts]
    return [text.strip(BLANK) or text for text in joined]
