"""A training whose output nobody reads continues to its end: a closed pipe, a full device, a terminal that was closed."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support import tiny_recipe


def start(folder: Path, updates: int, **streams: int) -> subprocess.Popen[bytes]:
    recipe = tiny_recipe(
        training={
            "updates": updates,
            "evaluate_every": 2,
            "checkpoint_every": 10**6,
            "log_every": 1,
            "threads": 1,
        }
    )
    (folder / "recipe.yaml").write_text(json.dumps(recipe))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "saccade", "train", "recipe.yaml", "--out", "run"]
    return subprocess.Popen(command, cwd=folder, env=environment, **streams)  # type: ignore[call-overload, no-any-return]


def progress(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / "run" / "last" / "training.json").read_text())
    return found


def closed_pipe() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


@pytest.mark.parametrize(
    "kind", ["a closed pipe", pytest.param("a full device", marks=pytest.mark.robust)]
)
def test_a_training_that_nobody_listens_to_ends_as_it_should(tmp_path: Path, kind: str) -> None:
    gone = closed_pipe() if kind == "a closed pipe" else os.open("/dev/full", os.O_WRONLY)
    process = start(tmp_path, 4, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=gone)
    os.close(gone)
    assert process.wait(300) == 0
    assert progress(tmp_path)["done"] is True


@pytest.mark.robust
def test_a_closed_stdout_costs_the_last_line_alone(tmp_path: Path) -> None:
    gone = closed_pipe()
    process = start(tmp_path, 4, stdin=subprocess.DEVNULL, stdout=gone, stderr=subprocess.PIPE)
    os.close(gone)
    _, told = process.communicate(timeout=300)
    assert b"Traceback" not in told
    assert progress(tmp_path)["done"] is True


@pytest.mark.robust
def test_a_closed_terminal_leaves_a_checkpoint(tmp_path: Path) -> None:
    """The terminal takes its processes with it by SIGHUP, and can no longer be written to."""
    child, master = pty.fork()
    if child == 0:
        start(tmp_path, 10**6).wait()
        os._exit(0)
    log, until = tmp_path / "run" / "log.jsonl", time.monotonic() + 300
    while time.monotonic() < until and not (log.exists() and log.read_text().count("\n") >= 3):
        time.sleep(0.05)
        os.read(master, 65536)
    os.close(master)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while time.monotonic() < until and not (tmp_path / "run" / "last" / "training.json").exists():
        time.sleep(0.05)
    assert int(str(progress(tmp_path)["update"])) >= 3
