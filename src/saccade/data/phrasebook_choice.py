"""The dice of the phrasebook: which word, which determiner, which adjectives, which date; nothing here is recursive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from . import phrasebook_words as words
from .dice import Dice
from .phrasebook_grammar import Adjectives, NounPhrase, Phrase, Tense, date, noun_phrase, word
from .phrasebook_words import KINDS, Adjective, Determiner, Noun, Verb

# V very, B before the French noun, O outer and I inner after it; longer patterns where there is room for them.
PATTERNS = (("",), ("B", "O", "I"), (*["OI"] * 6, "BO", "BI", "BB", "VB", "VO"), ("BOI", "BOI", "VOI", "BBO", "BBI"))
Frame = tuple[Verb, tuple[str, ...]]


class Style(NamedTuple):
    """What a noun phrase may be: how often plural, whether it must be definite, whether its owner follows."""

    many: float = 0.35
    definite: bool = False
    owned: bool = False


ANY, SINGLE, DEFINITE = Style(), Style(many=0), Style(many=0, definite=True)


@dataclass(frozen=True)
class Lexicon:
    """The open classes a sentence is drawn from; a smaller one gives a smaller language of the same grammar."""

    nouns: tuple[Noun, ...] = words.NOUNS
    verbs: tuple[Verb, ...] = words.VERBS
    sleepers: tuple[Verb, ...] = words.SLEEPERS
    adjectives: tuple[Adjective, ...] = words.ADJECTIVES
    determiners: tuple[Determiner, ...] = words.DETERMINERS
    numerals: tuple[Determiner, ...] = words.NUMERALS
    months: tuple[tuple[str, str], ...] = words.MONTHS
    years: tuple[str, ...] = words.YEARS


class Choice(Dice):
    """Draws words and phrases of fixed shape."""

    def __init__(self, seed: int, lexicon: Lexicon | None = None) -> None:
        super().__init__(seed)
        self.lexicon = lexicon or Lexicon()
        self.known = {entry.english: entry for entry in self.lexicon.adjectives}
        self.slots = {
            kind: {"B": self.entries(entry.before), "O": self.entries(entry.outer), "I": self.entries(entry.inner)}
            for kind, entry in KINDS.items()
        }
        self.tense = Tense.PAST
        self.used: list[str] = []  # nouns and verbs of the sentence so far
        self.nouns_of: dict[tuple[tuple[str, ...], str | None], list[Noun]] = {}
        self.frames_of: dict[tuple[tuple[str, ...], int], list[Frame]] = {}

    def entries(self, names: tuple[str, ...]) -> list[Adjective]:
        return [self.known[name] for name in names if name in self.known]

    def noun(self, kinds: tuple[str, ...], site: str | None = None) -> Noun | None:
        """A noun of these kinds that can be such a site and is not in the sentence yet, if there is one."""
        if (kinds, site) not in self.nouns_of:
            fits = [noun for noun in self.lexicon.nouns if noun.kind in kinds and (site is None or site in noun.sites)]
            self.nouns_of[kinds, site] = fits
        fresh = [noun for noun in self.nouns_of[kinds, site] if noun.english not in self.used]
        if not fresh:
            return None
        noun = self.pick(fresh)
        self.used.append(noun.english)
        return noun

    def frames(self, kinds: tuple[str, ...], role: int) -> list[Frame]:
        """Transitive verbs that have these kinds as subject (role 0) or object (role 1), with the kinds of the other role."""
        if (kinds, role) not in self.frames_of:
            frames = ((verb, frame) for verb in self.lexicon.verbs for frame in verb.frames)
            fits = [(verb, frame[1 - role]) for verb, frame in frames if all(kind in frame[role] for kind in kinds)]
            self.frames_of[kinds, role] = fits
        return self.frames_of[kinds, role]

    def verb(self, kinds: tuple[str, ...], role: int) -> Frame | None:
        """One of these frames with a verb that is not in the sentence yet, if there is one."""
        fresh = [frame for frame in self.frames(kinds, role) if frame[0].english[0] not in self.used]
        return self.pick(fresh) if fresh else None

    def determiners(self, noun: Noun, plural: bool, room: int, style: Style) -> list[Determiner]:
        """One determiner, or "the" and a numeral; what is said to belong to someone is not also mine."""
        if style.definite or self.chance(0.5):
            return [words.THE]
        if plural and self.lexicon.numerals and self.chance(0.5):
            numeral = self.pick(self.lexicon.numerals)
            return [words.THE, numeral] if room > 0 and self.chance(0.3) else [numeral]
        if KINDS[noun.kind].mine and not style.owned and self.chance(0.4):
            return [self.pick(words.POSSESSIVES)]
        fits = [entry for entry in self.lexicon.determiners if (entry.plural if plural else entry.singular)]
        common = [entry for entry in fits if entry is not words.EVERY] or fits
        return [self.pick(fits if self.chance(0.25) else common)] if fits else [words.THE]

    def adjectives(self, noun: Noun, room: int) -> Adjectives:
        """Up to `room` adjectives ("very" counts) that go with the noun, by one of the patterns."""
        slots = self.slots[noun.kind]
        chosen: dict[str, tuple[Adjective, ...]] = {"B": (), "O": (), "I": ()}
        very = False
        public = room >= 2 and noun.kind in words.PUBLIC and self.chance(0.5)
        for letter in "OI" if public else self.pick(PATTERNS[min(room, self.pick((0, 1, 1, 2, 2, 2, 3)))]):
            if letter == "V":
                very = True
                continue
            fits = slots[letter]
            if letter == "B" and chosen["B"]:  # of two before the noun "beautiful" is the first, in both languages
                follows = chosen["B"][0].sense == "beauty"
                fits = [entry for entry in fits if follows and entry.sense in ("size", "age")]
            if fits:
                chosen[letter] += (self.pick(fits),)
        first = (*chosen["B"], *chosen["O"], *chosen["I"])[:1]
        return Adjectives(chosen["B"], chosen["O"] + chosen["I"], very and bool(first) and first[0].gradable)

    def core(self, noun: Noun, room: int, style: Style = ANY) -> NounPhrase:
        """Determiner, adjectives and noun in at most `room` words."""
        plural = self.chance(style.many)
        determiners = self.determiners(noun, plural, room - 2, style)
        return noun_phrase(noun, plural, determiners, self.adjectives(noun, room - 1 - len(determiners)))

    def adverb(self, verb: Verb, room: int) -> tuple[str, str] | None:
        if room < 1 or self.chance(0.75):
            return None
        if verb.quick and self.chance(0.5):
            return words.QUICKLY
        return words.OFTEN if self.tense is Tense.PRESENT else words.FINALLY

    def year(self) -> Phrase:
        return date(None, year=self.pick(self.lexicon.years))

    def time(self, room: int) -> Phrase:
        """When it happened, in at most `room` words: yesterday, in 1992, in august 1992, on 14 july 1992."""
        month, year, day = self.pick(self.lexicon.months), self.pick(self.lexicon.years), self.pick(words.DAYS)
        ways = [word("yesterday", "NOUN", "hier"), date(month), self.year()]
        ways += [date(month, year=year), date(month, day), date(month, day, year), date(month, day, year)]
        return self.pick([phrase for phrase in ways if len(phrase) <= room][-4:])
