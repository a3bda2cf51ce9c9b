"""What each head looks at, against weights made by hand; and the set of senses and antecedents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support import raises

from saccade import api, cli
from saccade.config import recipes
from saccade.data.conllu import Sentence
from saccade.data.corpora import SENTENCES, read
from saccade.data.generated.senses import WORDS as TABLES
from saccade.data.generated.senses import senses
from saccade.layers.multihead_attention import PlainAttention
from saccade.teaching import head_scores
from saccade.training.checkpoints import RunFolder
from saccade.views.document import Document, Site

WORDS = ("the", "animal", "saw", "Omar", "because", "it", "ran")
GOLD = Sentence(WORDS, None, 1, (1, 2, -1, 2, 6, 6, 2), (-1, -1, -1, -1, -1, 1, -1))


def looking(*rows: list[int], more: tuple[str, ...] = ()) -> Document:
    """A document of one site, in which head h looks from word n to rows[h][n] with weight 0.9."""
    size = len(WORDS) + len(more)
    weights = np.full((len(rows), size, size), 0.1 / (size - 1))
    for head, to in enumerate(rows):
        for n, other in enumerate([*to, *range(len(WORDS), size)]):
            weights[head, n, other] = 0.9
    names = [*WORDS, *more]
    return Document("", list(WORDS), ["x"], [Site("encoder.0.mixer", names, names, weights)])


PREVIOUS = [0, 0, 1, 2, 3, 4, 5]
NEXT = [1, 2, 3, 4, 5, 6, 6]
TREE = [1, 2, 2, 2, 6, 6, 2]
BACK = [0, 1, 2, 3, 4, 1, 6]  # each word at itself, and "it" at the animal
NAMES = [3] * 7


@pytest.mark.parametrize("more", [(), ("<eos>",)])
def test_heads_made_by_hand_are_named(more: tuple[str, ...]) -> None:
    found = head_scores.score_heads(
        lambda text: looking(PREVIOUS, NEXT, TREE, BACK, NAMES, more=more), [GOLD]
    )
    assert [one.best for one in found] == ["previous", "next", "head", "antecedent", "names"]
    assert found[0].hits["previous"] == 1
    assert found[0].hits["antecedent"] == 0
    assert found[2].hits["head"] == 1
    assert found[3].hits["itself"] == pytest.approx(6 / 7)
    assert found[3].weight["antecedent"] == pytest.approx(0.9)
    assert found[0].chance["previous"] == pytest.approx(1 / 7)
    assert found[4].hits["names"] == 1, "Omar, for every word but himself"
    assert "cue" not in found[0].hits, "no word of the sentence has a cue"


def test_relations_of_a_sentence() -> None:
    assert head_scores.to_dependents(GOLD)[2].tolist() == [
        False,
        True,
        False,
        True,
        False,
        False,
        True,
    ]
    tagged = Sentence(("Omar", "Saw", "it"), ("PROPN", "VERB", "PRON"), 1)
    assert head_scores.to_names(tagged)[1].tolist() == [True, False, False], (
        "tags are believed, capitals are not"
    )
    bank = Sentence(("the", "bank", "near", "rivers"), None, 1, None, (-1, 3, -1, -1))
    assert head_scores.to_cue(bank)[1].tolist() == [False, False, False, True]
    assert not head_scores.to_antecedent(bank).any()


def test_where_no_words_attend_to_words_is_told() -> None:
    between = Document(
        "",
        list(WORDS),
        ["x"],
        [Site("cross", ["le", "chat"], list(WORDS), np.full((1, 2, 7), 1 / 7))],
    )
    with raises(
        "no-self-attention",
        match="no attention between the words of a sentence was found in 2 sentences; give a model",
    ):
        head_scores.score_heads(lambda text: between, [GOLD, GOLD])


def test_every_ambiguous_word_and_pronoun_has_its_gold() -> None:
    parts = senses(train=100, dev=0, test=400)
    every = parts["test"]
    seen = set()
    for one in every:
        for n, (word, tag, by) in enumerate(
            zip(one.words, one.tags or (), one.refers or (), strict=True)
        ):
            meant = one.words[by] if by >= 0 else ""
            assert (by >= 0) == (tag != "–")
            if word in TABLES["senses"] and by >= 0:
                assert meant in TABLES["senses"][word][tag]
            elif word in ("it", "she", "he"):
                assert tag == meant
                assert (
                    meant
                    in {
                        "it": TABLES["animate"] + TABLES["things"],
                        "she": TABLES["she"],
                        "he": TABLES["he"],
                    }[word]
                )
                if word == "it":
                    how = one.words[n + 3]
                    assert (how in TABLES["of_animate"]) == (meant in TABLES["animate"])
            seen.add((word, tag))
    assert {
        ("bank", "shore"),
        ("bank", "money"),
        ("it", "animal"),
        ("it", "street"),
        ("she", "Fatima"),
    } <= seen
    assert not {one.words for one in parts["train"]} & {one.words for one in every}


def tagger(tmp_path: Path, **model: object) -> str:
    small = {"family": "transformer-encoder", "dim": 8, "hidden": 8, "depth": 1, "heads": 2}
    made = recipes.recipe(
        {"task": "tagging", "data": {"train": "senses:train", "dev": "senses:dev", "options": {"train": 40, "dev": 6, "test": 6}},
         "vocabulary": {"kind": "words"}, "model": {**small, **model}}
    )  # fmt: skip
    system = api.build(made)
    RunFolder(tmp_path, api.model_files(system)).save("model", system.model)
    return str(tmp_path / "model")


def test_the_command_scores_a_models_heads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tagger(tmp_path)
    assert cli.run(["heads", model, "--out", str(tmp_path / "heads.png")]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[0].split()[:3] == ["attention", "head", "looks"]
    assert "6 sentences" in printed.err
    assert (tmp_path / "heads.png").stat().st_size > 5000
    trees = tmp_path / "t.conllu"
    trees.write_text(
        "1\tthe\t_\tDET\t_\t_\t2\tdet\t_\t_\n2\tbank\t_\tNOUN\t_\t_\t0\troot\t_\t_\n\n"
    )
    assert cli.run(["heads", model, str(trees), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["site"], row["head"]) for row in rows] == [
        ("encoder.0.mixer", 0),
        ("encoder.0.mixer", 1),
    ]
    assert {"head", "dependents"} <= set(rows[0]["hits"])
    assert "antecedent" not in rows[0]["hits"]
    assert cli.run(["heads", model, "reviews:test"]) == 2
    assert "the corpus 'reviews' has no sentences with tags" in capsys.readouterr().err
    assert cli.run(["heads", model, "senses:tset"]) == 2
    assert "did you mean 'test'" in capsys.readouterr().err


def test_a_result_has_one_value_per_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [tagger(tmp_path / name) for name in ("a", "b")]
    written: dict[str, Any] = {}
    monkeypatch.setattr(
        "saccade.experiments.results.Table.write",
        lambda table: written.update({table.name: (table.rows[table.name], table.seeds)}),
    )
    assert cli.run(["heads", runs[0], "--also", runs[1], "--result", "two"]) == 0
    figures, seeds = written["two"]
    assert seeds == [0, 0]
    for n, run in enumerate(runs):
        assert cli.run(["heads", run, "--result", "one"]) == 0
        assert written["one"][0] == {name: values[n] for name, values in figures.items()}
    capsys.readouterr()
    assert cli.run(["heads", runs[0], "--also", runs[1]]) == 2
    assert "add --result NAME, or leave --also out" in capsys.readouterr().err


def test_attention_without_projections_has_nothing_to_learn_and_trains_by_name(
    tmp_path: Path,
) -> None:
    layer = (
        api.load(tagger(tmp_path, mixer="plain-attention", score="dot"))
        .model.body.encoder.block(0)
        .mixer
    )
    assert isinstance(layer, PlainAttention)
    assert list(layer.parameters()) == []


@pytest.mark.slow
def test_the_recipe_learns_senses_and_a_head_finds_antecedents(tmp_path: Path) -> None:
    made = recipes.read_recipe("senses", ["training.threads=1", "training.updates=600"])
    system, _ = api.fit(made, tmp_path / "run")
    assert system.evaluate("test")["macro_f1"] > 85
    scores = head_scores.score_heads(
        system.look, read(SENTENCES, "senses:test", {"train": 0, "dev": 0, "test": 100})
    )
    for name, least in (("antecedent", 0.3), ("cue", 0.5)):
        best = max(scores, key=lambda one: one.hits[name])
        assert best.hits[name] > max(least, 3 * best.chance[name])
