"""What is odd about data of any kind: counts, lengths, and findings with their first line numbers, for `saccade check DATA`."""

import json
import re
from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..errors import SaccadeError, did_you_mean
from . import corpora
from .archives import is_archive
from .bad_lines import many
from .corpora import (
    DOCUMENTS,
    LABELED,
    PAIRS,
    PICTURED,
    SENTENCES,
    SHOWN,
    Kind,
    each_item,
    is_generated,
    overlap,
    whole_files,
)
from .delimited import split_name
from .hub import in_hub
from .lines import HEADER, LineError, bare_suffix, open_text, paths_of

LEVELS = ("error", "warning", "note")
MAX_NAMED_LINES, MAX_TALLIES = 5, 20
MAX_WORDS, MAX_RATIO, MIN_RATIO_WORDS = 200, 3, 5
MIN_REPEATING_TEXTS = 20  # texts from which on their labels should occur again
Item = TypeVar("Item")
Texts = tuple[str | tuple[str, ...], ...]  # of each side, as text or in words

_HTML = "a|abbr|b|big|blockquote|body|br|center|code|div|em|font|h[1-6]|head|hr|html|i|img|li|ol|p|pre|s|script|small|span|strong"
_HTML = rf"(?i)</?(?:{_HTML}|style|sub|sup|table|tbody|td|th|tr|tt|u|ul)(?:\s[^<>]*)?/?>"
# Greek and Cyrillic have letters that look Latin
_MIXED = "[a-zA-Z][{0}]|[{0}][a-zA-Z]".format("\u0370-\u03ff\u0400-\u04ff")
# what should not be in a text: kind, level, sentence, and the pattern looked for
PATTERNS = (
    (
        "control characters",
        "warning",
        "with control characters; remove them",
        r"[\x00-\x08\x0b-\x1f\x7f-\x9f]",
    ),
    (
        "replacement character",
        "warning",
        "with U+FFFD, where an earlier program lost a character",
        "\ufffd",
    ),
    (
        "mojibake",
        "warning",
        "with signs of UTF-8 read as Latin-1, such as 'Ã©' for 'é'",
        r"[ÃÂ][\x80-\xbf]|â€|ï¿½|ðŸ",
    ),
    ("html tag", "warning", "with HTML tags; strip them", _HTML),
    (
        "html entity",
        "warning",
        "with HTML entities such as &amp;; decode them",
        r"&(?:[A-Za-z]{2,8}|#\d{1,7}|#x[\dA-Fa-f]+);",
    ),
    (
        "invisible characters",
        "note",
        "with zero-width or bidi marks",
        r"[\xad\u200b\u2060\ufeff\u202a-\u202e\u2066-\u2069]",
    ),
    ("mixed scripts", "note", "with words of Latin and other letters mixed", _MIXED),
)
# what makes an item odd: kinds of data, kind, level, sentence, and a test of its sides and of their numbers of words
SHAPES: tuple[tuple[str, str, str, str, Callable[[Any, Sequence[int]], bool]], ...] = (
    ("pairs tags", "long line", "warning", f"of more than {MAX_WORDS} words; split or remove them", lambda _, n: max(n) > MAX_WORDS),
    ("pairs", "source equals target", "warning", "with a target that only repeats the source", lambda x, _: x[0].strip() == x[1].strip()),
    ("pairs", "length ratio", "warning", f"with one side more than {MAX_RATIO} times as long as the other; check whether they are translations",
     lambda _, n: MAX_RATIO * min(n) < max(n) and max(n) - min(n) > MIN_RATIO_WORDS),
)  # fmt: skip


class Look(NamedTuple):
    """How data of one kind is looked at: what its sides and its labels are called."""

    data: Kind
    sides: tuple[str, ...]
    labels: str = ""
    # the texts of an item's sides, the key to find duplicates, and the label or target
    facts: Callable[[Any], tuple[Texts, Hashable, Hashable]] = lambda one: (
        (one.text,),
        one.text.strip(),
        None,
    )


LOOKS = {
    "pairs": Look(PAIRS, ("source", "target"), "", lambda one: ((one.source, one.target), one.source.strip(), one.target.strip())),
    "tags": Look(SENTENCES, ("words",), "tags", lambda one: ((one.words,), one.words, one.tags)),
    "labels": Look(LABELED, ("text",), "labels", lambda one: ((one.text,), one.text.strip(), one.label)),
    "text": Look(DOCUMENTS, ("text",)),
    "graphs": Look(corpora.GRAPHS, ("words",), "labels", lambda one: ((one.words,), one.source, tuple(filter(None, one.labels)))),
    "pictures": Look(PICTURED, ("image",), "labels", lambda one: ((), one.image, one.label)),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of oddity: how bad it is, how often it occurs, and the first lines where."""

    kind: str
    level: str
    count: int
    lines: list[int]
    sentence: str

    def __str__(self) -> str:
        lines = ", ".join(f"{line:,}" for line in self.lines) + (
            ", …" if self.count > len(self.lines) else ""
        )
        where = f" (line{'s' if self.count > 1 else ''} {lines})" if self.lines else ""
        return f"{self.level}: {self.sentence}{where}"


@dataclass(frozen=True, slots=True)
class Report:
    """How many there are of what, their lengths in words, how often each label or tag occurs, and findings, the worst first."""

    name: str
    what: str
    count: int
    lengths: dict[str, dict[str, float]]
    findings: tuple[Finding, ...]
    tallies: dict[str, dict[str, int]]
    kind: str
    items: Sequence[Any]

    @property
    def errors(self) -> int:
        """How many lines are errors."""
        return sum(finding.count for finding in self.findings if finding.level == "error")

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, ready for JSON."""
        counted = {"name": self.name, f"{self.what}s": self.count, **self.lengths, **self.tallies}
        return counted | {"findings": [asdict(finding) for finding in self.findings]}

    def lines(self) -> list[str]:
        """The report in plain sentences."""
        lines = [f"{self.name}: {many(self.count, self.what)}"]
        for side, of in self.lengths.items() if self.count else ():
            median, p95 = (
                f"{of[key]:,.6g}" if of[key] < 1e5 else f"{of[key]:,.0f}"
                for key in ("median", "p95")
            )
            spread = f"min {of['min']:,}, median {median}, mean {of['mean']:,.1f}, 95% up to {p95}, max {of['max']:,}"
            lines.append(
                f"{side}: {many(int(of['words']), 'word')}"
                + f" ({spread} per {self.what})" * (self.count > 1)
            )
        for name, counts in self.tallies.items() if self.count else ():
            shown = [
                f"{label} {count:,} ({count / sum(counts.values()):.0%})"
                for label, count in counts.items()
            ]
            more = f", and {len(counts) - MAX_TALLIES} more" if len(counts) > MAX_TALLIES else ""
            lines.append(
                f"{name}: {len(counts)} ({', '.join(shown[:MAX_TALLIES])}{more})"
                if counts
                else f"{name}: none"
            )
        return lines + ([str(finding) for finding in self.findings] or ["nothing odd was found"])


def check(where: Sequence[str], kind: str | None = None, separated: str = "file") -> Report:
    """A report on data of any kind: `pairs`, `tags`, `labels`, `text`, `graphs` or `pictures`, inferred from the name of the data unless given."""
    kind = kind or usual_kind(where)
    if kind not in LOOKS:
        raise SaccadeError(
            f"data cannot be checked as '{kind}'{did_you_mean(kind, LOOKS)}", code="unknown-name"
        )
    own_files = not any(is_generated(one) or in_hub(one) for one in where)
    if len(where) > {"pairs": 2, "text": len(where) if own_files else 1}.get(kind, 1):
        raise SaccadeError(
            f"{len(where)} files were given; give one, or two text files --as pairs",
            code="number-of-files",
        )
    data, look = where[0] if len(where) == 1 else list(where), LOOKS[kind].data
    each = each_item(look, data, None, *[separated] * (kind == "text"))
    items, broken = scan(
        each_decoded(list(each) or each_item(SHOWN, data)) if kind == "pictures" else each
    )
    return report(
        kind,
        items,
        " + ".join(Path(one).name if own_files else one for one in where),
        broken,
        whole_files(look, data),
    )


def each_decoded(items: Iterable[Any]) -> Iterator[Any]:
    """Each picture that can be decoded, and the error that another one is."""
    for item in items:
        try:
            if not isinstance(item, LineError):
                item.image.pixels()
            yield item
        except SaccadeError as error:
            yield LineError("damaged image", str(error), line=0)  # its name says where


def check_other(first: Report, where: str, separated: str = "file") -> Report:
    """A report on another set of the same kind, which also says how much of it is in the first."""
    found, look = (
        check([where] if "#" in where else paths_of(where), first.kind, separated),
        LOOKS[first.kind],
    )
    shared = overlap(look.data, first.items, found.items)
    what = f"{shared:,} of {many(found.count, found.what)} also in {first.name} (the same {look.sides[0]})"
    more = Finding("overlap", "warning", shared, [], f"{what}; remove them from one of the two")
    findings = [*found.findings, *[more] * (shared > 0)]
    return replace(found, findings=by_level(findings))


def by_level(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The worst first."""
    return tuple(sorted(findings, key=lambda finding: LEVELS.index(finding.level)))


def usual_kind(where: Sequence[str]) -> str:
    """Infer the kind of data from its name: the corpus, the suffix of a file, or the first line of JSONL; else pairs."""
    if len(where) == 1 and is_generated(where[0]):
        name = where[0].partition(":")[0]
        return next(
            (kind for kind in ("labels", "pairs", "graphs") if name in LOOKS[kind].data.generated),
            "text",
        )
    names = [split_name(one)[0] for one in where]
    if len(where) != 1 or in_hub(where[0]) or "," in str(names[0]):
        return "pairs"
    path = Path(str(names[0])).expanduser()
    if is_archive(path) or (path.is_dir() and any(path.iterdir())):
        return "pictures"
    suffix = bare_suffix(path)
    if suffix != ".jsonl":
        return {".conllu": "tags", ".csv": "labels", ".txt": "text"}.get(suffix, "pairs")
    try:
        first = json.loads(next(open_text(str(names[0]))))
    except (SaccadeError, ValueError, RecursionError):
        return "pairs"
    # the first of these that is there
    keys = {
        "source": "pairs",
        "words": "tags",
        "nodes": "graphs",
        "faces": "graphs",
        "label": "labels",
        "text": "text",
    }
    return next((keys[key] for key in keys if isinstance(first, dict) and key in first), "pairs")


def scan(items: Iterable[Item | LineError]) -> tuple[list[Item], list[Finding]]:
    """All items that can be read, and the lines that cannot as findings, so that one run shows all problems at once."""
    good: list[Item] = []
    # the first errors of a kind, and how many there are
    wrong, count = (dict[str, list[LineError]](), Counter[str]())
    try:
        for item in items:
            if isinstance(item, LineError):
                count[item.kind] += 1
                if count[item.kind] <= MAX_NAMED_LINES:
                    wrong.setdefault(item.kind, []).append(item)
            else:
                good.append(item)
    except SaccadeError as error:
        if not good and not wrong:
            raise
        wrong["cut off"], count["cut off"] = [LineError("cut off", str(error), line=0)], 1
    broken = []
    for kind, errors in wrong.items():
        lines = [error.line for error in errors if error.line]
        several = f"{count[kind]:,} broken lines ({kind}), the first: " if count[kind] > 1 else ""
        level, first = ("note", errors[0].args[0]) if kind == HEADER else ("error", errors[0])
        broken.append(Finding(kind, level, count[kind], lines, f"{several}{first}"))
    return good, broken


def report(
    kind: str,
    items: Sequence[Any],
    name: str,
    broken: Iterable[Finding] = (),
    by_line: bool = False,
) -> Report:
    """A report on items of one kind; odd text is looked for line by line where an item is many lines of its file."""
    look, found = LOOKS[kind], list(broken)
    lines = [item.line or number for number, item in enumerate(items, 1)]
    sides = () if kind == "pictures" else look.sides  # of words, which a picture has not
    # words of each item; items that are one long word
    counts, long = ([array("q") for _ in sides], [0 for _ in sides])
    for row, _, _ in map(look.facts, items):
        for n, side in enumerate(row):
            counts[n].append(len(side if isinstance(side, tuple) else side.split()))
            long[n] += isinstance(side, str) and len(side) > 8 and counts[n][-1] == 1

    def add(
        kind: str, level: str, what: str, at: Sequence[int], thing: str = look.data.thing
    ) -> None:
        if at:
            sentence = f"{many(len(at), thing)} {what}"
            found.append(Finding(kind, level, len(at), list(at[:MAX_NAMED_LINES]), sentence))

    # lines that are mostly one word and far longer than a word: text in a script without spaces
    bare = [side for side, those in zip(sides, long, strict=True) if 2 * those > len(items)]
    if bare:
        where = f" on the {' and the '.join(bare)} side" if len(look.sides) > 1 else ""
        what = f"no spaces between words{where}; use a bpe or characters vocabulary"
        found.append(Finding("no spaces", "note", len(items), [], what))
    for kinds, named, level, what, is_odd in SHAPES:
        if kind in kinds.split() and not (bare and named == "length ratio"):
            rows = zip(lines, map(look.facts, items), zip(*counts, strict=True), strict=True)
            add(named, level, what, [line for line, (row, _, _), n in rows if is_odd(row, n)])
    # of each key the first value, and its others with it
    seen, more = (dict[Hashable, Hashable](), set[Hashable]())
    # lines of what occurs again, with the same label, tags or target, or with others
    again, other = (list[int](), list[int]())
    for line, (_, key, value) in zip(lines, map(look.facts, items), strict=True):
        if key not in seen:
            seen[key] = value
        elif seen[key] == value or (key, value) in more:
            again.append(line)
        else:
            other.append(line)
            more.add((key, value))
    add("duplicates", "note", "repeating an earlier one", again)
    several, level = look.labels or "targets", "warning" if look.labels else "note"
    what = f"with other {several} than an earlier one of the same {look.sides[0]}"
    add(f"several {several}", level, what, other)
    tally: dict[str, int] = {}
    if look.labels:
        labels = [look.facts(item)[2] for item in items]
        tally = count_labels(labels)
        without = [
            line for line, some in zip(lines, labels, strict=True) if some is None or some == ()
        ]
        add(f"no {look.labels}", "warning" if tally else "note", f"without {look.labels}", without)
        found += find_odd_labels(tally, look.labels, len(items))
    for named, level, what, pattern in PATTERNS:
        at = list(find_text(pattern, lines, map(look.facts, items), by_line))
        add(named, level, what, at, "line" if by_line else look.data.thing)
    if not found and not items:
        found = [Finding("empty side", "error", 1, [], f"there are no {look.data.thing}s")]
    lengths = {side: measure(each) for side, each in zip(sides, counts, strict=True)}
    tallies = {look.labels: tally} if look.labels else {}
    return Report(name, look.data.thing, len(items), lengths, by_level(found), tallies, kind, items)


def count_labels(labels: Iterable[Any]) -> dict[str, int]:
    """How often each label occurs, the most frequent first; an item may have several or none."""
    each = chain.from_iterable(some if isinstance(some, tuple) else (some,) for some in labels)
    counted = Counter(label for label in each if label is not None)
    return dict(sorted(counted.items(), key=lambda row: (-row[1], row[0])))


def measure(counts: Sequence[int]) -> dict[str, float]:
    """How many words a side has, and how they are spread over its items."""
    values = np.asarray(counts if len(counts) else [0], dtype=np.int64)
    median, p95 = np.percentile(values, [50, 95]).tolist()
    whole = {"words": int(values.sum()), "min": int(values.min()), "median": median}
    return whole | {"mean": float(values.mean()), "p95": p95, "max": int(values.max())}


def find_text(
    pattern: str, lines: Sequence[int], facts: Iterable[tuple[Texts, Any, Any]], by_line: bool
) -> Iterator[int]:
    """The lines where the pattern occurs."""
    search = re.compile(pattern).search
    for line, (row, _, _) in zip(lines, facts, strict=True):
        if any(
            search(text) for side in row for text in (side if isinstance(side, tuple) else (side,))
        ):
            inside = str(row[0]).split("\n") if by_line else []
            yield from (
                (line + n for n, text in enumerate(inside) if search(text)) if by_line else (line,)
            )


def find_odd_labels(tally: dict[str, int], what: str, count: int) -> Iterator[Finding]:
    """Labels that occur once, that differ only in case or white space, or that are all the same."""
    once = [name for name, occurs in tally.items() if occurs == 1]
    folded = Counter(" ".join(name.casefold().split()) for name in tally)
    twins = [name for name in tally if folded[" ".join(name.casefold().split())] > 1]
    rare, alike = (
        ", ".join(f"'{name[:30]}'" for name in names[:5]) + ", …" * (len(names) > 5)
        for names in (once, twins)
    )
    if once and len(tally) > len(once):
        sentence = f"{what} that occur only once: {rare}; check whether they are meant"
        yield Finding(f"rare {what}", "note", len(once), [], sentence)
    if twins:
        sentence = f"{what} that differ only in case: {alike}; write them alike"
        yield Finding(f"similar {what}", "warning", len(twins), [], sentence)
    if what == "labels":
        yield from find_useless_labels(tally, sum(tally.values()))


def find_useless_labels(tally: Mapping[str, int], count: int) -> Iterator[Finding]:
    """Labels from which nothing can be learned: one for nearly all of `count` texts, or another one for each."""
    name, most = max(tally.items(), key=lambda row: row[1], default=("", 0))
    if len(tally) == 1 and count > 1:
        sentence = f"every label is '{name}'; there is nothing to learn"
        yield Finding("one label", "warning", count, [], sentence)
    elif most > 0.99 * count:
        what = f"{most:,} of {count:,} labels are '{name[:30]}', more than 99%; check that the right column was chosen"
        yield Finding("one label", "warning", most, [], what)
    if 2 * len(tally) > count >= MIN_REPEATING_TEXTS:
        what = f"{len(tally):,} different labels for {count:,} texts; if they are pairs of texts, check them with --as pairs"
        sentence = f"{what}, and train with task: translation"
        yield Finding("as many labels", "warning", len(tally), [], sentence)
