"""Tasks know themselves: nothing elsewhere asks which task it has, and what they declare fits together."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.support import raises

import saccade
from saccade import tasks
from saccade.data.labeled import Labeled
from saccade.tasks.search_options import Option

ROOT = Path(saccade.__file__).parent
NAMES = "|".join(re.escape(name) for name in tasks.table.names())
ASKS = re.compile(
    rf"""isinstance\([\w.]*\btask, |\btask (?:==|!=|in|not in) (?:["'(\[]|[A-Z])|issubclass\(\w*task,"""
    rf"""|["'](?:{NAMES})["'] (?:==|!=|in) |(?:==|!=) ["'](?:{NAMES})["']"""
)
# Rooms where tables and demonstrations name the tasks that they train.
NAMED = ("studies", "teaching/draw", "tasks")


def test_nothing_but_tasks_asks_which_task_it_is() -> None:
    files = list(ROOT.rglob("*.py"))
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in files
        if not str(path.relative_to(ROOT)).startswith(NAMED)
        for line in path.read_text(encoding="utf-8").splitlines()
        if ASKS.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "if isinstance(system.task, Translation):",
        'if recipe.task == "tagging":',
        "if recipe.task in WORDLESS:",
        'objective if values["task"] == "language-modelling" else None',
    ],
)
def test_a_question_for_the_task_would_be_found(line: str) -> None:
    assert ASKS.search(line)


@pytest.mark.parametrize("entry", tasks.table, ids=lambda entry: entry.name)
def test_what_a_task_declares_fits_together(entry: Any) -> None:
    task = entry.make
    assert task.verbs
    assert set(task.routes) <= set(task.verbs)
    assert set(task.looks) <= {"text", "image", "target"}
    assert not task.routes or task.answers
    assert all(isinstance(one, Option) and one.text for one in task.predict_options.values())
    with raises("unknown-predict-option"):
        task.check_predict({"colour": 1})


def test_options_are_checked_by_name_type_and_range() -> None:
    option = Option(float, "a share", 0, 1)
    option.check_value("share", 0.5)
    option.check_value("share", 1)
    for value, code in (
        (2, "predict-option-range"),
        ("a", "wrong-predict-option"),
        (True, "wrong-predict-option"),
    ):
        with raises(code):
            option.check_value("share", value)


def test_any_task_predicts_one_input_or_several() -> None:
    texts = [Labeled("a good film", "good", 1), Labeled("a bad film", "bad", 2)]
    model = {"family": "transformer-encoder", "dim": 8, "hidden": 8, "heads": 2, "depth": 1}
    values = {"task": "classification", "model": model, "vocabulary": {"kind": "words"}}
    m = saccade.build({**values, "device": "cpu"}, texts)
    one, several = m.predict("a good film"), m.predict(["a good film", "a bad film"])
    assert one == m.classify("a good film")
    assert one.label == several[0].label
    assert len(several) == 2
    assert one.document == m.look("a good film")
    found = list(m.predictions(["a good film"]))
    assert [n for n, _ in found] == [0]
    with raises("unknown-predict-option"):
        m.predict("a good film", beam=3)
