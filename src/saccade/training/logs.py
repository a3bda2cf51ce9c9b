"""Logs of a run: `metrics.csv`, `log.jsonl` and TensorBoard event files. A resumed run continues them."""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from ..errors import SaccadeError
from ..files import report_disk, write_atomically

COLUMNS = (
    "update",
    "epoch",
    "seconds",
    "loss",
    "learning_rate",
    "gradient_norm",
    "tokens",
    "tokens_per_second",
)
# TensorBoard scalars besides the dev metrics.
TRAINING_COLUMNS = ("loss", "learning_rate", "gradient_norm", "tokens_per_second")
DIGITS = {
    "loss": 3,
    "unigram_loss": 3,
    "aer": 3,
    "aer_diagonal": 3,
    "bits_per_character": 3,
    "perplexity": 2,
}


class Logs:
    """Appends rows to all files. Rows after update `since` of an interrupted run are dropped. Only rank 0 `writes`."""

    def __init__(
        self,
        folder: Path,
        since: int = 0,
        writes: bool = True,
        measures: Sequence[str] = ("loss",),
        tensorboard: bool = False,
    ) -> None:
        self.csv, self.jsonl, self.writes = folder / "metrics.csv", folder / "log.jsonl", writes
        self.events = None
        self.columns = [*COLUMNS, *(f"dev_{name}" for name in measures)]
        if not writes:
            return
        rows = [row for row in read_rows(self.jsonl) if row["update"] <= since] if since else []
        write_atomically(self.jsonl, "".join(json.dumps(row) + "\n" for row in rows).encode())
        self.write_csv(rows)
        if tensorboard:
            begun = any((folder / "tensorboard").glob("events.*"))
            # TensorBoard drops the interrupted run's events from `purge_step` on.
            self.events = summary_writer()(
                str(folder / "tensorboard"), purge_step=since + 1 if begun else None
            )
            for row in [] if begun else rows:
                self.draw(row)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.events is not None:
            self.events.close()

    def add(self, **row: Any) -> None:
        """Logs one event, with numbers rounded to six digits."""
        if not self.writes:
            return
        row = {
            name: float(f"{value:.6g}") if isinstance(value, float) else value
            for name, value in row.items()
        }
        append(self.jsonl, json.dumps(row) + "\n")
        if any(name.startswith("dev_") and name not in self.columns for name in row):
            self.write_csv(read_rows(self.jsonl))
        else:
            append(self.csv, self.as_csv(row))
        self.draw(row)

    def write_csv(self, rows: Sequence[dict[str, Any]]) -> None:
        """Writes the table with a column for each dev metric."""
        self.columns += dict.fromkeys(
            name
            for row in rows
            for name in row
            if name.startswith("dev_") and name not in self.columns
        )
        write_atomically(
            self.csv, (",".join(self.columns) + "\n" + "".join(map(self.as_csv, rows))).encode()
        )

    def as_csv(self, row: dict[str, Any]) -> str:
        """A row of numbers as CSV, without quotes."""
        return ",".join(str(row.get(name, "")) for name in self.columns) + "\n"

    def draw(self, row: dict[str, Any]) -> None:
        """Writes the row to TensorBoard and flushes it."""
        if self.events is None:
            return
        for name, value in row.items():
            if name in TRAINING_COLUMNS or name.startswith("dev_"):
                tag = (
                    f"dev/{name.removeprefix('dev_')}"
                    if name.startswith("dev_")
                    else f"train/{name}"
                )
                self.events.add_scalar(tag, value, row["update"])
        self.events.flush()


def append(path: Path, text: str) -> None:
    with (
        report_disk(path, needed=lambda: len(text)),
        path.open("a", encoding="utf-8", newline="") as file,
    ):
        file.write(text)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The valid rows of a `log.jsonl`. Truncated and malformed lines are skipped."""
    rows: list[Any] = []
    if path.is_file():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError, RecursionError):
                rows.append(json.loads(line))
    return [row for row in rows if is_row(row)]


def is_row(row: Any) -> bool:
    """Whether a line has the form that `Logs.add` writes: numbers by name and an update."""
    numbers = isinstance(row, dict) and all(
        isinstance(value, int | float) for value in row.values()
    )
    return numbers and type(row.get("update")) is int


def summary_writer() -> Any:
    """PyTorch's SummaryWriter, which needs the package tensorboard."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        way = "install it with: pip install 'saccade-attention[tensorboard]', or leave the setting out"
        raise SaccadeError(
            f"training.tensorboard needs the package tensorboard; {way}", code="package-missing"
        ) from None
    return SummaryWriter


def format_metric(metric: str, value: object) -> str:
    """Formats a metric: accuracy 75.5, loss 2.345, BLEU 41.2; counts in full."""
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    return f"{value:,.{digits_of(metric)}f}"


def digits_of(metric: str) -> int:
    """The digits behind the point that people write."""
    return DIGITS.get(metric.removeprefix("dev_").removeprefix("sliding_"), 1)
