"""Answers in files: lines, JSON lines or a table, by the ending of the file."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from ..errors import SaccadeError, did_you_mean

KINDS = (".csv", ".tsv", ".jsonl", ".txt", ".conllu")
VIEWS = (".png", ".svg", ".pdf", ".html", ".json", ".bmp", ".jpg", ".gif")
# columns of a row that are its input, which a table has already
GIVEN = ("text", "source", "image", "question", "prompt", "words")


def file_kind(path: Path | None, as_json: bool) -> str:
    """The ending that chooses the format of a file."""
    if path is None:
        return ""
    kind = path.suffix.lower()
    if kind not in KINDS:
        way = f"name a file ending in {', '.join(KINDS[:-1])}"
        if kind in VIEWS:
            way += "; pictures and pages are drawn by `saccade show`"
        raise SaccadeError(f"cannot write answers into '{path}'; {way}", code="wrong-ending")
    return ".jsonl" if as_json and kind == ".txt" else kind


def check_place(on: str, out_file: Path | None, input_file: str | None, shown: bool) -> None:
    """What --on and --out need, and what has no parts: a translation that is looked at."""
    if on not in ("here", "ray"):
        raise SaccadeError(
            f"no way to run named '{on}'{did_you_mean(on, ('here', 'ray'))}", code="unknown-place"
        )
    option = "--on ray" if on == "ray" else "--out" if out_file is not None else ""
    if option and shown:
        raise SaccadeError(
            f"{option} is for whole answers; leave out --steps and --given", code="no-parts"
        )
    if on == "ray" and input_file is None:
        raise SaccadeError(
            "--on ray is for many lines in a file; give --input FILE", code="needs-input"
        )
    if out_file is not None and out_file.exists():
        raise SaccadeError(
            f"{out_file} exists already; remove it, or choose another --out", code="file-exists"
        )


def save_rows(
    path: Path, kind: str, lines: list[str], rows: list[dict[str, Any]], where: str | None
) -> None:
    """Writes the answers to the inputs in `where`, whose other columns are kept, all at once."""
    from ..data.delimited import whole_rows
    from ..files import write_atomically

    if kind in (".txt", ".conllu"):
        return write_atomically(path, "".join(f"{line}\n" for line in lines).encode())
    if kind != ".jsonl":
        rows = [columns_of(row) for row in rows]
    before = whole_rows(where, len(rows)) if where else []
    if before:
        rows = [merged(old, new) for old, new in zip(before, rows, strict=True)]
    text = io.StringIO()
    if kind == ".jsonl":
        for row in rows:
            text.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
    else:
        names = list(dict.fromkeys(name for row in rows for name in row))
        delimiter = "," if kind == ".csv" else "\t"
        table = csv.DictWriter(text, names, delimiter=delimiter, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    return write_atomically(path, text.getvalue().encode())


def merged(before: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """A row of the input with its answer; where both have a column, the answer's is `predicted_…`."""
    new = {name: value for name, value in row.items() if name not in GIVEN}
    taken = {name: f"predicted_{name}" if name in before else name for name in new}
    return {**before, **{taken[name]: value for name, value in new.items()}}


def columns_of(row: dict[str, Any]) -> dict[str, Any]:
    """What a table has of a row: numbers and texts, lists of words, and the probability of the answer."""
    made = dict[str, Any]()
    for name, value in row.items():
        if name == "probabilities":
            made["probability"] = max(value.values(), default=None)
        elif name == "alignment":
            made[name] = " ".join(f"{source}-{target}" for source, target in value)
        elif not isinstance(value, list | dict):
            made[name] = value
        elif name in ("words", "tags"):
            made[name] = " ".join(value)
    return made
