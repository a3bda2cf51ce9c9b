"""The bilingual grammar of the phrasebook: each rule builds an English and a French phrase at once.

A French word points at the English words it translates, so phrases are composed by plain concatenation and the alignment
is right by construction; elision, contraction and forms before a vowel happen in one place, `spell`, at the very end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from .pairs import Pair
from .phrasebook_words import SOME, Adjective, Determiner, Noun, Preposition, Verb


class Tense(Enum):
    """Present; or the past, which is passé composé for what happened and imparfait for what was."""

    PRESENT = 0
    PAST = 1


@dataclass(slots=True, eq=False)  # not frozen: it is made often, and a frozen one takes twice as long
class Word:
    """An English word with its tag; two equal words of a sentence stay two words, hence identity and not equality."""

    text: str
    tag: str


@dataclass(slots=True, eq=False)
class Mot:
    """A French word, the English words it surely and possibly translates, and its form before a vowel where it has one."""

    text: str
    sure: tuple[Word, ...]
    possible: tuple[Word, ...] = ()
    before_vowel: str | None = None


@dataclass(slots=True, eq=False)
class Phrase:
    """The same thing said in both languages; `+` says one after the other in both."""

    english: tuple[Word, ...] = ()
    french: tuple[Mot, ...] = ()

    def __add__(self, other: Phrase) -> Phrase:
        return Phrase(self.english + other.english, self.french + other.french)

    def __len__(self) -> int:
        return len(self.english)


@dataclass(frozen=True, slots=True)
class Head:
    """What the rest of a clause agrees with: gender, number, the kinds of its nouns, and the senses already said of it."""

    feminine: bool
    plural: bool
    kinds: tuple[str, ...]
    said: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NounPhrase:
    """A phrase and its head."""

    phrase: Phrase
    head: Head


def word(english: str, tag: str, french: str) -> Phrase:
    """One English word that is one French word."""
    source = Word(english, tag)
    return Phrase((source,), (Mot(french, (source,)),))


AND = ("and", "CCONJ", "et")


def agree(masculine: str, head: Head) -> str:
    """A participle with its agreement: signé, signée, signés, signées."""
    return masculine + ("e" if head.feminine else "") + ("s" if head.plural else "")


def adjective(entry: Adjective, head: Head, very: bool = False) -> Phrase:
    """An adjective that agrees with its head, after "very" if asked."""
    phrase = word(entry.english, "ADJ", entry.forms[head.feminine + 2 * head.plural])
    return word("very", "ADV", "très") + phrase if very else phrase


def _before_noun(phrase: Phrase, entry: Adjective, head: Head) -> Phrase:
    """Gives an adjective before its noun the form it has there before a vowel: vieil ami, bel arbre, nouvel accord."""
    if entry.before_vowel is None or head.feminine or head.plural:
        return phrase
    *rest, last = phrase.french
    return Phrase(phrase.english, (*rest, Mot(last.text, last.sure, before_vowel=entry.before_vowel)))


@dataclass(frozen=True, slots=True)
class Adjectives:
    """The adjectives of a noun: those French puts before it, those it puts after (here in English order), and "very"."""

    before: tuple[Adjective, ...] = ()
    after: tuple[Adjective, ...] = ()
    very: bool = False


def noun_phrase(noun: Noun, plural: bool, determiners: Sequence[Determiner], adjectives: Adjectives | None = None) -> NounPhrase:
    """Determiners, adjectives, noun: the famous old english hats, les vieux chapeaux anglais célèbres."""
    adjectives = adjectives or Adjectives()
    chosen = adjectives.before + adjectives.after
    head = Head(noun.gender == "f", plural, (noun.kind,), tuple(entry.sense for entry in chosen))
    phrase = Phrase()
    for determiner in determiners:
        french = determiner.plural if plural else determiner.singular and determiner.singular[head.feminine]
        if french is None:
            raise ValueError(f"'{determiner.english}' does not go with {'plural' if plural else 'singular'} nouns")
        if determiner is SOME and adjectives.before:
            french = "de"  # des chats, but de petits chats
        phrase += word(determiner.english, determiner.tag, french)
    name = word(noun.englishes if plural else noun.english, "NOUN", noun.frenches if plural else noun.french)
    if not chosen:
        return NounPhrase(phrase + name, head)
    order = sorted(chosen, key=lambda entry: not entry.opinion)  # a stable sort: opinions first, the rest as they came
    said = {entry.english: adjective(entry, head, adjectives.very and entry is order[0]) for entry in chosen}
    english = [*(said[entry.english].english for entry in order), name.english]
    before = (_before_noun(said[entry.english], entry, head).french for entry in adjectives.before)
    mots = [*before, name.french, *(said[entry.english].french for entry in reversed(adjectives.after))]
    return NounPhrase(phrase + Phrase(sum(english, ()), sum(mots, ())), head)


def both(first: NounPhrase, second: NounPhrase) -> NounPhrase:
    """Two noun phrases joined by "and": plural, and masculine as soon as one is."""
    feminine = first.head.feminine and second.head.feminine
    head = Head(feminine, True, first.head.kinds + second.head.kinds, first.head.said + second.head.said)
    return NounPhrase(first.phrase + word(*AND) + second.phrase, head)


def preposition(entry: Preposition) -> Phrase:
    """A preposition, with all links inside it possible: next to, à côté de."""
    words = tuple(Word(text, tag) for text, tag in entry.english)
    mots = tuple(
        Mot(text, tuple(words[i] for i, target in entry.sure if target == j), words) for j, text in enumerate(entry.french)
    )
    return Phrase(words, mots)


def active(verb: Verb, tense: Tense, subject: Head, adverb: tuple[str, str] | None = None, before: Head | None = None) -> Phrase:
    """A verb with its subject's number; the French adverb follows what is conjugated: quickly opened, a rapidement ouvert.

    The participle agrees with the subject after être, and with a direct object that stands `before` avoir (que).
    """
    source = Word(verb.english[2] if tense is Tense.PAST else verb.english[0 if subject.plural else 1], "VERB")
    singular, plural, participle = verb.french
    rest: tuple[str, ...] = ()
    if tense is Tense.PRESENT:
        conjugated = plural if subject.plural else singular
    elif verb.auxiliary == "être":
        conjugated, rest = ("sont" if subject.plural else "est"), (agree(participle, subject),)
    else:
        conjugated, rest = ("ont" if subject.plural else "a"), (agree(participle, before) if before else participle,)
    manner = word(adverb[0], "ADV", adverb[1]) if adverb else Phrase()
    mots = (Mot(conjugated, (source,)), *manner.french, *(Mot(text, (source,)) for text in rest))
    return Phrase((*manner.english, source), mots)


def passive(verb: Verb, subject: Head, adverb: tuple[str, str] | None = None) -> Phrase:
    """The passive of the past: was finally signed, a finalement été signé; either verb is possibly linked to all of it."""
    was, done = Word("were" if subject.plural else "was", "AUX"), Word(verb.english[3], "VERB")
    manner = word(adverb[0], "ADV", adverb[1]) if adverb else Phrase()
    mots = (
        Mot("ont" if subject.plural else "a", (was,), (done,)),
        *manner.french,
        Mot("été", (was,), (done,)),
        Mot(agree(verb.french[2], subject), (done,), (was,)),
    )
    return Phrase((was, *manner.english, done), mots)


def being(tense: Tense, subject: Head) -> Phrase:
    """The copula: is, est; was, était."""
    english = (("is", "are"), ("was", "were"))[tense.value][subject.plural]
    return word(english, "AUX", (("est", "sont"), ("était", "étaient"))[tense.value][subject.plural])


def date(month: tuple[str, str] | None, day: tuple[str, str] | None = None, year: str | None = None) -> Phrase:
    """A date: on 14 july 1992, le 14 juillet 1992; in august 1992, en août 1992; in 1992, en 1992."""
    phrase = word("on", "ADP", "le") + word(day[0], "NUM", day[1]) if day else word("in", "ADP", "en")
    phrase += word(month[0], "NOUN", month[1]) if month else Phrase()
    return phrase + word(year, "NUM", year) if year else phrase


BEFORE_VOWEL = {"le": "l'", "la": "l'", "de": "d'", "que": "qu'", "ce": "cet", "ma": "mon"}
CONTRACTIONS = {
    ("de", "le"): "du",
    ("de", "les"): "des",
    ("à", "le"): "au",
    ("à", "les"): "aux",
    ("de", "des"): "de",
    ("de", "de"): "de",  # de and the indefinite plural: près de maisons
}


def french_vowel(text: str) -> bool:
    """Whether le becomes l' before this word: a vowel or a mute h, but not huit and onze."""
    return text[0] in "aeiouâàéèêîôûh" and text not in ("huit", "onze")


def english_vowel(text: str) -> bool:
    """Whether a becomes an before this word: a vowel that is also heard as one."""
    return text[0] in "aeiou" and text != "european"


def spell(mots: Sequence[Mot]) -> list[Mot]:
    """French as it is written: from the right, so that each word sees the final form of the next one."""
    done: list[Mot] = []
    for mot in reversed(mots):
        if done and (merged := CONTRACTIONS.get((mot.text, done[-1].text))):
            article = done.pop()
            mot = Mot(merged, mot.sure, mot.possible + article.sure + article.possible)
        if done and french_vowel(done[-1].text) and (form := mot.before_vowel or BEFORE_VOWEL.get(mot.text)):
            mot = Mot(form, mot.sure, mot.possible)
        done.append(mot)
    return done[::-1]


def pair(phrase: Phrase, line: int = 0) -> Pair:
    """The finished sentence pair, with sure links, possible links (the sure ones among them) and tags."""
    texts = [item.text for item in phrase.english]
    for at, following in enumerate(texts[1:]):
        if texts[at] == "a" and english_vowel(following):
            texts[at] = "an"
    place = {id(item): at for at, item in enumerate(phrase.english)}
    mots = spell(phrase.french)
    sure = {(place[id(item)], at) for at, mot in enumerate(mots) for item in mot.sure}
    possible = sure | {(place[id(item)], at) for at, mot in enumerate(mots) for item in mot.possible}
    return Pair(
        source=" ".join(texts),
        target=" ".join(mot.text for mot in mots),
        line=line,
        alignment=tuple(sorted(sure)),
        possible=tuple(sorted(possible)),
        tags=tuple(item.tag for item in phrase.english),
    )
