"""A model as one object: a str is one text, a list is many; results are small, print short, save themselves and show in a notebook."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import saccade
from saccade.data.conllu import Sentence
from saccade.data.documents import Document as Text
from saccade.data.labeled import Labeled
from saccade.data.pairs import Pair
from saccade.system.system import System, model_files
from saccade.training.checkpoints import RunFolder
from support import error_of

SMALL = {"heads": 2, "depth": 1, "dim": 8, "hidden": 8, "dropout": 0.0}
EXAMPLES: dict[str, list[Any]] = {
    "translation": [Pair("the black cat", "le chat noir", 1), Pair("a dog", "un chien", 2)],
    "classification": [Labeled("a good film", "good", 1), Labeled("a bad film", "bad", 2)],
    "tagging": [Sentence(("the", "black", "cat"), ("DET", "ADJ", "NOUN"), 1)],
    "language-modelling": [Text("the cat saw the dog", 1), Text("a dog", 2)],
}
FAMILIES = {"translation": "transformer", "language-modelling": "transformer-decoder"}


def make(task: str, **more: Any) -> System:
    model = {"family": FAMILIES.get(task, "transformer-encoder"), **SMALL, **more}
    return saccade.build(
        {"task": task, "model": model, "vocabulary": {"kind": "words"}, "device": "cpu"},
        EXAMPLES[task],
    )


@pytest.fixture(scope="module")
def models() -> dict[str, System]:
    return {task: make(task) for task in EXAMPLES}


def words_of(document: str) -> str:
    """What a browser shows of HTML, tags left out."""
    return html.unescape(re.sub(r"<[^>]*>", " ", document))


# --- one text or many


def test_a_text_is_one_text_and_a_list_is_many(models: dict[str, System]) -> None:
    m = models["translation"]
    one, many = m.translate("the black cat"), m.translate(["the black cat", "a dog"])
    assert isinstance(many, list)
    assert [found.source for found in many] == ["the black cat", "a dog"]
    assert many[0].text == one.text
    assert m.decode("the black cat") == m.translate(iter(["the black cat"]))[0] == one
    assert saccade.translate(m, "the black cat") == saccade.decode(m, "the black cat") == one
    c = models["classification"]
    assert (
        c.classify("a good film")
        == c.classify(("a good film",))[0]
        == saccade.classify(c, "a good film")
    )
    assert [found.pieces[0] for found in c.classify(["a good film", "bad"])] == ["a", "bad"]
    assert m.translate([]) == c.classify([]) == []
    assert c.unknown_words("zebra film") == ["zebra"]


def test_a_sentence_to_tag_may_be_a_text_words_or_a_sentence(models: dict[str, System]) -> None:
    m, words = models["tagging"], ("the", "black", "cat")
    one = m.tag("the black cat")
    assert list(one.words) == list(words)
    assert one == m.tag(Sentence(words)) == list(one)
    several = m.tag(["the black cat", ["the", "black", "cat"], words, Sentence(words, None, 7)])
    assert several == [one] * 4
    assert [len(found) for found in m.tag(["the cat", "cat"])] == [2, 1], (
        "a list of texts is a list of sentences"
    )
    assert m.tag([]) == []


@pytest.mark.parametrize(
    ("task", "work", "sentence"),
    [
        ("translation", lambda m: m.translate(5), 'expected a text or a list of texts, got int; write m.translate("your sentence")'),
        ("translation", lambda m: m.translate(None), "got NoneType; write m.translate("),
        ("translation", lambda m: m.translate(b"the cat"), "got bytes; write m.translate("),
        ("translation", lambda m: m.translate(["the cat", 5]), "expected texts, got int as number 2; write m.translate("),
        ("translation", lambda m: m.decode([["the", "cat"]]), "expected texts, got list as number 1"),
        ("translation", lambda m: m.look(["the cat"]), "expected one text, got list; look at one at a time: m.look(text)"),
        ("translation", lambda m: m.align("the cat"), "example 1 is \"('the cat', None)\"; expected (source, target)"),
        ("translation", lambda m: m.align([("the", "cat", "x")]), "expected (source, target)"),
        ("translation", lambda m: m.evaluate([("the cat",)]), "expected (source, target)"),
        ("translation", lambda m: m.evaluate(None), 'got NoneType; write m.evaluate("test.tsv")'),
        ("translation", lambda m: m.evaluate("nowhere.tsv"), "no file 'nowhere.tsv'"),
        ("classification", lambda m: m.classify(3.5), 'got float; write m.classify("your text")'),
        ("classification", lambda m: m.evaluate(["a good film"]), "expected (text, label)"),
        ("classification", lambda m: m.evaluate([("a film", "goood")]), "the label 'goood' was never seen in training; did you mean 'good'?"),
        ("tagging", lambda m: m.tag([5]), "sentence 1 is '5'; expected a text, a list of words or a Sentence"),
        ("tagging", lambda m: m.tag(["the cat", [1, 2]]), "sentence 2 is '[1, 2]'; expected a text"),
        ("tagging", lambda m: m.tag("  "), "sentence 1 has no words; give at least one"),
        ("tagging", lambda m: m.tag(["cat", []]), "sentence 2 has no words"),
        ("tagging", lambda m: m.translate("the cat"), 'a tagging model cannot translate; use m.tag("your sentence")'),
        ("language-modelling", lambda m: m.generate(["a", "b"]), "expected one text to continue, got list; write m.generate("),
        ("language-modelling", lambda m: m.generate(temprature=2), "language-modelling has no option 'temprature'; did you mean 'temperature'?"),
        ("language-modelling", lambda m: m.generate(sample={"temp": 2}), "sampling has no option 'temp'"),
        ("language-modelling", lambda m: m.generate(sample={"top_k": 2}, seed=1), "seed and sample were both given; leave sample out"),
        ("language-modelling", lambda m: m.generate("the", limit=0), "the limit is 0, expected 1 to 1,000,000"),
        ("translation", lambda m: m.translate("a", beam=3, top_k=2), "a beam and sampling were both asked for; leave out beam, or"),
        ("translation", lambda m: m.translate("a", seed=3), "a seed is for sampling; give temperature, top_k or top_p with it"),
    ],
)  # fmt: skip
def test_what_is_not_a_text_is_answered_with_what_to_write(
    models: dict[str, System], task: str, work: Any, sentence: str
) -> None:
    assert sentence in error_of(lambda: work(models[task]))


def test_a_wrong_method_is_answered_in_the_words_of_whoever_asked(
    models: dict[str, System],
) -> None:
    with pytest.raises(saccade.SaccadeError) as error:
        models["classification"].translate("a")
    assert (
        str(error.value) == 'a classification model cannot translate; use m.classify("your text")'
    )
    assert (
        error.value.shell
        == 'a classification model cannot translate; use `saccade classify MODEL "your text"`'
    )
    with pytest.raises(saccade.SaccadeError) as error:
        models["tagging"].evaluate("test", quarters=True)
    assert "has no option 'quarters'" in str(error.value)
    assert "has no option 'lengths'" in error.value.shell


def test_options_are_keywords_and_the_old_mapping_works(models: dict[str, System]) -> None:
    m, texts = models["translation"], ["the black cat", "a dog"]
    hot = [m.translate(texts, temperature=3.0, seed=seed) for seed in (1, 1, 2)]
    assert hot[0] == hot[1] != hot[2]
    assert (
        hot[0]
        == m.decode(texts, sample={"temperature": 3.0, "seed": 1})
        == m.decode(texts, 1, 1.0, {"temperature": 3.0, "seed": 1})
    )
    assert m.translate(texts, top_k=1) == m.translate(texts, temperature=0.0) == m.translate(texts)
    assert m.translate("a dog", beam=4).alternatives
    g = models["language-modelling"]
    new, old = (
        g.generate("the", 9, top_k=3, seed=5).text,
        g.generate("the", 9, {"top_k": 3, "seed": 5}).text,
    )
    assert new == old != g.generate("the", 9, top_k=3, seed=6).text


# --- what comes back


def test_generated_text_streams_and_is_a_text_in_the_end(models: dict[str, System]) -> None:
    m, asked = models["language-modelling"], {"limit": 6, "seed": 1, "temperature": 2.0}
    stream = m.generate("the cat", **asked)
    first = next(stream)
    assert "so far" in repr(stream)
    rest = list(stream)
    assert (
        stream.text == str(stream) == "".join([first, *rest]) == m.generate("the cat", **asked).text
    )
    assert stream.text in words_of(m.generate("the cat", **asked)._repr_html_())
    assert stream.prompt == "the cat"


def test_results_are_what_they_are_called_and_hold_arrays(models: dict[str, System]) -> None:
    translated = models["translation"].translate("the black cat")
    assert str(translated) == translated.text == translated
    text, log_prob = translated
    assert (text, log_prob, translated.source) == (
        translated.text,
        translated.log_prob,
        "the black cat",
    )
    classified = models["classification"].classify("a good film")
    label, probability = classified
    assert (str(classified), classified.probabilities[label]) == (label, probability)
    assert isinstance(classified.weights, np.ndarray)
    assert classified.weights.shape == (len(classified.pieces),)
    tagged = models["tagging"].tag("the black cat")
    assert tagged.pairs == list(zip(["the", "black", "cat"], tagged, strict=True))
    assert tagged.probabilities.shape == (3, len(tagged.labels))
    np.testing.assert_allclose(tagged.probabilities.sum(1), 1)
    assert [tagged.labels[n] for n in tagged.probabilities.argmax(1)] == list(tagged)
    aligned = models["translation"].align("the black cat", "le chat noir")
    assert list(aligned) == aligned.links
    assert aligned == models["translation"].align([("the black cat", "le chat noir")])[0]
    assert aligned != models["translation"].align([Pair("the black cat", "un chien")])[0]
    assert aligned.weights.shape == (4, 4)
    for found in (translated, classified, tagged, aligned):
        assert len(repr(found)) < 130
        assert "\n" not in repr(found)
        assert repr(found).startswith(f"{type(found).__name__}(")


@pytest.mark.parametrize("task", sorted(EXAMPLES))
def test_a_result_is_saved_as_a_picture_a_page_or_numbers(
    models: dict[str, System], task: str, tmp_path: Path
) -> None:
    m = models[task]
    results: dict[str, Any] = {
        "translation": lambda: [
            m.translate("the <b> cat"),
            m.align("the black cat", "le chat noir"),
            m.look("the cat"),
        ],
        "classification": lambda: [m.classify("a <b> film"), m.look("a film")],
        "tagging": lambda: [m.tag("the <b> cat"), m.look("the cat")],
        "language-modelling": lambda: [m.look("the cat")],
    }
    for one in results[task]():
        for kind, begin in {"svg": b"<?xml", "html": b"<!doctype html>", "json": b"{"}.items():
            assert one.save(tmp_path / f"x.{kind}").read_bytes().startswith(begin)
        assert json.loads((tmp_path / "x.json").read_text())
        assert "cannot draw to 'x.gif'" in error_of(lambda one=one: one.save("x.gif"))
        assert "<b>cat" not in one._repr_html_()
        assert "<script" not in re.sub(r'srcdoc="[^"]*"', "", one._repr_html_())


def test_a_look_is_a_document_of_arrays(models: dict[str, System]) -> None:
    m = models["translation"]
    document = m.look("the black cat", target="le chat noir")
    assert document == m.look("the black cat", "le chat noir")
    site = document["decoder.0.cross"]
    assert site.weights.shape == (2, 4, 4)
    np.testing.assert_allclose(site.weights.sum(-1), 1, atol=1e-5)
    own = m.translate("the black cat")
    assert own.document == m.look("the black cat")
    assert saccade.show(m, "the black cat") == m.look("the black cat")


def test_a_shared_block_is_shown_pass_by_pass() -> None:
    document = make("translation", depth=2, stack="shared").look("the black cat", "le chat noir")
    names = [site.name for site in document]
    assert [name for name in names if "cross" in name] == [
        "decoder.0.cross, pass 1",
        "decoder.0.cross, pass 2",
    ]
    assert document[0].weights.shape == (2, 4, 4)


def test_an_evaluation_takes_examples_plain_values_or_a_path(
    models: dict[str, System], tmp_path: Path
) -> None:
    m = models["translation"]
    (tmp_path / "test.tsv").write_text("the black cat\tle chat noir\na dog\tun chien\n")
    plain = m.evaluate([("the black cat", "le chat noir"), ("a dog", "un chien")], beam=2)
    assert (
        plain
        == m.evaluate(EXAMPLES["translation"], beam=2)
        == m.evaluate(tmp_path / "test.tsv", beam=2)
    )
    assert plain == saccade.evaluate(m, str(tmp_path / "test.tsv"), beam=2)
    assert plain["sentences"] == 2
    assert "bleu" in words_of(plain._repr_html_())
    assert models["classification"].evaluate([("a good film", "good")])["texts"] == 1
    assert (
        models["tagging"].evaluate([("the cat", "DET NOUN"), (["the"], ["DET"])])["sentences"] == 2
    )
    assert models["language-modelling"].evaluate(["the cat saw the dog"])["documents"] == 1
    (tmp_path / "wrong.tsv").write_text("a film\tgoood\n")
    assert error_of(lambda: models["classification"].evaluate(tmp_path / "wrong.tsv")).startswith(
        f"{tmp_path}/wrong.tsv, line 1: "
    )


def test_a_system_is_one_line_and_a_small_table(models: dict[str, System], tmp_path: Path) -> None:
    m = models["translation"]
    count = sum(one.numel() for one in m.model.parameters())
    start = f"System(translation, transformer, {count:,} parameters, vocabulary {len(m.task.source)} + {len(m.task.target)}, folder "
    assert repr(m) == f"{start}none, in memory)"
    RunFolder(tmp_path, model_files(m)).save("best", m.model)
    again = saccade.load(tmp_path)
    assert repr(again) == f"{start}{tmp_path}/best)"
    assert again.folder == tmp_path / "best"
    shown = words_of(again._repr_html_())
    assert all(
        word in shown
        for word in ("translation", "transformer", f"{count:,}", str(tmp_path), "m.translate(")
    )
    assert again._repr_html_().count("<table>") == 1


# --- in a notebook


def test_a_view_carries_everything_and_clashes_with_nothing(models: dict[str, System]) -> None:
    document = models["translation"].look("the <script>alert(1)</script> cat", "le chat")
    view = document._repr_html_()
    [frame] = re.findall(r'<iframe [^>]*srcdoc="([^"]*)"></iframe>', view)
    assert re.fullmatch(
        r'<iframe title="[^"<>]*" style="width:100%;height:\d+px;[^"<>]*" srcdoc="[^"<>]*"></iframe>',
        view,
    )
    page = html.unescape(frame)
    assert page.startswith("<!doctype html>")
    assert document.to_json() in page
    assert not re.findall(r"""(?:src|href)=["'](?!data:)""", page), "nothing is fetched"
    assert "alert(1)</script>" not in page
    assert " id=" not in view, "two views in one notebook share no name"
    site = document[0]._repr_html_()
    assert site.startswith("<iframe")
    assert site != view


def test_a_worked_example_prints_its_steps() -> None:
    worked = saccade.explain("the black cat")
    assert repr(worked) == "Worked('the black cat', 7 steps; print it to read them)"
    for step in worked.steps():
        assert step.title in str(worked)
        assert step.title in words_of(worked._repr_html_())
