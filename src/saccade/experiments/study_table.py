"""A table written: CSV, Markdown and pictures, with the paper's columns, and how well our order of the rows agrees with the paper's."""

from __future__ import annotations

import csv
import io
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..files import write_atomically
from ..results import command, common_environment, environment, write_result
from .significance import Agreement, rank_agreement
from .study import RESULTS, SWEEP, Column, Job, Study

MISSING = "–"
FEWEST = 5  # rows, of which an order can be compared
WEAK = 0.5  # a rank correlation below it says little
SAID = {True: "yes", False: "no"}


@dataclass
class Made:
    """What is known of a table so far: each row's results, and why others are missing."""

    study: Study
    results: dict[str, list[dict[str, Any]]]
    failed: Mapping[str, str]  # label of a job → why
    missing: Sequence[str] = ()  # labels of jobs that are not done yet
    sweeps: Sequence[dict[str, Any]] = ()  # results of trainings that try a learning rate

    def values(self, row: str, column: Column) -> list[Any]:
        """One value per seed."""
        stage, key = column.stage or self.study.main, column.value or column.key
        found = [
            one["values"][key]
            for one in self.results[row]
            if one["stage"] == stage and key in one["values"]
        ]
        return [
            value / column.unit if isinstance(value, int | float) else value
            for value in found
            if value is not None
        ]

    def mean(self, row: str, column: Column) -> float | None:
        values = [value for value in self.values(row, column) if isinstance(value, int | float)]
        return statistics.fmean(values) if values else None

    def below_control(self) -> dict[str, bool]:
        """Row → whether its final loss is below that of its control by more than its spread, for rows that have both."""
        found = {}
        for column in (one for one in self.study.columns if one.key == "final_loss"):
            means = {
                row: mean for row in self.results if (mean := self.mean(row, column)) is not None
            }
            for row in means:
                if (control := self.study.control(row)) in means:
                    found[row] = means[row] + spread(self.values(row, column)) < means[control]
        return found

    @property
    def columns(self) -> list[Column]:
        """Those that any row has a value in."""
        return [
            one for one in self.study.columns if any(self.values(row, one) for row in self.results)
        ]

    def in_paper(self) -> dict[str, str]:
        """The paper's columns that any row has a value in."""
        mine = {key for row in self.results for key in self.study.in_paper(row)}
        return {key: title for key, title in self.study.paper_columns.items() if key in mine}

    def correlations(self) -> dict[str, Agreement]:
        """Column → the rank correlation of our means with the paper's column."""
        found = {}
        for column in self.columns:
            pairs = [
                (ours, theirs)
                for row in self.results
                if (
                    ours := [
                        one for one in self.values(row, column) if isinstance(one, int | float)
                    ]
                )
                and isinstance(theirs := self.study.in_paper(row).get(column.paper), int | float)
            ]
            if (
                len(pairs) >= FEWEST
                and (agreement := rank_agreement(*zip(*pairs, strict=True))) is not None
            ):
                found[column.key] = agreement
        return found


def collect(study: Study, jobs: Sequence[Job], failed: Mapping[str, str]) -> Made:
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
    reasons = {job.label: failed[job.name] for job in jobs if job.name in failed}
    missing = [job.label for job in jobs if not job.done and job.name not in failed]
    ordered = {
        row: sorted(found, key=lambda one: one["seed"]) for row, found in results.items() if found
    }
    return Made(
        study,
        ordered,
        reasons,
        missing,
        sorted(sweeps, key=lambda one: one["values"]["learning_rate"]),
    )


def write(made: Made, jobs_beside: int) -> list[str]:
    """Writes table.csv, table.md and the pictures; the names of the files."""
    from ..views.figures import save

    out = made.study.out
    write_atomically(out / "table.csv", as_csv(made).encode())
    write_atomically(out / "table.md", as_markdown(made, jobs_beside).encode())
    figures = pictures(made) if made.results else {}
    for name, figure in figures.items():
        save(figure, out / name)
    return ["table.csv", "table.md", *figures]


def as_csv(made: Made) -> str:
    """Every column with its mean, its standard deviation over seeds and their number, and the paper's columns as they are."""
    text, columns, paper = io.StringIO(), made.columns, made.in_paper()
    writer = csv.writer(text, lineterminator="\n")
    parts = [name for one in columns for name in (one.key, f"{one.key}_spread", f"{one.key}_seeds")]
    below = {row: SAID[found] for row, found in made.below_control().items()}
    head = ["below_control"] if below else []
    writer.writerow(["row", "title", *parts, *(f"paper_{key}" for key in paper), *head])
    for row in made.results:
        cells: list[Any] = [row, made.study.rows().get(row, row)]
        for one in columns:
            values, mean = made.values(row, one), made.mean(row, one)
            cells += [
                (values or [""])[0] if mean is None else mean,
                "" if mean is None else spread(values),
                len(values),
            ]
        theirs = [made.study.in_paper(row).get(key, "") for key in paper]
        writer.writerow([*cells, *theirs, *(below.get(row, "") for _ in head)])
    return text.getvalue()


def spread(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def as_markdown(made: Made, jobs_beside: int) -> str:
    study, columns, paper, about = made.study, made.columns, made.in_paper(), environment()
    below = made.below_control()
    rows = [
        ["", *(one.title for one in columns), *["below its control"] * bool(below), *paper.values()]
    ]
    for row in made.results:
        ours = [cell(made.values(row, one), one) for one in columns] + [
            SAID[below[row]] if row in below else MISSING
        ] * bool(below)
        theirs = [number(study.in_paper(row).get(key)) for key in paper]
        rows.append([study.rows().get(row, row), *ours, *theirs])
    head = f"# {study.name.capitalize()}, scale {study.scale}\n\nMade by `{command()}` on {about['device']}"
    beside = f", {jobs_beside} side by side, which lowers updates/s" if jobs_beside > 1 else ""
    parts = [
        f"{head}{beside}. Data: {study.about_data}. ± is the standard deviation over seeds.",
        grid(rows),
    ]
    if study.paper:
        parts.append(f"The paper's columns: {study.paper}.")
    if below:
        parts.append(f"{study.about_control} {above_control(below)}")
    if made.sweeps:
        parts += ["## Learning rates", study.about_sweep, *sweeps(made)]
    if agreements := made.correlations():
        titles = {
            one.key: (one.title, study.paper_columns[one.paper])
            for one in columns
            if one.paper in study.paper_columns
        }
        lines = [
            [
                *titles[key],
                f"{found.correlation:+.2f}",
                f"{found.low:+.2f} to {found.high:+.2f}",
                str(found.rows),
                strength(found),
            ]
            for key, found in agreements.items()
        ]
        heads = [
            "here",
            "there",
            "Spearman's rank correlation",
            "95 % interval (bootstrap over rows and seeds)",
            "rows",
            "agreement",
        ]
        parts += ["## Our order of the rows and theirs", grid([heads, *lines])]
    parts += ["## What this can show", study.honest]
    absent = {**made.failed, **dict.fromkeys(made.missing, "not run yet"), **study.left_out()}
    if absent:
        parts += ["## Missing", "\n".join(f"- {label}: {why}" for label, why in absent.items())]
    return "\n\n".join(parts) + "\n"


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


def sweeps(made: Made) -> list[str]:
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
                number(losses[rate], 3) if losses.get(rate) is not None else MISSING
                for rate in rates
            ]
            rows.append(
                [
                    kind,
                    *(
                        f"**{text}**" if losses.get(rate) == least else text
                        for rate, text in zip(rates, cells, strict=True)
                    ),
                ]
            )
        grids.append(grid(rows))
    more = (
        "The lowest loss is that of the smallest or largest rate, so that another one may be better"
    )
    return [*grids, f"{more}: {', '.join(edges)}."] if edges else grids


def grid(rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(one.replace('|', '/') for one in row)} |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


def cell(values: Sequence[Any], column: Column) -> str:
    """mean ± spread, as many digits as the column has."""
    if not values:
        return MISSING
    if not all(isinstance(value, int | float) for value in values):
        return str(values[0])
    text = number(statistics.fmean(values), column.digits)
    return f"{text} ± {number(spread(values), column.digits)}" if len(values) > 1 else text


def number(value: Any, digits: int | None = None) -> str:
    if not isinstance(value, int | float):
        return MISSING if value is None else str(value)
    if digits is not None:
        return f"{value:,.{digits}f}"
    return (
        f"{value:,.0f}"
        if 1000 <= abs(value) < 1e9 and float(value).is_integer()
        else f"{value:.4g}"
        if value < 1e4
        else f"{value:.2e}"
    )


def pictures(made: Made) -> dict[str, Any]:
    """A dot for each seed of each row, and each row against the paper's number."""
    from ..views.figures import dots, scatter

    found: dict[str, Any] = {}
    by_key = {one.key: one for one in made.columns}
    for column in (by_key[key] for key in made.study.drawn if key in by_key):
        series = {row: values for row in made.results if (values := made.values(row, column))}
        found[f"{column.key}.png"] = dots(
            series, column.title, f"{made.study.name}: {column.title}"
        )
        theirs = {row: made.study.in_paper(row).get(column.paper) for row in series}
        points = {
            row: (float(value), float(made.mean(row, column) or 0.0))
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


def record(made: Made, name: str, seeds: int) -> None:
    """The table as a result file: every value under ROW.COLUMN, one per seed, the paper's under `peers`, and the rank correlations."""
    tried = [(f"{one['row']}.{one['stage']}", one["values"]["final_loss"]) for one in made.sweeps]
    rates = {name: [loss] for name, loss in tried if loss is not None}
    numbers = {
        f"{row}.{one.key}": values
        for row in made.results
        for one in made.columns
        if (values := made.values(row, one))
    }
    agreements = {
        f"rank_correlation{name}.{key}": value
        for key, found in made.correlations().items()
        for name, value in (("", found.correlation), ("_low", found.low), ("_high", found.high))
    }
    paper = {
        f"{row}.{key}": value
        for row in made.results
        for key, value in made.study.in_paper(row).items()
    }
    failed = "".join(
        f" Failed: {label}: {why.partition(';')[0][:200]}." for label, why in made.failed.items()
    )
    below = made.below_control()
    control = f" {above_control(below)}" if below else ""
    notes = f"{made.study.honest}{control} Data: {made.study.about_data}.{failed}"
    peers = {"paper": {**paper, "published": made.study.paper}} if paper else {}
    described = f"table {made.study.name}, scale {made.study.scale}"
    about = common_environment([one for found in made.results.values() for one in found])
    write_result(
        name,
        {**agreements, **numbers, **rates},
        described,
        list(range(seeds)),
        peers,
        notes,
        about=about,
    )
