"""Count parameters and operations of every row of Narang et al. 2021 at the paper's size.

    python benchmarks/operations.py

Models are built and run on the `meta` device, without memory. Writes benchmarks/results/operations.json; `tables.py` makes the table of
docs/operations.md from it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from saccade.experiments.results import Table
from saccade.models import Seq2Seq
from saccade.models.builder import Builder, NoInit
from saccade.models.modifications import PAPER_SIZE, PAPER_VOCABULARY, table
from saccade.training.flops import counter

NAME = "operations"
ROWS, SOURCE, TARGET = 128, 512, 114  # a batch of pretraining: texts, tokens read and written
START, END = (
    "<!-- modifications: made by `python benchmarks/tables.py`, checked by a test -->",
    "<!-- end of modifications -->",
)


def measure(row: str) -> dict[str, float]:
    """Parameters (M), and operations (T) of a forward pass: a multiplication and its addition are 1, lookups are products."""
    settings = {"family": "transformer", **PAPER_SIZE, "modification": row, "dropout": 0.0}
    with torch.device("meta"), NoInit(), torch.no_grad():
        model = Builder(settings).make(Seq2Seq, PAPER_VOCABULARY, PAPER_VOCABULARY)
        source, target = (torch.zeros(ROWS, size, dtype=torch.long) for size in (SOURCE, TARGET))
        with counter(lookups=True) as counted:
            model(source, torch.full((ROWS,), SOURCE), target)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {
        "parameters": round(parameters / 1e6, 2),
        "operations": round(counted.get_total_flops() / 2e12, 2),
    }


def page(root: Path) -> str:
    """docs/operations.md with the recorded counts of all rows."""
    found = Table.read(root / "benchmarks/results" / f"{NAME}.json").rows
    lines = [
        "| row | M parameters, paper | here | T operations, paper | here | why they differ |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for entry in table:
        row, here, paper = entry.make, found[entry.name], entry.make.paper
        why = f"{row.why} ({row.difference:+.2f})" if row.difference else row.why
        cells = (
            f"{paper['parameters']:.0f}",
            f"{here['parameters']:.2f}",
            f"{paper['operations']:.1f}",
            f"{here['operations']:.2f}",
        )
        lines.append(f"| {row.title} | {' | '.join(cells)} | {why} |")
    text = (root / "docs/operations.md").read_text(encoding="utf-8")
    before, rest = text.split(START)
    return "\n".join([f"{before}{START}", *lines, f"{END}{rest.split(END)[1]}"])


def main() -> None:
    found = {}
    for entry in table:
        found[entry.name] = measure(entry.name)
        print(f"{entry.name:34} {found[entry.name]}", file=sys.stderr)
    Table(NAME, found).write()


if __name__ == "__main__":
    main()
