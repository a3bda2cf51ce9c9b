"""What is odd about sentences with tags, texts with labels and documents; `check` reports on data of any kind."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import SaccadeError, did_you_mean
from .checks import check_pairs, scan_pairs
from .conllu import Sentence, each_sentence
from .corpora import corpus, documents, embedded, labeled, sentences
from .findings import LONG_WORDS, Finding, Lengths, Report, finding, odd_text, ordered, scan, tally, unsplit
from .hub import hub_documents, hub_labeled, hub_pairs, hub_sentences, in_hub
from .labeled import Labeled, each_labeled
from .lines import bare_suffix, open_text, paths_of
from .text import Document, each_document


def check_sentences(items: Sequence[Sentence], name: str, broken: Iterable[Finding] = ()) -> Report:
    """A report on sentences and their tags; what was found broken is in it too."""
    places = _numbers(items)
    long = [place for place, item in zip(places, items, strict=True) if len(item.words) > LONG_WORDS]
    found = [
        *broken,
        *finding("long line", "warning", f"of more than {LONG_WORDS} words; split or remove them", long, "sentence"),
    ]
    facts = [(item.words, item.tags) for item in items]
    found += _repeats(places, facts, "sentence", ("several tags", "with other tags for the words of an earlier one"))
    found += _partly(places, [item.tags is None for item in items], "sentence", "tags")
    tags = tally(tag for item in items for tag in item.tags or ())
    found += _rare(tags, "tag")
    found += odd_text([(place, item.words) for place, item in zip(places, items, strict=True)], "sentence")
    lengths = {"words": Lengths.of([len(item.words) for item in items])}
    return Report(name, "sentence", len(items), lengths, ordered(found, len(items), "sentence"), {"tags": tags}, "sentence")


def check_labeled(items: Sequence[Labeled], name: str, broken: Iterable[Finding] = ()) -> Report:
    """A report on texts and their labels; what was found broken is in it too."""
    places = _numbers(items)
    facts = [(item.text.strip(), item.label) for item in items]
    found = [*broken, *_repeats(places, facts, "text", ("several labels", "with another label for an earlier text"))]
    found += _partly(places, [item.label is None for item in items], "text", "label")
    labels = tally(item.label for item in items if item.label is not None)
    found += _rare(labels, "label")
    if len(labels) == 1 and len(items) > 1:
        found.append(
            Finding(
                "one label", "warning", len(items), (), f"every label is '{next(iter(labels))}'; there is nothing to tell apart"
            )
        )
    rows = [(place, (item.text,)) for place, item in zip(places, items, strict=True)]
    found += _no_spaces([item.text for item in items])
    found += odd_text(rows, "text")
    lengths = {"text": Lengths.of([len(item.text.split()) for item in items])}
    return Report(name, "text", len(items), lengths, ordered(found, len(items), "text"), {"labels": labels}, "text")


def check_documents(items: Sequence[Document], name: str, broken: Iterable[Finding] = (), by_line: bool = True) -> Report:
    """A report on documents; odd text is looked for line by line, unless a document is one line of its file or has none."""
    places = _numbers(items)
    found = [*broken, *_repeats(places, [(item.text.strip(), None) for item in items], "document", None)]
    found += _no_spaces([item.text for item in items])
    if by_line:
        numbered = ((place, enumerate(item.text.split("\n"))) for place, item in zip(places, items, strict=True))
        found += odd_text(
            [(place + row, (line,)) for place, lines in numbered for row, line in lines], "line", [item.text for item in items]
        )
    else:
        found += odd_text([(place, (item.text,)) for place, item in zip(places, items, strict=True)], "document")
    lengths = {"text": Lengths.of([len(item.text.split()) for item in items])}
    return Report(name, "document", len(items), lengths, ordered(found, len(items), "document"), {}, "document")


def check(where: Sequence[str], kind: str | None = None, separated: str = "file") -> Report:
    """A report on data of any kind: `pairs`, `tags`, `labels` or `text`, told by the name of the data unless it is said."""
    kind = kind or usual_kind(where)
    if kind not in KINDS:
        raise SaccadeError(f"data cannot be looked at as '{kind}'{did_you_mean(kind, KINDS)}")
    named = " + ".join(one if embedded(one) or in_hub(one) else Path(one).name for one in where)
    return KINDS[kind](list(where), named, separated)


def usual_kind(where: Sequence[str]) -> str:
    """What data is by its name: an embedded corpus by what it is, a file by its suffix, JSONL by its first line, else pairs."""
    found = embedded(where[0]) if len(where) == 1 else None
    if found is not None:
        return _EMBEDDED.get(found[0], "pairs")
    if len(where) != 1 or in_hub(where[0]) or "," in where[0]:
        return "pairs"
    path = Path(where[0])
    suffix = bare_suffix(path)
    return _of_json(path) if suffix == ".jsonl" else _BY_SUFFIX.get(suffix, "pairs")


_EMBEDDED = {"reviews": "labels"}
_BY_SUFFIX = {".conllu": "tags", ".csv": "labels", ".txt": "text"}
_BY_KEY = {"source": "pairs", "words": "tags", "label": "labels", "text": "text"}  # the first of these that is there


def _of_json(path: Path) -> str:
    try:
        first = json.loads(next(open_text(path)))
    except (SaccadeError, ValueError, RecursionError):
        return "pairs"
    return next((kind for key, kind in _BY_KEY.items() if isinstance(first, dict) and key in first), "pairs")


# --- each kind, from a name to its report -------------------------------------------------------------------------------------


def _pairs(where: list[str], name: str, separated: str) -> Report:
    if len(where) > 2:
        raise SaccadeError(f"{len(where)} files were given; give one .tsv or .jsonl file, or two text files")
    if len(where) == 2:
        pairs, broken = scan_pairs(where)
        return check_pairs(pairs, name, broken)
    return _report(check_pairs, where[0], name, corpus, scan_pairs, lambda one: scan(hub_pairs(one)))


def _tags(where: list[str], name: str, separated: str) -> Report:
    one = _single(where)
    return _report(
        check_sentences, one, name, sentences, lambda file: scan(each_sentence(file)), lambda hub: scan(hub_sentences(hub))
    )


def _labels(where: list[str], name: str, separated: str) -> Report:
    one = _single(where)
    return _report(check_labeled, one, name, labeled, lambda file: scan(each_labeled(file)), lambda hub: scan(hub_labeled(hub)))


def _text(where: list[str], name: str, separated: str) -> Report:
    inside = any(map(embedded, where)) or any(map(in_hub, where))
    one = _single(where) if inside else ",".join(where)
    look = partial(check_documents, by_line=not inside and not any(bare_suffix(Path(file)) == ".jsonl" for file in paths_of(one)))
    return _report(
        look, one, name, documents, lambda file: scan(each_document(file, separated)), lambda hub: scan(hub_documents(hub))
    )


KINDS: dict[str, Callable[[list[str], str, str], Report]] = {"pairs": _pairs, "tags": _tags, "labels": _labels, "text": _text}


def _report(
    check: Callable[..., Report],
    where: str,
    name: str,
    made: Callable[[str], Any],
    from_file: Callable[[str], tuple[Any, list[Finding]]],
    from_hub: Callable[[str], tuple[Any, list[Finding]]],
) -> Report:
    if embedded(where):
        return check(made(where), name)
    items, broken = (from_hub if in_hub(where) else from_file)(where)
    return check(items, name, broken)


def _single(where: list[str]) -> str:
    if len(where) != 1:
        raise SaccadeError(f"{len(where)} files were given; give one, or two text files --as pairs")
    return where[0]


# --- what is found ------------------------------------------------------------------------------------------------------------


def _numbers(items: Sequence[Any]) -> list[int]:
    return [item.line or number for number, item in enumerate(items, 1)]


def _repeats(
    places: Sequence[int], facts: Sequence[tuple[Hashable, object]], thing: str, differ: tuple[str, str] | None
) -> list[Finding]:
    """What occurs again, with the same label or tags, or with others."""
    seen: dict[Hashable, set[object]] = {}
    again, other = [], []
    for place, (text, label) in zip(places, facts, strict=True):
        labels = seen.setdefault(text, set())
        if label in labels:
            again.append(place)
        elif labels:
            other.append(place)
        labels.add(label)
    found = finding("duplicates", "note", "repeating an earlier one", again, thing)
    return found + (finding(differ[0], "warning", differ[1], other, thing) if differ else [])


def _partly(places: Sequence[int], missing: Sequence[bool], thing: str, what: str) -> list[Finding]:
    """Those without a label or tags, where others have them: nothing can be learned from them."""
    without = [place for place, none in zip(places, missing, strict=True) if none]
    return finding(f"no {what}", "warning" if len(without) < len(places) else "note", f"without {what}", without, thing)


def _rare(counts: dict[str, int], what: str) -> list[Finding]:
    """Labels that occur once, and those that differ from another only in case or white space."""
    once = [name for name, count in counts.items() if count == 1]
    found = []
    if once and len(counts) > len(once):
        named = ", ".join(f"'{name[:30]}'" for name in once[:5]) + (", …" if len(once) > 5 else "")
        found.append(
            Finding(f"rare {what}", "note", len(once), (), f"only once there is the {what} {named}; look whether it is meant")
        )
    folded = Counter(" ".join(name.casefold().split()) for name in counts)
    twins = [name for name in counts if folded[" ".join(name.casefold().split())] > 1]
    if twins:
        named = ", ".join(f"'{name[:30]}'" for name in twins[:6])
        found.append(
            Finding(f"similar {what}s", "warning", len(twins), (), f"{what}s that differ only in case: {named}; write them alike")
        )
    return found


def _no_spaces(texts: Sequence[str]) -> list[Finding]:
    what = "no spaces between words; use a bpe or characters vocabulary"
    return [Finding("no spaces", "note", len(texts), (), what)] if unsplit(texts) else []
