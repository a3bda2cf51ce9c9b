"""Result files: what was measured, on what, by which command."""

from __future__ import annotations

import datetime
import json
import subprocess
from pathlib import Path

import pytest
import torch

from saccade import results
from saccade.errors import SaccadeError

KEYS = ["name", "recipe", "command", "commit", "date", "device", "versions", "seeds", "figures", "peers", "notes"]


def test_a_result_has_all_that_is_needed_to_repeat_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/somewhere/bin/saccade", "evaluate", "runs/my run", "--beam", "5"])
    metrics = {"bleu": 98.25, "aer": [0.05, 0.06]}
    path = results.write_result("a.b-1", metrics, "r.yaml", [0, 1], {"other": {"bleu": 97}}, "note é", tmp_path / "deep")
    assert path == tmp_path / "deep" / "a.b-1.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    assert list(found) == KEYS
    assert found["command"] == "saccade evaluate 'runs/my run' --beam 5"
    assert (found["seeds"], found["peers"]) == ([0, 1], {"other": {"bleu": 97}})
    assert found["figures"] == {**metrics, "bleu_cased": 98.25}, "BLEU also under the name that papers give it"
    assert (found["name"], found["recipe"], found["notes"]) == ("a.b-1", "r.yaml", "note é")
    age = datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(found["date"])
    assert datetime.timedelta(0) <= age < datetime.timedelta(minutes=5)
    assert (
        found["versions"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    )  # a package may not name its kind of build
    assert found["device"]


@pytest.mark.parametrize("argv", ["python -m saccade/__main__.py", "benchmarks/deep.py"])
def test_the_command_is_what_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: str) -> None:
    monkeypatch.setattr("sys.argv", [argv, "--quick"])
    found = json.loads(results.write_result("x", {}, folder=tmp_path).read_text())
    assert found["command"] == ("saccade --quick" if "__main__" in argv else "benchmarks/deep.py --quick")


@pytest.mark.parametrize("name", ["", "../x", "A", "a b", ".hidden", "a/b", "é"])
def test_a_name_that_is_not_a_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SaccadeError, match="cannot name a result; use lowercase letters, digits, dots and dashes"):
        results.write_result(name, {}, folder=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_metric_that_is_not_a_number_is_refused(tmp_path: Path, bad: float) -> None:
    with pytest.raises(SaccadeError, match="metrics of 'x' cannot be written"):
        results.write_result("x", {"bleu": bad}, folder=tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_commit_shows_when_the_sources_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert results.commit() == "", "outside a checkout there is none"
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("1\n")
    who = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "one"]):
        subprocess.run(["git", *words], check=True, capture_output=True)
    clean = results.commit()
    assert len(clean) == 12
    (tmp_path / "notes.txt").write_text("x")
    assert results.commit() == clean, "files beside the sources do not count"
    (tmp_path / "src" / "a.py").write_text("2\n")
    assert results.commit() == clean + "+"


def test_a_copy_gets_its_commit_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACCADE_COMMIT", "0123456789ab")
    assert results.commit() == "0123456789ab"


def test_without_git_there_is_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise FileNotFoundError("git")

    monkeypatch.setattr(subprocess, "run", missing)
    assert results.commit() == ""


def test_the_device_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert results.device().startswith("CPU: ")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    assert results.device() == "a GPU"
