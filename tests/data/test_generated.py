"""Generated corpora are byte-identical from version to version: texts, meanings, links, tags, lines and splits."""

from __future__ import annotations

import hashlib
import json
from importlib.resources import files
from typing import Any

import pytest

from saccade.data.corpora import table
from saccade.data.generated import Dice, load_words
from saccade.data.generated.phrasebook import LECTURE_SENTENCES

SMALL, OTHER = (200, 20, 30, 7), (0, 3, 0, 12345)  # train, dev, test, seed
GOLDEN = {
    ("phrasebook", SMALL): ("0369f9f34d4064a4", "c31c201868e34f54", "e68271433b4cc3bc"),
    ("phrasebook", OTHER): ("4f53cda18c2baa0c", "6ea71452ea2c766a", "4f53cda18c2baa0c"),
    ("dates", SMALL): ("2a63179b835dfb54", "64017fe93f23affc", "92f0922702b926e1"),
    ("dates", OTHER): ("4f53cda18c2baa0c", "3930b5a300508f80", "4f53cda18c2baa0c"),
    ("reviews", SMALL): ("4956dbdc467a136b", "cf67745687ad3eab", "0aee6ad90b854d96"),
    ("reviews", OTHER): ("4f53cda18c2baa0c", "62baa2b3b6487233", "4f53cda18c2baa0c"),
    ("shapes", SMALL): ("0ecf82f6e539e9b5", "1cae11c17e1c3a43", "e432d323359f18f6"),
    ("shapes", OTHER): ("4f53cda18c2baa0c", "9e2b02b3a5b77077", "4f53cda18c2baa0c"),
    ("senses", SMALL): ("a895af50138d49fc", "79cc48bc98811478", "06f552b8771f4091"),
    ("senses", OTHER): ("4f53cda18c2baa0c", "4d4c43681e84ebb5", "4f53cda18c2baa0c"),
    ("entailment", SMALL): ("580ed6cac83910e3", "25e64d905ac08c2a", "3b7062fba1bdecf7"),
    ("entailment", OTHER): ("4f53cda18c2baa0c", "44c678dd2b7070e9", "4f53cda18c2baa0c"),
    ("week", SMALL): ("b0b93f926aab044d", "4ac6c3c53310053c", "2efda0a7aadeb17d"),
    ("week", OTHER): ("4f53cda18c2baa0c", "1387109a8177d8bf", "4f53cda18c2baa0c"),
    ("bags", SMALL): ("1d7602d28f3e806a", "230f64a7fd1a1958", "8b1d395c9c82e584"),
    ("bags", OTHER): ("4f53cda18c2baa0c", "0380b5468f2a9137", "4f53cda18c2baa0c"),
    ("graphs", SMALL): ("2e2e101439cfc7f8", "442c3422ab4af58e", "5b2a54c010b91e7c"),
    ("graphs", OTHER): ("4f53cda18c2baa0c", "c693f378a76f3cb3", "4f53cda18c2baa0c"),
    ("karate", (4, 10, 20, 7)): ("237dd4d6f44a2224", "54c42175c9fd3451", "6b67d09c1d9cf5db"),
    ("surfaces", (4, 2, 3, 7)): ("0e806145940b2951", "4589fafb956085da", "57daaef06ed9069e"),
}
# of default size
TEST_PARTS = {
    "phrasebook": "4725a155068a3dad",
    "dates": "d0d6286a074d3ac4",
    "reviews": "a9af89b4569f3e40",
    "shapes": "925b0dc454018098",
    "senses": "690b50daa9fc9fca",
    "entailment": "bc1c665990dd0c0e",
    "week": "b5696ec4915c9df7",
    "bags": "fd0d249e6cebec60",
    "graphs": "a1f909e25ecca170",
    "karate": "9cf77f80022f7215",
    "surfaces": "5fe5598c6a48f8a9",
}


def digest(items: Any) -> str:
    return hashlib.sha256(repr(items).encode()).hexdigest()[:16]


def digest_part(part: list[Any]) -> str:
    return digest(
        [(type(item).__name__, *(getattr(item, name) for name in item.__slots__)) for item in part]
    )


@pytest.mark.parametrize(("name", "sizes"), GOLDEN)
def test_every_part_has_its_hash(name: str, sizes: tuple[int, int, int, int]) -> None:
    assert tuple(map(digest_part, table[name](*sizes).values())) == GOLDEN[name, sizes]


@pytest.mark.parametrize("name", table.names())
def test_the_default_test_part_has_its_hash(name: str) -> None:
    assert digest_part(table[name](train=0, dev=0)["test"]) == TEST_PARTS[name]


def test_the_lecture_sentences_have_their_hash() -> None:
    assert digest(LECTURE_SENTENCES) == "bf18f34a9502a272"


def test_the_stream_of_random_numbers() -> None:
    dice = Dice(0)
    assert ([dice.between(1, 6) for _ in range(8)], dice.pick("abc"), dice.chance(0.5)) == (
        [6, 5, 3, 2, 4, 3, 5, 2],
        "b",
        False,
    )


# which have numbers alone
@pytest.mark.parametrize("name", sorted({*table.names()} - {"bags", "surfaces"}))
def test_word_tables_are_shipped(name: str) -> None:
    plain = json.loads(
        (files("saccade.data.generated") / f"{name}.json").read_text(encoding="utf-8")
    )
    assert load_words(name) == plain
