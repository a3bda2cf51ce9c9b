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
from saccade.training.optimizer import AdamW, Sgd, make_optimizer

TRAIN = """
import sys
from saccade.__main__ import main
sys.argv = ["saccade", "train", "phrasebook-transformer", "training.updates=2", "training.tokens=256", "training.threads=1", "model.depth=1",
            "data.phrasebook.train=50", "data.phrasebook.dev=10", "data.phrasebook.test=10", "--out", sys.argv[1]]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print("loaded" if "torch._dynamo" in sys.modules else "not loaded")
"""


ADAMW, SGD = {"betas": (0.9, 0.98)}, {"momentum": 0.9, "nesterov": True}


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(("kinds", "how"), [((AdamW, torch.optim.AdamW), ADAMW), ((Sgd, torch.optim.SGD), SGD)])
def test_updates_are_those_of_pytorch(kinds: tuple[Any, Any], how: dict[str, Any], fused: bool) -> None:
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
    w = torch.tensor([2.0, -1.0], dtype=torch.float64, requires_grad=True)
    settings = TrainingRecipe(optimizer="sgd", weight_decay=0.1)
    optimizer = make_optimizer(settings, [w], 0.05, captured=False)
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


def test_a_training_does_not_load_the_compiler(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", TRAIN, str(tmp_path / "run")], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "not loaded"
