"""Tables: rows of CSV, TSV and JSONL by the names or numbers of their columns, as in `my.csv#review,sentiment`."""

import csv
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

from ..errors import SaccadeError, did_you_mean
from .lines import HEADER, LineError, Rows, bare_suffix, convert, each_line, from_json, full_lines

SUFFIXES = (".csv", ".tsv", ".jsonl")
DELIMITERS = ",;\t"
MAX_ROW_LINES = 1000  # lines of one row of CSV: a longer one is a quote that was never closed
# what columns may be called; the first name is preferred where there are several
TEXTS = ("text", "sentence", "review", "content", "comment", "body", "message", "document", "tweet")
LABELS = ("label", "labels", "sentiment", "class", "category", "target", "intent", "stars")
SOURCES, TARGETS = ("source", "src", "input"), ("target", "tgt", "trg", "translation", "output")
OTHERS = (
    "id",
    "name",
    "date",
    "title",
    "question",
    "answer",
    "caption",
    "image",
    "english",
    "french",
    "german",
    "spanish",
    "chinese",
    "japanese",
)
# rows below the first one from which its meaning is guessed, and how many that takes
SAMPLE_ROWS, MIN_SAMPLE_ROWS = (100, 5)
MAX_NAME_CHARACTERS = 40  # characters of the name of a column
Where = str | Path | Sequence[str | Path]
Usual = Sequence[Sequence[str]]  # the names that each wanted column may have
Item = TypeVar("Item")


def split_name(where: Where) -> tuple[Where, list[str]]:
    """The file and the columns in `my.csv#review,sentiment`; several files, or one with a # in its name, are taken as they are."""
    name, mark, named = where.rpartition("#") if isinstance(where, str) else ("", "", "")
    if not mark or os.path.exists(str(where)):
        return where, []
    columns = [part.strip() for part in named.split(",")]
    if not all(columns):
        raise SaccadeError(
            f"'{where}' names no column after the #; write it as {name}#a,b", code="column-missing"
        )
    return name, columns


def each_entry(
    path: Path,
    make: Callable[..., Item],
    usual: Usual,
    columns: Sequence[str],
    plain: Callable[[int, str], Item],
) -> Iterator[Item | LineError]:
    """What `make` makes of each row and its columns: those named, or those of the usual names; `plain` reads the lines of a TSV
    whose first line names none."""
    if columns and len(columns) != len(usual):
        what = f"{len(columns)} column{'s' * (len(columns) > 1)} after the # of {path.name}, but {len(usual)} are read"
        raise SaccadeError(
            f"{what}; write it as {path.name}#{','.join(names[0] for names in usual)}, with your names",
            code="column-missing",
        )
    suffix = bare_suffix(path)
    if suffix == ".jsonl":
        chosen = columns or [names[0] for names in usual]
        return convert(
            path, full_lines(path), from_json(lambda number, entry: make(number, entry, *chosen))
        )
    read = partial(csv_rows, path, sniff(path)) if suffix == ".csv" else partial(tsv_rows, path)
    rows = read()
    number, first = next(rows)
    below = [] if isinstance(first, LineError) else sample(read(), len(first))
    found = None if isinstance(first, LineError) else locate(path, first, usual, columns)
    guessed = isinstance(first, list) and not (found and found[1]) and names_columns(first, below)
    form = ("<TAB>" if suffix == ".tsv" else ",").join(names[0] for names in usual)
    what = f"line {number} is taken for the names of the columns; if it is an example, put a line of names above it, such as {form}"
    header = [LineError(HEADER, what, path, number)] * guessed
    if suffix == ".tsv" and found is None and not columns:
        return chain(header, convert(path, islice(full_lines(path), int(guessed), None), plain))
    if isinstance(first, LineError):
        raise first.at(path, number)
    if found is None:
        there = ", ".join(f"'{cell[:20]}'" for cell in first[:8])
        wanted = " and one named ".join(names[0] for names in usual)
        way = f"or choose columns by name or number, such as {suggest(path.name, first, below, usual, guessed)}"
        what = f"expected one column named {wanted}, got: {there}; rename them, {way}"
        raise LineError("columns", what, path, number)
    at, has_header = found[0], found[1] or guessed
    names = [first[n].strip() if has_header else usual[k][0] for k, n in enumerate(at)]
    others = [n for n in range(len(first)) if has_header and n not in at]
    links = [n for n in others if first[n].strip().casefold() == "alignment"]

    def item(number: int, row: list[str]) -> Item:
        if len(row) != len(first):
            what = f"{len(row)} column{'s' * (len(row) > 1)} instead of the {len(first)} of line 1"
            hint = {".csv": "put quotes around a text with commas"}.get(
                suffix, "remove tabs inside a text"
            )
            raise LineError("columns", f"{what}; {hint}")
        labeled = zip((*names, *["alignment"] * len(links)), (*at, *links), strict=True)
        return make(number, {name: row[n] for name, n in labeled}, *names)

    return chain(
        header, convert(path, rows if has_header else chain([(number, first)], rows), item)
    )


def sample(rows: Rows[list[str]], width: int) -> list[list[str]]:
    """The first good rows below row 1; bad rows are reported when they are read."""
    found = list[list[str]]()
    with suppress(SaccadeError):
        for _, row in islice(rows, 1, SAMPLE_ROWS + 1):
            found += [row] if isinstance(row, list) and len(row) == width else []
    return found


def names_columns(first: list[str], below: Sequence[list[str]]) -> bool:
    """Whether a row clearly names columns: short distinct cells that are usual names or unlike the cells below."""
    cells = [cell.strip() for cell in first]
    if (
        not below
        or len({*cells}) < len(cells)
        or not all(0 < len(cell) <= MAX_NAME_CHARACTERS and not has_digit(cell) for cell in cells)
    ):
        return False
    if len(cells) > 1 and all(
        cell.casefold() in (*TEXTS, *LABELS, *SOURCES, *TARGETS, *OTHERS) for cell in cells
    ):
        return True
    columns = list(zip(*below, strict=True)) if len(below) >= MIN_SAMPLE_ROWS else []
    longer = any(
        sum(map(len, column)) > 3 * len(cell) * len(column)
        for cell, column in zip(cells, columns, strict=False)
    )
    return any(
        all(map(has_digit, column)) or (longer and cell not in column and is_label(column))
        for cell, column in zip(cells, columns, strict=False)
    )


def has_digit(text: str) -> bool:
    return any(map(str.isdigit, text))


def is_label(column: Sequence[str]) -> bool:
    """Whether the values of a column are few and occur again."""
    return 2 <= len({*column}) <= len(column) / 2


def suggest(
    name: str, first: list[str], below: Sequence[list[str]], usual: Usual, named: bool
) -> str:
    """The columns that fit best: the longest texts, and as labels few values that occur again; by name where row 1 has `named` them."""
    columns = list(zip(*below, strict=True))
    free = set(range(len(first)))
    at = list(range(len(usual)))

    def role(k: int) -> int:
        # a label is chosen among what is left
        return {"image": 0, "label": 2, "answer": 2}.get(usual[k][0], 1)

    def unfit(k: int, n: int) -> tuple[float, ...]:
        known = first[n].strip().casefold()
        rank = usual[k].index(known) if known in usual[k] else len(usual[k])
        length = sum(map(len, columns[n]))
        return (
            (-sum("." in cell for cell in columns[n]),),
            (-length,),
            (-is_label(columns[n]), rank, len({*columns[n]})),
        )[role(k)]

    if len(below) >= MIN_SAMPLE_ROWS and len(first) >= len(usual):
        for k in sorted(at, key=role):
            at[k] = min(sorted(free), key=partial(unfit, k))
            free.remove(at[k])
    at = sorted(at) if usual == (SOURCES, TARGETS) else at
    cells = [first[n].strip() for n in at if n < len(first)]
    by_name = named and not any({",", "#"} & {*cell} for cell in cells)
    found = f"{name}#{','.join(cells if by_name else [str(n + 1) for n in at])}"
    return f"'{found}'" if " " in found else found


def locate(
    path: Path, first: list[str], usual: Usual, columns: Sequence[str]
) -> tuple[list[int], bool] | None:
    """The positions of the columns in a row, and whether the first row names them; None where they cannot be recognized."""
    header = [" ".join(cell.casefold().split()) for cell in first]
    at = []
    for name in columns:
        by_number = int(name) - 1 if name.isascii() and name.isdigit() else -1
        if name.casefold() not in header and not 0 <= by_number < len(first):
            hint = did_you_mean(name, [cell.strip() for cell in first])
            raise SaccadeError(
                f"{path} has no column '{name}' (line 1 has {len(first)}){hint}",
                code="unknown-column",
            )
        at.append(header.index(name.casefold()) if name.casefold() in header else by_number)
    if columns:
        named = any(name.casefold() in header for name in columns)
        return at, named or all(any(header[n] in names for names in usual) for n in at)
    for names in usual:
        hits = [n for n, cell in enumerate(header) if cell in names and n not in at]
        hits = [n for n in hits if header[n] == names[0]] or hits
        if len(hits) != 1:
            return None
        at += hits
    return at, True


def sniff(path: Path) -> str:
    """What separates the columns of a CSV: the sign by which most of its first lines have as many cells as line 1."""
    sample = [str(line)[:5000].replace("\r", " ") + "\n" for _, line in islice(each_line(path), 20)]

    def fitting(delimiter: str) -> int:
        counts = [len(row) for row in csv.reader(sample, delimiter=delimiter)]
        return sum(count == counts[0] > 1 for count in counts)

    return max(DELIMITERS, key=fitting)


def tsv_rows(path: Path) -> Rows[list[str]]:
    """The cells of each line; quotes are part of the text."""
    return (
        (number, line if isinstance(line, LineError) else line.split("\t"))
        for number, line in full_lines(path)
    )


def csv_rows(path: Path, delimiter: str = ",") -> Rows[list[str]]:
    """Rows with the number of their first line; a quoted text may have delimiters and line breaks. After a broken row, reading
    continues with the line that follows its first: a quote that is never closed costs one row, not the rest of the file."""
    lines = each_line(path)
    again: list[tuple[int, str | LineError]] = []  # read with a broken row, the next one last
    while True:
        taken: list[tuple[int, str | LineError]] = []
        feed = partial(_take, lines, again, taken)
        row: list[str] | LineError | None
        try:
            row = next(csv.reader(iter(feed, None), strict=True, delimiter=delimiter), None)
        except csv.Error as error:
            row = LineError(
                "CSV", f"invalid CSV ({error}); close each quote, and double those inside a text"
            )
            end = next(
                (n for n, (_, line) in enumerate(taken, 1) if isinstance(line, LineError)), 1
            )
            again += reversed(taken[end:])
            del taken[end:]
        if row is None:
            return
        unreadable = next((line for _, line in taken if isinstance(line, LineError)), None)
        yield (
            taken[0][0],
            unreadable or row or LineError("empty line", "the line is empty; remove it"),
        )


def _take(lines: Rows[str], again: list[Any], taken: list[Any]) -> str | None:
    """The next line of a row, or None at the end of the file or of what a row may have."""
    found = None if len(taken) == MAX_ROW_LINES else again.pop() if again else next(lines, None)
    if found is None:
        return None
    taken.append(found)
    return (found[1] if isinstance(found[1], str) else "") + "\n"


def whole_rows(where: str, count: int) -> list[dict[str, Any]]:
    """All columns of each of `count` rows of a table; empty for what is no such table. Columns without a name are numbered."""
    name, _ = split_name(where)
    path = Path(str(name)).expanduser()
    suffix = bare_suffix(path)
    if suffix not in SUFFIXES or not path.is_file():
        return []
    if suffix == ".jsonl":
        found = [json.loads(str(line)) for _, line in full_lines(path)]
        return found if len(found) == count else []
    read = csv_rows(path, sniff(path)) if suffix == ".csv" else tsv_rows(path)
    rows = [row if isinstance(row, list) else [] for _, row in read]
    if len(rows) - count not in (0, 1):
        return []
    width = max(map(len, rows), default=0)
    names = rows[0] if len(rows) > count else [f"column {n + 1}" for n in range(width)]
    return [dict(zip(names, row, strict=False)) for row in rows[len(rows) - count :]]
