"""Result tables: rows × metrics × seeds with their provenance; `benchmarks/results/NAME.json`, written by programs alone."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from ..errors import SaccadeError
from ..files import write_atomically
from ..system.provenance import environment
from ..views import text_table
from ..views.text_table import MISSING, Bold
from .significance import LEVEL

FOLDER = Path("benchmarks/results")
# names that papers use → ours
ALIASES = {"bleu_cased": "bleu", "val_loss": "loss"}
PEER = re.compile(r"([^:]+):([^=]+)=([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)@(.+)", re.IGNORECASE)
PEER_EXAMPLE = "nanoGPT:val_loss=1.4697@github.com/karpathy/nanoGPT"
MARKED = f"Bold: the best row. *: the best row is better (p < {LEVEL})."
Rows = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Column:
    """A metric in text: its heading, and the digits behind the point (None: about four significant digits)."""

    key: str
    title: str
    digits: int | None = None

    def text(self, values: Sequence[Any]) -> str:
        """Mean ± standard deviation over the seeds; a text as it is."""
        if not values:
            return MISSING
        if not all(isinstance(value, int | float) for value in values):
            return str(values[0])
        text = number(statistics.fmean(values), self.digits)
        return f"{text} ± {number(spread(values), self.digits)}" if len(values) > 1 else text


@dataclass
class Table:
    """Rows × metrics × seeds, and all that is needed to reproduce them.

    A metric of a row is a list with one value per seed, or one value for all seeds. `best` names the best of several rows that were
    compared; another row has `METRIC_p`, the p-value of its difference from the row that is best by this metric.
    A peer that was measured has the metrics of a row; a published one has values and their source, `published`.

        table = Table.read("benchmarks/results/week.json")
        table["mixer=attention.accuracy"]      # one value per seed
        print(table.to_markdown())
    """

    name: str
    rows: Rows
    # recipes or sizes that were measured
    recipe: str = ""
    seeds: list[int] = field(default_factory=list)
    peers: Rows = field(default_factory=dict)
    notes: str = ""
    best: str = ""
    # command, commit, date, device, versions; what is missing is that of this process
    about: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """A result file, also one of version 0.3 or older."""
        try:
            found = json.loads(Path(path).read_text(encoding="utf-8"))
            rows = found.pop("rows") if "rows" in found else upgraded(found)
            known = {key: found.pop(key) for key in ("name", "recipe", "seeds", "peers", "notes")}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise SaccadeError(
                f"{path} is not a result file ({type(error).__name__}: {error}); name a file that --result wrote",
                code="not-a-result-file",
            ) from None
        return cls(rows=rows, best=found.pop("best", ""), about=found, **known)

    def add(self, row: str, metric: str, value: Any) -> None:
        """Adds the value of one more seed."""
        self.rows.setdefault(row, {}).setdefault(metric, []).append(value)

    def write(self, folder: Path = FOLDER) -> Path:
        """Writes NAME.json with the provenance of this process, and of others where `about` says so."""
        check_name(self.name)
        about = environment() | self.about
        at = about["commit"]
        content = {
            "name": self.name,
            "recipe": self.recipe,
            **about,
            "commit": at.removesuffix("+"),
            **({"commit_dirty": True} if at.endswith("+") else {}),
            "seeds": self.seeds,
            **({"best": self.best} if self.best else {}),
            "rows": self.rows,
            "peers": self.peers,
            "notes": self.notes,
        }
        try:
            text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise SaccadeError(
                f"the metrics of '{self.name}' cannot be written ({error}); give finite numbers",
                code="result-not-finite",
            ) from None
        path = folder / f"{self.name}.json"
        write_atomically(path, (text + "\n").encode())
        return path

    @property
    def own(self) -> str:
        """The row whose metrics need no row's name: the best, the only one, or that of the table's name."""
        if self.best or len(self.rows) == 1:
            return self.best or next(iter(self.rows))
        return self.recipe if self.recipe in self.rows else self.name

    @property
    def flat(self) -> dict[str, Any]:
        """METRIC or ROW.METRIC → values; rows that were compared have their names in every key."""
        bare = "" if self.best else self.own
        return {
            metric if row == bare else f"{row}.{metric}": values
            for row, metrics in self.rows.items()
            for metric, values in metrics.items()
        }

    def __getitem__(self, name: str) -> Any:
        """A row, or the values of METRIC (of the best or only row) or ROW.METRIC; a metric may have the name that papers use."""
        if name in self.rows:
            return self.rows[name]
        rows = [row for row in self.rows if name.startswith(f"{row}.")]
        for row in (*rows, self.own):
            metric = name.removeprefix(f"{row}.") if row in rows else name
            for key in (metric, ALIASES.get(metric, metric)):
                if key in self.rows.get(row, {}):
                    return self.rows[row][key]
        raise KeyError(f"{self.name}: {name}")

    def values(self, row: str, metric: str) -> list[Any]:
        """One value per seed, or one for all seeds; none where the row has no such metric."""
        found = self.rows[row].get(metric, [])
        return found if isinstance(found, list) else [found]

    def mean(self, row: str, metric: str) -> float:
        return statistics.fmean(self.values(row, metric))

    def spread(self, row: str, metric: str) -> float:
        return spread(self.values(row, metric))

    def marked(self, row: str, column: Column) -> str:
        """The text of a cell: bold where the row is the best by a test, with * where the best row is better by more than chance."""
        text = column.text(self.values(row, column.key))
        p = {
            one: metrics[f"{column.key}_p"]
            for one, metrics in self.rows.items()
            if f"{column.key}_p" in metrics
        }
        if row in p:
            return text + "*" * bool(p[row] < LEVEL)
        return Bold(text) if p and text != MISSING else text

    def columns(self) -> list[Column]:
        """A column for each metric that is a number, without p-values."""
        found = dict.fromkeys(
            metric
            for row in self.rows
            for metric in self.rows[row]
            if (values := self.values(row, metric))
            and all(isinstance(value, int | float) for value in values)
        )
        return [
            Column(metric, metric)
            for metric in found
            if not (metric.endswith("_p") and metric.removesuffix("_p") in found)
        ]

    def cells(self, columns: Sequence[Column] = ()) -> list[list[str]]:
        """The table as text, with a line for each row: mean ± standard deviation, and the marks of significance."""
        columns = columns or self.columns()
        lines = [[row, *(self.marked(row, one) for one in columns)] for row in self.rows]
        return [["", *(one.title for one in columns)], *lines]

    def to_markdown(self, columns: Sequence[Column] = ()) -> str:
        return text_table.markdown(self.cells(columns))

    def to_latex(self, columns: Sequence[Column] = ()) -> str:
        return text_table.latex(self.cells(columns))

    def to_csv(self, columns: Sequence[Column] = ()) -> str:
        return text_table.csv_text(self.csv_lines(columns))

    def csv_lines(self, columns: Sequence[Column] = ()) -> list[list[Any]]:
        """Each metric with its mean, its standard deviation over the seeds, their number, and p where it was tested."""
        lines: list[list[Any]] = [["row"], *([row] for row in self.rows)]
        for one in columns or self.columns():
            tested = any(f"{one.key}_p" in metrics for metrics in self.rows.values())
            lines[0] += [one.key, f"{one.key}_spread", f"{one.key}_seeds"]
            lines[0] += [f"{one.key}_p"] * tested
            for line, row in zip(lines[1:], self.rows, strict=True):
                line += summary_cells(self.values(row, one.key))
                line += (self.values(row, f"{one.key}_p") or [""]) * tested
        return lines

    def save(self, path: Path, columns: Sequence[Column] = ()) -> None:
        """Writes the text form of a file's ending; the marks are explained in a caption."""
        form = path.suffix.lower()
        text = {".csv": self.to_csv, ".tex": self.to_latex, ".md": self.to_markdown}[form](columns)
        tested = any(metric.endswith("_p") for row in self.rows.values() for metric in row)
        if tested and form != ".csv":
            text += f"% {MARKED}\n" if form == ".tex" else f"\n\n{MARKED}"
        write_atomically(path, (text.rstrip("\n") + "\n").encode())


def check_table_path(path: Path | None) -> None:
    """Raises at a file that `Table.save` cannot write."""
    if path is not None and path.suffix.lower() not in (".md", ".tex", ".csv"):
        raise SaccadeError(
            f"cannot write a table to '{path}'; name a file ending in .md, .tex or .csv",
            code="unknown-table-format",
        )


def summary_cells(values: Sequence[Any]) -> list[Any]:
    """Mean, spread and number of values; of texts the first one."""
    if all(isinstance(value, int | float) for value in values) and values:
        return [statistics.fmean(values), spread(values), len(values)]
    return [(values or [""])[0], "", len(values)]


def spread(values: Sequence[float]) -> float:
    """The standard deviation over the seeds, 0 for one."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def number(value: Any, digits: int | None = None) -> str:
    if not isinstance(value, int | float):
        return MISSING if value is None else str(value)
    if digits is not None:
        return f"{value:,.{digits}f}"
    if 1000 <= abs(value) < 1e9 and float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.4g}" if value < 1e4 else f"{value:.2e}"


def check_name(name: str) -> None:
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name):
        raise SaccadeError(
            f"'{name}' cannot name a result; use lowercase letters, digits, dots and dashes",
            code="bad-result-name",
        )


def read_peers(words: Sequence[str]) -> Rows:
    """Published results from NAME:METRIC=VALUE@SOURCE."""
    peers: Rows = {}
    for word in words:
        found = PEER.fullmatch(word)
        if found is None:
            raise SaccadeError(
                f"--peer is '{word}'; write NAME:METRIC=VALUE@SOURCE, such as {PEER_EXAMPLE}",
                code="bad-peer",
            )
        peers.setdefault(found[1], {}).update({found[2]: float(found[3]), "published": found[4]})
    return peers


def upgraded(found: dict[str, Any]) -> Rows:
    """The rows of a file that version 0.3 wrote, whose `figures` are METRIC, ROW.METRIC, tables, or cases of a benchmark. Metrics of the
    best row and names of papers stood there twice."""
    figures, rows = dict(found.pop("figures")), Rows()
    found["best"] = best = figures.pop("best", "")
    own = found["recipe"] if found["recipe"] and " " not in found["recipe"] else found["name"]
    if "left_out" in figures:
        found["peers"] |= {who: {"left_out": why} for who, why in figures.pop("left_out").items()}
        found["recipe"] = f"scale {figures.pop('scale')}"
    for key, value in figures.items():
        row, _, metric = key.rpartition(".")
        if isinstance(value, Mapping):
            rows[key] = dict(value)
        elif isinstance(value, list) and any(
            isinstance(one, Mapping) and "case" in one for one in value
        ):
            rows |= {f"{key}: {one['case']}": {**one} for one in value}
        elif row:
            rows.setdefault(row, {})[metric] = value
        elif not best and (key not in ALIASES or figures.get(ALIASES[key]) != value):
            rows.setdefault(own, {})[key] = value
    return rows
