"""Logs of a run: `metrics.csv` for spreadsheets, `log.jsonl` for programs. A resumed run continues both."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..files import write_atomically

COLUMNS = ("update", "epoch", "loss", "learning_rate", "gradient_norm", "tokens", "tokens_per_second", "dev_loss", "dev_bleu")


class Logs:
    """Appends rows to both files; rows after update `since` of an interrupted run are dropped first. Only rank 0 `writes`."""

    def __init__(self, folder: Path, since: int = 0, writes: bool = True) -> None:
        self.csv, self.jsonl, self.writes = folder / "metrics.csv", folder / "log.jsonl", writes
        if not writes:
            return
        rows: list[dict[str, Any]] = []
        if since and self.jsonl.exists():
            for line in self.jsonl.read_text(encoding="utf-8", errors="replace").splitlines():
                with suppress(ValueError):  # a line that a kill cut off
                    rows.append(json.loads(line))
        rows = [row for row in rows if isinstance(row, dict) and row.get("update", 0) <= since]
        write_atomically(self.jsonl, "".join(json.dumps(row) + "\n" for row in rows).encode())
        write_atomically(self.csv, (",".join(COLUMNS) + "\n" + "".join(map(as_csv, rows))).encode())

    def add(self, **row: Any) -> None:
        """One event; numbers are rounded to six digits."""
        if self.writes:
            row = {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in row.items()}
            for path, text in ((self.jsonl, json.dumps(row) + "\n"), (self.csv, as_csv(row))):
                with path.open("a", encoding="utf-8", newline="") as file:
                    file.write(text)


def as_csv(row: dict[str, Any]) -> str:
    """All columns are numbers, so nothing needs quotes."""
    return ",".join(str(row.get(name, "")) for name in COLUMNS) + "\n"
