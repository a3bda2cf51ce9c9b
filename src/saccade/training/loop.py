"""The training loop. What is drawn depends on (seed, epoch, update) alone: a resumed run continues bit for bit on a CPU."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain

import torch
from torch import Tensor, nn

from ..recipe import TrainingRecipe
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

DRAW_SEED = 104_729_000_000_017  # what parts draw before an update is the same on all ranks, and not what dropout draws
PREFETCHED_BATCHES = 4  # batches
RANK_SEED = (
    7_919_000_000_033  # each rank draws its own dropout; rank 0 draws what a single process would
)


def uses_graphs(settings: TrainingRecipe, device: torch.device) -> bool:
    # a recipe that asks for it can be used without a GPU too
    return bool(settings.graphs) and device.type == "cuda"


def prefetched_batches(work: Work, device: torch.device) -> int:
    """How many batches are made before their turn: on a processor that computes the updates too, none."""
    return PREFETCHED_BATCHES if work.ahead and device.type == "cuda" else 0


class Watcher:
    """Is called while a run trains; this one does nothing."""

    def stage(self, text: str) -> None: ...  # what is being done when no update is made
    def cost(self, cost: Cost) -> None: ...
    def update(self, at: Progress, row: dict[str, float]) -> None: ...
    def evaluated(self, at: Progress, metrics: dict[str, float], best: bool) -> None: ...
    def note(self, text: str) -> None: ...
    def another(self, name: str) -> "Watcher":
        """What watches a run that is trained before this one."""
        return self


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
        """Trains to the end, an early stop or a signal; returns how far it came."""
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
        if (self.at.best is not None and self.at.update >= self.settings.updates) or (
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
                # the seconds now contain the last evaluation
                self._evaluating, evaluating = (self._evaluating + evaluating, 0.0)
                last = self.at.update >= self.settings.updates or self._out_of_time()
                # A GPU is not asked for its numbers at every update: the processor would wait until it has computed them.
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
                # A signal is looked at once, and by all ranks: one that comes later is found after the next update.
                asked = self.ranks.largest(signals.asked())
                if self.at.done or asked or self._due("checkpoint"):
                    self._read()  # nothing is written that was computed from a number that is not finite
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
        """Measured on a batch of median size among some of the epoch; what changes by it is restored."""
        plans, remaining = self._epoch(self.at.epoch), self.settings.updates - self.at.update
        self.model.train()
        with restored(self.model, self.work):
            batch = median_batch(self.work, plans, self.ranks)
            loss = lambda: self.update.loss(self.update.measured, batch) / max(batch.tokens, 1)
            cost = measure(self.model, loss, remaining, self.settings.accumulate, self.ranks)
        # an evaluation has no gradients, which take two thirds of an update
        each = len(plans) / self.settings.accumulate * self.work.dev_share / 3
        evaluations = each * remaining / self.settings.evaluate_every
        return replace(
            cost, at_most=self.update.captured, evaluations=evaluations, done=self.at.update
        )

    def _costs(self, cost: Cost, memory: PeakMemory) -> dict[str, float]:
        """What the run has cost so far, with what it had cost before it was resumed."""
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
        """One update: batches → loss → gradients → step; its row for the log."""
        number, settings = self.at.update + 1, self.settings
        # dropout must not depend on what was drawn before (the cost, an evaluation, the updates before a restart)
        self._seed((self.seed * 1_000_003 + number + self.ranks.rank * RANK_SEED) % (1 << 63))
        made = [self._batches.next() for _ in range(settings.accumulate)]
        parts, (epoch, batch) = [(part, counts) for part, counts, _ in made], made[-1][-1]
        tokens = sum(self.ranks.total([counts * part.tokens for part, counts in parts]))
        rate = settings.learning_rate * self.schedule(number, settings.warmup, settings.updates)
        if not self.model.training:  # of all parts it takes as long as a small update
            self.model.train()
        self._renew(number)
        lines = [list(part.lines) if counts else [] for part, counts in parts]
        self._unread.append((number, lines, *self.update(parts, tokens, rate)))
        self.at = replace(
            self.at, update=number, epoch=epoch, batch=batch, tokens=self.at.tokens + tokens
        )
        return {"update": number, "epoch": epoch, "learning_rate": rate, "tokens": self.at.tokens}

    def _seed(self, seed: int) -> None:
        """As `torch.manual_seed`, which also asks kinds of devices that are not here, and takes as long as a small update for it."""
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed_all(seed)
        elif self.device.type != "cpu":
            torch.manual_seed(seed)

    def _renew(self, number: int) -> None:
        """Calls the parts that want a call before each update. They overwrite their tensors, which a captured update reads again."""
        if not self._renewed:
            return
        generator = torch.Generator().manual_seed(
            (self.seed * 1_000_003 + number + DRAW_SEED) % (1 << 63)
        )
        for part in self._renewed:
            part.before_update(number, generator)  # type: ignore[operator]

    def _read(self) -> dict[str, float]:
        """Reads the losses and gradient norms since the last time and stops at one that is not finite; the last update's two."""
        every = [one for _, _, tensors, norm in self._unread for one in (*tensors, norm)]
        # together: a GPU is waited for once
        numbers = iter(torch.stack(every).tolist() if every else ())
        for number, lines, tensors, _ in self._unread:
            losses, norm = self.ranks.total([next(numbers) for _ in tensors]), next(numbers)
            self._numbers = {"loss": sum(losses), "gradient_norm": norm}
            for value, at in zip([*losses, norm], [*lines, list(chain(*lines))], strict=True):
                self._check("the loss or its gradient", value, number, at)
        self._unread = []
        return self._numbers

    def _check(self, what: str, value: float, number: int, lines: Sequence[int] = ()) -> None:
        """Ends the run where a number is not finite."""
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
        """Judges the model, and ends the run at the last update or after too many evaluations without improvement."""
        self.watcher.stage("evaluating")
        with self.update.plain() as model:
            metrics, better = self._judge(model)
            self.at = replace(self.at, metrics=metrics, worse=0 if better else self.at.worse + 1)
            row = {"update": self.at.update, "epoch": self.at.epoch, "seconds": self.at.seconds}
            logs.add(**row, **{f"dev_{name}": value for name, value in metrics.items()})
            self.watcher.evaluated(self.at, metrics, better)
            self.at = replace(self.at, done=last or self._out_of_patience())
            if self.settings.average:
                self._average(model)

    def _judge(self, model: nn.Module) -> tuple[dict[str, float], bool]:
        """Metrics on the dev set, and whether they are the best so far; the model is then written to `best/`."""
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

    def _average(self, model: nn.Module) -> None:
        """Keeps this evaluation's parameters; at the end, the mean of the last few is judged as a model of its own."""
        self.ranks.lead(lambda: self.folder.keep(model, self.at.update, self.settings.average))
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
            self.settings.minutes > 0
            and self.ranks.largest(self.at.seconds) >= 60 * self.settings.minutes
        )

    def _out_of_patience(self) -> bool:
        return 0 < self.settings.patience <= self.at.worse
