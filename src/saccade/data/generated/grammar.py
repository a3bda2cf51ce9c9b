"""The bilingual grammar of the phrasebook: its words, and rules that build an English and a French phrase at once.

A French word points at the English words it translates, so the alignment is right by construction; `spell` elides at the end.
Words are records of phrasebook.json. A *kind* groups nouns that take the same adjectives (`before` the French noun, or `inner`
and `outer` ones after it: european economic area, zone économique européenne), `owners` and verbs, so that sentences make sense
as well as agree. A noun has `sites`, the prepositions that go with it as a location. Two adjectives of one `sense` exclude each
other; "very" goes with `gradable` ones. A verb has its forms (English plural, third person, past, participle; French singular,
plural, participle) and `frames`, who does it to what; `quick` ones go with "quickly" and with a passive that names no agent,
`placed` ones happen somewhere, `receivers` are those to whom it is done. A determiner without a number does not go with it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from types import SimpleNamespace
from typing import Any, NamedTuple

from ..pairs import Pair
from . import load_words

Names = tuple[str, ...]
Noun = SimpleNamespace
Adjective = SimpleNamespace
Verb = SimpleNamespace
Determiner = SimpleNamespace
WORDS = load_words("phrasebook")
GROUPS: dict[str, Names] = {}


def members(value: Any) -> Any:
    """The value, with the names of groups in its lists replaced by their members."""
    if not isinstance(value, list):
        return value
    is_group: Callable[[Any], bool] = lambda item: isinstance(item, str) and item in GROUPS
    each = (GROUPS[item] if is_group(item) else (members(item),) for item in value)
    return tuple(chain.from_iterable(each))


def records(rows: Sequence[dict[str, Any]]) -> tuple[SimpleNamespace, ...]:
    return tuple(SimpleNamespace(**{key: members(row[key]) for key in row}) for row in rows)


for _name, _members in WORDS["groups"].items():
    GROUPS[_name] = members(_members)
KINDS = dict(zip(WORDS["kinds"], records(WORDS["kinds"].values()), strict=True))
NOUNS, ADJECTIVES, VERBS, SLEEPERS = (
    records(WORDS[name]) for name in ("nouns", "adjectives", "verbs", "sleepers")
)
THE, *DETERMINERS = records(WORDS["determiners"])
POSSESSIVES, NUMERALS, (GO, SPEAK) = (
    records(WORDS[name]) for name in ("possessives", "numerals", "others")
)
AND, HERE = ("and", "CCONJ", "et"), ("here", "ADV", "ici")


@dataclass(slots=True, eq=False)
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


class Head(NamedTuple):
    """What the rest of a clause agrees with: gender, number, the kinds of its nouns, and the senses already said of it."""

    feminine: bool = False
    plural: bool = False
    kinds: Names = ()
    said: Names = ()


@dataclass(slots=True, eq=False)
class Phrase:
    """The same thing in both languages; a noun phrase has a head. `+` puts one after the other in both, with the first's head."""

    english: tuple[Word, ...] = ()
    french: tuple[Mot, ...] = ()
    head: Head = Head()

    def __add__(self, other: "Phrase") -> "Phrase":
        return Phrase(self.english + other.english, self.french + other.french, self.head)

    def __len__(self) -> int:
        return len(self.english)


NOTHING = Phrase()


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


def noun_phrase(
    noun: Noun,
    plural: bool,
    determiners: Sequence[Determiner],
    before: Any = (),
    after: Any = (),
    very: bool = False,
) -> Phrase:
    """Determiners, adjectives (those French puts `before` the noun, and `after` it), noun: old english hats, vieux chapeaux anglais."""
    chosen = (*before, *after)
    head = Head(noun.feminine, plural, (noun.kind,), tuple(entry.sense for entry in chosen))
    phrase = Phrase(head=head)
    for determiner in determiners:
        french = determiner.plural if plural else determiner.singular[head.feminine]
        if determiner.english == "some" and before:
            french = "de"  # des chats, but de petits chats
        phrase += word(determiner.english, determiner.tag, french)
    name = word(
        noun.englishes if plural else noun.english, "NOUN", noun.frenches if plural else noun.french
    )
    # opinions are before size and age in English (a stable sort): a tired old man, un vieil homme fatigué
    order = sorted(chosen, key=lambda entry: entry.sense not in ("mood", "rank"))
    said = {entry.english: adjective(entry, head, very and entry is order[0]) for entry in chosen}
    for entry in before if not (head.feminine or head.plural) else ():
        # vieil ami, bel arbre, nouvel accord
        said[entry.english].french[-1].before_vowel = entry.before_vowel
    english = [*(said[entry.english].english for entry in order), name.english]
    ahead, behind = (
        [said[entry.english].french for entry in entries] for entries in (before, reversed(after))
    )
    return phrase + Phrase(sum(english, ()), sum([*ahead, name.french, *behind], ()))


def both(first: Phrase, second: Phrase) -> Phrase:
    """Two noun phrases joined by "and": plural, and masculine as soon as one is."""
    joined, one, two = first + word(*AND) + second, first.head, second.head
    joined.head = Head(
        one.feminine and two.feminine, True, one.kinds + two.kinds, one.said + two.said
    )
    return joined


def preposition(name: str) -> Phrase:
    """A preposition, with all links inside it possible: next to, à côté de."""
    english, french = WORDS["prepositions"][name]
    words = tuple(Word(*tagged) for tagged in english)
    return Phrase(
        words, tuple(Mot(text, tuple(words[i] for i in sure), words) for text, *sure in french)
    )


def active(
    verb: Verb, past: bool, subject: Head, adverb: Phrase = NOTHING, before: Head | None = None
) -> Phrase:
    """A verb; its participle agrees with the subject after être, and with a direct object that comes `before` avoir (que)."""
    source = Word(verb.english[2] if past else verb.english[0 if subject.plural else 1], "VERB")
    conjugated, rest = verb.french[subject.plural], Names()
    if past and verb.auxiliary == "être":
        conjugated, rest = ("sont" if subject.plural else "est"), (agree(verb.french[2], subject),)
    elif past:
        conjugated = "ont" if subject.plural else "a"
        rest = (agree(verb.french[2], before or Head()),)
    mots = (Mot(conjugated, (source,)), *adverb.french, *(Mot(text, (source,)) for text in rest))
    return Phrase((*adverb.english, source), mots)


def passive(verb: Verb, subject: Head, adverb: Phrase = NOTHING) -> Phrase:
    """The passive of the past: was finally signed, a finalement été signé; either verb is possibly linked to all of it."""
    was, done = Word("were" if subject.plural else "was", "AUX"), Word(verb.english[3], "VERB")
    has, been = Mot("ont" if subject.plural else "a", (was,), (done,)), Mot("été", (was,), (done,))
    mots = (has, *adverb.french, been, Mot(agree(verb.french[2], subject), (done,), (was,)))
    return Phrase((was, *adverb.english, done), mots)


def being(past: bool, subject: Head) -> Phrase:
    """The copula: is, est; was, était."""
    english = (("is", "are"), ("was", "were"))[past][subject.plural]
    return word(english, "AUX", (("est", "sont"), ("était", "étaient"))[past][subject.plural])


def date(
    month: tuple[str, str] | None, day: tuple[str, str] | None = None, year: str | None = None
) -> Phrase:
    """A date: on 14 july 1992, le 14 juillet 1992; in august 1992, en août 1992; in 1992, en 1992."""
    phrase = word("in", "ADP", "en")
    if day:
        phrase = word("on", "ADP", "le") + word(day[0], "NUM", day[1])
    phrase += word(month[0], "NOUN", month[1]) if month else Phrase()
    return phrase + word(year, "NUM", year) if year else phrase


def spell(mots: Sequence[Mot], tables: Any = WORDS) -> list[Mot]:
    """French (or what has such tables) as it is written: from the right, so that each word sees the final form of the next one."""
    done: list[Mot] = []
    for mot in reversed(mots):
        if done and (merged := tables["contractions"].get(f"{mot.text} {done[-1].text}")):
            article = done.pop()
            mot = Mot(merged, mot.sure, mot.possible + article.sure + article.possible)
        # a vowel or a mute h, but not huit and onze
        following = done[-1].text if done else "-"
        vowel = following[0] in "aeiouâàéèêîôûh" and following not in ("huit", "onze")
        if vowel and (form := mot.before_vowel or tables["before vowel"].get(mot.text)):
            mot = Mot(form, mot.sure, mot.possible)
        done.append(mot)
    return done[::-1]


def pair(phrase: Phrase, line: int = 0, tables: Any = WORDS) -> Pair:
    """The finished sentence pair, with sure links, possible links (the sure ones among them) and tags."""
    texts = [item.text for item in phrase.english]
    for at, following in enumerate(texts[1:]):
        # a vowel that is also heard as one
        if texts[at] == "a" and following[0] in "aeiou" and following != "european":
            texts[at] = "an"
    at_word = {id(item): at for at, item in enumerate(phrase.english)}
    mots = spell(phrase.french, tables)
    sure = {(at_word[id(item)], at) for at, mot in enumerate(mots) for item in mot.sure}
    more = {(at_word[id(item)], at) for at, mot in enumerate(mots) for item in mot.possible}
    possible = sure | more
    target, tags = " ".join(mot.text for mot in mots), tuple(item.tag for item in phrase.english)
    return Pair(" ".join(texts), target, line, tuple(sorted(sure)), tuple(sorted(possible)), tags)
