"""Files to lines: UTF-8, plain or as .gz or .xz; a bad line is named by file and line, and no file fills the memory."""

from __future__ import annotations

import difflib
import gzip
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from ..errors import SaccadeError

LONGEST_LINE = 1_000_000  # bytes: a longer line is a file without line ends or a binary file, never a sentence

_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
_UNREADABLE = re.compile("[\0\ud800-\udfff]")


class LineError(SaccadeError):
    """One line is wrong: `kind` groups such lines in a report; `line` counts from 1, and 0 means the file as a whole."""

    def __init__(self, kind: str, sentence: str, path: Path | None = None, line: int | None = None) -> None:
        super().__init__(sentence)
        self.kind, self.path, self.line = kind, path, line

    def at(self, path: Path | None, line: int) -> LineError:
        """The error itself, in this file and line unless it has its own."""
        self.path, self.line = self.path or path, line if self.line is None else self.line
        return self

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}: {self.args[0]}" if self.line else self.args[0]


def open_text(path: str | Path) -> Iterator[str]:
    """The lines of a UTF-8 file, plain or compressed (.gz, .xz), without byte order mark and line ends; only \\n ends a line."""
    for _, line in each_line(Path(path)):
        if isinstance(line, LineError):
            raise line
        yield line


def each_line(path: Path, longest: int = LONGEST_LINE, what: str = "sentence") -> Iterator[tuple[int, str | LineError]]:
    """Each line with its number, as text or as the error it is."""
    for number, raw in enumerate(raw_lines(path, longest), 1):
        try:
            yield number, decode(number, raw, longest, what)
        except LineError as error:
            yield number, error.at(path, number)


def read_whole(path: Path, largest: int) -> str:
    """All of a file as one text, line breaks as they are except that \\r\\n is \\n; at most `largest` bytes, unpacked."""
    raws, left = [], largest
    for raw in raw_lines(path, largest):
        raws.append(raw)
        left -= len(raw)
        if left < 0:
            limit = f"{largest / 2**30:g} GiB" if largest >= 2**30 else f"{largest:,} bytes"
            raise SaccadeError(
                f"{path} has more than {limit} of text, the most that is read into memory; split it and name a part"
            )
    text = b"".join(raws).decode("utf-8-sig", "replace")
    if "\ufffd" in text or "\0" in text:  # one of the lines may be damaged
        for number, raw in enumerate(raws, 1):
            try:
                decode(number, raw, largest)
            except LineError as error:
                raise error.at(path, number) from None
    return text.replace("\r\n", "\n")


def paths_of(where: str | Path | Iterable[str | Path]) -> list[str]:
    """The names in `a.en,a.fr`, a path or a sequence; a file that has a comma in its name is taken as it is."""
    if not isinstance(where, str | Path):
        return [str(part) for part in where]
    name = str(where)
    return [name] if "," not in name or os.path.exists(name) else [part.strip() for part in name.split(",")]


def bare_suffix(path: Path) -> str:
    """The suffix below .gz or .xz, in lowercase."""
    return (Path(path.stem).suffix if path.suffix.lower() in _OPENERS else path.suffix).lower()


def one_file(where: str | Path, forms: str) -> Path:
    """The path of a file that exists, not of a folder; `forms` says what may be given."""
    path = Path(os.path.expanduser(where))
    if not str(where):
        raise SaccadeError(f"there is no file named ''; give {forms}")
    try:
        path.stat()
    except (OSError, ValueError) as error:
        _explain(path, error)
    if path.is_dir():
        raise SaccadeError(f"{path} is a folder, not a file; give {forms}")
    return path


def raw_lines(path: Path, longest: int = LONGEST_LINE) -> Iterator[bytes]:
    """Lines as bytes with their ends; one that is too long comes cut, so that no file fills the memory."""
    number = 0
    try:
        with _OPENERS.get(path.suffix.lower(), open)(path, "rb") as file:
            while raw := file.readline(longest + 2):
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


def decode(number: int, raw: bytes, longest: int = LONGEST_LINE, what: str = "sentence") -> str:
    """One line as text; strict, because a silently replaced byte is a wrong word that nobody ever finds."""
    raw = raw.removesuffix(b"\n").removesuffix(b"\r")
    if len(raw) > longest:
        raise LineError("long line", f"longer than {longest:,} bytes; put one {what} on each line")
    if number == 1:
        if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise LineError("encoding", "not UTF-8 but UTF-16; save the file as UTF-8")
        raw = raw.removeprefix(b"\xef\xbb\xbf")
    try:
        return readable(raw.decode(), "line")
    except UnicodeDecodeError as error:
        column = len(raw[: error.start].decode()) + 1
        sentence = f"not UTF-8 (byte 0x{raw[error.start]:02x} at column {column}); save the file as UTF-8"
        raise LineError("encoding", sentence) from None


def readable(text: str, what: str, path: Path | None = None, number: int | None = None) -> str:
    """The text itself, if it is only text."""
    bad = _UNREADABLE.search(text)
    if bad:
        kind = "a NUL character" if bad[0] == "\0" else "half of a surrogate pair"
        raise LineError("NUL", f"{kind} in the {what} at column {bad.start() + 1}; the text is damaged", path, number)
    return text


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
