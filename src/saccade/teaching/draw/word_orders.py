"""The same sentence in seven languages: English words above, the other language's below, joined by gold links."""

from __future__ import annotations

from ...data.generated import languages
from ...data.pairs import Pair
from ...errors import SaccadeError
from ...views.plots.diagrams import Translation, links
from .drawing import Drawing


def crossings(pair: Pair) -> int:
    """Pairs of sure links that cross: 0 where both languages have one order."""
    sure = pair.alignment or ()
    return sum((a - c) * (b - d) < 0 for n, (a, b) in enumerate(sure) for c, d in sure[n + 1 :])


def translation(pair: Pair) -> Translation:
    sure = pair.alignment or ()
    possible = {*(pair.possible or ())} - {*sure}
    return Translation(pair.source.split(), pair.target.split(), sure, sorted(possible))


def draw(names: list[str], seed: int | None = None) -> Drawing:
    """The lectures' sentence, or a random one with a seed, in all languages or in those that are named."""
    author = None if seed is None else languages.Author(seed)
    clauses = [author.clause() if author else languages.black_cat()]
    pairs = {
        languages.NAMES[languages.check_language(to)]: languages.translate(clauses, to)
        for to in names or languages.NAMES
    }
    if len(pairs) < len(names):
        raise SaccadeError(
            f"a language is named twice; name each once of: {', '.join(languages.NAMES)}",
            code="duplicate-name",
        )
    rows = [
        ["language", "sentence", "crossing links"],
        *([name, pair.target, str(crossings(pair))] for name, pair in pairs.items()),
    ]
    title = next(iter(pairs.values())).source
    text = "Where lines cross, the languages order their words differently. German and Hindi end with the verb; Chinese and Hindi have no article."
    note = "a line joins words that translate each other; dashed: possibly"
    strips = {name: translation(pair) for name, pair in pairs.items()}
    return Drawing(title, text, rows, links(title, note, strips), scripts=True)
