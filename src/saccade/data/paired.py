"""Pairs that are made of one file: a sentence and its parse, a section and its heading, a turn of a dialogue and the next one."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from . import lines
from .conllu import heads_of, word_rows
from .delimited import Where
from .lines import LineError, Rows, bare_suffix, convert, paths_of
from .pairs import Pair, each_pair

GIVEN = "given"  # the file has the pairs themselves
SECTION_WORDS = 100  # of a section's text: its beginning says what it is about
MAX_TURN_LINES = 100_000  # lines
RELATION = 7  # the column of CoNLL-U
UNKNOWN = "<unk>"  # what WikiText has instead of rare words

# of a wiki, or Markdown
_HEADING = re.compile(r"(=(?: ?=)*) *([^\s=](?:.*[^\s=])?) *(=(?: ?=)*)|#{1,6} +(.*?[^\s#]) *#*")
_TOKEN = re.compile(r"([+-]?\d{1,5})/(\S+)", re.ASCII)
Block = list[tuple[int, str]]
Arc = tuple[int, str]  # a word's head, counted from 0 and −1 for the root, and its relation


def pairs_of(where: Where, made_of: str = "") -> Iterator[Pair | LineError]:
    """Each pair of files, or the error it is: those that the files have, parses of a .conllu file where pairs may be made at all, or what
    is made of plain text."""
    names = paths_of(where)
    if made_of and len(names) == 1 and bare_suffix(Path(names[0])) == ".conllu":
        path = lines.one_file(names[0], "a .conllu file")
        return convert(path, lines.blocks(path), parse_of)
    if made_of in ("", GIVEN):
        return each_pair(where)
    paths = [lines.one_file(name, "files of plain text") for name in names]
    rows = {"headings": headed, "turns": next_turns}[made_of]
    return (item for path in paths for item in convert(path, rows(path), lambda _, pair: pair))


def headed(path: Path) -> Rows[Pair]:
    """The first words of each section → its heading. Headings with <unk> have no words to learn."""
    heading, start, words = "", 0, list[str]()
    for number, line in lines.each_line(path, what="paragraph"):
        if isinstance(line, LineError):
            yield number, line
        elif found := heading_of(line):
            yield from section(heading, start, words)
            heading, start, words = found, number, []
        elif len(words) < SECTION_WORDS:
            words += line.split()
    yield from section(heading, start, words)


def section(heading: str, start: int, words: Sequence[str]) -> Rows[Pair]:
    if heading and words and UNKNOWN not in heading.split():
        yield start, Pair(" ".join(words[:SECTION_WORDS]), heading, start)


def heading_of(line: str) -> str:
    """The text of a heading, `= = Early life = =`, `== Early life ==` or `## Early life`, else nothing."""
    found = _HEADING.fullmatch(line.strip())
    if not found or (found[1] or "").count("=") != (found[3] or "").count("="):
        return ""
    return found[2] or found[4]


def next_turns(path: Path) -> Rows[Pair]:
    """Each turn, the lines between empty ones, → the next."""

    def turns() -> Rows[str]:
        for number, block in lines.blocks(path, most=MAX_TURN_LINES):
            yield (
                number,
                block
                if isinstance(block, LineError)
                else " ".join(line.strip() for _, line in block),
            )

    for (number, turn), (_, following) in pairwise(turns()):
        if isinstance(turn, LineError):
            yield number, turn
        elif not isinstance(following, LineError):
            yield number, Pair(turn, following, number)


def overlapping(pairs: Sequence[Pair]) -> bool:
    """Whether the pairs are turns of dialogues: most targets are the next source."""
    return 2 * sum(one.target == other.source for one, other in pairwise(pairs)) > len(pairs) > 1


def parse_of(start: int, block: Block) -> Pair:
    """A sentence of CoNLL-U → its linearized tree."""
    rows = word_rows(block)
    heads = heads_of(rows)
    if heads is None or any(cells[RELATION] == "_" for _, cells in rows):
        what = "the sentence has a word without HEAD or DEPREL, and a parser learns whole trees"
        raise LineError("heads", f"{what}; fill both columns, or remove the sentence", line=start)
    words = ["_".join(cells[1].split()) for _, cells in rows]
    return Pair(
        " ".join(words),
        linearized([(head, cells[RELATION]) for head, (_, cells) in zip(heads, rows, strict=True)]),
        start,
    )


def linearized(arcs: Sequence[Arc]) -> str:
    """`offset/relation` of each word: how far to the right its head is, 0 for the root (the relative encoding of Strzyz et al. 2019);
    relations without their subtypes, as the CoNLL 2018 shared task scores them."""
    offset = [0 if head < 0 else head - n for n, (head, _) in enumerate(arcs)]
    return " ".join(
        f"{far:+d}/{plain(name)}" if far else f"0/{plain(name)}"
        for far, (_, name) in zip(offset, arcs, strict=True)
    )


def plain(relation: str) -> str:
    return relation.partition(":")[0]


def arcs_of(tree: str, count: int) -> list[Arc | None]:
    """The inverse for `count` words: None for a word without a token, or whose token is not an arc within the sentence."""

    def arc(n: int, token: str) -> Arc | None:
        found = _TOKEN.fullmatch(token)
        if found is None or not 0 <= (head := n + int(found[1])) < count:
            return None
        return (-1 if head == n else head), plain(found[2])

    read = [arc(n, token) for n, token in enumerate(tree.split()[:count])]
    return read + [None] * (count - len(read))
