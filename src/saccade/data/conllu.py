"""Sentences and their tags: CoNLL-U, word<TAB>tag, JSONL and plain text in; CoNLL-U with other tags out.

CoNLL-U has ten columns: ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC (https://universaldependencies.org/format.html).
A multiword range (`3-4`) and an empty node (`3.1`) are no words of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from ..errors import SaccadeError, did_you_mean
from .lines import (
    LineError,
    bare_suffix,
    decoded,
    each_line,
    json_object,
    json_value,
    must_exist,
    one_file,
    parsed,
    raw_lines,
    readable,
    some,
    strict,
)

COLUMNS = {"upos": 3, "xpos": 4}
FORMS = "a .conllu, .tsv (word<TAB>tag), .jsonl or .txt file of sentences (each may end in .gz or .xz)"
NAMES = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
NONE = "_"  # what stands in a column that is not filled

_ID = re.compile(r"(\d{1,7})(?:([-.])(\d{1,7}))?", re.ASCII)
Row = tuple[int, str]  # a line's number and its text


@dataclass(frozen=True, slots=True)
class Sentence:
    """Words with their tags, if those are known; `line` is where the sentence starts in its file, counted from 1."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    line: int = 0
    heads: tuple[int, ...] | None = None


def read_sentences(where: str | Path, column: str = "upos") -> list[Sentence]:
    """All sentences of a file, with the tags of that column of CoNLL-U; the first bad line is an error that names it."""
    return strict(each_sentence(where, column))


def each_sentence(where: str | Path, column: str = "upos") -> Iterator[Sentence | LineError]:
    """Each sentence, or the first error in it: the strict reader raises that error, a report collects it."""
    place = _place(column)
    path, read = _form(where)
    yield from some(read(path, place), f"{path} holds no sentences, only empty lines; give {FORMS}")


def tag_conllu(path: str | Path, tags: Iterable[Sequence[str]], column: str = "upos") -> Iterator[str]:
    """The lines of a CoNLL-U file with their ends, byte for byte, except that the words' tags in that column are these.

    What is no CoNLL-U becomes it: `# text = …`, and `_` in the columns that nobody knows.
    """
    place = _place(column)
    sentences = read_sentences(path, column)
    file, read = _form(path)
    given = [tuple(each) for each in tags]
    if len(given) != len(sentences):
        raise SaccadeError(f"{file} has {len(sentences):,} sentences, but tags for {len(given):,} were given; give each its tags")
    for sentence, each in zip(sentences, given, strict=True):
        if len(each) != len(sentence.words):
            what = f"{len(each)} tags for {len(sentence.words)} words; give each word one tag"
            raise LineError("tags", file, sentence.line, what)
        for tag in each:
            _cell(file, sentence.line, tag, "tag")
    if read is _from_conllu:
        return _retagged(file, (tag for each in given for tag in each), place)
    return write_conllu(zip(sentences, given, strict=True), column)


def _place(column: str) -> int:
    if column not in COLUMNS:
        raise SaccadeError(f"no tag column named '{column}'{did_you_mean(column, COLUMNS)}")
    return COLUMNS[column]


def _form(where: str | Path) -> tuple[Path, Callable[[Path, int], Iterator[Sentence | LineError]]]:
    path = one_file(where, FORMS)
    suffix = bare_suffix(path)
    if suffix not in _READERS:
        must_exist(path)
        raise SaccadeError(f"'{path}' does not end in {', '.join(_READERS)}, so its sentences cannot be told apart; give {FORMS}")
    return path, _READERS[suffix]


# --- lines to sentences -------------------------------------------------------------------------------------------------


def _blocks(path: Path) -> Iterator[list[Row] | LineError]:
    """The lines between empty ones, or the first line among them that cannot be read."""
    for empty, group in groupby(each_line(path), key=lambda row: isinstance(row[1], str) and not row[1].strip(" ")):
        if not empty:
            rows = list(group)
            wrong = next((line for _, line in rows if isinstance(line, LineError)), None)
            yield wrong or [(number, line) for number, line in rows if isinstance(line, str)]


def _each_block(path: Path, parse: Callable[[Path, list[Row]], Sentence]) -> Iterator[Sentence | LineError]:
    for block in _blocks(path):
        try:
            if isinstance(block, LineError):
                raise block
            yield parse(path, block)
        except LineError as error:
            yield error


def _from_conllu(path: Path, place: int) -> Iterator[Sentence | LineError]:
    def parse(path: Path, rows: list[Row]) -> Sentence:
        words = list(_words(path, rows))
        if not words:
            raise LineError("columns", path, rows[0][0], "a sentence without words; add its words or remove its lines")
        tags = [(number, columns[1], columns[place]) for number, columns in words]
        return Sentence(tuple(columns[1] for _, columns in words), _tags(path, tags, NAMES[place]), rows[0][0])

    return _each_block(path, parse)


def _words(path: Path, rows: list[Row]) -> Iterator[tuple[int, list[str]]]:
    """The rows of a sentence that are words; ids must count 1, 2, 3 …, with ranges before and empty nodes after their words."""
    last = node = covered = 0
    for number, line in rows:
        if line.startswith("#"):
            continue
        columns = line.split("\t")
        if len(columns) != len(NAMES):
            count = "1 column" if len(columns) == 1 else f"{len(columns)} columns"
            raise LineError("columns", path, number, f"{count} instead of 10; separate {' '.join(NAMES)} by tabs")
        if (empty := next((name for name, cell in zip(NAMES, columns, strict=True) if not cell), None)) is not None:
            raise LineError("columns", path, number, f"the column {empty} is empty; write _ where nothing is known")
        match = _ID.fullmatch(columns[0])
        if match is None:
            raise LineError(
                "ids", path, number, f"'{columns[0][:40]}' is no id; write 3 for a word, 3-4 for a range, 3.1 for an empty node"
            )
        first, mark, second = int(match[1]), match[2], int(match[3] or 0)
        if mark == "-":
            if first != last + 1 or second <= first or first <= covered:
                what = f"the range {columns[0]} must start at the next word, {last + 1}, and span two words or more"
                raise LineError("ids", path, number, what)
            covered = second
        elif mark == ".":
            if (first, second) != (last, node + 1):
                raise LineError("ids", path, number, f"the empty node {columns[0]} stands where {last}.{node + 1} must be")
            node += 1
        else:
            if first != last + 1:
                what = f"word id {first} instead of {last + 1}; ids count 1, 2, 3 …, and an empty line ends a sentence"
                raise LineError("ids", path, number, what)
            last, node = first, 0
            yield number, columns
    if covered > last:
        raise LineError("ids", path, rows[-1][0], f"a range goes on to word {covered}, but the sentence ends with word {last}")


def _tags(path: Path, cells: list[tuple[int, str, str]], name: str) -> tuple[str, ...] | None:
    """The tags of a sentence; none if all of them are `_`. Some that are missing are a mistake, not a sentence without tags."""
    missing = [(number, word) for number, word, tag in cells if tag == NONE]
    if len(missing) == len(cells):
        return None
    if missing:
        number, word = missing[0]
        what = f"the word '{word[:40]}' has no {name}, but others of its sentence have; tag all words of a sentence or none"
        raise LineError("tags", path, number, what)
    return tuple(tag for _, _, tag in cells)


def _from_tsv(path: Path, place: int) -> Iterator[Sentence | LineError]:
    def parse(path: Path, rows: list[Row]) -> Sentence:
        cells = []
        for number, line in rows:
            columns = line.split("\t")
            if len(columns) != 2:
                count = "1 column" if len(columns) == 1 else f"{len(columns)} columns"
                what = f"{count} instead of 2; a line is word<TAB>tag, and an empty line ends a sentence"
                raise LineError("columns", path, number, what)
            word, tag = (_cell(path, number, cell, side) for cell, side in zip(columns, ("word", "tag"), strict=True))
            cells.append((number, word, tag))
        return Sentence(tuple(word for _, word, _ in cells), _tags(path, cells, "tag"), rows[0][0])

    return _each_block(path, parse)


def _from_json(path: Path, place: int) -> Iterator[Sentence | LineError]:
    return parsed(path, _json_sentence)


def _json_sentence(path: Path, number: int, text: str) -> Sentence:
    entry = json_object(path, number, text, '{"words": […], "tags": […]}')
    words = json_value(path, number, entry, "words", 'a sentence needs "words", and may have "tags"')
    return sentence_of(path, number, words, entry.get("tags"))


def sentence_of(path: Path, number: int, words: object, tags: object) -> Sentence:
    """A sentence from a list of words and a list of as many tags, or None."""
    for name, values in (("words", words), ("tags", [] if tags is None else tags)):
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise LineError("JSON", path, number, f'"{name}" must be a list of strings')
        for value in values:
            _cell(path, number, value, name.removesuffix("s"))
    assert isinstance(words, list)
    if not words:
        raise LineError("JSON", path, number, "a sentence without words; add its words or remove the line")
    if tags is None:
        return Sentence(tuple(words), None, number)
    assert isinstance(tags, list)
    if len(tags) != len(words):
        raise LineError("tags", path, number, f"{len(tags)} tags for {len(words)} words; give each word one tag")
    return Sentence(tuple(words), _tags(path, [(number, *both) for both in zip(words, tags, strict=True)], "tag"), number)


def _from_text(path: Path, place: int) -> Iterator[Sentence | LineError]:
    return parsed(path, lambda _, number, line: Sentence(tuple(line.split()), None, number))


def _cell(path: Path, number: int, text: str, what: str) -> str:
    """A word or tag that CoNLL-U can hold."""
    readable(text, what, path, number)
    if not text or text.isspace():
        raise LineError("tags" if what == "tag" else "columns", path, number, f"a {what} is empty; write the {what}")
    if re.search(r"[\t\n\r]", text):
        raise LineError("columns", path, number, f"a tab or a line break in a {what}; remove it")
    return text


_READERS: dict[str, Callable[[Path, int], Iterator[Sentence | LineError]]] = {
    ".conllu": _from_conllu,
    ".tsv": _from_tsv,
    ".jsonl": _from_json,
    ".txt": _from_text,
}


# --- tags into CoNLL-U --------------------------------------------------------------------------------------------------


def _retagged(path: Path, tags: Iterator[str], place: int) -> Iterator[str]:
    for number, raw in enumerate(raw_lines(path), 1):
        line = raw.decode()
        id_, _, rest = decoded(path, number, raw).partition("\t")
        if rest and id_.isdigit():
            columns = line.split("\t")
            columns[place] = next(tags)
            line = "\t".join(columns)
        yield line


def write_conllu(tagged: Iterable[tuple[Sentence, Sequence[str]]], column: str = "upos") -> Iterator[str]:
    """The lines of a CoNLL-U file of these sentences and their tags; what nobody knows is `_`."""
    place = _place(column)
    for sentence, tags in tagged:
        yield f"# text = {' '.join(sentence.words)}\n"
        for number, (word, tag) in enumerate(zip(sentence.words, tags, strict=True), 1):
            columns = [str(number), word, *[NONE] * 8]
            columns[place] = tag
            yield "\t".join(columns) + "\n"
        yield "\n"
