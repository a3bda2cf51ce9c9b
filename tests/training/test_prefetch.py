"""Batches made ahead of their turn: the same run bit for bit, errors where their batch is asked for, and no thread left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.support import raises

from saccade.training import loop
from saccade.training.distributed import Ranks
from saccade.training.prefetch import BatchPosition, Prefetcher

FIRST = BatchPosition(0, 0)


def batches(
    work: Any, count: int, spot: BatchPosition = FIRST
) -> list[tuple[list[int], BatchPosition]]:
    with Prefetcher(work, Ranks(), work.epoch, spot, count) as made:
        return [(batch.lines, at) for batch, _, at in (made.next() for _ in range(11))]


def test_the_order_is_that_of_the_epochs(toy: Callable[..., Any]) -> None:
    work = toy()
    plain = batches(work, 0)
    assert plain == batches(work, 3)
    assert [at for _, at in plain[:6]] == [(0, 1), (0, 2), (0, 3), (0, 4), (1, 1), (1, 2)]
    assert batches(work, 2, BatchPosition(0, 3))[:4] == plain[3:7]


def test_a_run_is_the_same_bit_for_bit(stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(threading.enumerate())
    stage.training("plain", updates=11).run()
    monkeypatch.setattr(loop, "prefetched_batches", lambda *_: 3)
    stage.training("ahead", updates=6, checkpoint_every=3).run()
    stage.training("ahead", updates=11).run()  # resumed in the middle of an epoch
    assert stage.same("plain", "ahead")
    assert set(threading.enumerate()) <= before, "no thread is left"


def test_an_error_is_raised_where_the_batch_is_asked_for(toy: Callable[..., Any]) -> None:
    work = toy()
    good = work.batch

    def batch(plan: Any) -> Any:
        if len(made) == 2:
            raise ValueError("the third batch cannot be read")
        made.append(plan)
        return good(plan)

    made: list[Any] = []
    work.batch = batch
    with Prefetcher(work, Ranks(), work.epoch, BatchPosition(0, 0), 4) as ahead:
        ahead.next()
        ahead.next()
        with pytest.raises(ValueError, match="third batch"):
            ahead.next()


def test_a_run_that_stops_leaves_no_thread(
    stage: Any, monkeypatch: pytest.MonkeyPatch, toy: Callable[..., Any]
) -> None:
    monkeypatch.setattr(loop, "prefetched_batches", lambda *_: 3)
    before = set(threading.enumerate())
    with raises("diverged"):
        stage.training("bad", toy(poison=105), updates=11).run()
    assert set(threading.enumerate()) <= before
