"""Several recipes compared: the same metrics as by hand, means and spreads, and mistakes found before any training."""

from __future__ import annotations

import statistics
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saccade import api
from saccade.config import recipes as config
from saccade.errors import SaccadeError
from saccade.experiments import comparison
from saccade.tasks.task import percent_of
from saccade.training.cost import summary
from saccade.training.loop import Watcher


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


class Watching:
    def __init__(self) -> None:
        self.names: list[tuple[str, int]] = []

    def __call__(self, name: str, updates: int) -> AbstractContextManager[Watcher]:
        self.names.append((name, updates))
        return nullcontext(Watcher())


def test_every_recipe_is_trained_with_every_seed_and_judged(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipes = {"mean": recipe(data, "mean"), "static": recipe(data, "static")}
    watching = Watching()
    rows = comparison.compare(recipes, [3, 4], tmp_path / "runs", watching)
    assert [name for name, _ in watching.names] == [
        "mean, seed 3",
        "mean, seed 4",
        "static, seed 3",
        "static, seed 4",
    ]
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [
        "mean-3",
        "mean-4",
        "static-3",
        "static-4",
    ]
    for row in rows:
        for at, seed in enumerate((3, 4)):
            system = api.load(tmp_path / "runs" / f"{row.name}-{seed}")
            assert system.recipe.seed == seed
            by_hand = api.evaluate(system, system.read(str(data)))
            numbers = {
                name: value for name, value in by_hand.items() if isinstance(value, int | float)
            }
            assert {name: row.metrics[name][at] for name in numbers} == numbers
            right, score = row.sums["accuracy"][0][at], row.sums["accuracy"][1]
            assert score(right.sum(0)) == pytest.approx(by_hand["accuracy"])
            assert row.metrics["parameters"][at] == sum(
                p.numel() for p in system.model.parameters()
            )
            assert row.metrics["updates"][at] == 4
        assert row.mean("loss") == pytest.approx(statistics.mean(row.metrics["loss"]))
        assert row.spread("loss") == pytest.approx(statistics.stdev(row.metrics["loss"]))
    monkeypatch.setattr(api, "fit", None)
    again = comparison.compare(recipes, [3, 4], tmp_path / "runs", watching)
    assert again == rows, "what is done is not done again"


def test_the_best_row_and_what_a_result_file_holds() -> None:
    rows = [comparison.Row("a", {"loss": [1.0, 3.0]}), comparison.Row("b", {"loss": [1.5, 1.7]})]
    assert [row.name for row in comparison.best(rows, "loss", False)] == ["b"]
    assert [row.name for row in comparison.best(rows, "loss", True)] == ["a"]
    even = [*rows, comparison.Row("c", {"loss": [1.7, 1.5]})]
    assert [row.name for row in comparison.best(even, "loss", False)] == ["b", "c"], (
        "equal up to rounding"
    )
    assert comparison.for_result(rows, "loss", False) == {
        "loss": [1.5, 1.7],
        "best": "b",
        "a.loss": [1.0, 3.0],
        "b.loss": [1.5, 1.7],
    }
    assert comparison.for_result(rows[:1], "loss", False) == {"loss": [1.0, 3.0]}
    assert comparison.Row("a", {"loss": [1.0]}).spread("loss") == 0


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
    def row(name: str, **right: str) -> comparison.Row:
        sums = {
            metric: ([np.array([[int(one), 1] for one in text], dtype=float)], percent_of)
            for metric, text in right.items()
        }
        return comparison.Row(
            name,
            {metric: [100 * text.count("1") / len(text)] for metric, text in right.items()},
            sums=sums,
        )

    rows = [
        row("a", accuracy="1" * 40, exact="0" * 40),
        row("b", accuracy="1" * 20 + "0" * 20, exact="0" * 40),
    ]
    rows[0] = replace(rows[0], before="b")
    found = comparison.for_result(rows, "accuracy", True)
    assert (found["a.accuracy_gain"], found["a.exact_gain"]) == ([50.0], [0.0])
    assert "b.accuracy_gain" not in found
    assert found["b.accuracy_p"] == comparison.judge(rows, "accuracy", True)[0].found.p < 0.01  # type: ignore[union-attr]
    assert found["b.exact_p"] == 1
    assert "a.accuracy_p" not in found


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
    [first] = comparison.compare(recipes, [0], tmp_path / "runs", Watching())
    [again] = comparison.compare(recipes, [0], tmp_path / "runs", Watching())
    assert set(first.metrics) >= COSTS
    assert {name: first.metrics[name] for name in COSTS} == {
        name: again.metrics[name] for name in COSTS
    }
    [each], [whole] = first.metrics["operations_per_update"], first.metrics["operations"]
    assert whole == 4 * each > 0
    found = api.costs(api.load(tmp_path / "runs" / "mean-0"))
    assert found == {name: first.metrics[name][0] for name in COSTS}


def test_a_run_that_kept_no_costs_has_its_parameters_alone(data: Path, tmp_path: Path) -> None:
    system, ended = api.fit(recipe(data, "mean"), tmp_path / "run", watcher=Watcher())
    old = replace(ended, costs={})
    assert set(summary(old, system.model)) == {"parameters"}
    assert set(summary(ended, system.model)) == COSTS
