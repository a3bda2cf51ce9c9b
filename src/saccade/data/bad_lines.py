"""Bad lines of a corpus: counted by kind and left out, or the first one raised, and what makes a pair lopsided."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from ..errors import SaccadeError
from .lines import LineError

# pairs up to this length are never lopsided: "Yes." may well be "Ja, das ist richtig."
MAX_SHORT_TOKENS = 10
MAX_RATIO = 9.0  # between the sides of a pair, as in Moses' clean-corpus-n
Item = TypeVar("Item")

# how lines of each kind are reported
PHRASES = {
    "empty line": "empty", "empty side": "with an empty side", "columns": "with wrong columns", "encoding": "not UTF-8",
    "NUL": "with damaged characters", "JSON": "not valid JSON", "CSV": "not valid CSV", "label": "with a wrong label", "ids": "with wrong ids",
    "tags": "with wrong tags", "heads": "with wrong heads", "alignment": "with a wrong alignment", "long line": "of too many bytes",
    "long sentence": "of too many lines", "image": "without their image", "header": "taken for the names of the columns",
}  # fmt: skip


class Skipped:
    """What was left out of each set: how many there were, and of each kind how many were bad and the line of the first."""

    def __init__(self) -> None:
        self.read: dict[str, tuple[int, str]] = {}  # how many of what, good and bad
        self.kinds: dict[str, dict[str, tuple[int, int | str]]] = {}

    def add(self, where: str, kind: str, line: int | str, count: int = 1) -> None:
        """One more bad example, or `count` of a kind, the first at this line or under this name."""
        kinds = self.kinds.setdefault(where, {})
        before, first = kinds.get(kind, (0, line))
        kinds[kind] = before + count, first

    def good(
        self,
        where: str,
        items: Iterable[Item | LineError],
        thing: str,
        weigh: Callable[[Item], int] = lambda _: 1,
    ) -> list[Item]:
        """The items without the bad lines; more bad than good ones are an error, and so is what concerns a file as a whole."""
        found, bad, first = list[Item](), 0, None
        for item in items:
            if not isinstance(item, LineError):
                found.append(item)
                continue
            if item.line == 0:
                raise item
            bad, first = bad + 1, first or item
            self.add(where, item.kind, item.line or 0)
        good = sum(map(weigh, found))
        self.read[where] = good + bad, thing
        if first is not None and bad > good:
            what = f"{bad:,} of {many(good + bad, thing)} in {where} cannot be used, more than half"
            raise SaccadeError(f"{what}; check the format (the first is {first})", code="bad-lines")
        return found

    def notes(self) -> list[str]:
        """One sentence for each set that something was left out of."""
        found = []
        for where, kinds in self.kinds.items():
            at = {
                kind: line if isinstance(line, str) else f"line {line:,}"
                for kind, (_, line) in kinds.items()
            }
            first = {kind: f"{'first: ' * (n > 1)}{at[kind]}" for kind, (n, _) in kinds.items()}
            each = [
                f"{n:,} {PHRASES.get(kind, kind)} ({first[kind]})" for kind, (n, _) in kinds.items()
            ]
            count, thing = self.read.get(where, (0, "example"))
            total = sum(n for n, _ in kinds.values())
            of = f"{total:,} of {many(count, thing)}" if count else many(total, thing)
            found.append(f"skipped {of} in {where}: {', '.join(each)}")
        return found

    def merge(self, other: "Skipped") -> None:
        """Adds what another one has counted."""
        for where, kinds in other.kinds.items():
            for kind, (count, line) in kinds.items():
                self.add(where, kind, line, count)


def lopsided(sizes: Sequence[int], texts: Sequence[Any], ratio: float) -> bool:
    """Whether one side is more than `ratio` times as long as the other, in tokens and in characters: a script without spaces has
    few words, and any script has about as many characters as it has pieces or syllables."""
    if not ratio or max(sizes) <= MAX_SHORT_TOKENS:
        return False
    characters = [len(text.strip()) for text in texts]
    return all(max(lengths) > ratio * max(min(lengths), 1) for lengths in (sizes, characters))


def many(count: int, word: str) -> str:
    """1 pair, 2 pairs."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"
