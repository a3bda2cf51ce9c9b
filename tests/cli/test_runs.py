"""The command `runs`: run folders listed and removed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from saccade.files import held
from support import Printed, run_cli


@pytest.fixture
def folder(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`runs/one` and `runs/more/two`, two runs, and `runs/notes`, which is none."""
    monkeypatch.chdir(tmp_path)
    for name in ("one", "more/two"):
        shutil.copytree(models / "run", tmp_path / "runs" / name)
    (tmp_path / "runs" / "notes").mkdir()
    (tmp_path / "runs" / "notes" / "a.txt").write_text("mine")
    return tmp_path / "runs"


def is_mistake(printed: Printed) -> bool:
    return (printed.code, printed.out, printed.err.count("\n")) == (2, "", 1)


def test_runs_are_listed(folder: Path) -> None:
    printed = run_cli("runs")
    assert printed.code == 0
    lines = printed.out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["runs/more/two", "runs/one"]
    assert "translation  bahdanau  60 of 60  loss " in lines[1]
    assert run_cli("runs", "list", folder).out.count("\n") == len(lines)
    assert run_cli("runs", "runs/more", "--json").json["update"] == 60


def test_a_run_without_checkpoint_and_a_broken_one(folder: Path) -> None:
    shutil.rmtree(folder / "one" / "last")
    assert " 0 of 60 " in run_cli("runs").out
    (folder / "one" / "recipe.json").write_text("{")
    assert "runs/one is not a run folder" in run_cli("runs").err


def test_runs_are_removed_without_a_trace(folder: Path) -> None:
    printed = run_cli("runs", "remove", "runs/one", "runs/more/two", "--yes")
    assert printed.code == 0
    assert printed.out == "removed: runs/one\nremoved: runs/more/two\n"
    assert sorted(path.name for path in folder.iterdir()) == ["more", "notes"]


def test_a_person_is_asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from saccade.cli import runs

    monkeypatch.setattr(runs, "is_conversation", lambda: True)
    for answer, left in ((False, True), (True, False)):
        asked: list[str] = []
        monkeypatch.setattr(
            runs.typer, "confirm", lambda text, to=asked, reply=answer: to.append(text) or reply
        )
        assert run_cli("runs", "remove", "runs/one").code == (130 if left else 0)
        assert asked[0].startswith("runs/one: translation, ")
        assert (folder / "one").exists() == left


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("runs nowhere", "nowhere is not a folder"),
        ("runs runs/notes", "there are no runs in runs/notes"),
        ("runs runs/notes/a.txt", "runs/notes/a.txt is not a folder"),
        ("runs remove runs/one", "nobody can be asked here; add --yes"),
        ("runs remove runs/one nowhere --yes", "nowhere is not a run folder"),
        ("runs remove runs/one runs/notes --yes", "runs/notes is not a run folder"),
        ("runs remove runs --yes", "runs is not a run folder"),
        ("runs remove runs/notes/a.txt --yes", "runs/notes/a.txt is not a run folder"),
        ("runs remove runs/link --yes", "runs/link is a link"),
        ("runs remove runs/more/two --yes", "runs/more/two also contains mine.txt"),
        ("runs remove", "Missing argument 'RUN"),
    ],
)
def test_a_mistake_is_one_sentence_and_removes_nothing(
    words: str, sentence: str, folder: Path
) -> None:
    (folder / "link").symlink_to("one")
    (folder / "more" / "two" / "mine.txt").write_text("mine")
    before = sorted(folder.rglob("*"))
    printed = run_cli(*words.split())
    assert is_mistake(printed)
    assert sentence in printed.err
    assert sorted(folder.rglob("*")) == before


def test_a_run_that_is_training_is_not_removed(folder: Path) -> None:
    with held(folder / "one"):
        printed = run_cli("runs", "remove", "runs/one", "--yes")
    assert is_mistake(printed)
    assert "another process is training into runs/one" in printed.err
    assert (folder / "one" / "recipe.json").exists()
