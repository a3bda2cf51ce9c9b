"""Every task and objective, ended at any moment and resumed: the end is that of a whole run, bit for bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import trainings
from record import record
from trainings import HAPPENINGS, cases, changed, differences, left

from saccade import api, tasks
from saccade.tasks import objectives
from saccade.training.checkpoints import Progress
from saccade.training.loop import Watcher

KILLS = 9  # of each task in each of six ways: 54
CASES = sorted(cases())
# one way for each of some, all ways among them
SAMPLE = [
    ("language-carry", "epochs"),
    ("language-carry-xl", "accumulate"),
    ("language-masked", "average"),
    ("image-classification", "kill"),
    ("tagging", "patience"),
]


class Break(Exception):
    """Stands for a process that dies."""


class BreakAt(Watcher):
    def __init__(self, update: int) -> None:
        self.at = update

    def update(self, at: Progress, row: dict[str, float]) -> None:
        if at.update == self.at:
            raise Break


def test_every_task_and_objective_of_the_catalogue_is_attacked() -> None:
    named = {made["task"] for made in cases().values()}
    assert named == set(tasks.table.names())
    asked = {
        made["language"].get("objective", "causal")
        for made in cases().values()
        if "language" in made
    }
    assert asked == set(objectives.table.names())


@pytest.mark.parametrize(("case", "happening"), SAMPLE)
def test_a_sample_resumes_bit_for_bit(
    case: str, happening: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.fsync", lambda handle: None)
    made = changed(cases()[case], {**HAPPENINGS[happening][0], "updates": 10})
    ended = api.fit(made, tmp_path / "whole", watcher=Watcher())[1].update
    for update in (ended // 2, ended):
        with pytest.raises(Break):
            api.fit(made, tmp_path / "run", resume=True, watcher=BreakAt(update))
    api.fit(made, tmp_path / "run", resume=True, watcher=Watcher())
    assert differences(left(tmp_path / "whole"), left(tmp_path / "run")) == []


@pytest.mark.robust
@pytest.mark.parametrize("happening", HAPPENINGS)
@pytest.mark.parametrize("case", CASES)
def test_kills_at_random_moments_change_nothing(case: str, happening: str, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    command = [sys.executable, trainings.__file__, case, happening, str(KILLS), str(tmp_path)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    record(f"killed and resumed: {case}", found["kills"], len(found["failed"]))
    assert found["failed"] == []
