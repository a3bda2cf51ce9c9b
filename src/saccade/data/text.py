"""Documents for language models: a whole file, each line, what blank lines separate, or the lines of JSONL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import SaccadeError, did_you_mean
from .lines import (
    LineError,
    bare_suffix,
    each_line,
    json_object,
    json_string,
    one_file,
    parsed,
    paths_of,
    readable,
    some,
    strict,
    whole,
)

LARGEST = 2 * 2**30  # bytes of text read into memory: text, its tokens and a batch then fit a machine of 16 GiB
LONGEST_DOCUMENT = 100_000_000  # bytes on one line
FORMS = 'text files or .jsonl files with "text", separated by commas (each may end in .gz or .xz)'


@dataclass(frozen=True, slots=True)
class Document:
    """A text; `line` is where it starts in its file, counted from 1."""

    text: str
    line: int = 0


def read_documents(where: str | Path, documents: str = "file") -> list[Document]:
    """All documents of one or more files: each a `file`, a `line`, or what `blank` lines separate; each line of .jsonl is one."""
    return strict(each_document(where, documents))


def each_document(where: str | Path, documents: str = "file") -> Iterator[Document | LineError]:
    """Each document, or the error it is: the strict reader raises that error, a report collects it."""
    if documents not in SEPARATED:
        raise SaccadeError(f"documents cannot be separated by '{documents}'{did_you_mean(documents, SEPARATED)}")
    paths = [one_file(part, FORMS) for part in paths_of(where)]
    yield from within_memory(_each(paths, documents), where)


def within_memory(items: Iterable[Document | LineError], where: str | Path) -> Iterator[Document | LineError]:
    """The documents as they are; too many of them are an error rather than a machine that stands still."""
    room = LARGEST
    for item in items:
        room -= len(item.text) if isinstance(item, Document) else 0
        if room < 0:
            what = f"has more than {LARGEST:,} characters of text, the most that is read into memory"
            raise SaccadeError(f"{where} {what}; split it and name a part")
        yield item


def _each(paths: list[Path], documents: str) -> Iterator[Document | LineError]:
    for path in paths:
        read = _READERS.get(bare_suffix(path), SEPARATED[documents])
        yield from some(read(path), f"{path} holds no text, only empty lines; give {FORMS}")


def _by_file(path: Path) -> Iterator[Document | LineError]:
    try:
        text = whole(path, LARGEST)
    except LineError as error:
        yield error
        return
    if not text.isspace():
        yield Document(text, 1)


def _by_line(path: Path) -> Iterator[Document | LineError]:
    for number, line in each_line(path, LONGEST_DOCUMENT, "document"):
        if isinstance(line, LineError):
            yield line
        elif line.strip():
            yield Document(line, number)


def _by_blank(path: Path) -> Iterator[Document | LineError]:
    lines: list[str] = []
    start = 0
    for number, line in each_line(path, LONGEST_DOCUMENT, "document"):
        if isinstance(line, LineError):
            yield line
        elif line.strip():
            start = start if lines else number
            lines.append(line)
        elif lines:
            yield Document("\n".join(lines), start)
            lines = []
    if lines:
        yield Document("\n".join(lines), start)


def _from_json(path: Path) -> Iterator[Document | LineError]:
    def parse(path: Path, number: int, line: str) -> Document:
        entry = json_object(path, number, line, '{"text": …}')
        return document_of(path, number, json_string(path, number, entry, "text", 'a document needs "text"'))

    return parsed(path, parse, LONGEST_DOCUMENT, "document")


def document_of(path: Path, number: int, text: str) -> Document:
    """The text, if there is something to read in it."""
    if not text or text.isspace():
        raise LineError("empty side", path, number, "the text is empty; remove this line")
    return Document(readable(text, "text", path, number), number)


SEPARATED: dict[str, Callable[[Path], Iterator[Document | LineError]]] = {"file": _by_file, "line": _by_line, "blank": _by_blank}
_READERS = {".jsonl": _from_json}
