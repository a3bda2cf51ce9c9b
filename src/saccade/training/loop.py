"""The training loop: batches in an order that is a function of (seed, epoch), dropout a function of (seed, update), so that a
resumed run continues bit for bit on a CPU from any checkpoint."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..errors import SaccadeError
from ..files import Writer, broken, settle, write_folder
from .checkpoints import load_model, load_optimizer, save_model, save_optimizer
from .cost import Cost, measure
from .logs import Logs
from .schedules import Schedule, inverse_sqrt
from .stopping import Stopped, Stopper


@dataclass(frozen=True)
class Settings:
    """How to train; `autocast` is a 16-bit type or None, `patience` the evaluations without a better one before stopping (0: never)."""

    updates: int = 2000
    learning_rate: float = 1e-3
    schedule: Schedule = inverse_sqrt
    warmup: int = 100
    weight_decay: float = 0.01
    beta2: float = 0.98
    clip: float = 1.0
    accumulate: int = 1
    autocast: torch.dtype | None = None
    compile: bool = False
    evaluate_every: int = 250
    checkpoint_every: int = 250
    log_every: int = 10
    patience: int = 0
    watch: str = "loss"
    higher_is_better: bool = False
    seed: int = 0


class Batch(Protocol):
    """A batch: how many tokens its loss sums over, and where its examples stood in the data."""

    @property
    def tokens(self) -> int: ...
    @property
    def lines(self) -> Sequence[int]: ...


class Work(Protocol):
    """What the loop needs to know of a task."""

    def epoch(self, epoch: int) -> Sequence[Any]:
        """The plans of an epoch's batches, in order."""

    def batch(self, plan: Any) -> Any:
        """The batch of a plan, on the model's device."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """The loss summed over the batch's tokens."""

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Figures on the dev set; `loss` among them."""


class Watcher:
    """Is told how the training goes; this one says nothing."""

    def cost(self, cost: Cost) -> None: ...
    def update(self, at: Progress, row: dict[str, float]) -> None: ...
    def evaluated(self, at: Progress, figures: dict[str, float], best: bool) -> None: ...
    def note(self, text: str) -> None: ...


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


class Training:
    """One training of one model; `run` goes on from the folder's last checkpoint, if there is one."""

    def __init__(
        self, model: nn.Module, work: Work, settings: Settings, folder: RunFolder, watcher: Watcher | None = None
    ) -> None:
        self.model, self.work, self.settings, self.folder = model, work, settings, folder
        self.watcher = watcher or Watcher()
        self.device = next(model.parameters()).device
        self.optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=settings.learning_rate,
            betas=(0.9, settings.beta2),
            weight_decay=settings.weight_decay,
            fused=self.device.type in ("cpu", "cuda"),
        )
        self.at = Progress()
        self.forward: nn.Module = torch.compile(model) if settings.compile else model  # type: ignore[assignment]

    def run(self) -> Progress:
        """Trains to the end, an early stop or a signal; returns where it stands."""
        self._resume()
        if self.at.done and (self.at.update >= self.settings.updates or self._tired()):
            return self.at
        self.at = replace(self.at, done=False)
        self.watcher.cost(self._cost())
        logs, began, since = Logs(self.folder.path, self.at.update), time.perf_counter(), self.at.seconds
        pace = Pace()
        with Stopper() as stopper:
            while not self.at.done:
                row = self._update()
                self.at = replace(self.at, seconds=since + time.perf_counter() - began)
                pace.count(int(row["batch_tokens"]))
                if self.at.update % self.settings.log_every == 0:
                    row["tokens_per_second"] = pace.per_second()
                    logs.add(**{name: value for name, value in row.items() if name != "batch_tokens"})
                self.watcher.update(self.at, row)
                last = self.at.update >= self.settings.updates
                if last or self.at.update % self.settings.evaluate_every == 0:
                    self._evaluate(logs, last)
                    pace = Pace()
                asked = stopper.signal  # looked at once: what comes after waits for the next update, and for its checkpoint
                if self.at.done or asked or self.at.update % self.settings.checkpoint_every == 0:
                    self.folder.save_last(self.model, self.optimizer, self.at)
                if asked:
                    raise Stopped(asked, self.at.update)
        return self.at

    def _resume(self) -> None:
        found = self.folder.progress()
        if found is not None:
            load_model(self.model, self.folder.path / "last" / "model.safetensors")
            load_optimizer(self.optimizer, self.model, self.folder.path / "last" / "training.safetensors")
            self.at = found
            self.watcher.note(f"going on from update {found.update}")

    def _cost(self) -> Cost:
        """Measured on the middle one by size of some of the epoch's batches."""
        plans = self._epoch(self.at.epoch)
        some = sorted((self.work.batch(plan) for plan in plans[:: len(plans) // 16 + 1]), key=lambda batch: batch.tokens)
        batch = some[len(some) // 2]
        self.model.train()
        cost = measure(self.model, lambda: self._loss(self.model, batch) / batch.tokens, self.settings.updates)
        return replace(
            cost,
            flops_per_update=cost.flops_per_update * self.settings.accumulate,
            seconds_per_update=cost.seconds_per_update * self.settings.accumulate,
        )

    def _loss(self, model: nn.Module, batch: Any) -> Tensor:
        wide = self.settings.autocast
        with torch.autocast(self.device.type, wide) if wide is not None else nullcontext():
            return self.work.loss(model, batch)

    def _plans(self) -> Iterator[tuple[Any, int, int]]:
        """The next batches' plans, each with the (epoch, batch) that follows it."""
        epoch, at = self.at.epoch, self.at.batch
        plans = self._epoch(epoch)
        while True:
            if at >= len(plans):
                epoch, at = epoch + 1, 0
                plans = self._epoch(epoch)
            at += 1
            yield plans[at - 1], epoch, at

    def _epoch(self, epoch: int) -> Sequence[Any]:
        """An epoch's plans, kept while the epoch lasts."""
        if getattr(self, "_kept", (None,))[0] != epoch:
            self._kept = (epoch, self.work.epoch(epoch))
        return self._kept[1]

    def _update(self) -> dict[str, float]:
        """One move of the optimizer; the row for the log."""
        number, settings = self.at.update + 1, self.settings
        torch.manual_seed((settings.seed * 1_000_003 + number) % (1 << 63))
        plans, batches = self._plans(), []
        epoch, at = self.at.epoch, self.at.batch
        for _ in range(settings.accumulate):
            plan, epoch, at = next(plans)
            batches.append(self.work.batch(plan))
        tokens = sum(batch.tokens for batch in batches)
        self.model.train()
        total = 0.0
        for batch in batches:
            loss = self._loss(self.forward, batch) / tokens
            loss.backward()
            value = float(loss.detach())
            if not math.isfinite(value):
                self._not_finite(number, value, batch.lines)
            total += value
        norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), settings.clip if settings.clip > 0 else float("inf")))
        if not math.isfinite(norm):
            self._not_finite(number, norm, [line for batch in batches for line in batch.lines])
        rate = settings.learning_rate * settings.schedule(number, settings.warmup, settings.updates)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.at = replace(self.at, update=number, epoch=epoch, batch=at, tokens=self.at.tokens + tokens)
        return {
            "update": number,
            "epoch": epoch,
            "loss": total,
            "learning_rate": rate,
            "gradient_norm": norm,
            "tokens": self.at.tokens,
            "batch_tokens": tokens,
        }

    def _not_finite(self, number: int, value: float, at: Sequence[int]) -> None:
        lines = ", ".join(map(str, sorted(at)[:20])) + (" …" if len(at) > 20 else "")
        raise SaccadeError(
            f"the loss or its gradient became {value} at update {number}, on a batch of lines {lines}; nothing of it was saved. "
            f"Lower training.learning_rate (it is {self.settings.learning_rate:g}), lengthen training.warmup or look at those lines "
            "with `saccade check`, then go on with --resume"
        )

    def _evaluate(self, logs: Logs, last: bool) -> None:
        self.model.eval()
        with torch.no_grad():
            figures = self.work.evaluate(self.model)
        if self.settings.watch not in figures:
            raise SaccadeError(
                f"training.watch is '{self.settings.watch}', and the evaluation gives {', '.join(figures)}; choose one of these"
            )
        for name, value in figures.items():
            if not math.isfinite(value):
                raise SaccadeError(
                    f"the dev {name} became {value} at update {self.at.update}; nothing of it was saved. Lower training.learning_rate "
                    f"(it is {self.settings.learning_rate:g}) or lengthen training.warmup, then go on with --resume"
                )
        value = figures[self.settings.watch]
        sign = -1 if self.settings.higher_is_better else 1
        better = self.at.best is None or sign * value < sign * self.at.best
        self.at = replace(
            self.at,
            figures=figures,
            best=value if better else self.at.best,
            best_update=self.at.update if better else self.at.best_update,
            worse=0 if better else self.at.worse + 1,
        )
        if better:
            self.folder.save("best", self.model)
        logs.add(update=self.at.update, epoch=self.at.epoch, **{f"dev_{name}": number for name, number in figures.items()})
        self.watcher.evaluated(self.at, figures, better)
        self.at = replace(self.at, done=last or self._tired())

    def _tired(self) -> bool:
        """So many evaluations without a better one that it is time to stop."""
        return 0 < self.settings.patience <= self.at.worse


class Pace:
    """Tokens a second since the last question."""

    def __init__(self) -> None:
        self.tokens, self.since = 0, time.perf_counter()

    def count(self, tokens: int) -> None:
        self.tokens += tokens

    def per_second(self) -> float:
        now = time.perf_counter()
        speed = self.tokens / max(now - self.since, 1e-9)
        self.tokens, self.since = 0, now
        return speed
