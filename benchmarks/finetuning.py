"""Test whether pretraining helps with few labels: pretrain by each objective, then fine-tune.

    python benchmarks/finetuning.py [--labeled 15] [--updates 60] [--seeds 3] [--objectives causal masked …]
                                    [--out runs/finetuning] [--result finetuning]

The texts are sentences of the phrasebook, the labels parts of speech. For each objective and seed the same model learns from the same
labeled sentences twice: from the pretrained model, with its vocabulary, and from scratch with the vocabulary of these sentences.
Finished runs are reused. Writes `benchmarks/results/RESULT.json` with `OBJECTIVE.accuracy`, `OBJECTIVE-scratch.accuracy` and
`OBJECTIVE-pretraining.loss`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from saccade.config import recipes
from saccade.experiments.comparison import run_folder, train_and_measure
from saccade.experiments.results import Table
from saccade.training.loop import Watcher

TEXTS = 3000  # without labels
UPDATES = {"causal": 1000, "masked": 1000, "denoising": 250, "permutation": 500}  # of pretraining
# of the tokens are asked for; of a causal model all are
SHARES = {"masked": 0.3, "denoising": 0.5, "permutation": 0.8}
SIZES = {"dim": 48, "hidden": 96, "depth": 1, "heads": 4}
FAMILIES = {
    "causal": {"family": "transformer-decoder", **SIZES},
    "masked": {"family": "transformer-encoder", **SIZES},
    "denoising": {"family": "transformer", **SIZES},
    "permutation": {"family": "transformer-encoder", "position": "xl", **SIZES},
}


def data(count: int) -> dict[str, Any]:
    """So many training texts; dev and test are the same for each number."""
    return {
        **{split: f"phrasebook:{split}" for split in ("train", "dev", "test")},
        "phrasebook": {"train": count, "dev": 50, "test": 300},
    }


def pretraining(objective: str) -> dict[str, Any]:
    return {
        "task": "language-modelling",
        "data": data(TEXTS),
        "vocabulary": {"kind": "words"},
        "language": {
            "objective": objective,
            "block": 48,
            **({"share": SHARES[objective]} if objective in SHARES else {}),
        },
        "model": FAMILIES[objective],
        "training": {**training(UPDATES[objective]), "tokens": 1000},
    }


def labeled(objective: str, options: argparse.Namespace) -> dict[str, Any]:
    return {
        "task": "tagging",
        "data": data(options.labeled),
        "model": FAMILIES[objective],
        "training": {**training(options.updates), "tokens": 500, "watch": "accuracy"},
    }


def training(updates: int) -> dict[str, Any]:
    each = max(updates // 2, 1)
    shared = {
        "learning_rate": 0.005,
        "schedule": "cosine",
        "warmup": updates // 10,
        "smoothing": 0.0,
        "threads": 1,
    }
    return {"updates": updates, **shared, "evaluate_every": each, "checkpoint_every": updates}


def trained(
    name: str, values: dict[str, Any], seed: int, out: Path
) -> tuple[Path, dict[str, float]]:
    """The run of a recipe, made unless it is there, and its metrics."""
    made, watcher = recipes.recipe({**values, "seed": seed, "device": "cpu"}), Watcher()
    run = run_folder(out / f"{name}-{seed}", made, print)
    metrics, _ = train_and_measure(made, run, watcher, "", None)
    print(f"{name}, seed {seed}: {metrics.get('accuracy', metrics['loss']):.3f}", flush=True)
    return run, metrics


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--labeled", type=int, default=15, help="sentences")
    parser.add_argument("--updates", type=int, default=60, help="with labels")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--objectives", nargs="+", choices=[*FAMILIES], default=[*FAMILIES])
    parser.add_argument("--out", type=Path, default=Path("runs/finetuning"))
    parser.add_argument("--result", default="")
    options = parser.parse_args()
    table = Table(options.result, {}, seeds=list(range(options.seeds)))
    for objective in options.objectives:
        for seed in range(options.seeds):
            first, before = trained(
                f"{objective}-pretraining", pretraining(objective), seed, options.out
            )
            with_labels = labeled(objective, options)
            _, tuned = trained(
                objective, {**with_labels, "start_from": str(first)}, seed, options.out
            )
            scratch = {**with_labels, "vocabulary": {"kind": "words"}}
            _, alone = trained(f"{objective}-scratch", scratch, seed, options.out)
            table.add(objective, "accuracy", tuned["accuracy"])
            table.add(f"{objective}-scratch", "accuracy", alone["accuracy"])
            table.add(f"{objective}-pretraining", "loss", before["loss"])
            table.add(f"{objective}-pretraining", "seconds", before["seconds"])
    if options.result:
        rows = [
            row for objective in options.objectives for row in (objective, f"{objective}-scratch")
        ]
        table.recipe = " ".join(rows)
        table.best = max(rows, key=lambda row: table.mean(row, "accuracy"))
        table.write()


if __name__ == "__main__":
    main()
