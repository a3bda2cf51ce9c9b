"""Train very deep, narrow Transformers with post-norm, pre-norm and DeepNorm on characters of the
phrasebook.

    python benchmarks/deep.py [--depths 18 100 200] [--updates 100] [--dim 32] [--tokens 512] [--rate 0.002] [--warmup 1]
                              [--family transformer-decoder] [--device cpu] [--seeds 1] [--result deep]

Each model is a language model of characters (or an encoder–decoder that translates, with `--family
transformer`), trained with the same data, seeds and learning rate. `by_frequency` is the held-out
loss of character frequencies alone: a deep model that does not get below it has learned nothing.
Writes `benchmarks/results/RESULT.json`.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections import Counter
from pathlib import Path
from typing import Any

from saccade.config import recipes
from saccade.experiments.results import Table
from saccade.system.build import prepared
from saccade.training.distributed import Ranks
from saccade.training.update import Update
from saccade.training.update_capture import CapturedUpdate

RESIDUALS = ("post-norm", "pre-norm", "deepnorm")
PHRASEBOOK = {
    "train": "phrasebook:train",
    "dev": "phrasebook:dev",
    "phrasebook": {"train": 3000, "dev": 100, "test": 0},
}


def recipe(options: argparse.Namespace, residual: str, depth: int, seed: int = 0) -> dict[str, Any]:
    sizes = {
        "dim": options.dim,
        "hidden": 2 * options.dim,
        "depth": depth,
        "heads": 2,
        "dropout": 0.0,
        "tied": False,
    }
    alone = (
        {"task": "language-modelling", "language": {"block": 64}}
        if options.family == "transformer-decoder"
        else {}
    )
    return {
        **alone,
        "data": PHRASEBOOK,
        "vocabulary": {"kind": "characters", "lowercase": True},
        "model": {"family": options.family, "residual": residual, **sizes},
        "training": {"learning_rate": options.rate, "tokens": options.tokens, "smoothing": 0.0},
        "device": options.device,
        "seed": seed,
    }


def train(options: argparse.Namespace, residual: str, depth: int, seed: int) -> dict[str, Any]:
    """The losses of one model, by the updates that `saccade train` makes, without its evaluations, checkpoints and report."""
    start, losses = time.perf_counter(), list[float]()
    made = recipes.recipe(recipe(options, residual, depth, seed))
    system, work = prepared(made)
    kind = CapturedUpdate if system.device.type == "cuda" else Update
    update = kind(system.model, work, made.training, Ranks(), print)
    for epoch in itertools.count():
        for plan in work.epoch(epoch)[: options.updates - len(losses)]:
            batch = work.batch(plan)
            [loss], _ = update(
                [(batch, 1)],
                batch.tokens,
                options.rate * min(1.0, (len(losses) + 1) / options.warmup),
            )
            losses.append(float(loss))
        if len(losses) == options.updates:
            break
    last = losses[-min(10, len(losses)) :]
    found = {
        "loss_first": losses[0],
        "loss_last": sum(last) / len(last),
        "loss_dev": work.evaluate(system.model.eval())["loss"],
    }
    if not all(map(math.isfinite, found.values())):
        found = {
            "loss_first": losses[0],
            "diverged_at": next(n for n, one in enumerate(losses, 1) if not math.isfinite(one)),
        }
    return {
        **found,
        "parameters": sum(parameter.numel() for parameter in system.model.parameters()),
        "seconds": round(time.perf_counter() - start, 1),
    }


def by_frequency(options: argparse.Namespace) -> float:
    """The loss on the training data of a model that knows the frequency of each target token in it alone."""
    _, work = prepared(recipes.recipe(recipe(options, "pre-norm", 1)))
    counts = Counter[int]()
    for plan in work.epoch(0):
        batch = work.batch(plan)
        counts.update(batch.target[batch.target != batch.ignore].tolist())
    return -sum(n * math.log(n / counts.total()) for n in counts.values()) / counts.total()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--depths", type=int, nargs="+", default=[18, 100, 200])
    parser.add_argument("--residuals", nargs="+", default=list(RESIDUALS))
    parser.add_argument(
        "--family", choices=("transformer-decoder", "transformer"), default="transformer-decoder"
    )
    for name, default in {
        "updates": 100,
        "dim": 32,
        "tokens": 512,
        "warmup": 1,
        "seeds": 1,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--rate", type=float, default=0.002)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--result", default="deep")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    figures: dict[str, Any] = {"by_frequency": by_frequency(options)}
    print(f"by frequency alone: {figures['by_frequency']:.3f}", flush=True)
    for depth in options.depths:
        for residual in options.residuals:
            for seed in range(options.seeds):
                found = train(options, residual, depth, seed)
                for name, value in found.items():
                    figures.setdefault(f"{residual}-{depth}-{name}", []).append(value)
                print(
                    f"{depth} layers, {residual}, seed {seed}:",
                    {name: round(value, 3) for name, value in found.items()},
                    flush=True,
                )
    notes = (
        "loss per character in nats, of the first and the last 10 updates and on the dev set; "
        + ("by_frequency: of a model that knows how often each occurs and nothing else")
    )
    print(
        Table(
            options.result,
            {options.result: figures},
            seeds=list(range(options.seeds)),
            notes=notes,
        ).write(options.out)
    )


if __name__ == "__main__":
    main()
