"""Pairs in and out of files: parallel text, TSV and JSONL, each also as .gz or .xz; a bad line is named by file and line."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from ..errors import SaccadeError
from .lines import (
    LONGEST_LINE,
    LineError,
    bare_suffix,
    decoded,
    json_object,
    json_string,
    must_exist,
    open_text,
    paths_of,
    raw_lines,
    readable,
    strict,
)
from .pairs import Links, Pair

__all__ = [
    "LONGEST_LINE",
    "LineError",
    "checked",
    "each_pair",
    "format_pharaoh",
    "open_text",
    "parse_pharaoh",
    "read_pairs",
    "write_pairs",
]

FORMS = "one .tsv or .jsonl file, or two text files as 'corpus.en,corpus.fr' (each may end in .gz or .xz)"

_Where = str | Path | Sequence[str | Path]
_LINK = re.compile(r"(\d{1,7})([-?p])(\d{1,7})", re.ASCII)


def read_pairs(where: _Where) -> list[Pair]:
    """All pairs of a .tsv or .jsonl file or of two parallel text files; the first bad line is an error that names it."""
    return strict(each_pair(where))


def each_pair(where: _Where) -> Iterator[Pair | LineError]:
    """Each line as a pair, or as the error it is: the strict reader raises that error, `scan_pairs` collects it."""
    paths = _paths(where)
    if len(paths) == 2:
        yield from _parallel(paths[0], paths[1])
        return
    path = paths[0]
    parse = _from_tsv if _form(path) == ".tsv" else _from_json
    for number, raw in enumerate(raw_lines(path), 1):
        try:
            text = decoded(path, number, raw)
            if not text:
                raise LineError("empty line", path, number, "the line is empty; remove it")
            yield checked(parse(path, number, text), path, path)
        except LineError as error:
            yield error


def write_pairs(pairs: Iterable[Pair], path: str | Path) -> None:
    """Write .tsv or .jsonl (also .gz, .xz) under a temporary name, sync, rename: the file is there as a whole or not at all."""
    path = Path(path)
    write = _to_tsv if _form(path) == ".tsv" else _to_json
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    number = 0
    try:
        with open(part, "wb") as raw, ExitStack() as stack:
            file = stack.enter_context(_packer(raw, path))
            for number, pair in enumerate(pairs, 1):
                placed = checked(replace(pair, line=number), path, path)
                file.write(write(path, placed).encode() + b"\n")
            if not number:
                raise SaccadeError(f"there are no pairs to write to {path}; a file of pairs needs at least one")
            stack.close()  # the end of the compressed stream must be written before the sync
            raw.flush()
            os.fsync(raw.fileno())
        os.replace(part, path)
    except OSError as error:
        raise SaccadeError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            part.unlink()


def parse_pharaoh(text: str) -> tuple[Links, Links]:
    """Sure and possible links of `0-0 1-2 1?2 3p4` as (source word, target word), each once, as they are written."""
    sure: dict[tuple[int, int], None] = {}
    possible: dict[tuple[int, int], None] = {}
    for word in text.split():
        match = _LINK.fullmatch(word)
        if match is None:
            raise SaccadeError(f"'{word[:40]}' is not a link; write links as 0-0 1-2 (source-target) and possible ones as 1?2")
        (possible if match[2] != "-" else sure)[int(match[1]), int(match[3])] = None
    return tuple(sure), tuple(possible)


def format_pharaoh(links: Iterable[tuple[int, int]], possible: Iterable[tuple[int, int]] = ()) -> str:
    """Links as `0-0 1-2`, and the possible ones after them as `1?2`."""
    return " ".join([f"{i}-{j}" for i, j in links] + [f"{i}?{j}" for i, j in possible])


# --- where to files ----------------------------------------------------------------------------------------------------


def _paths(where: _Where) -> list[Path]:
    """One or two paths, from a path, `a.en,a.fr` or a sequence; a file that has a comma in its name is taken as it is."""
    parts = paths_of(where)
    if len(parts) not in (1, 2) or not all(parts):
        raise SaccadeError(f"pairs cannot be read from '{', '.join(parts)}'; give {FORMS}")
    paths = [Path(os.path.expanduser(part)) for part in parts]
    for path in paths:
        if path.is_dir():
            raise SaccadeError(f"{path} is a folder, not a file; give {FORMS}")
        if len(paths) == 2 and bare_suffix(path) in (".tsv", ".jsonl"):
            raise SaccadeError(f"{path} holds pairs by itself and cannot be one of two parallel text files; give {FORMS}")
    if len(paths) == 1:
        _form(paths[0])
    return paths


def _form(path: Path) -> str:
    suffix = bare_suffix(path)
    if suffix not in (".tsv", ".jsonl"):
        must_exist(path)
        raise SaccadeError(f"'{path}' does not end in .tsv or .jsonl, so its pairs cannot be told apart; give {FORMS}")
    return suffix


# --- lines to pairs and back --------------------------------------------------------------------------------------------


def _parallel(source: Path, target: Path) -> Iterator[Pair | LineError]:
    left, right = list(raw_lines(source)), list(raw_lines(target))
    if len(left) != len(right):
        # told before any single line: once the files slip against each other, every later complaint only follows from it
        counts = f"{source} has {len(left):,} lines and {target} has {len(right):,}"
        yield LineError("line counts", source, 0, f"{counts}; line n of one must translate line n of the other")
    for number, (one, other) in enumerate(zip(left, right, strict=False), 1):
        try:
            yield checked(Pair(decoded(source, number, one), decoded(target, number, other), number), source, target)
        except LineError as error:
            yield error


def _from_tsv(path: Path, number: int, text: str) -> Pair:
    columns = text.split("\t")
    if len(columns) not in (2, 3):
        count = "1 column" if len(columns) == 1 else f"{len(columns)} columns"
        what = f"{count} instead of 2 or 3; a line is source<TAB>target, and may go on with <TAB>alignment"
        raise LineError("columns", path, number, what)
    links = _links(path, number, "alignment", columns[2]) if len(columns) == 3 else None
    return _linked(Pair(columns[0], columns[1], number), links, ((), ()))


def _from_json(path: Path, number: int, text: str) -> Pair:
    entry = json_object(path, number, text, '{"source": …, "target": …}')
    needs = 'a pair needs "source" and "target"'
    source, target = (json_string(path, number, entry, key, needs) for key in ("source", "target"))
    tags = entry.get("tags")
    if tags is not None and not (isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)):
        raise LineError("tags", path, number, '"tags" must be a list of strings, one for each source word')
    pair = Pair(source, target, number, tags=None if tags is None else tuple(tags))
    alignment, possible = (_links(path, number, key, entry.get(key)) for key in ("alignment", "possible"))
    return _linked(pair, alignment, possible or ((), ()))


def _links(path: Path, number: int, key: str, value: Any) -> tuple[Links, Links] | None:
    """Sure and possible links from Pharaoh text or from [[0, 0], [1, 2]]."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return parse_pharaoh(value)
        except SaccadeError as error:
            raise LineError("alignment", path, number, str(error)) from None
    # by type and not isinstance: [true, false] is no link
    if not isinstance(value, list) or not all(isinstance(ends, list) and [*map(type, ends)] == [int, int] for ends in value):
        raise LineError("alignment", path, number, f'"{key}" must be text such as "0-0 1-2" or a list such as [[0, 0], [1, 2]]')
    return tuple(dict.fromkeys((i, j) for i, j in value)), ()


def _linked(pair: Pair, alignment: tuple[Links, Links] | None, possible: tuple[Links, Links]) -> Pair:
    sure, maybe = alignment or ((), ())
    maybe = tuple(dict.fromkeys(maybe + possible[0] + possible[1]))
    return replace(pair, alignment=None if alignment is None and not maybe else sure, possible=maybe or None)


def checked(pair: Pair, source: Path, target: Path) -> Pair:
    """The pair itself, if there is something to learn from it and its links and tags fit its words."""
    tags = [("tags", " ".join(pair.tags), source)] if pair.tags else []
    for side, text, path in (("source", pair.source, source), ("target", pair.target, target), *tags):
        readable(text, side, path, pair.line)
        if side != "tags" and (not text or text.isspace()):
            both = "" if source == target else " from both files"
            raise LineError("empty side", path, pair.line, f"the {side} is empty; remove this line{both}")
    if pair.alignment is None and pair.possible is None and pair.tags is None:
        return pair
    counts = {"source": len(pair.source.split()), "target": len(pair.target.split())}
    for link in (pair.alignment or ()) + (pair.possible or ()):
        for (side, count), word in zip(counts.items(), link, strict=True):
            if not 0 <= word < count:
                what = f"the link {link[0]}-{link[1]} names {side} word {word}, but the {side} has {count} (counted from 0)"
                raise LineError("alignment", source, pair.line, what)
    if pair.tags is not None and len(pair.tags) != counts["source"]:
        what = f"{len(pair.tags)} tags for {counts['source']} source words; give each word one tag"
        raise LineError("tags", source, pair.line, what)
    return pair


def _to_tsv(path: Path, pair: Pair) -> str:
    """One line; what a TSV line cannot hold is refused instead of changed."""
    text = pair.source + pair.target
    if re.search(r"[\t\n\r]", text) or (pair.line == 1 and pair.source.startswith("\ufeff")):
        raise LineError("columns", path, pair.line, "a tab, a line break or a byte order mark in the text; write .jsonl instead")
    if pair.tags is not None:
        raise LineError("tags", path, pair.line, "a .tsv file has no column for tags; write .jsonl instead")
    links = _all_links(pair)
    return "\t".join([pair.source, pair.target] + ([] if links is None else [links]))


def _all_links(pair: Pair) -> str | None:
    known = pair.alignment is not None or pair.possible
    return format_pharaoh(pair.alignment or (), pair.possible or ()) if known else None


def _to_json(path: Path, pair: Pair) -> str:
    entry: dict[str, Any] = {"source": pair.source, "target": pair.target}
    links = _all_links(pair)
    if links is not None:
        entry["alignment"] = links
    if pair.tags is not None:
        entry["tags"] = list(pair.tags)
    return json.dumps(entry, ensure_ascii=False)


def _packer(raw: IO[bytes], path: Path) -> AbstractContextManager[Any]:
    """What to write into, by suffix; without a time stamp, so that the same pairs give the same bytes."""
    suffix = path.suffix.lower()
    if suffix == ".gz":
        return gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0)
    return lzma.LZMAFile(raw, "wb") if suffix == ".xz" else nullcontext(raw)
