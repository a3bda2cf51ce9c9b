"""One small grammar in seven languages: a sentence is drawn once, and each language says it in its own order, with gold links.

A clause has a subject S, a verb V (German also an auxiliary A), perhaps an object O, a location P and a time T; `orders` says in which order a
language has them. Rows of languages.json hold a word in English and the other languages: nouns with their genders (Chinese: with
its measure word; Hindi: and the form before a postposition), verbs with who does it to what.
"""

from typing import Any, NamedTuple

from ...errors import SaccadeError, did_you_mean
from ..pairs import Pair, parse_pharaoh
from . import Dice, load_words
from .grammar import WORDS as FRENCH
from .grammar import Mot, Phrase, Word, pair

BOOK = load_words("languages")
NAMES: dict[str, str] = BOOK["names"]
GENDERS, CASES = "mfn", ("subject", "object", "location")
MAX_CLAUSES = 3


def records(name: str) -> list[tuple[list[str], dict[str, list[str]]]]:
    """Rows of the book: the English word with what goes with it, and the words of each language."""
    found = []
    for line in BOOK[name] if isinstance(BOOK[name], list) else [BOOK[name]]:
        english, *others = (part.split() for part in line.split(" | "))
        found.append((english, dict(zip(BOOK["columns"], others, strict=True))))
    return found


NOUNS, ADJECTIVES, VERBS, LOCATIONS, TIMES, [AND] = map(
    records, ("nouns", "adjectives", "verbs", "locations", "times", "and")
)


class Named(NamedTuple):
    """A noun with its article and adjectives, drawn once for all languages, and their English words."""

    article: Word
    adjectives: list[tuple[Word, Any]]
    noun: Word
    entry: Any

    @property
    def english(self) -> list[Word]:
        return [self.article, *(word for word, _ in self.adjectives), self.noun]


class Clause(NamedTuple):
    """What happened, and its English words by letter."""

    subject: Named
    verb: tuple[Word, Any]
    object: Named | None
    where: tuple[Word, Any, Named] | None
    time: tuple[Word, Any] | None

    def english(self) -> list[Word]:
        """In the order of English."""
        where = [self.where[0], *self.where[2].english] if self.where else []
        thing = self.object.english if self.object else []
        time = [self.time[0]] if self.time else []
        return [*self.subject.english, self.verb[0], *thing, *where, *time]


class Author(Dice):
    """Draws clauses."""

    def named(self, kinds: list[str], used: set[str]) -> Named:
        fits = [one for one in NOUNS if one[0][1] in kinds and one[0][0] not in used] or NOUNS
        entry = self.pick(fits)
        used.add(entry[0][0])
        chosen = []
        for sense in ("size", "color"):
            if self.chance(0.4) and (sense == "size" or entry[0][1] != "person"):
                adjective = self.pick([one for one in ADJECTIVES if one[0][1] == sense])
                chosen.append((Word(adjective[0][0], "ADJ"), adjective))
        article = Word(self.pick(("the", "the", "a")), "DET")
        return Named(article, chosen, Word(entry[0][0], "NOUN"), entry)

    def clause(self) -> Clause:
        used: set[str] = set()
        verb = self.pick(VERBS)
        doers, *done = (kinds.split(",") for kinds in verb[0][1:])
        subject = self.named(doers, used)
        thing = self.named(done[0], used) if done else None
        site, when = self.pick(LOCATIONS), self.pick(TIMES)
        where = None
        if self.chance(0.5):
            where = (Word(site[0][0], "ADP"), site, self.named(["location"], used))
        time = (Word(when[0][0], "ADV"), when) if self.chance(0.4) else None
        return Clause(subject, (Word(verb[0][0], "VERB"), verb), thing, where, time)

    def draw(self) -> list[Clause]:
        return [self.clause() for _ in range(1 + int(MAX_CLAUSES * self.random() * self.random()))]


def say_noun(to: str, named: Named, case: str, ergative: bool = False) -> list[Mot]:
    """A noun phrase: French, Italian and Spanish have colors after the noun, Chinese and Hindi no article but `one`."""
    forms = named.entry[1][to]
    article, gender = named.article.text, 0 if to == "zh" else GENDERS.index(forms[1])
    noun, oblique = forms[0], to == "hi" and (case != "subject" or ergative)
    cell = 3 * CASES.index(case) + gender
    before, after = list[Mot](), list[Mot]()
    for word, (english, others) in named.adjectives:
        text = others[to][0] if to in ("de", "zh") else others[to][gender]
        if to == "de":
            text += BOOK["endings"][article].split()[cell]
        elif oblique and not gender:
            text = others[to][2]
        follows = to == "es" or (to in ("fr", "it") and english[1] == "color")
        (after if follows else before).append(Mot(text, (word,)))
    if to in BOOK["articles"]:
        at = cell if to == "de" else gender
        before.insert(0, Mot(BOOK["articles"][to][article].split()[at], (named.article,)))
    elif article == "a":
        measure = [Mot(forms[1], (), (named.article,))] * (to == "zh")
        before[:0] = [Mot("一" if to == "zh" else "एक", (named.article,)), *measure]
    possible = (named.article,) if to in ("zh", "hi") and article == "the" else ()
    return [*before, Mot(forms[2] if oblique else noun, (named.noun,), possible), *reversed(after)]


def say_clause(to: str, clause: Clause) -> list[Mot]:
    """A clause in a language's order."""
    verb, (_, forms) = clause.verb
    said = [Mot(text, (verb,)) for text in forms[to]]
    # the subject of what is done, but not of sleeping, has ने
    ergative = to == "hi" and forms[to] != ["सोया"]
    subject = say_noun(to, clause.subject, "subject", ergative)
    if ergative:
        subject.append(Mot("ने", (), (clause.subject.noun,)))
    elif to == "hi" and clause.subject.entry[1]["hi"][1] == "f":
        said = [Mot("सोई", (verb,))]
    parts = {"S": subject, "V": said, "A": [Mot("hat", (verb,))]}
    if clause.object:
        parts["O"] = say_noun(to, clause.object, "object")
        parts["O"] += [Mot("को", (), (clause.object.noun,))] * (to == "hi")
    if clause.where:
        word, (_, around), named = clause.where
        at = around[to].index("…")
        said_around = [Mot(text, (word,)) for text in around[to]]
        place = say_noun(to, named, "location")
        parts["P"] = [*said_around[:at], *place, *said_around[at + 1 :]]
    if clause.time:
        parts["T"] = [Mot(text, (clause.time[0],)) for text in clause.time[1][1][to]]
    return [mot for letter in BOOK["orders"][to] for mot in parts.get(letter, [])]


def translate(clauses: list[Clause], to: str, line: int = 0) -> Pair:
    """A sentence in English and another language, with links."""
    english, mots = list[Word](), list[Mot]()
    for n, clause in enumerate(clauses):
        if n:
            joined = Word("and", "CCONJ")
            english.append(joined)
            mots += [Mot(text, (joined,)) for text in AND[1][to]]
        english += clause.english()
        mots += say_clause(to, clause)
    own = {} if to == "fr" else {name: BOOK[name][to] for name in ("contractions", "before vowel")}
    tables = own or FRENCH
    return pair(Phrase(tuple(english), tuple(mots)), line, tables)


def black_cat() -> Clause:
    """The sentence of the lectures."""

    def find(rows: Any, name: str) -> Any:
        return next(one for one in rows if one[0][0] == name)

    black = [(Word("black", "ADJ"), find(ADJECTIVES, "black"))]
    cat = Named(Word("the", "DET"), black, Word("cat", "NOUN"), find(NOUNS, "cat"))
    mouse = Named(Word("the", "DET"), [], Word("mouse", "NOUN"), find(NOUNS, "mouse"))
    return Clause(cat, (Word("ate", "VERB"), find(VERBS, "ate")), mouse, None, None)


def check_language(to: str) -> str:
    if to not in NAMES:
        raise SaccadeError(
            f"the phrasebook has no language '{to}'{did_you_mean(str(to), NAMES)}",
            code="unknown-language",
        )
    return to


def lecture_sentences(to: str) -> tuple[Pair, ...]:
    """The sentences of the lectures that the book has in a language."""
    own = BOOK["lecture sentences"].get(to, [])
    links = [(source, target, parse_pharaoh(sure)[0]) for source, target, sure in own]
    return (
        translate([black_cat()], to, 1),
        *(Pair(a, b, n, sure, sure) for n, (a, b, sure) in enumerate(links, 2)),
    )
