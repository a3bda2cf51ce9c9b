"""The training loop: batches in an order that is a function of (seed, epoch), dropout a function of (seed, update), so that a
resumed run continues bit for bit on a CPU from any checkpoint."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from .averaging import Kept, set_parameters
from .cost import Cost, measure
from .distributed import Ranks
from .graphs import Recorder
from .logs import Logs, NoLogs, Pace
from .lowered import Lowered
from .parallel import Layout
from .runs import Progress, RunFolder, save_best
from .shards import whole
from .stopping import Stopped, Stopper
from .terms import Batch, Settings, Watcher, Work

__all__ = ["Batch", "Made", "Settings", "Training", "Watcher", "Work"]

RANK_SEED = 7_919_000_000_033  # ranks draw their dropout from streams of their own; rank 0 from the one of a process alone


@dataclass(frozen=True)
class Made:
    """An update whose numbers have not been read yet: the loss of each of its batches with their lines, and the gradient's norm."""

    update: int
    losses: list[tuple[Tensor, Sequence[int]]]
    norm: Tensor


class Training:
    """One training of one model; `run` goes on from the folder's last checkpoint, if there is one."""

    def __init__(
        self,
        model: nn.Module,
        work: Work,
        settings: Settings,
        folder: RunFolder,
        watcher: Watcher | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self.model, self.work, self.settings, self.folder = model, work, settings, folder
        self.ranks = ranks or Ranks()
        self.watcher = watcher if watcher is not None and self.ranks.leads else Watcher()
        self.device = next(model.parameters()).device
        self.layout = (settings.parallel if self.ranks.count > 1 else Layout)(model, self.ranks, settings.compile)
        self.recorder = Recorder(self._step, self.watcher.note, model.zero_grad) if self._records() else None
        if self.recorder and settings.autocast and not settings.compile and not hasattr(model, "forward_from"):
            self.layout.forward = Lowered(model, settings.autocast)
        rate: Any = settings.learning_rate
        self.optimizer = torch.optim.AdamW(
            model.parameters(),
            # what a recording reads must stay where it is: a number would be written into it
            lr=torch.tensor(rate, device=self.device) if self.recorder else rate,
            betas=(0.9, settings.beta2),
            weight_decay=settings.weight_decay,
            fused=self.device.type in ("cpu", "cuda"),
            capturable=self.recorder is not None,
        )
        self.share = torch.ones((), device=self.device)  # of an update's tokens, by which a recorded batch's loss is multiplied
        self.at = Progress()
        self._unread: list[Made] = []
        self._numbers: dict[str, float] = {}

    def run(self) -> Progress:
        """Trains to the end, an early stop or a signal; returns where it stands."""
        self._resume()
        if (self.at.best is not None and self.at.update >= self.settings.updates) or (self.at.done and self._tired()):
            self.watcher.note(f"done already at update {self.at.update:,}; raise training.updates or training.patience to go on")
            return self.at
        if self.at.update:
            self.watcher.note(f"going on from update {self.at.update}")
        self.at = replace(self.at, done=False)
        self.watcher.cost(self._cost())
        logs = (Logs if self.ranks.leads else NoLogs)(self.folder.path, self.at.update)
        pace, began, since = Pace(), time.perf_counter(), self.at.seconds
        with Stopper(patient=self.ranks.count > 1) as stopper:
            while not self.at.done:
                before = self.at.tokens
                row = self._update()
                self.at = replace(self.at, seconds=since + time.perf_counter() - began)
                pace.count(self.at.tokens - before)
                last = self.at.update >= self.settings.updates
                if last or self.device.type == "cpu" or any(map(self._due, ("log", "evaluate", "checkpoint"))):
                    row.update(self._settle())
                    self.watcher.update(self.at, row)
                if self._due("log"):
                    logs.add(**row, tokens_per_second=pace.per_second())
                if last or self._due("evaluate"):
                    self._evaluate(logs, last)
                    pace = Pace()
                # looked at once: what comes after waits for the next update, and for its checkpoint
                asked = int(self.ranks.largest(stopper.signal or 0))
                if asked:
                    self._settle()
                if self.at.done or asked or self._due("checkpoint"):
                    self.settings.checkpoint(self.ranks, self.folder, self.model, self.optimizer, self.at)
                if asked:
                    raise Stopped(asked, self.at.update)
        return self.at

    def _due(self, what: str) -> bool:
        """Whether the update just made is one to log, evaluate or checkpoint at."""
        return self.at.update % int(getattr(self.settings, f"{what}_every")) == 0

    def _settle(self) -> dict[str, float]:
        """Reads the losses and gradient norms since the last time, stops at one that is not finite; the last update's two.

        On a GPU a number is not read at every update: the processor would wait for it. Nothing is written before it was read.
        """
        for made in self._unread:
            norm, losses = float(made.norm), self.ranks.total([float(value) for value, _ in made.losses])
            self._numbers = {"loss": sum(losses), "gradient_norm": norm}
            for value, (_, lines) in zip(losses, made.losses, strict=True):
                if not math.isfinite(value):
                    self._not_finite(made.update, value, lines)
            if not math.isfinite(norm):
                self._not_finite(made.update, norm, [line for _, lines in made.losses for line in lines])
        self._unread = []
        return self._numbers

    def _resume(self) -> None:
        found = self.ranks.lead(self._found)
        if found:
            self.ranks.agree(lambda: self.folder.load_last(self.model, self.optimizer))
            self.at = Progress(**found)
        self.ranks.lead(lambda: Kept(self.folder.path, self.settings.average).forget(self.at.update))

    def _found(self) -> dict[str, Any]:
        """Where the last checkpoint stands; nothing when there is none."""
        found = self.folder.progress()
        return found.__dict__ if found is not None else {}

    def _cost(self) -> Cost:
        """Measured on the middle one by size of some of the epoch's batches, which a copy of the work makes: nothing goes on from it."""
        plans, work = self._epoch(self.at.epoch), copy(self.work)
        some = sorted(plans[:: len(plans) // 16 + 1], key=lambda plan: work.batch(plan).tokens)
        batch = work.batch(self.ranks.share(some[len(some) // 2])[0])
        loss = lambda: self._loss(self.model, batch) / max(batch.tokens, 1)  # noqa: E731
        self.model.train()
        cost = measure(self.model, loss, self.settings.updates - self.at.update, self.ranks)
        return replace(
            cost,
            flops_per_update=cost.flops_per_update * self.settings.accumulate,
            seconds_per_update=cost.seconds_per_update * self.settings.accumulate,
            at_most=self.recorder is not None,
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
        torch.manual_seed((settings.seed * 1_000_003 + number + self.ranks.rank * RANK_SEED) % (1 << 63))
        plans, batches = self._plans(), []
        epoch, at = self.at.epoch, self.at.batch
        for _ in range(settings.accumulate):
            plan, epoch, at = next(plans)
            mine, counts = self.ranks.share(plan)
            batches.append((self.work.batch(mine), counts))
        tokens = sum(self.ranks.total([counts * batch.tokens for batch, counts in batches]))
        rate = settings.learning_rate * settings.schedule(number, settings.warmup, settings.updates)
        self.model.train()
        if self.recorder:
            [(batch, _)] = batches
            self._set_rate(rate)
            self.share.fill_(1 / max(tokens, 1))
            loss, norm = self.recorder(batch)
            self._unread.append(Made(number, [(loss, batch.lines)], norm))
        else:
            self._move(number, batches, tokens, rate)
        self.at = replace(self.at, update=number, epoch=epoch, batch=at, tokens=self.at.tokens + tokens)
        return {
            "update": number,
            "epoch": epoch,
            "learning_rate": rate,
            "tokens": self.at.tokens,
        }

    def _records(self) -> bool:
        """Whether updates are recorded: where graphs are asked for, in one process on a GPU, one batch an update."""
        settings = self.settings
        if not settings.graphs or self.device.type != "cuda":
            return False  # a recipe that asks for them can be used without a GPU too
        if self.ranks.count > 1 or settings.accumulate > 1:
            self.watcher.note("training.graphs is for one process and one batch an update; going on without")
            return False
        return True

    def _set_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def _clip(self) -> Tensor:
        clip = self.settings.clip
        return whole(nn.utils.clip_grad_norm_(self.model.parameters(), clip if clip > 0 else float("inf")))

    def _step(self, batch: Any) -> tuple[Tensor, Tensor]:
        """An update from one batch without reading a number, as it can be recorded: its loss and its gradient's norm."""
        loss = self._loss(self.layout.forward, batch) * self.share
        loss.backward()
        norm = self._clip()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach(), norm

    def _move(self, number: int, batches: list[tuple[Any, int]], tokens: float, rate: float) -> None:
        """One move of the optimizer from several batches, on any number of ranks."""
        losses = []
        for n, (batch, counts) in enumerate(batches, 1):
            with self.layout.batch(last=n == len(batches)):
                loss = (
                    counts * self._loss(self.layout.forward, batch) / max(tokens, 1)
                )  # unknown words alone: nothing to learn, and no 0 / 0
                self.layout.scaled(loss).backward()
            losses.append((loss.detach(), batch.lines[: counts * len(batch.lines)]))
        self._unread.append(Made(number, losses, self._clip()))
        if self.device.type == "cpu":  # reading costs nothing here, and what is not finite is not applied
            self._settle()
        self._set_rate(rate)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def _not_finite(self, number: int, value: float, at: Sequence[int]) -> None:
        at = self.ranks.joined(at)
        lines = ", ".join(map(str, sorted(at)[:20])) + (" …" if len(at) > 20 else "")
        raise self.ranks.mistake(
            f"the loss or its gradient became {value} at update {number}, on a batch of lines {lines}; nothing of it was saved. "
            f"Lower training.learning_rate (it is {self.settings.learning_rate:g}), lengthen training.warmup or look at those lines "
            "with `saccade check`, then go on with --resume"
        )

    def _evaluate(self, logs: Logs, last: bool) -> None:
        with self.layout.plain() as model:
            figures = self._figures(model)
        value = figures[self.settings.watch]
        better = self._better(value)
        self.at = replace(
            self.at,
            figures=figures,
            best=value if better else self.at.best,
            best_update=self.at.update if better else self.at.best_update,
            worse=0 if better else self.at.worse + 1,
        )
        if better:
            save_best(self.ranks, self.folder, self.model)
        logs.add(update=self.at.update, epoch=self.at.epoch, **{f"dev_{name}": number for name, number in figures.items()})
        self.watcher.evaluated(self.at, figures, better)
        self.at = replace(self.at, done=last or self._tired())
        if self.settings.average:
            self._average()

    def _figures(self, model: nn.Module) -> dict[str, float]:
        """Figures on the dev set; what is missing or not finite stops the run."""
        model.eval()
        with torch.no_grad():
            figures = self.ranks.lead(lambda: self.work.evaluate(model))
        if self.settings.watch not in figures:
            raise self.ranks.mistake(
                f"training.watch is '{self.settings.watch}', and the evaluation gives {', '.join(figures)}; choose one of these"
            )
        for name, value in figures.items():
            if not math.isfinite(value):
                raise self.ranks.mistake(
                    f"the dev {name} became {value} at update {self.at.update}; nothing of it was saved. Lower training.learning_rate "
                    f"(it is {self.settings.learning_rate:g}) or lengthen training.warmup, then go on with --resume"
                )
        return figures

    def _better(self, value: float) -> bool:
        sign = -1 if self.settings.higher_is_better else 1
        return self.at.best is None or sign * value < sign * self.at.best

    def _average(self) -> None:
        """Keeps this evaluation's parameters; at the end, the mean of the last few becomes the best model if it is better."""
        kept = Kept(self.folder.path, self.settings.average)
        with self.layout.plain() as model:
            self.ranks.lead(lambda: kept.add(model, self.at.update))
            if not self.at.done:
                return
            mean, count = kept.mean() if self.ranks.leads else ({}, 0)
            before = set_parameters(model, mean) if self.ranks.leads else {}
            figures = self._figures(model)
            better = self._better(figures[self.settings.watch])
            if better:
                self.ranks.lead(lambda: self.folder.save("best", model))
                self.at = replace(self.at, figures=figures, best=figures[self.settings.watch], best_update=self.at.update)
            if self.ranks.leads:
                set_parameters(model, before)
        shown = "  ".join(f"dev {name} {value:.3f}" for name, value in figures.items())
        self.watcher.note(
            f"mean of the last {f'{count} evaluations' if count > 1 else 'evaluation'}  {shown}{'  best' if better else ''}"
        )

    def _tired(self) -> bool:
        """So many evaluations without a better one that it is time to stop."""
        return 0 < self.settings.patience <= self.at.worse
