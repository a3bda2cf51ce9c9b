"""The alignment error rate of shipped alignments, against the figures their README states; writes `benchmarks/results/aer-check.json`.

python benchmarks/aer_check.py FOLDER        (a folder with X.gold, 1-based, and X.awesome-align.out, 0-based)
"""

from __future__ import annotations

import argparse
from pathlib import Path

from saccade.data.readers import parse_pharaoh
from saccade.results import write_result
from saccade.tasks.alignment import alignment_error_rate

STATED = {"enfr": 4.07, "roen": 20.75, "jaen": 37.36, "zhen": 13.31}  # percent, as the README of the alignments computes them


def error_rate(folder: Path, pair: str) -> float:
    """In percent."""
    gold = [parse_pharaoh(line) for line in (folder / f"{pair}.gold").read_text(encoding="utf-8").splitlines()]
    shifted = [[[(i - 1, j - 1) for i, j in links] for links in both] for both in gold]
    found = [parse_pharaoh(line)[0] for line in (folder / f"{pair}.awesome-align.out").read_text(encoding="utf-8").splitlines()]
    return 100 * alignment_error_rate(found, [sure for sure, _ in shifted], [possible for _, possible in shifted])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    figures = {f"aer_{pair}": round(error_rate(options.folder, pair), 4) for pair in STATED}
    peers = {"README of the alignments": {f"aer_{pair}": value for pair, value in STATED.items()}}
    print(figures, write_result("aer-check", figures, peers=peers, notes="percent, lower is better", folder=options.out))


if __name__ == "__main__":
    main()
