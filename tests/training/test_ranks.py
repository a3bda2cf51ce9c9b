"""What ranks say and do, as far as one process can see it."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from launcher import RECIPE
from tests.support import raises
from torch import nn

from saccade import api, models
from saccade.config import recipes
from saccade.errors import SaccadeError
from saccade.models.protocols import CausalLM, Encoder, Seq2Seq
from saccade.training.distributed import (
    FINISHED_BEAT,
    Heartbeat,
    Ranks,
    SharedError,
    check_shared,
    is_disconnect,
    join_ranks,
    own_gpu,
    prints,
)
from saccade.training.signals import Stopped, stop_on_signals


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_shares_are_the_batch_and_an_empty_one_counts_nothing(count: int) -> None:
    for size in range(1, 9):
        batch = list(range(size))
        shares = [Ranks(rank, count).share(batch) for rank in range(count)]
        assert sorted(example for share, counts in shares for example in share * counts) == batch
        assert all(len(share) for share, _ in shares), "every rank has something to compute"
    assert Ranks().share(batch) == (batch, 1)


def test_alone_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with join_ranks(torch.device("cpu")) as ranks:
        assert (ranks.rank, ranks.count, ranks.leads) == (0, 1, True)
        assert ranks.total([1, 2.5]) == [1, 2.5]
        assert (
            ranks.largest(3),
            ranks.everyone(4),
            ranks.lead(lambda: 5),
            ranks.agree(lambda: 6),
        ) == (3, [4], 5, 6)
        assert not torch.distributed.is_initialized()


def test_a_gpu_of_its_own_for_each_process() -> None:
    cuda = torch.device("cuda")
    assert [own_gpu(cuda, local, 2) for local in (0, 1)] == [0, 1]
    with raises("too-few-gpus"):
        own_gpu(cuda, 2, 2)
    with raises("device-per-rank"):
        own_gpu(torch.device("cuda:1"), 0, 2)


def test_a_folder_that_is_not_shared_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("saccade.training.distributed.PATIENCE", 0.2)
    check_shared(tmp_path)
    with raises("folder-not-shared"):
        check_shared(tmp_path / "recipe.json")


def test_who_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, stopped = SaccadeError("x"), Stopped(signal.SIGINT, 3)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert prints(plain), "one process prints whatever its environment"
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert [
        prints(error)
        for error in (
            plain,
            stopped,
            SharedError("x", True, code="x"),
            SharedError("x", False, code="x"),
        )
    ] == [False, False, True, False]
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert [prints(error) for error in (plain, stopped, SharedError("x", False, code="x"))] == [
        True,
        True,
        False,
    ]


def test_only_a_broken_connection_is_a_rank_that_died() -> None:
    assert is_disconnect(
        RuntimeError(
            "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer"
        )
    )
    assert is_disconnect(torch.distributed.DistBackendError("x"))
    assert not is_disconnect(RuntimeError("shape '[2]' is invalid for input of size 3"))


def test_a_patient_stopper_takes_no_notice_of_a_second_signal() -> None:
    before = signal.getsignal(signal.SIGINT)
    with stop_on_signals(patient=True) as signals:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGINT)
        assert set(signals) == {signal.SIGINT}
    assert signal.getsignal(signal.SIGINT) is before


def test_processes_that_cannot_meet_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with raises("ranks-cannot-connect"), join_ranks(torch.device("cpu")):
        pass


class Store:
    """A store by which rank 1 is watched from rank 0: `beats` tells how often rank 1 has been heard. Each question takes 0.1 s of a clock
    that nothing else moves; with `blocks`, an hour."""

    def __init__(self, beats: Callable[[], int], blocks: bool = False) -> None:
        self.beats, self.blocks, self.kept = beats, blocks, {"lost": 0, "printed": 0}
        self.now, self.asked, self.over = 0.0, 0, threading.Event()

    def monotonic(self) -> float:
        return self.now

    def add(self, name: str, by: int) -> int:
        if self.blocks:
            self.now += 3600
            self.over.wait(300)
        if name == "beat/1":
            self.now, self.asked = self.now + 0.1, self.asked + 1
            if self.asked == 100:
                self.over.set()
            return self.beats()
        self.kept[name] = self.kept.get(name, 0) + by
        return self.kept[name]


def unreachable() -> int:
    raise torch.distributed.DistNetworkError("Connection reset by peer")


@pytest.mark.parametrize(
    ("store", "left"),
    [
        (Store(iter(range(10**6)).__next__), []),
        (Store(lambda: FINISHED_BEAT + 7), []),
        (Store(lambda: 7), [True]),
        (Store(unreachable), [True]),
        (Store(lambda: 7, blocks=True), [True]),
    ],
    ids=["alive", "finished", "silent", "unreachable", "blocked"],
)
def test_a_heartbeat_gives_up_a_rank_that_is_not_heard(
    store: Store, left: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[bool] = []

    def leave(prints: bool) -> None:
        found.append(prints)
        watch.over.set()
        store.over.set()

    for name, value in (
        ("BEAT", 0.001),
        ("PATIENCE", 3.0),
        ("GRACE", 0.01),
        ("end_process", leave),
        ("time", store),
    ):
        monkeypatch.setattr(f"saccade.training.distributed.{name}", value)
    watch = Heartbeat(store, 0, 2)
    assert store.over.wait(300), "a hundred beats or an end"
    watch.over.set()
    assert found == left
    assert store.kept["printed"] <= 1


class Second(Ranks):
    """Rank 1, which gets the whole batch and waits for nobody: only what it draws differs from rank 0."""

    def lead(self, do: Callable[[], Any]) -> Any:
        return do()

    def share(self, plan: Any) -> tuple[Any, int]:
        return plan, 1


def test_ranks_draw_dropout_from_streams_of_their_own(stage: Any) -> None:
    trainings = [stage.training(name, updates=2) for name in ("one", "two", "three")]
    trainings[2].ranks = Second(rank=1)
    for training in trainings:
        training.run()
    one, two, three = (list(training.model.parameters()) for training in trainings)
    assert all(map(torch.equal, one, two))
    assert not all(map(torch.equal, one, three))


KINDS = (Encoder, Seq2Seq, CausalLM)
EVERY = [
    (entry.name, kind)
    for entry in models.table
    for kind in KINDS
    if entry.make.build(kind) is not None
]


@pytest.mark.parametrize(("name", "kind"), EVERY, ids=str)
def test_every_parameter_has_a_part_in_every_batch(name: str, kind: type[nn.Module]) -> None:
    """DDP waits for the gradient of each."""
    known = {field.name for field in dataclasses.fields(models.table[name].config)}
    sizes = {"dim": 8, "hidden": 8, "depth": 1, "heads": 2, "dropout": 0.0}
    builder = recipes.Builder(
        {"family": name, **{key: size for key, size in sizes.items() if key in known}}
    )
    model = builder.make(kind, *([9, 9] if kind is Seq2Seq else [9]))
    source, lengths = torch.randint(4, 9, (2, 5)), torch.tensor([5, 3])
    inputs = {Encoder: (source, lengths), Seq2Seq: (source, lengths, source), CausalLM: (source,)}[
        kind
    ]
    model(*inputs).square().sum().backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


def test_blocks_are_gathered_one_at_a_time() -> None:
    model: nn.Module = api.build(recipes.recipe(RECIPE)).model
    assert [
        name for name, module in model.named_modules() if getattr(module, "own_shard", False)
    ] == ["encoder.0", "decoder.0"]
