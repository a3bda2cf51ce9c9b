"""Sentences and their tags: CoNLL-U, word<TAB>tag, JSONL and plain text in; CoNLL-U (https://universaldependencies.org/format.html) out."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import SaccadeError, did_you_mean
from . import lines
from .lines import LineError, convert, split_columns, strict

COLUMNS = {"upos": 3, "xpos": 4}
HEAD = 6
FORMS = (
    "a .conllu, .tsv (word<TAB>tag), .jsonl or .txt file of sentences (each may end in .gz or .xz)"
)
NAMES = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
NONE = "_"  # a column that is not filled

_ID = re.compile(r"(\d{1,7})(?:([-.])(\d{1,7}))?", re.ASCII)
Block = list[tuple[int, str]]  # the numbered lines of a sentence
Cells = list[tuple[int, str, str]]  # line number, word, tag
WordRows = list[tuple[int, list[str]]]  # line number and columns of each word


@dataclass(frozen=True, slots=True)
class Sentence:
    """Words with their tags, if those are known."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    line: int = 0  # where the sentence starts in its file, counted from 1
    # in a dependency tree, from 0, -1 for the root; None if not all are known
    heads: tuple[int, ...] | None = None
    # of each word, the word by which it is understood (an antecedent, a cue), -1 for none
    refers: tuple[int, ...] | None = None


def each_sentence(where: str | Path, column: str = "upos") -> Iterator[Sentence | LineError]:
    """Each sentence of a file with the tags of that column of CoNLL-U, or the first error in it."""
    if column not in COLUMNS:
        raise SaccadeError(
            f"no tag column named '{column}'{did_you_mean(column, COLUMNS)}", code="unknown-column"
        )
    path = lines.one_file(where, FORMS)
    readers: dict[str, tuple[Callable[[Path], Any], Callable[[int, Any], Sentence]]] = {
        ".conllu": (lines.blocks, partial(_from_conllu, COLUMNS[column])),
        ".tsv": (lines.blocks, _from_tsv),
        ".jsonl": (lines.full_lines, lines.from_json(sentence_of)),
        ".txt": (
            lines.full_lines,
            lambda number, line: Sentence(tuple(line.split()), None, number),
        ),
    }
    if lines.bare_suffix(path) not in readers:
        raise SaccadeError(
            f"'{path}' does not end in {', '.join(readers)}, so its format is not known; give {FORMS}",
            code="unknown-ending",
        )
    rows, make = readers[lines.bare_suffix(path)]
    return convert(path, rows(path), make)


def sentence_of(
    number: int, entry: dict[str, Any], words: str = "words", tags: str | None = "tags"
) -> Sentence:
    """The sentence of a row: a list of words, and a list of as many tags or nothing."""
    found, given = entry.get(words), entry.get(tags) if tags else None
    for name, values in (("word", found), ("tag", [] if given is None else given)):
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise LineError("JSON", f'"{name}s" must be a list of strings')
        for value in values:
            _check_cell(value, name)
    if not found:
        raise LineError("JSON", "a sentence without words; add its words or remove the line")
    if given is not None and len(given) != len(found):
        raise LineError("tags", f"{len(given)} tags for {len(found)} words; give each word one tag")
    return _sentence(
        [(number, *both) for both in zip(found, given or [NONE] * len(found), strict=True)], number
    )


def tag_conllu(
    path: str | Path, tagged: Iterable[tuple[Sentence, Sequence[str]]], column: str = "upos"
) -> Iterator[str]:
    """The lines of a file as CoNLL-U with these tags of its sentences; of a CoNLL-U file byte for byte, but for that column."""
    file = Path(path).expanduser()
    if lines.bare_suffix(file) == ".conllu":
        tags = (tag for _, each in tagged for tag in each)
        for raw in lines.raw_lines(file):
            cells = raw.decode().split("\t")
            if len(cells) > 1 and cells[0].removeprefix("\ufeff").isdigit():
                cells[COLUMNS[column]] = next(tags)
            yield "\t".join(cells)
        return
    for sentence, each in tagged:
        yield f"# text = {' '.join(sentence.words)}\n"
        for number, (word, tag) in enumerate(zip(sentence.words, each, strict=True), 1):
            cells = [str(number), word, *[NONE] * 8]
            cells[COLUMNS[column]] = tag
            yield "\t".join(cells) + "\n"
        yield "\n"


def _from_conllu(column: int, start: int, block: Block) -> Sentence:
    rows = word_rows(block)
    counted = heads_of(rows)
    return _sentence(
        [(number, cells[1], cells[column]) for number, cells in rows], start, NAMES[column], counted
    )


def heads_of(rows: WordRows) -> tuple[int, ...] | None:
    """The head of each word, from 0, -1 for the root; None if not all are known."""
    for number, cells in rows:
        head = cells[HEAD]
        if head != NONE and not (head.isascii() and head.isdigit() and int(head) <= len(rows)):
            what = f"the head of '{cells[1][:40]}' is {head[:40]}, and the sentence has words 1 to {len(rows)}"
            raise LineError(
                "heads", f"{what}; write a word's id, 0 for the root, or _", line=number
            )
    heads = [cells[HEAD] for _, cells in rows]
    return None if NONE in heads else tuple(int(head) - 1 for head in heads)


def _from_tsv(start: int, block: Block) -> Sentence:
    def cells(number: int, line: str) -> tuple[int, str, str]:
        word, tag = split_columns(line, (2,), "word<TAB>tag, and an empty line ends a sentence")
        return number, _check_cell(word, "word"), _check_cell(tag, "tag")

    return _sentence(list(strict(convert(None, block, cells))), start)


def _sentence(
    cells: Cells, start: int, column: str = "tag", heads: tuple[int, ...] | None = None
) -> Sentence:
    """A sentence; without tags if all of them are `_`. Some that are missing are a mistake, not a sentence without tags."""
    words, tags = tuple(word for _, word, _ in cells), tuple(tag for _, _, tag in cells)
    missing = [(number, word) for number, word, tag in cells if tag == NONE]
    if 0 < len(missing) < len(cells):
        number, word = missing[0]
        what = f"the word '{word[:40]}' has no {column}, but others of its sentence have; tag all words of a sentence or none"
        raise LineError("tags", what, line=number)
    return Sentence(words, None if missing else tags, start, heads)


def word_rows(block: Block) -> WordRows:
    """The rows of a sentence that are words; ids must count 1, 2, 3 …, with ranges before and empty nodes after their words."""
    last = node = covered = 0

    def read(number: int, line: str) -> tuple[int, list[str]] | None:
        nonlocal last, node, covered
        cells = split_columns(line, (len(NAMES),), " ".join(NAMES) + ", separated by tabs")
        if "" in cells:
            raise LineError(
                "columns",
                f"the column {NAMES[cells.index('')]} is empty; write _ where nothing is known",
            )
        match = _ID.fullmatch(cells[0])
        first, mark, second = (
            (int(match[1]), match[2], int(match[3] or 0)) if match else (0, None, 0)
        )
        follows = first == last + 1
        fits = {
            None: follows,
            "-": follows and second > first > covered,
            ".": (first, second) == (last, node + 1),
        }
        if not fits[mark]:
            expected = f"{last + 1}, {last + 1}-{last + 2} before a range of words, or {last}.{node + 1} for an empty node"
            raise LineError(
                "ids",
                f"the id is '{cells[0][:40]}', expected {expected}; an empty line ends a sentence",
            )
        covered = second if mark == "-" else covered
        last, node = (last, node + (mark == ".")) if mark else (first, 0)
        return None if mark else (number, cells)

    found = strict(convert(None, [row for row in block if not row[1].startswith("#")], read))
    rows = [row for row in found if row]
    if covered > last:
        what = f"a range continues to word {covered}, but the sentence ends with word {last}"
        raise LineError("ids", what, line=block[-1][0])
    if not rows:
        raise LineError("columns", "a sentence without words; add its words or remove its lines")
    return rows


def _check_cell(text: str, what: str) -> str:
    """A word or tag that CoNLL-U can hold."""
    if not text.strip():
        raise LineError(
            "tags" if what == "tag" else "columns", f"a {what} is empty; write the {what}"
        )
    if re.search(r"[\t\n\r]", text):
        raise LineError("columns", f"a tab or a line break in a {what}; remove it")
    return lines.readable(text, what)
