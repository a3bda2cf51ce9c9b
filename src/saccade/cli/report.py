"""The command `report`, and what `evaluate` and `compare` print and draw: tables of classes, confusion matrices, comparisons."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import SaccadeError
from .common_options import Json
from .shared import note, print_json, rank, write
from .shared import report as print_outcome

if TYPE_CHECKING:
    from ..experiments.comparison import Comparison, Verdict

MOST_CLASSES = 30  # in text; JSON has all
COLUMNS = ("precision", "recall", "f1")
HOW = (
    "p is the larger one of two p-values: a paired permutation test over the examples, and a paired bootstrap over examples and seeds. "
    "Of several recipes the best is tested against each other one, and p is multiplied by the number of these tests."
)


def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders, also of runs that are still training.")
    ],
    out_file: Annotated[
        Path | None,
        typer.Option(
            "--out", help="The page to write. [default: RUN/report.html; needed for several runs]"
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Write a page about one or more training runs.

    The page shows curves, metrics, samples, attention, data, settings and cost; several runs stand side by side. It is one file that loads
    nothing. The curves are also written beside it as a PNG.

    Examples:
        saccade report runs/mine
        saccade report runs/first runs/second --out both.html
    """
    from .. import api
    from ..system import run_report

    if out_file is None and len(runs) > 1:
        raise SaccadeError(
            "several runs were given; name the page to write, such as --out runs.html",
            code="needs-out",
        )
    page = out_file or runs[0] / "report.html"
    if page.suffix.lower() not in (".html", ".htm"):
        raise SaccadeError(
            f"cannot write a report to '{page}'; name a file ending in .html", code="unknown-ending"
        )
    found = run_report.report(runs, page, api.show)
    facts = {"out": str(page), "runs": [{"run": str(run.path), **run.best} for run in found]}
    lines = [
        f"{run.path}: {'  '.join(map(' '.join, run_report.results(run).items()))}" for run in found
    ]
    print_outcome(json_, facts, "\n".join([*lines, f"Report: {page}"]))


def check_picture(path: Path | None) -> None:
    if path is not None and path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise SaccadeError(
            f"cannot draw to '{path}'; name a file ending in .png, .svg or .pdf",
            code="unknown-ending",
        )


def print_metrics(metrics: dict[str, Any]) -> None:
    """The metrics of an evaluation for people: numbers, BLEU by length, a table of classes, a confusion matrix."""
    from ..training.logs import format_metric
    from ..views.text_table import terminal

    plain = {
        name: value
        for name, value in metrics.items()
        if name not in ("by_length", "classes", "confusion")
    }
    width = max(16, *(len(name) + 2 for name in plain))
    for name, value in plain.items():
        write(f"{name:<{width}}{format_metric(name, value)}")
    for row in metrics.get("by_length", []):
        write(
            f"BLEU {row['bleu']:5.1f}    sentences of {row['shortest']} to {row['longest']} {row.get('unit', 'words')}"
        )
    if classes := metrics.get("classes"):
        means = {"label": "macro average", **{name: metrics[f"macro_{name}"] for name in COLUMNS}}
        rows = [
            *classes[:MOST_CLASSES],
            {**means, "support": sum(row["support"] for row in classes)},
        ]
        write("")
        lines = (
            [row["label"], *(format_metric(name, row[name]) for name in (*COLUMNS, "support"))]
            for row in rows
        )
        write(terminal([["", *COLUMNS, "support"], *lines]))
        if len(classes) > MOST_CLASSES:
            write(f"the {MOST_CLASSES} commonest of {len(classes):,} classes; --json prints all")
    if found := metrics.get("confusion"):
        write("\nconfusion (rows: the right label, columns: the model's)")
        cells = [
            [label, *map(str, row)]
            for label, row in zip(found["labels"], found["counts"], strict=True)
        ]
        write(terminal([["", *found["labels"]], *cells]))


def report_comparison(
    table: "Comparison",
    measures: dict[str, bool],
    judged_on: str,
    out_folder: Path,
    picture: Path | None,
    json_: bool,
) -> None:
    """Tests, prints and draws a comparison by the task's most telling metric."""
    from ..views.text_table import terminal

    known = next(iter(table.rows.values()))
    metric = next(
        (one for one in ("accuracy", "bleu_4", "exact", "bleu", "perplexity") if one in known),
        "loss",
    )
    measured = {row: dict(metrics) for row, metrics in table.rows.items()}
    verdicts = table.test(metric, measures.get(metric, metric in ("bleu_4", "exact", "bleu")))
    if json_:
        print_json({**measured, "comparisons": [verdict.to_dict() for verdict in verdicts]})
    else:
        write(terminal(table.side_by_side()))
        for verdict in verdicts:
            write(str(verdict))
    if rank() == 0:
        draw_comparison(
            table, metric, verdicts, judged_on, out_folder, picture or out_folder / "compare.png"
        )
        note(f"{out_folder}/report.html: the comparison as a page")


def draw_comparison(
    table: "Comparison",
    metric: str,
    verdicts: "Sequence[Verdict]",
    judged_on: str,
    out_folder: Path,
    picture: Path,
) -> None:
    """Writes the picture of a comparison, and a page with it, the table, the tests, and each recipe's run with the first seed."""
    from .. import api
    from ..experiments import comparison
    from ..system import run_report
    from ..views.figures import dots, lines, png, save
    from ..views.html_page import Section

    figure = dots(
        {row: table.values(row, metric) for row in table.rows}, metric, f"{metric} on {judged_on}"
    )
    save(figure, picture)
    if curves := comparison.by_length(table.rows):
        shown = lines(
            curves,
            "length of the source, mean of each quarter",
            "BLEU",
            f"BLEU by length on {judged_on}",
        )
        note(
            f"{save(shown, picture.with_name('lengths.png'))}: BLEU against the length of the source"
        )
    text = "\n\n".join([*map(str, verdicts), HOW if verdicts else ""])
    first = Section("Comparison", text, table.side_by_side(), png(figure))
    # an ensemble has no run of its own
    runs = [found[0] for found in table.runs.values()]
    run_report.report(
        runs, out_folder / "report.html", api.show, [first], f"Comparison on {judged_on}"
    )
