"""Check the alignment error rate of shipped alignments against their README.

Writes `benchmarks/results/aer-check.json`.

python benchmarks/aer_check.py FOLDER        (a folder with X.gold, 1-based, and X.awesome-align.out, 0-based)
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean
from typing import Any

from saccade.data.pairs import parse_pharaoh
from saccade.experiments.results import Table
from saccade.tasks.text_scores import alignment_error_rate

# percent, as the README of the alignments computes them
STATED = {"enfr": 4.07, "roen": 20.75, "jaen": 37.36, "zhen": 13.31}

SOURCE = "alignments of github.com/neulab/awesome-align, examples/, with the rates that their README states"


def error_rate(folder: Path, pair: str) -> float:
    """In percent."""
    gold = [
        parse_pharaoh(line)
        for line in (folder / f"{pair}.gold").read_text(encoding="utf-8").splitlines()
    ]
    shifted = [[[(i - 1, j - 1) for i, j in links] for links in both] for both in gold]
    found = [
        parse_pharaoh(line)[0]
        for line in (folder / f"{pair}.awesome-align.out").read_text(encoding="utf-8").splitlines()
    ]
    return 100 * alignment_error_rate(
        found, [sure for sure, _ in shifted], [possible for _, possible in shifted]
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    figures = named({pair: error_rate(options.folder, pair) for pair in STATED})
    notes = "percent, lower is better; aer is the mean of the four"
    stated = {**named(STATED), "published": SOURCE}
    peers = {"README of the alignments": stated}
    path = Table("aer-check", {"aer-check": figures}, peers=peers, notes=notes).write(options.out)
    print(figures, path)


def named(rates: dict[str, float]) -> dict[str, Any]:
    """The rate of each pair of languages, and their mean."""
    return {
        "aer": round(fmean(rates.values()), 4),
        **{f"aer_{pair}": round(rate, 4) for pair, rate in rates.items()},
    }


if __name__ == "__main__":
    main()
