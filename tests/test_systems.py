"""The page of systems is what the program found, and what it names exists."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def systems() -> ModuleType:
    spec = importlib.util.spec_from_file_location("systems", ROOT / "benchmarks" / "systems.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


COUNTS = {"A": 12, "P": 6, "B": 3, "S": 5, "T": 10, "M": 9, "E": 6, "V": 5, "N": 51, "G": 5, "W": 8}


def test_every_system_of_the_lectures_is_there(systems: ModuleType) -> None:
    every = systems.systems()
    assert len(every) == sum(COUNTS.values()) == 120
    for letter, count in COUNTS.items():
        assert sum(name.startswith(letter) for name in every) == count
        if letter != "N":
            assert [name for name in every if name.startswith(letter)] == [f"{letter}{n}" for n in range(1, count + 1)]
    assert all(row["what"] and row["run"] and row["tests"] for row in every.values())


def test_every_test_that_is_named_exists(systems: ModuleType) -> None:
    functions: dict[str, set[str]] = {}
    for row in systems.systems().values():
        for name in row["tests"]:
            file, _, test = name.partition("::")
            if file not in functions:
                tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
                functions[file] = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
            assert test.partition("[")[0] in functions[file], name


def test_the_page_and_the_result_are_what_is_recorded(systems: ModuleType) -> None:
    """The page is made of the result file; the verdicts in it are those of the results that are recorded today."""
    kept = json.loads((ROOT / "benchmarks/results/systems.json").read_text(encoding="utf-8"))["figures"]
    assert list(kept) == list(systems.systems()), "run `python benchmarks/systems.py`"
    assert all(re.fullmatch("[0-9a-f]{12}", one["commit"]) for one in kept.values()), "every system was checked at a clean commit"
    judged = {name: systems.judge(row, kept[name]["failed"], kept[name]["commit"]) for name, row in systems.systems().items()}
    assert kept == judged, "run `python benchmarks/systems.py --docs`"
    assert (ROOT / "docs/systems.md").read_text(encoding="utf-8") == systems.page(kept)


def test_a_verdict_says_what_is_missing(systems: ModuleType) -> None:
    row = {"results": ["sst2:sst2-rnn.accuracy"]}
    assert systems.judge(row, [])["verdict"] == "works"
    assert systems.judge(row, ["a test failed"])["missing"] == ["a test failed"]
    assert systems.judge({**row, "lacks": "no meshes"}, [])["missing"] == ["no meshes"]
    assert systems.judge({"results": ["sst2:nothing"]}, [])["missing"] == ["no recorded sst2:nothing"]
    assert systems.judge({"results": ["no-such-file:bleu"]}, [])["missing"] == ["no recorded no-such-file:bleu"]
    assert systems.judge({}, [])["missing"] == ["no recorded run"]
    more, less = "sst2:sst2-mean.accuracy", "sst2:sst2-rnn.accuracy"
    assert "not shown" in systems.judge({**row, "shows": [f"{more} > {less}"]}, [])["missing"][0]


def test_a_command_and_a_test_that_fail_are_reported(systems: ModuleType, tmp_path: Path) -> None:
    assert systems.run_command("list scores", tmp_path, {}) == ""
    assert "ends with 2" in systems.run_command("symmetry nothing-like-this", tmp_path, {})
    assert systems.run_command("train reviews-tf-idf", tmp_path, systems.data()["tiny"]) == ""


def test_the_39_other_things_of_the_decks_have_a_command_or_a_reason() -> None:
    from saccade.cli import app

    known = {command.name for command in app.registered_commands}
    text = (ROOT / "docs/lectures.md").read_text(encoding="utf-8").partition("## What else the decks have")[2]
    rows = re.findall(r"^\| (\d+) \| ([^|]*) \| ((?:[^|\\]|\\.)*) \| (.*) \|$", text, flags=re.MULTILINE)
    assert [int(number) for number, *_ in rows] == list(range(1, 40))
    for _, _, _, how in rows:
        named = re.findall(r"`saccade (?!\.)([a-z]+)", how)
        assert set(named) <= known
        assert named or re.search(r"`(model\.|python )", how) or re.match(r"not here|out of scope|a note", how), how
