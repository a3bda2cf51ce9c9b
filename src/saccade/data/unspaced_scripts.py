"""Scripts in which no spaces separate words: whether texts are written in one, which is counted in characters and not in words."""

import re
from collections.abc import Iterable
from itertools import islice

# in which script a sentence is: kana decide for Japanese, since it has Han characters too
SCRIPTS = {
    "kana": re.compile("[\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f]"),
    "Han": re.compile(
        "[\u2e80-\u2fdf\u3005\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
    ),
    "Thai": re.compile("[\u0e01-\u0e4e]"),
    "Lao": re.compile("[\u0e81-\u0ecd]"),
    "Khmer": re.compile("[\u1780-\u17d3]"),
    "Burmese": re.compile("[\u1000-\u109f]"),
}
EVERY = re.compile("|".join(script.pattern for script in SCRIPTS.values()))
# characters between spaces, in the mean, above which those are no words
MAX_WORD_CHARACTERS = {"kana": 5.0, "Han": 4.0}
SAMPLE_TEXTS = 2000  # texts


def unspaced_script(texts: Iterable[str]) -> str:
    """The script of texts that have no spaces between their words (`kana`, `Han`, `Thai` …), or an empty string."""
    some = list(islice(texts, SAMPLE_TEXTS))
    runs = [
        len(EVERY.findall(word)) for text in some for word in text.split() if EVERY.search(word)
    ]
    letters = sum(character.isalpha() for text in some for character in text)
    if not runs or 2 * sum(runs) < letters:  # a few names among other words
        return ""
    counts = {
        name: sum(len(script.findall(text)) for text in some) for name, script in SCRIPTS.items()
    }
    name = max(counts, key=lambda name: counts[name])
    if name == "Han" and 10 * counts["kana"] > counts["Han"]:
        name = "kana"
    return name if sum(runs) / len(runs) > MAX_WORD_CHARACTERS.get(name, 10.0) else ""


def length(text: str, script: str) -> int:
    """How long a text is: in characters where its script has no spaces, else in words."""
    return len("".join(text.split())) if script else len(text.split())
