"""What a table will take, before it starts: one row of each stage is measured on a batch, the others by their operations beside it."""

from __future__ import annotations

import json
from collections.abc import Sequence

import torch

from .. import tasks
from ..config import recipes
from ..models.builder import Builder
from ..models.protocols import CausalLM, Encoder, Seq2Seq
from ..settings import fixed
from ..system.build import prepared
from ..system.system import System
from ..training.cost import Cost, measure, median_batch
from ..training.distributed import Ranks
from ..training.flops import counter
from ..training.run_plan import use_threads
from ..training.work import Work
from .study import SWEEP, Job

ROWS, TOKENS, VOCABULARY = 2, 32, 500  # of the batch on which operations are counted
UNKNOWN = 1.0
BESIDES = 1.4  # an update takes longer than forward and backward, and there are evaluations


def forecast(jobs: Sequence[Job], threads: int) -> dict[str, tuple[float, float]]:
    """Name of each job that is not done → seconds (by itself) and operations."""
    found = {job.name: (float(job.settings.get("at_most", 0)), 0.0) for job in jobs if not job.done}
    stages = dict.fromkeys(
        stage_of(job) for job in jobs if "training" in job.settings and not job.done
    )
    for stage in stages:
        mine = [job for job in jobs if stage_of(job) == stage and "training" in job.settings]
        known = next((job for job in mine if job.done and SWEEP not in job.stage), None)
        if known is not None:
            values = json.loads(known.result.read_text(encoding="utf-8"))["values"]
            seconds, operations = values["seconds"], values.get("operations", 0.0)
        else:
            known = mine[0]
            cost = measured(known, threads)
            seconds, operations = BESIDES * cost.seconds[0], cost.flops_per_update * cost.updates
        units = {job.row: count(job) for job in mine}
        if UNKNOWN in units.values():  # then all count alike
            units = dict.fromkeys(units, UNKNOWN)
        for job in mine:
            share = units[job.row] / units[known.row] * updates(job) / updates(known)
            if not job.done:
                minutes = job.settings["training"].get("minutes")
                most = 60 * minutes if isinstance(minutes, int | float) else 0.0
                share *= min(1.0, (most or float("inf")) / max(seconds * share, 1e-9))
                found[job.name] = seconds * share, operations * share
    return found


def whole(jobs: Sequence[Job], threads: int) -> tuple[float, float]:
    """Seconds (one after another) and operations of all jobs that are not done."""
    seconds, operations = zip(*forecast(jobs, threads).values(), strict=True)
    return sum(seconds), sum(operations)


def stage_of(job: Job) -> tuple[str, str]:
    """What is trained alike: the jobs of a stage, with those that try its learning rates, and a task."""
    return job.stage.partition(SWEEP)[0], job.settings.get("task", "translation")


def updates(job: Job) -> int:
    return max(1, int(job.settings["training"]["updates"]))


def measured(job: Job, threads: int) -> Cost:
    """The cost of a job's updates by its first batch; a model that others start from need not be there yet."""
    made = recipes.recipe(
        {**job.recipe, "training": {**job.recipe["training"], "threads": threads}}
    )
    with use_threads(threads):
        return cost_of(*prepared(made), fixed(made.training.updates))


def cost_of(system: System, work: Work, updates: int) -> Cost:
    """The cost of so many updates, by a batch of median size."""
    kind = system.recipe.training.autocast
    batch = median_batch(work, work.epoch(0), Ranks())

    def loss() -> torch.Tensor:
        with torch.autocast(system.device.type, kind, enabled=kind is not None):
            return work.loss(system.model.train(), batch) / max(int(batch.tokens), 1)

    return measure(system.model, loss, updates, system.recipe.training.accumulate, Ranks())


def count(job: Job) -> float:
    """The operations of a job's model, forward and backward, on a few tokens; UNKNOWN where such a small batch does not suit it."""
    kind = tasks.table[job.settings.get("task", "translation")].needs_of(job.settings)
    tokens = torch.ones(ROWS, TOKENS, dtype=torch.long)
    lengths = torch.full((ROWS,), TOKENS)
    known = {Seq2Seq: (tokens, lengths, tokens), Encoder: (tokens, lengths), CausalLM: (tokens,)}
    if kind not in known:
        return UNKNOWN
    inputs = known[kind]
    try:
        model = Builder(job.settings["model"]).make(
            kind, *[VOCABULARY] * (2 if kind is Seq2Seq else 1)
        )
        with counter() as counted:
            model(*inputs).sum().backward()
    except Exception:  # the training itself says what is wrong
        return UNKNOWN
    return float(counted.get_total_flops()) or UNKNOWN
