"""The order of the queue, which units are paused, and what paused and stopped ones do."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from saccade.errors import SaccadeError
from saccade.experiments import runner, study_table
from saccade.experiments.study import SWEEP, Column, Job, Study

ROOT = Path(__file__).resolve().parents[1]
ROW = "{recipe: phrasebook-tagger, overrides: [training.updates=5]}"


@pytest.fixture(scope="module")
def queue() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "benchmarks_gpu_queue", ROOT / "benchmarks" / "gpu_queue.py"
    )
    assert spec is not None
    assert spec.loader is not None
    made = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    made = tmp_path / "benchmarks" / "queue"
    made.mkdir(parents=True)
    return made


def put(folder: Path, name: str, **values: Any) -> None:
    lines = "".join(f"{key}: {value}\n" for key, value in {"result": name, **values}.items())
    (folder / f"{name}.yaml").write_text(f"{lines}rows:\n  a: {ROW}\n")


@pytest.mark.slow
def test_every_experiment_of_the_queue_is_read(
    queue: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    found = queue.experiments([])
    assert len(found) == len([*(ROOT / "benchmarks" / "queue").glob("*.yaml")])
    waiting = [bool(one.waits) for one in found]
    assert waiting == sorted(waiting)


def test_value_per_minute_is_the_order_and_what_waits_comes_last(
    queue: ModuleType, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder, "dev", minutes=4, seeds=1, value=1)  # ¼ per minute
    put(folder, "long", minutes=10, seeds=3, value=6)  # ⅕
    put(folder, "short", minutes=1, seeds=2)  # ½
    put(folder, "final", minutes=1, seeds=1, value=100, needs="[dev]")
    assert [one.name for one in queue.experiments([])] == ["short", "dev", "long", "final"]
    assert queue.main(["list"]) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [line[0] for line in shown] == ["short", "dev", "long", "final"]
    assert [line[1:5] for line in shown] == [
        ["2", "0", "2", "2"],
        ["1", "0", "4", "6"],
        ["3", "0", "30", "36"],
        ["1", "0", "1", "37"],
    ]
    assert " ".join(shown[-1]).endswith("100.00, after dev")


def test_an_experiment_that_needs_an_unknown_one_is_told(queue: ModuleType, folder: Path) -> None:
    put(folder, "dev")
    put(folder, "final", needs="[dve]")
    with pytest.raises(SaccadeError, match=r"final.yaml needs 'dve'.*dev"):
        queue.experiments([])


@pytest.mark.parametrize(
    ("left", "time_left", "beyond"),
    [
        ({"a": 200.0, "b": 200.0}, 200.0, []),  # alone each takes 100
        ({"a": 200.0, "b": 200.0}, 199.0, ["b"]),
        ({"a": 90.0, "b": 600.0, "c": 90.0}, 100.0, ["b"]),  # 30, 200, 30
        ({"a": 400.0, "b": 300.0}, 100.0, ["b"]),  # none ends: one goes on
        ({"a": 400.0, "b": None}, 100.0, []),
    ],
)
def test_which_units_are_paused(
    queue: ModuleType, left: dict[str, float | None], time_left: float, beyond: list[str]
) -> None:
    assert queue.too_long(left, time_left) == beyond


def is_stopped(process: subprocess.Popen[bytes], expected: bool) -> bool:
    """A signal arrives a moment after it is sent."""
    for _ in range(200):
        found = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        if found == expected:
            break
        time.sleep(0.05)
    return found


class Process(SimpleNamespace):
    """As that of a worker."""

    def terminate(self) -> None:
        self.popen.terminate()

    def join(self, timeout: float) -> None:
        self.popen.wait(timeout)


@pytest.fixture
def sleeping() -> Iterator[list[Any]]:
    """Two workers whose jobs sleep."""
    jobs = [
        SimpleNamespace(name=name, after=(), reads=(), alone=False, done=False) for name in "ab"
    ]
    made = [subprocess.Popen(["sleep", "60"]) for _ in jobs]
    yield [
        SimpleNamespace(job=job, process=Process(pid=one.pid, popen=one))
        for job, one in zip(jobs, made, strict=True)
    ]
    for one in made:
        one.kill()
        one.wait()


def timed(queue: ModuleType, workers: list[Any], seconds: float, continues: bool = False) -> Any:
    jobs = [worker.job for worker in workers]
    made = queue.Timed(jobs, queue.Reporter([], None), time.monotonic() + seconds, continues)
    made.waiting, made.running = [], jobs
    return made


def saw(made: Any, name: str, each: float) -> None:
    """As if a training of 100 updates had made 10, each in so many seconds."""
    made.reporter.measured[name], made.reporter.totals[name] = (0.0, 0, 10 * each, 10), 100


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_a_unit_that_will_not_end_waits_for_the_others(
    queue: ModuleType, sleeping: list[Any]
) -> None:
    made, (first, last) = timed(queue, sleeping, 150), sleeping
    saw(made, "a", 1.0)  # 90 s × 1.15 are left, half of them alone
    saw(made, "b", 2.0)
    assert made.reporter.left("b") == pytest.approx(1.15 * 180)
    made.tend(sleeping)
    assert is_stopped(last.process.popen, True)
    assert not is_stopped(first.process.popen, False)
    assert made.paused == ["b"]
    assert not made.fits(first.job)  # nothing else begins meanwhile
    assert made.reporter.left("a") is None  # it is faster now
    made.tend(sleeping)
    assert made.paused == ["b"]
    first.job = None
    made.tend(sleeping)
    assert not is_stopped(last.process.popen, False)
    assert made.paused == []


def test_units_that_all_end_in_time_are_not_paused(queue: ModuleType, sleeping: list[Any]) -> None:
    made = timed(queue, sleeping, 160)
    saw(made, "a", 1.0)
    saw(made, "b", 2.0)
    made.tend(sleeping)
    assert made.paused == []


@pytest.mark.parametrize("continues", [False, True])
def test_units_that_continue_end_by_a_signal_when_time_is_up(
    queue: ModuleType, sleeping: list[Any], continues: bool
) -> None:
    made = timed(queue, sleeping, 0, continues)
    made.tend(sleeping)
    assert not made.open
    assert [worker.process.popen.poll() for worker in sleeping] == (
        [-15, -15] if continues else [None, None]
    )


def test_a_unit_too_long_for_the_time_begins_only_if_it_continues(
    queue: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, "long", minutes=10)
    monkeypatch.setattr(queue.torch.cuda, "is_available", lambda: True)
    [one] = queue.experiments([])
    for continues in (False, True):
        made = queue.Timed(one.todo, queue.Reporter([one], None), time.monotonic() + 300, continues)
        assert (made.take() is not None) is continues


def test_further_evaluations_of_a_unit_add_what_differs(
    queue: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, "plain", seeds=1)
    put(folder, "more", seeds=1, options="{beam: 2}", also="{wide: {beam: 5}}")
    plain, more = (queue.experiments([name])[0].jobs[0] for name in ("plain", "more"))
    assert "also" not in plain.settings["asked"]  # units that are done keep their names

    def measured(
        recipe: Any, run: Path, watcher: Any, data: str, options: dict[str, int], *more: Any
    ) -> tuple[dict[str, float], Any]:
        return {"bleu": 30.0 + options.get("beam", 1), "seconds": 7.0}, {}

    monkeypatch.setattr(queue.comparison, "train_and_measure", measured)
    context = queue.runner.Context()
    assert queue.train_unit(more, context)["metrics"] == {
        "bleu": 32.0,
        "seconds": 7.0,
        "wide_bleu": 35.0,
    }
    assert queue.train_unit(plain, context)["metrics"] == {"bleu": 31.0, "seconds": 7.0}


def test_minutes_are_of_a_row_a_stage_or_all(queue: ModuleType, folder: Path) -> None:
    for number, minutes in enumerate(("5", "{a: 5, train: 6}", "{b: 7, train: 5}", "{b: 7}")):
        put(folder, f"x{number}", minutes=minutes)
    assert [one.minutes(one.jobs[0]) for one in queue.experiments(["x0", "x1", "x2", "x3"])] == [
        4.0,
        5.0,
        5.0,
        5.0,
    ]


def answer(job: Job, context: runner.Context) -> dict[str, float | None]:
    """As a training: the loss of a rate is the rate's distance from 0.004; what was trained is seen in the folder."""
    job.folder.mkdir(parents=True)
    rate = (
        job.settings["training"]["learning_rate"]
        if SWEEP in job.stage
        else runner.best_rate(job)["learning_rate"]
    )
    return {
        "final_loss": None if rate > 1 else abs(rate - 0.004),
        "learning_rate": rate,
        "seconds": 1.0,
        "error": "it diverged",
    }


class Swept(Study):
    """Two rows that share the sweep of their learning rate."""

    name, main, drawn = "swept", "loss", ()
    columns = (Column("final_loss", "final loss", 3), Column("learning_rate", "learning rate"))
    honest, found = "It shows how a table travels.", ({}, "none")

    def rows(self) -> dict[str, str]:
        return {"a": "A", "b": "B"}

    def jobs(self, row: str, seeds: int) -> list[Job]:
        rates = [
            Job(
                "both",
                f"loss{SWEEP}{rate:g}",
                0,
                answer,
                {"training": {"learning_rate": rate}},
                self.out,
            )
            for rate in (0.001, 0.003, 2.0)
        ]
        return [
            Job(row, "loss", seed, answer, {"training": {}}, self.out, reads=tuple(rates))
            for seed in range(seeds)
        ]


def test_a_table_that_was_begun_on_one_machine_is_finished_on_another(
    queue: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(queue.STUDIES, "swept", Swept)
    begun = list[str]()

    def here(jobs: runner.Queue, *_: int) -> None:
        while (job := jobs.take()) and len(begun) < stop:
            begun.append(job.name)
            jobs.end(job, runner.perform(job, runner.Context()))

    monkeypatch.setattr(queue.runner, "run_side_by_side", here)
    for machine in ("first", "second", "clone"):
        (tmp_path / machine / "benchmarks" / "queue").mkdir(parents=True)
        (tmp_path / machine / "benchmarks" / "queue" / "t.yaml").write_text(
            "table: swept\nresult: t\nseeds: 2\nminutes: 1\n"
        )

    monkeypatch.chdir(tmp_path / "first")
    stop = 5  # the sweep, and two of four trainings: the third is not finished
    assert queue.main(["run", "--minutes", "60", "--out", str(tmp_path / "out")]) == 0
    assert len((tmp_path / "out" / "units.jsonl").read_text().splitlines()) == 5
    Path("benchmarks/units/t/runs/loss/unfinished").mkdir()

    monkeypatch.chdir(tmp_path / "second")
    assert queue.main(["collect", str(tmp_path / "out" / "units.jsonl")]) == 0
    assert "5 new units\nt: 2 of 7 units are open" in capsys.readouterr().out
    stop = 7
    assert queue.main(["run", "--minutes", "60"]) == 0
    assert len(set(begun)) == 7, "nothing is repeated"
    assert not Path("benchmarks/units/t/runs/both").exists(), "no model travels"
    assert queue.main(["collect"]) == 0
    rows = json.loads(Path("benchmarks/results/t.json").read_text())["rows"]
    assert rows["a"]["learning_rate"] == rows["b"]["learning_rate"] == [0.003, 0.003]
    assert rows["both"] == {"loss-rate-0.001": [0.003], "loss-rate-0.003": [0.001]}
    page = Path("benchmarks/units/t/table.md").read_text()
    assert "| final loss, stage loss | 0.001 | 0.003 | 2 |" in page
    assert "| both | 0.003 | **0.001** | – |" in page
    assert "so that another one may be better" not in page
    assert "| A | 0.001 ± 0.000 | 0.003 ± 0 |" in page

    # as committed
    shutil.copytree(
        "benchmarks/units/t/results", tmp_path / "clone" / "benchmarks" / "units" / "t" / "results"
    )
    monkeypatch.chdir(tmp_path / "clone")
    assert queue.experiments(["t"])[0].todo == []


def test_a_sweep_without_a_rate_that_works_is_told(tmp_path: Path) -> None:
    tried = Job("both", f"loss{SWEEP}2", 0, answer, {"training": {"learning_rate": 2.0}}, tmp_path)
    tried.write({"final_loss": None, "error": "the loss became nan"})
    with pytest.raises(
        SaccadeError, match="no learning rate of its sweep works; the first: the loss became nan"
    ):
        runner.best_rate(Job("a", "loss", 0, answer, {}, tmp_path, reads=(tried,)))


def test_a_table_finds_its_sets_among_what_was_packed_and_needs_no_others(
    queue: ModuleType,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("SACCADE_DATA", "SACCADE_COMMIT"):
        monkeypatch.setenv(name, "")  # so that what is set meanwhile is undone
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(queue.runner, "run_side_by_side", lambda *_: None)
    (folder / "t.yaml").write_text("table: positions\nscale: small\nresult: t\nonly: [rotary]\n")
    assert queue.main(["run", "--only", "t"]) == 2
    assert "a set is missing" in capsys.readouterr().err
    for name in ("train", "valid"):
        path = queue.PACKED / "data" / "wikitext-2" / f"{name}.txt.xz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (queue.PACKED / "commit").write_text("abc\n")
    assert queue.main(["run", "--only", "t"]) == 0
    assert "6 not started" in capsys.readouterr().out


def test_a_rate_at_the_edge_of_a_sweep_is_told(tmp_path: Path) -> None:
    rates = {0.001: 2.0, 0.002: 1.5, 0.004: 1.25}
    results = [
        {
            "row": "both",
            "stage": f"loss{SWEEP}{rate}",
            "values": {"learning_rate": rate, "final_loss": loss},
        }
        for rate, loss in rates.items()
    ]
    *_, grid, told = study_table.sweeps(
        study_table.StudyTable("swept", {}, study=Swept("tiny", tmp_path), sweeps=results)
    )
    assert grid.endswith("| both | 2.000 | 1.500 | **1.250** |")
    assert told.endswith("another one may be better: both (loss).")
