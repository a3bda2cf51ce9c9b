"""Pairs, a sentence in two languages, from files: parallel text, TSV and JSONL, each also as .gz or .xz; a bad line is named by file and line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import SaccadeError
from .lines import LineError, bare_suffix, each_line, one_file, paths_of, readable
from .rows import convert, full_lines, parse_object, split_columns, text_of

FORMS = "one .tsv or .jsonl file, or two text files as 'corpus.en,corpus.fr' (each may end in .gz or .xz)"
Links = tuple[tuple[int, int], ...]
Where = str | Path | Sequence[str | Path]

_LINK = re.compile(r"(\d{1,7})([-?p])(\d{1,7})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Pair:
    """Source and target text; words are what white space separates, and alignments and tags count words from 0.

    `alignment` holds (source word, target word) pairs that are surely linked, `possible` those that may be linked too.
    `line` is the pair's line in its file, counted from 1.
    """

    source: str
    target: str
    line: int = 0
    alignment: Links | None = None
    possible: Links | None = None
    tags: tuple[str, ...] | None = None


def each_pair(where: Where) -> Iterator[Pair | LineError]:
    """Each pair of a .tsv or .jsonl file or of two parallel text files, or the error it is."""
    parts = paths_of(where)
    if len(parts) not in (1, 2) or not all(parts):
        raise SaccadeError(f"pairs cannot be read from '{', '.join(parts)}'; give {FORMS}")
    paths = [one_file(part, FORMS) for part in parts]
    for path in paths:
        parse = {".tsv": _from_tsv, ".jsonl": _from_json}.get(bare_suffix(path))
        if len(paths) == 1 and parse:
            yield from convert(path, full_lines(path), parse)
        elif len(paths) == 1:
            raise SaccadeError(f"'{path}' does not end in .tsv or .jsonl, so its format is not known; give {FORMS}")
        elif parse:
            raise SaccadeError(f"{path} holds both sides of its pairs, so it cannot be one of two parallel files; give {FORMS}")
    if len(paths) == 2:
        yield from _parallel(paths)


def _from_tsv(number: int, line: str) -> Pair:
    cells = split_columns(line, (2, 3), "source<TAB>target, and may continue with <TAB>alignment")
    return pair_of(number, dict(zip(("source", "target", "alignment"), cells, strict=False)))


def _from_json(number: int, line: str) -> Pair:
    return pair_of(number, parse_object(line, '{"source": …, "target": …}'))


def _parallel(paths: list[Path]) -> Iterator[Pair | LineError]:
    left, right = (list(each_line(path)) for path in paths)
    if len(left) != len(right):
        # reported before any single line: once the files are out of step, every later complaint only follows from it
        counts = f"{paths[0]} has {len(left):,} lines and {paths[1]} has {len(right):,}"
        yield LineError("line counts", f"{counts}; line n of one must translate line n of the other", paths[0], 0)

    def pair(number: int, sides: dict[str, str | LineError]) -> Pair:
        for path, (side, line) in zip(paths, sides.items(), strict=True):
            if isinstance(line, LineError):
                raise line
            if not line.strip():
                raise LineError("empty side", f"the {side} is empty; remove this line from both files", path)
        return pair_of(number, sides)

    rows = ((number, {"source": line, "target": other}) for (number, line), (_, other) in zip(left, right, strict=False))
    yield from convert(paths[0], rows, pair)


def pair_of(number: int, entry: dict[str, Any], source: str = "source", target: str = "target") -> Pair:
    """The pair of a row, if there is something to learn from it and its links and tags fit its words."""
    needs = 'a pair needs "source" and "target"'
    texts = {"source": text_of(entry, source, needs, "source"), "target": text_of(entry, target, needs, "target")}
    tags = entry.get("tags")
    if tags is not None and not (isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)):
        raise LineError("tags", '"tags" must be a list of strings, one for each source word')
    alignment, possible = (_links(key, entry.get(key)) for key in ("alignment", "possible"))
    sure, maybe = alignment or ((), ())
    maybe = tuple(dict.fromkeys(maybe + sum(possible or (), ())))
    known = alignment is not None or bool(maybe)
    if known or tags is not None:
        counts = {side: len(text.split()) for side, text in texts.items()}
        for link in sure + maybe:
            for (side, count), word in zip(counts.items(), link, strict=True):
                if not 0 <= word < count:
                    what = f"the link {link[0]}-{link[1]} names {side} word {word}, but the {side} has {count}"
                    raise LineError("alignment", f"{what} (counted from 0)")
        if tags is not None and len(tags) != counts["source"]:
            raise LineError("tags", f"{len(tags)} tags for {counts['source']} source words; give each word one tag")
        readable(" ".join(tags or ()), "tags")
    links = (sure if known else None, maybe or None)
    return Pair(texts["source"], texts["target"], number, *links, tuple(tags) if tags else None)


def _links(key: str, value: Any) -> tuple[Links, Links] | None:
    """Sure and possible links from Pharaoh text or from [[0, 0], [1, 2]]."""
    if value is None:
        return None
    if isinstance(value, str):
        return parse_pharaoh(value)
    # by type and not isinstance: [true, false] is not a link
    if not isinstance(value, list) or not all(isinstance(ends, list) and [*map(type, ends)] == [int, int] for ends in value):
        raise LineError("alignment", f'"{key}" must be text such as "0-0 1-2" or a list such as [[0, 0], [1, 2]]')
    return tuple(dict.fromkeys((i, j) for i, j in value)), ()


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


def format_pharaoh(links: Iterable[tuple[int, int]], possible: Iterable[tuple[int, int]] = ()) -> str:
    """Links as `0-0 1-2`, and the possible ones after them as `1?2`."""
    return " ".join([f"{i}-{j}" for i, j in links] + [f"{i}?{j}" for i, j in possible])
