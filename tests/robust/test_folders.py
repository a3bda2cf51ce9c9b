"""Run folders that others write to, link or damage: a sentence or the right result, never a traceback, and nobody's run is taken over."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from record import record

from saccade import api, files
from saccade.config.recipes import Recipe
from saccade.errors import SaccadeError
from saccade.files import MANIFEST, broken, sha256, verified, write_atomically, write_folder
from saccade.system.build import prepared
from saccade.training.checkpoints import Progress, RunFolder
from saccade.training.logs import read_rows
from saccade.training.loop import Watcher
from support import error_of, run_cli, tiny_recipe

QUIET = Watcher()


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda handle: None)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("finished") / "run"
    api.fit(
        tiny_recipe(training={"updates": 4, "average": 2, "evaluate_every": 2, "log_every": 1}),
        run,
        watcher=QUIET,
    )
    return run


def content(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("resume", [False, True])
def test_a_start_that_waited_takes_over_no_run(tmp_path: Path, resume: bool) -> None:
    """While one start reads its data, another one begins and finishes its run in the same folder."""
    run, kept = tmp_path / "run", dict[str, bytes]()

    def slowly(made: Recipe) -> Any:
        api.fit(tiny_recipe(seed=1), run, watcher=QUIET)
        kept.update(content(run))
        return prepared(made)

    sentence = error_of(
        lambda: api.fit(tiny_recipe(), run, resume=resume, watcher=QUIET, prepare=slowly)
    )
    assert ("was started with a different seed" if resume else "already contains a run") in sentence
    assert content(run) == kept


def test_of_two_starts_at_a_time_one_trains_and_one_is_told(tmp_path: Path) -> None:
    """Both have looked at the empty folder before either of them has it."""
    both, ended = threading.Barrier(2), list[object]()

    def meet(made: Recipe) -> Any:
        both.wait(300)
        return prepared(made)

    def start(seed: int) -> None:
        try:
            ended.append(
                api.fit(tiny_recipe(seed=seed), tmp_path / "run", watcher=QUIET, prepare=meet)[1]
            )
        except SaccadeError as error:
            ended.append(str(error))

    threads = [threading.Thread(target=start, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [told] = [one for one in ended if isinstance(one, str)]
    assert "another process is training into" in told or "already contains a run" in told
    assert sum(isinstance(one, Progress) and one.done for one in ended) == 1


@pytest.mark.parametrize("moment", ["first recipe.json", "a full disk"])
def test_a_folder_in_which_nothing_began_is_accepted_again(
    tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    ended = subprocess.Popen(["true"])
    ended.wait()
    if moment == "a full disk":
        with monkeypatch.context() as patch:
            patch.setattr(
                "os.replace",
                lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")),
            )
            assert "bytes are needed and" in error_of(
                lambda: api.fit(tiny_recipe(), run, watcher=QUIET)
            )
    else:
        run.mkdir()
        for process in (ended.pid, os.getpid()):
            (run / f".recipe.json.{process}.new").write_text('{"half')
    assert api.fit(tiny_recipe(), run, watcher=QUIET)[1].done
    assert not [path for path in run.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("name", ["last", "best"])
def test_a_link_to_another_disk_stays_a_link(tmp_path: Path, name: str) -> None:
    run, other = tmp_path / "run", tmp_path / "disk" / "there"
    short = {"updates": 3, "checkpoint_every": 1, "evaluate_every": 1}
    api.fit(tiny_recipe(training=short), run, watcher=QUIET)
    other.parent.mkdir()
    (run / name).rename(other)
    (run / name).symlink_to(other)
    api.fit(tiny_recipe(training={**short, "updates": 6}), run, resume=True, watcher=QUIET)
    assert (run / name).is_symlink()
    assert [path.name for path in other.parent.iterdir()] == ["there"]
    assert not [path for path in run.iterdir() if path.suffix in (".new", ".old")]
    assert broken(run / name) is None
    if name == "last":
        assert json.loads((other / "training.json").read_text())["update"] == 6
    # a kill between the renames, on the other disk
    files.mark(other)
    other.rename(other.with_name("there.old"))
    files.settle(run / name)
    assert broken(run / name) is None
    assert [path.name for path in other.parent.iterdir()] == ["there"]


def test_average_and_convert_accept_what_is_complete_and_equal(
    finished: Path, tmp_path: Path
) -> None:
    words = ("average", finished, finished / "last", "--out", tmp_path / "mean")
    assert run_cli(*words).code == 0
    before = content(tmp_path)
    files.mark(tmp_path / "mean")  # as a kill right after the rename leaves it
    assert run_cli(*words).code == 0
    assert content(tmp_path) == before
    RunFolder(tmp_path, api.model_files(api.load(finished))).save(
        "other", api.build(tiny_recipe(seed=5)).model
    )
    before = content(tmp_path)
    other = run_cli("average", tmp_path / "other", "--out", tmp_path / "mean")
    assert (
        other.code,
        "mean already exists, with other content; choose a new folder" in other.err,
    ) == (2, True)
    (tmp_path / "mean" / "notes.txt").write_text("mine")
    assert "mean already exists; choose a new folder" in run_cli(*words).err
    assert content(tmp_path) == {**before, "mean/notes.txt": b"mine"}


ODD: list[Any] = [None, True, -1, 1.5, "3", "", [], [1], {}, {"a": "b"}, 10**400, "\ud800"]
FIELDS = [*Progress().__dict__, "more"]


def test_odd_types_in_training_json_are_told(finished: Path, tmp_path: Path) -> None:
    """Each value of an odd type, with a manifest that agrees: a sentence, or numbers that can be computed with."""
    last, tried, failed = tmp_path / "last", 0, list[str]()
    plain = json.loads((finished / "last" / "training.json").read_text())
    wholes: list[Any] = [{**plain, name: value} for name, value in itertools.product(FIELDS, ODD)]
    for values in [*wholes, *ODD, [plain]]:
        tried += 1
        text = json.dumps(values)
        write_folder(last, {"training.json": lambda path, text=text: path.write_text(text)})  # type: ignore[misc]
        try:
            found = RunFolder(tmp_path, {}).progress()
            assert found is not None
            sums = (
                found.update
                + found.epoch
                + found.batch
                + found.tokens
                + found.seconds
                + (found.best or 0)
                + found.worse
            )
            sums += sum(found.metrics.values()) + sum(found.costs.values())
        except SaccadeError as error:
            if "training.json cannot be read" not in str(error):
                failed.append(f"{values}: {error}")
        except Exception as error:
            failed.append(f"{values}: {type(error).__name__} {error}")
    record("odd types in training.json", tried, len(failed), failed[:5])
    assert failed == []


LOGS = ['{"update": "3"}', '{"update": null, "loss": 1}', "[1]", "3", "[" * 3000, '{"update": 2, "loss": "low"}', '{"update": 1, "dev_loss": {}}',
        '{"update": [1]}', '{"update": 1e400}', '{"loss": 2}', '{"update": 1, "dev_x": null}', "\x00", '{"update": true}']  # fmt: skip


def test_odd_rows_in_a_log_are_left_out_by_training_and_report(
    finished: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    subprocess.run(["cp", "-r", finished, run], check=True)
    good = read_rows(run / "log.jsonl")
    write_atomically(run / "log.jsonl", "\n".join([*LOGS, *map(json.dumps, good), *LOGS]).encode())
    assert read_rows(run / "log.jsonl") == good
    for name in ("²", "٣٣٣٣٣٣٣٣٣", "00000000000000000000000001", "x"):
        (run / "kept" / name).mkdir()
    (run / "kept" / "000000099").write_text("a file")
    reported = run_cli("report", run, "--out", tmp_path / "report.html")
    assert reported.code == 0, reported.err
    resumed = run_cli("train", "--resume", run, "training.updates=6")
    assert resumed.code == 0, resumed.err
    rows = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert rows[: len(good)] == good
    assert [row["update"] for row in rows if "loss" in row] == [1, 2, 3, 4, 5, 6]


def test_a_log_that_is_a_folder_is_told(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    subprocess.run(["cp", "-r", finished, run], check=True)
    (run / "log.jsonl").unlink()
    (run / "log.jsonl").mkdir()
    told = run_cli("train", "--resume", run, "training.updates=6")
    assert (told.code, "Traceback" in told.err) == (2, False)
    assert "log.jsonl" in told.err


def test_a_folder_that_is_replaced_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, texts = tmp_path / "m", itertools.count()

    def write() -> None:
        text = f"{next(texts):04d}"
        write_folder(target, {name: lambda path: path.write_text(text) for name in ("a", "b")})

    write()
    swaps = iter([True, True, True])

    def slow(path: Path) -> str:
        if path.name == "a" and next(swaps, False):
            with monkeypatch.context() as plain:
                plain.setattr(files, "sha256", sha256)
                write()
        return sha256(path)

    monkeypatch.setattr(files, "sha256", slow)
    assert "sha256 differs" in str(broken(target))
    assert verified(target, "folder") == target
    (target / "b").write_text("rots")
    assert "b is not what was written" in error_of(lambda: verified(target, "folder"))
    (target / MANIFEST).unlink()
    assert f"it has no {MANIFEST}" in error_of(lambda: verified(target, "folder"))


WRITER = """
import sys, itertools
from pathlib import Path
from saccade import api
from saccade.training.checkpoints import RunFolder
run = Path(sys.argv[1])
made = api.load(run / "best")
folder = RunFolder(run, api.model_files(made))
print("ready", flush=True)
for _ in itertools.count():
    for parameter in made.model.parameters():
        parameter.data.add_(1e-6)
    folder.save("best", made.model)
"""


@pytest.mark.robust
def test_readers_beside_a_training_that_writes_all_the_time(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    subprocess.run(["cp", "-r", finished, run], check=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(run)], env=environment, stdout=subprocess.PIPE
    )
    failed: list[str] = []
    try:
        assert writer.stdout is not None
        writer.stdout.readline()
        for _ in range(1000):
            try:
                api.load(run, "cpu")
            except Exception as error:
                failed.append(f"{type(error).__name__}: {error}")
        assert writer.poll() is None
    finally:
        writer.kill()
        writer.communicate()
    record("readers beside a writing training", 1000, len(failed), failed[:5])
    assert failed == []
