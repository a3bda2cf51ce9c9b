"""Vocabularies: text comes back, numbers stay the same, pieces know their words, and every mistake has its sentence."""

from __future__ import annotations

import random
import re
import unicodedata
from itertools import dropwhile
from typing import Any

import pytest
import tokenizers
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import raises

from saccade.data import vocabulary
from saccade.data.vocabulary import BOS, EOS, PAD, SPECIALS, UNK, Vocabulary
from saccade.errors import SaccadeError

LINES = [
    "The cat sat on l'accord.",
    "the  Mouse sat; the cat ran.",
    "été à la mode",
    "猫が 好き",
    "the <unk> sat <eos> there",
]
# what a random character hardly ever is
COMMON = st.sampled_from([*"  \t\n\x1c\u00a0'.,<>theİé\u0301猫😀", "the", "<eos>"])
TEXT = st.lists(COMMON | st.characters(exclude_categories=["Cs"]), max_size=30).map("".join)


def trained(kind: str = "words", **options: object) -> Vocabulary:
    return Vocabulary.train(LINES, kind, **{"size": 400, **options})  # type: ignore[arg-type]


BPE, CHARACTERS, WORDS = trained("bpe"), trained("characters"), trained("words")
PUNCTUATION = trained("words", split="punctuation")
EVERY = [
    BPE,
    CHARACTERS,
    WORDS,
    PUNCTUATION,
    trained("bpe", lowercase=True),
    trained("words", lowercase=True),
]


@settings(deadline=None)
@given(TEXT)
def test_bpe_gives_any_text_back(text: str) -> None:
    composed = unicodedata.normalize("NFC", text)
    found = BPE.encode(text)
    assert BPE.decode(found.ids) == composed
    assert "".join(found.pieces) == composed
    assert UNK not in found.ids


@settings(deadline=None)
@given(st.text("".join(sorted(set("".join(LINES)))), max_size=30))
def test_characters_give_known_text_back(text: str) -> None:
    found = CHARACTERS.encode(text)
    assert CHARACTERS.decode(found.ids) == text == "".join(found.pieces)
    assert len(found.ids) == len(text)


@settings(deadline=None)
@given(st.lists(st.sampled_from(["the", "cat", "sat", "on", "été"])))
def test_words_give_known_words_back(words: list[str]) -> None:
    assert WORDS.decode(WORDS.encode(" \u00a0".join(words)).ids) == " ".join(words)


@settings(deadline=None)
@given(TEXT, st.sampled_from(EVERY))
def test_pieces_lie_in_their_words(text: str, vocabulary: Vocabulary) -> None:
    found = vocabulary.encode(text)
    words = text.split()
    assert len(found.ids) == len(found.pieces) == len(found.words)
    assert found.words == sorted(found.words)
    composed = [unicodedata.normalize("NFC", word) for word in words]
    for piece, word in zip(found.pieces, found.words, strict=True):
        shown = piece.split()
        assert not shown or shown[0] in composed[word]
    if words:
        assert set(found.words) == set(range(len(words)))
    if vocabulary is WORDS:
        assert found.pieces == composed


@settings(deadline=None)
@given(TEXT, st.sampled_from(EVERY))
def test_text_never_becomes_a_special(text: str, vocabulary: Vocabulary) -> None:
    spelled = f"{text} <eos> <pad>{text}<bos> <unk>"
    ids = vocabulary.encode(spelled).ids
    assert not {PAD, BOS, EOS} & set(ids)
    assert vocabulary.encode_ids([spelled, ""]) == [ids, []]


@pytest.mark.parametrize("vocabulary", EVERY)
def test_a_vocabulary_comes_back_from_json(vocabulary: Vocabulary) -> None:
    again = Vocabulary.from_json(vocabulary.to_json())
    assert again.to_json() == vocabulary.to_json()
    assert (again.kind, again.split, again.lowercase) == (
        vocabulary.kind,
        vocabulary.split,
        vocabulary.lowercase,
    )
    assert again.encode_batch(LINES) == vocabulary.encode_batch(LINES)
    assert len(again) == len(vocabulary)


@pytest.mark.parametrize(
    ("kind", "split"),
    [("words", "space"), ("words", "punctuation"), ("bpe", "space"), ("characters", "space")],
)
def test_the_order_of_the_lines_does_not_matter(kind: str, split: str) -> None:
    chance = random.Random(5)
    lines = [
        " ".join(chance.choices("abcdefgh", k=3)) + chance.choice(["x", "yz", "é"])
        for _ in range(200)
    ]
    first = Vocabulary.train(lines, kind, 300, split).to_json()
    chance.shuffle(lines)
    assert Vocabulary.train(iter(lines), kind, 300, split).to_json() == first


def test_frequent_words_come_first_and_equal_ones_by_text() -> None:
    vocabulary = Vocabulary.train(["b c a é", "c d d", "<unk> <unk> <unk> <eos>"], size=9)
    assert [vocabulary.token(number) for number in range(len(vocabulary))] == [
        *SPECIALS.values(),
        "c",
        "d",
        "a",
        "b",
        "é",
    ]
    assert len(Vocabulary.train(["b c a", "c d d"], size=6)) == 6
    assert len(Vocabulary.train(["<unk> <pad> <bos> <eos> " * 2 + "a b c d"], size=7)) == 7
    assert len(Vocabulary.train(["b c a", "c d d"], min_count=2)) == 6


@pytest.mark.parametrize("vocabulary", EVERY)
def test_specials_are_the_same_everywhere(vocabulary: Vocabulary) -> None:
    assert [vocabulary.id(special) for special in ("<pad>", "<unk>", "<bos>", "<eos>")] == [
        0,
        1,
        2,
        3,
    ]
    assert [vocabulary.token(number) for number in range(4)] == ["<pad>", "<unk>", "<bos>", "<eos>"]
    assert all(
        vocabulary.id(vocabulary.token(number)) == number for number in range(len(vocabulary))
    )
    assert vocabulary.decode([BOS, EOS, PAD, UNK]) == ""


@pytest.mark.parametrize(
    ("text", "pieces", "words"),
    [
        ("l'accord  mouse.", ["l'", "accord", "mouse", "."], [0, 0, 1, 1]),
        (
            "L’été 'quoted' don't",
            ["L’", "été", "'", "quoted", "'", "don'", "t"],
            [0, 0, 1, 1, 1, 2, 2],
        ),
        ("3.5% x_y हिन्दी", ["3", ".", "5", "%", "x_y", "हिन्दी"], [0, 0, 0, 0, 1, 2]),
        ("a\x1cb\u00a0!", ["a", "b", "!"], [0, 1, 2]),
        (" ", [], []),
    ],
)
def test_punctuation_is_split_off(text: str, pieces: list[str], words: list[int]) -> None:
    found = PUNCTUATION.encode(text)
    assert (found.pieces, found.words) == (pieces, words)


def test_space_splits_where_python_does() -> None:
    text = "a\x1cb\x1fc\u2028d\u0085e\u3000f\tg\vh\u200bi"
    assert WORDS.encode(text).pieces == text.split()


def test_pieces_keep_their_capitals_and_accents() -> None:
    vocabulary = Vocabulary.train(["the été"], lowercase=True)
    found = vocabulary.encode("THE E\u0301te\u0301")
    assert found.pieces == ["THE", "Été"]
    assert vocabulary.decode(found.ids) == "the été"


def test_white_space_belongs_to_the_word_after_it() -> None:
    found = CHARACTERS.encode(" the  a ")
    assert found.words == [0, 0, 0, 0, 1, 1, 1, 1]
    assert BPE.encode("  ").words == [0] * len(BPE.encode("  ").ids)


def test_the_first_word_is_like_any_other_in_bpe() -> None:
    vocabulary = Vocabulary.train(["the cat", "the dog"] * 9, "bpe", 300)
    assert vocabulary.encode("the").ids == vocabulary.encode("cat the").ids[-1:]
    assert vocabulary.encode("the cat").pieces == ["the", " cat"]


def test_one_character_in_several_pieces_is_shown_once() -> None:
    found = Vocabulary.train(["a"], "bpe", 260).encode("x 😀")
    assert found.pieces == ["", "x", " ", "😀", "", "", ""]
    assert found.words == [0, 0, 1, 1, 1, 1, 1]


def test_unknown_words_can_be_shown() -> None:
    ids = WORDS.encode("the zebra sat").ids
    assert WORDS.decode([BOS, *ids, EOS]) == "the sat"
    assert WORDS.decode([BOS, *ids, EOS], keep_unknown=True) == "the <unk> sat"
    assert WORDS.decode(torch.tensor(ids)) == "the sat"
    assert BPE.decode([*BPE.encode("cat").ids, UNK], keep_unknown=True) == "cat<unk>"
    assert WORDS.id("zebra") == UNK
    assert WORDS.unknown_share(["the zebra sat on"]) == 0.25
    assert WORDS.unknown_share([]) == 0.0
    assert BPE.unknown_share(["the zebra 😀"]) == 0.0


def test_broken_bytes_are_still_text() -> None:
    half = BPE.encode("😀").ids[:2]
    assert "\ufffd" in BPE.decode(half)


def test_a_size_is_kept() -> None:
    assert len(Vocabulary.train(["the cat sat on the mat"] * 5, "bpe", 265)) == 265
    assert len(trained("words", size=7)) == 7
    assert len(trained("characters", size=9)) == 9


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kind": "word"}, "no kind of vocabulary named 'word'; did you mean 'words'?"),
        ({"kind": "zz"}, "no kind of vocabulary named 'zz'; there are: bpe, characters, words"),
        ({"split": "spaces"}, "no way to split words named 'spaces'; did you mean 'space'?"),
        (
            {"size": 4},
            "a words vocabulary of size 4 is too small; it holds 4 specials and 1 or more pieces, so give at least 5",
        ),
        (
            {"kind": "bpe", "size": 259},
            "size 259 is too small; it holds 4 specials and 256 or more pieces, so give at least 260",
        ),
        ({"lines": []}, "no text to learn a vocabulary from"),
        ({"lines": ["", " "], "kind": "bpe"}, "no text to learn a vocabulary from"),
        ({"lines": [None]}, "NoneType instead of text; a vocabulary takes strings"),
        ({"lines": ["a\ud800"]}, "half of a surrogate pair at column 2 of the text"),
    ],
)
def test_each_wrong_training_has_its_sentence(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(SaccadeError, match=re.escape(sentence)):
        Vocabulary.train(**{"lines": LINES, **options})  # type: ignore[arg-type]


def other_specials() -> tokenizers.Tokenizer:
    """A tokenizer as other libraries write them: the end of a text first, the unknown word last, no token for padding."""
    pieces = {"</s>": 0, "the": 1, "<s>": 2, "cat": 3, "[UNK]": 4}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(pieces, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["</s>", "<s>"])
    return tokenizer


def test_specials_may_have_other_names_and_numbers() -> None:
    names = {"pad": "</s>", "unk": "[UNK]", "bos": "<s>", "eos": "</s>"}
    found = Vocabulary(other_specials(), "words", specials=names)
    assert (found.pad, found.unk, found.bos, found.eos, len(found)) == (0, 4, 2, 0, 5)
    assert found.encode("the cat </s> zebra").ids == [1, 3, 4, 4], "text never becomes a special"
    assert found.decode([2, 1, 3, 4, 0]) == "the cat"
    assert found.decode([1, 4], keep_unknown=True) == "the [UNK]"
    assert (found.id("zebra"), found.unknown_share(["the zebra"])) == (4, 0.5)
    again = Vocabulary.from_json(found.to_json())
    assert (again.specials, again.eos, again.to_json()) == (names, 0, found.to_json())


def test_a_special_that_is_missing_is_named() -> None:
    with raises("token-missing"):
        Vocabulary(
            other_specials(),
            "words",
            specials=SPECIALS | {"unk": "[UNK]", "bos": "<s>", "eos": "</s>"},
        )


def test_our_own_vocabularies_have_the_usual_specials_and_are_written_as_before() -> None:
    assert [(v.pad, v.unk, v.bos, v.eos) for v in EVERY] == [(PAD, UNK, BOS, EOS)] * len(EVERY)
    assert list(WORDS.to_json()) == ["kind", "split", "lowercase", "tokenizer"], (
        "version 0.1.0 reads it too"
    )


def changed(**changes: object) -> dict[str, object]:
    return {**WORDS.to_json(), **changes}


def foreign(**changes: object) -> dict[str, object]:
    inner = WORDS.to_json()["tokenizer"]
    return changed(tokenizer={**inner, "model": {**inner["model"], **changes}})


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ([], 'not a vocabulary of saccade: "kind" is missing or not of type str'),
        (
            WORDS.to_json()["tokenizer"],
            '"kind" is missing or not of type str; take the vocabularies.json',
        ),
        (changed(specials=[]), '"specials" is missing or not of type dict'),
        (changed(lowercase="no"), '"lowercase" is missing or not of type bool'),
        (changed(kind="wordz"), "no kind of vocabulary named 'wordz'; did you mean 'words'?"),
        (
            changed(tokenizer={"model": 3}),
            "of its tokenizer is not as saccade writes it; take the vocabularies.json",
        ),
        (
            foreign(vocab={"a": 0, "<unk>": 1}),
            "the tokenizer has no token '<pad>' for pad; give its own name in specials",
        ),
        (changed(specials={"pad": ["x"]}), "the tokenizer has no token '['x']' for pad"),
        (
            foreign(vocab={"<pad>": 0, "<unk>": 1, "<bos>": 2, "<eos>": 3, "x": 9}),
            "the tokenizer has 5 tokens, but not the numbers 0 to 4; leave no number out",
        ),
        (foreign(unk_token="x"), "the tokenizers library refuses it"),
    ],
)
def test_each_foreign_json_has_its_sentence(entry: object, sentence: str) -> None:
    with pytest.raises(SaccadeError, match=re.escape(sentence)):
        Vocabulary.from_json(entry)


@pytest.mark.parametrize("number", [-1, len(WORDS), 10**9])
def test_a_number_out_of_range_is_named(number: int) -> None:
    for ask in (WORDS.token, lambda wrong: WORDS.decode([wrong])):
        with raises(
            "unknown-piece",
            match=f"no piece has the number {number}; the vocabulary has 0 to {len(WORDS) - 1}",
        ):
            ask(number)


def test_half_a_surrogate_pair_is_named() -> None:
    with raises("damaged-text", match="half of a surrogate pair at column 3"):
        BPE.encode("ab\udcff")


# --- labels


@pytest.fixture(scope="module")
def bytes_and_few_merges() -> Vocabulary:
    return Vocabulary.train(
        ["Ich habe viel Zeit mit Musik verbracht", "ver ver verlassen"], "bpe", 264
    )


def test_a_label_marks_where_a_word_begins(bytes_and_few_merges: Vocabulary) -> None:
    found = bytes_and_few_merges.label_text("Ich verlasse")
    assert "".join(found) == "▁Ich▁verlasse"
    assert found[0].startswith("▁")
    assert not any(" " in label or "Ġ" in label for label in found)


def test_pieces_of_one_character_show_it_with_a_part_mark(bytes_and_few_merges: Vocabulary) -> None:
    words = bytes_and_few_merges
    assert words.label_text("私é") == ["▁", "私₁", "私₂", "私₃", "é₁", "é₂"]
    assert words.label_text("🙂")[1:] == ["🙂₁", "🙂₂", "🙂₃", "🙂₄"]
    assert words.label_text("") == []
    ids = words.encode("私x").ids
    assert words.labels(ids[1:3]) == ["<0xE7>", "<0xA7>"], "a character that was cut off"
    assert words.labels(ids[3:]) == ["<0x81>", "x"]
    assert words.labels([words.eos, words.pad]) == ["<eos>", "<pad>"]


FEW = Vocabulary.train(["abc"], "bpe", 262)


@given(TEXT)
def test_no_label_of_a_text_is_empty_and_its_characters_are_all_there(text: str) -> None:
    labels = FEW.label_text(text)
    assert all(labels)
    whole = "".join(
        label for label in labels if not label.endswith(("₂", "₃", "₄")) or len(label) != 2
    )
    if not set(text) & set("₁₂₃₄▁"):
        assert (
            whole.replace("₁", "").replace("▁", " ").lstrip()
            == unicodedata.normalize("NFC", text).lstrip()
        )


def test_labels_of_words_and_characters_are_the_text_itself() -> None:
    words = Vocabulary.train(["the cat sat"], "words", 8)
    assert words.label_text("the zebra") == ["the", "zebra"], "an unknown word is shown as it is"
    assert words.labels([words.id("the"), words.unk]) == ["the", "<unk>"]
    assert Vocabulary.train(["the cat"], "characters", 20).label_text("a t") == ["a", " ", "t"]


def by_the_library(lines: list[str], size: int, lowercase: bool, min_count: int) -> Vocabulary:
    """A vocabulary of characters whose pieces the `tokenizers` library has found and ordered by itself."""
    tokenizer = vocabulary._bare_tokenizer("characters", "space", lowercase)
    options: dict[str, Any] = {
        "vocab_size": size,
        "min_frequency": min_count,
        "show_progress": False,
    }
    texts = map(vocabulary._nfc, lines)
    blank = dropwhile(lambda text: not text.strip(), texts)
    tokenizer.train_from_iterator(blank, tokenizers.trainers.WordLevelTrainer(**options))
    found = tokenizer.get_vocab()
    names = [*SPECIALS.values(), *sorted(found, key=found.__getitem__)][:size]
    model = tokenizers.models.WordLevel(
        {name: n for n, name in enumerate(names)}, unk_token=SPECIALS["unk"]
    )
    return Vocabulary(
        vocabulary._bare_tokenizer("characters", "space", lowercase, model),
        "characters",
        lowercase=lowercase,
    )


# marks that compose and marks that do not, in both orders; letters whose lower case is two, another, or depends on what follows
ODD = st.sampled_from(
    [
        *"aAeEİIıΣσςßẞÅK\u212b\u0301\u0327\u0323\u0308\u093c\u0915\u1100\u1161\u11a8\u0344\ufb01\U0001d15e"
    ]
)
ODD_TEXT = st.lists(COMMON | ODD | st.characters(exclude_categories=["Cs"]), max_size=40).map(
    "".join
)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(ODD_TEXT, min_size=1, max_size=6),
    st.integers(5, 60),
    st.booleans(),
    st.integers(1, 3),
    ODD_TEXT,
)
def test_characters_are_counted_and_numbered_as_by_the_library(
    lines: list[str], size: int, lowercase: bool, min_count: int, other: str
) -> None:
    lines = [*lines, "a"]  # at least one that is not blank
    ours = Vocabulary.train(
        iter(lines), "characters", size, lowercase=lowercase, min_count=min_count
    )
    theirs = by_the_library(lines, size, lowercase, min_count)
    assert ours.to_json() == theirs.to_json()
    texts = [*lines, other, ""]
    assert ours._numbers is not None
    assert ours.encode_ids(texts) == [found.ids for found in theirs.encode_batch(texts)]


def test_every_character_is_numbered_as_by_the_library() -> None:
    known = "".join(chr(code) for code in range(0x3000) if not 0xD800 <= code < 0xE000)
    for lowercase in (False, True):
        found = Vocabulary.train([known[:0x600]], "characters", 1000, lowercase=lowercase)
        texts = [
            "".join(map(chr, range(begin, begin + 0x400)))
            for begin in (*range(0, 0xD800, 0x400), *range(0xE000, 0x20000, 0x400))
        ]
        assert found.encode_ids(texts) == [one.ids for one in found.encode_batch(texts)]


def test_a_tokenizer_with_parts_of_its_own_is_asked_itself() -> None:
    def made(**changed: Any) -> Vocabulary:
        tokenizer = vocabulary._bare_tokenizer("characters", "space", False)
        vocab = {name: n for n, name in enumerate([*SPECIALS.values(), *"ab_"])}
        tokenizer.model = tokenizers.models.WordLevel(vocab, unk_token=SPECIALS["unk"])
        for name, value in changed.items():
            setattr(tokenizer, name, value)
        return Vocabulary(tokenizer, "characters")

    assert made().encode_ids(["ab c"]) == [[4, 5, UNK, UNK]]
    words = made(pre_tokenizer=tokenizers.pre_tokenizers.WhitespaceSplit())
    assert words.encode_ids(["ab a"]) == [[UNK, 4]]
    lower = made(normalizer=tokenizers.normalizers.Lowercase())
    assert lower.encode_ids(["AB"]) == [[4, 5]]
    added = made()
    added._tokenizer.add_tokens(["ab"])
    assert Vocabulary(added._tokenizer, "characters").encode_ids(["ab"]) == [[7]]
    specials = Vocabulary(made()._tokenizer, "characters", specials=SPECIALS | {"eos": "_"})
    assert specials.encode_ids(["a_"]) == [[4, UNK]], "a special never comes from text"
