"""Norms, tf·idf and similarity against numbers by hand; the slides' questions against what is plain to see."""

from __future__ import annotations

import math

import numpy as np
import pytest
from calculating import check_every_number

from saccade.teaching.explain import word_numbers as corpus
from saccade.teaching.explain.quiz import Question, explain_quiz, questions
from saccade.teaching.explain.word_numbers import (
    SLIDE,
    SLIDE_WORDS,
    explain_similar,
    explain_tf_idf,
    slide_vectors,
)
from saccade.teaching.explain.worked_attention import choose_parts
from saccade.teaching.explain.worked_norms import explain_norm
from support import error_of

X = np.array([[1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]], dtype=float)


def by_hand(name: str, x: np.ndarray) -> np.ndarray:
    out = np.empty_like(x)
    for i in range(len(x)):
        for j in range(x.shape[1]):
            group = x[:, j] if name == "batch" else x[i]
            if name == "rms":
                out[i, j] = x[i, j] / math.sqrt(sum(v * v for v in group) / len(group) + 1e-6)
                continue
            mean = sum(group) / len(group)
            out[i, j] = (x[i, j] - mean) / math.sqrt(
                sum((v - mean) ** 2 for v in group) / len(group) + 1e-5
            )
    return out


@pytest.mark.parametrize("name", ["layer", "batch", "rms"])
@pytest.mark.parametrize("words", [None, ["the", "black", "cat", "sat", "down"]])
def test_a_norm_by_hand(name: str, words: list[str] | None) -> None:
    found = explain_norm(name, words)
    assert words is not None or (found.x == X).all()
    np.testing.assert_allclose(found.outputs, by_hand(name, found.x), rtol=1e-10, atol=1e-12)
    assert check_every_number(found) > 10


def test_the_slides_slips_are_named_with_the_layer_norm() -> None:
    text = " ".join(step.text for step in explain_norm("layer").steps())
    for right in ("the mean becomes 0", "a sum without 1/d", "√(σ² + ε)"):
        assert right in text
    assert "For 'input 1': μ = (1 + 0 + 1 + 0) / 4 = 0.5000." in text
    np.testing.assert_allclose(explain_norm("layer").outputs.mean(1), 0, atol=1e-12)
    np.testing.assert_allclose(explain_norm("batch").outputs.mean(0), 0, atol=1e-12)


def test_norms_that_cannot_be_explained() -> None:
    assert (
        error_of(lambda: explain_norm("layr"))
        == "no norm to explain named 'layr'; did you mean 'layer'?"
    )
    assert error_of(lambda: explain_norm("batch", ["cat"])).startswith(
        "expected at least 2 inputs for a norm over the batch, got 1"
    )
    assert explain_norm("layer", ["cat"]).outputs.shape == (1, 4), (
        "one row is enough for the others"
    )


# --- tf·idf


def test_david_weighs_nothing_and_beckham_something() -> None:
    found = explain_tf_idf(lambda: corpus.LECTURE, "lecture")
    assert found.documents == 5
    weights = {one["word"]: one for one in found.highest if one["document"] == 1}
    assert weights["beckham"]["tf_idf"] == pytest.approx(1 / 6 * math.log(5 / 1), abs=1e-6)
    assert "david" not in weights, "in every document"
    assert check_every_number(found) > 20


def test_tf_idf_by_hand_of_every_word() -> None:
    lines = ["a b b c", "a c d", "a b", "", "A c c-c it's"]
    found = explain_tf_idf(lambda: iter(lines), "mine")
    texts = [["a", "b", "b", "c"], ["a", "c", "d"], ["a", "b"], [], ["a", "c", "c-c", "it's"]]
    every = []
    for n, text in enumerate(texts, 1):
        for word in set(text):
            held = sum(word in other for other in texts)
            every.append((text.count(word) / len(text) * math.log(5 / held), n, word))
    assert len(found.highest) == len(every)
    for one in found.highest:
        [expected] = [
            value for value, n, word in every if (n, word) == (one["document"], one["word"])
        ]
        assert one["tf_idf"] == pytest.approx(expected, abs=1e-6)
    values = [one["tf_idf"] for one in found.highest]
    assert values == sorted(values, reverse=True)


def test_only_the_highest_are_kept_of_a_large_corpus() -> None:
    found = explain_tf_idf(
        lambda: (f"common word{n} " + "again " * (n % 3) for n in range(500)), "large"
    )
    assert (found.documents, found.words, len(found.highest)) == (500, 502, 20)
    assert all(one["word"].startswith("word") for one in found.highest)
    assert all(one["tf_idf"] == pytest.approx(math.log(500) / 2, rel=1e-5) for one in found.highest)


def test_a_corpus_without_words_and_one_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        error_of(lambda: explain_tf_idf(lambda: ["", "…"], "x.txt"))
        == "x.txt has no words in 2 lines; give one document per line"
    )
    monkeypatch.setattr(corpus, "MAX_WORDS", 3)
    assert "more than 3 different words" in error_of(
        lambda: explain_tf_idf(lambda: ["a b c d"], "x.txt")
    )
    monkeypatch.setattr(corpus, "MAX_DOCUMENTS", 1)
    assert "more than 1 documents" in error_of(lambda: explain_tf_idf(lambda: ["a", "b"], "x.txt"))


# --- similarity


def test_dog_and_cat_of_the_slide() -> None:
    vectors = slide_vectors(["dog", "cat"])
    assert vectors is not None
    found = explain_similar(["dog", "cat"], vectors, SLIDE, SLIDE_WORDS)
    assert found.pearson == pytest.approx(0.9968, abs=5e-5)
    assert found.cosine == pytest.approx(0.9997, abs=5e-5)
    assert found.pearson == pytest.approx(np.corrcoef(*vectors)[0, 1])
    assert found.one_hot == {"cosine": 0.0, "pearson": -1 / 2999}
    hot = np.eye(SLIDE_WORDS)[:2]
    assert np.corrcoef(*hot)[0, 1] == pytest.approx(found.one_hot["pearson"])
    assert "0.996." in found.steps()[3].text
    check_every_number(found)
    assert slide_vectors(["dog", "mouse"]) is None
    same = explain_similar(["cat", "cat"], vectors[[1, 1]], SLIDE, SLIDE_WORDS)
    assert (same.cosine, same.one_hot["cosine"]) == (pytest.approx(1), 1.0)


# --- the quiz


def test_the_slides_questions_and_their_answers() -> None:
    asked, _ = questions()
    answers = {one.text: one.answers for one in asked}
    assert answers["How many weight matrices are learned in this example?"] == ["3"]
    assert answers["How many numbers are learned in all?"] == ["36"]
    assert answers["To which input(s) is input 1 most related?"] == ["input 2", "input 3"]
    assert answers["To which input(s) is input 2 most related?"] == ["input 2"]
    assert answers["To which input(s) is input 3 most related?"] == ["input 2"]
    assert answers["Why do we learn the three weight matrices?"] == []
    assert answers["What does each row of weights add up to?"] == ["1"]


def test_answers_follow_the_sentence_and_the_parts() -> None:
    plain = {one.text: one.answers for one in questions(["a", "b"], choose_parts(plain=True))[0]}
    assert plain["How many weight matrices are learned in this example?"] == ["0"]
    assert "Why do we learn the three weight matrices?" not in plain
    additive = {one.text: one.answers for one in questions(None, choose_parts(score="additive"))[0]}
    assert "Why a dot product?" not in additive
    assert additive["How many numbers are learned in all?"] == [str(36 + 3 * 3 + 3 * 3 + 3)]
    heads, worked = questions(None, choose_parts(heads=2))
    [second] = [one for one in heads if one.text == "What does input 2 focus on most in head 2?"]
    assert second.answers == [
        worked.tokens[n]
        for n in np.flatnonzero(np.isclose(worked.weights[1, 1], worked.weights[1, 1].max()))
    ]
    causal = {one.text: one.answers for one in questions(None, choose_parts(mask="causal"))[0]}
    assert causal["To which input(s) is input 1 most related?"] == ["input 1"]


@pytest.mark.parametrize(
    ("given", "right"),
    [
        ("input 2 and input 3", True),
        ("Input 3, input 2", True),
        ("input 2", False),
        ("inputs 2 and 3", True),
        ("", False),
        ("input 2 input 3 input 1", False),
    ],
)
def test_an_answer_must_name_all_and_no_more(given: str, right: bool) -> None:
    assert Question("?", ["input 2", "input 3"], "").is_right(given) is right
    assert Question("?", ["3"], "").is_right("3") is True
    assert Question("?", ["<b>"], "").is_right("<b>") is True
    assert Question("?", ["!"], "").is_right("!") is True
    assert Question("?", ["!"], "").is_right("?") is False
    assert Question("?", ["3"], "").is_right("13") is False
    assert Question("?", [], "").is_right("because") is None


def test_answers_are_shown_only_when_asked_for() -> None:
    asked, answered = explain_quiz(), explain_quiz(answers=True)
    assert "answers" not in asked.questions[0]
    assert answered.questions[0]["answers"] == ["3"]
    assert "input 2 and input 3." not in str(asked)
    assert "input 2 and input 3." in str(answered)
