"""Raw text is split as treebanks of English split it."""

from __future__ import annotations

import pytest

from saccade.data.treebank_words import split_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("I didn't sleep.", "I did n't sleep ."),
        ("He can't, won't and cannot.", "He ca n't , wo n't and can not ."),
        ("it’s John's “book” (old)", "it ’s John 's “ book ” ( old )"),
        ("We'll say they're I'd've", "We 'll say they 're I 'd 've"),
        ("U.S. sales rose 3.5% to $1,000...", "U.S. sales rose 3.5 % to $ 1,000 ..."),
        ("at 10:30 a.m. with Mr. Smith", "at 10:30 a.m. with Mr. Smith"),
        ("the 2nd well-known B2B o'clock", "the 2nd well - known B2B o'clock"),
        ("see http://x.org/a. or me@x.org!", "see http://x.org/a . or me@x.org !"),
        ("fine :-) really?!", "fine :-) really ?!"),
        ("did n't sleep .", "did n't sleep ."),
        ("l’été à Zürich, déjà", "l’été à Zürich , déjà"),
        ("", ""),
    ],
)
def test_words_and_punctuation(text: str, words: str) -> None:
    assert split_words(text) == words.split()
    assert "".join(split_words(text)) == "".join(text.split()), "nothing is lost"
