"""Every position encoding, trained on texts of at most L tokens and tested on longer ones."""

from __future__ import annotations

from dataclasses import replace

from .. import api
from ..core import positions
from ..core.options import options_of
from ..layers import inputs
from .plan import COSTS, Column, Job, Study, Values, training
from .running import Context, train

LENGTH, UPDATES = {"tiny": 16, "small": 64}, {"tiny": 100, "small": 2000}
SIZES = {"tiny": {"dim": 32, "hidden": 64, "depth": 2, "heads": 2}, "small": {"dim": 192, "hidden": 768, "depth": 4, "heads": 6}}
TIMES = (1, 2, 3, 4)


class Positions(Study):
    """The loss of a small causal model at 1 to 4 times the length it was trained on."""

    name, main, drawn = "positions", "lengths", ("loss_1", "loss_2", "loss_4")
    columns = (
        *(Column(f"loss_{times}", f"loss at {times} L", 3) for times in TIMES),
        Column("growth", "loss at 4 L − at L", 3),
        *COSTS,
    )
    honest = (
        "The lectures contradict each other about which positions extrapolate, and none gives numbers to compare with. A small model on "
        "short texts shows where an encoding breaks beyond the lengths it has seen; how gracefully a large one degrades may differ."
    )

    def rows(self) -> dict[str, str]:
        inside = [entry.name for entry in positions.table if not entry.make.needs_relation]
        at_input = [entry.name for entry in inputs.table if entry.name != "none"]
        return {name: name if name == "none" else f"{name} (in attention)" for name in inside} | {
            f"{name}-embedding": f"{name} (at the input)" for name in at_input
        }

    def jobs(self, row: str, seeds: int) -> list[Job]:
        length = LENGTH[self.scale]
        model = {"family": "transformer-decoder", **SIZES[self.scale], **part_of(row, max(TIMES) * length)}
        recipe = {
            "task": "language-modelling",
            "data": self.data["text"],
            "vocabulary": {"size": 500 if self.scale == "tiny" else 8000},
            "language": {"block": length},
            "model": model,
            "training": training(self.scale, UPDATES[self.scale], 1024 if self.scale == "tiny" else 8192),
        }
        return [Job(row, "lengths", seed, train_and_test, recipe, self.out) for seed in range(seeds)]


def part_of(row: str, longest: int) -> Values:
    """A row's settings; a table of positions is made for the longest texts, whose rows beyond L are never trained."""
    at_input = row.endswith("-embedding")
    table, name = (inputs.table, row.removesuffix("-embedding")) if at_input else (positions.table, row)
    options = {"max_len": longest} if "max_len" in options_of(table, table[name]) else {}
    part = {"name": name, **options}
    return {"position_embedding": part} if at_input else {"position": part, "position_embedding": "none"}


def train_and_test(job: Job, context: Context) -> Values:
    """Trains in blocks of L tokens, and measures the loss on the dev set in blocks of L to 4 L."""
    found = train(job, context)
    system = api.load(job.folder)
    task, dev = system.task, system.read("dev")
    for times in TIMES:
        longer = type(task)(task.text, replace(task.how, block=times * task.how.block), task.several)
        found[f"loss_{times}"] = longer.evaluate(system.model, dev)["loss"]
    return {**found, "growth": found["loss_4"] - found["loss_1"]}
