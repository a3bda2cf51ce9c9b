"""Senses and antecedents: sentences in which one word says what another one means.

*bank* is a shore beside a river and an office in a street; *it* is the animal if it was too tired and the street if it was too wide;
*she* is Fatima and *he* is Omar. Each such word has the tag that a reader needs to understand it: its sense, or the very word it stands
for; all others have `–`. Which word decides is known: `refers` has, for an ambiguous word, the word by which its sense is known, and for
a pronoun its antecedent.
"""

from typing import NamedTuple

from ..conllu import Sentence
from . import Dice, draw_parts

MOST = 50_000
PLAIN = "–"
# a word → its senses, and what is near it in each
SENSES = {
    "bank": {"shore": ("river", "stream", "lake", "canal"), "money": ("street", "office", "market", "tower")},
    "bat": {"animal": ("cave", "night", "wing", "moon"), "club": ("ball", "game", "player", "team")},
    "spring": {"water": ("mountain", "valley", "well", "forest"), "season": ("winter", "summer", "autumn", "holiday")},
    "mouse": {"animal": ("cheese", "cellar", "cat", "hole"), "device": ("keyboard", "screen", "desk", "computer")},
    "bark": {"sound": ("dog", "puppy", "wolf", "fox"), "wood": ("tree", "oak", "pine", "trunk")},
}
ANIMATE = ("animal", "horse", "rabbit", "child", "goat", "visitor", "duck", "farmer")
THINGS = ("street", "bridge", "field", "road", "garden", "gate", "river", "path")
OF_ANIMATE, OF_THINGS = ("tired", "afraid", "hungry", "sleepy", "ill"), ("wide", "narrow", "long", "steep", "muddy")
SHE, HE = ("Fatima", "Rashonda", "Anna", "Mei", "Clara", "Priya"), ("Omar", "Jamal", "Peter", "Wei", "Paul", "Arjun")
WHO = ("I", "we", "they", "nobody", "everybody")
MEETS = ("told", "met", "called", "thanked", "visited")
FEELS = ("late", "happy", "early", "angry", "busy")


class Clause(NamedTuple):
    """Words, and which of them is understood by which other one, with the tag it then has: {word: (by, tag)}."""

    words: list[str]
    known: dict[int, tuple[int, str]]


class Speaker(Dice):
    """Draws clauses of three kinds, in several orders."""

    def sense(self) -> Clause:
        word = self.pick(tuple(SENSES))
        sense = self.pick(tuple(SENSES[word]))
        near = self.pick(SENSES[word][sense])
        pattern = self.pick(
            ("{who} arrived at the {word} after crossing the {near}", "near the {near} {who} saw the {word}",
             "{who} liked the {word} because of the {near}", "without the {near} {who} forgot the {word}")
        )  # fmt: skip
        words = pattern.format(who=self.pick(WHO), word=word, near=near).split()
        return Clause(words, {words.index(word): (words.index(near), sense)})

    def thing_or_animal(self) -> Clause:
        animate, thing, tired = self.pick(ANIMATE), self.pick(THINGS), self.chance(0.5)
        pattern = self.pick(
            ("the {animate} did not cross the {thing} because it was too {how}",
             "the {thing} was not crossed by the {animate} because it was too {how}",
             "because it was too {how} the {animate} avoided the {thing}")
        )  # fmt: skip
        words = pattern.format(animate=animate, thing=thing, how=self.pick(OF_ANIMATE if tired else OF_THINGS)).split()
        stands_for = animate if tired else thing
        return Clause(words, {words.index("it"): (words.index(stands_for), stands_for)})

    def she_or_he(self) -> Clause:
        names, woman = [self.pick(SHE), self.pick(HE)], self.chance(0.5)
        first, second = names if self.chance(0.5) else names[::-1]
        pattern = self.pick(
            ("{first} {meets} {second} because {who} was {feels}", "when {who} was {feels} {first} {meets} {second}")
        )
        feels, meets, who = self.pick(FEELS), self.pick(MEETS), "she" if woman else "he"
        words = pattern.format(first=first, second=second, meets=meets, feels=feels, who=who).split()
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
        return Sentence(
            tuple(words), tuple(tags.get(n, PLAIN) for n in every), line, None, tuple(refers.get(n, -1) for n in every)
        )


def senses(train: int = 4000, dev: int = 200, test: int = 500, seed: int = 0) -> dict[str, list[Sentence]]:
    """Sentences with words of two senses (bank, bat, spring …) and pronouns (it, she, he), tagged by what they mean there."""
    speaker = Speaker(seed)
    return draw_parts("senses", MOST, (train, dev, test), speaker.sentence, "words", "words")
