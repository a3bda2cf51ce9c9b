"""The demo: a translator with one fixed context and one with attention, trained side by side, compared, and their attention drawn."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from . import api, config
from .data.generated.phrasebook import LECTURE_SENTENCES
from .errors import SaccadeError
from .files import write_atomically
from .system import examples_of
from .training.loop import Watcher
from .training.stopping import Stopped
from .views import pictures
from .views.page import Section, report_page

FIXED, ATTENDING = "fixed-context", "bahdanau"
CALLED = {FIXED: "fixed context", ATTENDING: "with attention"}
MakeWatcher = Callable[[str, int], AbstractContextManager[Watcher]]


@dataclass(frozen=True)
class Result:
    """What the demo found; `lengths` has rows of words in the source and both models' BLEU, `sentences` a source and both outputs."""

    metrics: dict[str, Any]
    lengths: list[list[str]]
    sentences: list[list[str]]
    report: Path
    pictures: list[Path]


def run(out: Path, seed: int, watching: MakeWatcher, settings: Sequence[str] = ()) -> Result:
    """Trains both models into `out`, evaluates them on the phrasebook's test pairs, draws, and writes the report; `settings` are
    key=value words for both recipes."""
    began, threads = time.perf_counter(), torch.get_num_threads()
    words = [f"seed={seed}", *settings]
    updates = config.read_recipe(f"phrasebook-{ATTENDING}", words).training.updates
    torch.set_num_threads(1)  # small models gain nothing from a second thread: the other core trains the other model
    try:
        with (
            watching(FIXED, updates) as there,
            watching(ATTENDING, updates) as here,
            run_beside(there, train, out / FIXED, FIXED, words) as other,
        ):
            found = {ATTENDING: train(here, out / ATTENDING, ATTENDING, words), FIXED: other.result()}
    finally:
        torch.set_num_threads(threads)
    system, sources = api.load(out / ATTENDING), [pair.source for pair in LECTURE_SENTENCES]
    outputs = [[one.text for one in api.decode(each, sources)] for each in (api.load(out / FIXED), system)]
    by_length = list(zip(found[FIXED]["by_length"], found[ATTENDING]["by_length"], strict=True))
    lengths = [[f"{a['shortest']}–{a['longest']}", f"{a['bleu']:.1f}", f"{b['bleu']:.1f}"] for a, b in by_length]
    lengths.append(["all", f"{found[FIXED]['bleu']:.1f}", f"{found[ATTENDING]['bleu']:.1f}"])
    sentences = [list(row) for row in zip(sources, *outputs, strict=True)]
    drawn = draw(out, system, found)
    report = write_report(out, system, found[ATTENDING]["aer"], lengths, sentences, drawn)
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
        raise SaccadeError(f"{wrong[0]} holds other files than a demo's run; choose another --out")


def is_used(path: Path) -> bool:
    """Whether there is a file, or a folder that is not empty; hidden names are what a killed demo left."""
    return os.path.exists(path) and (not path.is_dir() or any(not inside.name.startswith(".") for inside in path.iterdir()))


def remove(folder: Path) -> None:
    """Renames first, so that a kill in between leaves no half of a run under a run's name."""
    old = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        os.replace(folder, old)
        shutil.rmtree(old, ignore_errors=True)


def train(watcher: Watcher, folder: Path, name: str, words: Sequence[str]) -> dict[str, Any]:
    """Trains one model in place of an older demo's; returns its metrics on the test pairs."""
    remove(folder)
    recipe = config.read_recipe(f"phrasebook-{name}", words)
    system, _ = api.fit(recipe, folder, watcher=watcher)
    watcher.note("translating the test sentences")
    return api.evaluate(system, examples_of(recipe, "test"), quarters=True)


class Relay(Watcher):
    """Sends the events of a training run through a pipe; once nobody reads them, its error ends the run."""

    def __init__(self, pipe: Any) -> None:
        for event in (name for name in vars(Watcher) if not name.startswith("_")):
            setattr(self, event, partial(lambda event, *values: pipe.send((event, *values)), event))


@contextmanager
def run_beside(watcher: Watcher, work: Callable[..., Any], *arguments: Any) -> Iterator[Future[Any]]:
    """Within the `with`, `work(watcher, *arguments)` runs in another process with one thread; yields the future of its result."""
    context = multiprocessing.get_context("spawn")  # a fork would share torch's threads, which do not survive it
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=work_beside, args=(there, work, arguments), daemon=True)

    def listen() -> Any:
        try:
            while (message := here.recv())[0] not in ("result", "error"):
                getattr(watcher, message[0])(*message[1:])
        except EOFError:
            raise SaccadeError("the second training process ended unexpectedly; is there enough memory?") from None
        if message[0] == "error":
            raise SaccadeError(message[1])
        return message[1]

    with ThreadPoolExecutor(1) as thread:
        process.start()
        there.close()  # the copy in the other process is now the only one, and the pipe ends with that process
        try:
            yield thread.submit(listen)
        except BaseException:
            process.terminate()
            raise
        finally:
            process.join(timeout=30)
            process.kill()  # nothing where it has ended


def work_beside(pipe: Any, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """The other process."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both; the one that was started by the user decides
    with suppress(BrokenPipeError):  # the process that started this one was killed
        try:
            pipe.send(("result", work(Relay(pipe), *arguments)))
        except (SaccadeError, Stopped) as error:
            pipe.send(("error", str(error)))


def draw(out: Path, system: api.System, found: dict[str, dict[str, Any]]) -> list[Path]:
    """BLEU against length, and an alignment heat map for each of the lectures' sentences."""
    series = {CALLED[name]: [(row["mean"], row["bleu"]) for row in found[name]["by_length"]] for name in CALLED}
    figure = pictures.lines(series, "words in the source sentence", "BLEU", "BLEU against sentence length")
    drawn = [pictures.save(figure, out / "bleu-by-length.png")]
    for n, pair in enumerate(LECTURE_SENTENCES):
        site = api.show(system, pair.source).sites[0]
        drawn.append(pictures.save(pictures.alignment(site, "Where the model looks"), out / f"alignment-{n + 1}.png"))
    return drawn


def write_report(
    out: Path, system: api.System, aer: float, lengths: list[list[str]], sentences: list[list[str]], drawn: list[Path]
) -> Path:
    """The report page, whole in one HTML file."""
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
            table=[["source", *CALLED.values()], *sentences],
        ),
        Section(
            "Alignment for free",
            f"The model was never given an alignment. Against the corpus's gold links its alignment error rate is {aer:.3f}.",
            document=api.show(system, max((row[0] for row in sentences), key=len)),
        ),
        *(Section(row[0], picture=path.read_bytes()) for row, path in zip(sentences, drawn[1:], strict=True)),
    ]
    path = out / "report.html"
    write_atomically(path, report_page("saccade: translation with and without attention", sections).encode())
    return path
