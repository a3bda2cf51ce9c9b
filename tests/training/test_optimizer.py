"""Our optimizers make the updates of PyTorch's, and a training does not load PyTorch's compiler."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from saccade.recipe import TrainingRecipe
from saccade.training.optimizer import Adam, AdamW, Sgd, make_optimizer

TRAIN = """
import sys
from saccade.__main__ import main
sys.argv = ["saccade", "train", "phrasebook-transformer", "training.updates=2", "training.tokens=256", "training.threads=1", "model.depth=1",
            "data.options.train=50", "data.options.dev=10", "data.options.test=10", "--out", sys.argv[1]]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print("loaded" if "torch._dynamo" in sys.modules else "not loaded")
"""


BETAS, NESTEROV = {"betas": (0.9, 0.98)}, {"momentum": 0.9, "nesterov": True}
UPDATES = [
    ((AdamW, torch.optim.AdamW), BETAS),
    ((Adam, torch.optim.Adam), BETAS),
    ((Sgd, torch.optim.SGD), NESTEROV),
]


class Holding(nn.Module):
    """A model of these numbers."""

    def __init__(self, w: torch.Tensor) -> None:
        super().__init__()
        self.w = nn.Parameter(w)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(("kinds", "how"), UPDATES)
def test_updates_are_those_of_pytorch(
    kinds: tuple[Any, Any], how: dict[str, Any], fused: bool
) -> None:
    found = []
    for kind in kinds:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
        optimizer = kind(model.parameters(), 0.01, weight_decay=0.1, fused=fused, **how)
        for n in range(4):
            model(torch.randn(6, 5)).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if n == 1:
                state = optimizer.state_dict()
                optimizer = kind(model.parameters(), 0.5, fused=fused, **how)
                optimizer.load_state_dict(state)
        found.append([parameter.detach() for parameter in model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_sgd_by_hand() -> None:
    """v ← 0.9 v + g with g = ∂loss + decay · w, and w ← w − rate (g + 0.9 v)."""
    model = Holding(torch.tensor([2.0, -1.0], dtype=torch.float64))
    w = model.w
    settings = TrainingRecipe(optimizer="sgd", weight_decay=0.1)
    optimizer = make_optimizer(settings, model, 0.05, captured=False)
    mine, speed = [2.0, -1.0], [0.0, 0.0]
    for _ in range(3):
        w.pow(3).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        for n in range(2):
            gradient = 3 * mine[n] ** 2 + 0.1 * mine[n]
            speed[n] = 0.9 * speed[n] + gradient
            mine[n] -= 0.05 * (gradient + 0.9 * speed[n])
    assert w.tolist() == pytest.approx(mine)


def test_adam_by_hand_has_its_decay_in_the_gradient() -> None:
    """g = ∂loss + decay · w goes into both means; w ← w − rate · m̂ / (√v̂ + ε)."""
    model = Holding(torch.tensor([2.0, -1.0], dtype=torch.float64))
    optimizer = make_optimizer(
        TrainingRecipe(optimizer="adam", weight_decay=0.1, beta2=0.98), model, 0.05, captured=False
    )
    mine, m, v = [2.0, -1.0], [0.0, 0.0], [0.0, 0.0]
    for t in range(1, 4):
        model.w.pow(3).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        for n in range(2):
            gradient = 3 * mine[n] ** 2 + 0.1 * mine[n]
            m[n], v[n] = 0.9 * m[n] + 0.1 * gradient, 0.98 * v[n] + 0.02 * gradient**2
            mine[n] -= 0.05 * m[n] / (1 - 0.9**t) / ((v[n] / (1 - 0.98**t)) ** 0.5 + 1e-8)
    assert model.w.tolist() == pytest.approx(mine)


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_parts_may_be_spared_weight_decay(name: str) -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)).double()
    model[1].decays = False
    before = [one.detach().clone() for one in model.parameters()]
    optimizer = make_optimizer(
        TrainingRecipe(optimizer=name, weight_decay=0.5), model, 0.1, captured=False
    )
    for one in model.parameters():
        one.grad = torch.zeros_like(one)
    optimizer.step()
    moved = [
        not torch.equal(one, other) for one, other in zip(model.parameters(), before, strict=True)
    ]
    assert moved == [True, False]


def test_a_training_does_not_load_the_compiler(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "not loaded"
