"""What is odd about a file of pairs: counts, lengths, and findings with their first line numbers, for `saccade check DATA`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import SaccadeError
from .pairs import Pair
from .readers import LineError, each_pair

LEVELS = ("error", "warning", "note")
NAMED_LINES = 5
LONG_WORDS = 200
RATIO, RATIO_WORDS = 3, 5

_TAGS = "a|abbr|b|big|blockquote|body|br|center|code|div|em|font|h[1-6]|head|hr|html|i|img|li|ol|p|pre|s|script|small|span|strong"
_HTML = rf"(?i)</?(?:{_TAGS}|style|sub|sup|table|tbody|td|th|tr|tt|u|ul)(?:\s[^<>]*)?/?>"
_LATIN, _OTHER = "a-zA-Z", "\u0370-\u03ff\u0400-\u04ff"  # Greek and Cyrillic have letters that look Latin

# kind, level, what is said, and the pattern looked for on both sides
_PATTERNS: tuple[tuple[str, str, str, str], ...] = (
    ("control characters", "warning", "with control characters; remove them", r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"),
    ("replacement character", "warning", "with U+FFFD, where an earlier program lost a character", "\ufffd"),
    ("mojibake", "warning", "with signs of UTF-8 read as Latin-1, such as 'Ã©' for 'é'", r"[ÃÂ][\x80-\xbf]|â€|ï¿½|ðŸ"),
    ("html tag", "warning", "with HTML tags; strip them", _HTML),
    ("html entity", "warning", "with HTML entities such as &amp;; decode them", r"&(?:[A-Za-z]{2,8}|#\d{1,7}|#x[\dA-Fa-f]+);"),
    ("invisible characters", "note", "with zero-width or bidi marks", r"[\xad\u200b\u2060\ufeff\u202a-\u202e\u2066-\u2069]"),
    ("mixed scripts", "note", "with words of Latin and other letters mixed", f"[{_LATIN}][{_OTHER}]|[{_OTHER}][{_LATIN}]"),
)

_BROKEN = {
    "encoding": "not in UTF-8",
    "empty side": "with an empty side",
    "empty line": "that are empty",
    "columns": "with a wrong number of columns",
    "JSON": "that are no JSON object with source and target",
    "alignment": "with a wrong alignment",
    "tags": "with wrong tags",
    "NUL": "with NUL characters or broken Unicode",
    "long line": "that are far too long",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of oddity: how bad it is, how often it occurs, and the first lines where."""

    kind: str
    level: str
    count: int
    lines: tuple[int, ...]
    sentence: str

    def __str__(self) -> str:
        places = ", ".join(f"{line:,}" for line in self.lines)
        more = ", …" if self.count > len(self.lines) else ""
        where = f" (line{'s' if self.count > 1 else ''} {places}{more})" if places else ""
        return f"{self.level}: {self.sentence}{where}"


@dataclass(frozen=True, slots=True)
class Lengths:
    """How many words a side has, and how they are spread over its lines."""

    words: int
    min: int
    median: float
    mean: float
    p95: float
    max: int

    @classmethod
    def of(cls, counts: Sequence[int]) -> Lengths:
        values = np.asarray(counts if len(counts) else [0], dtype=np.int64)
        median, p95 = (float(value) for value in np.percentile(values, [50, 95]))
        return cls(int(values.sum()), int(values.min()), median, float(values.mean()), p95, int(values.max()))

    def __str__(self) -> str:
        spread = f"min {self.min}, median {self.median:g}, mean {self.mean:.1f}, 95% up to {self.p95:g}, max {self.max}"
        return f"{self.words:,} words ({spread} in a line)"


@dataclass(frozen=True, slots=True)
class Report:
    """Counts, lengths and findings of one set of pairs, the worst first."""

    name: str
    pairs: int
    source: Lengths
    target: Lengths
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> int:
        """How many lines are errors."""
        return sum(finding.count for finding in self.findings if finding.level == "error")

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, ready for JSON."""
        found = [{**asdict(finding), "lines": list(finding.lines)} for finding in self.findings]
        return {**asdict(self), "findings": found}

    def lines(self) -> list[str]:
        """The report in plain sentences."""
        head = [f"{self.name}: {_many(self.pairs, 'pair')}", f"source: {self.source}", f"target: {self.target}"]
        return head + ([str(finding) for finding in self.findings] or ["nothing odd was found"])


def scan_pairs(where: str | Path | Sequence[str | Path]) -> tuple[list[Pair], list[Finding]]:
    """All pairs that can be read, and the lines that cannot as findings, so that one run shows all problems at once."""
    pairs: list[Pair] = []
    broken: dict[str, list[LineError]] = {}
    cut: list[Finding] = []
    try:
        for item in each_pair(where):
            if isinstance(item, Pair):
                pairs.append(item)
            else:
                broken.setdefault(item.kind, []).append(item)
    except SaccadeError as error:
        if not pairs and not broken:
            raise
        cut.append(Finding("cut off", "error", 1, (), str(error)))
    return pairs, cut + [_broken_finding(kind, errors) for kind, errors in broken.items()]


def check_pairs(pairs: Sequence[Pair], name: str, broken: Iterable[Finding] = ()) -> Report:
    """A report on these pairs; hand in what `scan_pairs` found broken, and it is in the report too."""
    counts = [(len(pair.source.split()), len(pair.target.split())) for pair in pairs]
    source, target = Lengths.of([count for count, _ in counts]), Lengths.of([count for _, count in counts])
    findings = [*broken, *_shape_findings(pairs, counts), *_repeat_findings(pairs)]
    for kind, level, what, pattern in _PATTERNS:
        search = re.compile(pattern).search
        places = [place for place, pair in zip(_numbers(pairs), pairs, strict=True) if search(pair.source) or search(pair.target)]
        findings += _finding(kind, level, what, places)
    if not pairs and not findings:
        findings += [Finding("empty side", "error", 1, (), "there are no pairs")]
    return Report(name, len(pairs), source, target, tuple(sorted(findings, key=lambda finding: LEVELS.index(finding.level))))


def overlap(a: Sequence[Pair], b: Sequence[Pair], names: tuple[str, str] = ("train", "test")) -> list[Finding]:
    """Pairs and sources of `b` that are in `a` too (lines are those of `b`): a test on what was learned by heart says nothing."""
    both = {(pair.source.strip(), pair.target.strip()) for pair in a}
    sources = {source for source, _ in both}
    same = [(pair.source.strip(), pair.target.strip()) in both for pair in b]
    known = [pair.source.strip() in sources for pair in b]
    pair_places = [place for place, hit in zip(_numbers(b), same, strict=True) if hit]
    source_places = [place for place, hit, pair in zip(_numbers(b), known, same, strict=True) if hit and not pair]
    first, second = names
    found = _finding("overlap", "warning", f"of {second} also in {first}; remove them from {first}", pair_places)
    return found + _finding("source overlap", "note", f"of {second} with a source of {first} and another target", source_places)


def _numbers(pairs: Sequence[Pair]) -> list[int]:
    return [pair.line or number for number, pair in enumerate(pairs, 1)]


def _many(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _finding(kind: str, level: str, what: str, places: Sequence[int]) -> list[Finding]:
    """A finding if there are places, and none otherwise."""
    if not places:
        return []
    sentence = f"{_many(len(places), 'pair')} {what}"
    return [Finding(kind, level, len(places), tuple(places[:NAMED_LINES]), sentence)]


def _broken_finding(kind: str, errors: list[LineError]) -> Finding:
    """One broken line speaks for itself; of several the count is told, and the first as an example."""
    lines = tuple(error.line for error in errors[:NAMED_LINES] if error.line)
    sentence = str(errors[0])
    if len(errors) > 1:
        sentence = f"{len(errors):,} lines {_BROKEN[kind]}, the first: {sentence}"
    return Finding(kind, "error", len(errors), lines, sentence)


def _shape_findings(pairs: Sequence[Pair], counts: list[tuple[int, int]]) -> list[Finding]:
    places = _numbers(pairs)
    empty = [place for place, (s, t) in zip(places, counts, strict=True) if not s or not t]
    long = [place for place, (s, t) in zip(places, counts, strict=True) if max(s, t) > LONG_WORDS]
    same = [place for place, pair in zip(places, pairs, strict=True) if pair.source.strip() == pair.target.strip() != ""]
    found = _finding("empty side", "error", "with an empty side; remove them", empty)
    found += _finding("long line", "warning", f"of more than {LONG_WORDS} words; split or remove them", long)
    found += _finding("source equals target", "warning", "with a target that only repeats the source", same)
    unsplit = [side for side in ("source", "target") if _unsplit([getattr(pair, side) for pair in pairs])]
    if unsplit:
        what = f"no spaces between words on the {' and the '.join(unsplit)} side; use a bpe or characters vocabulary"
        return [*found, Finding("no spaces", "note", len(pairs), (), what)]
    ratio = [
        place
        for place, (s, t) in zip(places, counts, strict=True)
        if min(s, t) and max(s, t) > RATIO * min(s, t) and abs(s - t) > RATIO_WORDS
    ]
    what = f"with one side more than {RATIO} times as long as the other; look whether they are translations"
    return found + _finding("length ratio", "warning", what, ratio)


def _unsplit(texts: list[str]) -> bool:
    """Whether lines are mostly one word and far longer than a word: text in a script without spaces."""
    return bool(texts) and sum(len(text) > 8 and len(text.split()) == 1 for text in texts) > 0.5 * len(texts)


def _repeat_findings(pairs: Sequence[Pair]) -> list[Finding]:
    seen: dict[str, set[str]] = {}
    repeated, several = [], []
    for place, pair in zip(_numbers(pairs), pairs, strict=True):
        targets = seen.setdefault(pair.source.strip(), set())
        target = pair.target.strip()
        if target in targets:
            repeated.append(place)
        elif targets:
            several.append(place)
        targets.add(target)
    found = _finding("duplicates", "note", "repeating an earlier one", repeated)
    return found + _finding("several targets", "note", "with another target for an earlier source", several)
