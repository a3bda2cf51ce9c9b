"""The loop: resumed bit for bit from anywhere, stopped early, stopped by signals and by NaN, and logged without gaps."""

from __future__ import annotations

import csv
import json
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.support import raises

from saccade.errors import SaccadeError
from saccade.training.checkpoints import Progress
from saccade.training.logs import COLUMNS, Logs
from saccade.training.loop import Watcher
from saccade.training.signals import Stopped, stop_on_signals


def timeless(at: Progress) -> Progress:
    return replace(at, seconds=0.0)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, marks=pytest.mark.slow),
        {"accumulate": 3},
        pytest.param({"checkpoint_every": 5, "evaluate_every": 2}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_run_that_dies_at_any_update_goes_on_bit_for_bit(
    stage: Any, break_at: Callable[[int], Watcher], settings: dict[str, int]
) -> None:
    """An epoch has four batches, so the twelve updates go through three epochs (nine when three batches make an update)."""
    chosen = {"checkpoint_every": 1, "evaluate_every": 4, **settings}
    ended = stage.training("whole", **chosen).run()
    assert ended.epoch >= 2
    for update in range(1, 13):
        name = f"broken-{update}"
        with pytest.raises(Exception, match="the process dies"):
            stage.training(name, watcher=break_at(update), **chosen).run()
        again = stage.training(name, **chosen).run()
        assert timeless(again) == timeless(ended)
        assert stage.same("whole", name), f"after {update}"
        best, other = stage.tensors("whole", "best"), stage.tensors(name, "best")
        assert all(torch.equal(best[key], other[key]) for key in best)


def test_a_run_in_many_pieces_is_the_run_in_one(
    stage: Any, break_at: Callable[[int], Watcher]
) -> None:
    stage.training("whole", checkpoint_every=2).run()
    for update in (3, 4, 7, 8, 9, 12):
        with pytest.raises(Exception, match="the process dies"):
            stage.training("pieces", checkpoint_every=2, watcher=break_at(update)).run()
    stage.training("pieces", checkpoint_every=2).run()
    assert stage.same("whole", "pieces")


def test_more_updates_go_on_where_fewer_ended(stage: Any) -> None:
    stage.training("whole", updates=11).run()
    for updates in range(1, 12):
        ended = stage.training("steps", updates=updates).run()
        assert (ended.update, ended.done) == (updates, True)
    assert stage.same("whole", "steps")
    assert timeless(stage.training("steps", updates=5).run()) == timeless(ended), (
        "a finished run stays as it is"
    )


def test_the_same_run_twice_is_the_same_and_another_seed_another(
    stage: Any, toy: Callable[..., Any]
) -> None:
    for name, seed in (("one", 0), ("two", 0), ("three", 1)):
        torch.manual_seed(len(name))  # what happened before has no influence
        stage.training(name, seed=seed).run()
    assert stage.same("one", "two")
    assert not stage.same("one", "three"), "dropout follows the seed"
    stage.training("four", toy(seed=1)).run()
    assert not stage.same("one", "four"), "the order of examples is the task's"


def test_evaluations_and_checkpoints_do_not_change_the_training(stage: Any) -> None:
    stage.training("rarely", evaluate_every=100, checkpoint_every=100).run()
    stage.training("often", evaluate_every=1, checkpoint_every=1, log_every=5).run()
    assert stage.same("rarely", "often")


def test_every_example_is_seen_once_an_epoch(stage: Any, toy: Callable[..., Any]) -> None:
    task = toy()
    stage.training("run", task, updates=8).run()
    seen = task.seen[-8:]  # before that the cost was measured
    assert [len(lines) for lines in seen] == [4, 4, 4, 1] * 2
    for epoch in (seen[:4], seen[4:]):
        assert sorted(line for lines in epoch for line in lines) == list(range(100, 113))
    assert seen[:4] != seen[4:]


def test_best_is_the_best_on_dev_and_patience_ends_the_run(
    stage: Any, toy: Callable[..., Any], copies: Any
) -> None:
    losses = [5.0, 3.0, 4.0, 3.0, 3.5, 2.0]
    task = toy(metrics=[{"loss": loss} for loss in losses])
    copies.training = stage.training("run", task, copies, evaluate_every=2, patience=3)
    ended = copies.training.run()
    assert (ended.update, ended.done, ended.best, ended.best_update, ended.worse) == (
        10,
        True,
        3.0,
        4,
        3,
    )
    assert task.evaluated == 5
    best = stage.tensors("run", "best")
    assert all(
        torch.equal(best[f"model.safetensors/{name}"], p)
        for name, p in copies.parameters[4].items()
    )
    again = stage.training("run", task, evaluate_every=2, patience=3).run()
    assert again == ended, "an early stop is an end: nothing is added when it is resumed"
    more = stage.training("run", task, evaluate_every=2, patience=4).run()
    assert (more.update, more.best, more.best_update) == (12, 2.0, 12), "more patience goes on"


def test_a_better_evaluation_renews_the_patience(stage: Any, toy: Callable[..., Any]) -> None:
    losses = [5.0, 6.0, 4.0, 6.0, 3.0, 6.0]
    ended = stage.training(
        "run", toy(metrics=[{"loss": loss} for loss in losses]), evaluate_every=2, patience=2
    ).run()
    assert (ended.update, ended.best_update, ended.worse) == (12, 10, 1)


def test_every_update_draws_a_dropout_of_its_own(stage: Any, toy: Callable[..., Any]) -> None:
    training, zeros = stage.training("run", toy(size=13), updates=4), list[Any]()
    training.model[2].register_forward_hook(
        lambda part, _, output: zeros.append((output == 0).tolist()) if part.training else None
    )
    training.run()
    drawn = zeros[-4:]  # before that the cost was measured
    assert all(one != other for n, one in enumerate(drawn) for other in drawn[:n])


def test_a_figure_that_should_grow_is_watched_the_other_way_round(
    stage: Any, toy: Callable[..., Any]
) -> None:
    task = toy(metrics=[{"loss": 1.0, "bleu": bleu} for bleu in (10.0, 30.0, 20.0)])
    ended = stage.training("run", task, evaluate_every=4, watch="bleu", higher_is_better=True).run()
    assert (ended.best, ended.best_update, ended.metrics) == (30.0, 8, {"loss": 1.0, "bleu": 20.0})
    with raises("unknown-metric"):
        stage.training("other", watch="bleu").run()


def test_a_nan_loss_names_update_lines_and_the_way_out(stage: Any, toy: Callable[..., Any]) -> None:
    stage.training("whole").run()
    bad = toy(poison=107)
    bad.poison = 0
    # in the second epoch, so that a checkpoint is there
    at = next(n for n, plan in enumerate(bad.epoch(1)) if 7 in plan)

    class Poison(Watcher):
        def update(self, now: Progress, row: dict[str, float]) -> None:
            bad.poison = 107 if now.update >= 4 else 0

    with pytest.raises(SaccadeError) as told:
        stage.training("run", bad, Poison(), checkpoint_every=1).run()
    lines = ", ".join(str(100 + n) for n in sorted(bad.epoch(1)[at]))
    assert (
        f"became nan at update {5 + at}, on a batch of lines {lines}; nothing of it was saved"
        in str(told.value)
    )
    assert (
        "Lower training.learning_rate (it is 0.05), raise training.warmup or look at the data with `saccade check`"
        in str(told.value)
    )
    assert "continue with resume=True" in str(told.value)
    assert stage.training("run").folder.progress().update == 4 + at
    assert all(bool(tensor.isfinite().all()) for tensor in stage.tensors("run").values())
    stage.training("run", checkpoint_every=1).run()
    assert stage.same("whole", "run"), (
        "with the lines mended, the run goes on as if nothing had been"
    )


def test_of_accumulated_batches_the_bad_one_is_named(stage: Any, toy: Callable[..., Any]) -> None:
    task = toy(poison=107)
    bad = next(plan for plan in task.epoch(0) if 7 in plan)
    lines = ", ".join(str(100 + n) for n in sorted(bad))
    with pytest.raises(
        SaccadeError, match=f"became nan at update 1, on a batch of lines {lines}; nothing"
    ):
        stage.training("run", task, accumulate=4).run()


def test_a_gradient_that_is_not_finite_is_caught_before_anything_is_saved(
    stage: Any, toy: Callable[..., Any]
) -> None:
    task = toy(size=13)
    plain = task.loss
    training = stage.training("run", task, checkpoint_every=1)
    weight = training.model[-1].weight
    # 0, with a gradient of ∞ − ∞
    task.loss = lambda model, batch: plain(model, batch) + (weight - weight).sum().sqrt()
    with raises("diverged"):
        training.run()
    assert training.folder.progress() is None


def test_many_lines_are_told_in_short(stage: Any, toy: Callable[..., Any]) -> None:
    training = stage.training("run", toy())
    with raises("diverged"):
        training._check("the loss", float("inf"), 1, range(1, 99))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_dev_figure_that_is_not_finite_stops_the_run_too(
    stage: Any, toy: Callable[..., Any], bad: float
) -> None:
    task = toy(metrics=[{"loss": 2.0}, {"loss": bad}])
    with pytest.raises(
        SaccadeError,
        match=f"the dev loss became {bad} at update 8; .* then continue with resume=True",
    ):
        stage.training("run", task, evaluate_every=4, checkpoint_every=4).run()
    assert stage.training("run").folder.progress().best == 2.0


class Signal(Watcher):
    """Sends this process signals after an update."""

    def __init__(self, update: int, *numbers: int) -> None:
        self.at, self.numbers = update, numbers

    def update(self, at: Progress, row: dict[str, float]) -> None:
        if at.update == self.at:
            for number in self.numbers:
                os.kill(os.getpid(), number)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_a_checkpoint_and_its_code(stage: Any, number: int, code: int) -> None:
    before = signal.getsignal(number)
    stage.training("whole").run()
    with pytest.raises(Stopped) as stopped:
        stage.training("run", watcher=Signal(7, number)).run()
    assert stopped.value.code == code
    name = signal.Signals(number).name
    assert (
        str(stopped.value)
        == f"stopped by {name} after update 7; a checkpoint was written, continue with resume=True"
    )
    assert signal.getsignal(number) is before
    assert stage.training("run").folder.progress().update == 7
    stage.training("run").run()
    assert stage.same("whole", "run")


def test_a_second_ctrl_c_does_not_wait(stage: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        stage.training("run", watcher=Signal(3, signal.SIGINT, signal.SIGINT)).run()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_outside_the_main_thread_signals_are_left_alone(stage: Any) -> None:
    found: list[object] = []

    def work() -> None:
        with stop_on_signals() as signals:
            found.append((list(signals), signal.getsignal(signal.SIGINT)))
        found.append(stage.training("run", updates=2).run().done)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [([], signal.getsignal(signal.SIGINT)), True]


def rows(folder: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_logs_of_a_resumed_run_have_every_update_once(
    stage: Any, break_at: Callable[[int], Watcher]
) -> None:
    stage.training("whole", evaluate_every=4).run()
    for update in (6, 9):
        with pytest.raises(Exception, match="the process dies"):
            stage.training(
                "run", watcher=break_at(update), evaluate_every=4, checkpoint_every=5
            ).run()
    with (stage.root / "run" / "log.jsonl").open("a") as file:
        file.write('{"update": 9, "lo')  # as a kill leaves it
    stage.training("run", evaluate_every=4, checkpoint_every=5).run()
    for row, other in zip(rows(stage.root / "whole"), rows(stage.root / "run"), strict=True):
        assert row.keys() == other.keys()
        assert all(
            row[name] == other[name] for name in row if name not in ("seconds", "tokens_per_second")
        )
    found = rows(stage.root / "run")
    assert [row["update"] for row in found if "loss" in row] == list(range(1, 13))
    assert [row["update"] for row in found if "dev_loss" in row] == [4, 8, 12]
    with (stage.root / "run" / "metrics.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert tuple(table[0]) == (*COLUMNS, "dev_loss")
    seconds = [float(row["seconds"]) for row in table]
    assert seconds == sorted(seconds), "the time of the pieces adds up"
    assert seconds[0] > 0
    assert [(row["update"], bool(row["dev_loss"])) for row in table] == [
        (str(row["update"]), "dev_loss" in row) for row in found
    ]


def test_logs_begun_anew_forget_an_older_run(stage: Any) -> None:
    stage.root.joinpath("log.jsonl").write_text('{"update": 3, "loss": 1.0}\n')
    logs = Logs(stage.root)
    logs.add(update=1, loss=1 / 3, epoch=0)
    assert rows(stage.root) == [{"update": 1, "loss": 0.333333, "epoch": 0}]
