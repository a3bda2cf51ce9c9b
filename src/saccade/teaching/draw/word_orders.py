"""The same sentence in seven languages: English words above, the other language's below, joined by gold links."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...data.generated import languages
from ...data.pairs import Pair
from ...errors import SaccadeError
from ...views.figures import EDGE, GRAY, MARGIN, add_axes, sheet, style, width_of
from ...views.fonts import find
from .panels import Drawing


def crossings(pair: Pair) -> int:
    """How many pairs of sure links cross: 0 where both languages have one order."""
    links = pair.alignment or ()
    return sum((a - c) * (b - d) < 0 for n, (a, b) in enumerate(links) for c, d in links[n + 1 :])


def picture(pairs: dict[str, Pair], title: str) -> Figure:
    """A strip per language."""
    find("".join(pair.target for pair in pairs.values()))
    about = "a line joins words that translate each other; dashed: possibly"
    figure, top = sheet(7.2, 0.95 * len(pairs) + 0.1, title, about)
    for n, (name, pair) in enumerate(pairs.items()):
        strip(add_axes(figure, MARGIN, top + 0.95 * n, 6.8, 0.85), name, pair)
    return figure


def strip(axes: Axes, name: str, pair: Pair) -> None:
    """Both sentences, each word in a share of the width by its length."""
    axes.set(xlim=(0, 6.8), ylim=(0, 0.85))
    axes.axis("off")
    axes.text(0, 0.42, name, va="center", **style(9, weight="bold"))
    middles = []
    for words, y in ((pair.source.split(), 0.72), (pair.target.split(), 0.1)):
        at, found = 1.1, []
        wide = [width_of(word, 10) for word in words]
        gap = min(0.4, (5.7 - sum(wide)) / max(len(words) - 1, 1))
        for word, width in zip(words, wide, strict=True):
            axes.text(at + width / 2, y, word, ha="center", va="center", **style(10, text=word))
            found.append(at + width / 2)
            at += width + gap
        middles.append(found)
    for links, look in (
        (pair.alignment or (), "-"),
        ({*(pair.possible or ())} - {*(pair.alignment or ())}, "--"),
    ):
        for source, target in links:
            color = GRAY if look == "-" else EDGE
            axes.plot(
                [middles[0][source], middles[1][target]],
                [0.6, 0.23],
                look,
                color=color,
                linewidth=1.0,
            )


def draw(names: list[str], seed: int | None = None) -> Drawing:
    """The lectures' sentence, or one that is drawn with a seed, in all languages or in those that are named."""
    author = None if seed is None else languages.Author(seed)
    clauses = [author.clause() if author else languages.black_cat()]
    pairs = {
        languages.NAMES[languages.check_language(to)]: languages.translate(clauses, to)
        for to in names or languages.NAMES
    }
    if len(pairs) < len(names):
        raise SaccadeError(
            f"a language is named twice; name each once of: {', '.join(languages.NAMES)}"
        )
    rows = [
        ["language", "sentence", "crossing links"],
        *([name, pair.target, str(crossings(pair))] for name, pair in pairs.items()),
    ]
    title = next(iter(pairs.values())).source
    text = "Where lines cross, the languages order their words differently. German and Hindi end with the verb; Chinese and Hindi have no article."
    return Drawing(title, text, rows, picture(pairs, title), scripts=True)
