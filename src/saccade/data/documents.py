"""Documents for language models: a whole file, each line, what blank lines separate, or the lines of JSONL."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import SaccadeError, did_you_mean
from . import lines
from .lines import LineError, convert
from .memory import within_memory

MAX_FILE_BYTES = 2 * 2**30  # bytes on one line of a file that is one document
MAX_DOCUMENT_BYTES = 100_000_000  # bytes on one line
FORMS = 'text files or .jsonl files with "text", separated by commas (each may end in .gz or .xz)'
SEPARATED = ("file", "line", "blank")


@dataclass(frozen=True, slots=True)
class Document:
    """A text; `line` is where it starts in its file, counted from 1."""

    text: str
    line: int = 0


def each_document(where: str | Path, documents: str = "file") -> Iterator[Document | LineError]:
    """Each document of some files, or the error it is: a `file`, a `line`, or what `blank` lines separate; of .jsonl each line."""
    if documents not in SEPARATED:
        raise SaccadeError(
            f"documents cannot be separated by '{documents}'{did_you_mean(documents, SEPARATED)}",
            code="unknown-separator",
        )
    paths = [lines.one_file(part, FORMS) for part in lines.paths_of(where)]
    found = (item for path in paths for item in _each(path, documents))
    yield from (item for item in found if isinstance(item, LineError) or item.text.strip())


def document_of(number: int, entry: dict[str, Any], text: str = "text") -> Document:
    """The document of a row."""
    return Document(lines.text_of(entry, text), number)


def _each(path: Path, documents: str) -> Iterator[Document | LineError]:
    limits = (path, MAX_DOCUMENT_BYTES, "document")
    if lines.bare_suffix(path) == ".jsonl":
        return convert(path, lines.full_lines(*limits), lines.from_json(document_of))
    if documents == "file":
        return _read_whole(path)
    if documents == "line":
        return convert(path, lines.each_line(*limits), lambda number, line: Document(line, number))
    return convert(
        path,
        lines.blocks(*limits, most=MAX_DOCUMENT_BYTES),
        lambda number, block: Document("\n".join(line for _, line in block), number),
    )


def _read_whole(path: Path) -> Iterator[Document | LineError]:
    """All of a file as one text, line breaks as they are except that \\r\\n is \\n; damaged lines come before it, as the errors they are."""
    raws = list(within_memory(lines.raw_lines(path, MAX_FILE_BYTES), path))
    text = b"".join(raws).decode("utf-8-sig", "replace")
    # some lines may be damaged: they are left out, and become empty
    if "\ufffd" in text or "\0" in text:
        kept = []
        for number, raw in enumerate(raws, 1):
            try:
                kept.append(lines.decode(path, number, raw, MAX_FILE_BYTES))
            except LineError as error:
                yield error
                kept.append("")
        text = "\n".join(kept) + "\n" * raws[-1].endswith(b"\n")
    yield Document(text.replace("\r\n", "\n"), 1)
