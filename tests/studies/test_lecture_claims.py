"""Claims as tables: what their rows differ in, and their measurements against values found by hand; all of them run, tiny."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from saccade import api
from saccade.cli.completion import TABLES
from saccade.config import recipes
from saccade.core import masks
from saccade.experiments import forecast, runner, study_table
from saccade.experiments import study as plan
from saccade.experiments.runner import Context, recipe_of, train
from saccade.experiments.study import Job
from saccade.models.builder import Builder
from saccade.models.protocols import Seq2Seq
from saccade.studies.tables import STUDIES, equal_budgets, family_tasks, lecture_claims, shuffling
from saccade.studies.tables.lecture_claims import Claim
from saccade.training.cost import Cost
from support import run_cli

CLAIMS = [name for name, study in STUDIES.items() if issubclass(study, Claim)]
SOURCE, LENGTHS, TARGET = torch.tensor([[4, 5, 6, 7]]), torch.tensor([4]), torch.tensor([[2, 8, 9]])


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "SENTENCES", {"train": 60, "dev": 6, "test": 6})
    for module in (lecture_claims, family_tasks):
        monkeypatch.setitem(module.UPDATES, "tiny", 2)  # type: ignore[attr-defined]
    monkeypatch.setitem(family_tasks.Entailment.updates, "tiny", (2, 2))  # type: ignore[arg-type]
    monkeypatch.setitem(equal_budgets.Lstm.minutes, "tiny", 0.001)  # type: ignore[arg-type]
    monkeypatch.setattr(
        forecast,
        "measure",
        lambda model, loss, updates, *_: Cost(1, 1e6, 1e-3, updates, slowest=1e-3),
    )


def parameters(model: dict[str, Any], *vocabularies: int) -> int:
    return sum(one.numel() for one in Builder(model).make(Seq2Seq, *vocabularies).parameters())


def test_the_command_line_knows_every_table() -> None:
    assert list(TABLES) == list(STUDIES)


@pytest.mark.parametrize("name", CLAIMS)
@pytest.mark.parametrize("scale", ["tiny", "small"])
def test_every_training_of_a_claim_is_a_recipe(name: str, scale: str, tmp_path: Path) -> None:
    study = STUDIES[name](scale, tmp_path)
    jobs = study.plan((), 2)
    assert {job.row for job in jobs} == set(study.rows())
    assert len({job.name for job in jobs}) == len(jobs)
    for job in jobs:
        if "training" in job.settings:
            assert replace_start(job).seed == job.seed
    assert all(column.key in {one.key for one in study.columns} for column in study.columns)
    assert set(study.drawn) <= {one.key for one in study.columns}
    assert (tmp_path / "text").exists() is False, "a claim writes no data"


def replace_start(job: Job) -> recipes.Recipe:
    """The recipe, without the model that it starts from, which is not there yet."""
    return recipe_of(replace(job, after=()), 1)


def test_heads_have_equal_parameters_and_operations(tmp_path: Path) -> None:
    study: Any = STUDIES["heads"]("small", tmp_path)
    models = [study.model(row) for row in study.rows()]
    assert [model["heads"] for model in models] == [1, 2, 4, 8, 16]
    assert len({parameters(model, 50, 60) for model in models}) == 1


def test_each_barrier_lacks_one_part(tmp_path: Path) -> None:
    study: Any = STUDIES["barriers"]("tiny", tmp_path)
    whole = parameters(study.model("whole"), 50, 60)
    d, h = 32, 64
    # two MLPs and their norms
    assert whole - parameters(study.model("no-mlp"), 50, 60) == 2 * (d * h + h + h * d + d + 2 * d)
    # two in the encoder, three in the decoder, two at the ends
    assert whole - parameters(study.model("no-norm"), 50, 60) == 2 * d * 7
    assert (
        parameters(study.model("no-residual"), 50, 60)
        == parameters(study.model("no-position"), 50, 60)
        == whole
    )
    assert {job.do for job in study.plan(("no-causal-mask",), 1)} == {lecture_claims.train_unmasked}


def test_without_the_causal_mask_training_sees_the_words_to_come_and_use_does_not(
    tmp_path: Path,
) -> None:
    job = STUDIES["barriers"]("tiny", tmp_path).plan(("no-causal-mask",), 1)[0]
    seen = list[Any]()

    class Spy(runner.Prepared):
        def __call__(self, made: Any) -> Any:
            seen.append(super().__call__(made)[0])
            return seen[-1], self.kept[next(iter(self.kept))]

    found = lecture_claims.train_unmasked(job, Context(prepare=Spy()))
    assert isinstance(seen[0].model.visible, masks.Full)
    other = TARGET.clone()
    other[0, 2] = 5
    with torch.no_grad():
        for model, peeks in ((seen[0].model.eval(), True), (api.load(job.folder).model, False)):
            first, second = (model(SOURCE, LENGTHS, one)[0, :2] for one in (TARGET, other))
            assert torch.allclose(first, second) != peeks
    assert {"final_loss", "test_loss", "bleu"} <= set(found)


def test_widths_of_scores_are_options_of_the_score(tmp_path: Path) -> None:
    study: Any = STUDIES["scores"]("small", tmp_path)
    assert study.model("additive-32")["score"] == {"name": "additive", "hidden": 32}
    assert study.model("reduced-rank-128")["score"] == {"name": "reduced-rank", "rank": 128}
    assert study.model("dot")["score"] == {"name": "dot"}


def test_the_update_that_reached_a_loss(tmp_path: Path) -> None:
    job = STUDIES["hard"]("tiny", tmp_path).plan(("soft",), 1)[0]
    easy = replace(job, settings={**job.settings, "asked": {"reach": 100.0}})
    assert train(easy, Context())["reached"] == 1
    never = replace(job, settings={**job.settings, "asked": {"reach": 0.0}})
    assert train(never, Context())["reached"] is None


@pytest.mark.parametrize("family", ["lstm", "transformer"])
@pytest.mark.parametrize("wanted", [60_000, 300_000])
def test_a_width_is_found_for_a_number_of_parameters(family: str, wanted: int) -> None:
    model = equal_budgets.width_for(family, wanted, (200, 250))
    found = parameters(model, 200, 250)
    assert abs(found - wanted) < 0.1 * wanted
    for step in (-equal_budgets.STEP, equal_budgets.STEP):
        other = parameters(equal_budgets.of_width(family, model["dim"] + step), 200, 250)
        assert abs(other - wanted) >= abs(found - wanted)


def test_what_is_timed_is_forecast_by_its_minutes(tmp_path: Path) -> None:
    jobs = STUDIES["lstm"]("small", tmp_path).plan(("lstm-60k",), 1)
    expected = forecast.forecast(jobs, 1)
    [seconds] = [value for name, (value, _) in expected.items() if name.startswith("seconds/")]
    assert seconds == pytest.approx(60 * 0.2)


MEMORIES: dict[str, tuple[dict[str, Any], bool]] = {
    "bahdanau": ({"dim": 8, "hidden": 8}, True),
    "luong": ({"dim": 8, "hidden": 8}, True),
    "transformer": ({"dim": 8, "hidden": 8, "depth": 1, "heads": 2}, True),
    "convs2s": ({"dim": 8, "hidden": 8, "depth": 1}, True),
}


@pytest.mark.parametrize("family", MEMORIES)
def test_a_shuffled_memory_is_shuffled_and_unnoticed(family: str) -> None:
    torch.manual_seed(0)
    model: Any = (
        Builder({"family": family, **MEMORIES[family][0], "dropout": 0.0})
        .make(Seq2Seq, 12, 12)
        .double()
        .eval()
    )
    order = torch.tensor([2, 0, 3, 1])
    plain = model(SOURCE, LENGTHS, TARGET)
    state = model.start(SOURCE, LENGTHS)
    with shuffling.shuffled_memory(model, order):
        torch.testing.assert_close(model(SOURCE, LENGTHS, TARGET), plain)
        moved = model.start(SOURCE, LENGTHS)
    key, there = (
        (
            one.caches[0].memory.key
            if family == "transformer"
            else one.keys[0]
            if family == "convs2s"
            else one.key
        )
        for one in (state, moved)
    )
    torch.testing.assert_close(there, key.index_select(-2, order))
    assert not torch.allclose(there, key)
    torch.testing.assert_close(
        model.start(SOURCE, LENGTHS).caches[0].memory.key
        if family == "transformer"
        else model(SOURCE, LENGTHS, TARGET),
        key if family == "transformer" else plain,
    )
    assert not torch.allclose(model(SOURCE[:, order], LENGTHS, TARGET), plain), (
        "these read the source in its order"
    )


def test_a_local_window_notices_and_a_transformer_without_positions_notices_nothing() -> None:
    torch.manual_seed(0)
    order = torch.tensor([2, 0, 3, 1])
    local: Any = {
        "family": "luong",
        "dim": 8,
        "hidden": 8,
        "dropout": 0.0,
        "window": {"name": "predicted", "reach": 1},
    }
    model: Any = Builder(local).make(Seq2Seq, 12, 12).double().eval()
    plain = model(SOURCE, LENGTHS, TARGET)
    with shuffling.shuffled_memory(model, order):
        assert not torch.allclose(model(SOURCE, LENGTHS, TARGET), plain)
    blind: Any = {
        "family": "transformer",
        "dim": 8,
        "hidden": 8,
        "depth": 1,
        "heads": 2,
        "position_embedding": "none",
    }
    model = Builder(blind).make(Seq2Seq, 12, 12).double().eval()
    torch.testing.assert_close(
        model(SOURCE[:, order], LENGTHS, TARGET), model(SOURCE, LENGTHS, TARGET)
    )


def test_the_largest_difference_is_of_what_may_happen() -> None:
    first = torch.tensor([0.5, 0.5 - 1e-9, 1e-9]).log()
    second = torch.tensor([0.25, 0.75 - 1e-8, 1e-8]).log()
    assert shuffling.apart(first, second) == pytest.approx(0.6931, abs=1e-3)


def test_rows_share_a_pretrained_model(tmp_path: Path) -> None:
    jobs = STUDIES["entailment"]("small", tmp_path).plan((), 2)
    masked = [job for job in jobs if job.stage == "masked"]
    assert len(masked) == 2
    started = [job for job in jobs if job.after]
    assert {job.after[0].name for job in started} == {job.name for job in masked}
    assert all("vocabulary" not in job.settings for job in started)
    assert {job.settings["data"]["options"]["train"] for job in jobs} == {500, 4000}


def tiny_rows(name: str) -> list[str]:
    """One row that shows what is special about a table."""
    return {
        "barriers": ["no-causal-mask"],
        "norms": ["batch-before"],
        "hard": ["hard"],
        "shuffle": ["transformer"],
    }.get(
        name,
        {
            "lstm": ["transformer-40k"],
            "entailment": ["pretrained-few"],
            "tasks": ["tagging-rnn"],
        }.get(name, []),
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_is_one_command_and_one_result_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_cli("table", name, "--only", *(tiny_rows(name) or list(STUDIES[name]("tiny", tmp_path / "x").rows())[:1]),
                   "--out", "out", "--result", f"claim-{name}")  # fmt: skip
    assert done.code == 0, done.err
    text = (tmp_path / "out" / "table.md").read_text()
    assert STUDIES[name].honest in text
    assert (tmp_path / "benchmarks" / "results" / f"claim-{name}.json").exists()


def make_metric(values: dict[str, float]) -> Callable[..., dict[str, float]]:
    return lambda job, context: dict(values)


def test_a_task_names_its_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(family_tasks, "train", make_metric({"perplexity": 7.5, "accuracy": 90.0}))
    study = STUDIES["tasks"]("tiny", tmp_path)
    for row, metric, score in (
        ("language-rnn", "perplexity", 7.5),
        ("sentiment-transformer", "accuracy", 90.0),
    ):
        found = family_tasks.train_and_name(study.plan((row,), 1)[0], Context())
        assert (found["metric"], found["score"]) == (metric, score)


def test_a_result_file_says_which_rows_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    study = STUDIES["heads"]("tiny", tmp_path / "out")
    done, broken = study.plan((), 1)
    done.write({"final_loss": 1.5})
    study_table.collect(
        study, [done, broken], {broken.name: "the loss became nan at update 20; try less"}
    ).record("mine", 1)
    content = json.loads((tmp_path / "benchmarks" / "results" / "mine.json").read_text())
    assert content["rows"] == {"1": {"final_loss": [1.5]}}
    assert content["notes"].endswith("Failed: 4, train, seed 0: the loss became nan at update 20.")
