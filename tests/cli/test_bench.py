"""`saccade bench`: a table and JSON of what was measured, who is left out by name, a result file, one sentence for bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from saccade.studies import bench
from saccade.studies.bench import contenders, plan_of, training_speed
from saccade.studies.bench.contenders import Case, Figure, Limits, Plan, measure, row_of
from support import run_cli

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contenders, "ROUNDS", 1)
    monkeypatch.setattr(contenders, "best", lambda call, seconds=0.0: (call(), 0.01)[1])


@pytest.mark.slow
def test_a_table_with_ratio_and_limit() -> None:
    printed = run_cli("bench", "attention", "--only", "window", "--scale", "tiny")
    assert printed.code == 0
    assert "window 32, forward + backward" in printed.out
    assert all(word in printed.out for word in ("SDPA and a mask", "ratio", "of the limit", "sdpa"))
    assert "attention, scale tiny: 2 cases, 4 measurements, about" in printed.err, (
        "what it costs is said beforehand"
    )
    assert "left out: FlexAttention (a kernel on a GPU alone)" in printed.err


def test_rows_as_json_and_a_result_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    printed = run_cli(
        "bench",
        "attention",
        "--only",
        "sigmoid",
        "--only",
        "record",
        "--json",
        "--result",
        "bench-attention",
    )
    rows = [json.loads(line) for line in printed.out.splitlines()]
    assert [row["case"] for row in rows] == [
        "sigmoid, forward",
        "sigmoid, forward + backward",
        "record open, forward",
    ]
    first = rows[0]
    assert first["all"].keys() == {"saccade", "SDPA's softmax"}
    assert first["ratio"] > 0
    assert first["of_limit"] > 0
    stored = json.loads((tmp_path / "benchmarks/results/bench-attention.json").read_text())
    assert [row["case"] for row in stored["rows"].values()] == [row["case"] for row in rows]
    assert all(peer["left_out"] for peer in stored["peers"].values())
    assert stored["peers"]
    assert "medians of interleaved runs" in stored["notes"]


def test_who_stops_a_measurement_keeps_what_was_measured_and_the_last_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("bench", "attention", "--only", "sigmoid", "--result", "mine")
    assert run_cli(*words).code == 0
    folder = tmp_path / "benchmarks/results"
    assert [path.name for path in folder.iterdir()] == ["mine.json"], "nothing unfinished is left"
    before, plain = (folder / "mine.json").read_bytes(), contenders.run

    def stopped(*given: Any) -> Any:
        yield next(iter(plain(*given)))
        raise KeyboardInterrupt

    monkeypatch.setattr(contenders, "run", stopped)
    assert run_cli(*words).code != 0
    assert (folder / "mine.json").read_bytes() == before
    [row] = json.loads((folder / "mine-unfinished.json").read_text())["rows"].values()
    assert row["case"] == "sigmoid, forward"


def test_a_contender_that_fails_while_it_is_timed_does_not_stop_the_others() -> None:
    calls = []

    def breaking() -> Callable[[], None]:
        def call() -> None:
            calls.append(1)
            if len(calls) > 3:
                raise RuntimeError("no more\nat all")

        return call

    found = measure(Case("one", {"ours": lambda: lambda: None}, {"theirs": breaking}), CPU, 0.01)
    assert found["theirs"].failed == "no more"
    assert found["ours"].seconds
    assert not found["ours"].failed


@pytest.mark.slow
def test_training_beside_its_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_speed, "real", lambda scale: None)
    monkeypatch.setattr(
        training_speed,
        "missing",
        lambda: {"transformers": "not installed", "x-transformers": "not installed"},
    )
    printed = run_cli("bench", "train", "--only", "GPT", "--json")
    [row] = [json.loads(line) for line in printed.out.splitlines()]
    assert row["all"].keys() == {"saccade", "plain GPT"}
    assert row["tokens_per_second"] > 0
    assert "failed" not in row["all"]["plain GPT"]
    assert "left out: x-transformers (not installed)" in printed.err
    assert "left out: phrasebook-transformer (its data are not here" in printed.err


@pytest.mark.slow
def test_every_measurement_runs_here() -> None:
    printed = run_cli("bench", "--scale", "tiny", "--json")
    rows = [json.loads(line) for line in printed.out.splitlines()]
    assert {"attention", "train", "length", "backends"} <= {row["bench"] for row in rows}
    assert [row["case"] for row in rows if "milliseconds" not in row] == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["atention"], "no measurement named 'atention'; did you mean 'attention'?"),
        (["train", "--scale", "big"], "no scale named 'big'"),
        (
            ["attention", "--only", "wings"],
            "expected --only to be a part of a case's name, got wings; the cases are: causal, forward",
        ),
        (["attention", "--result", "No Name"], "'No Name' cannot name a result"),
        (["attention", "--rounds", "3"], "No such option"),
    ],
    ids=str,
)
def test_bad_input_is_one_sentence(words: list[str], sentence: str) -> None:
    printed = run_cli("bench", *words)
    assert printed.code == 2
    assert printed.out == ""
    assert sentence.lower() in printed.err.lower()
    assert "Traceback" not in printed.err


def test_one_that_fails_is_named_and_does_not_stop_the_others() -> None:
    def fails() -> Callable[[], Any]:
        raise RuntimeError("cannot compile this\nand more")

    case = Case(
        "x",
        {"ours": lambda: lambda: torch.ones(1000).sum()},
        {"a": fails, "b": lambda: lambda: torch.ones(9).sum()},
    )
    found = measure(case, CPU, 0.01)
    assert found["a"].failed == "cannot compile this"
    assert not found["ours"].failed
    row = row_of(case, found, Limits(1.0, 1.0, 1.0))
    assert row["peer"] == "b"
    assert row["all"]["a"] == {"failed": "cannot compile this"}
    assert "ratio" not in row_of(case, {**found, "b": found["a"]}, Limits(1.0, 1.0, 1.0))


def test_the_ratio_is_ours_over_the_best_peer_and_the_limit_is_the_tightest() -> None:
    case = Case(
        "x",
        {"slow": int, "ours": int},
        {"peer": int, "other": int},
        lambda limits: limits.seconds(8.0, 3.0, 1.0),
        100,
    )  # type: ignore[dict-item]
    seconds = {"slow": 9.0, "ours": 4.0, "peer": 5.0, "other": 6.0}
    row = row_of(
        case, {name: Figure([value] * 3) for name, value in seconds.items()}, Limits(4.0, 3.0, 2.0)
    )
    assert (row["ours"], row["peer"], row["ratio"], row["of_limit"]) == ("ours", "peer", 0.8, 0.5)
    assert row["tokens_per_second"] == 25


@pytest.mark.slow
def test_the_backends_are_compared_with_eager() -> None:
    plan: Plan = plan_of("backends", "tiny", CPU)
    assert plan.cases[0].name == "B32 T32 full"
    assert "errors: sdpa" in plan.cases[0].about
    assert "eager" in plan.cases[0].peers


def test_engines_of_decoding_are_compared_by_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        ("saccade fp32, 1 thread", 4.0),
        ("saccade plain, 2 threads", 1.0),
        ("saccade int8, 2 threads", 8.0),
    ]
    rows += [
        ("ctranslate2 fp32, 2 threads", 5.0),
        ("ctranslate2 int8, 2 threads, MKL", 4.0),
        ("transformers fp32, 1 thread", 2.0),
    ]
    found = [
        {"case": "batch 1 greedy", "engine": engine, "value": value, "processor": 900 / value}
        for engine, value in rows
    ]
    asked: list[Any] = []
    module = SimpleNamespace(
        cases=lambda device, small, only: (asked.append((device, small, only)), [found])[1]
    )
    monkeypatch.setattr("saccade.studies.bench.module_of", lambda kind: module)
    printed = run_cli(
        "bench",
        "decode",
        "--scale",
        "tiny",
        "--json",
        "--only",
        "saccade int8, 2",
        "--only",
        "greedy",
    )
    first, second = (json.loads(line) for line in printed.out.splitlines())
    assert (first["case"], first["ours"], first["peer"]) == (
        "batch 1 greedy, fp32",
        "saccade fp32, 1 thread",
        "ctranslate2 fp32, 2 threads",
    )
    assert first["ratio"] == first["processor_ratio"] == 1.25, "our time over theirs"
    assert first["all"]["saccade fp32, 1 thread"] == {
        "sentences_per_second": 4.0,
        "processor_milliseconds": 225.0,
    }
    assert (second["case"], second["milliseconds"], second["ratio"]) == (
        "batch 1 greedy, int8",
        125.0,
        0.5,
    )
    assert asked[0][1:] == (True, ("saccade int8, 2",)), "words of --only that name an engine"


def test_a_measurement_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bench.MODULES, "decode", "nothing_of_this_name")
    printed = run_cli("bench", "decode")
    assert printed.code == 2
    assert (
        "expected a measurement of decode, and this installation has none; choose another"
        in printed.err
    )
