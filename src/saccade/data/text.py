"""Documents for language models: a whole file, each line, what blank lines separate, or the lines of JSONL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from ..errors import SaccadeError, did_you_mean
from .lines import LineError, bare_suffix, each_line, one_file, paths_of, read_whole
from .rows import at_least_one, convert, full_lines, parse_object, text_of

LARGEST = 2 * 2**30  # bytes of text read into memory: text, its tokens and a batch then fit a machine of 16 GiB
LONGEST_DOCUMENT = 100_000_000  # bytes on one line
FORMS = 'text files or .jsonl files with "text", separated by commas (each may end in .gz or .xz)'


@dataclass(frozen=True, slots=True)
class Document:
    """A text; `line` is where it starts in its file, counted from 1."""

    text: str
    line: int = 0


def each_document(where: str | Path, documents: str = "file") -> Iterator[Document | LineError]:
    """Each document of some files, or the error it is: a `file`, a `line`, or what `blank` lines separate; of .jsonl each line."""
    if documents not in SEPARATED:
        raise SaccadeError(f"documents cannot be separated by '{documents}'{did_you_mean(documents, SEPARATED)}")
    paths = [one_file(part, FORMS) for part in paths_of(where)]
    yield from within_memory((item for path in paths for item in _each(path, documents)), where)


def within_memory(items: Iterable[Document | LineError], where: str | Path) -> Iterator[Document | LineError]:
    """The documents as they are; more than fit into memory are an error."""
    left = LARGEST
    for item in items:
        left -= len(item.text) if isinstance(item, Document) else 0
        if left < 0:
            what = f"has more than {LARGEST:,} characters of text, the most that is read into memory"
            raise SaccadeError(f"{where} {what}; split it and name a part")
        yield item


def _each(path: Path, documents: str) -> Iterator[Document | LineError]:
    read = _from_json if bare_suffix(path) == ".jsonl" else SEPARATED[documents]
    return at_least_one(read(path), f"{path} holds no text, only empty lines; give {FORMS}")


def document_of(number: int, entry: dict[str, Any], text: str = "text") -> Document:
    """The document of a row."""
    return Document(text_of(entry, text, 'a document needs "text"'), number)


def _by_file(path: Path) -> Iterator[Document | LineError]:
    try:
        text = read_whole(path, LARGEST)
    except LineError as error:
        yield error
        return
    if text and not text.isspace():
        yield Document(text, 1)


def _by_line(path: Path) -> Iterator[Document | LineError]:
    for number, line in each_line(path, LONGEST_DOCUMENT, "document"):
        if isinstance(line, LineError):
            yield line
        elif line.strip():
            yield Document(line, number)


def _by_blank(path: Path) -> Iterator[Document | LineError]:
    lines: list[tuple[int, str]] = []
    for number, line in chain(each_line(path, LONGEST_DOCUMENT, "document"), [(0, "")]):
        if isinstance(line, LineError):
            yield line
        elif line.strip():
            lines.append((number, line))
        elif lines:
            yield Document("\n".join(text for _, text in lines), lines[0][0])
            lines = []


def _from_json(path: Path) -> Iterator[Document | LineError]:
    rows = full_lines(path, LONGEST_DOCUMENT, "document")
    return convert(path, rows, lambda number, line: document_of(number, parse_object(line, '{"text": …}')))


SEPARATED: dict[str, Callable[[Path], Iterator[Document | LineError]]] = {"file": _by_file, "line": _by_line, "blank": _by_blank}
