"""The training loop. The order of batches is a function of (seed, epoch), dropout of (seed, update), and what a task carries between
updates is in the checkpoint: a resumed run continues bit for bit on a CPU."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..recipe import TrainingRecipe
from . import schedules
from .capture import CapturedUpdate, captures
from .checkpoints import Kept, Progress, RunFolder, set_parameters
from .cost import Cost, measure
from .distributed import Ranks
from .logs import Logs, Pace
from .parallel import LAYOUTS, Layout
from .stopping import Stopped, Stopper
from .update import Parts, Update
from .work import Work

RANK_SEED = 7_919_000_000_033  # each rank draws its own dropout; rank 0 draws what a single process would


class Watcher:
    """Is called while a run trains; this one does nothing."""

    def cost(self, cost: Cost) -> None: ...
    def update(self, at: Progress, row: dict[str, float]) -> None: ...
    def evaluated(self, at: Progress, metrics: dict[str, float], best: bool) -> None: ...
    def note(self, text: str) -> None: ...


class Training:
    """One training run of one model; `run` continues from the folder's last checkpoint, if there is one."""

    def __init__(
        self,
        model: nn.Module,
        work: Work,
        settings: TrainingRecipe,
        folder: RunFolder,
        watcher: Watcher | None = None,
        ranks: Ranks | None = None,
        seed: int = 0,
        higher_is_better: bool = False,
    ) -> None:
        self.model, self.work, self.settings, self.folder = model, work, settings, folder
        self.seed, self.sign = seed, -1 if higher_is_better else 1
        self.ranks = ranks or Ranks()
        self.watcher = watcher if watcher is not None and self.ranks.leads else Watcher()
        self.device = next(model.parameters()).device
        self.layout = (LAYOUTS[settings.parallel] if self.ranks.count > 1 else Layout)(model, self.ranks, settings.compile)
        kind = CapturedUpdate if captures(settings, self.device, self.ranks, self.watcher.note) else Update
        self.update = kind(work, settings, self.layout, self.watcher.note)
        self.schedule = schedules.table[settings.schedule]
        self.at = Progress()
        self._plans: tuple[int, Sequence[Any]] = (-1, ())
        self._unread: list[tuple[int, list[Tensor], list[Sequence[int]], Tensor]] = []
        self._numbers: dict[str, float] = {}

    def run(self) -> Progress:
        """Trains to the end, an early stop or a signal; returns how far it came."""
        self._resume()
        if (self.at.best is not None and self.at.update >= self.settings.updates) or (self.at.done and self._out_of_patience()):
            advice = "raise training.updates or training.patience to continue"
            self.watcher.note(f"already finished at update {self.at.update:,}; {advice}")
            return self.at
        if self.at.update:
            self.watcher.note(f"resuming from update {self.at.update}")
        self.at = replace(self.at, done=False)
        self.watcher.cost(self._cost())
        logs, pace = Logs(self.folder.path, self.at.update, self.ranks.leads), Pace(self.at.tokens)
        began = time.perf_counter() - self.at.seconds
        with Stopper(patient=self.ranks.count > 1) as stopper:
            while not self.at.done:
                row = self._update()
                self.at = replace(self.at, seconds=time.perf_counter() - began)
                last = self.at.update >= self.settings.updates
                # A GPU is not asked for its numbers at every update: the processor would wait until it has computed them.
                if last or self.device.type == "cpu" or any(map(self._due, ("log", "evaluate", "checkpoint"))):
                    row.update(self._read())
                    self.watcher.update(self.at, row)
                if self._due("log"):
                    logs.add(**row, tokens_per_second=pace.per_second(self.at.tokens))
                if last or self._due("evaluate"):
                    self._evaluate(logs, last)
                    pace = Pace(self.at.tokens)
                # A signal is looked at once, and by all ranks: one that comes later is found after the next update.
                signal = int(self.ranks.largest(stopper.signal or 0))
                if self.at.done or signal or self._due("checkpoint"):
                    self._checkpoint()
                if signal:
                    raise Stopped(signal, self.at.update)
        return self.at

    def _due(self, what: str) -> bool:
        """Whether the update just made is one to log, evaluate or checkpoint at."""
        return self.at.update % int(getattr(self.settings, f"{what}_every")) == 0

    def _resume(self) -> None:
        found = self.ranks.lead(lambda: (self.folder.progress() or Progress()).__dict__)
        self.at = Progress(**found)
        if self.at.update:
            self.work.load_state(self.ranks.agree(lambda: self.folder.load_last(self.model, self.update.optimizer)))
        self.ranks.lead(lambda: Kept(self.folder.path, self.settings.average).forget(self.at.update))

    def _checkpoint(self) -> None:
        self._read()  # nothing is written that was computed from a number that is not finite
        kind, optimizer = self.settings.checkpoint, self.update.optimizer
        self.folder.save_last(kind, self.ranks, self.model, optimizer, self.at, self.work.state())

    def _cost(self) -> Cost:
        """Measured on a batch of median size among some of the epoch; what the work carries between updates is restored after it."""
        carried = {name: tensor.clone() for name, tensor in self.work.state().items()}
        plans = self._epoch(self.at.epoch)
        some = sorted(plans[:: len(plans) // 16 + 1], key=lambda plan: self.work.batch(plan).tokens)
        batch = self.work.batch(self.ranks.share(some[len(some) // 2])[0])
        self.model.train()
        loss = lambda: self.update.loss(self.model, batch) / max(batch.tokens, 1)  # noqa: E731
        cost = measure(self.model, loss, self.settings.updates - self.at.update, self.settings.accumulate, self.ranks)
        self.work.load_state(carried)
        return replace(cost, at_most=self.update.captured)

    def _epoch(self, epoch: int) -> Sequence[Any]:
        """An epoch's plans, kept while the epoch lasts."""
        if self._plans[0] != epoch:
            self._plans = (epoch, self.work.epoch(epoch))
        return self._plans[1]

    def _next(self) -> tuple[Parts, int, int]:
        """This rank's part of the next update's batches, and the (epoch, batch) that follows them."""
        epoch, at, parts = self.at.epoch, self.at.batch, []
        for _ in range(self.settings.accumulate):
            if at >= len(self._epoch(epoch)):
                epoch, at = epoch + 1, 0
            mine, counts = self.ranks.share(self._epoch(epoch)[at])
            parts.append((self.work.batch(mine), counts))
            at += 1
        return parts, epoch, at

    def _update(self) -> dict[str, float]:
        """One update: batches → loss → gradients → step; its row for the log."""
        number, settings = self.at.update + 1, self.settings
        # dropout must not depend on what was drawn before (the cost, an evaluation, the updates before a restart)
        torch.manual_seed((self.seed * 1_000_003 + number + self.ranks.rank * RANK_SEED) % (1 << 63))
        parts, epoch, batch = self._next()
        tokens = sum(self.ranks.total([counts * part.tokens for part, counts in parts]))
        rate = settings.learning_rate * self.schedule(number, settings.warmup, settings.updates)
        self.model.train()
        self.update(parts, tokens, rate, partial(self._keep, number, [part.lines if counts else () for part, counts in parts]))
        self.at = replace(self.at, update=number, epoch=epoch, batch=batch, tokens=self.at.tokens + tokens)
        return {"update": number, "epoch": epoch, "learning_rate": rate, "tokens": self.at.tokens}

    def _keep(self, number: int, lines: list[Sequence[int]], losses: list[Tensor], norm: Tensor) -> None:
        """Keeps an update's numbers to be read; on a CPU, where reading costs nothing, before the update is applied."""
        self._unread.append((number, losses, lines, norm))
        if self.device.type == "cpu":
            self._read()

    def _read(self) -> dict[str, float]:
        """Reads the losses and gradient norms since the last time and stops at one that is not finite; the last update's two."""
        for number, tensors, lines, norm in self._unread:
            losses = self.ranks.total([float(loss) for loss in tensors])
            self._numbers = {"loss": sum(losses), "gradient_norm": float(norm)}
            for loss, at in zip(losses, lines, strict=True):
                self._check(number, loss, at)
            self._check(number, float(norm), [line for at in lines for line in at])
        self._unread = []
        return self._numbers

    def _check(self, number: int, value: float, lines: Sequence[int]) -> None:
        if math.isfinite(value):
            return
        every = sorted(line for some in self.ranks.everyone(list(lines)) for line in some)
        shown = ", ".join(map(str, every[:20])) + (" …" if len(every) > 20 else "")
        raise self.ranks.error(
            f"the loss or its gradient became {value} at update {number}, on a batch of lines {shown}; nothing of it was saved. "
            f"Lower training.learning_rate (it is {self.settings.learning_rate:g}), raise training.warmup or look at those lines "
            "with `saccade check`, then continue with --resume"
        )

    def _evaluate(self, logs: Logs, last: bool) -> None:
        """Judges the model, and ends the run at the last update or after too many evaluations without improvement."""
        with self.layout.plain() as model:
            metrics, better = self._judge(model)
            self.at = replace(self.at, metrics=metrics, worse=0 if better else self.at.worse + 1)
            logs.add(update=self.at.update, epoch=self.at.epoch, **{f"dev_{name}": value for name, value in metrics.items()})
            self.watcher.evaluated(self.at, metrics, better)
            self.at = replace(self.at, done=last or self._out_of_patience())
            if self.settings.average:
                self._average(model)

    def _judge(self, model: nn.Module) -> tuple[dict[str, float], bool]:
        """Metrics on the dev set, and whether they are the best so far; the model is then written to `best/`."""
        model.eval()
        with torch.no_grad():
            metrics = self.ranks.lead(lambda: self.work.evaluate(model))
        watch, names = self.settings.watch, ", ".join(metrics)
        if watch not in metrics:
            raise self.ranks.error(f"training.watch is '{watch}', and the evaluation gives {names}; choose one of these")
        for name, value in metrics.items():
            if not math.isfinite(value):
                raise self.ranks.error(
                    f"the dev {name} became {value} at update {self.at.update}; nothing of it was saved. Lower training.learning_rate "
                    f"(it is {self.settings.learning_rate:g}) or raise training.warmup, then continue with --resume"
                )
        better = self.at.best is None or self.sign * metrics[watch] < self.sign * self.at.best
        if better:
            self.ranks.lead(lambda: self.folder.save("best", model))
            self.at = replace(self.at, metrics=metrics, best=metrics[watch], best_update=self.at.update)
        return metrics, better

    def _average(self, model: nn.Module) -> None:
        """Keeps this evaluation's parameters; at the end, the mean of the last few is judged as a model of its own."""
        kept = Kept(self.folder.path, self.settings.average)
        self.ranks.lead(lambda: kept.add(model, self.at.update))
        if not self.at.done:
            return
        mean, count = kept.mean() if self.ranks.leads else ({}, 0)
        before = set_parameters(model, mean) if self.ranks.leads else {}
        metrics, better = self._judge(model)
        if self.ranks.leads:
            set_parameters(model, before)
        shown = "  ".join(f"dev {name} {value:.3f}" for name, value in metrics.items())
        evaluations = f"{count} evaluations" if count > 1 else "evaluation"
        self.watcher.note(f"mean of the last {evaluations}  {shown}{'  best' if better else ''}")

    def _out_of_patience(self) -> bool:
        return 0 < self.settings.patience <= self.at.worse
