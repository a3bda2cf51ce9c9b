"""First-run mistakes: settings written twice, words the vocabulary lacks, models too large, streams that are closed."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from saccade import api, cli
from saccade.cli import input_stream
from saccade.config import recipes
from saccade.data.labeled import Labeled
from saccade.data.pairs import Pair
from saccade.models import builder
from saccade.models.protocols import Seq2Seq
from saccade.system import build
from saccade.tasks.classification import Classification
from saccade.training.loop import Watcher
from saccade.training.signals import Stopped
from support import error_of, run_cli, tiny_recipe

TINY = {"dim": 8, "hidden": 8, "depth": 1, "heads": 2, "dropout": 0.0}


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        ("seed: 1\nmodel: {family: luong}\nseed: 2\n", "seed", 3),
        ("training: {updates: 10}\nmodel: {family: luong}\ntraining: {tokens: 9}\n", "training", 3),
        ("model:\n  family: luong\n  dim: 8\n  dim: 9\n", "dim", 4),
        ("model: {family: luong, dim: 1, dim: 2}\n", "dim", 1),
    ],
)
def test_a_key_written_twice_is_reported(tmp_path: Path, text: str, key: str, line: int) -> None:
    (tmp_path / "r.yaml").write_text(text)
    sentence = error_of(lambda: recipes.read_recipe(tmp_path / "r.yaml"))
    assert sentence.endswith(f"r.yaml, line {line}: duplicate key '{key}'; merge the two")


@pytest.mark.parametrize("value", ["1e4", "10_000", 10000, 1e4, "10000.0"])
def test_whole_numbers_in_every_spelling(value: Any) -> None:
    made = recipes.recipe({"model": {"family": "luong"}, "training": {"updates": value}})
    assert made.training.updates == 10_000
    assert type(made.training.updates) is int


@pytest.mark.parametrize("value", ["1.5", 2.5, "many", "inf", True, "1e400"])
def test_what_is_not_a_whole_number_is_refused(value: Any) -> None:
    assert "it must be a whole number" in error_of(
        lambda: recipes.recipe({"model": {"family": "luong"}, "training": {"updates": value}})
    )


def test_words_the_vocabulary_lacks_are_counted() -> None:
    pairs = [Pair(f"word{n} the", f"mot{n} le", n) for n in range(50)]
    made = {
        "vocabulary": {"kind": "words", "size": 10},
        "model": {"family": "luong", "dim": 4, "hidden": 4},
    }
    notes = api.build(made, pairs).notes
    assert [note.split(" of the ")[1].split()[0] for note in notes] == ["source", "target"]
    assert all(note.startswith("note: 4") and "read as <unk>" in note for note in notes), notes
    assert api.build({**made, "vocabulary": {"kind": "words"}}, pairs).notes == ()


def test_a_first_model_is_reported_and_another_family_named(tmp_path: Path) -> None:
    language = tiny_recipe(
        task="language-modelling",
        vocabulary={"kind": "characters"},
        language={"objective": "masked", "block": 16},
        model={"family": "transformer-encoder", **TINY},
        training={"updates": 1, "tokens": 64},
    )
    api.fit(language, tmp_path / "first")
    kept = {
        name: value for name, value in language.items() if name not in ("language", "vocabulary")
    }
    tags = {**kept, "task": "tagging", "start_from": str(tmp_path / "first")}
    notes = api.build(tags).notes
    assert notes[0].endswith(f"and the vocabulary are those of {tmp_path / 'first'}")
    rnn = {**tags, "model": {"family": "rnn-encoder", "dim": 12}}
    assert "(model.family is transformer-encoder there and rnn-encoder here)" in error_of(
        lambda: api.build(rnn)
    )


@pytest.mark.parametrize("family", ["transformer-decoder", "rnn-decoder"])
@pytest.mark.parametrize("objective", ["masked", "permutation"])
def test_a_model_that_sees_nothing_behind_cannot_guess_what_is_hidden(
    family: str, objective: str
) -> None:
    values = {
        "task": "language-modelling",
        "language": {"objective": objective},
        "model": {"family": family},
    }
    sentence = f"{family} is causal and cannot be trained with the {objective} objective; choose another model.family, such as transformer-encoder"
    assert error_of(lambda: recipes.recipe(values)) == sentence


def test_a_model_larger_than_the_machine_is_refused_before_it_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    huge = {"family": "transformer", "dim": 65536, "hidden": 65536, "depth": 100}
    sentence = error_of(lambda: recipes.recipe({"model": huge}))
    assert sentence == error_of(lambda: recipes.Builder(huge).make(Seq2Seq, 5, 5))
    assert sentence.startswith("the parameters of this transformer alone take 2")
    assert sentence.endswith("choose smaller model.* sizes")
    small = recipes.recipe({"model": {"family": "transformer", **TINY}}).model
    torch.manual_seed(3)
    plain = recipes.Builder(small).make(Seq2Seq, 9, 9)
    monkeypatch.setattr(builder, "MAX_UNMEASURED_NUMBERS", 0)
    torch.manual_seed(3)
    counted = recipes.Builder(small).make(Seq2Seq, 9, 9)
    assert all(map(torch.equal, plain.parameters(), counted.parameters())), "counting draws nothing"
    monkeypatch.setattr(builder.os, "sysconf", lambda name: 10)
    assert (
        "training this model takes at least 0.0 GiB (parameters, gradients, optimizer)"
        in error_of(lambda: build.check_memory(plain, torch.device("cpu")))
    )


def test_a_label_for_each_text_is_a_wrong_column() -> None:
    made = recipes.recipe(
        {"task": "classification", "vocabulary": {"kind": "words"}, "model": {"family": "bag"}}
    )
    texts = [Labeled("good", f"text {n}", n) for n in range(60)]
    sentence = error_of(lambda: Classification.learn(made, texts))
    assert sentence.startswith(
        "the training data has 60 labels for 60 texts, nearly one each; check that"
    )


class Notes(Watcher):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_a_finished_run_is_reported(tmp_path: Path) -> None:
    made = tiny_recipe()
    api.fit(made, tmp_path / "run")
    heard = Notes()
    api.fit(made, tmp_path / "run", resume=True, watcher=heard)
    assert (
        heard.notes[-1]
        == "already finished at update 2; raise training.updates or training.patience to continue"
    )
    again = Notes()
    api.fit({**made, "training": {"updates": 3}}, tmp_path / "run", resume=True, watcher=again)
    assert "resuming from update 2" in again.notes


def test_a_stopped_comparison_continues_with_the_same_command() -> None:
    stopped = Stopped(*Stopped(2, 7).at, "the same command")
    assert (
        str(stopped)
        == "stopped by SIGINT after update 7; a checkpoint was written, continue with the same command"
    )
    assert stopped.code == 130


def test_closed_streams_are_sentences(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert error_of(lambda: list(input_stream.arriving())).startswith(
        "nothing was given; give a text"
    )
    monkeypatch.setattr(sys, "stdout", None)
    assert cli.run(["list"]) == 2
    assert "stdout is closed, so nothing can be printed" in capsys.readouterr().err


def test_stdin_that_is_not_utf_8_is_named_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BytesIO("one\ndeux\ntr\xe9s\n".encode("latin-1")))
    )
    assert (
        error_of(lambda: list(input_stream.arriving()))
        == "stdin, line 3: not UTF-8 (byte 0xe9); convert it first"
    )
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("été\r\nx".encode())))
    assert list(input_stream.arriving()) == [(1, ["été", "x"])]


def test_a_long_file_is_translated_in_parts_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained, _ = api.fit(tiny_recipe(training={"updates": 1}), tmp_path / "run")
    lines = [pair.source for pair in trained.read("phrasebook:train")[:7]]
    (tmp_path / "in.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    outputs = []
    for together in (4096, 3):
        monkeypatch.setattr(input_stream, "TOGETHER", together)
        printed = run_cli("translate", tmp_path / "run", "--input", tmp_path / "in.txt", "--align")
        outputs.append(printed.out)
    assert outputs[0] == outputs[1]
    assert len(outputs[0].splitlines()) == 7
