"""The bilingual grammar of the phrasebook: its words, and rules that build an English and a French phrase at once.

A French word points at the English words it translates, so phrases are composed by plain concatenation and the alignment
is right by construction; elision, contraction and forms before a vowel happen in one function, `spell`, at the very end.

A *kind* groups the nouns that take the same adjectives, owners and verbs, so that sentences make sense as well as agree.
Tags are universal parts of speech; months and "yesterday" are NOUN, possessives PRON, "several" ADJ, as in treebanks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..pairs import Pair
from . import load_words

Names = tuple[str, ...]


class Noun(NamedTuple):
    """A noun in both languages and numbers; `sites` are the prepositions that go with it as a location."""

    english: str
    englishes: str
    french: str
    frenches: str
    gender: str
    kind: str
    sites: Names = ()


class Kind(NamedTuple):
    """What nouns of one kind take: adjectives `before` the French noun, `inner` and `outer` ones after it, owners ("of ...").

    English "outer inner noun" is French "noun inner outer": european economic area, zone économique européenne.
    """

    before: Names = ()
    outer: Names = ()
    inner: Names = ()
    owners: Names = ()
    mine: bool = False


class Adjective(NamedTuple):
    """An adjective with its four French forms and the one before a vowel; two of one sense exclude each other."""

    sense: str
    english: str
    forms: Names
    before_vowel: str | None = None

    @property
    def gradable(self) -> bool:
        """Whether "very" goes with it."""
        return self.sense in ("size", "age", "beauty", "worth", "mood", "rank") and self.english != "new"


class Verb(NamedTuple):
    """A verb: English plural, third person, past, participle; French singular, plural, participle; who does it to what.

    `quick` ones go with "quickly" and with a passive that names no agent; `placed` ones happen somewhere; `receivers` are
    those to whom it is done.
    """

    english: Names
    french: Names
    frames: tuple[tuple[Names, Names], ...]
    auxiliary: str = "avoir"
    quick: bool = False
    placed: bool = True
    receivers: Names = ()


class Determiner(NamedTuple):
    """A determiner with its French forms (masculine, feminine, plural); a missing number is one it does not go with."""

    english: str
    tag: str
    singular: tuple[str, str] | None
    plural: str | None


WORDS = load_words("phrasebook")


def kinds_of(text: str) -> Names:
    """Names separated by spaces, those of groups replaced by their members."""
    groups = WORDS["groups"]
    return tuple(name for word in text.split() for name in (kinds_of(groups[word]) if word in groups else (word,)))


def load_verb(row: dict[str, Any]) -> Verb:
    frames = tuple((kinds_of(doers), kinds_of(things)) for doers, things in row["frames"])
    english, french, receivers = row["english"].split(), row["french"].split(), kinds_of(row.get("receivers", ""))
    return Verb(**{**row, "english": tuple(english), "french": tuple(french), "frames": frames, "receivers": receivers})


def load_kind(row: dict[str, Any]) -> Kind:
    before, outer, inner, owners = (kinds_of(row.get(name, "")) for name in ("before", "outer", "inner", "owners"))
    return Kind(before, outer, inner, owners, row.get("mine", False))


def load_noun(kind: str, row: str) -> Noun:
    english, englishes, french, frenches, gender = row.split()
    return Noun(english, englishes, french, frenches, gender, kind, WORDS["sites"].get(english, ()))


KINDS = {name: load_kind(row) for name, row in WORDS["kinds"].items()}
NOUNS = tuple(load_noun(kind, row) for kind, rows in WORDS["nouns"].items() for row in rows)
ADJECTIVES = tuple(Adjective(sense, name, tuple(forms.split()), *rest) for sense, name, forms, *rest in WORDS["adjectives"])
VERBS, SLEEPERS = (tuple(map(load_verb, WORDS[name])) for name in ("verbs", "sleepers"))
GO, SPEAK = load_verb(WORDS["go"]), load_verb(WORDS["speak"])
THE, *_others = (Determiner(*row) for row in WORDS["determiners"])
DETERMINERS = tuple(_others)
POSSESSIVES = tuple(Determiner(*row) for row in WORDS["possessives"])
NUMERALS = tuple(Determiner(english, "NUM", None, french) for english, french in WORDS["numerals"].items())
AND, HERE = ("and", "CCONJ", "et"), ("here", "ADV", "ici")


# --- phrases ------------------------------------------------------------------------------------------------------------


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
    """The same thing in both languages; `+` puts one after the other in both."""

    english: tuple[Word, ...] = ()
    french: tuple[Mot, ...] = ()

    def __add__(self, other: Phrase) -> Phrase:
        return Phrase(self.english + other.english, self.french + other.french)

    def __len__(self) -> int:
        return len(self.english)


class Head(NamedTuple):
    """What the rest of a clause agrees with: gender, number, the kinds of its nouns, and the senses already said of it."""

    feminine: bool
    plural: bool
    kinds: Names
    said: Names = ()


class NounPhrase(NamedTuple):
    """A phrase and its head."""

    phrase: Phrase
    head: Head


class Adjectives(NamedTuple):
    """The adjectives of a noun: those French puts before it, those it puts after (here in English order), and "very"."""

    before: tuple[Adjective, ...] = ()
    after: tuple[Adjective, ...] = ()
    very: bool = False


def word(english: str, tag: str, french: str) -> Phrase:
    """One English word that is one French word."""
    source = Word(english, tag)
    return Phrase((source,), (Mot(french, (source,)),))


def agree(masculine: str, head: Head) -> str:
    """A participle with its agreement: signé, signée, signés, signées."""
    return masculine + ("e" if head.feminine else "") + ("s" if head.plural else "")


def adjective(entry: Adjective, head: Head, very: bool = False) -> Phrase:
    """An adjective that agrees with its head, after "very" if asked."""
    phrase = word(entry.english, "ADJ", entry.forms[head.feminine + 2 * head.plural])
    return word("very", "ADV", "très") + phrase if very else phrase


def noun_phrase(noun: Noun, plural: bool, determiners: Sequence[Determiner], adjectives: Adjectives | None = None) -> NounPhrase:
    """Determiners, adjectives, noun: the famous old english hats, les vieux chapeaux anglais célèbres."""
    before, after, very = adjectives or Adjectives()
    chosen = before + after
    head = Head(noun.gender == "f", plural, (noun.kind,), tuple(entry.sense for entry in chosen))
    phrase = Phrase()
    for determiner in determiners:
        french = determiner.plural if plural else determiner.singular and determiner.singular[head.feminine]
        if french is None:
            raise ValueError(f"'{determiner.english}' does not go with {'plural' if plural else 'singular'} nouns")
        if determiner.english == "some" and before:
            french = "de"  # des chats, but de petits chats
        phrase += word(determiner.english, determiner.tag, french)
    name = word(noun.englishes if plural else noun.english, "NOUN", noun.frenches if plural else noun.french)
    if not chosen:
        return NounPhrase(phrase + name, head)
    # opinions are before size and age in English (a stable sort): a tired old man, un vieil homme fatigué
    order = sorted(chosen, key=lambda entry: entry.sense not in ("mood", "rank"))
    said = {entry.english: adjective(entry, head, very and entry is order[0]) for entry in chosen}
    for entry in before if not (head.feminine or head.plural) else ():
        said[entry.english].french[-1].before_vowel = entry.before_vowel  # vieil ami, bel arbre, nouvel accord
    english = [*(said[entry.english].english for entry in order), name.english]
    ahead, behind = ([said[entry.english].french for entry in entries] for entries in (before, reversed(after)))
    return NounPhrase(phrase + Phrase(sum(english, ()), sum([*ahead, name.french, *behind], ())), head)


def both(first: NounPhrase, second: NounPhrase) -> NounPhrase:
    """Two noun phrases joined by "and": plural, and masculine as soon as one is."""
    feminine = first.head.feminine and second.head.feminine
    head = Head(feminine, True, first.head.kinds + second.head.kinds, first.head.said + second.head.said)
    return NounPhrase(first.phrase + word(*AND) + second.phrase, head)


def preposition(name: str) -> Phrase:
    """A preposition, with all links inside it possible: next to, à côté de."""
    english, french, sure = WORDS["prepositions"][name]
    words = tuple(Word(*tagged.split("/")) for tagged in english.split())
    links = [tuple(map(int, link.split("-"))) for link in sure.split()]
    mots = (Mot(text, tuple(words[i] for i, target in links if target == j), words) for j, text in enumerate(french.split()))
    return Phrase(words, tuple(mots))


def active(verb: Verb, past: bool, subject: Head, adverb: tuple[str, str] | None = None, before: Head | None = None) -> Phrase:
    """A verb with its subject's number; the French adverb follows what is conjugated: quickly opened, a rapidement ouvert.

    The participle agrees with the subject after être, and with a direct object that comes `before` avoir (que).
    """
    source = Word(verb.english[2] if past else verb.english[0 if subject.plural else 1], "VERB")
    conjugated, rest = verb.french[subject.plural], Names()
    if past and verb.auxiliary == "être":
        conjugated, rest = ("sont" if subject.plural else "est"), (agree(verb.french[2], subject),)
    elif past:
        conjugated, rest = ("ont" if subject.plural else "a"), (agree(verb.french[2], before) if before else verb.french[2],)
    manner = word(adverb[0], "ADV", adverb[1]) if adverb else Phrase()
    mots = (Mot(conjugated, (source,)), *manner.french, *(Mot(text, (source,)) for text in rest))
    return Phrase((*manner.english, source), mots)


def passive(verb: Verb, subject: Head, adverb: tuple[str, str] | None = None) -> Phrase:
    """The passive of the past: was finally signed, a finalement été signé; either verb is possibly linked to all of it."""
    was, done = Word("were" if subject.plural else "was", "AUX"), Word(verb.english[3], "VERB")
    manner = word(adverb[0], "ADV", adverb[1]) if adverb else Phrase()
    has, been = Mot("ont" if subject.plural else "a", (was,), (done,)), Mot("été", (was,), (done,))
    mots = (has, *manner.french, been, Mot(agree(verb.french[2], subject), (done,), (was,)))
    return Phrase((was, *manner.english, done), mots)


def being(past: bool, subject: Head) -> Phrase:
    """The copula: is, est; was, était."""
    english = (("is", "are"), ("was", "were"))[past][subject.plural]
    return word(english, "AUX", (("est", "sont"), ("était", "étaient"))[past][subject.plural])


def date(month: tuple[str, str] | None, day: tuple[str, str] | None = None, year: str | None = None) -> Phrase:
    """A date: on 14 july 1992, le 14 juillet 1992; in august 1992, en août 1992; in 1992, en 1992."""
    phrase = word("on", "ADP", "le") + word(day[0], "NUM", day[1]) if day else word("in", "ADP", "en")
    phrase += word(month[0], "NOUN", month[1]) if month else Phrase()
    return phrase + word(year, "NUM", year) if year else phrase


# --- sentences ----------------------------------------------------------------------------------------------------------

BEFORE_VOWEL = {"le": "l'", "la": "l'", "de": "d'", "que": "qu'", "ce": "cet", "ma": "mon"}
CONTRACTIONS = {
    **{("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"},
    **{("de", "des"): "de", ("de", "de"): "de"},  # de and the indefinite plural: près de maisons
}


def spell(mots: Sequence[Mot]) -> list[Mot]:
    """French as it is written: from the right, so that each word sees the final form of the next one."""
    done: list[Mot] = []
    for mot in reversed(mots):
        if done and (merged := CONTRACTIONS.get((mot.text, done[-1].text))):
            article = done.pop()
            mot = Mot(merged, mot.sure, mot.possible + article.sure + article.possible)
        # a vowel or a mute h, but not huit and onze
        vowel = bool(done) and done[-1].text[0] in "aeiouâàéèêîôûh" and done[-1].text not in ("huit", "onze")
        if vowel and (form := mot.before_vowel or BEFORE_VOWEL.get(mot.text)):
            mot = Mot(form, mot.sure, mot.possible)
        done.append(mot)
    return done[::-1]


def pair(phrase: Phrase, line: int = 0) -> Pair:
    """The finished sentence pair, with sure links, possible links (the sure ones among them) and tags."""
    texts = [item.text for item in phrase.english]
    for at, following in enumerate(texts[1:]):
        if texts[at] == "a" and following[0] in "aeiou" and following != "european":  # a vowel that is also heard as one
            texts[at] = "an"
    at_word = {id(item): at for at, item in enumerate(phrase.english)}
    mots = spell(phrase.french)
    sure = {(at_word[id(item)], at) for at, mot in enumerate(mots) for item in mot.sure}
    possible = sure | {(at_word[id(item)], at) for at, mot in enumerate(mots) for item in mot.possible}
    target, tags = " ".join(mot.text for mot in mots), tuple(item.tag for item in phrase.english)
    return Pair(" ".join(texts), target, line, tuple(sorted(sure)), tuple(sorted(possible)), tags)
