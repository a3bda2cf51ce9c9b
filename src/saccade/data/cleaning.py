"""A clean copy of data: without broken, over-long and lopsided examples, and where asked without repeated ones."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import SaccadeError
from ..files import write_atomically
from .bad_lines import MAX_RATIO, Skipped, lopsided, many
from .findings import LOOKS, MAX_WORDS, Report
from .lines import paths_of
from .pairs import format_pharaoh
from .unspaced_scripts import length, unspaced_script

SUFFIXES = {
    "pairs": (".tsv", ".jsonl"),
    "labels": (".tsv", ".jsonl"),
    "tags": (".jsonl",),
    "text": (".txt", ".jsonl"),
}


def check_names(kind: str, where: str) -> list[Path]:
    """The new files that `where` names, if data of this kind can be written to them."""
    if kind not in SUFFIXES:
        raise SaccadeError(
            f"a clean copy of {kind} cannot be written; remove the files that are wrong, and leave --write out",
            code="cannot-write-format",
        )
    paths = [Path(name).expanduser() for name in paths_of(where)]
    if [path.suffix in SUFFIXES[kind] for path in paths] != [True] and (len(paths), kind) != (
        2,
        "pairs",
    ):
        forms = f"a {' or '.join(SUFFIXES[kind])} file" + ", or two files as clean.en,clean.fr" * (
            kind == "pairs"
        )
        raise SaccadeError(f"cannot write {kind} to '{where}'; name {forms}", code="unknown-ending")
    for path in paths:
        if os.path.exists(path):
            raise SaccadeError(
                f"{path} already exists; choose a new file with --write", code="file-exists"
            )
    return paths


def clean(
    data: Report,
    where: str,
    unique: bool = False,
    longest: int | None = None,
    separated: str = "file",
) -> str:
    """Write the good items; return a summary with the number written and skipped."""
    paths, skipped, rows = check_names(data.kind, where), Skipped(), list[dict[str, Any]]()
    for finding in data.findings:
        if finding.kind in ("line counts", "cut off"):
            raise SaccadeError(f"{finding.sentence}; nothing was written", code="bad-lines")
        if finding.level == "error":
            skipped.add(data.name, finding.kind, (finding.lines or [0])[0], finding.count)
    for item, reason in judge(
        data, unique, MAX_WORDS * (data.kind in ("pairs", "tags")) if longest is None else longest
    ):
        if reason:
            skipped.add(data.name, reason, item.line)
        else:
            rows.append(row_of(item))
    if not rows:
        raise SaccadeError(
            f"nothing of {data.name} is left to write; see what is wrong with it above",
            code="nothing-left",
        )
    for n, path in enumerate(paths):
        write_atomically(
            path,
            "".join(
                line_of(row, path.suffix, n if len(paths) == 2 else None, separated) for row in rows
            ).encode(),
        )
    return "\n".join([f"{where}: {many(len(rows), data.what)} written", *skipped.notes()])


def judge(data: Report, unique: bool, longest: int) -> Iterator[tuple[Any, str]]:
    """Each item, and why it is left out, if it is."""
    facts = [LOOKS[data.kind].facts(item) for item in data.items]
    sides = zip(*(texts for texts, _, _ in facts), strict=True)
    scripts = [unspaced_script(text for text in side if isinstance(text, str)) for side in sides]
    seen = set()
    for item, (texts, key, value) in zip(data.items, facts, strict=True):
        sizes = [
            len(text) if isinstance(text, tuple) else length(text, how)
            for text, how in zip(texts, scripts, strict=True)
        ]
        reasons = {
            f"longer than {longest:,} words or characters": longest and max(sizes) > longest,
            f"with one side more than {MAX_RATIO:g} times as long": len(sizes) > 1
            and lopsided(sizes, texts, MAX_RATIO),
            f"without {LOOKS[data.kind].labels}": LOOKS[data.kind].labels and value is None,
            "repeating an earlier one": unique and (key, value) in seen,
        }
        seen.add((key, value))
        yield item, next((reason for reason, applies in reasons.items() if applies), "")


def row_of(item: Any) -> dict[str, Any]:
    """An item as a row of JSONL; its values are the cells of TSV."""
    row = {
        name: getattr(item, name)
        for name in ("source", "target", "words", "text", "label", "tags")
        if hasattr(item, name)
    }
    if getattr(item, "alignment", None) is not None:
        row["alignment"] = format_pharaoh(item.alignment, item.possible or ())
    return {name: value for name, value in row.items() if value is not None}


def line_of(row: dict[str, Any], suffix: str, side: int | None, separated: str) -> str:
    """A row as it is written; `side` is that of parallel files."""
    if suffix == ".jsonl" and side is None:
        return json.dumps(row, ensure_ascii=False) + "\n"
    if suffix == ".txt" and side is None:
        return str(row["text"]).rstrip("\n") + ("\n\n" if separated == "blank" else "\n")
    cells = [" ".join(str(value).split()) for name, value in row.items() if name != "tags"]
    return ("\t".join(cells) if side is None else cells[side]) + "\n"
