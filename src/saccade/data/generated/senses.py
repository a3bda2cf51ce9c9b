"""Senses and antecedents: sentences in which one word says what another one means.

*bank* is a shore beside a river and an office in a street; *it* is the animal if it was too tired and the street if it was too wide;
*she* is Fatima and *he* is Omar. Each such word has the tag that a reader needs to understand it: its sense, or the very word it stands
for; all others have `–`. Which word decides is known: `refers` has, for an ambiguous word, the word by which its sense is known, and for
a pronoun its antecedent.
"""

from typing import NamedTuple

from ..conllu import Sentence
from . import Dice, draw_parts, load_words

MAX_EXAMPLES = 50_000
PLAIN = "–"
WORDS = load_words("senses")  # senses: a word → its senses → what is near it in each


class Clause(NamedTuple):
    """Words, and which of them is understood by which other one, with the tag it then has: {word: (by, tag)}."""

    words: list[str]
    known: dict[int, tuple[int, str]]


class Speaker(Dice):
    """Draws clauses of three kinds, in several orders."""

    def clause(self, kind: str, **words: str) -> list[str]:
        pattern: str = self.pick(WORDS["patterns"][kind])
        return pattern.format(**words).split()

    def sense(self) -> Clause:
        word = self.pick(tuple(WORDS["senses"]))
        sense = self.pick(tuple(WORDS["senses"][word]))
        near = self.pick(WORDS["senses"][word][sense])
        words = self.clause("sense", who=self.pick(WORDS["who"]), word=word, near=near)
        return Clause(words, {words.index(word): (words.index(near), sense)})

    def thing_or_animal(self) -> Clause:
        animate = self.pick(WORDS["animate"])
        thing = self.pick(WORDS["things"])
        tired = self.chance(0.5)
        how = self.pick(WORDS["of_animate" if tired else "of_things"])
        words = self.clause("animate_or_thing", animate=animate, thing=thing, how=how)
        stands_for = animate if tired else thing
        return Clause(words, {words.index("it"): (words.index(stands_for), stands_for)})

    def she_or_he(self) -> Clause:
        names, woman = [self.pick(WORDS["she"]), self.pick(WORDS["he"])], self.chance(0.5)
        first, second = names if self.chance(0.5) else names[::-1]
        meets = self.pick(WORDS["meets"])
        feels = self.pick(WORDS["feels"])
        who = "she" if woman else "he"
        said = {"first": first, "second": second, "meets": meets, "feels": feels, "who": who}
        words = self.clause("she_or_he", **said)
        stands_for = names[not woman]
        return Clause(words, {words.index(who): (words.index(stands_for), stands_for)})

    def sentence(self, line: int) -> Sentence:
        """One clause or two."""
        kinds = [self.sense, self.thing_or_animal, self.she_or_he]
        clauses = [self.pick(kinds)()]
        if self.chance(0.5):
            clauses.append(self.pick(kinds)())
        words: list[str] = []
        tags, refers = dict[int, str](), dict[int, int]()
        for n, clause in enumerate(clauses):
            words += ["and"] if n else []
            for at, (by, tag) in clause.known.items():
                tags[len(words) + at], refers[len(words) + at] = tag, len(words) + by
            words += clause.words
        every = range(len(words))
        all_tags = tuple(tags.get(n, PLAIN) for n in every)
        antecedents = tuple(refers.get(n, -1) for n in every)
        return Sentence(tuple(words), all_tags, line, None, antecedents)


def senses(
    train: int = 4000, dev: int = 200, test: int = 500, seed: int = 0
) -> dict[str, list[Sentence]]:
    """Sentences with words of two senses (bank, bat, spring …) and pronouns (it, she, he), tagged by what they mean there."""
    speaker = Speaker(seed)
    return draw_parts("senses", MAX_EXAMPLES, (train, dev, test), speaker.sentence, "words")
