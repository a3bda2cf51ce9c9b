"""`saccade reproduce`: a recorded result is measured again and compared; nothing but programs of this checkout runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from saccade.experiments import reproduction
from saccade.experiments.results import Table
from support import raises, run_cli

ABOUT = {"command": "saccade compare x --result x", "commit": "0" * 12, "date": "", "device": ""}


def recorded(command: str = ABOUT["command"], **rows: dict[str, object]) -> Table:
    return Table("x", rows, "x", [0, 1], about={**ABOUT, "command": command})


def test_a_recorded_result_agrees_with_what_its_command_gives_now() -> None:
    printed = run_cli("reproduce", "karate")
    assert printed.code == 0, printed.out + printed.err
    lines = [line.split() for line in printed.out.splitlines()]
    assert lines[0] == ["row", "metric", "recorded", "reproduced", "within", "agrees"]
    assert any(line[:2] == ["karate", "accuracy"] and line[-1] == "yes" for line in lines)
    assert any(line[:2] == ["karate", "seconds"] and line[-1] == "compared" for line in lines)
    assert "metrics agree" in printed.err


def test_another_number_ends_with_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = recorded(a={"loss": [1.0, 2.0]})
    path = table.write(tmp_path)
    monkeypatch.setattr(
        reproduction, "repeat", lambda table: replace(table, rows={"a": {"loss": [3.0, 4.0]}})
    )
    printed = run_cli("reproduce", path, "--json")
    assert printed.code == 1
    [found] = printed.json["metrics"]
    assert (found["reproduced"], found["agrees"]) == ([3.0, 4.0], False)
    assert "0 of 1 metrics agree" in printed.err


def test_a_metric_agrees_within_its_spread_or_the_tolerance() -> None:
    before = recorded(
        a={"loss": [1.0, 2.0], "seconds": [1.0, 1.0], "count": 100, "kind": ["x", "x"]},
        b={"loss": [5.0]},
    )
    now = recorded(a={"loss": [2.0, 2.2], "seconds": [9.0, 9.0], "count": 104})
    agrees = lambda tolerance: {
        (one.row, one.metric): one.agrees for one in reproduction.check(before, now, tolerance)
    }
    assert agrees(0.05) == {
        ("a", "loss"): True,
        ("a", "seconds"): None,
        ("a", "count"): True,
        ("b", "loss"): False,
    }
    assert agrees(0.01)["a", "count"] is False


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf x",
        "saccade train x",
        "saccade",
        "bash -c 'saccade compare x'",
        "python -c 'print(1)'",
        "benchmarks/../tests/mutants/run.py",
        "tests/mutants/run.py",
        "benchmarks/nowhere.py",
        "saccade compare x --out=elsewhere",
    ],
)
def test_nothing_else_is_run(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduction.subprocess, "run", None)
    with raises("other-program"):
        reproduction.repeat(recorded(command))


def test_mistakes_are_one_sentence_with_exit_code_2(tmp_path: Path) -> None:
    printed = run_cli("reproduce", "karat")
    assert (printed.code, "did you mean 'karate'" in printed.err) == (2, True)
    path = tmp_path / "broken.json"
    path.write_text("[]")
    assert run_cli("reproduce", path).code == 2
    missing = recorded("saccade compare nowhere.yaml --result x", a={"loss": 1.0}).write(tmp_path)
    printed = run_cli("reproduce", missing)
    assert printed.code == 2
    assert "x cannot be reproduced here: " in printed.err
    assert "nowhere.yaml" in printed.err.splitlines()[-1]


def test_results_are_listed_with_their_time() -> None:
    lines = run_cli("reproduce").out.splitlines()
    assert lines[0].split() == ["result", "took", "command"]
    [karate] = [line for line in lines if line.split()[0] == "karate"]
    assert "saccade compare karate --seeds 3" in karate
    assert json.loads((Path(__file__).parents[2] / "benchmarks/results/karate.json").read_text())
