"""A recipe that starts from another recipe: the first is trained where it is missing, finished where it was stopped, and used again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from saccade import api
from saccade.cli import run
from saccade.config import recipes as config
from saccade.errors import SaccadeError
from saccade.experiments import comparison
from saccade.experiments.runner import Board
from saccade.experiments.study import Job
from saccade.training.checkpoints import RunFolder
from saccade.training.loop import Watcher
from support import tiny_recipe

MODEL = {"family": "bahdanau", "dim": 8, "hidden": 8}
SHORT = {"updates": 2, "tokens": 300, "evaluate_every": 2}


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with two recipes: `second.yaml` starts from `first.yaml`."""
    monkeypatch.chdir(tmp_path)
    first = tiny_recipe(
        data={"options": {"train": 30, "dev": 4, "test": 4}}, model=MODEL, training=SHORT
    )
    second = {
        **{name: value for name, value in first.items() if name != "vocabulary"},
        "start_from": "first.yaml",
    }
    for name, values in {"first": first, "second": second}.items():
        (tmp_path / f"{name}.yaml").write_text(json.dumps(values))
    return tmp_path


def updates(folder: Path | str) -> int:
    found = RunFolder(Path(folder), {}).progress()
    return 0 if found is None else found.update


def parameters(folder: Path | str) -> Any:
    return api.load(folder, "cpu").model.state_dict()


class Notes(Watcher):
    def __init__(self) -> None:
        self.told: list[str] = []

    def note(self, text: str) -> None:
        self.told.append(text)


def test_the_command_trains_the_first_recipe_into_its_usual_folder(
    empty: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["train", "second.yaml"]) == 0
    told = capsys.readouterr().err
    assert (
        "second: starts from the model of first, which is trained first into runs/first (updates: 2)"
        in told
    )
    assert sorted(path.name for path in (empty / "runs").iterdir()) == ["first", "second"]
    assert json.loads((empty / "runs/second/recipe.json").read_text())["start_from"] == "first.yaml"


def test_python_trains_it_too_and_uses_a_finished_run_again(empty: Path) -> None:
    notes = Notes()
    system, _ = api.fit(config.read_recipe("second.yaml"), "out", watcher=notes)
    assert updates("runs/first") == updates("out") == 2
    assert system.recipe.start_from == "first.yaml"
    before = (empty / "runs/first/last/training.json").read_bytes()
    notes.told.clear()
    api.fit(config.read_recipe("second.yaml"), "again", watcher=notes)
    assert (empty / "runs/first/last/training.json").read_bytes() == before
    assert not any("trained first" in told for told in notes.told)
    api.fit(config.read_recipe("second.yaml"), "again", resume=True, watcher=Watcher())


def test_a_finished_run_with_other_settings_is_used_as_it_is(empty: Path) -> None:
    api.fit(
        config.read_recipe("first.yaml", ["training.updates=1", "model.dim=12"]),
        "runs/first",
        watcher=Watcher(),
    )
    notes = Notes()
    api.fit(config.read_recipe("second.yaml", ["model.dim=12"]), "out", watcher=notes)
    assert updates("runs/first") == 1
    assert not any("trained first" in told for told in notes.told)


def test_a_run_without_an_end_continues(empty: Path) -> None:
    class Stop(Watcher):
        def update(self, at: Any, row: dict[str, float]) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        api.fit(config.read_recipe("first.yaml", ["seed=7"]), "runs/first", watcher=Stop())
    notes = Notes()
    api.fit(config.read_recipe("second.yaml"), "out", watcher=notes)
    assert any("continues first in runs/first" in told for told in notes.told)
    assert json.loads(Path("runs/first/recipe.json").read_text())["seed"] == 7
    assert updates("runs/first") == 2


def test_compare_starts_each_seed_from_the_first_recipe_of_that_seed(empty: Path) -> None:
    recipes = {name: config.read_recipe(f"{name}.yaml") for name in ("second", "first")}
    seen: list[str] = []

    class Seen(Board):
        def begin(self, job: Job) -> None:
            seen.append(job.label)

    comparison.check(recipes, [0, 1], "", {})
    table = comparison.compare(recipes, [0, 1], Path("runs/compare"), Seen())
    assert seen == ["first, seed 0", "second, seed 0", "first, seed 1", "second, seed 1"]
    assert sorted(path.name for path in Path("runs/compare").iterdir()) == [
        "first-0",
        "first-1",
        "second-0",
        "second-1",
    ]
    assert [run.name for run in table.runs["first"]] == ["first-0", "first-1"]
    assert (
        json.loads(Path("runs/compare/second-1/recipe.json").read_text())["start_from"]
        == "runs/compare/first-1"
    )
    assert not Path("runs/first").exists()


def test_what_the_second_begins_with_is_what_the_first_has_learned(empty: Path) -> None:
    api.fit(config.read_recipe("first.yaml"), "runs/first", watcher=Watcher())
    begun = api.build(config.read_recipe("second.yaml")).model.state_dict()
    learned = parameters("runs/first")
    assert begun.keys() == learned.keys()
    assert all(bool((begun[name] == learned[name]).all()) for name in learned)


def test_without_a_run_a_system_is_not_built(empty: Path) -> None:
    with pytest.raises(
        SaccadeError,
        match=r"^start_from is the recipe first, which has no run in runs/first; train it first: sacc",
    ):
        api.build(config.read_recipe("second.yaml"))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            "nowhere",
            "no model folder at nowhere, and no recipe of that name comes with saccade; there are: ",
        ),
        (
            "runs/shapes-captions-sofd",
            "no model folder at runs/shapes-captions-sofd, and no recipe of that name comes with saccade; did",
        ),
        ("runs/first", "no model folder at runs/first, and no recipe of that name comes"),
        (
            "loop.yaml",
            "loop.yaml starts from itself by start_from; name another recipe or a model folder",
        ),
        (
            "second.yaml",
            "runs/second is the run of second, which this run starts from; choose another --out",
        ),
        ("empty.yaml", "empty.yaml is empty; write at least `data:` and `model:`"),
        (
            "gone.yaml",
            "no model folder at gone.yaml, and no recipe of that name comes with saccade",
        ),
    ],
)
def test_a_wrong_name_is_one_sentence(
    empty: Path, capsys: pytest.CaptureFixture[str], given: str, told: str
) -> None:
    (empty / "empty.yaml").write_text("")
    (empty / "loop.yaml").write_text(
        (empty / "second.yaml").read_text().replace("first.yaml", "loop.yaml")
    )
    assert run(["train", "second.yaml", f"start_from={given}"]) == 2
    assert told in capsys.readouterr().err
    assert not (empty / "runs").exists(), "nothing was trained"


def test_an_output_folder_that_is_taken_is_found_before_the_first_run(empty: Path) -> None:
    Path("out").mkdir()
    Path("out/other").write_text("x")
    with pytest.raises(SaccadeError, match="out contains other files and no run"):
        api.fit(config.read_recipe("second.yaml"), "out", watcher=Watcher())
    assert not (empty / "runs").exists()


@pytest.mark.parametrize(
    "name",
    ["shapes-captions-hard", "entailment-pretrained", "sst2-pretrained", "phrasebook-gnmt-reward"],
)
def test_the_recipes_that_start_from_another_name_a_recipe_of_the_same_model(name: str) -> None:
    second = config.read_recipe(name)
    [first] = config.recipes_before(second)
    made = config.read_recipe(first)
    assert first.stem == second.start_from
    for key in ("dim", "hidden", "depth"):
        assert made.model.get(key) == second.model.get(key)


def test_the_list_of_recipes_says_what_the_first_one_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from saccade.config import index

    monkeypatch.setenv("SACCADE_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    needs = {row["name"]: row["needs"] for row in index.rows("recipes")}
    assert needs["shapes-captions-hard"] == "nothing"
    assert "wikitext-2" in needs["sst2-pretrained"]
