"""The page of systems is what the program found, and what it names exists."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def systems() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "benchmarks_systems", ROOT / "benchmarks" / "systems.py"
    )
    assert spec is not None
    assert spec.loader is not None
    # dataclasses look their module up
    made = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


COUNTS = {
    "A": 12,
    "P": 6,
    "B": 3,
    "S": 5,
    "T": 10,
    "M": 9,
    "E": 6,
    "V": 5,
    "N": 51,
    "G": 5,
    "W": 8,
    "D": 15,
}


def test_every_system_of_the_lectures_is_there(systems: ModuleType) -> None:
    every = systems.systems()
    assert set(systems.data()["groups"]) == set(COUNTS)
    for letter, count in COUNTS.items():
        found = [name for name in every if name.startswith(letter)]
        assert len(found) == count or letter == "D"
        if letter != "N":
            assert found == [
                f"{letter}{n}" for n in range(1, count + 1) if letter != "D" or f"D{n}" in every
            ]
    assert all(row["what"] and row["run"] and row["tests"] for row in every.values())


def test_every_recipe_that_is_named_exists(systems: ModuleType) -> None:
    from saccade.config.index import recipe_files

    recipes = set(recipe_files())
    for name, row in systems.systems().items():
        for line in [*row["run"], *row.get("record", [])]:
            assert set(systems.recipes_of(line)) <= recipes, f"{name}: {line}"


def test_every_claim_can_be_read_and_its_metrics_are_recorded_where_the_row_works(
    systems: ModuleType,
) -> None:
    verdicts = json.loads((ROOT / "benchmarks/results/systems.json").read_text(encoding="utf-8"))[
        "rows"
    ]
    for name, row in systems.systems().items():
        claims = [systems.Claim.parse(text) for text in row.get("shows", [])]
        assert claims or "nothing_to_learn" in row or verdicts[name]["verdict"] == "part", name
        if verdicts[name]["verdict"] == "works":
            for metric in [one for claim in claims for one in claim.metrics]:
                assert len(systems.values_of(metric)) >= 3, f"{name}: {metric}"


def test_every_claim_is_of_a_file_that_a_command_makes(systems: ModuleType) -> None:
    """A command in `record` names each result file of `shows`, so that it can be made again."""
    for name, row in systems.systems().items():
        makes = " ".join(row.get("record", []))
        for claim in map(systems.Claim.parse, row.get("shows", [])):
            for metric in claim.metrics:
                file = re.escape(metric.partition(":")[0])
                assert re.search(rf"(?<![\w-]){file}(?![\w-])", makes), (
                    f"{name}: no command makes {metric}"
                )


def test_every_test_that_is_named_exists(systems: ModuleType) -> None:
    functions: dict[str, set[str]] = {}
    for row in systems.systems().values():
        for name in row["tests"]:
            file, _, test = name.partition("::")
            if file not in functions:
                tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
                functions[file] = {
                    node.name for node in tree.body if isinstance(node, ast.FunctionDef)
                }
            assert test.partition("[")[0] in functions[file], name


def test_the_page_and_the_result_are_what_is_recorded(systems: ModuleType) -> None:
    """The page is made of the result file; the verdicts in it are those of the results that are recorded today."""
    kept = json.loads((ROOT / "benchmarks/results/systems.json").read_text(encoding="utf-8"))[
        "rows"
    ]
    assert list(kept) == list(systems.systems()), "run `python benchmarks/systems.py`"
    assert all(re.fullmatch("[0-9a-f]{12}", one["commit"]) for one in kept.values()), (
        "every system was checked at a clean commit"
    )
    judged = {
        name: systems.judge(row, kept[name]["failed"], kept[name]["commit"])
        for name, row in systems.systems().items()
    }
    assert kept == judged, "run `python benchmarks/systems.py --docs`"
    assert (ROOT / "docs/systems.md").read_text(encoding="utf-8") == systems.page(kept)


RESULT = {"name": "of", "recipe": "", "seeds": [0], "peers": {}, "notes": ""}


def test_a_claim_holds_beyond_the_larger_deviation(
    systems: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = {
        "a": [81.0, 82.0, 83.0],
        "b": [79.9, 80.9, 81.9],
        "c": [80.0, 81.0, 82.0],
        "wide": [70.0, 75.0, 80.0],
        "two": [1.0, 2.0],
    }
    (tmp_path / "of.json").write_text(
        json.dumps({"rows": {"of": figures | {"odd": [1.0, float("nan"), 2.0]}}, **RESULT}),
        encoding="utf-8",
    )
    monkeypatch.setattr(systems, "RESULTS", tmp_path)

    def judged(text: str) -> tuple[bool, str]:
        found: tuple[bool, str] = systems.Claim.parse(text).judge()
        return found

    assert judged("of:a > of:b") == (True, "of:a 82 ± 1 > of:b 80.9 ± 1, 3 seeds")
    assert judged("of:b < of:a")[0]
    assert judged("of:a > of:c") == (
        False,
        "not shown: of:a 82 ± 1 > of:c 81 ± 1: a difference of 1, ± 1",
    )
    assert judged("of:a > of:wide")[0]
    assert not judged("of:a < of:b")[0]
    assert judged("of:a > 50 = chance, two classes") == (
        True,
        "of:a 82 ± 1 > 50 (chance, two classes), 3 seeds",
    )
    assert not judged("of:a > 81.5 = another model")[0]
    assert judged("of:two < of:a") == (False, "not shown: of:two has 2 of 3 seeds")
    assert judged("of:a > of:none") == (False, "no recorded of:none")
    assert judged("nothing:a > of:b") == (False, "no recorded nothing:a")
    assert judged("of:odd < of:a") == (False, "no recorded of:odd")


@pytest.mark.parametrize(
    "text",
    ["of:a", "of:a > 50", "of:a >= of:b", "of:a > of:b and more", "a > b", "of:a > fifty = chance"],
)
def test_what_is_no_claim_is_refused(systems: ModuleType, text: str) -> None:
    with pytest.raises(ValueError, match="is not a claim; expected FILE:METRIC > FILE:METRIC or"):
        systems.Claim.parse(text)


def test_a_verdict_says_what_is_missing(systems: ModuleType) -> None:
    row = {
        "shows": ["sst2:sst2-rnn.accuracy > sst2:sst2-mean.accuracy"],
        "results": ["sst2:sst2-rnn.accuracy"],
    }
    judged = systems.judge(row, [])
    assert judged["verdict"] == "works"
    assert judged["shown"] == [
        "sst2:sst2-rnn.accuracy 84.98 ± 0.2 > sst2:sst2-mean.accuracy 81.65 ± 0.11, 3 seeds"
    ]
    assert systems.judge(row, ["a test failed"])["missing"] == ["a test failed"]
    assert systems.judge({**row, "lacks": "no meshes"}, [])["missing"] == ["no meshes"]
    assert systems.judge({**row, "results": ["sst2:nothing"]}, [])["missing"] == [
        "no recorded sst2:nothing"
    ]
    assert systems.judge({**row, "results": ["no-such-file:bleu"]}, [])["missing"] == [
        "no recorded no-such-file:bleu"
    ]
    assert systems.judge({"results": row["results"]}, [])["missing"] == [
        "no control that a recorded run beats"
    ]
    assert systems.judge({"nothing_to_learn": "a picture"}, [])["verdict"] == "works"
    lost = systems.judge({"shows": ["sst2:sst2-mean.accuracy > sst2:sst2-rnn.accuracy"]}, [])
    assert lost["verdict"] == "part"
    assert "not shown" in lost["missing"][0]


def test_a_command_and_a_test_that_fail_are_reported(systems: ModuleType, tmp_path: Path) -> None:
    assert systems.run_command("list scores", tmp_path, {}) == ""
    assert "ends with 2" in systems.run_command("symmetry nothing-like-this", tmp_path, {})
    assert systems.run_command("train reviews-tf-idf", tmp_path, systems.data()["tiny"]) == ""


def test_a_command_runs_in_an_empty_folder_without_data_sets(
    systems: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that lies where systems.py was started helps a command: no earlier run, and no data set that the recipe does not name."""
    here, empty, sets = tmp_path / "here", tmp_path / "empty", tmp_path / "sets"
    for folder in (here, empty, sets / "sst2"):
        folder.mkdir(parents=True)
    monkeypatch.chdir(here)
    monkeypatch.setenv("SACCADE_DATA", str(sets))
    tiny = systems.data()["tiny"]
    assert systems.run_command("train reviews-static --out runs/first", here, tiny) == ""
    (here / "mine.tsv").write_text("text\tlabel\ngood\tyes\nbad\tno\n" * 9, encoding="utf-8")
    own = "train reviews-static data.train=mine.tsv data.dev=mine.tsv data.test= training.updates=2"
    for line in ("evaluate runs/first dev", own):
        assert systems.run_command(line, here, {}) == ""
        assert "ends with 2" in systems.run_command(line, empty, {})
    assert Path.cwd() == here
    seen = []
    monkeypatch.setattr(
        "saccade.cli.run", lambda words: seen.append((Path.cwd(), os.environ["SACCADE_DATA"])) or 0
    )
    systems.run_command("train sst2-mean", empty, {})
    systems.run_command("train reviews-static", empty, {})
    assert seen == [(empty, str(sets)), (empty, str(empty / "no-sets"))]


def test_data_sets_of_a_command_are_marked(systems: ModuleType) -> None:
    assert systems.marked("compare sst2-mean sst2-rnn --seeds 3 --result sst2").endswith(
        "` (data: sst2)"
    )
    assert systems.marked("train reviews-static") == "`saccade train reviews-static`"
    assert systems.sets_of("train multi30k-de-en model.hidden=16") == ["multi30k"]


def test_recording_prints_what_it_runs_and_runs_it_once(
    systems: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = "compare reviews-static --vary model.pool=mean,static --seeds 3 --result weights"
    ran = []
    monkeypatch.setattr(
        systems.subprocess,
        "run",
        lambda command, cwd: ran.append(command) or subprocess.CompletedProcess(command, 0),
    )
    rows = {
        "A1": {"record": [line]},
        "A2": {"record": [line, "python benchmarks/deep.py --result deep"]},
        "A3": {},
    }
    systems.record(rows, tmp_path)
    assert ran == [
        [sys.executable, "-m", "saccade", *line.split(), "--out", str(tmp_path / "weights")],
        [sys.executable, "benchmarks/deep.py", "--result", "deep"],
    ]
    printed = capsys.readouterr().out
    assert printed.index("will run: ") < printed.index("recording: ")
    monkeypatch.setattr(
        systems.subprocess, "run", lambda command, cwd: subprocess.CompletedProcess(command, 2)
    )
    with pytest.raises(SystemExit, match="Run the same command again to continue"):
        systems.record(rows, tmp_path)


def test_the_39_other_things_of_the_decks_have_a_command_or_a_reason() -> None:
    from saccade.cli import NAMES

    known = set(NAMES)
    text = (
        (ROOT / "docs/lectures.md")
        .read_text(encoding="utf-8")
        .partition("## Other topics on the slides")[2]
    )
    rows = re.findall(
        r"^\| (\d+) \| ([^|]*) \| ((?:[^|\\]|\\.)*) \| (.*) \|$", text, flags=re.MULTILINE
    )
    assert [int(number) for number, *_ in rows] == list(range(1, 40))
    for _, _, _, how in rows:
        named = re.findall(r"`saccade (?!\.)([a-z]+)", how)
        assert set(named) <= known
        assert (
            named
            or re.search(r"`(model\.|python )", how)
            or re.match(r"not here|out of scope|a note", how)
        ), how
