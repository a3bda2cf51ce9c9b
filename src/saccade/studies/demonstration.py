"""The demo: a translator with one fixed context and one with attention, trained side by side, compared, and their attention drawn."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .. import api
from ..config import recipes
from ..config.automatic import adopt
from ..data.generated import languages
from ..data.generated.phrasebook import LECTURE_SENTENCES
from ..data.pairs import Pair
from ..errors import SaccadeError
from ..files import write_atomically
from ..settings import resolve
from ..system.model_folder import read_config
from ..training.checkpoints import RunFolder
from ..training.loop import Watcher
from ..training.signals import Stopped
from ..views import figures as pictures
from ..views.html_page import Section, report_page

ORDERS, REPORT = "word-orders.png", "report.html"
TITLE = "saccade: translation with and without attention"
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


def run(
    out: Path,
    seed: int,
    watching: MakeWatcher,
    settings: Sequence[str] = (),
    tell: Callable[[str], object] = lambda _: None,
    to: str = "fr",
) -> Result:
    """Trains both models into `out` with `settings` (key=value), evaluates them on the phrasebook's test pairs, and writes the report."""
    began, sources = time.perf_counter(), [pair.source for pair in sentences_in(to)]
    words = [f"seed={seed}", *settings, *([f"data.options.to={to}"] if to != "fr" else [])]
    finished = check_folder(out, words)
    if not all(finished.values()):
        tell(
            f"Training two translators side by side on generated English–{languages.NAMES[to]} sentences; about two minutes on 2 CPU cores."
        )
    train_both(out, words, watching, finished)
    systems = {name: api.load(out / name) for name in CALLED}
    found: dict[str, Any] = {
        name: system.evaluate(system.read("test"), quarters=True)
        for name, system in systems.items()
    }
    outputs = [[one.text for one in system.decode(sources)] for system in systems.values()]
    by_length = list(zip(found[FIXED]["by_length"], found[ATTENDING]["by_length"], strict=True))
    lengths = [
        [f"{a['shortest']}–{a['longest']}", f"{a['bleu']:.1f}", f"{b['bleu']:.1f}"]
        for a, b in by_length
    ]
    lengths.append(["all", f"{found[FIXED]['bleu']:.1f}", f"{found[ATTENDING]['bleu']:.1f}"])
    sentences = [list(row) for row in zip(sources, *outputs, strict=True)]
    report, drawn = write_report(out, systems[ATTENDING], found, lengths, sentences, to)
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


def sentences_in(to: str) -> tuple[Pair, ...]:
    """The lectures' sentences with their translations."""
    if languages.check_language(to) == "fr":
        return LECTURE_SENTENCES
    return languages.lecture_sentences(to)


def check_folder(out: Path, words: Sequence[str] = ()) -> dict[str, bool]:
    """Whether each run is finished. The folder is new or empty, or that of a demo with the same settings: no other run is touched."""
    if os.path.exists(out) and not out.is_dir():
        raise SaccadeError(f"{out} is a file; choose a folder with --out", code="not-a-folder")
    runs = {name: out / name for name in CALLED}
    wrong = [
        folder
        for folder in runs.values()
        if is_used(folder) and not (folder / "recipe.json").is_file()
    ]
    if is_used(out) and not any(os.path.exists(folder) for folder in runs.values()):
        wrong.append(out)
    if wrong:
        raise SaccadeError(
            f"{wrong[0]} contains other files than a demo's run; choose another --out",
            code="foreign-files",
        )
    finished = {}
    for name, folder in runs.items():
        if (folder / "recipe.json").exists():
            made = recipes.read_recipe(f"phrasebook-{name}", words)
            begun = read_config(folder / "recipe.json")
            found = api.differences(begun.to_dict(), adopt(made, begun).to_dict())
            if changed := [key for key in found if key != "device"]:
                raise SaccadeError(
                    f"{folder} is a run with a different {changed[0]} than this demo's; choose another --out",
                    code="recipe-differs",
                )
        progress = RunFolder(folder, {}).progress()
        finished[name] = progress is not None and progress.done
    return finished


def is_used(path: Path) -> bool:
    """Whether there is a file, or a folder that is not empty; hidden names are what a killed demo left."""
    return os.path.exists(path) and (
        not path.is_dir() or any(not inside.name.startswith(".") for inside in path.iterdir())
    )


def train_both(
    out: Path, words: Sequence[str], watching: MakeWatcher, finished: dict[str, bool]
) -> None:
    """Trains both models at the same time, each on a core of its own: small models gain nothing from a second thread.

    A finished run is used as it is, and a stopped one continued.
    """
    recipe, threads = recipes.read_recipe(f"phrasebook-{ATTENDING}", words), torch.get_num_threads()
    resume = ["--resume"] if (out / FIXED / "recipe.json").exists() else []
    other_words = ["train", f"phrasebook-{FIXED}", *words, "--out", str(out / FIXED), *resume]
    torch.set_num_threads(1)
    try:
        with (
            watching(FIXED, resolve(recipe.training.updates, 0)) as there,
            watching(ATTENDING, resolve(recipe.training.updates, 0)) as here,
            ExitStack() as stack,
        ):
            for name, watcher in ((FIXED, there), (ATTENDING, here)):
                if finished[name]:
                    watcher.note(f"already finished, in {out / name}")
            if not all(finished.values()):
                remove_report(out)
            other = (
                None
                if finished[FIXED]
                else stack.enter_context(run_beside(other_words, there.note))
            )
            if not finished[ATTENDING]:
                api.fit(recipe, out / ATTENDING, resume=True, watcher=here)
            if other is not None:
                other.result()
    except Stopped as stopped:
        raise Stopped(*stopped.at, "the same command") from None
    finally:
        torch.set_num_threads(threads)


def remove_report(out: Path) -> None:
    """An older demo's report and pictures, which would not be about the models that are now trained."""
    report = out / REPORT
    if report.is_file() and TITLE in report.read_text(encoding="utf-8", errors="replace"):
        for path in (report, out / ORDERS, *picture_files(out, 3)):
            path.unlink(missing_ok=True)


def picture_files(out: Path, count: int) -> list[Path]:
    return [out / "bleu-by-length.png", *(out / f"alignment-{n + 1}.png" for n in range(count))]


# A training continues when nobody reads what it prints; this one ends, with a checkpoint, when the process that started it has gone: only then
# does its stdin end.
BESIDE = """
import os, runpy, signal, sys, threading

def wait():
    while os.read(0, 1):  # not sys.stdin, whose lock Python waits for at its end
        pass
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=wait, daemon=True).start()
sys.argv[0] = "saccade"
runpy.run_module("saccade", run_name="__main__", alter_sys=True)
"""


@contextmanager
def run_beside(words: Sequence[str], note: Callable[[str], None]) -> Iterator[Future[None]]:
    """Within the `with`, `saccade WORDS` runs in another process, whose progress is noted; yields the future of its end."""
    # its output is not a terminal
    kept = {name: value for name, value in os.environ.items() if name != "FORCE_COLOR"}
    environment = {**kept, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", BESIDE, *words]
    nowhere, pipe = subprocess.DEVNULL, subprocess.PIPE
    streams: dict[str, Any] = {"stdin": pipe, "stdout": nowhere, "stderr": pipe}
    process = subprocess.Popen(command, env=environment, encoding="utf-8", **streams)

    def listen() -> None:
        error = "the second training process ended unexpectedly; is there enough memory?"
        for line in process.stderr or ():
            name, _, text = line.rstrip("\n").partition(": ")
            if name == "saccade":
                error = text
            else:
                note(text)
        if process.wait() != 0:
            raise SaccadeError(error, code="command-failed")

    with process, ThreadPoolExecutor(1) as thread:
        try:
            yield thread.submit(listen)
        except Stopped:  # it writes its checkpoint too
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(60)
            raise
        finally:
            process.kill()  # nothing where it has ended; a run folder survives a kill


def write_report(
    out: Path,
    system: api.System,
    found: dict[str, dict[str, Any]],
    lengths: list[list[str]],
    sentences: list[list[str]],
    to: str,
) -> tuple[Path, list[Path]]:
    """The report page, whole in one HTML file, and pictures: BLEU against length, and an alignment of each of the lectures' sentences."""
    series = {
        CALLED[name]: [(row["mean"], row["bleu"]) for row in found[name]["by_length"]]
        for name in CALLED
    }
    figure = pictures.lines(
        series, "words in the source sentence", "BLEU", "BLEU against sentence length"
    )
    first, *others = picture_files(out, len(sentences))
    drawn = [pictures.save(figure, first)]
    for path, pair in zip(others, sentences_in(to), strict=True):
        site = api.show(system, pair.source).sites[0]
        drawn.append(pictures.save(pictures.heat_map(site, pair.source, ATTENDING), path))
    sections = [
        Section(
            "Two translators",
            f"Both read English with a bidirectional GRU, write {languages.NAMES[to]} with another. The first carries the whole sentence over in one "
            "fixed vector; the second looks back at every word, by Bahdanau's additive attention. Both were trained on the same "
            "generated sentences for the same number of updates.",
        ),
        Section(
            "BLEU by sentence length",
            "The test sentences in four groups by length, about equally many in each. One vector holds a short sentence; a long one does not fit.",
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
        *(
            Section(row[0], picture=path.read_bytes())
            for row, path in zip(sentences, drawn[1:], strict=True)
        ),
    ]
    if to != "fr":  # the one grammar that all languages share
        from ..teaching.draw.word_orders import draw

        orders = draw([])
        drawn.append(pictures.save(orders.figure, out / ORDERS))
        sections.append(Section("Seven word orders", orders.text, picture=orders.picture()))
    write_atomically(out / REPORT, report_page(TITLE, sections).encode())
    return out / REPORT, drawn
