"""The training loop. Randomness depends on (seed, epoch, update) alone, so a resumed run is bit-identical on a CPU."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain

import torch
from torch import Tensor, nn

from ..recipe import TrainingRecipe
from ..settings import fixed
from . import schedules
from .checkpoints import Progress, RunFolder
from .cost import Cost, PeakMemory, measure, median_batch, restored
from .distributed import Ranks, SharedError
from .logs import Logs, format_metric
from .parameters import buffers, set_parameters
from .prefetch import BatchPosition, Prefetcher
from .signals import Stopped, stop_on_signals
from .update import PARALLEL, Update
from .update_capture import CapturedUpdate
from .work import Work

# Seed offset of draws before an update: equal on all ranks, different from dropout.
DRAW_SEED = 104_729_000_000_017
PREFETCHED_BATCHES = 4
RANK_SEED = (
    7_919_000_000_033  # each rank draws its own dropout; rank 0 draws what a single process would
)


def uses_graphs(settings: TrainingRecipe, device: torch.device) -> bool:
    # Recipes with graphs run without a GPU too.
    return settings.graphs is True and device.type == "cuda"


def prefetched_batches(work: Work, device: torch.device) -> int:
    """Number of prefetched batches: none on a CPU, which also computes the updates."""
    return PREFETCHED_BATCHES if work.ahead and device.type == "cuda" else 0


class Watcher:
    """Callbacks of a training run. This base class does nothing."""

    def stage(self, text: str) -> None: ...
    def cost(self, cost: Cost) -> None: ...
    def update(self, at: Progress, row: dict[str, float]) -> None: ...
    def evaluated(self, at: Progress, metrics: dict[str, float], best: bool) -> None: ...
    def note(self, text: str) -> None: ...
    def another(self, name: str) -> "Watcher":
        """The watcher of a run that is trained before this one."""
        return self


class Training:
    """One training run of one model. `run` continues from the last checkpoint, if there is one."""

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
        self.updates = fixed(settings.updates)
        self.seed, self.sign = seed, -1 if higher_is_better else 1
        self.ranks = ranks or Ranks()
        self.watcher = watcher if watcher is not None and self.ranks.leads else Watcher()
        self.device = next(model.parameters()).device
        kind = PARALLEL[settings.parallel] if self.ranks.count > 1 else Update
        if uses_graphs(settings, self.device):
            if self.ranks.count == settings.accumulate == 1:
                kind = CapturedUpdate
            else:
                self.watcher.note(
                    "training.graphs needs one process and one batch per update; continuing without"
                )
        self.update = kind(model, work, settings, self.ranks, self.watcher.note)
        self.schedule = schedules.table[settings.schedule]
        self.at = Progress()
        self._renewed = [part for part in model.modules() if hasattr(part, "before_update")]
        self._epoch = lru_cache(maxsize=1)(work.epoch)
        self._unread: list[tuple[int, list[list[int]], list[Tensor], Tensor]] = []
        self._numbers: dict[str, float] = {}
        self._evaluating = 0.0  # seconds

    def run(self) -> Progress:
        """Trains until the end, early stopping or a signal. Returns the progress."""
        self.at = Progress(
            **self.ranks.lead(lambda: (self.folder.progress() or Progress()).__dict__)
        )
        self._evaluating = self.at.costs.get("seconds_evaluating", 0.0)
        if self.at.update:
            self.work.load_state(
                self.ranks.agree(lambda: self.folder.load_last(self.model, self.update.optimizer))
            )
        self.ranks.lead(lambda: self.folder.forget(self.at.update))
        ended = self._out_of_patience() or self._out_of_time()
        if (self.at.best is not None and self.at.update >= self.updates) or (
            self.at.done and ended
        ):
            limits = "training.minutes" if self.settings.minutes else "training.updates"
            advice = f"raise {limits} or training.patience to continue"
            self.watcher.note(f"already finished at update {self.at.update:,}; {advice}")
            return self.at
        if self.at.update:
            self.watcher.note(f"resuming from update {self.at.update}")
        self.at = replace(self.at, done=False)
        self.watcher.stage("measuring how long it will take")
        memory, cost = PeakMemory(self.device), self._cost()
        self.watcher.cost(cost)
        logs = Logs(
            self.folder.path,
            self.at.update,
            self.ranks.leads,
            self.work.measures,
            self.settings.tensorboard,
        )
        tokens, since = self.at.tokens, time.perf_counter()
        began, evaluating = since - self.at.seconds, 0.0
        self._batches = Prefetcher(
            self.work,
            self.ranks,
            self._epoch,
            BatchPosition(self.at.epoch, self.at.batch),
            prefetched_batches(self.work, self.device),
        )
        with (
            logs,
            self._batches,
            stop_on_signals(self.watcher.note, patient=self.ranks.count > 1) as signals,
        ):
            while not self.at.done:
                row = self._update()
                self.at = replace(self.at, seconds=time.perf_counter() - began)
                # The seconds now include the last evaluation.
                self._evaluating, evaluating = (self._evaluating + evaluating, 0.0)
                last = self.at.update >= self.updates or self._out_of_time()
                # Reading numbers from a GPU synchronizes, so it is not done at every update.
                if (
                    last
                    or self.device.type == "cpu"
                    or any(map(self._due, ("log", "evaluate", "checkpoint")))
                ):
                    row.update(self._read())
                    self.watcher.update(self.at, row)
                if self._due("log"):
                    speed = (self.at.tokens - tokens) / max(time.perf_counter() - since, 1e-9)
                    logs.add(**row, seconds=self.at.seconds, tokens_per_second=speed)
                if last or self._due("evaluate"):
                    self._evaluate(logs, last)
                    evaluating = time.perf_counter() - began - self.at.seconds
                if self._due("log") or self._due("evaluate"):
                    tokens, since = self.at.tokens, time.perf_counter()
                # All ranks read the signal once per update.
                asked = self.ranks.largest(signals.asked())
                if self.at.done or asked or self._due("checkpoint"):
                    # Do not write a checkpoint after a non-finite loss.
                    self._read()
                    self.at = replace(self.at, costs=self._costs(cost, memory))
                    state = self.model, self.update.optimizer, self.at, self.work.state()
                    with signals.ignore_repeats():
                        self.folder.save_last(self.settings.checkpoint, self.ranks, *state)
                if asked >= 1:
                    raise Stopped(int(asked), self.at.update)
        return self.at

    def _due(self, what: str) -> bool:
        return self.at.update % int(getattr(self.settings, f"{what}_every")) == 0

    def _cost(self) -> Cost:
        """The cost of an update, measured on a batch of median size. State that it changes is restored."""
        plans, remaining = self._epoch(self.at.epoch), self.updates - self.at.update
        self.model.train()
        with restored(self.model, self.work):
            batch = median_batch(self.work, plans, self.ranks)
            loss = lambda: self.update.loss(self.update.measured, batch) / max(batch.tokens, 1)
            cost = measure(self.model, loss, remaining, self.settings.accumulate, self.ranks)
        # An evaluation has no gradients, which take two thirds of an update.
        each = len(plans) / self.settings.accumulate * self.work.dev_share / 3
        evaluations = each * remaining / fixed(self.settings.evaluate_every)
        return replace(
            cost, at_most=self.update.captured, evaluations=evaluations, done=self.at.update
        )

    def _costs(self, cost: Cost, memory: PeakMemory) -> dict[str, float]:
        """The cost of the run so far, including the time before it was resumed."""
        peaks = {
            name: max(value, self.at.costs.get(name, 0.0))
            for name, value in memory.read(self.update.optimizer).items()
        }
        return {
            "operations_per_update": cost.flops_per_update,
            "seconds_evaluating": self._evaluating,
            **peaks,
        }

    def _update(self) -> dict[str, float]:
        """One update: batches → loss → gradients → step. Returns the row for the log."""
        number, settings = self.at.update + 1, self.settings
        # Dropout must not depend on earlier draws (cost estimate, evaluation, updates before a restart).
        self._seed((self.seed * 1_000_003 + number + self.ranks.rank * RANK_SEED) % (1 << 63))
        made = [self._batches.next() for _ in range(settings.accumulate)]
        parts, (epoch, batch) = [(part, counts) for part, counts, _ in made], made[-1][-1]
        tokens = sum(self.ranks.total([counts * part.tokens for part, counts in parts]))
        rate = settings.learning_rate * self.schedule(number, settings.warmup, self.updates)
        # Setting all modules to training mode takes as long as a small update.
        if not self.model.training:
            self.model.train()
        self._renew(number)
        lines = [list(part.lines) if counts else [] for part, counts in parts]
        self._unread.append((number, lines, *self.update(parts, tokens, rate)))
        self.at = replace(
            self.at, update=number, epoch=epoch, batch=batch, tokens=self.at.tokens + tokens
        )
        return {"update": number, "epoch": epoch, "learning_rate": rate, "tokens": self.at.tokens}

    def _seed(self, seed: int) -> None:
        """Like `torch.manual_seed`, which queries absent devices and takes as long as a small update."""
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed_all(seed)
        elif self.device.type != "cpu":
            torch.manual_seed(seed)

    def _renew(self, number: int) -> None:
        """Calls `before_update` of all parts that have it. They write in place, so captured updates see the new values."""
        if not self._renewed:
            return
        generator = torch.Generator().manual_seed(
            (self.seed * 1_000_003 + number + DRAW_SEED) % (1 << 63)
        )
        for part in self._renewed:
            part.before_update(number, generator)  # type: ignore[operator]

    def _read(self) -> dict[str, float]:
        """Reads the losses and gradient norms since the last call and stops at a non-finite one. Returns the last two."""
        every = [one for _, _, tensors, norm in self._unread for one in (*tensors, norm)]
        # One synchronization for all.
        numbers = iter(torch.stack(every).tolist() if every else ())
        for number, lines, tensors, _ in self._unread:
            losses, norm = self.ranks.total([next(numbers) for _ in tensors]), next(numbers)
            self._numbers = {"loss": sum(losses), "gradient_norm": norm}
            for value, at in zip([*losses, norm], [*lines, list(chain(*lines))], strict=True):
                self._check("the loss or its gradient", value, number, at)
        self._unread = []
        return self._numbers

    def _check(self, what: str, value: float, number: int, lines: Sequence[int] = ()) -> None:
        """Ends the run if a number is not finite."""
        if math.isfinite(value):
            return
        every = sorted(line for some in self.ranks.everyone(list(lines)) for line in some)
        shown = ", ".join(map(str, every[:20])) + (" …" if len(every) > 20 else "")
        where = f", on a batch of lines {shown}" if every else ""
        raise SharedError(
            f"{what} became {value} at update {number}{where}; nothing of it was saved. Lower training.learning_rate (it is "
            f"{self.settings.learning_rate:g}), raise training.warmup or look at the data with `saccade check`, then continue with resume=True",
            code="diverged",
        )

    def _evaluate(self, logs: Logs, last: bool) -> None:
        """Evaluates the model and decides whether to stop early."""
        self.watcher.stage("evaluating")
        with self.update.plain() as model:
            metrics, better = self._judge(model)
            self.at = replace(self.at, metrics=metrics, worse=0 if better else self.at.worse + 1)
            row = {"update": self.at.update, "epoch": self.at.epoch, "seconds": self.at.seconds}
            logs.add(**row, **{f"dev_{name}": value for name, value in metrics.items()})
            self.watcher.evaluated(self.at, metrics, better)
            self.at = replace(self.at, done=last or self._out_of_patience())
            if count := self.settings.average:
                self._average(model, count)

    def _judge(self, model: nn.Module) -> tuple[dict[str, float], bool]:
        """Metrics on the dev set, and whether they are the best so far. The best model is written to `best/`."""
        model.eval()
        with torch.no_grad():
            metrics = self.ranks.lead(lambda: self.work.evaluate(model))
        watch = self.settings.watch
        if watch not in metrics:
            raise SharedError(
                f"training.watch is '{watch}', and the evaluation gives {', '.join(metrics)}; choose one of these",
                code="unknown-metric",
            )
        for name, value in metrics.items():
            self._check(f"the dev {name}", value, self.at.update)
        better = self.at.best is None or self.sign * metrics[watch] < self.sign * self.at.best
        if better:
            self.ranks.lead(lambda: self.folder.save("best", model))
            self.at = replace(
                self.at, metrics=metrics, best=metrics[watch], best_update=self.at.update
            )
        return metrics, better

    def _average(self, model: nn.Module, count: int) -> None:
        """Stores this evaluation's parameters. At the end, their mean is evaluated as a candidate."""
        self.ranks.lead(lambda: self.folder.keep(model, self.at.update, count))
        if not self.at.done:
            return
        before = (
            set_parameters(model, self.folder.mean_kept(buffers(model))) if self.ranks.leads else {}
        )
        metrics, better = self._judge(model)
        if self.ranks.leads:
            set_parameters(model, before)
        found = "  ".join(
            f"dev {name} {format_metric(name, value)}" for name, value in metrics.items()
        )
        evaluations = (
            f"{count} evaluations" if (count := len(self.folder.kept())) > 1 else "evaluation"
        )
        self.watcher.note(f"mean of the last {evaluations}  {found}{'  best' if better else ''}")

    def _out_of_time(self) -> bool:
        return (
            self.settings.minutes is not None
            and self.ranks.largest(self.at.seconds) >= 60 * self.settings.minutes
        )

    def _out_of_patience(self) -> bool:
        return 0 < (self.settings.patience or 0) <= self.at.worse
