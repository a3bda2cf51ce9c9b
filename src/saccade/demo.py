"""The demo: a translator with one fixed context and one with attention, trained side by side, compared, and their attention drawn."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from . import api, config
from .data.generated.phrasebook import LECTURE_SENTENCES
from .errors import SaccadeError
from .files import write_atomically
from .training.loop import Watcher
from .training.stopping import Stopped
from .views import pictures
from .views.page import Section, report_page

FIXED, ATTENDING = "fixed-context", "bahdanau"
CALLED = {FIXED: "fixed context", ATTENDING: "with attention"}
MakeWatcher = Callable[[str, int], AbstractContextManager[Watcher]]


@dataclass(frozen=True)
class Result:
    """What the demo found."""

    metrics: dict[str, Any]
    lengths: list[list[str]]  # words in the source, and both models' BLEU
    sentences: list[list[str]]  # a source, and both outputs
    report: Path
    pictures: list[Path]


def run(out: Path, seed: int, watching: MakeWatcher, settings: Sequence[str] = ()) -> Result:
    """Trains both models into `out` with `settings` (key=value), evaluates them on the phrasebook's test pairs, and writes the report."""
    began, sources = time.perf_counter(), [pair.source for pair in LECTURE_SENTENCES]
    for name in CALLED:
        shutil.rmtree(out / name, ignore_errors=True)
    train_both(out, [f"seed={seed}", *settings], watching)
    systems = {name: api.load(out / name) for name in CALLED}
    found = {name: system.evaluate(system.read("test"), quarters=True) for name, system in systems.items()}
    outputs = [[one.text for one in system.decode(sources)] for system in systems.values()]
    by_length = list(zip(found[FIXED]["by_length"], found[ATTENDING]["by_length"], strict=True))
    lengths = [[f"{a['shortest']}–{a['longest']}", f"{a['bleu']:.1f}", f"{b['bleu']:.1f}"] for a, b in by_length]
    lengths.append(["all", f"{found[FIXED]['bleu']:.1f}", f"{found[ATTENDING]['bleu']:.1f}"])
    sentences = [list(row) for row in zip(sources, *outputs, strict=True)]
    report, drawn = write_report(out, systems[ATTENDING], found, lengths, sentences)
    metrics = {
        "bleu": round(found[ATTENDING]["bleu"], 2),
        "bleu_fixed_context": round(found[FIXED]["bleu"], 2),
        "bleu_long": round(by_length[-1][1]["bleu"], 2),
        "bleu_long_fixed_context": round(by_length[-1][0]["bleu"], 2),
        "aer": round(found[ATTENDING]["aer"], 4),
        "seconds": round(time.perf_counter() - began, 1),
        "out": str(out),
    }
    return Result(metrics, lengths, sentences, report, drawn)


def check_folder(out: Path) -> None:
    """A new or empty folder, or that of an older demo, in which nothing but its two runs is replaced."""
    if os.path.exists(out) and not out.is_dir():
        raise SaccadeError(f"{out} is a file; choose a folder with --out")
    runs = [out / name for name in (FIXED, ATTENDING)]
    wrong = [folder for folder in runs if is_used(folder) and not (folder / "recipe.json").is_file()]
    if is_used(out) and not any(os.path.exists(folder) for folder in runs):
        wrong.append(out)
    if wrong:
        raise SaccadeError(f"{wrong[0]} contains other files than a demo's run; choose another --out")


def is_used(path: Path) -> bool:
    """Whether there is a file, or a folder that is not empty; hidden names are what a killed demo left."""
    return os.path.exists(path) and (not path.is_dir() or any(not inside.name.startswith(".") for inside in path.iterdir()))


def train_both(out: Path, words: Sequence[str], watching: MakeWatcher) -> None:
    """Trains both models at the same time, each on a core of its own: small models gain nothing from a second thread."""
    recipe, threads = config.read_recipe(f"phrasebook-{ATTENDING}", words), torch.get_num_threads()
    other_words = ["train", f"phrasebook-{FIXED}", *words, "--out", str(out / FIXED)]
    torch.set_num_threads(1)
    try:
        with (
            watching(FIXED, recipe.training.updates) as there,
            watching(ATTENDING, recipe.training.updates) as here,
            run_beside(other_words, there.note) as other,
        ):
            api.fit(recipe, out / ATTENDING, watcher=here)
            other.result()
    except Stopped as stopped:
        raise Stopped(*stopped.at, "saccade demo, which starts from the beginning") from None
    finally:
        torch.set_num_threads(threads)


@contextmanager
def run_beside(words: Sequence[str], note: Callable[[str], None]) -> Iterator[Future[None]]:
    """Within the `with`, `saccade WORDS` runs in another process, whose progress is noted; yields the future of its end."""
    kept = {name: value for name, value in os.environ.items() if name != "FORCE_COLOR"}  # its output is not a terminal
    environment = {**kept, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "saccade", *words]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment, encoding="utf-8")

    def listen() -> None:
        error = "the second training process ended unexpectedly; is there enough memory?"
        for line in process.stderr or ():
            name, _, text = line.rstrip("\n").partition(": ")
            if name == "saccade":
                error = text
            else:
                note(text)
        if process.wait() != 0:
            raise SaccadeError(error)

    with process, ThreadPoolExecutor(1) as thread:
        try:
            yield thread.submit(listen)
        finally:
            process.kill()  # nothing where it has ended; a run folder survives a kill


def write_report(
    out: Path, system: api.System, found: dict[str, dict[str, Any]], lengths: list[list[str]], sentences: list[list[str]]
) -> tuple[Path, list[Path]]:
    """The report page, whole in one HTML file, and pictures: BLEU against length, and an alignment of each of the lectures' sentences."""
    series = {CALLED[name]: [(row["mean"], row["bleu"]) for row in found[name]["by_length"]] for name in CALLED}
    figure = pictures.lines(series, "words in the source sentence", "BLEU", "BLEU against sentence length")
    drawn = [pictures.save(figure, out / "bleu-by-length.png")]
    for n, pair in enumerate(LECTURE_SENTENCES):
        site = api.show(system, pair.source).sites[0]
        drawn.append(pictures.save(pictures.alignment(site, pair.source, ATTENDING), out / f"alignment-{n + 1}.png"))
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
            table=[["words in the source", *CALLED.values()], *lengths],
            picture=drawn[0].read_bytes(),
        ),
        Section(
            "The lectures' sentences",
            "None of them was among the training sentences.",
            [["source", *CALLED.values()], *sentences],
        ),
        Section(
            "Alignment for free",
            f"The model was never given an alignment. Against the corpus's gold links its alignment error rate is {found[ATTENDING]['aer']:.3f}.",
            document=api.show(system, max((row[0] for row in sentences), key=len)),
        ),
        *(Section(row[0], picture=path.read_bytes()) for row, path in zip(sentences, drawn[1:], strict=True)),
    ]
    write_atomically(out / "report.html", report_page("saccade: translation with and without attention", sections).encode())
    return out / "report.html", drawn
