"""Compute loss landscapes of small models with and without residuals, over several seeds.

Writes benchmarks/results/landscape.json.

    python benchmarks/landscape.py [--seeds 3]

The models, data and directions are those of `saccade draw landscape`. `loss` is that of the trained model, `rise` the mean loss at the rim
minus it, as in the table of the drawing.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from saccade.experiments.results import Table
from saccade.teaching.draw.landscape import DEPTH, RESIDUALS, UPDATES, loss_of, surface, train

STEPS = np.linspace(-1, 1, 5)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--seeds", default=3, type=int)
    given = asked.parse_args()
    about = f"draw landscape, {DEPTH} layers, {UPDATES} updates"
    table = Table("landscape", {}, about, list(range(given.seeds)))
    for seed in range(given.seeds):
        for name, residual in RESIDUALS.items():
            with tempfile.TemporaryDirectory() as folder:
                system = train(residual, DEPTH, UPDATES, seed, Path(folder))
            values, row = (
                surface(system.model, loss_of(system), STEPS, seed),
                name.replace(" ", "-"),
            )
            rim = np.concatenate([values[0], values[-1], values[:, 0], values[:, -1]]).mean()
            table.add(row, "loss", float(values[2, 2]))
            table.add(row, "rise", float(rim - values[2, 2]))
    table.write()


if __name__ == "__main__":
    main()
