"""The phrasebook: English sentences and their French from a small grammar, with gold alignments and part-of-speech tags.

English decides French: relative clauses and prepositional phrases belong to the nearest noun, "and" joins no clauses, verbs
or nouns inside a relative clause, two predicates share a subject only if no relative clause could claim the second, and
only the first clause may have two subjects.
"""

from collections.abc import Callable
from functools import partial

from ..pairs import Pair, parse_pharaoh
from . import draw_parts, languages
from . import grammar as say
from .choice import ANY, DEFINITE, SINGLE, Chooser, Frame, Style
from .grammar import AND, HERE, KINDS, WORDS, Head, Names, Noun, Phrase, Verb

MIN_WORDS, MAX_WORDS, MAX_EXAMPLES = 4, 40, 1_000_000
MAX_DEPTH = 3  # relative clauses inside each other
PEOPLE, ANIMALS, ANIMATE, BODIES, TOPICS, BUILDINGS, PLACES, SMALL_THINGS, THINGS = (
    say.GROUPS[name]
    for name in (
        "PEOPLE",
        "ANIMALS",
        "ANIMATE",
        "BODIES",
        "TOPICS",
        "BUILDINGS",
        "PLACES",
        "SMALL_THINGS",
        "THINGS",
    )
)


class Author(Chooser):
    """Draws sentences: each rule fills the room it is given, and passes what is left to the next."""

    def modified(self, noun: Noun, room: int, depth: int, style: Style = ANY) -> Phrase:
        """A noun phrase that fills its room with what may follow a noun: of ..., on ..., a place, a relative clause."""
        extra = room - 2
        ways: list[Callable[[Noun, Head, int, int], Phrase]] = []
        if extra >= 3 and self.chance(min(0.97, 0.3 + 0.08 * extra)):
            ways += [self.owner] * (2 if KINDS[noun.kind].owners else 0)
            ways += [self.topic] * (6 if noun.kind in ("pact", "document") else 0)
            ways += [self.whereabouts] * (
                0 if noun.kind in (*TOPICS, *BODIES, "pact", "opening", "town") else 2
            )
            ways += [self.relative] * (4 if depth < MAX_DEPTH else 0)
        if not ways:
            return self.core(noun, room, style)
        way = self.pick(ways)
        base = self.core(
            noun, max(2, room - self.between(3, extra)), style._replace(owned=way == self.owner)
        )
        return base + way(noun, base.head, room - len(base), depth)

    def nouns(self, kinds: Names, room: int, depth: int, two: bool = False) -> Phrase | None:
        """A noun phrase, perhaps `two` joined by "and"; only the second may carry more than adjectives."""
        noun = self.noun(kinds)
        if noun is None:
            return None
        family = next(
            (group for group in (PEOPLE, ANIMALS, BODIES) if noun.kind in group), (noun.kind,)
        )
        joined = two and room >= 5 and self.chance(0.25)
        other = self.noun(tuple(kind for kind in family if kind in kinds)) if joined else None
        if other is None or other is noun:
            return self.modified(noun, room, depth)
        first = self.core(noun, min(4, room - 3))
        return say.both(first, self.modified(other, room - 1 - len(first), depth))

    def after(
        self, name: str, noun: Noun | None, room: int, depth: int, style: Style = ANY
    ) -> Phrase:
        """A preposition and its noun phrase, or nothing where that does not fit."""
        start = say.preposition(name)
        if noun is None or room < len(start) + 2:
            return Phrase()
        return start + self.modified(noun, room - len(start), depth, style)

    def owner(self, noun: Noun, head: Head, room: int, depth: int) -> Phrase:
        return self.after("of", self.noun(KINDS[noun.kind].owners), room, depth)

    def topic(self, noun: Noun, head: Head, room: int, depth: int) -> Phrase:
        return self.after("on", self.noun(TOPICS), room, depth)

    def whereabouts(self, noun: Noun, head: Head, room: int, depth: int) -> Phrase:
        """Where something is: small things on furniture, buildings near each other, the rest anywhere."""
        if noun.kind in SMALL_THINGS and self.chance(0.4):
            name = self.pick(("in", "on", "under"))
            return self.after(name, self.noun(("furniture",), name), room, depth, SINGLE)
        if noun.kind in PLACES:
            name = self.pick(("near", "behind", "next to", "in front of"))
            return self.after(name, self.noun((*BUILDINGS, "yard", "tree"), name), room, depth)
        return self.location(room, depth)

    def location(self, room: int, depth: int) -> Phrase:
        """Where something is or happens; one is in one place at a time."""
        name = self.pick(
            ("in", "in", "near", "on", "under", "behind", "at", "next to", "in front of")
        )
        noun = self.noun((*PLACES, "thing", "opening"), name)
        many = (
            name in ("near", "behind", "next to", "in front of") and noun and noun.kind != "opening"
        )
        return self.after(
            name, noun, room, depth, DEFINITE if name == "at" else ANY if many else SINGLE
        )

    def relative(self, noun: Noun, head: Head, room: int, depth: int) -> Phrase:
        """Who ate ..., qui a mangé ...; or that the cat ate, que le chat a mangé, with the participle agreeing."""
        if room >= 4 and (frame := self.verb(head.kinds, 1)) and self.chance(0.45):
            verb, kinds = frame
            reserve = 3 if verb.receivers else 0
            doer = self.noun(kinds)
            if doer and room >= 4 + reserve:
                self.used.append(verb.english[0])
                subject = self.core(doer, min(4, room - 2 - reserve))
                phrase = say.word("that", "PRON", "que") + subject
                phrase += say.active(verb, self.past, subject.head, before=head)
                return phrase + self.rest(verb, room - len(phrase), depth + 1)
        clause = self.predicate(head, room - 1, depth + 1)
        who = say.word("who" if noun.kind in PEOPLE else "that", "PRON", "qui")
        return who + clause if clause else Phrase()

    def rest(self, verb: Verb, room: int, depth: int) -> Phrase:
        """What follows verb and object: to whom it is given, where it happens, here."""
        if verb.receivers:
            return self.after("to", self.noun(verb.receivers), room, depth)
        if verb.placed and room >= 3 and self.chance(0.6):
            if self.chance(0.12):
                return self.after("with", self.noun(PEOPLE), room, depth)
            return self.location(room, depth)
        return say.word(*HERE) if verb.placed and room >= 1 and self.chance(0.3) else Phrase()

    def predicate(self, subject: Head, room: int, depth: int) -> Phrase | None:
        """A verb and all that follows it, in at most `room` words; `depth` counts the relative clauses around it."""
        people = all(kind in PEOPLE for kind in subject.kinds)
        animate = all(kind in ANIMATE for kind in subject.kinds)
        ways: list[Callable[[Head, int, int], Phrase | None]] = []
        if room >= 3 and (frame := self.verb(subject.kinds, 0)):
            ways += [partial(self.transitive, frame)] * 6
        if room >= 2 and self.past and (frame := self.verb(subject.kinds, 1)):
            ways += [partial(self.undergoing, frame)] * (2 if animate else 8)
        ways += [self.property] * (0 if room < 2 or depth >= MAX_DEPTH else 2 if room <= 4 else 1)
        ways += [self.intransitive] * (0 if not animate else 3 if room <= 4 else 1)
        ways += [self.staying] * (
            room >= 4 and (animate or subject.kinds[0] in ("thing", "document"))
        )
        ways += [self.going] * (room >= 4 and animate)
        ways += [self.speaking] * (room >= 4 and people)
        return self.pick(ways)(subject, room, depth) if ways else None

    def transitive(self, frame: Frame, subject: Head, room: int, depth: int) -> Phrase | None:
        """A verb, its direct object, and the rest; before "to ..." the object is short, so that the verb stays near."""
        verb, kinds = frame
        reserve = 3 if verb.receivers else 0
        if room < 3 + reserve:
            return None
        self.used.append(verb.english[0])
        phrase = say.active(verb, self.past, subject, self.adverb(verb, room - 3 - reserve))
        left = room - len(phrase) - reserve
        if reserve:
            thing = self.nouns(kinds, min(left, 4), MAX_DEPTH)
        else:
            whole = left < 6 or not verb.placed or self.chance(0.6)
            share = left if whole else self.between(2, left)
            thing = self.nouns(kinds, share, depth, two=not depth)
        if thing is None:
            return None
        phrase += thing
        return phrase + self.rest(verb, room - len(phrase), depth)

    def undergoing(self, frame: Frame, subject: Head, room: int, depth: int) -> Phrase | None:
        """The passive; with who did it, unless the deed is enough."""
        verb, kinds = frame
        reserve = 3 if verb.receivers or not verb.quick else 0
        if room < 2 + reserve:
            return None
        self.used.append(verb.english[0])
        phrase = say.passive(verb, subject, self.adverb(verb, room - 2 - reserve))
        if not verb.receivers and (reserve or self.chance(0.6)):
            phrase += self.after("by", self.noun(kinds), room - len(phrase), depth)
        return phrase + self.rest(verb, room - len(phrase), depth)

    def intransitive(self, subject: Head, room: int, depth: int) -> Phrase | None:
        fits = [verb for verb in say.SLEEPERS if {*subject.kinds} <= {*verb.frames[0][0]}]
        if not fits:
            return None
        verb = self.pick(fits)
        phrase = say.active(verb, self.past, subject, self.adverb(verb, room - 1))
        return phrase + self.rest(verb, room - len(phrase), depth)

    def property(self, subject: Head, room: int, depth: int) -> Phrase | None:
        """Is old, est vieux: one adjective, or two joined by "and", of senses not said of the subject yet."""
        lists = [(*KINDS[kind].before, *KINDS[kind].outer) for kind in subject.kinds]
        names = [
            name
            for name in lists[0]
            if all(name in other for other in lists) and name in self.adjective
        ]
        fits = [
            self.adjective[name]
            for name in names
            if self.adjective[name].sense not in (*subject.said, "scope", "worth")
        ]
        fits = [entry for entry in fits if entry.english != "new"]
        if not fits:
            return None
        first = self.pick(fits)
        phrase = say.being(self.past, subject) + say.adjective(
            first, subject, first.gradable and room >= 3 and self.chance(0.3)
        )
        second = self.pick(fits)
        if second.sense != first.sense and room >= len(phrase) + 2 and self.chance(0.4):
            phrase += say.word(*AND) + say.adjective(second, subject)
        return phrase

    def staying(self, subject: Head, room: int, depth: int) -> Phrase | None:
        return say.being(self.past, subject) + (self.location(room - 1, depth) or say.word(*HERE))

    def going(self, subject: Head, room: int, depth: int) -> Phrase | None:
        noun = self.noun(PLACES, "to")
        return (
            say.active(say.GO, self.past, subject)
            + self.after("to", noun, room - 1, depth, DEFINITE)
            if noun
            else None
        )

    def speaking(self, subject: Head, room: int, depth: int) -> Phrase | None:
        name = self.pick(("with", "of"))
        noun = self.noun(PEOPLE if name == "with" else (*TOPICS, "pact", "adult"))
        return (
            say.active(say.SPEAK, self.past, subject) + self.after(name, noun, room - 1, depth)
            if noun
            else None
        )

    def clause(self, room: int, first: bool) -> Phrase | None:
        """Subject and predicate, perhaps with a second predicate."""
        draw = self.random()
        kinds = (
            ANIMATE
            if draw < 0.45
            else BODIES
            if draw < 0.55
            else ("pact", "policy")
            if draw < 0.75
            else THINGS
        )
        subject = self.nouns(
            kinds, self.between(2, min(9, max(2, room - 2))), MAX_DEPTH - 1, two=first
        )
        if subject is None:
            return None
        left = room - len(subject)
        again = left >= 8 and self.chance(0.25)
        predicate = self.predicate(
            subject.head, left // 2 if again else left, MAX_DEPTH if again else 0
        )
        if predicate is None or not again:
            return subject + predicate if predicate else None
        second = self.predicate(subject.head, left - len(predicate) - 1, 0)
        if second is None or second.english[0].tag == "AUX":
            return subject + predicate
        return subject + predicate + say.word(*AND) + second

    def sentence(self, room: int) -> Phrase | None:
        """A sentence of at most `room` words: clauses joined by "and", in the past perhaps with a date at either end."""
        self.used.clear()
        self.past = self.chance(0.62)
        time = self.time(room - 4) if self.past and room >= 5 and self.chance(0.4) else Phrase()
        left = room - len(time)
        several = left >= 12 and self.chance(0.7)
        phrase = self.clause(self.between(5, left - 6) if several else left, first=True)
        for _ in range(2):
            if phrase and several and left - len(phrase) >= 5:
                more = self.clause(left - len(phrase) - 1, first=False)
                phrase += say.word(*AND) + more if more else Phrase()
        if not phrase:
            return None
        if time and self.chance(0.25):
            return time + phrase
        # one is old in 1992 rather than on 14 july 1992
        if time and phrase.english[-1].tag == "ADJ":
            return phrase + self.year() if len(time) > 1 else phrase
        return phrase + time

    def draw(self) -> Phrase:
        """A sentence of a length drawn first: mostly short, fewer and fewer up to 23 words; over a quarter beyond, up to 40."""
        short = self.chance(0.73)
        few = MIN_WORDS + int(20 * min(self.random(), self.random())) if short else 0
        room = few or self.between(23, MAX_WORDS)
        while (phrase := self.sentence(room)) is None or len(phrase) < max(MIN_WORDS, room - 3):
            pass
        return phrase


# the two sentences that explain alignment everywhere, as the grammar builds them
LECTURE_SENTENCES = tuple(
    Pair(source, target, line, parse_pharaoh(sure)[0], parse_pharaoh(both)[0], tuple(tags.split()))
    for line, (source, target, sure, both, tags) in enumerate(WORDS["lecture sentences"], 1)
)


def phrasebook(
    train: int = 6000, dev: int = 300, test: int = 500, seed: int = 0, to: str = "fr"
) -> dict[str, list[Pair]]:
    """English pairs with alignments and tags, in three parts that share no English sentence, nor the lecture's; French has the large
    grammar, de, it, es, zh and hi a smaller one that all languages share."""
    draw: Callable[[int], Pair]
    if languages.check_language(to) == "fr":
        author, lecture = Author(seed), LECTURE_SENTENCES
        draw = lambda line: say.pair(author.draw(), line)
    else:
        other, lecture = languages.Author(seed), languages.lecture_sentences(to)
        draw = lambda line: languages.translate(other.draw(), to, line)
    known = [pair.source for pair in lecture]
    return draw_parts("phrasebook", MAX_EXAMPLES, (train, dev, test), draw, "source", known=known)
