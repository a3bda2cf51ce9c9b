"""Run the demo with three seeds and write the metrics of each to `benchmarks/results/demo.json`.

python benchmarks/demo.py [--out FOLDER]
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from saccade.experiments.results import Table
from saccade.studies.demonstration import run
from saccade.training.loop import Watcher

SEEDS = [0, 1, 2]


@contextlib.contextmanager
def silent(name: str, updates: int) -> Iterator[Watcher]:
    yield Watcher()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    found = []
    for seed in SEEDS:
        with tempfile.TemporaryDirectory() as folder:
            found.append(run(Path(folder), seed, silent).metrics)
        print(seed, found[-1], flush=True)
    figures = {name: [one[name] for one in found] for name in found[0] if name != "out"}
    notes = "seconds are of the whole demo after installation: both trainings, evaluation, pictures"
    print(
        Table(
            "demo",
            {"demo": figures},
            "phrasebook-fixed-context, phrasebook-bahdanau",
            SEEDS,
            notes=notes,
        ).write(options.out)
    )


if __name__ == "__main__":
    main()
