"""A recorded result is measured again by its own command, and each metric is compared within its spread."""

from __future__ import annotations

import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import SaccadeError, did_you_mean
from ..system.provenance import CHECKOUT
from ..training.cost import duration
from ..views.text_table import MISSING
from .results import FOLDER, Column, Table, spread

# subcommands that write result files
VERBS = ("compare", "table", "evaluate", "heads", "bench")
PROGRAM = re.compile(r"benchmarks/[a-z0-9_]+\.py")
# metrics of the machine, and tests of significance
NOT_COMPARED = re.compile(
    r"(seconds|updates_per_second|milliseconds|peak_memory|latency|words_per_second).*|.*_(p|gain|ms|seconds)"
)


@dataclass(frozen=True)
class Check:
    """A metric as it was recorded and as it is now; `agrees` is None where it is not compared."""

    row: str
    metric: str
    recorded: list[float]
    reproduced: list[float]
    limit: float
    agrees: bool | None

    def line(self) -> list[str]:
        column = Column(self.metric, self.metric)
        word = {True: "yes", False: "no", None: "not compared"}[self.agrees]
        texts = [column.text(self.recorded), column.text(self.reproduced)]
        return [self.row, self.metric, *texts, column.text([self.limit]), word]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def known() -> dict[str, Path]:
    """The results that are recorded here, or else in the checkout that saccade was installed from."""
    return {
        path.stem: path for folder in (CHECKOUT / FOLDER, FOLDER) for path in folder.glob("*.json")
    }


def find(name: str) -> Table:
    """The result of a name or a path."""
    if name.endswith(".json"):
        return Table.read(name)
    if (path := known().get(name)) is None:
        raise SaccadeError(
            f"no result named '{name}'{did_you_mean(name, known())}", code="unknown-result"
        )
    return Table.read(path)


def listing() -> list[list[str]]:
    """Each result with how long its trainings took, where that is known, and its command."""
    lines = [["result", "took", "command"]]
    for _, path in sorted(known().items()):
        table = Table.read(path)
        seconds = [
            value
            for row in table.rows
            for value in table.values(row, "seconds")
            if isinstance(value, int | float)
        ]
        took = duration(sum(seconds)) if seconds else MISSING
        lines.append([table.name, took, table.about["command"]])
    return lines


def words_of(recorded: Table) -> list[str]:
    """The command of a result as the words of a process, if it is one of this checkout that may run."""
    first, *words = shlex.split(recorded.about["command"].removeprefix("python "))
    if any(word.partition("=")[0] == "--out" for word in words):
        raise SaccadeError(
            f"the command of {recorded.name} has --out; a result is reproduced in a folder of its own",
            code="other-program",
        )
    if first == "saccade" and words[:1] and words[0] in VERBS:
        return [sys.executable, "-m", "saccade", *words]
    if PROGRAM.fullmatch(first) and (CHECKOUT / first).is_file():
        return [sys.executable, str(CHECKOUT / first), *words]
    raise SaccadeError(
        f"{recorded.name} was made by '{first}{' ' + words[0] if words else ''}', which is not run again; "
        f"only saccade {', '.join(VERBS)} and benchmarks/….py are",
        code="other-program",
    )


def repeat(recorded: Table) -> Table:
    """Runs the command in a temporary folder, without a shell; the result that it writes."""
    words = words_of(recorded)
    source = os.pathsep.join(filter(None, (str(CHECKOUT / "src"), os.environ.get("PYTHONPATH"))))
    with tempfile.TemporaryDirectory(prefix="saccade-reproduce-") as folder:
        if (CHECKOUT / "data").is_dir():
            (Path(folder) / "data").symlink_to(CHECKOUT / "data")
        ended = subprocess.run(
            words,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": source},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            check=False,
        )
        written = Path(folder) / FOLDER / f"{recorded.name}.json"
        if ended.returncode != 0 or not written.is_file():
            said = ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"]
            why = said[-1].removeprefix("error: ") if ended.returncode else "it wrote no result"
            raise SaccadeError(
                f"{recorded.name} cannot be reproduced here: {why}", code="not-reproducible"
            )
        return Table.read(written)


def check(recorded: Table, again: Table, tolerance: float) -> list[Check]:
    """Compares the means of each metric; a row or a metric that is missing now does not agree."""
    found = []
    for row, metrics in recorded.rows.items():
        for metric in metrics:
            before = recorded.values(row, metric)
            if not before or not all(isinstance(value, int | float) for value in before):
                continue
            now = again.values(row, metric) if row in again.rows else []
            mean = statistics.fmean(before)
            limit = spread(before) or tolerance * abs(mean)
            agrees: bool | None = bool(now) and abs(statistics.fmean(now) - mean) <= limit + 1e-9
            if NOT_COMPARED.fullmatch(metric):
                agrees = None
            found.append(Check(row, metric, before, now, limit, agrees))
    return found
