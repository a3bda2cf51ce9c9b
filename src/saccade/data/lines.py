"""Files to lines: UTF-8, plain or as .gz or .xz; a bad line is named by file and line, and no file fills the memory."""

from __future__ import annotations

import difflib
import gzip
import json
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from ..errors import SaccadeError

LONGEST_LINE = 1_000_000  # bytes: a longer line is a file without line ends or a binary file, never a sentence

_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
_UNREADABLE = re.compile("[\0\ud800-\udfff]")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_MARK = b"\xef\xbb\xbf"
Item = TypeVar("Item")


class LineError(SaccadeError):
    """One line is wrong: `kind` groups such lines in a report; `line` counts from 1, and 0 means the file as a whole."""

    def __init__(self, kind: str, path: Path, line: int, sentence: str) -> None:
        super().__init__(f"{path}, line {line}: {sentence}" if line else sentence)
        self.kind, self.line = kind, line


def open_text(path: str | Path) -> Iterator[str]:
    """The lines of a UTF-8 file, plain or compressed (.gz, .xz), without byte order mark and line ends; only \\n ends a line."""
    path = Path(path)
    for number, raw in enumerate(raw_lines(path), 1):
        yield readable(decoded(path, number, raw), "line", path, number)


def strict(items: Iterable[Item | LineError]) -> list[Item]:
    """All items; the first bad line is raised as the error it is."""
    good = []
    for item in items:
        if isinstance(item, LineError):
            raise item
        good.append(item)
    return good


def some(items: Iterable[Item], sentence: str) -> Iterator[Item]:
    """The items as they are; none at all is an error with this sentence."""
    none = True
    for item in items:
        none = False
        yield item
    if none:
        raise SaccadeError(sentence)


def each_line(path: Path, longest: int = LONGEST_LINE, what: str = "sentence") -> Iterator[tuple[int, str | LineError]]:
    """Each line with its number, as text or as the error it is."""
    for number, raw in enumerate(raw_lines(path, longest), 1):
        try:
            yield number, readable(decoded(path, number, raw, longest, what), "line", path, number)
        except LineError as error:
            yield number, error


def parsed(
    path: Path, parse: Callable[[Path, int, str], Item], longest: int = LONGEST_LINE, what: str = "sentence"
) -> Iterator[Item | LineError]:
    """Each line as what `parse` makes of it, or as the error it is; an empty line is an error."""
    for number, line in each_line(path, longest, what):
        try:
            if isinstance(line, LineError):
                raise line
            if not line.strip():
                raise LineError("empty line", path, number, "the line is empty; remove it")
            yield parse(path, number, line)
        except LineError as error:
            yield error


def whole(path: Path, largest: int) -> str:
    """All of a file as one text, line breaks as they are except that \\r\\n is \\n; at most `largest` bytes, unpacked."""
    content = bytearray()
    for raw in raw_lines(path, largest):
        content += raw
        if len(content) > largest:
            limit = f"{largest / 2**30:g} GiB" if largest >= 2**30 else f"{largest:,} bytes"
            raise SaccadeError(
                f"{path} has more than {limit} of text, the most that is read into memory; split it and name a part"
            )
    if content.startswith(_UTF16):
        raise LineError("encoding", path, 1, "not UTF-8 but UTF-16; save the file as UTF-8")
    if content.startswith(_MARK):
        del content[: len(_MARK)]
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        start = content.rfind(b"\n", 0, error.start) + 1
        raise _undecodable(path, line, bytes(content[start : error.start + 1]), error.start - start) from None
    nul = text.find("\0")
    if nul >= 0:
        line, column = text.count("\n", 0, nul) + 1, nul - text.rfind("\n", 0, nul)
        raise LineError("NUL", path, line, f"a NUL character in the line at column {column}; the text is damaged")
    return text.replace("\r\n", "\n")


def paths_of(where: str | Path | Iterable[str | Path]) -> list[str]:
    """The names in `a.en,a.fr`, a path or a sequence; a file that has a comma in its name is taken as it is."""
    if not isinstance(where, str | Path):
        return [str(part) for part in where]
    name = str(where)
    return [name] if "," not in name or os.path.exists(name) else [part.strip() for part in name.split(",")]


def bare_suffix(path: Path) -> str:
    """The suffix below .gz or .xz, in lower case."""
    return (Path(path.stem).suffix if path.suffix.lower() in _OPENERS else path.suffix).lower()


def one_file(where: str | Path, forms: str) -> Path:
    """The path of a file that is no folder; `forms` says what may be given."""
    path = Path(os.path.expanduser(where))
    if not str(where):
        raise SaccadeError(f"there is no file named ''; give {forms}")
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


def decoded(path: Path, number: int, raw: bytes, longest: int = LONGEST_LINE, what: str = "sentence") -> str:
    """One line as text; strict, because a silently replaced byte is a wrong word that nobody ever finds."""
    raw = raw.removesuffix(b"\n").removesuffix(b"\r")
    if len(raw) > longest:
        raise LineError("long line", path, number, f"longer than {longest:,} bytes; put one {what} on each line")
    if number == 1:
        if raw.startswith(_UTF16):
            raise LineError("encoding", path, number, "not UTF-8 but UTF-16; save the file as UTF-8")
        raw = raw.removeprefix(_MARK)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise _undecodable(path, number, raw, error.start) from None


def readable(text: str, what: str, path: Path, number: int) -> str:
    """The text itself, if it holds nothing that is no text."""
    bad = _UNREADABLE.search(text)
    if bad:
        kind = "a NUL character" if bad[0] == "\0" else "half of a surrogate pair"
        raise LineError("NUL", path, number, f"{kind} in the {what} at column {bad.start() + 1}; the text is damaged")
    return text


def json_object(path: Path, number: int, text: str, example: str) -> dict[str, Any]:
    """The object on one line of JSONL."""
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError) as error:
        what = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise LineError("JSON", path, number, f"not JSON ({what}); write one object on each line") from None
    if not isinstance(entry, dict):
        raise LineError("JSON", path, number, f"{type(entry).__name__} instead of an object such as {example}")
    return entry


def json_value(path: Path, number: int, entry: dict[str, Any], key: str, needs: str) -> Any:
    """What stands under a key that must be there."""
    if key not in entry:
        there = ", ".join(f'"{name[:20]}"' for name in list(entry)[:8]) or "nothing"
        raise LineError("JSON", path, number, f'no "{key}"; {needs}, and here is: {there}')
    return entry[key]


def json_string(path: Path, number: int, entry: dict[str, Any], key: str, needs: str) -> str:
    """The text under a key that must be there."""
    value = json_value(path, number, entry, key, needs)
    if not isinstance(value, str):
        raise LineError("JSON", path, number, f'"{key}" is {type(value).__name__} instead of a string')
    return value


def _undecodable(path: Path, number: int, raw: bytes, start: int) -> LineError:
    column = len(raw[:start].decode()) + 1
    return LineError("encoding", path, number, f"not UTF-8 (byte 0x{raw[start]:02x} at column {column}); save the file as UTF-8")


def must_exist(path: Path) -> None:
    """Raises when there is no such file."""
    try:
        path.stat()
    except (OSError, ValueError) as error:
        _explain(path, error)


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
