"""The phrasebook's choices: which word, which determiner, which adjectives, which date; nothing here is recursive."""

from typing import Any, NamedTuple

from . import Dice
from . import grammar as say
from .grammar import KINDS, NOTHING, THE, WORDS, Adjective, Determiner, Names, Noun, Phrase, Verb

# what is often both of some origin and of some domain: european economic
PUBLIC = say.GROUPS["PUBLIC"]
# V very, B before the French noun, O outer and I inner after it; longer patterns where there is room for them.
PATTERNS = (
    ("",),
    ("B", "O", "I"),
    (*["OI"] * 6, "BO", "BI", "BB", "VB", "VO"),
    ("BOI", "BOI", "VOI", "BBO", "BBI"),
)
Frame = tuple[Verb, Names]


class Style(NamedTuple):
    """What a noun phrase may be: how often plural, whether it must be definite, whether its owner follows."""

    many: float = 0.35
    definite: bool = False
    owned: bool = False


ANY, SINGLE, DEFINITE = Style(), Style(many=0), Style(many=0, definite=True)


class Chooser(Dice):
    """Draws words and phrases of fixed shape."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.adjective = {entry.english: entry for entry in say.ADJECTIVES}
        self.past = True
        self.used: list[str] = []  # nouns and verbs of the sentence so far

    def noun(self, kinds: Names, site: str | None = None) -> Noun | None:
        """A noun of these kinds that goes with such a site and is not in the sentence yet, if there is one."""
        fits = [noun for noun in say.NOUNS if noun.kind in kinds and site in (None, *noun.sites)]
        fresh = [noun for noun in fits if noun.english not in self.used]
        if not fresh:
            return None
        noun = self.pick(fresh)
        self.used.append(noun.english)
        return noun

    def verb(self, kinds: Names, role: int) -> Frame | None:
        """A fresh transitive verb with these kinds as subject (role 0) or object (role 1), and the kinds of the other role."""
        unused = (verb for verb in say.VERBS if verb.english[0] not in self.used)
        frames = ((verb, frame) for verb in unused for frame in verb.frames)
        fresh = [(verb, frame[1 - role]) for verb, frame in frames if {*kinds} <= {*frame[role]}]
        return self.pick(fresh) if fresh else None

    def determiners(self, noun: Noun, plural: bool, room: int, style: Style) -> list[Determiner]:
        """One determiner, or "the" and a numeral; what is said to belong to someone is not also mine."""
        if style.definite or self.chance(0.5):
            return [THE]
        if plural and say.NUMERALS and self.chance(0.5):
            numeral = self.pick(say.NUMERALS)
            return [THE, numeral] if room > 0 and self.chance(0.3) else [numeral]
        if KINDS[noun.kind].mine and not style.owned and self.chance(0.4):
            return [self.pick(say.POSSESSIVES)]
        fits = [entry for entry in say.DETERMINERS if (entry.plural if plural else entry.singular)]
        common = [entry for entry in fits if entry.english != "every"] or fits
        return [self.pick(fits if self.chance(0.25) else common)] if fits else [THE]

    def adjectives(self, noun: Noun, room: int) -> tuple[Any, Any, bool]:
        """Up to `room` adjectives ("very" counts) that go with the noun, by one of the patterns: before, after, very."""
        kind = KINDS[noun.kind]
        names = {"B": kind.before, "O": kind.outer, "I": kind.inner}
        chosen: dict[str, tuple[Adjective, ...]] = {"B": (), "O": (), "I": ()}
        public = room >= 2 and noun.kind in PUBLIC and self.chance(0.5)
        pattern = "OI"
        if not public:
            pattern = self.pick(PATTERNS[min(room, self.pick((0, 1, 1, 2, 2, 2, 3)))])
        for letter in pattern.removeprefix("V"):
            fits = [self.adjective[name] for name in names[letter] if name in self.adjective]
            # of two before the noun "beautiful" is the first, in both languages
            if letter == "B" and chosen["B"]:
                follows = chosen["B"][0].sense == "beauty"
                fits = [entry for entry in fits if follows and entry.sense in ("size", "age")]
            if fits:
                chosen[letter] += (self.pick(fits),)
        first = (*chosen["B"], *chosen["O"], *chosen["I"])[:1]
        very = "V" in pattern and bool(first) and first[0].gradable
        return chosen["B"], chosen["O"] + chosen["I"], very

    def core(self, noun: Noun, room: int, style: Style = ANY) -> Phrase:
        """Determiner, adjectives and noun in at most `room` words."""
        plural = self.chance(style.many)
        determiners = self.determiners(noun, plural, room - 2, style)
        adjectives = self.adjectives(noun, room - 1 - len(determiners))
        return say.noun_phrase(noun, plural, determiners, *adjectives)

    def adverb(self, verb: Verb, room: int) -> Phrase:
        if room < 1 or self.chance(0.75):
            return NOTHING
        name = "quickly" if verb.quick and self.chance(0.5) else "finally" if self.past else "often"
        return say.word(name, "ADV", WORDS["adverbs"][name])

    def time(self, room: int) -> Phrase:
        """When it happened, in at most `room` words: yesterday, in 1992, in august 1992, on 14 july 1992."""
        month = self.pick(WORDS["months"])
        year = self.pick(WORDS["years"])
        day = self.pick(WORDS["days"])
        ways = [say.word("yesterday", "NOUN", "hier"), say.date(month), self.year()]
        ways += [say.date(month, year=year), say.date(month, day)]
        ways += [say.date(month, day, year)] * 2
        return self.pick([phrase for phrase in ways if len(phrase) <= room][-4:])

    def year(self) -> Phrase:
        return say.date(None, year=self.pick(WORDS["years"]))
