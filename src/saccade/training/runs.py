"""Where a training stands, and the folder it is written to."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

from ..errors import SaccadeError
from ..files import Writer, broken, settle, write_folder
from .checkpoints import save_model, save_optimizer


@dataclass(frozen=True)
class Progress:
    """Where a training stands; all that a resumed run must know besides parameters and optimizer."""

    update: int = 0
    epoch: int = 0
    batch: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best: float | None = None
    best_update: int = 0
    worse: int = 0
    done: bool = False
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RunFolder:
    """Where a run is written: `last/` and `best/` model folders and logs; `files` are the model folder's other files."""

    path: Path
    files: dict[str, Writer]

    def save(self, name: str, model: nn.Module, more: dict[str, Writer] | None = None) -> None:
        write_folder(self.path / name, {**self.files, "model.safetensors": lambda path: save_model(model, path), **(more or {})})

    def save_last(self, model: nn.Module, optimizer: torch.optim.Optimizer, at: Progress) -> None:
        text = json.dumps(at.__dict__, indent=2) + "\n"
        self.save(
            "last",
            model,
            {
                "training.safetensors": lambda path: save_optimizer(optimizer, model, path),
                "training.json": lambda path: path.write_text(text, encoding="utf-8"),
            },
        )

    def progress(self) -> Progress | None:
        """Where the last checkpoint stands, None when there is none yet."""
        last = self.path / "last"
        settle(last)
        if not last.exists():
            return None
        wrong = broken(last)
        if wrong:
            raise SaccadeError(f"{last} is no intact checkpoint: {wrong}; remove it to begin again")
        try:
            return Progress(**json.loads((last / "training.json").read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise SaccadeError(f"{last}/training.json cannot be read ({error}); remove {last} to begin again") from None
