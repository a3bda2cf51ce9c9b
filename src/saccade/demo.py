"""The demo: a translator with one fixed context and one with attention, trained, compared and looked into (S4, S5, W1)."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from . import api, config
from .data.generated.phrasebook import LECTURE_SENTENCES
from .errors import SaccadeError
from .files import write_atomically
from .training.loop import Watcher
from .training.relay import Beside
from .views import curves, pictures
from .views.page import Section, report_page

FIXED, ATTENDING = "fixed-context", "bahdanau"
MakeWatcher = Callable[[str, int], AbstractContextManager[Watcher]]


@dataclass(frozen=True)
class Result:
    """What the demo found: figures, the table of BLEU by length, the lectures' sentences by both models, and where things lie."""

    figures: dict[str, Any]
    table: Table
    sentences: list[tuple[str, str, str]]
    report: Path
    pictures: list[Path]


def run(out: Path, seed: int, watching: MakeWatcher, settings: Sequence[str] = ()) -> Result:
    """Trains both models into `out`, evaluates them on the phrasebook's test pairs, draws, and writes the report.

    `settings` are key=value words for both recipes.
    """
    began = time.perf_counter()
    check_place(out)
    words = [f"seed={seed}", *settings]
    updates = config.read_recipe(f"phrasebook-{ATTENDING}", words).training.updates
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the other core trains the other model
    try:
        with (
            watching(FIXED, updates) as beside,
            watching(ATTENDING, updates) as here,
            Beside(trained, (out / FIXED, FIXED, words), beside) as other,
        ):
            figures = {ATTENDING: trained(here, out / ATTENDING, ATTENDING, words)}
            figures[FIXED] = other.result()
    finally:
        torch.set_num_threads(threads)
    systems = {name: api.load(out / name) for name in (FIXED, ATTENDING)}
    sources = [pair.source for pair in LECTURE_SENTENCES]
    outputs = {name: [one.text for one in api.decode(system, sources)] for name, system in systems.items()}
    drawn = draw(out, systems[ATTENDING], figures)
    summary = {
        "bleu": round(figures[ATTENDING]["bleu"], 2),
        "bleu_fixed_context": round(figures[FIXED]["bleu"], 2),
        "bleu_long": round(figures[ATTENDING]["by_length"][-1]["bleu"], 2),
        "bleu_long_fixed_context": round(figures[FIXED]["by_length"][-1]["bleu"], 2),
        "aer": round(figures[ATTENDING]["aer"], 4),
        "seconds": round(time.perf_counter() - began, 1),
        "out": str(out),
    }
    rows = [(source, outputs[FIXED][n], outputs[ATTENDING][n]) for n, source in enumerate(sources)]
    report = write_report(out, systems[ATTENDING], summary, length_rows(figures), rows, drawn)
    return Result(summary, length_table(figures), rows, report, drawn)


def check_place(out: Path) -> None:
    """A new or empty folder, or that of an older demo, in which nothing but its two runs is replaced."""
    if os.path.exists(out) and not out.is_dir():
        raise SaccadeError(f"{out} is a file; choose a folder with --out")
    runs = [out / name for name in (FIXED, ATTENDING)]
    wrong = [folder for folder in runs if foreign(folder) and not (folder / "recipe.json").is_file()]
    if foreign(out) and not any(os.path.exists(folder) for folder in runs):
        wrong.append(out)
    if wrong:
        raise SaccadeError(f"{wrong[0]} holds other files than a demo's run; choose another --out")


def foreign(folder: Path) -> bool:
    """Whether there is a file, or a folder in which something is; hidden names are what a killed demo left."""
    return os.path.exists(folder) and (not folder.is_dir() or any(not path.name.startswith(".") for path in folder.iterdir()))


def remove(folder: Path) -> None:
    """Renamed first, so that a kill in between leaves no half of a run under a run's name."""
    old = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        os.replace(folder, old)
        shutil.rmtree(old, ignore_errors=True)


def trained(watcher: Watcher, folder: Path, name: str, words: Sequence[str]) -> dict[str, Any]:
    """Trains one model anew in place of an older demo's; its figures on the test pairs."""
    remove(folder)
    recipe = config.read_recipe(f"phrasebook-{name}", words)
    system, _ = api.fit(recipe, folder, watcher=watcher)
    watcher.note("translating the test sentences")
    return api.evaluate(system, api.examples_of(recipe, "test"), quarters=True)


def length_rows(figures: dict[str, dict[str, Any]]) -> list[list[str]]:
    """Words in the source, BLEU with a fixed context, BLEU with attention."""
    rows = []
    for plain, attended in zip(figures[FIXED]["by_length"], figures[ATTENDING]["by_length"], strict=True):
        rows.append([f"{plain['shortest']}–{plain['longest']}", f"{plain['bleu']:.1f}", f"{attended['bleu']:.1f}"])
    return [*rows, ["all", f"{figures[FIXED]['bleu']:.1f}", f"{figures[ATTENDING]['bleu']:.1f}"]]


def length_table(figures: dict[str, dict[str, Any]]) -> Table:
    table = Table("words in the source", "fixed context", "with attention", title="BLEU on sentences never seen in training")
    for row in length_rows(figures):
        table.add_row(*row, end_section=row[0] != "all" and row == length_rows(figures)[-2])
    return table


def draw(out: Path, system: api.System, figures: dict[str, dict[str, Any]]) -> list[Path]:
    """BLEU against length, and an alignment heatmap for each of the lectures' sentences."""
    series = {
        label: [(row["mean"], row["bleu"]) for row in figures[name]["by_length"]]
        for name, label in ((FIXED, "fixed context"), (ATTENDING, "with attention"))
    }
    figure = curves.lines(series, "words in the source sentence", "BLEU", "BLEU against sentence length")
    drawn = [pictures.save(figure, out / "bleu-by-length.png")]
    for n, pair in enumerate(LECTURE_SENTENCES):
        site = api.show(system, pair.source).sites[0]
        drawn.append(pictures.save(pictures.alignment(site, "Where the model looks"), out / f"alignment-{n + 1}.png"))
    return drawn


def write_report(
    out: Path,
    system: api.System,
    summary: dict[str, Any],
    lengths: list[list[str]],
    rows: list[tuple[str, str, str]],
    drawn: list[Path],
) -> Path:
    """The report page, whole in one HTML file."""
    agreement = max(rows, key=lambda row: len(row[0]))[0]
    sections = [
        Section(
            "Two translators",
            "Both read English with a bidirectional GRU and write French with another. The first carries the whole sentence over in one "
            "fixed vector; the second looks back at every word, by Bahdanau's additive attention. Both were trained just now, on the same "
            "generated sentences for the same number of updates.",
        ),
        Section(
            "BLEU by sentence length",
            "The test sentences in four equal groups by length. One vector holds a short sentence; a long one does not fit.",
            table=[["words in the source", "fixed context", "with attention"], *lengths],
            picture=drawn[0].read_bytes(),
        ),
        Section(
            "The lectures' sentences",
            "None of them was among the training sentences.",
            table=[["source", "fixed context", "with attention"], *map(list, rows)],
        ),
        Section(
            "Alignment for free",
            f"Nobody told the model which words belong together. Against the corpus's gold links its alignment error rate is {summary['aer']:.3f}.",
            document=api.show(system, agreement),
        ),
        *(Section(rows[n][0], picture=path.read_bytes()) for n, path in enumerate(drawn[1:])),
    ]
    path = out / "report.html"
    write_atomically(path, report_page("saccade: translation with and without attention", sections).encode())
    return path
