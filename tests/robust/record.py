"""Counts of what was tried and what failed: `record` in a test, and `python tests/robust/record.py` writes them to benchmarks/results/robust.json.

Counts are kept only where ROBUST_COUNTS names a file, as `make test-robust` does: the ordinary tests change no result file.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def record(name: str, tried: int, failed: int, details: Any = None) -> None:
    """Notes how many attacks of a kind were tried and how many failed; call it before the assert, so that failures are counted too."""
    path = os.environ.get("ROBUST_COUNTS")
    if path:
        row = {
            "name": name,
            "tried": tried,
            "failed": failed,
            **({} if details is None else {"details": details}),
        }
        # one write of one line: workers may append at the same time
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def collect(counts: Path, folder: Path = RESULTS) -> Path:
    """The result file, with the counts of this run in place of older ones of the same names."""
    from saccade.experiments.results import Table

    before = folder / "robust.json"
    figures = Table.read(before).rows if before.exists() else {}
    new: dict[str, Any] = {}
    for row in map(json.loads, counts.read_text(encoding="utf-8").splitlines()):
        name = row.pop("name")
        known = new.setdefault(name, {"tried": 0, "failed": 0})
        known.update(
            row, tried=known["tried"] + row["tried"], failed=known["failed"] + row["failed"]
        )
    rows = dict(sorted({**figures, **new}.items()))
    return Table("robust", rows, notes="counts of attacks, by `make test-robust`").write(folder)


if __name__ == "__main__":
    print(collect(Path(sys.argv[1])))
