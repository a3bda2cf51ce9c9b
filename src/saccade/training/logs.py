"""Logs of a run: `metrics.csv` for people's spreadsheets, `log.jsonl` for programs. A resumed run continues both."""

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
    """Appends rows to both files; rows after update `since` of an interrupted run are dropped first."""

    def __init__(self, folder: Path, since: int = 0) -> None:
        self.csv, self.jsonl = folder / "metrics.csv", folder / "log.jsonl"
        rows = [row for row in self._old_rows() if row.get("update", 0) <= since] if since else []
        write_atomically(self.jsonl, "".join(json.dumps(row) + "\n" for row in rows).encode())
        write_atomically(self.csv, (",".join(COLUMNS) + "\n" + "".join(map(as_csv, filter(is_metric, rows)))).encode())

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
        """One event; numbers are rounded to six digits for the eye."""
        row = {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in row.items()}
        with self.jsonl.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        if is_metric(row):
            with self.csv.open("a", encoding="utf-8", newline="") as file:
                file.write(as_csv(row))


class NoLogs(Logs):
    """Logs of a rank that does not lead: nothing."""

    def __init__(self, folder: Path, since: int = 0) -> None: ...

    def add(self, **row: Any) -> None: ...


def is_metric(row: dict[str, Any]) -> bool:
    return "loss" in row or "dev_loss" in row


def as_csv(row: dict[str, Any]) -> str:
    text = io.StringIO()
    csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n").writerow(row)
    return text.getvalue()


class Pace:
    """Tokens a second since the last question."""

    def __init__(self) -> None:
        self.tokens, self.since = 0, time.perf_counter()

    def count(self, tokens: int) -> None:
        self.tokens += tokens

    def per_second(self) -> float:
        now = time.perf_counter()
        speed = self.tokens / max(now - self.since, 1e-9)
        self.tokens, self.since = 0, now
        return speed
