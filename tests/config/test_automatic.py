"""What a recipe leaves open: chosen by the data before the run starts, written as numbers, the same when the run is resumed or repeated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from saccade import api, models
from saccade.config import recipes
from saccade.config.automatic import fit_to_data
from saccade.data.pairs import Pair
from saccade.training import run_plan
from saccade.training.checkpoints import Progress
from saccade.training.loop import Watcher
from support import error_of

ROOT = Path(__file__).parents[2]
PAIRS = [
    Pair(f"the cat saw {n} small dogs", f"le chat a vu {n} petits chiens", n) for n in range(1, 101)
]
TASKS = {
    models.Seq2Seq: "translation",
    models.CausalLM: "language-modelling",
    models.Encoder: "tagging",
}


def sizes(family: str) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = models.table[family].config.sizes  # type: ignore[attr-defined]
    return found


FAMILIES = [entry.name for entry in models.table if any(entry.make.build(kind) for kind in TASKS)]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_sizes_by_name_that_grow_and_are_written_as_numbers(family: str) -> None:
    counted = []
    for size, numbers in sizes(family).items():
        task = next(task for kind, task in TASKS.items() if models.table[family].build(kind))
        made = recipes.recipe({"task": task, "model": {"family": family, "size": size}})
        assert "size" not in made.model
        assert {name: made.model[name] for name in numbers} == numbers
        assert recipes.recipe(made.to_dict()) == made
        counted.append(numbers["dim"])
    assert list(sizes(family)) == ["tiny", "small", "medium", "base", "big"]
    assert counted == sorted(counted)


def test_base_and_big_are_the_papers() -> None:
    found = sizes("transformer")
    assert found["base"] == {"dim": 512, "hidden": 2048, "depth": 6, "heads": 8, "dropout": 0.1}
    assert found["big"] == {"dim": 1024, "hidden": 4096, "depth": 6, "heads": 16, "dropout": 0.3}
    assert recipes.recipe({"model": {"family": "transformer"}}) == recipes.recipe(
        {"model": {"family": "transformer", "size": "base"}}
    )


def test_a_setting_beside_a_size_is_the_settings_own() -> None:
    made = recipes.recipe(
        {"model": {"family": "transformer", "size": "tiny", "depth": 5}}, ["model.dropout=0.4"]
    )
    assert (made.model["dim"], made.model["depth"], made.model["dropout"]) == (64, 5, 0.4)
    assert (
        recipes.recipe(
            {"model": {"family": "transformer", "size": "auto"}}, ["model.size=big"]
        ).model["dim"]
        == 1024
    )


def open_recipe(*words: str) -> recipes.Recipe:
    return recipes.read_recipe("translation", ["device=cpu", *words])


def test_more_data_make_a_larger_model_vocabulary_and_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few, notes = fit_to_data(open_recipe(), PAIRS)
    many, _ = fit_to_data(open_recipe(), PAIRS * 200)
    assert (few.model["dim"], few.vocabulary.size, few.training.tokens) == (64, 500, 1000)
    assert (many.model["dim"], many.training.tokens) == (128, 4096)
    assert 3000 < many.vocabulary.size < 8000
    assert few.model["dropout"] == 0.3, "the recipe's own"
    assert notes[0].startswith(
        "chosen for 100 examples on a CPU: model.size=tiny (dim 64, hidden 256, depth 2, heads 2, "
    )
    assert (
        notes[1]
        == "for a shorter run: training.minutes=5; for a better model: model.size=small training.minutes=60"
    )
    monkeypatch.setattr(recipes, "device", lambda name: torch.device("cuda"))
    assert fit_to_data(open_recipe(), PAIRS * 200)[0].model["dim"] == 256, "a GPU has time for more"


def test_a_batch_holds_long_examples_but_not_a_line_that_is_far_too_long() -> None:
    long = [*PAIRS, *[Pair("word " * 300, "mot " * 300, 101)] * 5]
    assert fit_to_data(open_recipe(), long)[0].training.tokens >= 5 * 300 + 4 * 300
    odd = [*PAIRS * 5, Pair("word " * 2000, "mot", 501)]
    assert fit_to_data(open_recipe(), odd)[0].training.tokens == 1000, (
        "one line that is far too long decides nothing"
    )


def test_what_is_not_open_stays() -> None:
    made = recipes.recipe({"model": {"family": "transformer"}})
    assert fit_to_data(made, PAIRS) == (made, ())
    kept = ["model.size=tiny", "vocabulary.size=300", "training.tokens=99", "training.updates=7"]
    training = fit_to_data(open_recipe(*kept), PAIRS)[0].training
    assert (training.tokens, training.updates) == (99, 7)


@pytest.mark.parametrize("name", ["translation", "language", "tagging", "classification"])
def test_the_recipes_for_anybodys_data_leave_sizes_and_limits_open(name: str) -> None:
    values = yaml.safe_load((ROOT / "recipes" / "tasks" / f"{name}.yaml").read_text())
    assert values["model"]["size"] == "auto"
    assert (values["training"]["updates"], values["training"]["evaluate_every"]) == ("auto", "auto")


# --- limits


@pytest.mark.parametrize(
    ("file", "words", "expected"),
    [
        ({}, [], (2000, None, None)),
        ({"epochs": 20}, [], ("auto", 20, None)),
        ({"minutes": 5}, [], ("auto", None, 5)),
        ({"updates": 70, "epochs": 20}, [], (70, 20, None)),
        ({"updates": 70}, ["training.epochs=3"], ("auto", 3, None)),
        ({"updates": 70}, ["training.minutes=3"], ("auto", None, 3)),
        ({"updates": 70}, ["training.minutes=null"], (70, None, None)),
        ({"minutes": 9}, ["training.updates=30"], (30, None, None)),
        ({"epochs": 9}, ["training.updates=30", "training.minutes=2"], (30, None, 2)),
        ({}, ["training.epochs=3"], ("auto", 3, None)),
    ],
)
def test_limits_on_the_command_line_replace_those_of_the_recipe(
    file: dict[str, Any], words: list[str], expected: tuple[float, ...]
) -> None:
    made = recipes.recipe({"model": {"family": "luong"}, "training": file}, words)
    assert (made.training.updates, made.training.epochs, made.training.minutes) == expected
    assert recipes.recipe(made.to_dict()) == made


# --- runs


class Quit(Watcher):
    """Dies after an update, as by kill -9."""

    def __init__(self, update: int) -> None:
        self.last = update

    def update(self, at: Progress, row: dict[str, float]) -> None:
        if at.update == self.last:
            raise RuntimeError("killed")


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> recipes.Recipe:
    """The general recipe on a file of pairs, on a machine that has time for 6 updates."""
    (tmp_path / "pairs.tsv").write_text(
        "".join(f"{pair.source}\t{pair.target}\n" for pair in PAIRS)
    )
    monkeypatch.setattr(run_plan, "time_update", lambda *_: 60 * run_plan.CPU_MINUTES / 8)
    small = [
        "model.hidden=16",
        "model.depth=1",
        "vocabulary.size=300",
        "training.average=null",
        "training.checkpoint_every=1",
    ]
    return open_recipe(f"data.train={tmp_path}/pairs.tsv", *small)


def same(one: Path, other: Path) -> bool:
    a, b = (
        load_file(one / "last" / "model.safetensors"),
        load_file(other / "last" / "model.safetensors"),
    )
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("word", ["training.updates=auto", "training.minutes=9"])
def test_a_run_writes_what_was_chosen_and_is_resumed_and_repeated_exactly(
    mine: recipes.Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    made = recipes.recipe(mine.to_dict(), [word])
    _, ended = api.fit(made, tmp_path / "whole")
    written = json.loads((tmp_path / "whole" / "recipe.json").read_text())
    training = written["training"]
    assert ended.update == training["updates"] in (5, 6)
    assert (training["warmup"], training["evaluate_every"], training["threads"]) == (
        0,
        1,
        torch.get_num_threads(),
    )
    assert "size" not in written["model"]
    config = json.loads((tmp_path / "whole" / "best" / "config.json").read_text())
    assert config == {"model_type": "saccade", **written}
    with pytest.raises(RuntimeError):
        api.fit(made, tmp_path / "run", watcher=Quit(3))
    # another machine, or another hour
    monkeypatch.setattr(run_plan, "time_update", lambda *_: 1e-9)
    api.fit(made, tmp_path / "run", resume=True)
    assert same(tmp_path / "whole", tmp_path / "run")
    api.fit(recipes.read_recipe(tmp_path / "whole" / "recipe.json"), tmp_path / "again")
    assert same(tmp_path / "whole", tmp_path / "again")


def test_a_run_with_more_minutes_continues_at_the_speed_it_had(
    mine: recipes.Recipe, tmp_path: Path
) -> None:
    api.fit(mine, tmp_path / "run")
    kept = json.loads((tmp_path / "run" / "last" / "training.json").read_text())
    seconds, updates = kept["seconds"], kept["update"]
    more = recipes.read_recipe(
        tmp_path / "run" / "recipe.json", [f"training.minutes={2 * seconds / 60}"]
    )
    api.fit(more, tmp_path / "run", resume=True)
    training = json.loads((tmp_path / "run" / "recipe.json").read_text())["training"]
    assert training["updates"] == pytest.approx(2 * updates, abs=1)


def test_a_run_of_the_last_version_is_resumed_with_torchs_threads(
    mine: recipes.Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.fit(mine, tmp_path / "run")
    path = tmp_path / "run" / "recipe.json"
    written = json.loads(path.read_text())
    for name in ("threads", "epochs", "minutes"):
        del written["training"][name]
    path.write_text(json.dumps(written))
    monkeypatch.setattr(
        run_plan, "choose_threads", lambda *_: pytest.fail("threads were chosen anew")
    )
    _, ended = api.fit(
        recipes.read_recipe(path, ["training.updates=9"]), tmp_path / "run", resume=True
    )
    assert ended.update == 9
    assert json.loads(path.read_text())["training"]["threads"] == torch.get_num_threads()


def test_another_setting_is_still_refused(mine: recipes.Recipe, tmp_path: Path) -> None:
    api.fit(mine, tmp_path / "run")
    changed = recipes.recipe(mine.to_dict(), ["model.dim=32"])
    assert "run was started with a different model.dim; resume" in error_of(
        lambda: api.fit(changed, tmp_path / "run", resume=True)
    )
