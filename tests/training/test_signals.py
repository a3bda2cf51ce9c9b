"""What a training does at each signal: end with a checkpoint, or write one and continue; and nothing is lost while one is written."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from saccade.files import broken
from saccade.training import signals as stopping
from saccade.training.checkpoints import Progress, RunFolder
from saccade.training.loop import Watcher
from saccade.training.signals import Stopped, stop_on_signals


class Signal(Watcher):
    """Sends this process signals after an update, and keeps the notes."""

    def __init__(self, update: int, *numbers: int) -> None:
        self.at, self.numbers, self.notes = update, numbers, list[str]()

    def update(self, at: Progress, row: dict[str, float]) -> None:
        if at.update == self.at:
            for number in self.numbers:
                os.kill(os.getpid(), number)

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def checkpoints(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The updates at which a checkpoint was written."""
    found: list[int] = []
    plain = RunFolder.save_last

    def save(
        self: RunFolder,
        kind: str,
        ranks: Any,
        model: Any,
        optimizer: Any,
        at: Progress,
        carried: Any,
    ) -> None:
        found.append(at.update)
        plain(self, kind, ranks, model, optimizer, at, carried)

    monkeypatch.setattr(RunFolder, "save_last", save)
    return found


def test_a_closed_terminal_ends_a_run_as_sigterm_does(stage: Any) -> None:
    before = signal.getsignal(signal.SIGHUP)
    stage.training("whole").run()
    with pytest.raises(
        Stopped, match="stopped by SIGHUP after update 7; a checkpoint was written"
    ) as stopped:
        stage.training("run", watcher=Signal(7, signal.SIGHUP), checkpoint_every=1000).run()
    assert stopped.value.code == 129
    assert signal.getsignal(signal.SIGHUP) is before
    stage.training("run").run()
    assert stage.same("whole", "run")


def test_a_run_under_nohup_takes_no_notice_of_a_closed_terminal(
    stage: Any, checkpoints: list[int]
) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert (
            stage.training("run", watcher=Signal(7, signal.SIGHUP), checkpoint_every=1000)
            .run()
            .done
        )
    finally:
        signal.signal(signal.SIGHUP, before)
    assert checkpoints == [12]


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGXCPU])
def test_a_warning_of_the_cluster_gets_a_checkpoint_and_the_run_goes_on(
    stage: Any, checkpoints: list[int], number: signal.Signals
) -> None:
    watcher = Signal(5, number)
    assert stage.training("run", watcher=watcher, checkpoint_every=1000).run().done
    assert checkpoints == [5, 12]
    assert f"{number.name}: writing a checkpoint after this update, and continuing" in watcher.notes
    stage.training("whole").run()
    assert stage.same("whole", "run")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_second_signal_while_the_checkpoint_is_written_does_not_lose_it(
    stage: Any, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Sent in the middle of the files; without the guard, SIGTERM ends this very process."""
    safe = signal.signal(signal.SIGTERM, lambda *_: pytest.fail("SIGTERM had its usual effect"))
    training = stage.training("run", watcher=Signal(7, number), checkpoint_every=1000)
    plain = training.folder.files["config.json"]
    training.folder.files["config.json"] = lambda path: (
        plain(path),
        os.kill(os.getpid(), number),
        os.kill(os.getpid(), number),
    )
    try:
        with pytest.raises(Stopped, match="after update 7; a checkpoint was written"):
            training.run()
    finally:
        signal.signal(signal.SIGTERM, safe)
    assert broken(stage.root / "run" / "last") is None
    assert stage.training("run").folder.progress().update == 7


def test_a_second_sigterm_before_the_checkpoint_has_its_usual_effect_but_not_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[int] = []
    monkeypatch.setattr(stopping, "GRACE_SECONDS", 10**6)
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        with stop_on_signals() as signals:
            os.kill(os.getpid(), signal.SIGTERM)
            assert (list(signals), seen) == ([signal.SIGTERM], [])
            os.kill(os.getpid(), signal.SIGTERM)
            assert seen == []
            monkeypatch.setattr(stopping, "GRACE_SECONDS", 0.0)
            os.kill(os.getpid(), signal.SIGTERM)
            assert seen == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_notes_that_nobody_reads_end_no_run(tmp_path: Path) -> None:
    from saccade import api
    from saccade.training.run_printer import RunPrinter
    from support import tiny_recipe

    def gone(text: str) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    assert api.fit(tiny_recipe(), tmp_path / "run", watcher=RunPrinter("run", gone))[1].done
