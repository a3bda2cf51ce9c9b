"""The demo from end to end, small: metrics, report, pictures, a second time, a stopped one, and the runs of others left alone."""

from __future__ import annotations

import base64
import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from saccade import api
from saccade.data.generated.phrasebook import LECTURE_SENTENCES
from saccade.studies import demonstration
from saccade.training.checkpoints import Progress
from saccade.training.loop import Watcher
from saccade.training.signals import Stopped
from support import error_of, run_cli

KEYS = [
    "bleu",
    "bleu_fixed_context",
    "bleu_long",
    "bleu_long_fixed_context",
    "aer",
    "seconds",
    "out",
]
SMALL = [
    "data.options={train: 150, dev: 8, test: 16}",
    "model.dim=16",
    "model.hidden=16",
    "training.updates=10",
    "training.evaluate_every=5",
    "training.checkpoint_every=5",
]
PNG = b"\x89PNG\r\n\x1a\n"


class Heard(Watcher):
    """Keeps the events of a training run."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def cost(self, cost: Any) -> None:
        self.words.append("cost")

    def update(self, at: Progress, row: dict[str, float]) -> None:
        self.words.append(f"update {at.update}")

    def evaluated(self, at: Progress, metrics: dict[str, float], best: bool) -> None:
        self.words.append(f"evaluated {at.update}")

    def note(self, text: str) -> None:
        self.words.append(text)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[demonstration.Result, dict[str, Heard]]:
    heard: dict[str, Heard] = {}

    @contextmanager
    def watching(name: str, updates: int) -> Iterator[Watcher]:
        assert updates == 10
        heard[name] = Heard()
        yield heard[name]

    return demonstration.run(tmp_path_factory.mktemp("demo") / "out", 3, watching, SMALL), heard


def test_the_metrics_are_those_of_the_two_models(done: Any) -> None:
    result = done[0]
    out = Path(result.metrics["out"])
    assert list(result.metrics) == KEYS
    for name, key in (("fixed-context", "bleu_fixed_context"), ("bahdanau", "bleu")):
        system = api.load(out / name)
        assert (system.name, system.recipe.seed) == (name, 3)
        found = api.evaluate(system, system.read("phrasebook:test"), quarters=True)
        assert result.metrics[key] == pytest.approx(found["bleu"], abs=0.006)
        assert result.metrics[key.replace("bleu", "bleu_long")] == pytest.approx(
            found["by_length"][-1]["bleu"], abs=0.006
        )
    assert result.metrics["aer"] == pytest.approx(found["aer"], abs=1e-4)
    assert len(result.lengths) == 5


def test_both_training_runs_are_watched(done: Any) -> None:
    there, here = (done[1][name].words for name in ("fixed-context", "bahdanau"))
    for words in (there, here):
        assert words[0].startswith("data: 150 pairs to train on in phrasebook:train")
        assert [word for word in words if word.endswith("of the tokens in batches are padding")]
    assert [word for word in here if word.startswith("evaluated")] == [
        "evaluated 5",
        "evaluated 10",
    ]
    assert here[-1] == "evaluated 10"
    assert "cost" in here
    assert [word for word in there if "updates at most" in word]
    told = [word[: len("update 10  dev loss")] for word in there if word.startswith("update")]
    assert told == ["update 5  dev loss ", "update 10  dev loss"]


def test_the_lectures_sentences_are_translated_and_drawn(done: Any) -> None:
    result = done[0]
    out = Path(result.metrics["out"])
    sources = [pair.source for pair in LECTURE_SENTENCES]
    assert any("european economic area" in source.lower() for source in sources)
    assert [row[0] for row in result.sentences] == sources
    assert [path.name for path in result.pictures] == [
        "bleu-by-length.png",
        *(f"alignment-{n + 1}.png" for n in range(len(sources))),
    ]
    assert all(path.parent == out and path.read_bytes().startswith(PNG) for path in result.pictures)


def test_the_report_needs_nothing_but_itself(done: Any) -> None:
    result = done[0]
    page = result.report.read_text(encoding="utf-8")
    assert result.report == Path(result.metrics["out"]) / "report.html"
    assert not re.search(r"""(src|href)\s*=\s*["'](?!data:|#)""", page)
    assert not re.search(r"@import|url\((?!['\"]?data:)", page)
    drawn = {
        base64.b64decode(text)
        for text in re.findall(r"data:image/png;base64,([A-Za-z0-9+/=]+)", page)
    }
    assert drawn == {path.read_bytes() for path in result.pictures}
    for pair in LECTURE_SENTENCES:
        assert pair.source in page
    assert f"{result.metrics['aer']:.3f}" in page


def stamps(out: Path) -> dict[str, int]:
    return {
        str(path): path.stat().st_mtime_ns
        for name in demonstration.CALLED
        for path in (out / name).rglob("*")
    }


def test_a_second_demo_uses_the_finished_runs(done: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same folder again: nothing of the runs is written, the metrics are the same, and a file of one's own stays."""
    first = done[0].metrics
    out = Path(first["out"])
    (out / "mine.txt").write_text("mine")
    before = stamps(out)
    monkeypatch.setattr(demonstration, "run", functools.partial(demonstration.run, settings=SMALL))
    printed = run_cli("demo", "--out", out, "--seed", 3, "--json")
    assert printed.code == 0, printed.err
    assert list(printed.json) == KEYS
    assert {key: printed.json[key] for key in KEYS if key != "seconds"} == {
        key: first[key] for key in KEYS if key != "seconds"
    }
    assert printed.err == "".join(
        f"{name}: already finished, in {out / name}\n" for name in ("fixed-context", "bahdanau")
    )
    assert stamps(out) == before
    assert (out / "mine.txt").read_text() == "mine"
    runs = {"bahdanau", "fixed-context"}
    assert {path.name for path in out.iterdir()} == {
        *runs,
        "mine.txt",
        "report.html",
        *(path.name for path in done[0].pictures),
    }


@pytest.mark.parametrize(("words", "key"), [([], "data.options.dev"), (["--seed", 4], "seed")])
def test_a_run_of_another_recipe_is_refused_and_stays(
    done: Any, monkeypatch: pytest.MonkeyPatch, words: list[Any], key: str
) -> None:
    out = Path(done[0].metrics["out"])
    before = stamps(out)
    if words:
        monkeypatch.setattr(
            demonstration, "run", functools.partial(demonstration.run, settings=SMALL)
        )
    printed = run_cli("demo", "--out", out, "--seed", 3, *words)
    assert (printed.code, printed.out) == (2, "")
    sentence = f"saccade: {out}/fixed-context is a run with a different {key} than this demo's; choose another --out\n"
    assert printed.err == sentence
    assert stamps(out) == before


@pytest.mark.slow
def test_a_stopped_demo_continues_with_the_same_command(
    done: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the middle; then the same command: it ends where a whole one does, and no older report is beside the models."""
    finished, out = done[0], tmp_path / "out"
    (out / "x").parent.mkdir()
    for path in (finished.report, *finished.pictures):
        (out / path.name).write_bytes(path.read_bytes())
    (out / "bahdanau").mkdir()  # an older demo's report, whose runs were removed

    class Impatient(Heard):
        def update(self, at: Progress, row: dict[str, float]) -> None:
            if at.update == 6:
                os.kill(os.getpid(), signal.SIGINT)

    @contextmanager
    def watching(name: str, updates: int) -> Iterator[Watcher]:
        yield Impatient()

    with pytest.raises(
        Stopped, match="after update 6; a checkpoint was written, continue with the same command"
    ):
        demonstration.run(out, 3, watching, SMALL)
    assert {path.name for path in out.iterdir()} <= {"bahdanau", "fixed-context"}
    assert api.load(out / "bahdanau").name == "bahdanau"
    monkeypatch.setattr(demonstration, "run", functools.partial(demonstration.run, settings=SMALL))
    printed = run_cli("demo", "--out", out, "--seed", 3, "--json")
    assert printed.code == 0, printed.err
    assert "bahdanau: resuming from update 6" in printed.err
    same = [key for key in KEYS if key not in ("seconds", "out")]
    assert {key: printed.json[key] for key in same} == {key: finished.metrics[key] for key in same}


def test_people_get_a_table_sentences_and_three_commands(
    done: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demonstration, "run", lambda *_, **__: done[0])
    out = Path(done[0].metrics["out"])
    printed = run_cli("demo", "--out", out)
    assert printed.code == 0
    assert "BLEU on sentences never seen in training" in printed.out
    for source, plain, attended in done[0].sentences:
        assert (
            f"  {source}\n    fixed context   {plain}\n    with attention  {attended}\n"
            in printed.out
        )
    assert f"Alignment error rate with attention: {done[0].metrics['aer']:.3f}" in printed.out
    assert f"Report: {out}/report.html" in printed.out
    next_ = [line.strip() for line in printed.out.split("Next:\n")[1].splitlines() if line.strip()]
    assert [line.split()[:2] for line in next_] == [
        ["saccade", "translate"],
        ["saccade", "show"],
        ["saccade", "train"],
    ]
    assert (
        run_cli("translate", out / "bahdanau", "two old dogs saw the white horse", "--align").code
        == 0
    )


@pytest.mark.parametrize(
    "name", ["notes.txt", "fixed-context/notes.txt", "bahdanau/notes.txt", "bahdanau"]
)
def test_a_foreign_folder_is_refused_before_anything_is_done(tmp_path: Path, name: str) -> None:
    path = tmp_path / "out" / name
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    printed = run_cli("demo", "--out", tmp_path / "out", "--json")
    assert (printed.code, printed.out) == (2, "")
    assert re.fullmatch(
        r"saccade: .* contains other files than a demo's run; choose another --out\n", printed.err
    )
    assert [p for p in (tmp_path / "out").rglob("*") if p.is_file()] == [path]
    assert path.read_text() == "mine"


def test_what_a_killed_demo_left_is_not_an_obstacle(tmp_path: Path) -> None:
    (tmp_path / "out" / "bahdanau").mkdir(parents=True)
    (tmp_path / "out" / "bahdanau" / ".recipe.json.123.new").write_text("{")
    demonstration.check_folder(tmp_path / "out")


def test_what_goes_wrong_in_the_second_process_is_reported_here(tmp_path: Path) -> None:
    heard = Heard()
    with demonstration.run_beside(
        ["train", "nope", "--out", str(tmp_path / "x")], heard.note
    ) as wrong:
        assert error_of(wrong.result).startswith("no recipe file 'nope'")
    with demonstration.run_beside(["list", "scores"], heard.note) as fine:
        assert fine.result() is None
    assert heard.words == []


LONG = [
    "train",
    "phrasebook-fixed-context",
    "training.updates=1000000",
    "training.evaluate_every=1",
    *SMALL[:3],
]


def test_an_error_here_ends_the_second_process(tmp_path: Path) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        demonstration.run_beside([*LONG, "--out", str(tmp_path / "x")], Heard().note) as running,
    ):
        raise KeyboardInterrupt
    assert (
        error_of(running.result)
        == "the second training process ended unexpectedly; is there enough memory?"
    )


START = """
import sys, time
sys.path[:0] = {paths!r}
from saccade import demo
with demo.run_beside({words!r}, lambda text: print(text, flush=True)):
    time.sleep(600)
"""


@pytest.mark.slow
def test_the_second_process_ends_soon_after_the_first_was_killed(tmp_path: Path) -> None:
    words = [*LONG, "--out", str(tmp_path / "run")]
    start = START.format(paths=[str(Path(demonstration.__file__).parents[1])], words=words)
    with subprocess.Popen(
        [sys.executable, "-c", start], stdout=subprocess.PIPE, text=True
    ) as first:
        while "dev loss" not in first.stdout.readline():  # type: ignore[union-attr]
            pass
        first.kill()
    time.sleep(2)
    until, log = time.monotonic() + 120, tmp_path / "run" / "log.jsonl"
    before = -1
    while log.stat().st_size != before and time.monotonic() < until:
        before = log.stat().st_size
        time.sleep(2)
    assert log.stat().st_size == before, "nobody writes into it"


@pytest.mark.slow
def test_the_real_demo_reaches_its_targets(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    environment.pop("OMP_NUM_THREADS", None)
    command = [sys.executable, "-m", "saccade", "demo", "--out", str(tmp_path / "out"), "--json"]
    ended = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=1200, check=False
    )
    assert ended.returncode == 0, ended.stderr
    figures = json.loads(ended.stdout.splitlines()[-1])
    assert figures["bleu"] >= 95
    assert figures["bleu_long"] >= figures["bleu_long_fixed_context"] + 25
    assert figures["aer"] <= 0.08
