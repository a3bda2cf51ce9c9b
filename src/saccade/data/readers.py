"""Pairs in and out of files: parallel text, TSV and JSONL, each also as .gz or .xz; a bad line is named by file and line."""

from __future__ import annotations

import difflib
import gzip
import json
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, NoReturn

from ..errors import SaccadeError
from .pairs import Links, Pair

LONGEST_LINE = 1_000_000  # bytes: a longer line is a file without line ends or a binary file, never a sentence
FORMS = "one .tsv or .jsonl file, or two text files as 'corpus.en,corpus.fr' (each may end in .gz or .xz)"

_Where = str | Path | Sequence[str | Path]
_LINK = re.compile(r"(\d{1,7})([-?p])(\d{1,7})", re.ASCII)
_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
_UNREADABLE = re.compile("[\0\ud800-\udfff]")


class LineError(SaccadeError):
    """One line is wrong: `kind` groups such lines in a report; `line` counts from 1, and 0 means the file as a whole."""

    def __init__(self, kind: str, path: Path, line: int, sentence: str) -> None:
        super().__init__(f"{path}, line {line}: {sentence}" if line else sentence)
        self.kind, self.line = kind, line


def open_text(path: str | Path) -> Iterator[str]:
    """The lines of a UTF-8 file, plain or compressed (.gz, .xz), without byte order mark and line ends; only \\n ends a line."""
    path = Path(path)
    for number, raw in enumerate(_raw_lines(path), 1):
        yield _decoded(path, number, raw)


def read_pairs(where: _Where) -> list[Pair]:
    """All pairs of a .tsv or .jsonl file or of two parallel text files; the first bad line is an error that names it."""
    pairs = []
    for item in each_pair(where):
        if isinstance(item, LineError):
            raise item
        pairs.append(item)
    return pairs


def each_pair(where: _Where) -> Iterator[Pair | LineError]:
    """Each line as a pair, or as the error it is: the strict reader raises that error, `scan_pairs` collects it."""
    paths = _paths(where)
    if len(paths) == 2:
        yield from _parallel(paths[0], paths[1])
        return
    path = paths[0]
    parse = _from_tsv if _form(path) == ".tsv" else _from_json
    for number, raw in enumerate(_raw_lines(path), 1):
        try:
            text = _decoded(path, number, raw)
            if not text:
                raise LineError("empty line", path, number, "the line is empty; remove it")
            yield _checked(parse(path, number, text), path, path)
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
                placed = _checked(replace(pair, line=number), path, path)
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


# --- files to lines ---------------------------------------------------------------------------------------------------


def _paths(where: _Where) -> list[Path]:
    """One or two paths, from a path, `a.en,a.fr` or a sequence; a file that has a comma in its name is taken as it is."""
    if isinstance(where, str | Path):
        whole = str(where)
        parts = [whole] if "," not in whole or os.path.exists(whole) else [part.strip() for part in whole.split(",")]
    else:
        parts = [str(part) for part in where]
    if len(parts) not in (1, 2) or not all(parts):
        raise SaccadeError(f"pairs cannot be read from '{', '.join(parts)}'; give {FORMS}")
    paths = [Path(os.path.expanduser(part)) for part in parts]
    for path in paths:
        if path.is_dir():
            raise SaccadeError(f"{path} is a folder, not a file; give {FORMS}")
        if len(paths) == 2 and _bare_suffix(path) in (".tsv", ".jsonl"):
            raise SaccadeError(f"{path} holds pairs by itself and cannot be one of two parallel text files; give {FORMS}")
    if len(paths) == 1:
        _form(paths[0])
    return paths


def _bare_suffix(path: Path) -> str:
    """The suffix below .gz or .xz, in lower case."""
    return (Path(path.stem).suffix if path.suffix.lower() in (".gz", ".xz") else path.suffix).lower()


def _form(path: Path) -> str:
    suffix = _bare_suffix(path)
    if suffix not in (".tsv", ".jsonl"):
        raise SaccadeError(f"'{path}' does not end in .tsv or .jsonl, so its pairs cannot be told apart; give {FORMS}")
    return suffix


def _raw_lines(path: Path) -> Iterator[bytes]:
    """Lines as bytes with their ends; one that is too long comes cut, so that no file fills the memory."""
    number = 0
    try:
        with _OPENERS.get(path.suffix.lower(), open)(path, "rb") as file:
            while raw := file.readline(LONGEST_LINE + 2):
                number += 1
                yield raw
                while raw and not raw.endswith(b"\n"):
                    raw = file.readline(LONGEST_LINE)
    except EOFError:
        raise SaccadeError(f"{path} is cut off after line {number} (its compressed stream has no end); fetch it again") from None
    except (gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise SaccadeError(f"{path} cannot be unpacked after line {number} ({error}); fetch it again or rename it") from None
    except (OSError, ValueError) as error:
        _explain(path, error)
    if not number:
        raise SaccadeError(f"{path} is empty; it needs at least one line")


def _explain(path: Path, error: OSError | ValueError) -> NoReturn:
    if isinstance(error, FileNotFoundError):
        there = sorted(os.listdir(path.parent)) if path.parent.is_dir() else []
        close = difflib.get_close_matches(path.name, there, n=1, cutoff=0.7)
        hint = f"did you mean '{path.parent / close[0]}'?" if close else "check the path"
        raise SaccadeError(f"there is no file '{path}'; {hint}") from None
    if isinstance(error, IsADirectoryError):
        raise SaccadeError(f"{path} is a folder, not a file; give a file in it") from None
    if isinstance(error, PermissionError):
        raise SaccadeError(f"{path} may not be read (permission denied); change its permissions") from None
    raise SaccadeError(f"{str(path)!r} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _decoded(path: Path, number: int, raw: bytes) -> str:
    """One line as text; strict, because a silently replaced byte is a wrong word that nobody ever finds."""
    raw = raw.removesuffix(b"\n").removesuffix(b"\r")
    if len(raw) > LONGEST_LINE:
        raise LineError("long line", path, number, f"longer than {LONGEST_LINE:,} bytes; put one sentence on each line")
    if number == 1:
        if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise LineError("encoding", path, number, "not UTF-8 but UTF-16; save the file as UTF-8")
        raw = raw.removeprefix(b"\xef\xbb\xbf")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        column = len(raw[: error.start].decode()) + 1
        what = f"not UTF-8 (byte 0x{raw[error.start]:02x} at column {column}); save the file as UTF-8"
        raise LineError("encoding", path, number, what) from None


# --- lines to pairs and back --------------------------------------------------------------------------------------------


def _parallel(source: Path, target: Path) -> Iterator[Pair | LineError]:
    left, right = list(_raw_lines(source)), list(_raw_lines(target))
    if len(left) != len(right):
        # told before any single line: once the files slip against each other, every later complaint only follows from it
        counts = f"{source} has {len(left):,} lines and {target} has {len(right):,}"
        yield LineError("line counts", source, 0, f"{counts}; line n of one must translate line n of the other")
    for number, (one, other) in enumerate(zip(left, right, strict=False), 1):
        try:
            yield _checked(Pair(_decoded(source, number, one), _decoded(target, number, other), number), source, target)
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
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError) as error:
        what = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise LineError("JSON", path, number, f"not JSON ({what}); write one object on each line") from None
    if not isinstance(entry, dict):
        raise LineError("JSON", path, number, f'{type(entry).__name__} instead of an object such as {{"source": …, "target": …}}')
    for key in ("source", "target"):
        if key not in entry:
            there = ", ".join(f'"{name[:20]}"' for name in list(entry)[:8]) or "nothing"
            raise LineError("JSON", path, number, f'no "{key}"; a pair needs "source" and "target", and here is: {there}')
        if not isinstance(entry[key], str):
            raise LineError("JSON", path, number, f'"{key}" is {type(entry[key]).__name__} instead of a string')
    tags = entry.get("tags")
    if tags is not None and not (isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)):
        raise LineError("tags", path, number, '"tags" must be a list of strings, one for each source word')
    pair = Pair(entry["source"], entry["target"], number, tags=None if tags is None else tuple(tags))
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


def _checked(pair: Pair, source: Path, target: Path) -> Pair:
    """The pair itself, if there is something to learn from it and its links and tags fit its words."""
    tags = [("tags", " ".join(pair.tags), source)] if pair.tags else []
    for side, text, path in (("source", pair.source, source), ("target", pair.target, target), *tags):
        bad = _UNREADABLE.search(text)
        if bad:
            what = "a NUL character" if bad[0] == "\0" else "half of a surrogate pair"
            raise LineError("NUL", path, pair.line, f"{what} in the {side} at column {bad.start() + 1}; the text is damaged")
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
