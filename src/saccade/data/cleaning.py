"""A clean copy of data: without broken, over-long and lopsided examples, and where asked without repeated ones."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import SaccadeError
from ..files import write_atomically
from .check import LONG_WORDS, LOOKS, Gathered
from .lines import paths_of
from .pairs import format_pharaoh
from .scripts import length, unspaced_script
from .skipping import RATIO, Skipped, lopsided, many

SUFFIXES = {"pairs": (".tsv", ".jsonl"), "labels": (".tsv", ".jsonl"), "tags": (".jsonl",), "text": (".txt", ".jsonl")}


def check_names(kind: str, where: str) -> list[Path]:
    """The new files that `where` names, if data of this kind can be written to them."""
    paths = [Path(name).expanduser() for name in paths_of(where)]
    if not ((len(paths) == 1 and paths[0].suffix in SUFFIXES[kind]) or (len(paths) == 2 and kind == "pairs")):
        forms = f"a {' or '.join(SUFFIXES[kind])} file" + ", or two files as clean.en,clean.fr" * (kind == "pairs")
        raise SaccadeError(f"cannot write {kind} to '{where}'; name {forms}")
    there = next((path for path in paths if os.path.exists(path)), None)
    if there is not None:
        raise SaccadeError(f"{there} already exists; choose a new file with --write")
    return paths


def clean(data: Gathered, where: str, unique: bool = False, longest: int | None = None, separated: str = "file") -> str:
    """Writes the good items; a sentence on how many they are and what was skipped."""
    paths, skipped, good = check_names(data.kind, where), Skipped(), list[Any]()
    for finding in data.broken:
        skipped.add(data.name, finding.kind, (finding.lines or [0])[0], finding.count)
    for item, reason in judge(data, unique, LONG_WORDS * (data.kind in ("pairs", "tags")) if longest is None else longest):
        if reason:
            skipped.add(data.name, reason, item.line)
        else:
            good.append(item)
    if not good:
        raise SaccadeError(f"nothing of {data.name} is left to write; see what is wrong with it above")
    rows = [row_of(data.kind, item) for item in good]
    for n, path in enumerate(paths):
        write_atomically(path, written(rows, path, n if len(paths) == 2 else None, separated).encode())
    return "\n".join([f"{where}: {many(len(good), LOOKS[data.kind].data.thing)} written", *skipped.notes()])


def judge(data: Gathered, unique: bool, longest: int) -> Iterator[tuple[Any, str]]:
    """Each item, and why it is left out, if it is."""
    facts = [LOOKS[data.kind].facts(item) for item in data.items]
    scripts = [
        unspaced_script(side for side in sides if isinstance(side, str)) for sides in zip(*(f[0] for f in facts), strict=True)
    ]
    seen = set()
    for item, (sides, key, value) in zip(data.items, facts, strict=True):
        sizes = [
            len(side) if isinstance(side, tuple) else length(side, script) for side, script in zip(sides, scripts, strict=True)
        ]
        reason = ""
        if longest and max(sizes) > longest:
            reason = f"longer than {longest:,} words or characters"
        elif data.kind == "pairs" and lopsided(sizes, [str(side) for side in sides], RATIO):
            reason = f"with one side more than {RATIO:g} times as long as the other"
        elif LOOKS[data.kind].labels and value is None:
            reason = f"without {LOOKS[data.kind].labels}"
        elif unique and (key, value) in seen:
            reason = "repeating an earlier one"
        seen.add((key, value))
        yield item, reason


def row_of(kind: str, item: Any) -> dict[str, Any]:
    """An item as a row of JSONL; its values are the cells of TSV."""
    if kind == "pairs":
        links = {} if item.alignment is None else {"alignment": format_pharaoh(item.alignment, item.possible or ())}
        return {"source": item.source, "target": item.target, **links}
    names = {"labels": ("text", "label"), "tags": ("words", "tags"), "text": ("text",)}[kind]
    return {name: getattr(item, name) for name in names}


def written(rows: list[dict[str, Any]], path: Path, side: int | None, separated: str) -> str:
    """The rows as a file's content; `side` is that of parallel files."""
    if side is None and path.suffix == ".jsonl":
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if side is None and path.suffix == ".txt":
        end = "\n\n" if separated == "blank" else "\n"
        return "".join(row["text"].rstrip("\n") + end for row in rows)
    cells = ([re.sub(r"\s*[\t\r\n]\s*", " ", str(cell).strip()) for cell in row.values()] for row in rows)
    return "".join((row[side] if side is not None else "\t".join(row)) + "\n" for row in cells)
