"""Decoding printed for people: the candidates of every step, and a given translation token by token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import SaccadeError
from .shared import note_unknown, print_json, show_table, write

if TYPE_CHECKING:
    from ..system.system import System


LONGEST = 28  # letters of a beginning


def print_steps(
    system: System, lines: list[str], search: dict[str, Any], candidates: int, as_json: bool
) -> None:
    """Each step of the translation of each line: the beginnings, and the likeliest tokens to follow; those taken are marked by *."""
    from ..tasks.search_options import make_search

    for line in lines:
        found = system.steps(
            line,
            candidates=candidates,
            search=make_search(search),
            max_length=search.get("max_length"),
        )
        if as_json:
            print_json(found.to_dict())
            continue
        rows, before = list[tuple[str, ...]](), 0
        for one in found.steps:
            shown = "  ".join(
                f"{'*' if each.taken else ''}{each.token} {100 * each.probability:.1f}"
                for each in one.candidates
            )
            number = str(one.number) if one.number > before else ""
            rows.append((number, end_of(one.prefix or "<bos>"), f"{one.log_prob:.2f}", shown))
            before = one.number
        show_table(("step", "beginning", "log p", "next token, in %"), rows)
        write(f"→ {found.text}   (log p {found.log_prob:.4f}; * was taken)")


def end_of(text: str) -> str:
    """The last words of a beginning, which is in the lines above: a table as wide as a page."""
    return (
        text
        if len(text) <= LONGEST
        else f"… {text[1 - LONGEST :].partition(' ')[2] or text[2 - LONGEST :]}"
    )


def print_given(system: System, lines: list[str], target: str, align: bool, as_json: bool) -> None:
    """How likely the model finds a target: p of each token, its rank, the likeliest instead, and the source word looked at."""
    if len(lines) != 1:
        raise SaccadeError(
            f"--given is the translation of one text, got {len(lines)}; give one text",
            code="one-text",
        )
    note_unknown(system, lines)
    found = system.score(lines[0], target)
    if align and found.tokens[0].source is None:
        raise SaccadeError(
            "expected a model that attends to its source, which an alignment needs; leave --align out",
            code="no-attention-to-source",
        )
    if as_json:
        print_json(found.to_dict())
        return
    rows, total = list[tuple[object, ...]](), 0.0
    for one in found.tokens:
        total += one.log_prob
        numbers = (f"{100 * one.probability:.2f}", f"{one.log_prob:.3f}", f"{total:.3f}", one.rank)
        rather = f"{one.likeliest} {100 * one.likeliest_probability:.1f}"
        rows.append((one.token, *numbers, "" if one.rank == 1 else rather, one.source or ""))
    show_table(("token", "p in %", "log p", "sum", "rank", "likeliest", "looks at"), rows)
    write(f"log p = {found.log_prob:.4f}, perplexity {found.perplexity:.3f} per token")
    if align:
        write(" ".join(f"{i}-{j}" for i, j in found.links))
