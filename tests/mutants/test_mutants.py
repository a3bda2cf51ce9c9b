"""The program that tries mutants: what it applies, runs, keeps and refuses."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import run
from run import Mutant

SOURCE = "def count(limit: int) -> int:\n    n = 0\n    while n < limit:\n        n += 1\n    return abs(n)\n"
TESTS = "from saccade.core.numbers import count\n\n\ndef test_count() -> None:\n    assert count(3) == 3\n"
LIST = """
[[mutant]]
file = "core/numbers.py"
old = "n = 0"
new = "n = 5"
why = "it counts from five"
tests = ["test_numbers.py"]

[[mutant]]
file = "core/numbers.py"
old = "n += 1"
new = "n += 0"
why = "it never ends"
tests = ["test_numbers.py::test_count"]

[[mutant]]
file = "core/numbers.py"
old = "return abs(n)"
new = "return n"
why = "a negative count is returned"
tests = ["test_numbers.py"]
survives = "a count is never negative"
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with one module, its test, three mutants and the program."""
    for name, text in {
        "src/saccade/__init__.py": "",
        "src/saccade/core/__init__.py": "",
        "src/saccade/core/numbers.py": SOURCE,
        "tests/conftest.py": "",
        "tests/test_numbers.py": TESTS,
        "tests/mutants/mutants.toml": LIST,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    shutil.copy(run.__file__, tmp_path / "tests/mutants/run.py")
    (tmp_path / "benchmarks/results").mkdir(parents=True)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def start(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    source = str(Path(__file__).parents[2] / "src")  # from which the results are written
    environment = {**os.environ, "PYTHONPATH": source}
    command = [sys.executable, "tests/mutants/run.py", "--timeout", "40", *words]
    return subprocess.run(
        command,
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def figures(checkout: Path) -> Any:
    rows = json.loads((checkout / "benchmarks/results/mutants.json").read_text())["rows"]
    return {**rows["mutants"], "groups": rows["groups"]}


@pytest.mark.slow
def test_mutants_are_killed_by_tests_and_by_time_and_a_stopped_run_continues(
    checkout: Path,
) -> None:
    only = start(checkout, "--only", "from five")
    assert only.returncode == 0, only.stdout + only.stderr
    assert "3 mutants, 1 to run" in only.stdout
    assert not (checkout / "benchmarks/results/mutants.json").exists()
    rest = start(checkout)
    assert "3 mutants, 2 to run" in rest.stdout
    found = figures(checkout)
    assert [(row["result"], row["by"]) for row in found["each"]] == [
        ("killed", "tests/test_numbers.py::test_count"),
        ("killed", "no end after 40 s"),
        ("survived", ""),
    ]
    assert (found["mutants"], found["killed"], found["survived"]) == (3, 2, 1)
    assert found["groups"] == {"core": {"mutants": 3, "killed": 2, "survived": 1}}
    assert rest.returncode == 1
    assert rest.stderr.strip() == "66.7% of the mutants were killed, expected 95% or more"
    assert (checkout / "src/saccade/core/numbers.py").read_text() == SOURCE
    assert "3 mutants, 0 to run" in start(checkout).stdout
    (checkout / "tests/test_numbers.py").write_text(TESTS.replace("count(3) == 3", "count(4) == 3"))
    wrong = start(checkout)
    assert "the tests do not pass without a mutant; repair them first" in wrong.stderr


def test_what_cannot_be_applied_is_named(checkout: Path) -> None:
    good = run.read_mutants(checkout / "tests/mutants/mutants.toml")
    assert run.find_mistakes(good, checkout) == []
    wrong = [
        Mutant("core/numbers.py", "n", "m", "x", ("test_numbers.py",)),
        Mutant("core/none.py", "n", "n", "y", ("none.py",)),
    ]
    assert run.find_mistakes(wrong, checkout) == [
        "core/numbers.py: x: `n` occurs 8 times in its file, expected once; correct it in mutants.toml",
        "core/none.py: y: `n` occurs 0 times in its file, expected once; correct it in mutants.toml",
        "core/none.py: y: the mutant changes nothing or is listed twice; correct it in mutants.toml",
        "core/none.py: y: tests/none.py does not exist; name the tests that should fail",
    ]


def test_survivors_need_a_reason_and_reasons_need_a_survivor() -> None:
    plain, explained = (
        Mutant("core/a.py", "1", "2", f"w{n}", ("t.py",), text)
        for n, text in enumerate(("", "it is the same"))
    )
    row = {"by": "", "seconds": 1, "fingerprint": "x"}

    def faults(*results: str) -> list[str]:
        rows = [{**row, "result": one, "by": "t.py::t" * (one == "killed")} for one in results]
        return run.find_faults(run.summarize([plain] * 19 + [explained], rows))

    assert faults(*["killed"] * 19, "survived") == []
    [one] = faults(*["killed"] * 20)
    assert one == "core/a.py: t.py::t fails when w1; remove `survives` from this mutant"
    first, second = faults(*["killed"] * 18, "survived", "survived")
    assert (
        first == "core/a.py: no test fails when w0 (`1 → 2`); write one, or say in `survives` why"
    )
    assert second == "90.0% of the mutants were killed, expected 95% or more"


def test_a_mutant_runs_again_when_its_file_or_its_tests_change(checkout: Path) -> None:
    one = run.read_mutants(checkout / "tests/mutants/mutants.toml")[0]
    seen = {one.fingerprint(checkout)}
    for name, text in (
        ("src/saccade/core/numbers.py", SOURCE + "\n"),
        ("tests/test_numbers.py", TESTS + "\n"),
    ):
        (checkout / name).write_text(text)
        seen.add(one.fingerprint(checkout))
    assert len(seen) == 3


@pytest.mark.slow
def test_every_mutant_of_the_list_can_be_applied() -> None:
    every = run.read_mutants()
    assert run.find_mistakes(every, run.ROOT) == []
    assert len(every) >= 80
    assert {one.group for one in every} >= {
        "core",
        "layers",
        "models",
        "decoding",
        "training",
        "tasks",
        "data",
        "serving",
    }
