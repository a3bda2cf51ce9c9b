"""Entailment: two statements about one pet, and whether the second follows from the first.

A pet has a kind, a color, something that it does and somewhere that it is. A statement says something of some of these four: `poodle` is one kind,
`dog` any of three, `not dog` any of the others. So it is true of some pets and false of others, and the label is what logic says:
**entailment** where each pet that the premise is true of is one that the hypothesis is true of, **contradiction** where none is, and
**neutral** else. That poodles are dogs is said nowhere; it must be learned from the labels, or from the texts.
"""

from typing import NamedTuple

from ..labeled import Labeled
from . import Dice, draw_parts, load_words

MAX_EXAMPLES = 100_000
LABELS = ("entailment", "neutral", "contradiction")
WORDS = load_words("entailment")
SLOTS = ("kinds", "colors", "actions", "where")
# of which a pet has one each
VALUES = {slot: tuple(one for some in WORDS[slot].values() for one in some) for slot in SLOTS}
NEGATED = 0.2  # of the clauses
SAME = 0.85  # of a hypothesis' clauses are about something that the premise speaks of


class Clause(NamedTuple):
    """One of the four things, the word that is said of it, and whether it is denied."""

    slot: str
    word: str
    denied: bool

    @property
    def true_of(self) -> frozenset[str]:
        """The values with which it is true."""
        named = frozenset(WORDS[self.slot].get(self.word, [self.word]))
        return frozenset(VALUES[self.slot]) - named if self.denied else named

    @property
    def text(self) -> str:
        article = ("an " if self.word[0] in "aeiou" else "a ") if self.slot == "kinds" else ""
        return f"is {'not ' * self.denied}{article}{self.word}"


class Speaker(Dice):
    """Draws statements."""

    def clause(self, slot: str) -> Clause:
        general = self.chance(0.5)
        return Clause(
            slot, self.pick(tuple(WORDS[slot]) if general else VALUES[slot]), self.chance(NEGATED)
        )

    def statement(self, slots: list[str], count: int) -> list[Clause]:
        """A clause about each of `count` of the slots, in any order."""
        left, found = list(slots), list[Clause]()
        while len(found) < count and left:
            slot = self.pick(left)
            left.remove(slot)
            found.append(self.clause(slot))
        return found

    def pair(self, wanted: str, line: int) -> Labeled:
        """Two statements of the wanted relation."""
        while True:
            premise = self.statement(list(SLOTS), self.between(2, 4))
            said = [one.slot for one in premise]
            hypothesis = self.statement(
                said if self.chance(SAME) else list(SLOTS), self.between(1, 2)
            )
            if relation(premise, hypothesis) == wanted:
                owner = self.pick(WORDS["owners"])
                both = (f"the pet of {owner} {joined(one)}" for one in (premise, hypothesis))
                return Labeled(f" {WORDS['separator']} ".join(both), wanted, line)


def joined(clauses: list[Clause]) -> str:
    """is black , is not running and is a dog"""
    *first, last = [one.text for one in clauses]
    return f"{' , '.join(first)} and {last}" if first else last


def relation(premise: list[Clause], hypothesis: list[Clause]) -> str:
    """What logic says. A pet's four values are independent, and no clause is true of none: so each of them can be looked at by itself."""
    known = {one.slot: one.true_of for one in premise}
    pairs = [(known.get(one.slot, frozenset(VALUES[one.slot])), one.true_of) for one in hypothesis]
    if any(not given & said for given, said in pairs):
        return "contradiction"
    return "entailment" if all(given <= said for given, said in pairs) else "neutral"


def entailment(
    train: int = 6000, dev: int = 300, test: int = 600, seed: int = 0
) -> dict[str, list[Labeled]]:
    """Pairs of statements, joined by `|`, labeled entailment, neutral or contradiction, a third each, in three parts that share no text."""
    speaker = Speaker(seed)

    def draw(line: int) -> Labeled:
        return speaker.pair(LABELS[line % 3], line)

    return draw_parts("entailment", MAX_EXAMPLES, (train, dev, test), draw, "text")
