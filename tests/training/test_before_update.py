"""Parts that are called before each update: the same draws in every run, on every rank, and after a resume at any update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from saccade.core import Mechanism, attend, normalizers
from saccade.core.scores import Favor
from saccade.training.distributed import Ranks
from saccade.training.loop import Watcher
from saccade.training.parameters import buffers


class Performing(nn.Module):
    """Attends with random features that are drawn anew every second update."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(11, 6), nn.Linear(6, 5)
        self.mechanism = Mechanism(Favor(6, 4, redraw=2), normalizers.Sum())

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens).unsqueeze(1)
        return self.out(attend(x, x, x, self.mechanism).mean((1, 2)))


def performing() -> nn.Module:
    torch.manual_seed(3)
    return Performing()


OMEGA = "model.safetensors/mechanism.score.omega"


def same(stage: Any, one: str, other: str, which: str = "last") -> bool:
    a, b = stage.tensors(one, which), stage.tensors(other, which)
    assert OMEGA in a
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def test_a_run_that_draws_features_and_dies_goes_on_bit_for_bit(
    stage: Any, break_at: Callable[[int], Watcher]
) -> None:
    stage.model = performing
    chosen = {"checkpoint_every": 3, "evaluate_every": 4}
    stage.training("whole", **chosen).run()
    for update in (1, 2, 3, 4, 5, 8, 11):
        name = f"broken-{update}"
        with pytest.raises(Exception, match="the process dies"):
            stage.training(name, watcher=break_at(update), **chosen).run()
        torch.manual_seed(update)  # what was drawn elsewhere has no influence
        stage.training(name, **chosen).run()
        assert same(stage, "whole", name), f"after {update}"
        assert same(stage, "whole", name, "best")


def test_features_follow_the_seed_and_the_updates(stage: Any) -> None:
    stage.model = performing
    for name, seed, updates in (
        ("one", 0, 4),
        ("two", 0, 4),
        ("other", 1, 4),
        ("early", 0, 2),
        ("later", 0, 5),
    ):
        stage.training(name, seed=seed, updates=updates).run()
    assert same(stage, "one", "two")
    omega = {name: stage.tensors(name)[OMEGA] for name in ("one", "other", "early", "later")}
    assert torch.equal(omega["early"], performing().mechanism.score.omega), (
        "none are drawn before two updates were made"
    )
    assert not torch.equal(omega["one"], omega["early"])
    assert not torch.equal(omega["one"], omega["later"])
    assert not torch.equal(omega["one"], omega["other"])


def test_every_rank_draws_the_same(stage: Any) -> None:
    stage.model = performing
    found = []
    for rank in range(2):
        training = stage.training(f"rank-{rank}")
        training.ranks = Ranks(rank, 1)
        torch.manual_seed(rank)
        training._renew(3)
        found.append(training.model.mechanism.score.omega)
    assert torch.equal(*found)
    assert not torch.equal(found[0], performing().mechanism.score.omega)


def test_features_are_not_averaged(stage: Any) -> None:
    stage.model = performing
    training = stage.training("mean", average=3, evaluate_every=2, updates=6)
    training.run()
    kept = training.folder.kept()
    assert len(kept) == 3
    assert buffers(training.model) == {"mechanism.score.omega"}
    mean = training.folder.mean_kept(buffers(training.model))
    each = [stage.tensors("mean", f"kept/{path.name}") for path in kept]
    assert not torch.equal(each[0][OMEGA], each[2][OMEGA])
    assert torch.equal(mean["mechanism.score.omega"], each[2][OMEGA])
    weight = (
        torch.stack([one["model.safetensors/out.weight"] for one in each]).double().mean(0).float()
    )
    assert torch.equal(mean["out.weight"], weight)
