"""Averaging: the mean of a run's last evaluations by hand, and a run that dies at any rename ends as a whole one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.support import raises
from torch import Tensor

from saccade.files import mark
from saccade.training.checkpoints import Progress, RunFolder
from saccade.training.loop import Watcher
from saccade.training.parameters import mean_parameters, set_parameters

CHOSEN = {"updates": 12, "evaluate_every": 2, "checkpoint_every": 3, "average": 3}


Watched = Callable[..., tuple[Any, Progress]]


@pytest.fixture
def watched(stage: Any, copies: Any) -> Watched:
    def run(name: str, toy: Any = None, **settings: Any) -> tuple[Any, Progress]:
        copies.training = stage.training(name, toy, copies, **{**CHOSEN, **settings})
        return copies, copies.training.run()

    return run


def kept(stage: Any, name: str) -> dict[str, dict[str, Tensor]]:
    return {
        path.name: load_file(path / "model.safetensors")
        for path in sorted((stage.root / name / "kept").iterdir())
    }


def model(stage: Any, name: str, which: str) -> dict[str, Tensor]:
    return {
        key.partition("/")[2]: t
        for key, t in stage.tensors(name, which).items()
        if key.startswith("model")
    }


def by_hand(copies: Any, updates: tuple[int, ...]) -> dict[str, Tensor]:
    chosen = [copies.parameters[update] for update in updates]
    return {
        name: sum(one[name].double() for one in chosen).div(len(chosen)).float()
        for name in chosen[0]
    }  # type: ignore[union-attr]


def test_the_mean_becomes_the_best_when_it_is_better(
    stage: Any, watched: Watched, toy: Callable[..., Any]
) -> None:
    losses = [5.0, 4.0, 3.0, 2.5, 2.6, 2.7, 1.0]  # six evaluations, and that of the mean
    copies, ended = watched("run", toy(metrics=[{"loss": loss} for loss in losses]))
    mean = by_hand(copies, (8, 10, 12))
    assert all(
        torch.equal(model(stage, "run", "best")[name], value) for name, value in mean.items()
    )
    last = model(stage, "run", "last")
    assert all(torch.equal(last[name], value) for name, value in copies.parameters[12].items()), (
        "last/ is what was trained"
    )
    assert (ended.best, ended.best_update, ended.metrics, ended.done) == (
        1.0,
        12,
        {"loss": 1.0},
        True,
    )
    assert list(kept(stage, "run")) == ["000000008", "000000010", "000000012"]
    assert copies.notes[-1] == "mean of the last 3 evaluations  dev loss 1.000  best"
    assert stage.training("run", **CHOSEN).run() == ended, "a finished run stays as it is"


def test_a_mean_that_is_worse_is_let_go(
    stage: Any, watched: Watched, toy: Callable[..., Any]
) -> None:
    losses = [5.0, 4.0, 3.0, 2.5, 2.6, 2.7, 2.5]
    copies, ended = watched("run", toy(metrics=[{"loss": loss} for loss in losses]))
    assert (ended.best, ended.best_update, ended.metrics) == (2.5, 8, {"loss": 2.7})
    best = model(stage, "run", "best")
    assert all(torch.equal(best[name], value) for name, value in copies.parameters[8].items())
    assert copies.notes[-1] == "mean of the last 3 evaluations  dev loss 2.500"
    metrics = [{"loss": 1.0, "bleu": bleu} for bleu in (1.0, 5.0, 4.0, 3.0, 2.0, 1.0, 6.0)]
    _, ended = watched("other", toy(metrics=metrics), watch="bleu", higher_is_better=True)
    assert (ended.best, ended.best_update) == (6.0, 12), "more is better for some"


def test_fewer_evaluations_than_asked_for_are_said_to_be_fewer(
    stage: Any, watched: Watched
) -> None:
    copies, _ = watched("run", updates=4, average=10)
    assert copies.notes[-1].startswith("mean of the last 2 evaluations  dev loss ")
    assert list(kept(stage, "run")) == ["000000002", "000000004"]


def test_averaging_changes_nothing_of_the_training(stage: Any) -> None:
    stage.training("plain", **{**CHOSEN, "average": None}).run()
    stage.training("averaged", **CHOSEN).run()
    assert stage.same("plain", "averaged")
    assert not (stage.root / "plain" / "kept").exists()


def test_an_early_stop_averages_too(stage: Any, watched: Watched, toy: Callable[..., Any]) -> None:
    losses = [3.0, 4.0, 5.0, 1.0]
    copies, ended = watched("run", toy(metrics=[{"loss": loss} for loss in losses]), patience=2)
    assert (ended.update, ended.best, ended.best_update) == (6, 1.0, 6)
    mean = by_hand(copies, (2, 4, 6))
    assert all(
        torch.equal(model(stage, "run", "best")[name], value) for name, value in mean.items()
    )


class Dies(Exception):
    """Stands for a process that dies."""


def dying(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, at: int) -> None:
    """The at-th call of a function is the process's last."""
    real, calls = getattr(where, name), 0

    def call(*given: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at:
            raise Dies
        return real(*given, **more)

    monkeypatch.setattr(where, name, call)


@pytest.mark.parametrize(
    "settings", [{}, {"patience": 2, "learning_rate": 0.5}, {"checkpoint_every": 100}], ids=str
)
def test_a_run_that_dies_at_any_rename_or_removal_ends_as_a_whole_one(
    stage: Any, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    """What is written is written by renames, and let go by removals: before each of them the process dies once."""
    chosen = {**CHOSEN, **settings}
    ended = stage.training("whole", **chosen).run()
    deaths = 0
    for what in ((os, "replace"), (Path, "unlink"), (Path, "rmdir")):
        for at in range(1, 100, 7 if what[1] == "unlink" else 4):
            name = f"{what[1]}-{at}"
            with monkeypatch.context() as patch:
                dying(patch, *what, at)
                try:
                    stage.training(name, **chosen).run()
                    break  # so many there are not
                except Dies:
                    deaths += 1
            again = stage.training(name, **chosen).run()
            assert replace(again, seconds=0.0) == replace(ended, seconds=0.0)
            assert stage.same("whole", name), name
            one, other = model(stage, "whole", "best"), model(stage, name, "best")
            assert all(torch.equal(one[key], other[key]) for key in one), name
            here, there = kept(stage, "whole"), kept(stage, name)
            assert list(here) == list(there), name
            assert all(
                torch.equal(here[key][n], there[key][n]) for key in here for n in here[key]
            ), name
            shutil.rmtree(stage.root / name)
    assert deaths >= 6


def test_what_was_kept_after_the_checkpoint_is_forgotten(
    stage: Any, watched: Watched, break_at: Callable[[int], Watcher]
) -> None:
    """A lower rate after a NaN, say: parameters of the way that was left have no part in the mean."""
    with pytest.raises(Exception, match="the process dies"):
        stage.training("run", watcher=break_at(9), **{**CHOSEN, "checkpoint_every": 4}).run()
    assert list(kept(stage, "run")) == ["000000004", "000000006", "000000008"]
    copies, _ = watched("run", updates=10, evaluate_every=5, checkpoint_every=4)
    assert list(kept(stage, "run")) == ["000000006", "000000008", "000000010"], (
        "the checkpoint is of update 8"
    )
    assert copies.notes[-1].startswith("mean of the last 3")
    with pytest.raises(Exception, match="the process dies"):
        stage.training("other", watcher=break_at(7), **{**CHOSEN, "checkpoint_every": 4}).run()
    (stage.root / "other" / "kept" / "000000006.new").mkdir()
    mark(stage.root / "other" / "kept" / "000000006.new")
    watched("other", updates=5, evaluate_every=5)
    assert list(kept(stage, "other")) == ["000000002", "000000004", "000000005"]


def test_a_broken_one_among_the_kept_is_told_with_a_way_out(stage: Any) -> None:
    folder = RunFolder(stage.root / "run", {})
    for update in (1, 2):
        folder.keep(torch.nn.Linear(2, 2), update, 2)
    (folder.kept()[0] / "model.safetensors").write_bytes(b"junk")
    with raises("checkpoint-damaged"):
        folder.mean_kept()
    folder.forget(2)
    assert [path.name for path in folder.kept()] == ["000000002"], (
        "a broken one is let go when the run goes on"
    )


def test_means_by_hand() -> None:
    each = [{"a": torch.tensor([1.0, 2.0]), "n": torch.tensor(n)} for n in (3, 4)]
    each[1]["a"] = torch.tensor([2.0, 4.0])
    found = mean_parameters(each)
    assert found["a"].tolist() == [1.5, 3.0]
    assert (found["n"].tolist(), found["n"].dtype) == (4, torch.int64), "of counts there is no mean"
    half = mean_parameters(
        [{"a": torch.tensor([1.0]).bfloat16()}, {"a": torch.tensor([1.0 + 2**-7]).bfloat16()}]
    )
    assert half["a"].dtype == torch.bfloat16
    tiny = mean_parameters([{"a": torch.tensor([1e8])}, *[{"a": torch.tensor([1.0])}] * 3])
    assert tiny["a"].item() == torch.tensor(25_000_000.75).item(), "summed in double precision"
    with raises("models-differ"):
        mean_parameters([{"a": torch.zeros(1)}, {"b": torch.zeros(1)}])
    with raises("models-differ"):
        mean_parameters([{"a": torch.zeros(2)}, {"a": torch.zeros(1)}])


def test_parameters_can_be_set_and_set_back() -> None:
    layer = torch.nn.Linear(2, 2)
    mine = {name: p.detach().clone() for name, p in layer.named_parameters()}
    before = set_parameters(layer, {name: torch.ones_like(p) for name, p in mine.items()})
    assert bool((layer.weight == 1).all())
    set_parameters(layer, before)
    assert all(torch.equal(p, mine[name]) for name, p in layer.named_parameters())


def test_a_run_folder_without_averages_has_no_kept_folder(stage: Any, tmp_path: Path) -> None:
    RunFolder(tmp_path / "nothing", {}).forget(0)
    assert not (tmp_path / "nothing").exists()
