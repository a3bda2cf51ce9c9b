"""Our AdamW makes the updates of PyTorch's, and a training does not load PyTorch's compiler."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from saccade.training.optimizer import AdamW

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


@pytest.mark.parametrize("fused", [False, True])
def test_its_updates_are_those_of_pytorch(fused: bool) -> None:
    found = []
    for kind in (AdamW, torch.optim.AdamW):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
        optimizer = kind(model.parameters(), 0.01, (0.9, 0.98), weight_decay=0.1, fused=fused)
        for n in range(4):
            model(torch.randn(6, 5)).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if n == 1:
                state = optimizer.state_dict()
                optimizer = kind(model.parameters(), 0.5, fused=fused)
                optimizer.load_state_dict(state)
        found.append([parameter.detach() for parameter in model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_a_training_does_not_load_the_compiler(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", TRAIN, str(tmp_path / "run")], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "not loaded"
