"""BLEU where no spaces separate words: the tokenizer is chosen by the script, said in the signature, and also chooses the best model."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from saccade.config import recipes
from saccade.data.pairs import Pair
from saccade.data.unspaced_scripts import length, unspaced_script
from saccade.data.vocabulary import Vocabulary
from saccade.recipe import TOKENIZERS
from saccade.tasks.text_scores import bleu_metric, bleu_tokenizer, scores, with_copies, word_links
from saccade.tasks.translation import Translation
from support import error_of

CHINESE = ["今天天气很好，我们去公园吧。", "我昨天买了一本新书。", "他喜欢在早上喝咖啡。"]
JAPANESE = ["私は昨日新しい本を買いました。", "彼は朝コーヒーを飲むのが好きです。"]
THAI = ["วันนี้อากาศดีมากเราไปสวนสาธารณะกันเถอะ"]
ENGLISH = ["the cat sat on the mat .", "I like coffee in the morning ."]
JA = "ja-mecab" if find_spec("MeCab") and find_spec("ipadic") else "char"


@pytest.mark.parametrize(
    ("texts", "script", "tokenizer"),
    [
        (CHINESE, "Han", "zh"),
        (JAPANESE, "kana", JA),
        (THAI, "Thai", "char"),
        (["ມື້ນີ້ອາກາດດີຫຼາຍພວກເຮົາໄປສວນ"], "Lao", "char"),
        (["ថ្ងៃនេះអាកាសធាតុល្អណាស់យើងទៅសួន"], "Khmer", "char"),
        (ENGLISH, "", "13a"),
        (["오늘 날씨가 아주 좋습니다 ."], "", "13a"),
        ([" ".join(text) for text in CHINESE], "", "13a"),  # segmented already
        (["私 は 昨日 新し い 本 を 買 い ま し た 。"], "", "13a"),
        (["He wrote 你好世界你好 to all of the others in his group"], "", "13a"),
        ([], "", "13a"),
    ],
)
def test_the_tokenizer_fits_the_script(texts: list[str], script: str, tokenizer: str) -> None:
    assert unspaced_script(texts) == script
    name, note = bleu_tokenizer("auto", texts)
    assert name == tokenizer
    assert bool(note) == bool(script)


def test_a_good_translation_without_spaces_has_a_bleu_above_0() -> None:
    outputs = [CHINESE[0].replace("公园", "学校"), *CHINESE[1:]]
    assert scores(outputs[:1], CHINESE[:1])["bleu"] == 0.0, "13a sees one word"
    found = scores(outputs, CHINESE, tokenize=bleu_tokenizer("auto", CHINESE)[0])
    assert 60 < float(found["bleu"]) < 100
    assert "|tok:zh|" in str(found["bleu_signature"])
    assert "|tok:13a|" in str(scores(ENGLISH, ENGLISH)["bleu_signature"])


def test_a_tokenizer_that_does_not_fit_is_used_with_a_warning() -> None:
    assert (
        bleu_tokenizer("13a", CHINESE)[1]
        == "does not split Han without spaces between words, so that a sentence is one word; use zh, ja-mecab or char"
    )
    assert bleu_tokenizer("char", CHINESE) == ("char", "")


@pytest.mark.parametrize("name", ["ja-mecab", "ko-mecab", "flores200", "spm"])
def test_a_missing_package_has_its_line_for_pip(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import sacrebleu

    def missing(**_: Any) -> Any:
        raise RuntimeError if "mecab" in name else ImportError

    monkeypatch.setattr(sacrebleu, "BLEU", missing)
    package = {"ja-mecab": "'sacrebleu[ja]'", "ko-mecab": "'sacrebleu[ko]'"}.get(
        name, "sentencepiece"
    )
    assert (
        error_of(lambda: bleu_metric(name))
        == f"the tokenizer {name} needs more packages; install them with: pip install {package}"
    )


def test_names_are_those_of_sacrebleu() -> None:
    from sacrebleu.metrics.bleu import BLEU

    assert set(TOKENIZERS) - {"auto"} <= set(BLEU.TOKENIZERS)
    assert error_of(lambda: bleu_metric("zhh")).startswith(
        "no tokenizer for BLEU named 'zhh'; did you mean 'zh'?"
    )
    assert "data.tokenize is 'zhh'" in error_of(
        lambda: recipes.recipe({"model": {"family": "luong"}, "data": {"tokenize": "zhh"}})
    )


def test_tokenized_text_is_scored_without_a_word_of_sacrebleus(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        scores(["the cat sat ."] * 200, ["the cat sat ."] * 200)
    assert caplog.records == []


class Fixed(nn.Module):
    """A model with a parameter, whose outputs are set by the test."""

    def __init__(self) -> None:
        super().__init__()
        self.parameter = nn.Parameter(torch.zeros(1))


def chinese(
    tokenize: str = "auto", watch: str = "bleu"
) -> tuple[recipes.Recipe, Translation, list[Pair]]:
    recipe = recipes.recipe(
        {
            "data": {"tokenize": tokenize},
            "vocabulary": {"kind": "characters"},
            "model": {"family": "luong"},
            "training": {"watch": watch},
        }
    )
    pairs = [Pair("the weather is nice", text, n) for n, text in enumerate(CHINESE, 1)]
    return recipe, Translation.learn(recipe, pairs), pairs


def test_the_best_model_is_chosen_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, task, pairs = chinese()
    work = task.work(recipe, pairs, pairs, torch.device("cpu"))
    assert work.notes == (
        "BLEU on dev: the tokenizer zh is chosen for Han without spaces between words",
    )
    outputs = [CHINESE[0].replace("公园", "学校"), *CHINESE[1:]]
    monkeypatch.setattr(Translation, "outputs", lambda *_, **__: (outputs, 0))
    monkeypatch.setattr(Translation, "metrics", lambda *_: {"loss": 1.0})
    assert work.evaluate(Fixed())["bleu"] == scores(outputs, CHINESE, tokenize="zh")["bleu"]
    forced, task, pairs = chinese("char")
    assert (
        task.work(forced, pairs, pairs, torch.device("cpu")).evaluate(Fixed())["bleu"]
        == scores(outputs, CHINESE, tokenize="char")["bleu"]
    )


def test_an_evaluation_takes_the_recipes_or_another(monkeypatch: pytest.MonkeyPatch) -> None:
    _, task, pairs = chinese()
    monkeypatch.setattr(Translation, "outputs", lambda *_, **__: (CHINESE, 0))
    monkeypatch.setattr(Translation, "metrics", lambda *_: {"loss": 1.0})
    found = task.evaluate(Fixed(), pairs, quarters=True)
    assert found["bleu_tokenizer"] == "zh is chosen for Han without spaces between words"
    assert "|tok:zh|" in found["bleu_signature"]
    assert [row["bleu"] for row in found["by_length"]][-1] == pytest.approx(100)
    assert not [row for row in found["by_length"] if "unit" in row], "words"
    assert "|tok:char|" in task.evaluate(Fixed(), pairs, tokenize="char")["bleu_signature"]
    turned = [Pair(pair.target, pair.source, pair.line) for pair in pairs]
    monkeypatch.setattr(
        Translation, "outputs", lambda *_, **__: ([pair.source for pair in pairs], 0)
    )
    rows = task.evaluate(Fixed(), turned, quarters=True)["by_length"]
    assert {row["unit"] for row in rows} == {"characters"}
    assert (rows[0]["shortest"], rows[-1]["longest"]) == (
        min(map(len, CHINESE)),
        max(map(len, CHINESE)),
    )


def test_lengths_are_in_characters_or_words() -> None:
    assert length("今天 天气", "Han") == 4
    assert length("two words", "") == 2


def test_links_are_of_characters_where_no_spaces_are() -> None:
    english, han = (
        Vocabulary.train(["the nice weather"], "words"),
        Vocabulary.train(["天气很好"], "characters"),
    )
    source, target = english.encode("nice weather"), han.encode("天气好")
    weights = np.array([[0.1, 0.8, 0.1], [0.2, 0.7, 0.1], [0.7, 0.2, 0.1], [0, 0, 1]])
    assert word_links(weights, source, target, ("", "Han")) == [(1, 0), (1, 1), (0, 2)]
    assert word_links(weights, source, target) == [(1, 0)], "as one word, it says little"
    pieces = Vocabulary.train(["天气很好"] * 9, "bpe", 270).encode("天气")
    links = word_links(np.eye(len(pieces.ids) + 1), pieces, pieces, ("Han", "Han"))
    assert [target for _, target in links] == [0, 1], "a character of several pieces is one"


def test_a_copied_word_has_its_link() -> None:
    assert with_copies([(6, 0), (4, 1), (5, 2)], ((3, 3),)) == [(6, 0), (4, 1), (5, 2), (3, 3)]
    assert with_copies([(6, 0), (4, 1)], ((3, 1),)) == [(6, 0), (3, 1)]
