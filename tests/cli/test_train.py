"""Runs from the command line: resumed by their own recipe, repeated from it, watched in a terminal, stopped by Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from saccade import api
from saccade.errors import SaccadeError
from saccade.training.loop import Watcher
from support import run_cli, tiny_recipe


@pytest.fixture
def run(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of four updates, begun with a word that is easily forgotten."""
    monkeypatch.chdir(tmp_path)
    assert run_cli("train", recipe, "model.dim=10", "--out", "runs/a", "--json").code == 0
    return Path("runs/a")


def test_a_run_is_resumed_by_its_folder_alone(run: Path, recipe: Path) -> None:
    ways = (
        ("--resume", run, "training.updates=5"),
        (run, "--resume", "training.updates=6"),
        ("--resume", "--out", run, "training.updates=7"),
        (recipe, "--resume", "--out", run, "training.updates=8"),
    )
    for updates, words in enumerate(ways, 5):
        printed = run_cli("train", *words, "--json")
        assert (printed.code, printed.json["update"]) == (0, updates), printed.err
        assert f"a: resuming from update {updates - 1}" in printed.err
    assert (
        f"note: {recipe} differs from the run's own recipe in model.dim; the run's own recipe is used"
        in printed.err
    )
    assert json.loads((run / "recipe.json").read_text())["model"]["dim"] == 10


@pytest.mark.parametrize("name", ["recipe.json", "best/config.json"])
def test_a_runs_own_recipe_repeats_it_exactly(run: Path, name: str) -> None:
    assert run_cli("train", run / name, "--out", "runs/b", "--json").code == 0
    assert (run / "recipe.json").read_text() == Path("runs/b/recipe.json").read_text()
    one, other = (
        load_file(folder / "last" / "model.safetensors") for folder in (run, Path("runs/b"))
    )
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_a_model_without_a_best_one_says_so(run: Path) -> None:
    shutil.rmtree(run / "best")
    printed = run_cli("translate", run, "the cat")
    note = "note: runs/a has no best model yet; this is its last checkpoint"
    assert printed.code == 0
    assert printed.err.splitlines()[0] == note
    assert note not in run_cli("translate", run / "last", "the cat").err, "asked for by name"


def test_errors_from_python_speak_python(run: Path, tmp_path: Path) -> None:
    with pytest.raises(
        SaccadeError,
        match="already contains a run; use resume=True to continue it, or choose another out=…",
    ):
        api.fit(tiny_recipe(), run)


def test_fit_prints_lines_where_somebody_looks_and_a_silent_watcher_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(api, "reader_stream", lambda: sys.stderr)
    api.fit(tiny_recipe(), tmp_path / "mine")
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "mine: reading the data and learning the vocabulary …"
    assert all(line.startswith("mine: ") for line in told)
    assert any("update 2  dev loss" in line for line in told)
    api.fit(tiny_recipe(), tmp_path / "silent", watcher=Watcher())
    assert capsys.readouterr().err == ""


class Screen:
    """A command in a terminal of its own, and all that it wrote there."""

    def __init__(self, *words: str, folder: Path) -> None:
        master, slave = pty.openpty()
        environment = {**os.environ, "COLUMNS": "160", "TERM": "xterm", "OMP_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)
        command = [sys.executable, "-m", "saccade", *words]
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment, cwd=folder
        )
        os.close(slave)
        self.master, self.text = master, ""

    def wait_for(self, pattern: str, seconds: float = 300.0) -> None:
        until = time.monotonic() + seconds
        while not re.search(pattern, self.text):
            assert time.monotonic() < until, f"{pattern!r} never came: {self.text[-3000:]}"
            if select.select([self.master], [], [], 0.2)[0]:
                try:
                    self.text += re.sub(
                        r"\x1b\[[0-9;?]*[A-Za-z]",
                        "",
                        os.read(self.master, 65536).decode(errors="replace"),
                    )
                except OSError:  # the command has ended
                    assert re.search(pattern, self.text), self.text[-3000:]


def test_in_a_terminal_something_is_said_at_once_the_bar_moves_and_ctrl_c_is_answered(
    tmp_path: Path,
) -> None:
    endless = tiny_recipe(
        training={
            "updates": 10**6,
            "evaluate_every": 10**6,
            "checkpoint_every": 10**6,
            "log_every": 10**6,
        }
    )
    (tmp_path / "endless.yaml").write_text(json.dumps(endless))
    screen = Screen("train", "endless.yaml", "--out", "runs/mine", folder=tmp_path)
    try:
        screen.wait_for("starting")
        screen.wait_for(r"reading the data")
        screen.wait_for(
            r"mine .*\d+/1000000 loss \d+\.\d+  [\d,]+ tokens/s  [\d.]+ (s|min|h|days) left"
        )
        counts = set(re.findall(r" (\d+)/1000000 loss", screen.text))
        # with log_every a million, too
        screen.wait_for(rf" (?!({'|'.join(counts)})/)\d+/1000000 loss")
        assert " 0 tokens/s" not in screen.text
        os.kill(screen.process.pid, signal.SIGINT)
        screen.wait_for(
            "mine: stopping after this update; press Ctrl-C again to stop at once, with the last checkpoint"
        )
        screen.wait_for(
            r"saccade: stopped by SIGINT after update \d+; .*continue with .*train --resume runs/mine"
        )
        assert screen.process.wait(300) == 130
    finally:
        screen.process.kill()
        screen.process.wait()
        os.close(screen.master)
    assert (tmp_path / "runs" / "mine" / "last" / "model.safetensors").is_file()
