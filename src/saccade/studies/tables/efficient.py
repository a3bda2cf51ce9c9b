"""Attention and its cheaper relatives against length: time, memory, fitted exponents, path lengths, sequential steps, and a loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ... import models
from ...config import recipes
from ...errors import SaccadeError
from ...experiments.attention_forms import FORMS, settings_of
from ...experiments.pass_costs import cost_of_pass, exponent, follow_paths, too_much
from ...experiments.runner import Context, train
from ...experiments.study import COSTS, Column, Job, Study, Values, training
from ...models.builder import Builder
from .frequencies import ABOUT, CONTROL, control

# Vaswani et al. 2017, Table 1, and the papers of the others: the exponent of the time in the length, and the longest path
CLAIMED = {
    "full": (2, "1"),
    "window": (1, "n/r"),
    "big-bird": (1, "1"),
    "linear": (1, "1"),
    "performer": (1, "1"),
    "linformer": (1, "1"),
    "convolution": (1, "n/k"),
    "lstm": (1, "n"),
    "full-causal": (2, "1"),
    "transformer-xl": (1, "n/r"),
    "lstm-causal": (1, "n"),
}
SIZES = {
    "tiny": {"dim": 64, "hidden": 128, "depth": 1, "heads": 2},
    "small": {"dim": 256, "hidden": 512, "depth": 2, "heads": 4},
}
# of the passes that are timed: on a GPU enough work at 4,096 tokens that starting its kernels does not take longest
PASS_SIZES = {"tiny": SIZES["tiny"], "small": {"dim": 512, "hidden": 1024, "depth": 1, "heads": 8}}
TEXTS = {"tiny": 1, "small": 8}  # of a pass
LONGEST, FITTED_FROM = {"tiny": 8192, "small": 65_536}, {"tiny": 1024, "small": 4096}
SECONDS = {"tiny": 4.0, "small": 5.0}  # that a pass may take
# after 4,000 updates full attention is two nats below word frequencies, and linear forms half a nat
BLOCK, UPDATES = {"tiny": 128, "small": 512}, {"tiny": 60, "small": 6000}
CONTROLS = {"masked": f"{CONTROL}-masked", "causal": f"{CONTROL}-causal"}  # objective → row
PATH = 128  # tokens between which paths are measured


class Efficient(Study):
    """Each form's forward and backward pass at growing lengths, and a small language model with it."""

    name, main, drawn = "efficient", "time", ("final_loss",)
    sets = ("text",)
    paper = "exponents and longest paths as in Vaswani et al. 2017, Table 1, and as claimed by the papers of the other forms"
    columns = (
        Column("exponent_time", "exponent of time", 2, "exponent"),
        Column("exponent_last", "of the last doubling", 2),
        Column("exponent_memory", "exponent of memory", 2),
        Column("fitted", "fitted over lengths"),
        Column("seconds_4096", "seconds at 4,096", None),
        Column("memory_4096", "memory at 4,096 (MiB)", 0, unit=2**20),
        Column("longest", "longest length", 0),
        Column("seconds_longest", "seconds there", None),
        Column("memory_longest", "memory there (MiB)", 0, unit=2**20),
        Column("layers", f"layers until the ends of {PATH} tokens meet", 0),
        Column("sequential", "sequential steps", None),
        Column("objective", "loss of", None),
        Column("final_loss", "final loss", 3, stage="loss"),
        *(Column(one.key, one.title, one.digits, stage="loss", unit=one.unit) for one in COSTS),
        Column("stopped", "why not longer", None),
    )
    paper_columns = {"exponent": "papers: exponent of time", "path": "longest path"}  # noqa: RUF012
    honest = (
        "Time and memory are measured on this machine, with the sizes of a small model: where the parts that do not depend on length "
        "dominate, exponents are below 1. The losses are of small models on blocks of a few hundred tokens, where full attention is "
        "affordable: they show what a form loses there, not what long context would win. Masked and causal losses cannot be compared. "
        "A form that is not below word frequencies has not begun to use its context, and its loss says nothing about the form."
    )
    about_control = ABOUT

    def rows(self) -> dict[str, str]:
        absent = self.left_out()
        forms = {name: name for name in FORMS if name not in absent}
        return forms | {
            name: f"word frequencies ({objective})" for objective, name in CONTROLS.items()
        }

    def left_out(self) -> dict[str, str]:
        found = {}
        for name in FORMS:
            try:
                Builder(self.model(name, 64))
            except SaccadeError as error:
                found[name] = str(error)
        return found

    def in_paper(self, row: str) -> Mapping[str, Any]:
        return dict(zip(self.paper_columns, CLAIMED[row], strict=True)) if row in CLAIMED else {}

    def control(self, row: str) -> str:
        return CONTROLS[objective_of(row)] if row in FORMS else ""

    def model(self, row: str, length: int, **sizes: int) -> Values:
        """A form's settings with the table's sizes, for texts of a length."""
        return settings_of(row, length, {**SIZES[self.scale], **sizes})

    def jobs(self, row: str, seeds: int) -> list[Job]:
        if row not in FORMS:
            return []
        lengths = [2**n for n in range(9, LONGEST[self.scale].bit_length())]
        passes = [[length, self.model(row, length, **PASS_SIZES[self.scale])] for length in lengths]
        seconds = SECONDS[self.scale]
        settings = {
            "passes": passes,
            "texts": TEXTS[self.scale],
            "seconds": seconds,
            "fitted_from": FITTED_FROM[self.scale],
            "path": [self.model(row, PATH, dim=16, hidden=16, heads=2, depth=1), PATH],
            "at_most": seconds * 8,
            "objective": objective_of(row),
        }
        timed = Job(row, "time", 0, measure, settings, self.out, alone=True, limit=30 * seconds)
        return [
            timed,
            *(Job(row, "loss", seed, train, self.recipe(row), self.out) for seed in range(seeds)),
        ]

    def closing(self, jobs: Sequence[Job]) -> list[Job]:
        wanted = {objective_of(job.row) for job in jobs}
        counted = {"masked": "full", "causal": "full-causal"}
        return [
            control(self.recipe(row), self.out, CONTROLS[key])
            for key, row in counted.items()
            if key in wanted
        ]

    def recipe(self, row: str) -> Values:
        """What is trained for a form's loss."""
        block = BLOCK[self.scale]
        return {
            "task": "language-modelling",
            "data": self.data["text"],
            "vocabulary": {"size": 500 if self.scale == "tiny" else 4000},
            "language": {"objective": objective_of(row), "block": block},
            "model": self.model(row, block + 1),
            "training": training(self.scale, UPDATES[self.scale], max(8 * block, 1024)),
        }

    def pictures(self, table: Any) -> dict[str, Any]:
        from ...views.figures import lines

        found = {}
        for what, title, unit in (("seconds", "seconds", 1.0), ("memory", "MiB", 2**20)):
            series = {}
            for row, results in table.results.items():
                for values in (one["values"] for one in results if one["stage"] == "time"):
                    series[row] = [
                        (int(length), max(value, 1e-9) / unit)
                        for length, value in values[what].items()
                    ]
            if series:
                about = f"Forward and backward pass by length: {title}"
                found[f"{what}.png"] = lines(series, "length (tokens)", title, about, "xy")
        return found


def objective_of(row: str) -> str:
    """What a form learns: a causal one the next token, the others tokens that are hidden."""
    return (
        "masked" if models.table[FORMS[row]["family"]].build(models.CausalLM) is None else "causal"
    )


def measure(job: Job, context: Context) -> Values:
    """Seconds and bytes of a pass at each length, as far as time and memory allow; exponents; paths and steps on a live model."""
    device, seconds, memory = recipes.device("auto"), dict[int, float](), dict[int, float]()
    why = ""
    for length, settings in job.settings["passes"]:
        why = too_much(length, seconds, memory, device, job.settings["seconds"])
        if why:
            break
        try:
            seconds[length], memory[length] = cost_of_pass(
                settings, length, device, job.settings["texts"]
            )
        except torch.OutOfMemoryError:
            why = f"{length:,} tokens do not fit into memory"
            break
        except (
            RuntimeError
        ) as error:  # a library's own limit, such as cuDNN's on the length of a recurrence
            if not seconds:
                raise
            why = f"{length:,} tokens: {str(error).splitlines()[0][:100]}"
            break
    fitted = {length for length in seconds if length >= job.settings["fitted_from"]}
    longest = max(seconds)
    found = {
        "seconds": seconds,
        "memory": memory,
        "longest": longest,
        "stopped": why or "–",
        "objective": job.settings["objective"],
    }
    found |= {"seconds_longest": seconds[longest], "memory_longest": memory[longest]}
    found |= {"seconds_4096": seconds[4096], "memory_4096": memory[4096]} if 4096 in seconds else {}
    if len(fitted) > 1:
        found |= {
            "exponent_time": exponent(seconds, fitted),
            "exponent_memory": exponent(memory, fitted),
        }
        found["exponent_last"] = exponent(seconds, {longest // 2, longest})
        found["fitted"] = f"{min(fitted):,} to {max(fitted):,}"
    return found | follow_paths(*job.settings["path"])
