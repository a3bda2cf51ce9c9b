"""Several recipes compared: the same metrics as by hand, means and spreads, and mistakes found before any training."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saccade import api
from saccade.config import recipes as config
from saccade.errors import SaccadeError
from saccade.experiments import comparison
from saccade.experiments.runner import Board
from saccade.experiments.study import Job
from saccade.tasks.task import percent_of
from saccade.training.cost import summary
from saccade.training.loop import Watcher
from support import raises


def recipe(data: Path, pool: str, *words: str) -> config.Recipe:
    made = {
        "task": "classification",
        "data": {"train": str(data), "dev": str(data)},
        "vocabulary": {"kind": "words"},
        "model": {"family": "bag", "dim": 4, "pool": pool},
        "training": {"updates": 4, "tokens": 30, "evaluate_every": 2, "learning_rate": 0.05},
        "device": "cpu",
    }
    return config.recipe(made, words)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "texts.tsv"
    path.write_text("a good film\tgood\na bad film\tbad\nfun\tgood\nno fun at all\tbad\n")
    return path


class Heard(Board):
    """Which jobs ran, in their order, and what they said."""

    def __init__(self) -> None:
        self.labels: list[str] = []
        self.notes: list[str] = []

    def begin(self, job: Job) -> None:
        self.labels.append(job.label)

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_every_recipe_is_trained_with_every_seed_and_judged(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipes = {"mean": recipe(data, "mean"), "static": recipe(data, "static")}
    board = Heard()
    table = comparison.compare(recipes, [3, 4], tmp_path / "runs", board)
    assert board.labels == ["mean, seed 3", "mean, seed 4", "static, seed 3", "static, seed 4"]
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [
        "mean-3",
        "mean-4",
        "static-3",
        "static-4",
    ]
    for row, metrics in table.rows.items():
        for at, seed in enumerate((3, 4)):
            system = api.load(tmp_path / "runs" / f"{row}-{seed}")
            assert system.recipe.seed == seed
            by_hand = api.evaluate(system, system.read(str(data)))
            numbers = {
                name: value for name, value in by_hand.items() if isinstance(value, int | float)
            }
            assert {name: metrics[name][at] for name in numbers} == numbers
            right, score = table.sums[row]["accuracy"][0][at], table.sums[row]["accuracy"][1]
            assert score(right.sum(0)) == pytest.approx(by_hand["accuracy"])
            assert metrics["parameters"][at] == sum(p.numel() for p in system.model.parameters())
            assert metrics["updates"][at] == 4
        assert table.mean(row, "loss") == pytest.approx(statistics.mean(metrics["loss"]))
        assert table.spread(row, "loss") == pytest.approx(statistics.stdev(metrics["loss"]))
    monkeypatch.setattr(api, "fit", None)
    again = comparison.compare(recipes, [3, 4], tmp_path / "runs", board)
    assert again.rows == table.rows, "what is done is not done again"
    assert again.runs == table.runs
    for row, sums in table.sums.items():
        assert np.array_equal(sums["accuracy"][0], again.sums[row]["accuracy"][0])
    assert board.notes.count("mean, seed 3: already finished at update 4") == 1


def test_trainings_side_by_side_have_the_metrics_of_trainings_one_by_one(
    data: Path, tmp_path: Path
) -> None:
    words = "training.threads=1"
    recipes = {name: recipe(data, name, words) for name in ("mean", "static")}
    board = Heard()
    both = comparison.compare(recipes, [0], tmp_path / "two", board, jobs=2)
    one = comparison.compare(recipes, [0], tmp_path / "one", Board())
    for row, metrics in one.rows.items():
        assert both.rows[row]["loss"] == metrics["loss"]
        assert both.rows[row]["accuracy"] == metrics["accuracy"]
    assert {text.partition(":")[0] for text in board.notes} == {"mean, seed 0", "static, seed 0"}
    assert any("update 4  dev loss" in text for text in board.notes), "evaluations are reported"


def test_a_training_that_fails_is_named_and_the_others_are_kept(data: Path, tmp_path: Path) -> None:
    recipes = {"bad": recipe(data, "mean", "data.train=nowhere.tsv"), "good": recipe(data, "mean")}
    with raises("training-failed") as error:
        comparison.compare(recipes, [0, 1], tmp_path / "runs", Board())
    assert "2 of 4 trainings failed, the first: bad, seed 0: no file 'nowhere.tsv'" in str(
        error.value
    )
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["good-0", "good-1"]


def test_the_best_row_is_named_and_its_metrics_are_those_without_a_row() -> None:
    rows = {"a": {"loss": [1.0, 3.0]}, "b": {"loss": [1.5, 1.7]}}
    table = comparison.Comparison("x", rows)
    assert table.leaders("loss", False) == ["b"]
    assert table.leaders("loss", True) == ["a"]
    even = comparison.Comparison("x", {**rows, "c": {"loss": [1.7, 1.5]}})
    assert even.leaders("loss", False) == ["b", "c"], "equal up to rounding"
    assert table.test("loss", False) == []
    assert (table.best, table["loss"], table["a.loss"]) == ("b", [1.5, 1.7], [1.0, 3.0])
    alone = comparison.Comparison("x", {"a": {"loss": [1.0]}})
    alone.test("loss", False)
    assert (alone.best, alone["loss"], alone.spread("a", "loss")) == ("", [1.0], 0)


def test_lengths_are_means_of_the_seeds_and_rows_without_them_are_left_out() -> None:
    quarters = {
        f"{what}_quarter_{n}": [float(n), 3.0 * n]
        for n in range(1, 5)
        for what in ("words", "bleu")
    }
    quarters["bleu_quarter_4"] = [10.0, 20.0]
    found = comparison.by_length({"one": {**quarters, "bleu": [1.0]}, "other": {"bleu": [1.0]}})
    assert found == {"one": [(2, 2), (4, 4), (6, 6), (8, 15)]}


def test_a_result_file_holds_p_of_every_metric_and_what_a_row_gained_on_the_one_it_starts_from() -> (
    None
):
    right = {
        "a": {"accuracy": "1" * 40, "exact": "0" * 40},
        "b": {"accuracy": "1" * 20 + "0" * 20, "exact": "0" * 40},
    }
    table = comparison.Comparison("x", {}, before={"a": "b"})
    for row, metrics in right.items():
        table.sums[row] = {
            metric: ([np.array([[int(one), 1] for one in text], dtype=float)], percent_of)
            for metric, text in metrics.items()
        }
        for metric, text in metrics.items():
            table.add(row, metric, 100 * text.count("1") / len(text))
    [verdict] = table.test("accuracy", True)
    a, b = table.rows["a"], table.rows["b"]
    assert (a["accuracy_gain"], a["exact_gain"]) == ([50.0], [0.0])
    assert "accuracy_gain" not in b
    assert b["accuracy_p"] == verdict.found.p < 0.01  # type: ignore[union-attr]
    assert b["exact_p"] == 1
    assert "accuracy_p" not in a
    assert table.side_by_side() == [
        ["", "a", "b"],
        ["accuracy", "100.0", "50.0*"],
        ["exact", "0.0", "0.0"],
    ]


def test_mistakes_are_found_before_any_training(data: Path, tmp_path: Path) -> None:
    good = recipe(data, "mean")
    tagging = config.recipe({"task": "tagging", "model": {"family": "bag"}})
    cases: list[tuple[dict[str, config.Recipe], list[int], str, dict[str, Any], str]] = [
        ({}, [0], "", {}, "nothing to compare; give at least one recipe and one seed"),
        ({"a": good}, [], "", {}, "nothing to compare"),
        (
            {"a": good, "b": tagging},
            [0],
            "",
            {},
            "these recipes have different tasks; compare recipes of one task",
        ),
        ({"a": good}, [0], str(tmp_path / "nowhere.tsv"), {}, "no file"),
        (
            {"a": recipe(data, "mean", "data.test=nowhere.tsv")},
            [0],
            "",
            {},
            "no file 'nowhere.tsv'",
        ),
        ({"a": good}, [0], "", {"beam": 3}, "an evaluation of classification has no option 'beam'"),
    ]
    for recipes, seeds, where, options, sentence in cases:
        with pytest.raises(SaccadeError) as error:
            comparison.check(recipes, seeds, where, options)
        assert sentence in str(error.value)


COSTS = {
    "parameters",
    "operations_per_update",
    "operations",
    "updates_per_second",
    "peak_memory_process",
}


def test_what_runs_cost_is_in_every_row_also_of_a_run_that_is_used_again(
    data: Path, tmp_path: Path
) -> None:
    recipes = {"mean": recipe(data, "mean")}
    first, again = (
        comparison.compare(recipes, [0], tmp_path / "runs", Board()).rows["mean"] for _ in range(2)
    )
    assert set(first) >= COSTS
    assert {name: first[name] for name in COSTS} == {name: again[name] for name in COSTS}
    [each], [whole] = first["operations_per_update"], first["operations"]
    assert whole == 4 * each > 0
    found = api.costs(api.load(tmp_path / "runs" / "mean-0"))
    assert found == {name: first[name][0] for name in COSTS}


def test_a_run_that_kept_no_costs_has_its_parameters_alone(data: Path, tmp_path: Path) -> None:
    system, ended = api.fit(recipe(data, "mean"), tmp_path / "run", watcher=Watcher())
    old = replace(ended, costs={})
    assert set(summary(old, system.model)) == {"parameters"}
    assert set(summary(ended, system.model)) == COSTS
