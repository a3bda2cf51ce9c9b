"""Documents for language models: a whole file, each line, what blank lines separate, or the lines of JSONL."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ..errors import SaccadeError, did_you_mean
from . import lines
from .lines import LineError, convert

LARGEST = 2 * 2**30  # bytes of text read into memory: text, its tokens and a batch then fit a machine of 16 GiB
LONGEST_DOCUMENT = 100_000_000  # bytes on one line
FORMS = 'text files or .jsonl files with "text", separated by commas (each may end in .gz or .xz)'
SEPARATED = ("file", "line", "blank")
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Document:
    """A text; `line` is where it starts in its file, counted from 1."""

    text: str
    line: int = 0


def each_document(where: str | Path, documents: str = "file") -> Iterator[Document | LineError]:
    """Each document of some files, or the error it is: a `file`, a `line`, or what `blank` lines separate; of .jsonl each line."""
    if documents not in SEPARATED:
        raise SaccadeError(f"documents cannot be separated by '{documents}'{did_you_mean(documents, SEPARATED)}")
    paths = [lines.one_file(part, FORMS) for part in lines.paths_of(where)]
    found = (item for path in paths for item in _each(path, documents))
    yield from within_memory((item for item in found if isinstance(item, LineError) or item.text.strip()), where)


def within_memory(items: Iterable[Item], where: str | Path) -> Iterator[Item]:
    """The documents or lines as they are; more than fit into memory are an error."""
    size = 0
    for item in items:
        size += len(item if isinstance(item, bytes) else getattr(item, "text", ""))
        if size > LARGEST:
            what = f"has more than {LARGEST:,} characters of text, the most that is read into memory"
            raise SaccadeError(f"{where} {what}; split it and name a part")
        yield item


def document_of(number: int, entry: dict[str, Any], text: str = "text") -> Document:
    """The document of a row."""
    return Document(lines.text_of(entry, text), number)


def _each(path: Path, documents: str) -> Iterator[Document | LineError]:
    limits = (path, LONGEST_DOCUMENT, "document")
    if lines.bare_suffix(path) == ".jsonl":
        return convert(path, lines.full_lines(*limits), lines.from_json(document_of))
    if documents == "file":
        return _read_whole(path)
    if documents == "line":
        return convert(path, lines.each_line(*limits), lambda number, line: Document(line, number))
    return convert(
        path,
        lines.blocks(*limits, most=LONGEST_DOCUMENT),
        lambda number, block: Document("\n".join(line for _, line in block), number),
    )


def _read_whole(path: Path) -> Iterator[Document | LineError]:
    """All of a file as one text, line breaks as they are except that \\r\\n is \\n; damaged lines come before it, as the errors they are."""
    raws = list(within_memory(lines.raw_lines(path, LARGEST), path))
    text = b"".join(raws).decode("utf-8-sig", "replace")
    if "\ufffd" in text or "\0" in text:  # some lines may be damaged: they are left out, and become empty
        kept = []
        for number, raw in enumerate(raws, 1):
            try:
                kept.append(lines.decode(path, number, raw, LARGEST))
            except LineError as error:
                yield error
                kept.append("")
        text = "\n".join(kept) + "\n" * raws[-1].endswith(b"\n")
    yield Document(text.replace("\r\n", "\n"), 1)
