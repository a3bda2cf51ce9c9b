"""A toy task for the training loop: a few examples, a model with dropout, a dev set."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from launcher import Launcher
from safetensors.torch import load_file
from torch import Tensor, nn

from saccade.recipe import TrainingRecipe
from saccade.training.checkpoints import RunFolder
from saccade.training.loop import Training, Watcher
from saccade.training.work import Work

EXAMPLES, CLASSES = 13, 5


@dataclass
class Toy(Work):
    """`EXAMPLES` examples in batches of `size`; `metrics` scripts what an evaluation finds, `poison` is a line with a bad loss."""

    seed: int = 0
    size: int = 4
    metrics: list[dict[str, float]] = field(default_factory=list)
    poison: int = 0
    evaluated: int = 0
    seen: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        chance = torch.Generator().manual_seed(5)
        self.x = torch.randint(0, 11, (EXAMPLES, 3), generator=chance)
        self.y = torch.randint(0, CLASSES, (EXAMPLES,), generator=chance)

    def epoch(self, epoch: int) -> list[list[int]]:
        order = np.argsort(np.random.PCG64([self.seed, epoch]).random_raw(EXAMPLES)).tolist()
        return [order[at : at + self.size] for at in range(0, EXAMPLES, self.size)]

    def batch(self, plan: Sequence[int]) -> SimpleNamespace:
        return SimpleNamespace(
            x=self.x[plan], y=self.y[plan], tokens=len(plan), lines=[100 + n for n in plan]
        )

    def loss(self, model: nn.Module, batch: SimpleNamespace) -> Tensor:
        self.seen.append(batch.lines)
        loss = nn.functional.cross_entropy(model(batch.x).float(), batch.y, reduction="sum")
        return loss * float("nan") if self.poison in batch.lines else loss

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        self.evaluated += 1
        if self.metrics:
            return self.metrics[min(self.evaluated, len(self.metrics)) - 1]
        torch.rand(7)  # an evaluation may use random numbers as it likes
        return {"loss": float(nn.functional.cross_entropy(model(self.x), self.y.flip(0)))}


def toy_model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Embedding(11, 6), nn.Flatten(), nn.Dropout(0.25), nn.Linear(18, CLASSES)
    )


@dataclass
class Stage:
    """Makes trainings of the toy in folders of their own, and compares what they leave."""

    root: Path
    model: Callable[[], nn.Module] = toy_model

    def training(
        self, name: str, toy: Toy | None = None, watcher: Watcher | None = None, **settings: Any
    ) -> Training:
        chosen = {
            "updates": 12,
            "learning_rate": 0.05,
            "schedule": "constant",
            "warmup": 3,
            "log_every": 1,
            **settings,
        }
        folder = RunFolder(self.root / name, {"config.json": lambda path: path.write_text("{}")})
        beside = {name: chosen.pop(name) for name in ("seed", "higher_is_better") if name in chosen}
        return Training(
            self.model(), toy or Toy(), TrainingRecipe(**chosen), folder, watcher, **beside
        )

    def tensors(self, name: str, which: str = "last") -> dict[str, Tensor]:
        """All parameters and optimizer states as they lie on the disk."""
        found = {}
        for path in sorted((self.root / name / which).glob("*.safetensors")):
            found.update({f"{path.name}/{key}": tensor for key, tensor in load_file(path).items()})
        return found

    def same(self, one: str, other: str) -> bool:
        a, b = self.tensors(one), self.tensors(other)
        assert len(a) == 3 + 3 * 3, "three parameters, three states of each"
        return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


class Copies(Watcher):
    """Keeps a copy of the parameters at every update, and the notes."""

    def __init__(self) -> None:
        self.training: Any = None
        self.parameters: dict[int, dict[str, Tensor]] = {}
        self.notes: list[str] = []

    def update(self, at: Any, row: dict[str, float]) -> None:
        self.parameters[at.update] = {
            name: p.detach().clone() for name, p in self.training.model.named_parameters()
        }

    def note(self, text: str) -> None:
        self.notes.append(text)


class Break(Exception):
    """Stands for a process that dies."""


class BreakAt(Watcher):
    """Dies after an update, before its checkpoint."""

    def __init__(self, update: int) -> None:
        self.at = update

    def update(self, at: Any, row: dict[str, float]) -> None:
        if at.update == self.at:
            raise Break("the process dies")


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    # no machine dies here, and hundreds of checkpoints are written
    monkeypatch.setattr("os.fsync", lambda handle: None)
    return Stage(tmp_path)


@pytest.fixture
def toy() -> Callable[..., Toy]:
    return Toy


@pytest.fixture
def copies() -> Copies:
    return Copies()


@pytest.fixture
def break_at() -> Callable[[int], BreakAt]:
    return BreakAt


@pytest.fixture(scope="session")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    source = str(Path(__file__).parents[2] / "src")
    environment = {
        **os.environ,
        "PYTHONPATH": source,
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    environment = {
        name: value
        for name, value in environment.items()
        if name not in ("RANK", "LOCAL_RANK", "WORLD_SIZE")
    }
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("launcher.py"))],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield Launcher(process, tmp_path_factory.mktemp("ranks"))
    process.communicate(timeout=300)
