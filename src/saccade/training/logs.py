"""Logs of a run: `metrics.csv` for spreadsheets, `log.jsonl` for programs. A resumed run continues both."""

from __future__ import annotations

import csv
import io
import json
import time
from pathlib import Path
from typing import Any

from ..files import write_atomically

COLUMNS = ("update", "epoch", "loss", "learning_rate", "gradient_norm", "tokens", "tokens_per_second", "dev_loss", "dev_bleu")


class Logs:
    """Appends rows to both files; rows after update `since` of an interrupted run are dropped first. Only rank 0 `writes`."""

    def __init__(self, folder: Path, since: int = 0, writes: bool = True) -> None:
        self.csv, self.jsonl, self.writes = folder / "metrics.csv", folder / "log.jsonl", writes
        if writes:
            rows = [row for row in self._old_rows() if row.get("update", 0) <= since] if since else []
            write_atomically(self.jsonl, "".join(json.dumps(row) + "\n" for row in rows).encode())
            write_atomically(self.csv, (",".join(COLUMNS) + "\n" + "".join(map(as_csv, rows))).encode())

    def _old_rows(self) -> list[dict[str, Any]]:
        rows = []
        if self.jsonl.exists():
            for line in self.jsonl.read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    row = json.loads(line)
                except ValueError:
                    continue  # a line that a kill cut off
                if isinstance(row, dict):
                    rows.append(row)
        return rows

    def add(self, **row: Any) -> None:
        """One event; numbers are rounded to six digits."""
        if self.writes:
            row = {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in row.items()}
            for path, text in ((self.jsonl, json.dumps(row) + "\n"), (self.csv, as_csv(row))):
                with path.open("a", encoding="utf-8", newline="") as file:
                    file.write(text)


def as_csv(row: dict[str, Any]) -> str:
    text = io.StringIO()
    csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n").writerow(row)
    return text.getvalue()


class Pace:
    """Tokens per second since the last question."""

    def __init__(self, tokens: int) -> None:
        self.tokens, self.since = tokens, time.perf_counter()

    def per_second(self, tokens: int) -> float:
        """`tokens`: read so far."""
        now = time.perf_counter()
        speed = (tokens - self.tokens) / max(now - self.since, 1e-9)
        self.tokens, self.since = tokens, now
        return speed
