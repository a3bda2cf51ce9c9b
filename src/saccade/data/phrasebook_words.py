"""The lexicon of the phrasebook: English words, their French forms, and what may be said of what.

A *kind* groups the nouns that take the same adjectives, owners and verbs, so that sentences make sense as well as agree.
Tags are universal parts of speech; months and "yesterday" are NOUN, possessives PRON, "several" ADJ, as treebanks have it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Noun:
    """A noun in both languages and numbers; `sites` are the prepositions that make a place of it."""

    english: str
    englishes: str
    french: str
    frenches: str
    gender: str
    kind: str
    sites: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Kind:
    """What nouns of one kind take: adjectives `before` the French noun, `inner` and `outer` ones after it, owners ("of ...").

    English "outer inner noun" is French "noun inner outer": european economic area, zone économique européenne.
    """

    before: tuple[str, ...] = ()
    outer: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    mine: bool = False


@dataclass(frozen=True, slots=True)
class Adjective:
    """An adjective with its four French forms and the one before a vowel; two of one sense exclude each other."""

    sense: str
    english: str
    forms: tuple[str, str, str, str]
    before_vowel: str | None = None

    @property
    def opinion(self) -> bool:
        """Whether it stands before size and age in English: a tired old man, un vieil homme fatigué."""
        return self.sense in ("mood", "rank")

    @property
    def gradable(self) -> bool:
        """Whether "very" goes with it."""
        return self.sense in ("size", "age", "beauty", "worth", "mood", "rank") and self.english != "new"


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb: English plural, third person, past, participle; French singular, plural, participle; who does it to what.

    `quick` ones are done at a stroke: they go with "quickly" and with a passive that names no agent; `placed` ones happen
    somewhere; `receivers` are those to whom it is done.
    """

    english: tuple[str, str, str, str]
    french: tuple[str, str, str]
    frames: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    auxiliary: str = "avoir"
    quick: bool = False
    placed: bool = True
    receivers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Determiner:
    """A determiner with its French forms (masculine, feminine, plural); a missing number is one it does not go with."""

    english: str
    tag: str
    singular: tuple[str, str] | None
    plural: str | None


@dataclass(frozen=True, slots=True)
class Preposition:
    """A preposition of one or more words on each side, with the sure links between them; all others are possible."""

    english: tuple[tuple[str, str], ...]
    french: tuple[str, ...]
    sure: tuple[tuple[int, int], ...] = ((0, 0),)


COLORS = ("black", "white", "gray", "red", "blue", "green")
ORIGINS = ("french", "english", "german", "italian", "european")
SCOPES = (*ORIGINS, "international")
SIZES = ("small", "big", "old", "beautiful")
PEOPLE = ("adult", "known", "kid", "pupil")
ANIMALS = ("hunter", "beast", "mouse")
ANIMATE = (*PEOPLE, *ANIMALS)
BODIES = ("council", "parliament", "company")
TOPICS = ("area", "policy", "crisis")
PUBLIC = ("pact", *TOPICS, "council")  # what is often both somewhere's and of some domain: european economic
BUILDINGS = ("home", "building")
PLACES = (*BUILDINGS, "yard", "bridge", "town", "tree")
SMALL_THINGS = ("food", "document", "mouse", "hunter")

KINDS: dict[str, Kind] = {
    "adult": Kind(("young", "old"), ("tired", "sad", "famous", "rich"), ORIGINS),
    "known": Kind(("young", "old", "good"), ("tired", "sad", "famous", "rich"), ORIGINS, PEOPLE, mine=True),
    "kid": Kind(("small", "young"), ("tired", "sad"), ORIGINS),
    "pupil": Kind(("young",), ("tired", "sad"), ORIGINS, ("adult", "known"), mine=True),
    "hunter": Kind(SIZES, ("black", "white", "gray"), ORIGINS, PEOPLE, mine=True),
    "beast": Kind(SIZES, ("black", "white", "gray"), ORIGINS, PEOPLE, mine=True),
    "mouse": Kind(("small", "beautiful"), ("black", "white", "gray"), (), ("kid", "pupil"), mine=True),
    "food": Kind(("small", "beautiful", "good"), (), ORIGINS, PEOPLE, mine=True),
    "thing": Kind((*SIZES, "new"), COLORS, ORIGINS, PEOPLE, mine=True),
    "furniture": Kind((*SIZES, "new"), COLORS, ORIGINS, PEOPLE, mine=True),
    "opening": Kind(("small", "big", "old", "new"), COLORS, (), BUILDINGS),
    "document": Kind(("old", "new", "beautiful"), ("famous", "important"), ORIGINS, PEOPLE, mine=True),
    "pact": Kind(("new", "old"), (*SCOPES, "important"), ("economic", "political", "social", "commercial"), BODIES),
    "area": Kind(("new", "big"), SCOPES, ("economic", "commercial")),
    "policy": Kind(("new",), (*SCOPES, "important"), ("economic", "social", "commercial"), BODIES),
    "crisis": Kind(("new", "big"), SCOPES, ("economic", "political", "social")),
    "home": Kind((*SIZES, "new"), COLORS, ORIGINS, PEOPLE, mine=True),
    "building": Kind((*SIZES, "new"), ("white", "gray", "red", "famous"), ORIGINS, ("town",)),
    "yard": Kind(SIZES, ("famous",), ORIGINS, ("town",)),
    "bridge": Kind((*SIZES, "new"), ("famous",), ORIGINS, ("town",)),
    "town": Kind(SIZES, ("famous",), ORIGINS),
    "tree": Kind(SIZES, (), (), ("yard",)),
    "council": Kind(("new",), SCOPES, ("economic", "social", "political"), ("town",)),
    "parliament": Kind(("new", "old"), SCOPES),
    "company": Kind(("new", "old", "small", "big"), SCOPES, ("commercial",)),
}

_AROUND = ("near", "behind", "in front of", "next to")
SITES: dict[str, tuple[str, ...]] = {
    "car": _AROUND,
    "table": ("on", "under"),
    "box": ("in",),
    **dict.fromkeys(("door", "window"), ("near", "behind", "in front of")),
    "house": ("in", *_AROUND),
    **dict.fromkeys(("hotel", "church", "school"), ("in", "at", "to", *_AROUND)),
    "garden": ("in", "near", "behind", "next to"),
    "park": ("in", "at", "to", "near", "next to"),
    "bridge": ("on", "under", "near", "behind"),
    "city": ("in", "near"),
    "island": ("on", "near"),
    "tree": ("under", *_AROUND),
}


def _nouns(kind: str, *rows: str) -> tuple[Noun, ...]:
    """Nouns from "singular plural singulier pluriel gender"."""
    cells = [row.split() for row in rows]
    return tuple(Noun(one, many, un, plusieurs, gender, kind, SITES.get(one, ())) for one, many, un, plusieurs, gender in cells)


NOUNS = (
    *_nouns("adult", "man men homme hommes m", "woman women femme femmes f"),
    *_nouns("adult", "queen queens reine reines f", "minister ministers ministre ministres m"),
    *_nouns("known", "friend friends ami amis m", "teacher teachers professeur professeurs m"),
    *_nouns("known", "doctor doctors médecin médecins m"),
    *_nouns("kid", "boy boys garçon garçons m", "girl girls fille filles f"),
    *_nouns("pupil", "child children enfant enfants m", "student students étudiant étudiants m"),
    *_nouns("hunter", "cat cats chat chats m", "dog dogs chien chiens m", "bird birds oiseau oiseaux m"),
    *_nouns("beast", "horse horses cheval chevaux m", "cow cows vache vaches f"),
    *_nouns("mouse", "mouse mice souris souris f"),
    *_nouns("food", "apple apples pomme pommes f", "orange oranges orange oranges f", "cake cakes gâteau gâteaux m"),
    *_nouns("thing", "hat hats chapeau chapeaux m", "car cars voiture voitures f"),
    *_nouns("furniture", "table tables table tables f", "box boxes boîte boîtes f"),
    *_nouns("opening", "door doors porte portes f", "window windows fenêtre fenêtres f"),
    *_nouns("document", "letter letters lettre lettres f", "book books livre livres m"),
    *_nouns("pact", "agreement agreements accord accords m", "treaty treaties traité traités m", "law laws loi lois f"),
    *_nouns("area", "area areas zone zones f"),
    *_nouns("policy", "policy policies politique politiques f"),
    *_nouns("crisis", "crisis crises crise crises f"),
    *_nouns("home", "house houses maison maisons f"),
    *_nouns("building", "hotel hotels hôtel hôtels m", "church churches église églises f", "school schools école écoles f"),
    *_nouns("yard", "garden gardens jardin jardins m", "park parks parc parcs m"),
    *_nouns("bridge", "bridge bridges pont ponts m"),
    *_nouns("town", "city cities ville villes f", "island islands île îles f"),
    *_nouns("tree", "tree trees arbre arbres m"),
    *_nouns("council", "council councils conseil conseils m"),
    *_nouns("parliament", "parliament parliaments parlement parlements m"),
    *_nouns("company", "company companies entreprise entreprises f"),
)


def _adjectives(sense: str, *rows: str) -> tuple[Adjective, ...]:
    """Adjectives from "english masculine [feminine]": plurals add -s, with -aux for -al and nothing after -s."""
    entries = []
    for english, masculine, *irregular in map(str.split, rows):
        feminine = irregular[0] if irregular else masculine.removesuffix("e") + "e"
        plural = masculine[:-1] + "ux" if masculine.endswith("al") else masculine.removesuffix("s") + "s"
        entries.append(Adjective(sense, english, (masculine, feminine, plural, feminine + "s")))
    return tuple(entries)


ADJECTIVES = (
    Adjective("age", "old", ("vieux", "vieille", "vieux", "vieilles"), "vieil"),
    Adjective("age", "new", ("nouveau", "nouvelle", "nouveaux", "nouvelles"), "nouvel"),
    Adjective("beauty", "beautiful", ("beau", "belle", "beaux", "belles"), "bel"),
    *_adjectives("age", "young jeune"),
    *_adjectives("size", "small petit", "big grand"),
    *_adjectives("worth", "good bon bonne"),
    *_adjectives("mood", "tired fatigué", "sad triste"),
    *_adjectives("rank", "famous célèbre", "rich riche", "important important"),
    *_adjectives("color", "black noir", "white blanc blanche", "gray gris", "red rouge", "blue bleu", "green vert"),
    *_adjectives("scope", "french français", "english anglais", "german allemand", "italian italien italienne"),
    *_adjectives("scope", "european européen européenne", "international international"),
    *_adjectives("domain", "economic économique", "political politique", "social social", "commercial commercial"),
)

_SEEN = (*ANIMATE, "food", "thing", "furniture", "document", *PLACES)
_BOUGHT = ("food", "thing", "furniture", "document", "hunter", "beast", "home")
_SIGNERS = ("adult", "known", *BODIES)
VERBS = (
    Verb(
        ("eat", "eats", "ate", "eaten"),
        ("mange", "mangent", "mangé"),
        ((PEOPLE, ("food",)), (("hunter",), ("food", "mouse")), (("beast", "mouse"), ("food",))),
        quick=True,
    ),
    Verb(("see", "sees", "saw", "seen"), ("voit", "voient", "vu"), ((ANIMATE, _SEEN),)),
    Verb(("watch", "watches", "watched", "watched"), ("regarde", "regardent", "regardé"), ((ANIMATE, ANIMATE),)),
    Verb(("follow", "follows", "followed", "followed"), ("suit", "suivent", "suivi"), ((ANIMATE, ANIMATE),)),
    Verb(
        ("find", "finds", "found", "found"),
        ("trouve", "trouvent", "trouvé"),
        ((PEOPLE, ("kid", *ANIMALS, "food", "thing", "furniture", "document")), (ANIMALS, ("food",))),
        quick=True,
    ),
    Verb(("buy", "buys", "bought", "bought"), ("achète", "achètent", "acheté"), ((PEOPLE, _BOUGHT),), quick=True),
    Verb(("open", "opens", "opened", "opened"), ("ouvre", "ouvrent", "ouvert"), ((PEOPLE, ("opening", "document")),), quick=True),
    Verb(
        ("close", "closes", "closed", "closed"), ("ferme", "ferment", "fermé"), ((PEOPLE, ("opening", "document")),), quick=True
    ),
    Verb(
        ("sign", "signs", "signed", "signed"),
        ("signe", "signent", "signé"),
        ((_SIGNERS, ("pact",)), (PEOPLE, ("document",))),
        quick=True,
        placed=False,
    ),
    Verb(("write", "writes", "wrote", "written"), ("écrit", "écrivent", "écrit"), ((PEOPLE, ("document",)),), quick=True),
    Verb(
        ("visit", "visits", "visited", "visited"),
        ("visite", "visitent", "visité"),
        ((PEOPLE, (*BUILDINGS, "yard", "town")),),
        quick=True,
        placed=False,
    ),
    Verb(
        ("build", "builds", "built", "built"),
        ("construit", "construisent", "construit"),
        (((*PEOPLE, "council", "company"), (*BUILDINGS, "bridge")),),
        quick=True,
    ),
    Verb(
        ("adopt", "adopts", "adopted", "adopted"),
        ("adopte", "adoptent", "adopté"),
        ((("council", "parliament"), ("pact", "policy")),),
        quick=True,
        placed=False,
    ),
    Verb(
        ("support", "supports", "supported", "supported"),
        ("soutient", "soutiennent", "soutenu"),
        ((_SIGNERS, ("pact", "policy", *BODIES)), (BODIES, ("adult", "known", "pupil"))),
        placed=False,
    ),
    Verb(
        ("describe", "describes", "described", "described"),
        ("décrit", "décrivent", "décrit"),
        ((PEOPLE, ("pact", "policy", "area", "crisis", *ANIMALS, *PLACES)),),
        placed=False,
    ),
    Verb(
        ("give", "gives", "gave", "given"),
        ("donne", "donnent", "donné"),
        ((PEOPLE, ("food", "thing")), (PEOPLE, ("furniture", "document"))),
        receivers=PEOPLE,
    ),
)
SLEEPERS = (
    Verb(("sleep", "sleeps", "slept", "slept"), ("dort", "dorment", "dormi"), ((ANIMATE, ()),)),
    Verb(("sing", "sings", "sang", "sung"), ("chante", "chantent", "chanté"), ((PEOPLE, ()),)),
    Verb(("work", "works", "worked", "worked"), ("travaille", "travaillent", "travaillé"), ((PEOPLE, ()),)),
    Verb(("arrive", "arrives", "arrived", "arrived"), ("arrive", "arrivent", "arrivé"), ((ANIMATE, ()),), "être", quick=True),
)
GO = Verb(("go", "goes", "went", "gone"), ("va", "vont", "allé"), ((ANIMATE, BUILDINGS),), "être", quick=True)
SPEAK = Verb(("speak", "speaks", "spoke", "spoken"), ("parle", "parlent", "parlé"), ((PEOPLE, PEOPLE),))

THE = Determiner("the", "DET", ("le", "la"), "les")
SOME = Determiner("some", "DET", None, "des")
EVERY = Determiner("every", "DET", ("chaque", "chaque"), None)
DETERMINERS = (
    Determiner("a", "DET", ("un", "une"), None),
    Determiner("this", "DET", ("ce", "cette"), None),
    Determiner("these", "DET", None, "ces"),
    EVERY,
    SOME,
    Determiner("several", "ADJ", None, "plusieurs"),
)
POSSESSIVES = (
    Determiner("my", "PRON", ("mon", "ma"), "mes"),
    Determiner("our", "PRON", ("notre", "notre"), "nos"),
)
NUMERALS = tuple(
    Determiner(english, "NUM", None, french)
    for english, french in (
        *(("two", "deux"), ("three", "trois"), ("four", "quatre"), ("five", "cinq"), ("six", "six"), ("seven", "sept")),
        *(("eight", "huit"), ("nine", "neuf"), ("ten", "dix"), ("eleven", "onze"), ("twelve", "douze")),
    )
)

PREPOSITIONS: dict[str, Preposition] = {
    "of": Preposition((("of", "ADP"),), ("de",)),
    "by": Preposition((("by", "ADP"),), ("par",)),
    "to": Preposition((("to", "ADP"),), ("à",)),
    "at": Preposition((("at", "ADP"),), ("à",)),
    "with": Preposition((("with", "ADP"),), ("avec",)),
    "in": Preposition((("in", "ADP"),), ("dans",)),
    "on": Preposition((("on", "ADP"),), ("sur",)),
    "under": Preposition((("under", "ADP"),), ("sous",)),
    "behind": Preposition((("behind", "ADP"),), ("derrière",)),
    "near": Preposition((("near", "ADP"),), ("près", "de"), ((0, 0), (0, 1))),
    "in front of": Preposition((("in", "ADP"), ("front", "NOUN"), ("of", "ADP")), ("devant",), ((1, 0),)),
    "next to": Preposition((("next", "ADV"), ("to", "ADP")), ("à", "côté", "de"), ((0, 0), (0, 1), (1, 2))),
}

OFTEN, QUICKLY, FINALLY = ("often", "souvent"), ("quickly", "rapidement"), ("finally", "finalement")
MONTHS = (
    *(("january", "janvier"), ("february", "février"), ("march", "mars"), ("april", "avril"), ("may", "mai"), ("june", "juin")),
    *(("july", "juillet"), ("august", "août"), ("september", "septembre"), ("october", "octobre")),
    *(("november", "novembre"), ("december", "décembre")),
)
DAYS = (("1", "1er"), ("8", "8"), ("14", "14"), ("25", "25"))
YEARS = ("1957", "1989", "1992", "2002")
