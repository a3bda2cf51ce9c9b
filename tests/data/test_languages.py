"""The phrasebook's languages: the lectures' sentence, agreement and order by hand, links that are right by construction."""

from __future__ import annotations

import pytest

from saccade.data.corpora import corpus
from saccade.data.generated import languages
from saccade.data.generated.languages import NAMES, Author, Clause, lecture_sentences, translate
from support import error_of, run_cli

SMALL = {"train": 60, "dev": 5, "test": 5}
BLACK_CAT = {
    "fr": "le chat noir a mangé la souris",
    "de": "die schwarze katze hat die maus gefressen",
    "it": "il gatto nero ha mangiato il topo",
    "es": "el gato negro se comió el ratón",
    "zh": "黑 猫 吃 了 老鼠",
    "hi": "काली बिल्ली ने चूहे को खा लिया",
}


def test_the_lectures_sentence_in_every_language() -> None:
    assert set(BLACK_CAT) == set(NAMES)
    for to, target in BLACK_CAT.items():
        pair = lecture_sentences(to)[0]
        assert (pair.source, pair.target) == ("the black cat ate the mouse", target)
    assert [pair.target for pair in lecture_sentences("es")[1:]] == [
        "yo soy de canadá",
        "me puedes traer un tenedor",
    ]


def test_the_verb_is_last_in_german_and_hindi_and_links_say_so() -> None:
    for to in ("de", "hi"):
        pair = lecture_sentences(to)[0]
        assert (3, len(pair.target.split()) - 1) in (pair.alignment or ())
    chinese = lecture_sentences("zh")[0]
    assert {target for source, target in chinese.alignment or () if source in (0, 4)} == set(), (
        "no article"
    )


def say(to: str, article: str, adjective: str, noun: str, verb: str, place: str = "") -> str:
    """What a language makes of one clause with a place."""
    find = lambda rows, name: next(one for one in rows if one[0][0] == name)
    word = languages.Word
    named = languages.Named(
        word(article, "DET"),
        [(word(adjective, "ADJ"), find(languages.ADJECTIVES, adjective))],
        word(noun, "NOUN"),
        find(languages.NOUNS, noun),
    )
    where = None
    if place:
        home = languages.Named(
            word("the", "DET"), [], word("garden", "NOUN"), find(languages.NOUNS, "garden")
        )
        where = (word(place, "ADP"), find(languages.LOCATIONS, place), home)
    return translate(
        [Clause(named, (word(verb, "VERB"), find(languages.VERBS, verb)), None, where, None)], to
    ).target


@pytest.mark.parametrize(
    ("to", "words", "target"),
    [
        ("de", ("a", "small", "dog", "slept", "in"), "ein kleiner hund hat im garten geschlafen"),
        (
            "de",
            ("the", "big", "horse", "slept", "near"),
            "das große pferd hat beim garten geschlafen",
        ),
        ("it", ("the", "black", "bird", "slept", "in"), "l' uccello nero ha dormito nel giardino"),
        (
            "it",
            ("a", "white", "mouse", "slept", "near"),
            "un topo bianco ha dormito vicino al giardino",
        ),
        (
            "es",
            ("the", "small", "cat", "slept", "behind"),
            "el gato pequeño durmió detrás del jardín",
        ),
        ("fr", ("the", "big", "bird", "slept", "near"), "le grand oiseau a dormi près du jardin"),
        ("zh", ("a", "red", "bird", "slept", "under"), "一 只 红 鸟 在 花园 下面 睡 了"),
        ("hi", ("the", "black", "cat", "slept", "in"), "काली बिल्ली बग़ीचे में सोई"),
        ("hi", ("the", "black", "dog", "slept", "in"), "काला कुत्ता बग़ीचे में सोया"),
        ("hi", ("a", "big", "child", "worked", "in"), "एक बड़े बच्चे ने बग़ीचे में काम किया"),
    ],
)
def test_agreement_order_and_contractions(to: str, words: tuple[str, ...], target: str) -> None:
    assert say(to, *words) == target


@pytest.mark.parametrize("to", [name for name in NAMES if name != "fr"])
def test_the_corpus_of_a_language(to: str) -> None:
    parts = [corpus(f"phrasebook:{part}", {**SMALL, "to": to}) for part in ("train", "dev", "test")]
    assert [len(part) for part in parts] == list(SMALL.values())
    every = [pair for part in parts for pair in part]
    assert len({pair.source for pair in every}) == len(every)
    assert not {pair.source for pair in every} & {pair.source for pair in lecture_sentences(to)}
    for pair in every:
        source, target = pair.source.split(), pair.target.split()
        assert {at for at, _ in pair.alignment or ()} >= {
            n for n, tag in enumerate(pair.tags or ()) if tag in ("NOUN", "VERB", "ADJ")
        }
        assert all(a < len(source) and b < len(target) for a, b in pair.possible or ())
        assert {b for _, b in pair.possible or ()} == set(range(len(target))), (
            "every word comes from somewhere"
        )


def test_the_same_sentence_is_drawn_for_every_language_and_persons_have_no_color() -> None:
    sources = {
        to: [translate(author.draw(), to).source for author in [Author(5)] for _ in range(30)]
        for to in NAMES
    }
    assert len({tuple(one) for one in sources.values()}) == 1
    for line in sources["de"]:
        assert not any(
            f"{color} {person}" in line
            for color in ("black", "white", "red")
            for person in ("man", "woman", "child")
        )


def test_an_unknown_language_is_refused_before_anything_is_trained() -> None:
    assert "the phrasebook has no language 'dee'; did you mean 'de'?" in error_of(
        lambda: corpus("phrasebook:test", {"to": "dee"})
    )
    assert "no language 'xx'" in run_cli("demo", "--to", "xx").err
