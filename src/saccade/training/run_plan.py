"""Fills in automatic training settings before a run: updates, threads, graphs and compile."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec

import torch
from torch import nn

from ..recipe import TrainingRecipe
from ..settings import AUTO, fixed, resolve
from .checkpoints import Progress
from .cost import duration, median_batch, restored, synchronized_time
from .distributed import Ranks
from .loop import Watcher
from .update_capture import LowPrecision
from .work import Work

# Defaults if neither updates nor epochs nor minutes are given. Small data get more epochs; a CPU run ends while one waits.
EPOCHS, MIN_UPDATES, MAX_UPDATES, CPU_MINUTES = 80, 500, 30_000, 10.0
# Compiling takes a minute and saves a few percent, so it pays off in longer runs only.
MIN_COMPILE_SECONDS = 1800.0
WITH_STEP = (
    1.15  # an update takes so much longer than forward and backward: the optimizer, the next batch
)


def plan(
    settings: TrainingRecipe,
    model: nn.Module,
    work: Work,
    ranks: Ranks,
    before: Callable[[], Progress],
    watcher: Watcher,
) -> TrainingRecipe:
    """The settings with all automatic values filled in. `before` is the progress of a resumed run."""
    on_cpu = next(model.parameters()).device.type == "cpu"
    threads = resolve(settings.threads, torch.get_num_threads())
    per_epoch = -(-len(work.epoch(0)) // settings.accumulate)
    measure = partial(time_update, settings, model, work, ranks)
    if settings.threads == AUTO and threads > 1 and on_cpu and ranks.count == 1:
        watcher.stage("measuring with how many threads this machine is fastest")
        threads = choose_threads(measure, threads, watcher.note)
    settings = replace(settings, threads=threads)
    if settings.updates == AUTO:
        seconds = math.inf
        if settings.minutes or (on_cpu and not settings.epochs):
            # An evaluation takes a third of an update, without gradients.
            evaluations = (
                work.dev_share / 3 * per_epoch / resolve(settings.evaluate_every, per_epoch)
            )
            with use_threads(threads):
                seconds = measure(2.0) * WITH_STEP * (1 + evaluations)
        updates = choose_updates(
            settings, per_epoch, seconds, before() if settings.minutes else Progress()
        )
        settings = replace(settings, updates=updates, warmup=min(settings.warmup, updates // 10))
    elif settings.epochs:
        settings = replace(
            settings, updates=min(fixed(settings.updates), settings.epochs * per_epoch)
        )
    # Sampled choices need the loss as numbers.
    captures = work.captures and not any(
        getattr(part, "samples", False) for part in model.modules()
    )
    alone = next(model.parameters()).device.type == "cuda" and ranks.count == 1
    stacks = [part.in_few_kernels for part in model.modules() if hasattr(part, "in_few_kernels")]
    joined = bool(stacks) and all(stacks)
    settings = choose_way(
        settings, captures, work.one_shape, alone, joined, partial(measure, 0.3), watcher.note
    )
    # Once per epoch, but 10 to 100 times in total.
    updates = fixed(settings.updates)
    every = resolve(
        settings.evaluate_every, min(max(per_epoch, updates // 100), max(updates // 10, 1))
    )
    return replace(
        settings, evaluate_every=every, checkpoint_every=resolve(settings.checkpoint_every, every)
    )


def choose_way(
    settings: TrainingRecipe,
    captures: bool,
    one_shape: bool,
    alone: bool,
    joined: bool,
    measure: Callable[[], float],
    note: Callable[[str], None],
) -> TrainingRecipe:
    """Decides on graphs and compile for a run that is `alone` on one GPU.

    Graphs have little overhead. Compiling takes about a minute per batch shape. It pays off in a long run with one shape, unless its
    kernels are already fused (`joined`).
    """
    if AUTO not in (settings.graphs, settings.compile):
        return settings
    graphs, compiled = settings.graphs, settings.compile
    if graphs == AUTO:
        graphs = alone and captures and settings.accumulate == 1
    why = ""
    if compiled == AUTO:
        compiled = False
        if alone and one_shape and find_spec("triton") is not None and not joined:
            seconds = measure() * fixed(settings.updates)
            compiled = seconds >= MIN_COMPILE_SECONDS
            verdict = "worth" if compiled else "too short to be worth"
            why = f": about {duration(seconds)} uncompiled, {verdict} compiling"
        elif alone and not one_shape:
            why = ", not compiled: their batches have many shapes"
    if alone:
        how = {
            (True, True): "compiled and captured as CUDA graphs",
            (True, False): "captured as CUDA graphs",
        }
        note(
            f"updates are {how.get((graphs, compiled), 'compiled' if compiled else 'made kernel by kernel')}{why}"
        )
    return replace(settings, graphs=graphs, compile=compiled)


def choose_updates(
    settings: TrainingRecipe, per_epoch: int, seconds: float, before: Progress
) -> int:
    """The number of updates by epochs and minutes; without either, by the data and the speed of the CPU."""
    allowed = [float(settings.epochs * per_epoch)] if settings.epochs else []
    if settings.minutes:
        pace = before.seconds / before.update if before.update else seconds
        allowed.append(before.update + max(60 * settings.minutes - before.seconds, 0.0) / pace)
    if not allowed:
        by_speed = 60 * CPU_MINUTES / seconds if math.isfinite(seconds) else MAX_UPDATES
        allowed = [min(max(EPOCHS * per_epoch, MIN_UPDATES), MAX_UPDATES, by_speed)]
    return max(int(min(allowed)), 1)


def time_update(
    settings: TrainingRecipe, model: nn.Module, work: Work, ranks: Ranks, least: float
) -> float:
    """Seconds per update with a batch of median size, averaged over at least `least` seconds. The model is unchanged."""
    kind, device = settings.autocast, next(model.parameters()).device
    # as it is captured
    forward: nn.Module = (
        LowPrecision(model, kind) if kind and work.only_forward and device.type == "cuda" else model
    )
    taken, count, first = 0.0, 0, True
    with restored(model, work):
        batch = median_batch(work, work.epoch(0), ranks)
        while taken < least:
            start = synchronized_time()
            with torch.autocast(device.type, kind, enabled=kind is not None):
                loss = work.loss(forward.train(), batch)
            loss.backward()
            once = ranks.largest(synchronized_time() - start)
            # The first update is slower, above all on a GPU, where libraries and kernels initialize.
            if not first or (once > 2 * least and device.type == "cpu"):
                taken, count = taken + once, count + 1
            first = False
    model.zero_grad(set_to_none=True)
    return taken / count * settings.accumulate


def choose_threads(
    measure: Callable[[float], float], most: int, note: Callable[[str], None]
) -> int:
    """The fastest number of threads: 1, 2, 4 … or all."""
    found: dict[int, float] = {}
    for count in sorted({*(2**n for n in range(most.bit_length())), most}):
        with use_threads(count):
            found[count] = measure(0.5)
    best = min(found, key=found.__getitem__)
    others = ", ".join(f"{count}: {seconds:.2g} s" for count, seconds in found.items())
    note(
        f"training.threads={best}, the fastest of those measured (seconds per update with {others})"
    )
    return best


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Sets torch's number of threads inside the `with`."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
