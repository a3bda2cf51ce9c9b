"""What a report on data is made of: findings with their first lines, lengths, counts of labels, and the search for odd text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import numpy as np

from ..errors import SaccadeError
from .lines import LineError

LEVELS = ("error", "warning", "note")
NAMED_LINES = 5
LONG_WORDS = 200
SHOWN_TALLIES = 20
Item = TypeVar("Item")

_TAGS = "a|abbr|b|big|blockquote|body|br|center|code|div|em|font|h[1-6]|head|hr|html|i|img|li|ol|p|pre|s|script|small|span|strong"
_HTML = rf"(?i)</?(?:{_TAGS}|style|sub|sup|table|tbody|td|th|tr|tt|u|ul)(?:\s[^<>]*)?/?>"
_LATIN, _OTHER = "a-zA-Z", "\u0370-\u03ff\u0400-\u04ff"  # Greek and Cyrillic have letters that look Latin

# kind, level, what is said, and the pattern looked for
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
    "JSON": "that are no JSON object of the form that is read",
    "alignment": "with a wrong alignment",
    "tags": "with wrong tags",
    "ids": "with a wrong id",
    "label": "with a wrong label",
    "NUL": "with NUL characters or broken Unicode",
    "long line": "that are far too long",
    "line counts": "that do not fit",
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

    def told(self, unit: str) -> str:
        """In one sentence; `unit` is what the words were counted in."""
        median, p95 = (f"{value:g}" if value < 1e5 else f"{value:,.0f}" for value in (self.median, self.p95))
        spread = f"min {self.min:,}, median {median}, mean {self.mean:,.1f}, 95% up to {p95}, max {self.max:,}"
        return f"{self.words:,} words ({spread} in a {unit})"

    def __str__(self) -> str:
        return self.told("line")


@dataclass(frozen=True, slots=True)
class Report:
    """How many there are of what, their lengths, how often each label or tag occurs, and findings, the worst first."""

    name: str
    what: str
    count: int
    lengths: dict[str, Lengths]
    findings: tuple[Finding, ...]
    tallies: dict[str, dict[str, int]] = field(default_factory=dict)
    unit: str = "line"

    @property
    def errors(self) -> int:
        """How many lines are errors."""
        return sum(finding.count for finding in self.findings if finding.level == "error")

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, ready for JSON."""
        found = [{**asdict(finding), "lines": list(finding.lines)} for finding in self.findings]
        lengths = {side: asdict(length) for side, length in self.lengths.items()}
        return {"name": self.name, f"{self.what}s": self.count, **lengths, **self.tallies, "findings": found}

    def lines(self) -> list[str]:
        """The report in plain sentences."""
        head = [f"{self.name}: {many(self.count, self.what)}"]
        head += [f"{side}: {length.told(self.unit)}" for side, length in self.lengths.items()]
        head += [f"{name}: {_tally(counts)}" for name, counts in self.tallies.items()]
        return head + ([str(finding) for finding in self.findings] or ["nothing odd was found"])


def ordered(findings: Iterable[Finding], count: int, what: str) -> tuple[Finding, ...]:
    """The worst first; nothing to look at is a finding too."""
    found = sorted(findings, key=lambda finding: LEVELS.index(finding.level))
    return tuple(found) if found or count else (Finding("empty side", "error", 1, (), f"there are no {what}s"),)


def tally(values: Iterable[str]) -> dict[str, int]:
    """How often each occurs, the most frequent first."""
    return dict(sorted(Counter(values).items(), key=lambda row: (-row[1], row[0])))


def scan(items: Iterable[Item | LineError]) -> tuple[list[Item], list[Finding]]:
    """All items that can be read, and the lines that cannot as findings, so that one run shows all problems at once."""
    good: list[Item] = []
    broken: dict[str, list[LineError]] = {}
    cut: list[Finding] = []
    try:
        for item in items:
            if isinstance(item, LineError):
                broken.setdefault(item.kind, []).append(item)
            else:
                good.append(item)
    except SaccadeError as error:
        if not good and not broken:
            raise
        cut.append(Finding("cut off", "error", 1, (), str(error)))
    return good, cut + [_broken_finding(kind, errors) for kind, errors in broken.items()]


def finding(kind: str, level: str, what: str, places: Sequence[int], thing: str = "pair") -> list[Finding]:
    """A finding if there are places, and none otherwise."""
    if not places:
        return []
    return [Finding(kind, level, len(places), tuple(places[:NAMED_LINES]), f"{many(len(places), thing)} {what}")]


def odd_text(rows: Sequence[tuple[int, tuple[str, ...]]], thing: str = "pair", whole: Sequence[str] = ()) -> Iterator[Finding]:
    """Findings of what should not be in a text: control characters, HTML, mojibake, lost and invisible characters.

    `whole` are long texts that the rows are the lines of: what is not in them need not be looked for in each line.
    """
    for kind, level, what, pattern in _PATTERNS:
        search = re.compile(pattern).search
        if not whole or any(map(search, whole)):
            yield from finding(kind, level, what, [place for place, texts in rows if any(map(search, texts))], thing)


def unsplit(texts: Sequence[str]) -> bool:
    """Whether lines are mostly one word and far longer than a word: text in a script without spaces."""
    return bool(texts) and sum(len(text) > 8 and len(text.split()) == 1 for text in texts) > 0.5 * len(texts)


def many(count: int, word: str) -> str:
    """1 pair, 2 pairs."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _tally(counts: dict[str, int]) -> str:
    total = sum(counts.values())
    shown = [f"{label} {count:,} ({count / total:.0%})" for label, count in list(counts.items())[:SHOWN_TALLIES]]
    more = f", and {len(counts) - SHOWN_TALLIES} more" if len(counts) > SHOWN_TALLIES else ""
    return f"{len(counts)} ({', '.join(shown)}{more})" if counts else "none"


def _broken_finding(kind: str, errors: list[LineError]) -> Finding:
    """One broken line speaks for itself; of several the count is told, and the first as an example."""
    lines = tuple(error.line for error in errors[:NAMED_LINES] if error.line)
    sentence = str(errors[0])
    if len(errors) > 1:
        sentence = f"{len(errors):,} lines {_BROKEN[kind]}, the first: {sentence}"
    return Finding(kind, "error", len(errors), lines, sentence)
