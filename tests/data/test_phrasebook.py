"""The phrasebook: its French by hand, its links and tags, its lengths and parts, and that English decides French."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import pytest
from tests.support import raises

from saccade.data.generated import grammar as say
from saccade.data.generated.choice import Chooser
from saccade.data.generated.grammar import Phrase
from saccade.data.generated.phrasebook import (
    LECTURE_SENTENCES,
    MAX_DEPTH,
    MAX_WORDS,
    MIN_WORDS,
    Author,
    phrasebook,
)
from saccade.data.pairs import Pair

PAST, PRESENT = True, False
QUICKLY, OFTEN, FINALLY = (
    say.word(name, "ADV", say.WORDS["adverbs"][name]) for name in ("quickly", "often", "finally")
)
VERBS = {verb.english[0]: verb for verb in (*say.VERBS, *say.SLEEPERS, say.GO, say.SPEAK)}
ADJECTIVES = {entry.english: entry for entry in say.ADJECTIVES}
NOUNS = {noun.english: (noun, False) for noun in say.NOUNS} | {
    noun.englishes: (noun, True) for noun in say.NOUNS
}
DETERMINERS = {
    entry.english: entry for entry in (say.THE, *say.DETERMINERS, *say.POSSESSIVES, *say.NUMERALS)
}


@pytest.fixture(scope="module")
def book() -> dict[str, list[Pair]]:
    return phrasebook(train=3000, dev=200, test=400)


def np(text: str) -> Phrase:
    """A noun phrase from its English: "a very old european tree"."""
    *front, last = text.split()
    noun, plural = NOUNS[last]
    entries = [ADJECTIVES[item] for item in front if item in ADJECTIVES]
    before = tuple(entry for entry in entries if entry.english in say.KINDS[noun.kind].before)
    after = tuple(entry for entry in entries if entry not in before)
    determiners = [
        DETERMINERS["a" if item == "an" else item]
        for item in front
        if item not in ADJECTIVES and item != "very"
    ]
    return say.noun_phrase(noun, plural, determiners, before, after, "very" in front)


def prep(name: str) -> Phrase:
    return say.preposition(name)


def active(
    subject: str, verb: str, tense: bool, *rest: Phrase, adverb: Phrase = say.NOTHING
) -> Phrase:
    phrase = np(subject) + say.active(VERBS[verb], tense, np(subject).head, adverb)
    return sum(rest, phrase)


def passive(subject: Phrase, verb: str, *rest: Phrase, adverb: Phrase = say.NOTHING) -> Phrase:
    return sum(rest, subject + say.passive(VERBS[verb], subject.head, adverb))


def texts(phrase: Phrase) -> tuple[str, str]:
    made = say.pair(phrase)
    return made.source, made.target


# ---- French by hand

NOUN_PHRASES = [
    ("the man", "l' homme"),
    ("an old man", "un vieil homme"),
    ("the old men", "les vieux hommes"),
    ("the old women", "les vieilles femmes"),
    ("this tree", "cet arbre"),
    ("this beautiful tree", "ce bel arbre"),
    ("a beautiful old tree", "un beau vieil arbre"),
    ("this beautiful island", "cette belle île"),
    ("my island", "mon île"),
    ("my beautiful island", "ma belle île"),
    ("the new hotel", "le nouvel hôtel"),
    ("the new hotels", "les nouveaux hôtels"),
    ("some cats", "des chats"),
    ("some small white cats", "de petits chats blancs"),
    ("some very old horses", "de très vieux chevaux"),
    ("a very tired woman", "une femme très fatiguée"),
    ("the famous old english church", "la vieille église anglaise célèbre"),
    ("the european economic area", "la zone économique européenne"),
    ("new international social laws", "nouvelles lois sociales internationales"),
    ("several international commercial treaties", "plusieurs traités commerciaux internationaux"),
    ("a european political crisis", "une crise politique européenne"),
    ("the twelve gray mice", "les douze souris grises"),
    ("our white italian houses", "nos maisons italiennes blanches"),
    ("every rich french queen", "chaque reine française riche"),
    ("these good cakes", "ces bons gâteaux"),
]


@pytest.mark.parametrize(("english", "french"), NOUN_PHRASES)
def test_noun_phrases_agree_and_stand_in_french_order(english: str, french: str) -> None:
    assert texts(np(english)) == (english, french)


SENTENCES = [
    (
        active("the small girls", "eat", PRESENT, np("the apples")),
        "les petites filles mangent les pommes",
    ),
    (active("the girls", "eat", PAST, np("an orange")), "les filles ont mangé une orange"),
    (active("the cows", "arrive", PAST), "les vaches sont arrivées"),
    (active("a queen", "go", PAST, prep("to"), np("the park")), "une reine est allée au parc"),
    (
        active("the boys", "go", PRESENT, prep("to"), np("the school")),
        "les garçons vont à l' école",
    ),
    (
        active("the girl", "open", PAST, np("the door"), adverb=QUICKLY),
        "la fille a rapidement ouvert la porte",
    ),
    (
        active("the cat", "see", PRESENT, np("the mouse"), adverb=OFTEN),
        "le chat voit souvent la souris",
    ),
    (
        active("the teacher", "give", PAST, np("the books"), prep("to"), np("the children")),
        "le professeur a donné les livres aux enfants",
    ),
    (
        active("the minister", "speak", PAST, prep("of"), np("the crisis")),
        "le ministre a parlé de la crise",
    ),
    (
        active("the ministers", "speak", PRESENT, prep("of"), np("the treaty")),
        "les ministres parlent du traité",
    ),
    (
        active("a dog", "sleep", PAST, prep("near"), np("the hotel")),
        "un chien a dormi près de l' hôtel",
    ),
    (
        active("a dog", "sleep", PAST, prep("near"), np("some houses")),
        "un chien a dormi près de maisons",
    ),
    (
        active("a dog", "sleep", PAST, prep("near"), np("some trees")),
        "un chien a dormi près d' arbres",
    ),
    (
        active("a dog", "sleep", PAST, prep("near"), np("some big trees")),
        "un chien a dormi près de grands arbres",
    ),
    (
        active("a dog", "sleep", PAST, prep("near"), np("eleven trees")),
        "un chien a dormi près de onze arbres",
    ),
    (
        active("a dog", "sleep", PAST, prep("next to"), np("the garden")),
        "un chien a dormi à côté du jardin",
    ),
    (
        active("a dog", "sleep", PAST, prep("in front of"), np("the door")),
        "un chien a dormi devant la porte",
    ),
    (
        passive(np("the letters"), "write", prep("by"), np("a friend")),
        "les lettres ont été écrites par un ami",
    ),
    (
        passive(np("the law"), "adopt", say.date(None, year="1989"), adverb=FINALLY),
        "la loi a finalement été adoptée en 1989",
    ),
    (
        passive(np("the bridge"), "build", say.date(("july", "juillet"), ("14", "14"), "1992")),
        "le pont a été construit le 14 juillet 1992",
    ),
    (
        passive(np("the agreements"), "sign", say.date(("may", "mai"), ("1", "1er"))),
        "les accords ont été signés le 1er mai",
    ),
    (
        passive(say.both(np("the queen"), np("the girls")), "see"),
        "la reine et les filles ont été vues",
    ),
    (passive(say.both(np("the queen"), np("a man")), "see"), "la reine et un homme ont été vus"),
]


@pytest.mark.parametrize(("phrase", "french"), SENTENCES, ids=[french for _, french in SENTENCES])
def test_sentences_by_hand(phrase: Phrase, french: str) -> None:
    assert say.pair(phrase).target == french


@pytest.mark.parametrize(
    ("subject", "tense", "name", "english", "french"),
    [
        ("the tree", PRESENT, "beautiful", "the tree is beautiful", "l' arbre est beau"),
        ("the trees", PRESENT, "beautiful", "the trees are beautiful", "les arbres sont beaux"),
        ("the island", PAST, "old", "the island was old", "l' île était vieille"),
        ("the cars", PAST, "white", "the cars were white", "les voitures étaient blanches"),
    ],
)
def test_copula(subject: str, tense: bool, name: str, english: str, french: str) -> None:
    noun = np(subject)
    phrase = noun + say.being(tense, noun.head) + say.adjective(ADJECTIVES[name], noun.head)
    assert texts(phrase) == (english, french)


@pytest.mark.parametrize(
    ("thing", "doer", "french"),
    [
        ("the mouse", "the cat", "la souris que le chat a mangée"),
        ("the apples", "the men", "les pommes que les hommes ont mangées"),
        ("the cakes", "a friend", "les gâteaux qu' un ami a mangés"),
        ("the cake", "eight women", "le gâteau que huit femmes ont mangé"),
    ],
)
def test_participle_agrees_with_an_object_that_precedes_it(
    thing: str, doer: str, french: str
) -> None:
    subject = np(doer)
    clause = subject + say.active(VERBS["eat"], PAST, subject.head, before=np(thing).head)
    assert say.pair(np(thing) + say.word("that", "PRON", "que") + clause).target == french


# ---- links and tags by hand


def test_lecture_sentences_exactly() -> None:
    cat, agreement = LECTURE_SENTENCES
    assert (cat.source, cat.target) == (
        "the black cat ate the mouse",
        "le chat noir a mangé la souris",
    )
    assert cat.alignment == ((0, 0), (1, 2), (2, 1), (3, 3), (3, 4), (4, 5), (5, 6)) == cat.possible
    assert cat.tags == ("DET", "ADJ", "NOUN", "VERB", "DET", "NOUN")
    assert (
        agreement.source == "the agreement on the european economic area was signed in august 1992"
    )
    assert (
        agreement.target == "l' accord sur la zone économique européenne a été signé en août 1992"
    )
    links = [
        (0, 0),
        (1, 1),
        (2, 2),
        (3, 3),
        (4, 6),
        (5, 5),
        (6, 4),
        (7, 7),
        (7, 8),
        (8, 9),
        (9, 10),
        (10, 11),
        (11, 12),
    ]
    assert agreement.alignment == tuple(links)
    assert set(agreement.possible or ()) - set(links) == {(7, 9), (8, 7), (8, 8)}
    assert " ".join(agreement.tags or ()) == "DET NOUN ADP DET ADJ ADJ NOUN AUX VERB ADP NOUN NUM"
    assert [pair.line for pair in LECTURE_SENTENCES] == [1, 2]


@pytest.mark.parametrize(
    ("phrase", "sure", "only_possible"),
    [
        (prep("of") + np("the park"), {(0, 0), (2, 1)}, {(1, 0)}),  # of the park, du parc
        (prep("near") + np("the parks"), {(0, 0), (0, 1), (2, 2)}, {(1, 1)}),  # près des parcs
        (prep("near") + np("some parks"), {(0, 0), (0, 1), (2, 2)}, {(1, 1)}),  # près de parcs
        # près de l' hôtel
        (prep("near") + np("the hotel"), {(0, 0), (0, 1), (1, 2), (2, 3)}, set()),
        # devant une voiture
        (prep("in front of") + np("a car"), {(1, 0), (3, 1), (4, 2)}, {(0, 0), (2, 0)}),
        (
            prep("next to") + np("the car"),  # à côté de la voiture
            {(0, 0), (0, 1), (1, 2), (2, 3), (3, 4)},
            {(0, 2), (1, 0), (1, 1)},
        ),
        (
            active("a boy", "open", PAST, adverb=QUICKLY),
            {(0, 0), (1, 1), (2, 3), (3, 2), (3, 4)},
            set(),
        ),
        (say.date(("may", "mai"), ("8", "8"), "1957"), {(0, 0), (1, 1), (2, 2), (3, 3)}, set()),
    ],
)
def test_links_by_hand(
    phrase: Phrase, sure: set[tuple[int, int]], only_possible: set[tuple[int, int]]
) -> None:
    made = say.pair(phrase)
    assert set(made.alignment or ()) == sure
    assert set(made.possible or ()) == sure | only_possible


# ---- the corpus


def test_parts_have_their_sizes_lines_and_no_sentence_twice(book: dict[str, list[Pair]]) -> None:
    assert {name: len(part) for name, part in book.items()} == {
        "train": 3000,
        "dev": 200,
        "test": 400,
    }
    for part in book.values():
        assert [pair.line for pair in part] == list(range(1, len(part) + 1))
    sources = [pair.source for part in book.values() for pair in part]
    assert len(set(sources)) == len(sources)
    assert not {pair.source for pair in LECTURE_SENTENCES} & set(sources)


def test_the_same_seed_gives_the_same_book_everywhere() -> None:
    first = phrasebook(train=200, dev=10, test=50)
    assert first == phrasebook(train=200, dev=10, test=50)
    text = "\n".join(
        f"{pair.source}\t{pair.target}\t{pair.possible}" for part in first.values() for pair in part
    )
    assert (
        hashlib.sha256(text.encode()).hexdigest()
        == "5ed91fc2c00c047ee02bc2a5461ddbf2e83815261ae2d90a1992b9fbbb9590e9"
    )
    assert phrasebook(train=0, dev=0, test=5, seed=1)["test"] != first["test"][:5]


def test_the_test_part_does_not_depend_on_the_other_sizes(book: dict[str, list[Pair]]) -> None:
    assert phrasebook(train=0, dev=0, test=400)["test"] == book["test"]


def test_lengths_are_spread(book: dict[str, list[Pair]]) -> None:
    for name in ("train", "test"):
        lengths = sorted(len(pair.source.split()) for pair in book[name])
        assert (lengths[0], lengths[-1]) == (MIN_WORDS, MAX_WORDS)
        assert 14 <= sum(lengths) / len(lengths) <= 16.5
        longest = lengths[len(lengths) * 3 // 4 :]
        assert longest[0] >= 22
        assert sum(longest) / len(longest) >= 28
    counts = Counter(len(pair.source.split()) for pair in book["train"])
    assert all(0.004 < counts[length] / 3000 < 0.12 for length in range(MIN_WORDS, MAX_WORDS + 1))


def test_every_link_and_tag_has_its_word(book: dict[str, list[Pair]]) -> None:
    tags = {"DET", "ADJ", "NOUN", "VERB", "AUX", "ADP", "PRON", "ADV", "NUM", "CCONJ"}
    seen: set[str] = set()
    for pair in book["train"]:
        source, target = pair.source.split(" "), pair.target.split(" ")
        assert pair.tags is not None
        assert pair.alignment is not None
        assert pair.possible is not None
        assert len(pair.tags) == len(source)
        seen.update(pair.tags)
        assert {j for _, j in pair.alignment} == set(range(len(target)))
        assert {i for i, _ in pair.possible} == set(range(len(source)))
        assert set(pair.alignment) <= set(pair.possible)
        assert list(pair.possible) == sorted(set(pair.possible))
    assert seen == tags


def test_vocabulary(book: dict[str, list[Pair]]) -> None:
    counts = Counter(word for pair in book["train"] for word in pair.source.split())
    assert 240 <= len(counts) <= 280
    assert min(counts.values()) >= 4
    french = {word for pair in book["train"] for word in pair.target.split()}
    for pair in LECTURE_SENTENCES:
        assert set(pair.source.split()) <= counts.keys()
        assert set(pair.target.split()) <= french
    for part in ("dev", "test"):
        assert {word for pair in book[part] for word in pair.source.split()} <= counts.keys()


def test_elision_and_contraction_everywhere(book: dict[str, list[Pair]]) -> None:
    """A second opinion on `spell`, from the finished text."""
    for pair in book["train"]:
        target = pair.target.split()
        for left, right in pairwise(target):
            vowel = right[0] in "aeiouéèêîôâûh" and right not in ("huit", "onze")
            if left in ("l'", "d'", "qu'", "cet", "vieil", "bel", "nouvel"):
                assert vowel, pair.target
            elif left in ("le", "la", "de", "que", "ce", "ma", "du", "au"):
                assert not vowel, pair.target
            assert left not in ("de", "à") or right not in ("le", "les"), pair.target
            assert left != "de" or right not in ("de", "des"), pair.target
            assert right != "d'" or left not in ("de", "d'"), pair.target


def test_a_before_a_vowel_is_an(book: dict[str, list[Pair]]) -> None:
    following = {"a": set(), "an": set()}  # type: dict[str, set[str]]
    for pair in book["train"]:
        source = pair.source.split()
        for left, right in pairwise(source):
            if left in following:
                following[left].add(right)
    assert {word for word in following["a"] if word[0] in "aeiou"} == {"european"}
    assert {word[0] for word in following["an"]} <= set("aeiou")


def double_adjectives(pair: Pair) -> bool:
    """Whether two adjectives before an English noun stand after the French one, in the opposite order."""
    at = dict(pair.alignment or ())
    tags = pair.tags or ()
    spots = (i for i in range(len(tags) - 2) if tags[i : i + 3] == ("ADJ", "ADJ", "NOUN"))
    return any(at[i] > at[i + 1] > at[i + 2] for i in spots)


def test_double_adjectives_are_common_over_many_nouns(book: dict[str, list[Pair]]) -> None:
    reversing = [pair for pair in book["train"] if double_adjectives(pair)]
    assert len(reversing) / 3000 > 0.2
    assert sum("european economic" in pair.source for pair in reversing) >= 5
    short = [pair for pair in reversing if len(pair.source.split()) <= 12]
    assert len({word for pair in short for word in pair.source.split()}) > 150


@pytest.mark.parametrize(
    "words",
    ["that the", "who", "of the", "next to", "in front of", "some old", "on 14 july", "the two"],
)
def test_every_rule_is_used(book: dict[str, list[Pair]], words: str) -> None:
    assert sum(f" {words} " in f" {pair.source} " for pair in book["train"]) >= 3


# ---- English decides French


def shrink(monkeypatch: pytest.MonkeyPatch, nouns: str, verbs: str, adjectives: str) -> None:
    """A smaller language of the same grammar."""
    monkeypatch.setattr(say, "NOUNS", [NOUNS[name][0] for name in nouns.split()])
    monkeypatch.setattr(say, "VERBS", [VERBS[name] for name in verbs.split()])
    monkeypatch.setattr(say, "SLEEPERS", [VERBS["sleep"]])
    monkeypatch.setattr(say, "ADJECTIVES", [ADJECTIVES[name] for name in adjectives.split()])
    monkeypatch.setattr(say, "DETERMINERS", [])
    monkeypatch.setattr(say, "NUMERALS", [])
    monkeypatch.setitem(say.WORDS, "months", [("august", "août")])
    monkeypatch.setitem(say.WORDS, "years", ["1992"])


def test_one_english_sentence_has_one_french_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a language so small that sentences come back often, from different derivations."""
    shrink(monkeypatch, "man woman cat mouse house agreement", "eat see sign", "old black")
    author = Author(3)
    said: dict[str, Pair] = {}
    again = 0
    for _ in range(6000):
        phrase = author.sentence(author.between(4, 11))
        if phrase is not None:
            made = say.pair(phrase)
            again += made.source in said
            assert said.setdefault(made.source, made) == made
    assert again > 1500


Features = tuple[bool, bool]  # feminine, plural


def features(nouns: list[str]) -> Features:
    """Gender and number of one noun or of several joined by "and", from their English."""
    entries = [NOUNS[noun] for noun in nouns]
    return all(noun.feminine for noun, _ in entries), len(entries) > 1 or entries[0][1]


class Reader:
    """Reads English from left to right and finds what each verb agrees with, by the rules stated for the phrasebook."""

    def __init__(self, pair: Pair) -> None:
        self.source, self.tags = pair.source.split(), pair.tags or ()
        self.start = 0  # of the clause
        self.subject: list[str] = []

    def first_noun(self, at: int) -> str:
        return next(self.source[i] for i in range(at, len(self.source)) if self.source[i] in NOUNS)

    def relative_object(self, verb: int) -> int | None:
        """Where the "that" of an object relative stands, if only one noun phrase lies between it and the verb."""
        at = verb - 2
        while at > 0 and (
            self.tags[at] in ("DET", "NUM", "ADJ", "ADV") or self.source[at] in ("my", "our")
        ):
            at -= 1
        return at if self.source[verb - 1] in NOUNS and self.source[at] == "that" else None

    def groups(self) -> Iterator[tuple[int, list[int]]]:
        """Where each verb begins (its adverb included), and the places of its words: quickly opened, was finally signed."""
        manner = ("often", "quickly", "finally")
        at = 0
        while at < len(self.tags):
            if self.tags[at] == "VERB":
                yield (at - 1 if self.source[at - 1] in manner else at), [at]
            elif self.tags[at] == "AUX":
                end = at + 2 if self.source[at + 1] in manner else at + 1
                passive = self.tags[end] == "VERB"
                yield at, [at, end] if passive else [at]
                at = end if passive else at
            at += 1

    def joins(self, verb: int) -> list[int]:
        """Each "and" of the clause up to the verb, but for those between adjectives."""
        found = [i for i in range(self.start, verb) if self.source[i] == "and"]
        return [
            i
            for i in found
            if self.source[i - 1] not in ADJECTIVES or self.source[i + 1] not in ADJECTIVES
        ]

    def read(self, verb: int) -> tuple[Features, Features | None]:
        """What the verb at this place has as subject and, in an object relative clause, what stands before it as object."""
        before = self.source[verb - 1]
        if before in ("who", "that"):
            return features([self.source[verb - 2]]), None
        if (that := self.relative_object(verb)) is not None:
            return features([before]), features([self.source[that - 1]])
        if before != "and":
            joins = self.joins(verb)
            if self.subject:  # not the first clause: it begins after the last "and"
                self.subject = [self.first_noun(joins[-1])]
            else:
                self.subject = [self.first_noun(i) for i in (0, *joins)]
            self.start = verb
        return features(self.subject), None


def expected(words_of_verb: list[str], subject: Features, thing: Features | None) -> list[str]:
    """The French of a verb by its features, spelled out apart from the grammar."""
    plural = subject[1]
    ending = {(False, False): "", (True, False): "e", (False, True): "s", (True, True): "es"}
    if words_of_verb[0] in ("is", "are", "was", "were"):
        if len(words_of_verb) == 1:
            return [
                {"is": "est", "are": "sont", "was": "était", "were": "étaient"}[words_of_verb[0]]
            ]
        verb = next(verb for verb in VERBS.values() if verb.english[3] == words_of_verb[1])
        return ["ont" if plural else "a", "été", verb.french[2] + ending[subject]]
    verb = next(verb for verb in VERBS.values() if words_of_verb[0] in verb.english[:3])
    if words_of_verb[0] != verb.english[2]:
        return [verb.french[plural]]
    if verb.english[2] in ("went", "arrived"):
        return ["sont" if plural else "est", verb.french[2] + ending[subject]]
    return ["ont" if plural else "a", verb.french[2] + (ending[thing] if thing else "")]


def test_a_reader_of_english_alone_knows_every_french_verb(book: dict[str, list[Pair]]) -> None:
    """The rules of attachment decide number and gender, so French is a function of English; a second opinion on agreement."""
    for pair in (*book["train"], *LECTURE_SENTENCES):
        reader, target = Reader(pair), pair.target.split()
        for start, group in reader.groups():
            french = expected([reader.source[i] for i in group], *reader.read(start))
            assert [
                target[j] for j in sorted(j for i, j in pair.alignment or () if i in group)
            ] == french, pair


def test_lecture_sentences_are_drawn_by_the_grammar(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch, "cat mouse", "eat", "black")
    author = Author(0)
    drawn = (author.sentence(6) for _ in range(6000))
    assert LECTURE_SENTENCES[0].source in {say.pair(phrase).source for phrase in drawn if phrase}
    shrink(monkeypatch, "agreement area", "sign", "european economic")
    author = Author(0)

    def subject() -> Phrase:
        author.used.clear()
        return author.modified(NOUNS["agreement"][0], 7, MAX_DEPTH - 1)

    drawn_subjects = {texts(subject())[0] for _ in range(3000)}
    assert "the agreement on the european economic area" in drawn_subjects
    author.used.clear()
    ends = (author.predicate(np("the agreement").head, 2, 0) for _ in range(100))
    assert "was signed" in {texts(phrase)[0] for phrase in ends if phrase}
    assert "in august 1992" in {texts(author.time(3))[0] for _ in range(100)}


def test_a_sentence_keeps_to_its_room() -> None:
    author = Author(5)
    for room in range(MIN_WORDS, MAX_WORDS + 1):
        for _ in range(20):
            assert len(author.sentence(room) or Phrase()) <= room


def test_every_adjective_and_kind_is_known() -> None:
    for kind in say.KINDS.values():
        assert {*kind.before, *kind.outer, *kind.inner} <= ADJECTIVES.keys()
        assert set(kind.owners) <= say.KINDS.keys()
    for noun in say.NOUNS:
        assert noun.kind in say.KINDS
        assert set(noun.sites) <= say.WORDS["prepositions"].keys()
    assert Chooser(0).noun(("no such kind",)) is None


@pytest.mark.parametrize("test", [-7, 1_000_001])
def test_absurd_sizes_are_refused(test: int) -> None:
    rule = (
        "but 'phrasebook' has parts of 0 or more examples, at most 1,000,000 in all; ask for fewer"
    )
    with raises("out-of-range", match=f"^train=0, dev=0, test={test}, {rule}$"):
        phrasebook(train=0, dev=0, test=test)


def test_no_sentences_at_all() -> None:
    assert phrasebook(0, 0, 0) == {"train": [], "dev": [], "test": []}
