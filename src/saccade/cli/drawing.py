"""A document of attention, drawn: in the terminal, as a picture, as a page or as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import SaccadeError, did_you_mean
from .shared import ALL_SITES, draw, note, out, print_json, report, write

if TYPE_CHECKING:
    from ..tasks.classification import Classified
    from ..views.document import Document, Site


@dataclass(frozen=True)
class Choice:
    """What of a document is to be drawn: a site, one head or each instead of their mean, words instead of pieces."""

    site: str | None = None
    head: int | None = None
    heads: bool = False
    words: bool = False

    def check(self, out_file: Path | None) -> None:
        """Refuses what would change nothing."""
        one_head = "--head" if self.head is not None else "--heads" if self.heads else None
        if self.head is not None and self.heads:
            raise SaccadeError("both --head and --heads were given; give one of them")
        if one_head and out_file is not None and out_file.suffix.lower() in ALL_SITES:
            raise SaccadeError(f"a {out_file.suffix} file has every head; leave {one_head} out")


def present(document: Document, out_file: Path | None, choice: Choice, as_json: bool = False) -> None:
    """Draws a document into a file, or else in the terminal, and says what else there is to see."""
    from ..views.choosing import best_site
    from ..views.document import shorten

    document = document.words() if choice.words else document
    sites = {one.name: one for one in document.sites}
    if choice.site is not None and choice.site not in sites:
        hint, names = did_you_mean(choice.site, sites), ", ".join(sites)
        raise SaccadeError(f"no attention named '{choice.site}'{hint if 'there are' in hint else f'{hint} (of {names})'}")
    site = sites[choice.site] if choice.site is not None else best_site(document.sites)
    if choice.head is not None and not 0 <= choice.head < len(site.weights):
        raise SaccadeError(f"no head {choice.head} in {site.name}; it has 0 to {len(site.weights) - 1}")
    source, target = (shorten(" ".join(words), 10_000) for words in (document.source, document.target))
    facts = {"source": source, "target": target, "site": site.name, "sites": list(sites)}
    text = f"{source}\n→ {target}"
    if out_file is not None:
        draw(document, site, choice.heads, out_file, choice.head)
        drawn = "all sites" if out_file.suffix.lower() in ALL_SITES else site.name
        report(as_json, {"out": str(out_file), **facts}, f"{text}\n{out_file}: {drawn}")
    elif as_json:
        tables = {name: weights.round(4).tolist() for name, weights in panels(site, choice).items()}
        print_json({**facts, "rows": list(site.rows), "columns": list(site.columns), "weights": tables})
    else:
        write(text)
        print_tables(site, choice)
    if not as_json and (out_file is None or out_file.suffix.lower() not in ALL_SITES):
        say_what_else(document, site, choice, out_file)


def panels(site: Site, choice: Choice) -> dict[str, np.ndarray]:
    """The weights to draw by their names: each head, one head, or the mean of all."""
    every = np.asarray(site.weights)
    if choice.heads:
        return {f"head {n}": weights for n, weights in enumerate(every)}
    if choice.head is not None:
        return {f"head {choice.head}": every[choice.head]}
    return {"weights" if len(every) == 1 else f"average of {len(every)} heads": every.mean(0)}


def print_tables(site: Site, choice: Choice) -> None:
    """Heat tables on stdout: fitted to a terminal, of any width in a pipe."""
    from ..views.terminal import heat_table

    for name, weights in panels(site, choice).items():
        out.print(f"\n{site.name}: {name}, in %", style="bold", markup=False)
        out.print(heat_table(site, weights, out.width if out.is_terminal else None), soft_wrap=True)


def say_what_else(document: Document, site: Site, choice: Choice, out_file: Path | None) -> None:
    """Notes which other attention there is and how to see it."""
    others, count = [one.name for one in document.sites if one is not site], len(site.weights)
    if others and choice.site is None:
        note(f"note: {site.name} singles out the most words; --site shows another: {', '.join(others)}")
    if count > 1 and choice.head is None and not choice.heads:
        note(f"note: --head 0 to {count - 1} shows one head of {site.name}, --heads each of them")
    if out_file is None:
        note("note: --out look.png draws a picture, --out look.html a page to explore them all")


def print_classified(text: str, one: Classified, words: bool, effects: Sequence[tuple[str, float]] | None, as_json: bool) -> None:
    """A text's label, the likeliest labels, and what each piece (or word) of it counted."""
    from ..views.choosing import in_words, is_flat
    from ..views.document import Site
    from ..views.terminal import shade_effects, shade_words

    site = Site("pool", [one.label], one.pieces, [[one.weights]])
    site = in_words(site) if words else site
    weights = np.asarray(site.weights)[0, 0].tolist()
    if as_json:
        facts = {"text": text, "label": one.label, "probabilities": one.probabilities}
        more = {} if effects is None else {"effects": effects}
        print_json({**facts, "weights": list(zip(site.columns, weights, strict=True)), **more})
        return
    likeliest = sorted(one.probabilities.items(), key=lambda pair: -pair[1])[:5]
    write(f"{one.label}   ({'  '.join(f'{name} {100 * chance:.1f} %' for name, chance in likeliest)})")
    write(f"weight of each word in %{', nearly the same for all' if is_flat(weights) else ''}:")
    out.print(shade_words(site.columns, weights), soft_wrap=True)
    if effects is not None:
        write(f"points by which {one.label} falls when a word is left out:")
        out.print(shade_effects(*zip(*effects, strict=True)), soft_wrap=True)
