"""Syntax positions from a CoNLL-U file to tags: trees that are broken, sentences without one, and what changes a model's answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from saccade import api
from saccade.config import recipes
from saccade.data.conllu import Sentence
from saccade.training.loop import Watcher
from support import error_of, run_cli

WORDS = (("the", "DET"), ("black", "ADJ"), ("cat", "NOUN"), ("sleeps", "VERB"))
GOOD, CHAIN = (3, 3, 4, 0), (2, 3, 4, 0)
CYCLE, ROOTLESS, TWO_ROOTS, OUTSIDE, MISSING = (
    (2, 1, 4, 0),
    (2, 3, 4, 1),
    (3, 3, 0, 0),
    (3, 3, 9, 0),
    (3, "_", 4, 0),
)
BOTH = {"position": {"name": "syntax", "signed": True}, "position_embedding": "depth"}


def write(path: Path, *trees: tuple[Any, ...]) -> str:
    """A file of one sentence for each row of heads."""
    rows = (
        "".join(
            f"{n}\t{word}\t_\t{tag}\t_\t_\t{head}\t_\t_\t_\n"
            for n, ((word, tag), head) in enumerate(zip(WORDS, heads, strict=True), 1)
        )
        for heads in trees
    )
    path.write_text("\n".join(rows), encoding="utf-8")
    return str(path)


def recipe(
    train: str, dev: str = "", model: dict[str, Any] | None = None, **data: Any
) -> recipes.Recipe:
    sizes = {"dim": 8, "hidden": 8, "depth": 1, "heads": 2, "dropout": 0.0}
    return recipes.recipe(
        {
            "task": "tagging",
            "data": {"train": train, "dev": dev or train, **data},
            "vocabulary": {"kind": "words"},
            "model": {
                "family": "transformer-encoder",
                **sizes,
                **(BOTH if model is None else model),
            },
            "training": {"updates": 2, "tokens": 60},
            "device": "cpu",
        }
    )


def test_sentences_without_a_tree_are_skipped_and_counted_by_kind(tmp_path: Path) -> None:
    train = write(tmp_path / "t.conllu", *[GOOD] * 6, CYCLE, ROOTLESS, OUTSIDE, MISSING, TWO_ROOTS)
    good = write(tmp_path / "g.conllu", GOOD)
    notes = "\n".join(api.prepared(recipe(train, good))[0].notes)
    assert "data: 6 sentences to train on in " in notes
    assert "skipped 5 of 11 sentences in " in notes
    assert "1 with wrong heads (line 43)" in notes, "a head that is no word, with that word's line"
    assert "3 whose heads form no tree (first: line 31)" in notes, "a cycle, no root, two roots"
    assert "1 without a parse tree (line 46)" in notes
    assert "cannot be used" not in notes
    plain = "\n".join(api.prepared(recipe(train, good, model={}))[0].notes)
    assert "form no tree" not in plain
    assert "data: 10 sentences to train on in " in plain, (
        "a model that reads no trees uses those sentences"
    )
    held_out = api.prepared(recipe(good, train))[0].notes
    assert any(note.startswith(f"skipped 5 of 11 sentences in {train}") for note in held_out), (
        "in the dev set too"
    )


@pytest.mark.parametrize(
    ("heads", "why"),
    [
        (CYCLE, "line 6: the heads do not form a tree; all words must lead to one root, without a cycle, and here there is a cycle"),
        (ROOTLESS, "line 6: the heads do not form a tree; all words must lead to one root, without a cycle, and here no words are roots"),
        (TWO_ROOTS, "and here 2 words are roots"),
        (MISSING, "line 6: the sentence has no parse tree, which the positions of this model need; give a .conllu file whose HEAD"),
        (OUTSIDE, "line 8: the head of 'cat' is 9, and the sentence has words 1 to 4"),
    ],
)  # fmt: skip
def test_the_first_bad_tree_is_named_where_nothing_may_be_skipped(
    tmp_path: Path, heads: tuple[Any, ...], why: str
) -> None:
    train, good = write(tmp_path / "t.conllu", GOOD, heads), write(tmp_path / "g.conllu", GOOD)
    assert why in error_of(
        lambda: api.fit(recipe(train, strict=True), tmp_path / "run", watcher=Watcher())
    )
    made, _ = api.fit(recipe(good), tmp_path / "good", watcher=Watcher())
    assert why in error_of(lambda: made.evaluate(train)), "in an evaluation every sentence counts"


def test_more_bad_trees_than_good_ones_are_an_error(tmp_path: Path) -> None:
    train, good = (
        write(tmp_path / "t.conllu", GOOD, CYCLE, MISSING),
        write(tmp_path / "g.conllu", GOOD),
    )
    for one in (recipe(train), recipe(good, train)):
        found = error_of(lambda one=one: api.fit(one, tmp_path / "run", watcher=Watcher()))
        assert found.startswith("2 of 3 sentences in ")
        assert "t.conllu cannot be used; line 6: the heads do not form a tree" in found


@pytest.mark.parametrize(
    "model",
    [
        {"position": "syntax"},
        {"position": {"name": "syntax", "signed": True}},
        {"position_embedding": "depth"},
        BOTH,
    ],
    ids=["unsigned", "signed", "depth", "both"],
)
def test_other_trees_give_other_answers(tmp_path: Path, model: dict[str, Any]) -> None:
    good, chain = write(tmp_path / "g.conllu", GOOD), write(tmp_path / "c.conllu", CHAIN)
    made, _ = api.fit(recipe(good, model=model), tmp_path / "run", watcher=Watcher())
    again = api.load(tmp_path / "run", "cpu")
    for one in (made, again):
        logits = [
            one.task.logits(one.model, one.task.numbers(one.read(path)))[0]
            for path in (good, chain)
        ]
        assert not torch.allclose(*logits)
    assert made.tag(made.read(good)) == again.tag(made.read(good))


def test_a_model_that_tells_up_from_down(tmp_path: Path) -> None:
    """Two trees with the same unsigned distances everywhere: a chain of three words, read from either end."""
    up, down = (
        Sentence(("the", "cat", "sleeps"), None, 1, (1, 2, -1)),
        Sentence(("the", "cat", "sleeps"), None, 1, (-1, 0, 1)),
    )
    for signed in (False, True):
        good = write(tmp_path / "g.conllu", GOOD)
        system, _ = api.prepared(
            recipe(good, model={"position": {"name": "syntax", "signed": signed}})
        )
        logits = [
            system.task.logits(system.model, system.task.numbers([one]))[0] for one in (up, down)
        ]
        assert torch.allclose(*logits) == (not signed)


def test_plain_text_has_no_tree_and_the_command_says_what_to_pass(tmp_path: Path) -> None:
    good, run = write(tmp_path / "g.conllu", GOOD, CHAIN), tmp_path / "run"
    api.fit(recipe(good), run, watcher=Watcher())
    text, tabs = tmp_path / "t.txt", tmp_path / "t.tsv"
    text.write_text("the black cat\n")
    tabs.write_text("the\tDET\ncat\tNOUN\n")
    sentence = "the sentence has no parse tree, which the positions of this model need; give a .conllu file whose HEAD column is filled"
    for words in (
        ("tag", run, text),
        ("tag", run, "-"),
        ("evaluate", run, tabs),
        ("show", run, "the black cat"),
    ):
        found = run_cli(*words, stdin="the black cat\n")
        assert found.code == 2, words
        assert f"line 1: {sentence}" in found.err
        assert "Traceback" not in found.err
    right = run_cli("tag", run, good)
    assert right.code == 0
    assert [line.split("\t")[6] for line in right.out.splitlines() if line] == [
        str(n) for n in GOOD + CHAIN
    ], "heads stay"
