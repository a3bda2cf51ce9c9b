"""Sentences and their tags: CoNLL-U, word<TAB>tag, JSONL and plain text in; CoNLL-U with other tags out.

CoNLL-U has ten columns: ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC (https://universaldependencies.org/format.html).
The lines of a multiword token (`3-4`) and of an empty node (`3.1`) are not words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import SaccadeError, did_you_mean
from .lines import LineError, bare_suffix, decode, one_file, raw_lines, readable
from .rows import at_least_one, blocks, convert, full_lines, parse_object, split_columns, strict, value_of

COLUMNS = {"upos": 3, "xpos": 4}
HEAD = 6
FORMS = "a .conllu, .tsv (word<TAB>tag), .jsonl or .txt file of sentences (each may end in .gz or .xz)"
NAMES = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
NONE = "_"  # a column that is not filled

_ID = re.compile(r"(\d{1,7})(?:([-.])(\d{1,7}))?", re.ASCII)
Block = list[tuple[int, str]]  # the numbered lines of a sentence
Cells = list[tuple[int, str, str]]  # line number, word, tag


@dataclass(frozen=True, slots=True)
class Sentence:
    """Words with their tags, if those are known; `line` is where the sentence starts in its file, counted from 1.

    `heads` are the indices of the words' heads in a dependency tree, counted from 0, -1 for the root; None if not all are known.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    line: int = 0
    heads: tuple[int, ...] | None = None


def read_sentences(where: str | Path, column: str = "upos") -> list[Sentence]:
    """All sentences of a file, with the tags of that column of CoNLL-U; the first bad line is an error that names it."""
    return strict(each_sentence(where, column))


def each_sentence(where: str | Path, column: str = "upos") -> Iterator[Sentence | LineError]:
    """Each sentence, or the first error in it."""
    if column not in COLUMNS:
        raise SaccadeError(f"no tag column named '{column}'{did_you_mean(column, COLUMNS)}")
    path = one_file(where, FORMS)
    readers: dict[str, Callable[[], Iterator[Sentence | LineError]]] = {
        ".conllu": lambda: convert(path, blocks(path), partial(_from_conllu, COLUMNS[column])),
        ".tsv": lambda: convert(path, blocks(path), _from_tsv),
        ".jsonl": lambda: convert(path, full_lines(path), _from_json),
        ".txt": lambda: convert(path, full_lines(path), lambda number, line: Sentence(tuple(line.split()), None, number)),
    }
    if bare_suffix(path) not in readers:
        raise SaccadeError(f"'{path}' does not end in {', '.join(readers)}, so its format is not known; give {FORMS}")
    yield from at_least_one(readers[bare_suffix(path)](), f"{path} holds no sentences, only empty lines; give {FORMS}")


def sentence_of(number: int, entry: dict[str, Any], words: str = "words", tags: str | None = "tags") -> Sentence:
    """The sentence of a row: a list of words, and a list of as many tags or nothing."""
    found = value_of(entry, words, 'a sentence needs "words", and may have "tags"')
    given = entry.get(tags) if tags else None
    for name, values in (("word", found), ("tag", [] if given is None else given)):
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise LineError("JSON", f'"{name}s" must be a list of strings')
        for value in values:
            _check_cell(value, name)
    if not found:
        raise LineError("JSON", "a sentence without words; add its words or remove the line")
    if given is None:
        return Sentence(tuple(found), None, number)
    if len(given) != len(found):
        raise LineError("tags", f"{len(given)} tags for {len(found)} words; give each word one tag")
    return Sentence(tuple(found), _tags([(number, *both) for both in zip(found, given, strict=True)], "tag"), number)


def tag_conllu(path: str | Path, tags: Iterable[Sequence[str]], column: str = "upos") -> Iterator[str]:
    """The lines of a CoNLL-U file with their ends, byte for byte, except that the words' tags in that column are these.

    Other formats are converted to it: `# text = …`, and `_` in the columns that nobody knows.
    """
    sentences, file = read_sentences(path, column), one_file(path, FORMS)
    given = [tuple(each) for each in tags]
    if len(given) != len(sentences):
        raise SaccadeError(f"{file} has {len(sentences):,} sentences, but tags for {len(given):,} were given; give each its tags")
    for sentence, each in zip(sentences, given, strict=True):
        try:
            if len(each) != len(sentence.words):
                raise LineError("tags", f"{len(each)} tags for {len(sentence.words)} words; give each word one tag")
            for tag in each:
                _check_cell(tag, "tag")
        except LineError as error:
            raise error.at(file, sentence.line) from None
    if bare_suffix(file) == ".conllu":
        return _replace_tags(file, (tag for each in given for tag in each), COLUMNS[column])
    return write_conllu(zip(sentences, given, strict=True), column)


def write_conllu(tagged: Iterable[tuple[Sentence, Sequence[str]]], column: str = "upos") -> Iterator[str]:
    """The lines of a CoNLL-U file of these sentences and their tags; what nobody knows is `_`."""
    for sentence, tags in tagged:
        yield f"# text = {' '.join(sentence.words)}\n"
        for number, (word, tag) in enumerate(zip(sentence.words, tags, strict=True), 1):
            cells = [str(number), word, *[NONE] * 8]
            cells[COLUMNS[column]] = tag
            yield "\t".join(cells) + "\n"
        yield "\n"


def _replace_tags(path: Path, tags: Iterator[str], column: int) -> Iterator[str]:
    for number, raw in enumerate(raw_lines(path), 1):
        line = raw.decode()
        id_, _, rest = decode(number, raw).partition("\t")
        if rest and id_.isdigit():
            cells = line.split("\t")
            cells[column] = next(tags)
            line = "\t".join(cells)
        yield line


# --- rows to sentences --------------------------------------------------------------------------------------------------


def _from_conllu(column: int, start: int, block: Block) -> Sentence:
    rows = list(_words(block))
    if not rows:
        raise LineError("columns", "a sentence without words; add its words or remove its lines")
    tags = _tags([(number, cells[1], cells[column]) for number, cells in rows], NAMES[column])
    return Sentence(tuple(cells[1] for _, cells in rows), tags, start, _heads(rows))


def _words(block: Block) -> Iterator[tuple[int, list[str]]]:
    """The rows of a sentence that are words; ids must count 1, 2, 3 …, with ranges before and empty nodes after their words."""
    last = node = covered = 0
    for number, line in block:
        if line.startswith("#"):
            continue
        cells = split_columns(line, (len(NAMES),), " ".join(NAMES) + ", separated by tabs", number)
        if "" in cells:
            what = f"the column {NAMES[cells.index('')]} is empty; write _ where nothing is known"
            raise LineError("columns", what, line=number)
        match = _ID.fullmatch(cells[0])
        if match is None:
            what = f"'{cells[0][:40]}' is not an id; write 3 for a word, 3-4 for a range, 3.1 for an empty node"
            raise LineError("ids", what, line=number)
        first, mark, second = int(match[1]), match[2], int(match[3] or 0)
        wrong = None
        if mark == "-" and (first != last + 1 or second <= first or first <= covered):
            wrong = f"the range {cells[0]} must start at the next word, {last + 1}, and span two words or more"
        elif mark == "." and (first, second) != (last, node + 1):
            wrong = f"empty node {cells[0]} instead of {last}.{node + 1}; empty nodes follow their word"
        elif mark is None and first != last + 1:
            wrong = f"word id {first} instead of {last + 1}; ids count 1, 2, 3 …, and an empty line ends a sentence"
        if wrong:
            raise LineError("ids", wrong, line=number)
        if mark == "-":
            covered = second
        elif mark == ".":
            node += 1
        else:
            last, node = first, 0
            yield number, cells
    if covered > last:
        what = f"a range continues to word {covered}, but the sentence ends with word {last}"
        raise LineError("ids", what, line=block[-1][0])


def _heads(rows: list[tuple[int, list[str]]]) -> tuple[int, ...] | None:
    """The heads of a sentence's words, from 0, the root's -1; None if one of them is `_`."""
    heads = []
    for number, cells in rows:
        head = cells[HEAD]
        if head != NONE and not (head.isascii() and head.isdigit() and int(head) <= len(rows)):
            what = f"the head of '{cells[1][:40]}' is {head[:40]}, and the sentence has words 1 to {len(rows)}"
            raise LineError("heads", f"{what}; write a word's id, 0 for the root, or _", line=number)
        heads.append(head)
    return None if NONE in heads else tuple(int(head) - 1 for head in heads)


def _tags(cells: Cells, name: str) -> tuple[str, ...] | None:
    """The tags of a sentence; none if all of them are `_`. Some that are missing are a mistake, not a sentence without tags."""
    missing = [(number, word) for number, word, tag in cells if tag == NONE]
    if len(missing) == len(cells):
        return None
    for number, word in missing:
        what = f"the word '{word[:40]}' has no {name}, but others of its sentence have; tag all words of a sentence or none"
        raise LineError("tags", what, line=number)
    return tuple(tag for _, _, tag in cells)


def _from_tsv(start: int, block: Block) -> Sentence:
    cells: Cells = []
    for number, line in block:
        word, tag = split_columns(line, (2,), "word<TAB>tag, and an empty line ends a sentence", number)
        cells.append((number, _check_cell(word, "word", number), _check_cell(tag, "tag", number)))
    return Sentence(tuple(word for _, word, _ in cells), _tags(cells, "tag"), start)


def _from_json(number: int, line: str) -> Sentence:
    return sentence_of(number, parse_object(line, '{"words": […], "tags": […]}'))


def _check_cell(text: str, what: str, number: int | None = None) -> str:
    """A word or tag that CoNLL-U can hold."""
    readable(text, what, None, number)
    if not text.strip():
        raise LineError("tags" if what == "tag" else "columns", f"a {what} is empty; write the {what}", line=number)
    if re.search(r"[\t\n\r]", text):
        raise LineError("columns", f"a tab or a line break in a {what}; remove it", line=number)
    return text
