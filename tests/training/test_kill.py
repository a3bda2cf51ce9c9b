"""kill -9 at random moments of a real training: no checkpoint is ever unreadable, and the end is the end of a whole run, bit for bit.

The killing is done by this very file, run as a program: a fresh process that forks trainings, so that each starts at once.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from saccade import api
from saccade.files import broken, settle
from saccade.training.checkpoints import RunFolder

KILLS = 20
RECIPE: dict[str, Any] = {
    "data": {
        "train": "phrasebook:train",
        "dev": "phrasebook:dev",
        "options": {"train": 200, "dev": 20, "test": 20},
    },
    "vocabulary": {"kind": "words", "split": "punctuation", "lowercase": True},
    "model": {"family": "bahdanau", "dim": 16, "hidden": 16, "dropout": 0.1},
    "training": {
        "updates": 60,
        "tokens": 400,
        "checkpoint_every": 5,
        "evaluate_every": 20,
        "average": 2,
        "learning_rate": 0.01,
        "warmup": 10,
    },
    "device": "cpu",
}


def main(root: Path, kills: int) -> None:
    """One whole run, then runs that are killed again and again until they are done; what happened goes to stdout as JSON."""
    torch.set_num_threads(1)
    chance = random.Random(2015)
    begin = time.monotonic()
    assert wait_for(start(root / "whole")) == 0
    length = time.monotonic() - begin
    events: list[list[Any]] = []
    runs = 0
    while len(events) < kills:
        runs += 1
        run = root / f"run-{runs}"
        while not killed(run, chance.uniform(0.0, 0.5 * length), events, kills):
            pass
    print(json.dumps({"events": events, "runs": runs, "length": length}))


def killed(run: Path, delay: float, events: list[list[Any]], kills: int) -> bool:
    """One start of a run and its kill, of which there are enough at some time; whether the run has come to its end."""
    child = start(run)
    if len(events) < kills:
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
    code = wait_for(child)
    assert code in (0, -signal.SIGKILL), f"a resumed training ended with {code}"
    if code != 0:
        events.append([run.name, readable(run)])
    return code == 0


def start(run: Path) -> int:
    """A training in a process of its own."""
    child = os.fork()
    if child:
        return child
    try:
        api.fit(RECIPE, run, resume=True)
        os._exit(0)
    finally:
        os._exit(1)


def wait_for(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def readable(run: Path) -> int:
    """The update of the last checkpoint after a kill, once everything that is there has been read."""
    for inner in ("last", "best"):
        settle(run / inner)
        if (run / inner).exists():
            wrong = broken(run / inner)
            assert wrong is None, f"{run / inner}: {wrong}"
            load_file(run / inner / "model.safetensors")
    found = RunFolder(run, {}).progress()
    return found.update if found else 0


@pytest.fixture
def environment() -> dict[str, str]:
    source = str(Path(__file__).parents[2] / "src")
    return {
        **os.environ,
        "PYTHONPATH": source,
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    return {
        f"{path.name}/{name}": t
        for path in folder.glob("*.safetensors")
        for name, t in load_file(path).items()
    }


@pytest.mark.parametrize("kills", [3, KILLS])
@pytest.mark.slow
def test_kills_lose_nothing_but_the_time_since_a_checkpoint(
    tmp_path: Path, environment: dict[str, str], kills: int
) -> None:
    command = [sys.executable, __file__, str(tmp_path), str(kills)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found["events"]) == kills
    assert len({update for _, update in found["events"]}) >= min(3, kills // 3), (
        "the kills must hit trainings in different places"
    )
    for run, name in (
        (f"run-{n + 1}", which) for n in range(found["runs"]) for which in ("last", "best")
    ):
        whole, pieces = tensors(tmp_path / "whole" / name), tensors(tmp_path / run / name)
        assert whole.keys() == pieces.keys()
        assert all(torch.equal(whole[key], pieces[key]) for key in whole), (
            f"{run}/{name} differs from the whole run"
        )
        assert not list((tmp_path / run).rglob("*.new")) + list((tmp_path / run).rglob("*.old"))
        kept = [path.name for path in sorted((tmp_path / run / "kept").iterdir())]
        assert kept == ["000000040", "000000060"]
        assert all(
            torch.equal(t, tensors(tmp_path / "whole" / "kept" / one)[key])
            for one in kept
            for key, t in tensors(tmp_path / run / "kept" / one).items()
        ), f"{run}/kept differs from the whole run"
    by_run: dict[str, int] = {}
    for run, update in found["events"]:
        assert update >= by_run.get(run, 0), "a checkpoint never goes back"
        by_run[run] = update
    rows = [
        json.loads(line) for line in (tmp_path / "run-1" / "log.jsonl").read_text().splitlines()
    ]
    assert [row["update"] for row in rows if "loss" in row] == list(range(10, 61, 10))


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)],
)
def test_a_signal_ends_the_command_with_a_checkpoint_and_its_code(
    tmp_path: Path, environment: dict[str, str], number: int, code: int
) -> None:
    recipe = tmp_path / "recipe.json"
    endless = {
        **RECIPE,
        "training": {
            "updates": 10**6,
            "log_every": 1,
            "checkpoint_every": 10**6,
            "evaluate_every": 10**6,
        },
    }
    recipe.write_text(json.dumps(endless))
    command = [
        sys.executable,
        "-m",
        "saccade",
        "train",
        str(recipe),
        "--out",
        str(tmp_path / "run"),
    ]
    process = subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    log = tmp_path / "run" / "log.jsonl"
    until = time.monotonic() + 300
    while time.monotonic() < until and not (log.exists() and log.read_text().count("\n") >= 3):
        time.sleep(0.05)
    process.send_signal(number)
    said, told = process.communicate(timeout=300)
    assert process.returncode == code, told
    last = told.strip().splitlines()[-1]
    assert last.startswith(f"saccade: stopped by {signal.Signals(number).name} after update ")
    assert last.endswith(
        f"; a checkpoint was written, continue with saccade train --resume {tmp_path / 'run'}"
    )
    again = "press Ctrl-C again" if number == signal.SIGINT else "send SIGTERM again"
    assert (
        f"run: stopping after this update; {again} to stop at once, with the last checkpoint\n"
        in told
    )
    assert "Traceback" not in told
    assert said == ""
    kept = json.loads((tmp_path / "run" / "last" / "training.json").read_text())
    assert kept["update"] == int(last.split("after update ")[1].split(";")[0]) >= 3


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
