"""Pairs, a sentence in two languages, from files: parallel text and tables, each also as .gz or .xz; a bad line is named by file and line."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import SaccadeError
from .conllu import sentence_of
from .delimited import SOURCES, SUFFIXES, TARGETS, Where, each_entry, split_name
from .lines import (
    LineError,
    bare_suffix,
    convert,
    each_line,
    one_file,
    paths_of,
    split_columns,
    text_of,
)
from .memory import within_memory

FORMS = "one .tsv, .csv or .jsonl file, or two text files as 'corpus.en,corpus.fr' (each may end in .gz or .xz)"
Links = tuple[tuple[int, int], ...]

_LINK = re.compile(r"(\d{1,7})([-?p])(\d{1,7})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Pair:
    """Source and target text; words are what white space separates, and alignments and tags count words from 0."""

    source: str
    target: str
    line: int = 0  # in its file, counted from 1
    alignment: Links | None = None  # (source word, target word) that are surely linked
    possible: Links | None = None  # those that may be linked too
    tags: tuple[str, ...] | None = None


def each_pair(where: Where) -> Iterator[Pair | LineError]:
    """Each pair of a table or of two parallel text files, or the error it is; `my.csv#en,fr` names the columns of a table."""
    name, columns = split_name(where)
    parts = paths_of(name)
    paths = [one_file(part, FORMS) for part in parts] if len(parts) in (1, 2) and all(parts) else []
    tables = sum(bare_suffix(path) in SUFFIXES for path in paths)
    if (len(paths), tables) == (1, 1):
        return each_entry(paths[0], pair_of, (SOURCES, TARGETS), columns, _from_tsv)
    if (len(paths), tables) == (2, 0) and not columns:
        return _parallel(paths)
    raise SaccadeError(
        f"pairs cannot be read from '{', '.join(parts)}'; give {FORMS}", code="number-of-files"
    )


def _from_tsv(number: int, line: str) -> Pair:
    cells = split_columns(line, (2, 3), "source<TAB>target, and may continue with <TAB>alignment")
    return pair_of(number, dict(zip(("source", "target", "alignment"), cells, strict=False)))


def _parallel(paths: list[Path]) -> Iterator[Pair | LineError]:
    left, right = ([line for _, line in within_memory(each_line(path), path)] for path in paths)
    if len(left) != len(right):
        # reported before any single line: once the files are out of step, every later complaint only follows from it
        counts = f"{paths[0]} has {len(left):,} lines and {paths[1]} has {len(right):,}"
        yield LineError(
            "line counts",
            f"{counts}; line n of one must translate line n of the other",
            paths[0],
            0,
        )

    def pair(number: int, sides: dict[str, str | LineError]) -> Pair:
        for path, (side, line) in zip(paths, sides.items(), strict=True):
            if isinstance(line, LineError):
                raise line
            if not line.strip():
                raise LineError(
                    "empty side", f"the {side} is empty; remove this line from both files", path
                )
        return pair_of(number, sides)

    both = enumerate(zip(left, right, strict=False), 1)
    rows = ((number, {"source": line, "target": other}) for number, (line, other) in both)
    yield from convert(paths[0], rows, pair)


def pair_of(
    number: int, entry: dict[str, Any], source: str = "source", target: str = "target"
) -> Pair:
    """The pair of a row, if there is something to learn from it and its links and tags fit its words."""
    texts = text_of(entry, source), text_of(entry, target)
    links, tags = entry.get("alignment"), entry.get("tags")
    sure, possible = (None, ()) if links is None else parse_pharaoh(str(links))
    for link in (*(sure or ()), *possible):
        for side, text, word in zip(("source", "target"), texts, link, strict=True):
            if word >= (count := len(text.split())):
                what = f"the link {link[0]}-{link[1]} names {side} word {word}, but the {side} has {count}"
                raise LineError("alignment", f"{what} (counted from 0)")
    if tags is not None:
        tags = sentence_of(number, {"words": texts[0].split(), "tags": tags}).tags
    return Pair(*texts, number, sure, possible or None, tags)


def parse_pharaoh(text: str) -> tuple[Links, Links]:
    """Sure and possible links of `0-0 1-2 1?2 3p4` as (source word, target word), each once, as they are written."""
    sure: dict[tuple[int, int], None] = {}
    possible: dict[tuple[int, int], None] = {}
    for word in text.split():
        match = _LINK.fullmatch(word)
        if match is None:
            what = f"'{word[:40]}' is not a link; write links as 0-0 1-2 (source-target) and possible ones as 1?2"
            raise LineError("alignment", what)
        (possible if match[2] != "-" else sure)[int(match[1]), int(match[3])] = None
    return tuple(sure), tuple(possible)


def format_pharaoh(
    links: Iterable[tuple[int, int]], possible: Iterable[tuple[int, int]] = ()
) -> str:
    """Links as `0-0 1-2`, and the possible ones after them as `1?2`."""
    return " ".join([f"{i}-{j}" for i, j in links] + [f"{i}?{j}" for i, j in possible])
