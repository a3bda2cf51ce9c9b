"""`saccade table`: plans, jobs that are not repeated, side by side and on a cluster, and what is written, with numbers made by hand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from saccade.experiments import forecast, runner, study_table
from saccade.experiments import study as plan
from saccade.experiments.attention_forms import for_length
from saccade.experiments.pass_costs import exponent, follow_paths, too_much
from saccade.experiments.runner import Board, Context, Interrupted, Queue, run
from saccade.experiments.study import Column, Job, Study, claim
from saccade.studies.tables import STUDIES
from saccade.training.cost import Cost
from support import error_of, run_cli

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def few_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "SENTENCES", {"train": 100, "dev": 10, "test": 10})


def answer(job: Job, context: Context) -> dict[str, float]:
    """A job that needs no training."""
    (job.out / "calls").mkdir(exist_ok=True)
    (
        job.out / "calls" / f"{job.row}-{os.getpid()}-{len(list((job.out / 'calls').iterdir()))}"
    ).touch()
    if job.settings.get("fails"):
        raise ValueError("as it should")
    if job.settings.get("dies"):
        mark = job.out / f"died-{job.row}-{len(list(job.out.glob(f'died-{job.row}-*')))}"
        if len(list(job.out.glob(f"died-{job.row}-*"))) < job.settings["dies"]:
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(job.settings.get("sleeps", 0))
    return {"loss": job.settings["loss"]}


class Small(Study):
    """Four rows with numbers made by hand."""

    name, main, drawn = "small", "loss", ("loss",)
    columns = (
        Column("loss", "final loss", 2, "loss"),
        Column("bytes", "memory (MiB)", 0, unit=2**20),
        Column("never", "never"),
    )
    paper_columns = {"loss": "paper: loss", "other": "other"}  # noqa: RUF012
    paper = "A paper"
    honest = "Four numbers show nothing."
    theirs = {"a": 1.0, "b": 2.0, "c": 2.0}  # noqa: RUF012
    found = ({}, "none")

    def rows(self) -> dict[str, str]:
        return {"a": "Row A", "b": "Row | B", "c": "Row C", "d": "Row D"}

    def in_paper(self, row: str) -> dict[str, float]:
        return {"loss": self.theirs[row]} if row in self.theirs else {}

    def jobs(self, row: str, seeds: int) -> list[Job]:
        return [Job(row, "loss", seed, answer, {"loss": 1.5}, self.out) for seed in range(seeds)]


def fill(study: Small, **rows: list[float]) -> list[Job]:
    jobs = [job for row, values in rows.items() for job in study.jobs(row, len(values))]
    for job in jobs:
        job.write({"loss": rows[job.row][job.seed], "bytes": 3 * 2**20})
    return jobs


def test_csv_and_markdown_have_means_spreads_and_the_papers_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_table, "FEWEST", 3)
    study = Small("tiny", tmp_path)
    jobs = fill(study, a=[1.0, 2.0], b=[3.0], c=[4.0])
    made = study_table.collect(
        study, [*jobs, *study.jobs("d", 1)], {study.jobs("d", 1)[0].name: "it broke"}
    )
    assert made.to_csv().splitlines() == [
        "row,title,loss,loss_spread,loss_seeds,bytes,bytes_spread,bytes_seeds,paper_loss",
        "a,Row A,1.5,0.7071067811865476,2,3.0,0.0,2,1.0",
        "b,Row | B,3.0,0.0,1,3.0,0.0,1,2.0",
        "c,Row C,4.0,0.0,1,3.0,0.0,1,2.0",
    ]
    text = study_table.page(made, 3)
    assert "|  | final loss | memory (MiB) | paper: loss |\n|---|---|---|---|" in text
    assert "| Row A | 1.50 ± 0.71 | 3 ± 0 | 1 |" in text
    assert "| Row \\| B | 3.00 | 3 | 2 |" in text
    assert "| final loss | paper: loss | +0.87 | +0.87 to +1.00 | 3 |" in text
    assert "Four numbers show nothing." in text
    assert "3 side by side" in text
    assert "- d, loss, seed 0: it broke" in text
    assert "never" not in text


def test_a_table_is_also_written_of_nothing_and_has_pictures_of_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_table, "FEWEST", 3)
    study = Small("tiny", tmp_path)
    assert study_table.write(study_table.collect(study, study.jobs("a", 1), {}), 1) == [
        "table.csv",
        "table.md",
    ]
    assert "a, loss, seed 0: not run yet" in (tmp_path / "table.md").read_text()
    fill(study, a=[1.0], b=[3.0], c=[4.0])
    files = study_table.write(study_table.collect(study, [], {}), 1)
    assert files == ["table.csv", "table.md", "loss.png", "loss-paper.png"]
    assert (tmp_path / "loss-paper.png").read_bytes().startswith(b"\x89PNG")


def test_the_plan_has_every_stage_and_the_baseline_as_many_seeds_as_the_paper(
    tmp_path: Path,
) -> None:
    study = STUDIES["modifications"]("tiny", tmp_path)
    tried = ["pre-norm, loss-rate-0.002, seed 0", "pre-norm, loss-rate-0.008, seed 0"]
    assert [job.label for job in study.plan(["vanilla", "geglu"], 2)[:2]] == tried
    assert study.plan(["vanilla"], 2)[-1].label == "word-frequencies, loss, seed 0"
    jobs = [job for job in study.plan(["vanilla", "geglu"], 2) if job.row in ("vanilla", "geglu")]
    assert {job.stage: len(job.reads) for job in jobs} == {"loss": 2, "sst2": 0, "bleu": 2}
    assert [job.label for job in jobs[:4]] == [
        "vanilla, loss, seed 0", "vanilla, sst2, seed 0", "vanilla, bleu, seed 0", "vanilla, loss, seed 1",
    ]  # fmt: skip
    assert len(jobs) == 12
    assert jobs[1].after == (jobs[0],)
    assert jobs[0].settings["model"] == {
        "family": "transformer",
        "modification": "vanilla",
        "dim": 48,
        "hidden": 192,
        "depth": 2,
        "heads": 6,
    }
    assert (
        jobs[0].settings["training"]["evaluate_every"] * 8
        == jobs[0].settings["training"]["updates"]
    )
    assert len({job.folder for job in jobs}) == 12
    small = STUDIES["modifications"]("small", tmp_path)
    assert len(small.plan(["vanilla", "geglu"], 1)) == 2 * 5 + 5 * 3 + 3 + 1, (
        "the sweep, two rows, and the control"
    )


def test_rows_with_equal_residuals_share_a_learning_rate(tmp_path: Path) -> None:
    from saccade.studies.tables.narang import kind_of

    study = STUDIES["modifications"]("small", tmp_path)
    kinds = {row: kind_of(row) for row in study.rows() if row != "word-frequencies"}
    others = {row: kind for row, kind in kinds.items() if kind != "pre-norm"}
    assert others == {
        "rezero": "rezero",
        "rezero-layer-norm": "rezero-normed",
        "rezero-rms-norm": "rezero-normed",
        "fixup": "fixup",
        "evolved": "evolved",
        "universal": "gru-gate",
        "weighted": "weighted",
    }
    rates = {
        tuple(one.name for one in job.reads)
        for job in study.plan((), 1)
        if job.stage == "loss" and job.reads
    }
    assert len(rates) == 7


@pytest.mark.slow
def test_every_recipe_of_every_table_is_a_recipe(tmp_path: Path) -> None:
    for name in ("translation", "positions", "efficient"):
        study = STUDIES[name]("tiny", tmp_path)
        assert study.rows()
        for job in study.plan((), 1):
            if "training" in job.settings:
                assert runner.recipe_of(job, 1).seed == 0


def test_changed_settings_are_another_job_and_finished_ones_are_known(tmp_path: Path) -> None:
    first, other = (Job("a", "loss", 0, answer, {"loss": value}, tmp_path) for value in (1.0, 2.0))
    assert first.name != other.name
    first.write({"loss": 1.0})
    assert (first.done, other.done) == (True, False)


@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_jobs_run_once_a_failure_stops_those_that_need_it_and_one_that_was_killed_runs_again(
    tmp_path: Path, count: int
) -> None:
    good = Job("good", "one", 0, answer, {"loss": 1, "dies": count - 1}, tmp_path)
    bad = Job("bad", "one", 0, answer, {"loss": 1, "fails": True}, tmp_path)
    needs_bad = Job("next", "two", 0, answer, {"loss": 1}, tmp_path, (bad,))
    any_of = Job("both", "two", 0, answer, {"loss": 1}, tmp_path, (good, bad), any_after=True)
    alone = Job("alone", "one", 0, answer, {"loss": 1}, tmp_path, alone=True)
    queue = Queue([needs_bad, any_of, alone, good, bad], Board())
    run(queue, count, 1, "here")
    assert queue.failed == {
        bad.name: "ValueError: as it should",
        needs_bad.name: "bad, one, seed 0 failed",
    }
    assert all(job.done for job in (good, any_of, alone))
    assert len(list((tmp_path / "calls").iterdir())) == 4 + (count - 1)


def test_a_row_whose_process_died_twice_has_failed(tmp_path: Path) -> None:
    job = Job("a", "one", 0, answer, {}, tmp_path)
    queue = Queue([job], Board())
    for _ in range(2):
        assert queue.take() is job
        queue.died(job)
    assert (queue.failed, queue.open) == ({job.name: runner.DIED}, False)


@pytest.mark.slow
def test_a_job_that_hangs_is_ended_and_the_others_run(tmp_path: Path) -> None:
    hangs = Job(
        "hangs", "one", 0, answer, {"loss": 1, "sleeps": 600}, tmp_path, alone=True, limit=1.0
    )
    other, third = (Job(row, "one", 0, answer, {"loss": 1}, tmp_path) for row in ("other", "third"))
    queue = Queue([hangs, other, third], Board())
    run(queue, 2, 1, "here")
    assert queue.failed == {hangs.name: "it took longer than 1 s and was ended"}
    assert other.done
    assert third.done


def test_nothing_runs_beside_what_is_timed(tmp_path: Path) -> None:
    plain, timed = (
        Job(row, "one", 0, answer, {"loss": 1}, tmp_path, alone=row == "timed")
        for row in ("plain", "timed")
    )
    late = Job("late", "two", 0, answer, {"loss": 1}, tmp_path, (plain,), alone=True)
    queue = Queue([plain, late, timed], Board())
    assert queue.take() is timed
    assert queue.take() is None
    queue.end(timed, "")
    assert queue.take() is plain
    assert queue.take() is None
    plain.write({"loss": 1})
    queue.end(plain, "")
    assert queue.take() is late


def test_a_clean_stop_is_an_interruption_with_the_code_of_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(job: Job, context: Context) -> str:
        raise runner.Stopped(signal.SIGTERM, 3)

    monkeypatch.setattr(runner, "perform", stopped)
    with pytest.raises(Interrupted) as found:
        run(Queue([Job("a", "one", 0, answer, {}, tmp_path)], Board()), 1, 1, "here")
    assert found.value.code == 143
    assert "continue with the same command" in str(found.value)


@pytest.mark.slow
def test_a_cluster_of_two_runs_all_rows_and_that_of_a_killed_worker_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    script = f"""
import sys
from pathlib import Path
sys.path[:0] = [{str(ROOT / "tests")!r}, {str(ROOT / "src")!r}]
from test_table_command import Board, Job, Queue, answer, run
out = Path({str(tmp_path)!r})
jobs = [Job(f"row{{n}}", "one", 0, answer, {{"loss": n, "dies": int(n == 1)}}, out) for n in range(4)]
queue = Queue(jobs, Board())
run(queue, 2, 1, "ray")
assert not queue.failed and all(job.done for job in jobs), queue.failed
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=240, cwd=tmp_path)
    assert len(list((tmp_path / "calls").iterdir())) == 5


def test_without_ray_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    sentence = error_of(
        lambda: run(Queue([Job("a", "one", 0, answer, {}, tmp_path)], Board()), 2, 1, "ray")
    )
    assert (
        sentence
        == "--on ray needs the package ray; install it with: pip install 'saccade-attention[cluster]'"
    )


def test_a_folder_is_one_tables_alone(tmp_path: Path) -> None:
    claim(tmp_path / "mine", "modifications", "tiny")
    claim(tmp_path / "mine", "modifications", "tiny")
    assert "contains the table modifications at scale tiny" in error_of(
        lambda: claim(tmp_path / "mine", "efficient", "tiny")
    )
    (tmp_path / "file").touch()
    assert "contains other files and no table" in error_of(
        lambda: claim(tmp_path, "efficient", "tiny")
    )
    assert "is a file" in error_of(lambda: claim(tmp_path / "file", "efficient", "tiny"))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["modification"], "no table named 'modification'; did you mean 'modifications'?"),
        (
            ["modifications", "--only", "vanila"],
            "has no row named 'vanila'; did you mean 'vanilla'?",
        ),
        (["modifications", "--seeds", "0"], "greater than or equal to 1"),
        (["modifications", "--jobs", "0"], "greater than or equal to 1"),
        (["modifications", "--scale", "smal"], "no scale named 'smal'; did you mean 'small'?"),
        (["modifications", "--on", "rays"], "no way to run named 'rays'; did you mean 'ray'?"),
        (["modifications", "--result", "A B"], "cannot name a result"),
    ],
)
def test_wrong_words_end_with_a_sentence_and_leave_no_folder(
    tmp_path: Path, words: list[str], sentence: str
) -> None:
    found = run_cli("table", *words, "--out", tmp_path / "out")
    assert found.code == 2
    assert sentence in " ".join(found.err.split())
    assert not (tmp_path / "out").exists()


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    found = run_cli("table", "positions", "--out", tmp_path)
    assert found.code == 2
    assert (
        "contains other files and no table; choose an empty or new folder with --out" in found.err
    )


def test_exponents_and_what_is_too_long() -> None:
    import torch

    values = {512: 9.0, 1024: 1.0, 2048: 4.0, 4096: 16.0}
    assert exponent(values, {1024, 2048, 4096}) == pytest.approx(2)
    cpu = torch.device("cpu")
    assert (
        too_much(8192, values, dict.fromkeys(values, 1.0), cpu, 60.0)
        == "8,192 tokens would take about 64 s"
    )
    assert too_much(8192, values, dict.fromkeys(values, 1.0), cpu, 65.0) == ""
    assert "GiB" in too_much(8192, values, dict.fromkeys(values, 1e15), cpu, 65.0)


@pytest.mark.parametrize(
    ("row", "layers", "sequential"),
    [
        ("full", 1, "1"),
        ("window", 2, "1"),
        ("convolution", 43, "1"),
        ("lstm", 1, "n"),
        ("linear", 1, "1"),
    ],
)
def test_paths_and_sequential_steps_are_counted_on_live_models(
    tmp_path: Path, row: str, layers: int, sequential: str
) -> None:
    """128 tokens: a window of 64 to each side needs two layers, a kernel of 7 reaches 3 further in each."""
    study = STUDIES["efficient"]("tiny", tmp_path)
    settings = study.model(row, 128, dim=16, hidden=16, heads=2, depth=1)  # type: ignore[attr-defined]
    found = follow_paths(settings, 128)
    assert (found["layers"], found["sequential"]) == (layers, sequential)


def test_a_part_that_must_know_the_length_is_given_it(tmp_path: Path) -> None:
    study = STUDIES["efficient"]("tiny", tmp_path)
    assert study.model("big-bird", 512)["mask"] == {"name": "blocks", "size": 64, "length": 512}  # type: ignore[attr-defined]
    assert study.model("window", 512)["mask"] == {"name": "window", "left": 64}  # type: ignore[attr-defined]
    assert for_length({"dim": 3}, {}, 5) == {"dim": 3}


@pytest.fixture
def tiny_table(monkeypatch: pytest.MonkeyPatch) -> None:
    from saccade.studies.tables import narang

    monkeypatch.setitem(narang.UPDATES, "tiny", {"loss": 2, "sst2": 2, "bleu": 2})
    # the real one takes seconds
    monkeypatch.setattr(forecast, "measure", lambda *_: Cost(1, 1e6, 1e-3, 2, slowest=1e-3))


@pytest.mark.slow
def test_a_stopped_table_continues_and_a_second_start_repeats_nothing(
    tmp_path: Path, tiny_table: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [
        "table",
        "modifications",
        "--only",
        "vanilla",
        "rms-norm",
        "--out",
        tmp_path / "out",
        "--json",
    ]
    real, begun = runner.perform, list[str]()

    def third_is_stopped(job: Job, context: Context) -> str:
        begun.append(job.name)
        if len(begun) == 8:  # four of the sweep, three of the first row
            raise runner.Stopped(signal.SIGINT, 2)
        return real(job, context)

    monkeypatch.setattr(runner, "perform", third_is_stopped)
    stopped = run_cli(*words)
    assert stopped.code == 130
    assert "rms-norm, loss, seed 0: not run yet" in (tmp_path / "out" / "table.md").read_text()
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "results").iterdir()}
    assert len(times) == 7
    second = run_cli(*words)
    assert (second.code, second.json["rows"], second.json["failed"]) == (0, 3, {})
    assert begun[8:] == [begun[7], *begun[9:]]
    assert len(begun) == 12
    assert all(path.stat().st_mtime_ns == time for path, time in times.items())
    third = run_cli(*words)
    assert (third.code, len(begun)) == (0, 12)
    assert "11 of them finished" in third.err
    content = json.loads(min(times).read_text())
    assert {
        "parameters",
        "operations",
        "operations_per_update",
        "updates_per_second",
        "peak_memory_process",
        "bleu",
    } <= set(content["values"])
    rows = (tmp_path / "out" / "table.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["row", "vanilla", "rms-norm", "word-frequencies"]


@pytest.mark.slow
def test_two_rows_in_processes_side_by_side(tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "saccade",
        "table",
        "positions",
        "--only",
        "none,rotary",
        "--jobs",
        "2",
        "--out",
        "out",
        "--json",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    found = subprocess.run(
        words,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
        check=True,
    )
    assert json.loads(found.stdout)["rows"] == 2
    text = (tmp_path / "out" / "table.md").read_text()
    assert "loss at 4 L" in text
    assert "rotary (in attention)" in text
