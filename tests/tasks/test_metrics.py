"""Further metrics of texts by hand and by slow counts, and the controls that know less than a model."""

from __future__ import annotations

import math
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support import raises

from saccade import api
from saccade.config import recipes
from saccade.data.pairs import Pair
from saccade.data.vocabulary import Vocabulary
from saccade.models.protocols import Seq2Seq
from saccade.system.system import System
from saccade.tasks.metrics import (
    Exact,
    chosen,
    code_tokens,
    most_frequent,
    nearest,
    score_all,
    table,
    unigram_loss,
)
from saccade.tasks.text_to_text import TextToText

TRAIN = [
    Pair("sort a list x", "x.sort()", 1),
    Pair("sort a dict by value", "sorted(d.items())", 2),
    Pair("open a file", "open(f)", 3),
    Pair("close a file", "open(f)", 4),
]


def test_code_is_split_as_the_baseline_of_conala_splits_it() -> None:
    assert code_tokens("""myList.sort_by(key='a1')  # "x" """) == [
        *("my", "List", ".", "sort_by", "(", "key", "=", "`", "a1", "`", ")", "#", "`", "x", "`")
    ]


def slow_bleu(outputs: list[list[str]], references: list[list[str]]) -> float:
    """Papineni et al. 2002 over a whole set, without smoothing."""
    logs = 0.0
    for order in range(1, 5):
        right = total = 0
        for ours, theirs in zip(outputs, references, strict=True):
            grams = [
                Counter(tuple(text[n : n + order]) for n in range(len(text) - order + 1))
                for text in (ours, theirs)
            ]
            right += sum(min(count, grams[1][gram]) for gram, count in grams[0].items())
            total += sum(grams[0].values())
        if not right:
            return 0.0
        logs += math.log(right / total) / 4
    lengths = sum(map(len, outputs)), sum(map(len, references))
    return 100 * math.exp(min(0.0, 1 - lengths[1] / lengths[0]) + logs)


def test_bleu_of_code_is_a_slow_count() -> None:
    outputs = ["x.sort(key=len)", "sorted(d.items(), key=a)", "open('f').read()"]
    pairs = [
        Pair("a", "x.sort(key=abs)"),
        Pair("b", "sorted(d.items(), key=lambda t: t[1])"),
        Pair("c", 'open("f").read()'),
    ]
    expected = slow_bleu([*map(code_tokens, outputs)], [code_tokens(pair.target) for pair in pairs])
    assert 40 < expected < 90
    assert score_all(chosen("code"), outputs, pairs)["bleu_code"] == pytest.approx(expected)
    assert score_all(chosen("code"), ["y", "z"], pairs[:2])["bleu_code"] == 0  # nothing is smoothed


def test_rouge_by_hand() -> None:
    pairs = [Pair("…", "the early life of Anna"), Pair("…", "History")]
    found = score_all(chosen("rouge"), ["early life in Rome", "history"], pairs)
    one = 2 * (2 / 4) * (2 / 5) / (2 / 4 + 2 / 5)  # two of four words, two of five
    two = 2 * (1 / 3) * (1 / 4) / (1 / 3 + 1 / 4)
    assert found == pytest.approx(
        {"rouge_1": 50 * (one + 1), "rouge_2": 50 * two, "rouge_l": 50 * (one + 1)}
    )


def test_rouge_says_which_package_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rouge_score.rouge_scorer", None)
    with raises(
        "package-missing",
        match=r"needs the package rouge-score; install it with: pip install .*\[metrics\]",
    ):
        score_all(chosen("rouge"), ["a"], [Pair("a", "b")])


def test_attachment_counts_heads_and_relations_of_all_words() -> None:
    pairs = [Pair("the cat sat", "+1/det +1/nsubj 0/root"), Pair("go", "0/root")]
    metrics = chosen("attachment")
    # a right arc, a wrong relation, a head outside; and a tree for a sentence that is shorter
    found = score_all(metrics, ["+1/det +1/obj +1/root", "0/root -1/punct"], pairs)
    assert found == {"uas": 75.0, "las": 50.0}
    assert score_all(metrics, ["", ""], pairs) == {"uas": 0.0, "las": 0.0}
    assert score_all(metrics, [pair.target for pair in pairs], pairs) == {
        "uas": 100.0,
        "las": 100.0,
    }


def test_controls_of_parses_know_words_alone() -> None:
    train = [
        Pair("the cat sat", "+1/det +1/nsubj 0/root"),
        Pair("the big cat", "+2/det +1/amod 0/root"),
        Pair("the dog", "+1/det 0/root"),
    ]
    [metric] = chosen("attachment")
    found = metric.controls(train, [Pair("The cat barks", "…")])
    assert found == {"word": ["+1/det +1/nsubj 0/root"], "next_word": ["+1/det +1/nsubj 0/root"]}
    # "cat" has two arcs equally often, and a word that training lacks gets the most frequent of all
    assert metric.controls(train, [Pair("dog barks", "…")])["word"] == ["0/root 0/root"]


def test_the_lead_is_as_long_as_targets_are() -> None:
    # 2.5 words, rounded to an even number
    train = [Pair("a b c d", "x y"), Pair("a b c d", "x y z")]
    assert chosen("rouge")[0].controls(train, [Pair("one two three four", "…")])["lead"] == [
        "one two"
    ]


def test_the_nearest_source_is_that_of_brute_force() -> None:
    texts = ["sort the list of a dict", "open it", "close the file", "nothing known"]
    words = [Counter(pair.source.split()) for pair in TRAIN]
    idf = {
        word: math.log(len(TRAIN) / sum(word in one for one in words))
        for one in words
        for word in one
    }

    def cosine(ours: Counter[str], theirs: Counter[str]) -> float:
        norm = math.sqrt(sum((count * idf[word]) ** 2 for word, count in theirs.items()))
        return sum(ours[word] * count * idf[word] ** 2 for word, count in theirs.items()) / norm

    expected = [
        max(range(4), key=lambda n: (cosine(Counter(text.split()), words[n]), -n)) for text in texts
    ]
    assert expected == [0, 2, 3, 0]
    assert nearest(TRAIN, [Pair(text, "") for text in texts]) == [TRAIN[n].target for n in expected]
    assert most_frequent(pair.target for pair in TRAIN) == "open(f)"


def test_the_unigram_loss_by_hand() -> None:
    # ids 0 to 4, 4 ends texts: counts 0 2 1 0 2 and one more each
    losses = [-math.log(count / 10) for count in (3, 1, 3)]
    assert unigram_loss([[1, 1], [2]], [[1, 3]], 5, 4) == pytest.approx(sum(losses) / 3)


def test_metrics_are_chosen_by_name() -> None:
    assert [type(one) for one in chosen("code, rouge")] == [table["code"], table["rouge"]]
    assert chosen("") == []
    with raises("unknown-name", match="no metric named 'bleurt'"):
        recipes.recipe(
            {"task": "text-to-text", "model": {"family": "bahdanau"}, "data": {"metrics": "bleurt"}}
        )


def system(**data: Any) -> System:
    values = {
        "task": "text-to-text",
        "model": {"family": "bahdanau", "dim": 8, "hidden": 8},
        "data": data,
    }
    return api.build({**values, "vocabulary": {"kind": "words"}}, TRAIN)


def test_an_evaluation_has_the_chosen_metrics_and_those_of_controls(tmp_path: Path) -> None:
    file = tmp_path / "train.tsv"
    file.write_text(
        "source\ttarget\n" + "".join(f"{pair.source}\t{pair.target}\n" for pair in TRAIN),
        encoding="utf-8",
    )
    made = system(train=str(file), dev=str(file), metrics="code")
    plain = made.evaluate(TRAIN)
    found = made.evaluate(TRAIN, controls=True)
    assert {name: found[name] for name in plain} == plain
    assert plain["perplexity"] == pytest.approx(math.exp(plain["loss"]))
    assert (found["exact_nearest"], found["bleu_code_nearest"]) == pytest.approx((100, 100))
    assert found["exact_frequent"] == 50
    moved = [
        Pair(TRAIN[(n + 2) % 4].source, pair.target, pair.line) for n, pair in enumerate(TRAIN)
    ]
    assert found["perplexity_other_source"] == pytest.approx(made.evaluate(moved)["perplexity"])
    assert found["exact_other_source"] == made.evaluate(moved)["exact"]
    assert "bleu_code_nearest" not in plain
    sums = made.task.per_example(made.model, TRAIN, controls=True).sums
    assert {"bleu", "chrf", "gleu", "exact", "bleu_code"} == set(sums)
    for name in ("exact", "bleu_code"):
        counts, score = sums[name]
        assert score(counts.sum(0)) == plain[name]


def test_a_model_that_knows_its_source_beats_that_of_another_source() -> None:
    words = Vocabulary.train(["a b c d e f g h"], "words")
    pairs = [Pair(one, one, n) for n, one in enumerate("abcdefgh", 1)]
    task = TextToText(words, words)

    class Copying(torch.nn.Module):
        """Finds the source's word likeliest, then the end."""

        def __init__(self, model: Any) -> None:
            super().__init__()
            self.inner = model

        def forward(
            self, source: torch.Tensor, lengths: torch.Tensor, read: torch.Tensor
        ) -> torch.Tensor:
            logits = self.inner(source, lengths, read) * 0
            logits[torch.arange(len(source)), 0, source[:, 0]] += 3
            logits[:, 1, words.eos] += 3
            return logits

    model = Copying(
        recipes.Builder({"family": "bahdanau", "dim": 4, "hidden": 4}).make(
            Seq2Seq, len(words), len(words)
        )
    )
    right = task.metrics(model, task.numbers(pairs))["loss"]
    wrong = task.metrics(
        model,
        task.numbers(
            [
                Pair(far.source, one.target)
                for one, far in zip(pairs, pairs[4:] + pairs[:4], strict=True)
            ]
        ),
    )
    total = math.log(math.exp(3) + len(words) - 1)
    assert right == pytest.approx(total - 3, abs=1e-5)
    assert wrong["loss"] == pytest.approx(total - 1.5, abs=1e-5)


def test_exact_ignores_space_around_texts() -> None:
    assert score_all([Exact()], ["a ", "b"], [Pair("", "a"), Pair("", "c")]) == {"exact": 50.0}
