"""Files to lines and rows: UTF-8, plain or as .gz or .xz; a bad line is named by file and line, and no file fills the memory."""

import difflib
import gzip
import json
import lzma
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Self, TypeVar

from ..errors import SaccadeError
from .sets import found_or_fetch

# bytes: a longer line is a file without line ends or a binary file, never a sentence
MAX_LINE_BYTES = 1_000_000
MAX_BLOCK_LINES = 10_000  # lines of a sentence, one word on each
# bytes that the lines of any packed file may take, and how many times its size those of a large one
MIN_UNPACKED_BYTES, MAX_UNPACKED_RATIO = (200_000_000, 100)
EXAMPLE_BYTES = 200  # bytes of memory that the example on a line takes besides its text
HEADER = "header"  # the kind of a line that is not a mistake: it names the columns
Row = TypeVar("Row")
Item = TypeVar("Item")

_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
_UNREADABLE = re.compile("[\0\ud800-\udfff]")


class LineError(SaccadeError):
    """One line is wrong: `kind` groups such lines in a report; `line` counts from 1, and 0 means the file as a whole."""

    def __init__(
        self, kind: str, sentence: str, path: Path | None = None, line: int | None = None
    ) -> None:
        super().__init__(sentence, code=f"line-{kind.lower().replace(' ', '-')}")
        self.kind, self.path, self.line = kind, path, line

    def at(self, path: Path | None, line: int) -> Self:
        """The error itself, in this file and line unless it has its own."""
        self.path, self.line = self.path or path, line if self.line is None else self.line
        return self

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}: {self.args[0]}" if self.line else self.args[0]


Rows = Iterator[tuple[int, Row | LineError]]


def paths_of(where: str | Path | Iterable[str | Path]) -> list[str]:
    """The names in `a.en,a.fr`, a path or a sequence; a file that has a comma in its name is taken as it is."""
    if not isinstance(where, str | Path):
        return [str(part) for part in where]
    name = str(where)
    return (
        [name]
        if "," not in name or os.path.exists(name)
        else [part.strip() for part in name.split(",")]
    )


def bare_suffix(path: Path) -> str:
    """The suffix below .gz or .xz, in lowercase."""
    return (Path(path.stem).suffix if path.suffix.lower() in _OPENERS else path.suffix).lower()


def one_file(where: str | Path, forms: str) -> Path:
    """The path of a file that exists, not of a folder; `forms` says what may be given."""
    path = found_or_fetch(Path(os.path.expanduser(where)))
    try:
        mode = file_status(path, forms).st_mode
    except (OSError, ValueError) as error:
        raise _explain(path, error) from None
    if stat.S_ISDIR(mode):
        raise SaccadeError(f"{path} is a folder, not a file; give {forms}", code="not-a-file")
    return path


def file_status(path: Path, forms: str = "a file") -> os.stat_result:
    """The status of a file, or of a pipe that is already open, as `<(zcat a.gz)` is; a device or a named pipe may never end."""
    status = path.stat()
    special = not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode))
    if special and os.path.exists(os.path.realpath(path)):  # an open pipe has no path
        raise SaccadeError(
            f"{path}: expected a file, got a named pipe, a socket or a device; give {forms}",
            code="not-a-file",
        )
    return status


def _explain(path: Path, error: OSError | ValueError) -> SaccadeError:
    if isinstance(error, FileNotFoundError):
        there = sorted(os.listdir(path.parent)) if path.parent.is_dir() else []
        close = difflib.get_close_matches(path.name, there, n=1, cutoff=0.7)
        hint = f"did you mean '{path.parent / close[0]}'?" if close else "check the path"
        return SaccadeError(f"no file '{path}'; {hint}", code="no-file")
    if isinstance(error, IsADirectoryError):
        return SaccadeError(f"{path} is a folder, not a file; give a file in it", code="not-a-file")
    why = getattr(error, "strerror", None) or error
    return SaccadeError(
        f"{str(path)!r} cannot be read: {why}; check its path and permissions", code="cannot-read"
    )


def raw_lines(path: Path, longest: int = MAX_LINE_BYTES) -> Iterator[bytes]:
    """Lines as bytes with their ends; one that is too long comes cut, so that no file fills the memory."""
    number = size = 0
    opener = _OPENERS.get(path.suffix.lower(), open)
    try:
        status = file_status(path)
        most = (
            None if opener is open else max(MIN_UNPACKED_BYTES, MAX_UNPACKED_RATIO * status.st_size)
        )
        with opener(path, "rb") as file:
            while raw := file.readline(longest + 2):
                number += 1
                size += EXAMPLE_BYTES
                yield raw
                while raw:
                    size += len(raw)
                    if most is not None and size > most:
                        what = f"unpacks to lines that take more than {most:,} bytes of memory, {MAX_UNPACKED_RATIO} times its own"
                        raise SaccadeError(
                            f"{path} {what}; if it is really so much text, unpack it and name the result",
                            code="too-large",
                        )
                    if (
                        not raw.endswith(b"\n")
                        and not stat.S_ISREG(status.st_mode)
                        and len(raw) > longest
                    ):
                        raise SaccadeError(
                            f"{path}, line {number}: no end within {longest:,} bytes; give a file of text",
                            code="line-too-long",
                        )
                    raw = b"" if raw.endswith(b"\n") else file.readline(MAX_LINE_BYTES)
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise SaccadeError(
            f"{path} cannot be unpacked after line {number} ({error}); fetch it again or rename it",
            code="cannot-unpack",
        ) from None
    except (OSError, ValueError) as error:
        raise _explain(path, error) from None
    if not number:
        raise SaccadeError(f"{path} is empty; it needs at least one line", code="empty-file")


def decode(
    path: Path, number: int, raw: bytes, longest: int = MAX_LINE_BYTES, what: str = "sentence"
) -> str:
    """Decode one line strictly: a silently replaced byte would be a wrong word that is hard to find."""
    raw = raw.removesuffix(b"\n").removesuffix(b"\r")
    if len(raw) > longest:
        raise LineError(
            "long line", f"longer than {longest:,} bytes; put one {what} on each line", path, number
        )
    if number == 1:
        if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise LineError(
                "encoding", "not UTF-8 but UTF-16; save the file as UTF-8", path, number
            )
        raw = raw.removeprefix(b"\xef\xbb\xbf")
    try:
        return readable(raw.decode(), "line", path, number)
    except UnicodeDecodeError as error:
        where = f"byte 0x{raw[error.start]:02x} at column {len(raw[: error.start].decode()) + 1}"
        raise LineError(
            "encoding", f"not UTF-8 ({where}); save the file as UTF-8", path, number
        ) from None


def readable(text: str, what: str, path: Path | None = None, number: int | None = None) -> str:
    """The text itself, if it is only text."""
    bad = _UNREADABLE.search(text)
    if bad:
        kind = "a NUL character" if bad[0] == "\0" else "half of a surrogate pair"
        raise LineError(
            "NUL",
            f"{kind} in the {what} at column {bad.start() + 1}; the text is damaged",
            path,
            number,
        )
    return text


def each_line(path: Path, longest: int = MAX_LINE_BYTES, what: str = "sentence") -> Rows[str]:
    """Each line with its number, as text or as the error it is."""
    for number, raw in enumerate(raw_lines(path, longest), 1):
        try:
            yield number, decode(path, number, raw, longest, what)
        except LineError as error:
            yield number, error


def open_text(path: str | Path) -> Iterator[str]:
    """The lines of a UTF-8 file, plain or compressed (.gz, .xz), without byte order mark and line ends; only \\n ends a line."""
    return strict(line for _, line in each_line(Path(path)))


def strict(items: Iterable[Item | LineError]) -> Iterator[Item]:
    """The items; the first bad line is raised as the error it is, and a line that is taken for a header is left out."""
    for item in items:
        if not isinstance(item, LineError):
            yield item
        elif item.kind != HEADER:
            raise item


def full_lines(path: Path, *limits: Any) -> Rows[str]:
    """Each line as text or as the error it is; an empty line is an error."""
    for number, line in each_line(path, *limits):
        empty = isinstance(line, str) and not line.strip()
        yield number, LineError("empty line", "the line is empty; remove it") if empty else line


def blocks(path: Path, *limits: Any, most: int = MAX_BLOCK_LINES) -> Rows[list[tuple[int, str]]]:
    """The numbered lines between empty ones, or the first line among them that cannot be read; more than `most` are an error."""
    for empty, group in groupby(
        each_line(path, *limits), key=lambda row: isinstance(row[1], str) and not row[1].strip()
    ):
        if not empty:
            # the rest of a longer one is passed over, and not kept
            rows = list(islice(group, most + 1))
            wrong = next((line for _, line in rows if isinstance(line, LineError)), None)
            if wrong is None and len(rows) > most:
                wrong = LineError(
                    "long sentence",
                    f"more than {most:,} lines without an empty one, which ends a sentence",
                )
            yield (
                rows[0][0],
                wrong or [(number, line) for number, line in rows if isinstance(line, str)],
            )


def convert(
    path: Path | None, rows: Iterable[tuple[int, Any]], make: Callable[[int, Any], Item]
) -> Iterator[Item | LineError]:
    """What `make` makes of each numbered row, or the error it is: a strict reader raises that error, a report collects it."""
    for number, row in rows:
        try:
            if isinstance(row, LineError):
                raise row
            yield make(number, row)
        except LineError as error:
            yield error.at(path, number)


def split_columns(line: str, counts: tuple[int, ...], form: str) -> list[str]:
    """The cells of a line of TSV."""
    cells = line.split("\t")
    if len(cells) not in counts:
        there = f"{len(cells)} column{'s' * (len(cells) > 1)}"
        expected = " or ".join(map(str, counts))
        raise LineError("columns", f"{there} instead of {expected}; a line is {form}")
    return cells


def from_json(make: Callable[[int, dict[str, Any]], Item]) -> Callable[[int, str], Item]:
    """What reads a line of JSONL: `make` makes the item of its object."""

    def parse(number: int, line: str) -> Item:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise LineError("JSON", f"not JSON ({error}); write one object on each line") from None
        if not isinstance(entry, dict):
            raise LineError(
                "JSON",
                f"{type(entry).__name__} instead of an object; write one object on each line",
            )
        return make(number, entry)

    return parse


def text_of(entry: dict[str, Any], key: str) -> str:
    """The text under a key, with something to read in it."""
    value = entry.get(key)
    if not isinstance(value, str):
        there = ", ".join(f'"{name[:20]}"' for name in list(entry)[:8]) or "nothing"
        what = type(value).__name__ if key in entry else "missing"
        raise LineError("JSON", f'"{key}" is {what}, expected a string; the line has: {there}')
    if not value.strip():
        raise LineError("empty side", f"the {key} is empty; remove this line")
    return readable(value, key)
