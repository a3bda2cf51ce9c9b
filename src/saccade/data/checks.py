"""What is odd about a file of pairs: counts, lengths, and findings with their first line numbers, for `saccade check DATA`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from .findings import LEVELS, LONG_WORDS, Finding, Lengths, Report, finding, odd_text, ordered, scan, unsplit
from .pairs import Pair
from .readers import each_pair

__all__ = ["LEVELS", "Finding", "Lengths", "Report", "check_pairs", "overlap", "scan_pairs"]

RATIO, RATIO_WORDS = 3, 5


def scan_pairs(where: str | Path | Sequence[str | Path]) -> tuple[list[Pair], list[Finding]]:
    """All pairs that can be read, and the lines that cannot as findings, so that one run shows all problems at once."""
    return scan(each_pair(where))


def check_pairs(pairs: Sequence[Pair], name: str, broken: Iterable[Finding] = ()) -> Report:
    """A report on these pairs; hand in what `scan_pairs` found broken, and it is in the report too."""
    counts = [(len(pair.source.split()), len(pair.target.split())) for pair in pairs]
    source, target = Lengths.of([count for count, _ in counts]), Lengths.of([count for _, count in counts])
    findings = [*broken, *_shape_findings(pairs, counts), *_repeat_findings(pairs)]
    rows = list(zip(_numbers(pairs), ((pair.source, pair.target) for pair in pairs), strict=True))
    findings += odd_text(rows)
    return Report(name, "pair", len(pairs), {"source": source, "target": target}, ordered(findings, len(pairs), "pair"))


def overlap(a: Sequence[Pair], b: Sequence[Pair], names: tuple[str, str] = ("train", "test")) -> list[Finding]:
    """Pairs and sources of `b` that are in `a` too (lines are those of `b`): a test on what was learned by heart says nothing."""
    both = {(pair.source.strip(), pair.target.strip()) for pair in a}
    sources = {source for source, _ in both}
    same = [(pair.source.strip(), pair.target.strip()) in both for pair in b]
    known = [pair.source.strip() in sources for pair in b]
    pair_places = [place for place, hit in zip(_numbers(b), same, strict=True) if hit]
    source_places = [place for place, hit, pair in zip(_numbers(b), known, same, strict=True) if hit and not pair]
    first, second = names
    found = finding("overlap", "warning", f"of {second} also in {first}; remove them from {first}", pair_places)
    return found + finding("source overlap", "note", f"of {second} with a source of {first} and another target", source_places)


def _numbers(pairs: Sequence[Pair]) -> list[int]:
    return [pair.line or number for number, pair in enumerate(pairs, 1)]


def _shape_findings(pairs: Sequence[Pair], counts: list[tuple[int, int]]) -> list[Finding]:
    places = _numbers(pairs)
    empty = [place for place, (s, t) in zip(places, counts, strict=True) if not s or not t]
    long = [place for place, (s, t) in zip(places, counts, strict=True) if max(s, t) > LONG_WORDS]
    same = [place for place, pair in zip(places, pairs, strict=True) if pair.source.strip() == pair.target.strip() != ""]
    found = finding("empty side", "error", "with an empty side; remove them", empty)
    found += finding("long line", "warning", f"of more than {LONG_WORDS} words; split or remove them", long)
    found += finding("source equals target", "warning", "with a target that only repeats the source", same)
    bare = [side for side in ("source", "target") if unsplit([getattr(pair, side) for pair in pairs])]
    if bare:
        what = f"no spaces between words on the {' and the '.join(bare)} side; use a bpe or characters vocabulary"
        return [*found, Finding("no spaces", "note", len(pairs), (), what)]
    ratio = [
        place
        for place, (s, t) in zip(places, counts, strict=True)
        if min(s, t) and max(s, t) > RATIO * min(s, t) and abs(s - t) > RATIO_WORDS
    ]
    what = f"with one side more than {RATIO} times as long as the other; look whether they are translations"
    return found + finding("length ratio", "warning", what, ratio)


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
    found = finding("duplicates", "note", "repeating an earlier one", repeated)
    return found + finding("several targets", "note", "with another target for an earlier source", several)
