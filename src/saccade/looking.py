"""From a record of any model, and its tokens, to a document that can be drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import huggingface  # so that records notice attention functions of transformers
from .core import record
from .core.record import Looks, Seen, pass_weights
from .errors import SaccadeError
from .views.document import Document, Site

__all__ = ["huggingface", "look", "record"]


def look(
    seen: Seen, tokens: Sequence[str], columns: Sequence[str] | None = None, title: str = "", model: str = "", item: int = 0
) -> Document:
    """Everything a record saw of one text of the batch (`item`), to draw: `tokens` are those the model read, special ones too.

    With an encoder and a decoder, `tokens` are the decoder's, and `columns` those of the source.
    """
    for name, given in (("tokens", tokens), ("columns", columns or [])):
        if isinstance(given, str) or not all(isinstance(token, str) for token in given):
            raise SaccadeError(
                f"{name} must be a list with one string per position, got {given!r:.60}; pass text.split(), or pieces"
            )
    texts = {"tokens": list(tokens), "columns": list(tokens if columns is None else columns)}
    sites = [site for looks in seen.values() for site in sites_of(looks, texts, item)]
    if not sites:
        raise SaccadeError("the record has seen no attention; run the model inside `with record(model) as seen:`")
    sites.sort(key=lambda site: site.columns != texts["columns"] or site.rows != texts["tokens"])  # alignments first
    return Document(title or " ".join(texts["columns"]), texts["columns"], texts["tokens"], sites, model)


def sites_of(looks: Looks, texts: dict[str, list[str]], item: int) -> list[Site]:
    """A site for each pass of a layer, with the names of its rows and columns."""
    found, passes = [], looks.passes
    for number, calls in enumerate(passes, 1):
        batch, rows, keys = calls[0].sizes[0], sum(call.sizes[2] for call in calls), max(call.sizes[3] for call in calls)
        if not -batch <= item < batch:
            raise SaccadeError(f"item must be in 0 … {batch - 1}, the texts of the batch, got {item}")
        # an encoder reads the source
        own = ("columns", "tokens") if "encoder" in looks.name and not looks.cross else ("tokens", "columns")
        of_rows = labels(looks.name, "row", rows, own, texts)
        of_columns = of_rows if rows == keys and not looks.cross else labels(looks.name, "column", keys, own[::-1], texts)
        name = looks.name if len(passes) == 1 else f"{looks.name} ({number} of {len(passes)})"
        weights: Any = pass_weights(calls, None, None)[item].float().cpu().numpy()
        found.append(Site(name, of_rows, of_columns, weights))
    return found


def labels(name: str, what: str, size: int, order: Sequence[str], texts: dict[str, list[str]]) -> list[str]:
    """The first text that has a token for each row or column."""
    for one in order:
        if len(texts[one]) == size:
            return texts[one]
    counts = f"{len(texts['tokens'])} tokens and {len(texts['columns'])} columns"
    why = "pass one token per position, special tokens and padding too; a generated text without its last token, which is never read"
    raise SaccadeError(f"'{name}' has {size} {what}{'s' * (size != 1)}, and there are {counts}; {why}")
