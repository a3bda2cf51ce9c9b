"""A table written: CSV, Markdown and pictures, with the paper's columns, and how well our order of the rows agrees with the paper's."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..files import write_atomically
from ..system.provenance import command, common_environment, environment
from ..views.text_table import MISSING, Bold, markdown
from .results import Column as AnyColumn
from .results import Table, number
from .significance import Agreement, rank_agreement
from .study import RESULTS, SWEEP, Column, Job, Study

FEWEST = 5  # rows, of which an order can be compared
WEAK = 0.5  # a rank correlation below it says little
SAID: dict[bool | None, str] = {True: "yes", False: "no"}


@dataclass
class StudyTable(Table):
    """What is known of a study so far: a row for each of its own, with a metric for each of its columns."""

    study: Study = field(kw_only=True)
    # the results of each row's jobs
    results: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    # label of a job → why it has no result
    failed: Mapping[str, str] = field(default_factory=dict)
    # labels of jobs that are not done yet
    missing: Sequence[str] = ()
    # results of trainings that try a learning rate
    sweeps: Sequence[dict[str, Any]] = ()

    def __post_init__(self) -> None:
        for row in self.results:
            found = {one.key: self.measured(row, one) for one in self.study.columns}
            self.rows[row] = {key: values for key, values in found.items() if values}

    def measured(self, row: str, column: Column) -> list[Any]:
        """One value per seed, of the column's stage."""
        stage, key = column.stage or self.study.main, column.value or column.key
        found = [one["values"].get(key) for one in self.results[row] if one["stage"] == stage]
        return [
            value / column.unit if isinstance(value, int | float) else value
            for value in found
            if value is not None
        ]

    def numbers(self, row: str, key: str) -> list[float]:
        return [value for value in self.values(row, key) if isinstance(value, int | float)]

    @cached_property
    def below_control(self) -> dict[str, bool]:
        """Row → whether its final loss is below that of its control by more than its spread, for rows that have both."""
        known = [row for row in self.rows if self.values(row, "final_loss")]
        return {
            row: self.mean(row, "final_loss") + self.spread(row, "final_loss")
            < self.mean(control, "final_loss")
            for row in known
            if (control := self.study.control(row)) in known
        }

    def columns(self) -> list[AnyColumn]:
        """Those that any row has a value in."""
        return [
            one for one in self.study.columns if any(one.key in row for row in self.rows.values())
        ]

    def in_paper(self) -> dict[str, str]:
        """The paper's columns that any row has a value in."""
        mine = {key for row in self.rows for key in self.study.in_paper(row)}
        return {key: title for key, title in self.study.paper_columns.items() if key in mine}

    @cached_property
    def correlations(self) -> dict[str, Agreement]:
        """Column → the rank correlation of our means with the paper's column."""
        found = {}
        for column in self.study.columns:
            pairs = [
                (ours, theirs)
                for row in self.rows
                if (ours := self.numbers(row, column.key))
                and isinstance(theirs := self.study.in_paper(row).get(column.paper), int | float)
            ]
            if (
                len(pairs) >= FEWEST
                and (agreement := rank_agreement(*zip(*pairs, strict=True))) is not None
            ):
                found[column.key] = agreement
        return found

    def title(self, row: str) -> str:
        return self.study.rows().get(row, row)

    def beside(self, row: str, absent: str) -> list[Any]:
        """Whether a row is below its control (where any has one), and the paper's own columns."""
        below = [SAID.get(self.below_control.get(row), absent)] * bool(self.below_control)
        return [*below, *(self.study.in_paper(row).get(key, absent) for key in self.in_paper())]

    def cells(self, columns: Sequence[AnyColumn] = ()) -> list[list[str]]:
        (_, *heads), *lines = super().cells(columns)
        below = ["below its control"] * bool(self.below_control)
        rows = [["", *heads, *below, *self.in_paper().values()]]
        for row, (_, *ours) in zip(self.rows, lines, strict=True):
            rows.append([self.title(row), *ours, *map(number, self.beside(row, MISSING))])
        return rows

    def csv_lines(self, columns: Sequence[AnyColumn] = ()) -> list[list[Any]]:
        (_, *heads), *lines = super().csv_lines(columns)
        below = ["below_control"] * bool(self.below_control)
        rows = [["row", "title", *heads, *below, *(f"paper_{key}" for key in self.in_paper())]]
        for row, (_, *ours) in zip(self.rows, lines, strict=True):
            rows.append([row, self.title(row), *ours, *self.beside(row, "")])
        return rows

    def record(self, name: str, seeds: int) -> None:
        """Writes a result file: besides the rows, the rank correlations, the learning rates that were tried, and the paper as a peer."""
        found = {
            f"rank_correlation{part}": {
                key: getattr(one, of) for key, one in self.correlations.items()
            }
            for part, of in (("", "correlation"), ("_low", "low"), ("_high", "high"))
            if self.correlations
        }
        rows = {**found, **{row: dict(metrics) for row, metrics in self.rows.items()}}
        for one in self.sweeps:
            if (loss := one["values"]["final_loss"]) is not None:
                rows.setdefault(one["row"], {})[one["stage"]] = [loss]
        paper = {
            f"{row}.{key}": value
            for row in self.rows
            for key, value in self.study.in_paper(row).items()
        }
        failed = "".join(
            f" Failed: {label}: {why.partition(';')[0][:200]}."
            for label, why in self.failed.items()
        )
        control = f" {above_control(self.below_control)}" if self.below_control else ""
        Table(
            name,
            rows,
            f"table {self.study.name}, scale {self.study.scale}",
            list(range(seeds)),
            {"paper": {**paper, "published": self.study.paper}} if paper else {},
            f"{self.study.honest}{control} Data: {self.study.about_data}.{failed}",
            about=common_environment([one for found in self.results.values() for one in found]),
        ).write()


def collect(study: Study, jobs: Sequence[Job], failed: Mapping[str, str]) -> StudyTable:
    """All results in the table's folder; where a job was run with several settings, those of the plan count."""
    planned = {job.result.name: job for job in jobs}
    known = {(job.row, job.stage, job.seed) for job in jobs}
    results: dict[str, list[dict[str, Any]]] = {row: [] for row in study.rows()}
    sweeps: list[dict[str, Any]] = []
    for path in sorted((study.out / RESULTS).glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        if path.name in planned or (content["row"], content["stage"], content["seed"]) not in known:
            (
                sweeps if SWEEP in content["stage"] else results.setdefault(content["row"], [])
            ).append(content)
    return StudyTable(
        study.name,
        {},
        study=study,
        results={
            row: sorted(found, key=lambda one: one["seed"])
            for row, found in results.items()
            if found
        },
        failed={job.label: failed[job.name] for job in jobs if job.name in failed},
        missing=[job.label for job in jobs if not job.done and job.name not in failed],
        sweeps=sorted(sweeps, key=lambda one: one["values"]["learning_rate"]),
    )


def write(made: StudyTable, jobs_beside: int) -> list[str]:
    """Writes table.csv, table.md and the pictures; the names of the files."""
    from ..views.figures import save

    out = made.study.out
    write_atomically(out / "table.csv", made.to_csv().encode())
    write_atomically(out / "table.md", page(made, jobs_beside).encode())
    figures = pictures(made) if made.rows else {}
    for name, figure in figures.items():
        save(figure, out / name)
    return ["table.csv", "table.md", *figures]


def page(made: StudyTable, jobs_beside: int) -> str:
    """The table with all that is to be known about it, as Markdown."""
    study, about = made.study, environment()
    head = f"# {study.name.capitalize()}, scale {study.scale}\n\nMade by `{command()}` on {about['device']}"
    beside = f", {jobs_beside} side by side, which lowers updates/s" if jobs_beside > 1 else ""
    parts = [
        f"{head}{beside}. Data: {study.about_data}. ± is the standard deviation over seeds.",
        made.to_markdown(),
    ]
    if study.paper:
        parts.append(f"The paper's columns: {study.paper}.")
    if made.below_control:
        parts.append(f"{study.about_control} {above_control(made.below_control)}")
    if made.sweeps:
        parts += ["## Learning rates", study.about_sweep, *sweeps(made)]
    if made.correlations:
        parts += ["## Our order of the rows and theirs", markdown(agreements(made))]
    parts += ["## What this can show", study.honest]
    absent = {**made.failed, **dict.fromkeys(made.missing, "not run yet"), **study.left_out()}
    if absent:
        parts += ["## Missing", "\n".join(f"- {label}: {why}" for label, why in absent.items())]
    return "\n\n".join(parts) + "\n"


def agreements(made: StudyTable) -> list[list[str]]:
    """A line for each column that the paper has too: how well the orders of the rows agree."""
    columns = {one.key: one for one in made.study.columns}
    heads = ["here", "there", "Spearman's rank correlation"]
    heads += ["95 % interval (bootstrap over rows and seeds)", "rows", "agreement"]
    lines = [
        [
            columns[key].title,
            made.study.paper_columns[columns[key].paper],
            f"{found.correlation:+.2f}",
            f"{found.low:+.2f} to {found.high:+.2f}",
            str(found.rows),
            strength(found),
        ]
        for key, found in made.correlations.items()
    ]
    return [heads, *lines]


def strength(found: Agreement) -> str:
    """A rank correlation in words."""
    if found.low <= 0 <= found.high:
        return "none that chance would not give"
    return "the reverse" if found.high < 0 else "weak" if found.correlation < WEAK else "yes"


def above_control(below: Mapping[str, bool]) -> str:
    """A sentence about the rows that are not below their control."""
    above = [row for row, found in below.items() if not found]
    return (
        f"Not below it, and so without a result: {', '.join(above)}."
        if above
        else f"All {len(below)} rows are below it."
    )


def sweeps(made: StudyTable) -> list[str]:
    """A grid for each stage: the final loss of each kind of rows at each learning rate, the lowest in bold."""
    found: dict[str, dict[str, dict[float, float | None]]] = {}
    for one in made.sweeps:
        stage, _, _ = one["stage"].partition(SWEEP)
        found.setdefault(stage, {}).setdefault(one["row"], {})[one["values"]["learning_rate"]] = (
            one["values"]["final_loss"]
        )
    grids, edges = list[str](), list[str]()
    for stage, kinds in found.items():
        rates = sorted({rate for losses in kinds.values() for rate in losses})
        rows = [[f"final loss, stage {stage}", *(f"{rate:g}" for rate in rates)]]
        for kind, losses in kinds.items():
            least = min((loss for loss in losses.values() if loss is not None), default=-1.0)
            edges += [
                f"{kind} ({stage})" for rate in (rates[0], rates[-1]) if losses.get(rate) == least
            ]
            cells = [
                MISSING if losses.get(rate) is None else number(losses[rate], 3) for rate in rates
            ]
            best = [losses.get(rate) == least for rate in rates]
            rows.append(
                [
                    kind,
                    *(Bold(text) if one else text for text, one in zip(cells, best, strict=True)),
                ]
            )
        grids.append(markdown(rows))
    more = (
        "The lowest loss is that of the smallest or largest rate, so that another one may be better"
    )
    return [*grids, f"{more}: {', '.join(edges)}."] if edges else grids


def pictures(made: StudyTable) -> dict[str, Any]:
    """A dot for each seed of each row, and each row against the paper's number."""
    from ..views.figures import dots, scatter

    found: dict[str, Any] = {}
    by_key = {one.key: one for one in made.study.columns}
    for column in (by_key[key] for key in made.study.drawn if key in by_key):
        series = {row: values for row in made.rows if (values := made.values(row, column.key))}
        if not series:
            continue
        found[f"{column.key}.png"] = dots(
            series, column.title, f"{made.study.name}: {column.title}"
        )
        theirs = {row: made.study.in_paper(row).get(column.paper) for row in series}
        points = {
            row: (float(value), statistics.fmean(made.numbers(row, column.key) or [0.0]))
            for row, value in theirs.items()
            if value is not None
        }
        if len(points) >= FEWEST:
            heading = made.study.paper_columns[column.paper].removeprefix("paper: ")
            found[f"{column.key}-paper.png"] = scatter(
                points,
                f"{heading} (paper)",
                column.title,
                f"{made.study.name}: {column.title}, here and in the paper",
            )
    return {**found, **made.study.pictures(made)}
