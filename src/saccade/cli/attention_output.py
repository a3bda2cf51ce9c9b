"""A document of attention, drawn: in the terminal, as a picture, as a page or as numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import SaccadeError, did_you_mean
from .shared import ALL_SITES, draw, note, out, print_json, report, write

if TYPE_CHECKING:
    from ..views.answers import Classified
    from ..views.document import Document, Site


def present(
    document: Document,
    out_file: Path | None,
    name: str | None,
    head: int | None,
    heads: bool,
    as_json: bool,
) -> None:
    """Draws a document into a file, or one of its sites in the terminal: the mean of its heads, one head or each of them."""
    from ..views.document import shorten
    from ..views.selection import best_site
    from ..views.terminal import heat_table, picture_maps

    sites = {one.name: one for one in document.sites}
    if name is not None and name not in sites:
        hint, names = did_you_mean(name, sites), ", ".join(sites)
        raise SaccadeError(
            f"no attention named '{name}'{hint if 'there are' in hint else f'{hint} (of {names})'}",
            code="unknown-attention",
        )
    site = best_site(document.sites) if name is None else sites[name]
    weights = np.asarray(site.weights)
    if head is not None and not 0 <= head < len(weights):
        raise SaccadeError(
            f"no head {head} in {site.name}; it has 0 to {len(weights) - 1}", code="unknown-head"
        )
    source, target = (
        shorten(" ".join(words), 10_000) for words in (document.source, document.target)
    )
    facts = {"source": source, "target": target, "site": site.name, "sites": list(sites)}
    tables = {f"head {n}": one for n, one in enumerate(weights) if heads or n == head}
    tables = tables or {
        f"average of {len(weights)} heads" if len(weights) > 1 else "weights": weights.mean(0)
    }
    whole = (
        document.picture is not None
        and name is None
        and head is None
        and not heads
        and len(site.rows) == 1
    )
    everything = out_file is not None and (out_file.suffix.lower() in ALL_SITES or whole)
    if out_file is not None:
        draw(document, None if whole else site, heads, out_file, head)
        drawn = "all sites" if everything else site.name
        report(
            as_json, {"out": str(out_file), **facts}, f"{source}\n→ {target}\n{out_file}: {drawn}"
        )
    elif as_json:
        shown = {which: table.round(4).tolist() for which, table in tables.items()}
        places = (
            {}
            if site.grid is None
            else {"grid": list(site.grid), "fixations": fixation_facts(site, head)}
        )
        print_json(
            {
                **facts,
                **places,
                "rows": list(site.rows),
                "columns": list(site.columns),
                "weights": shown,
            }
        )
    else:
        write(f"{source}\n→ {target}")
        for which, table in tables.items():
            out.print(f"\n{site.name}: {which}, in %", style="bold", markup=False)
            draw_table = heat_table if site.grid is None else picture_maps
            out.print(
                draw_table(site, table, out.width if out.is_terminal else None), soft_wrap=True
            )
        if site.grid is not None and len(site.rows) > 1 and not heads:
            steps = fixation_facts(site, head)
            path = " → ".join(
                f"{' '.join(one['words'])} ({one['row']}, {one['column']})" for one in steps
            )
            write(f"\nscan path (row, column): {path}")
    if not as_json and not everything:
        others = ", ".join(other for other in sites if other != site.name)
        if others and name is None:
            why = (
                "singles out the most words"
                if len(site.rows) > 1 or site.grid is None
                else "is the first over the picture"
            )
            note(f"note: {site.name} {why}; --site shows another: {others}")
        if len(weights) > 1 and head is None and not heads:
            note(
                f"note: --head 0 to {len(weights) - 1} shows one head of {site.name}, --heads each of them"
            )


def fixation_facts(site: Site, head: int | None) -> list[dict[str, Any]]:
    """The scan path of a site over a picture, rows and columns counted from 1."""
    from ..views.scan_path import fixations

    return [
        {
            "words": list(one.words),
            "row": one.row + 1,
            "column": one.column + 1,
            "dwell": round(one.dwell, 4),
        }
        for one in fixations(site, head)
    ]


def print_classified(one: Classified, row: dict[str, Any]) -> None:
    """A text's label, the likeliest labels, and what each piece (or word) of it counted, by the row of the answer."""
    from ..views.selection import is_flat
    from ..views.terminal import shade_effects, shade_words

    words, weights = zip(*row["weights"], strict=True)
    write(one.detail())
    write(f"weight of each word in %{', nearly the same for all' if is_flat(weights) else ''}:")
    out.print(shade_words(words, weights), soft_wrap=True)
    if "effects" in row:
        write(f"points by which {one.label} falls when a word is left out:")
        out.print(shade_effects(*zip(*row["effects"], strict=True)), soft_wrap=True)
