"""Nothing that somebody made is lost: folders beside a path, a run in the way, and what a killed training left."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from saccade.files import MARK
from support import run_cli


def contents(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize("ending", [".old", ".new"])
@pytest.mark.parametrize(
    "line",
    [
        "translate {} hi",
        "evaluate {} dev",
        "show {} hi --out {}.png",
        "consolidate {} --out {}-out",
        "classify {} hi",
    ],
)
def test_a_folder_beside_a_path_stays(tmp_path: Path, line: str, ending: str) -> None:
    target, beside = tmp_path / "x", tmp_path / f"x{ending}"
    target.mkdir()
    beside.mkdir()
    (beside / "mine").write_text("mine")
    before = contents(tmp_path)
    assert run_cli(*line.format(target, target).split()).code == 2
    target.rmdir()
    assert run_cli(*line.format(target, target).split()).code == 2
    assert contents(tmp_path) == {
        path: content for path, content in before.items() if path != str(target)
    }


@pytest.mark.parametrize("ending", [".old", ".new"])
def test_a_copy_of_a_model_beside_it_stays(models: Path, tmp_path: Path, ending: str) -> None:
    """Somebody's backup, which is a whole model folder of ours: it is neither removed nor used instead of the model."""
    made, backup = tmp_path / "mean", tmp_path / f"mean{ending}"
    assert run_cli("average", models / "run", "--out", backup).code == 0
    before = contents(backup)
    assert run_cli("translate", made, "the cat").code == 2
    refused = run_cli("average", models / "run", "--out", made)
    assert refused.code == 2
    assert (
        f"{backup} is in the way, and saccade did not leave it there; move it, or choose another path"
        in refused.err
    )
    assert contents(tmp_path) == {str(backup): None, **before}


def test_what_a_killed_training_left_is_no_obstacle_and_goes(recipe: Path, tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    run = tmp_path / "run"
    run.mkdir()
    (run / f".recipe.json.{ended.pid}.new").write_text("{")
    assert run_cli("train", recipe, "--out", run, "--resume").code == 0
    assert not [path for path in run.iterdir() if path.name.startswith(".")]
    (run / f".metrics.csv.{ended.pid}.new").write_text("update")
    for name in ("last.new", "best.new", "best.old"):
        (run / name).mkdir()
        (run / name / MARK).write_text("")
        (run / name / "model.safetensors").write_text("half")
    (run / "kept").mkdir()
    (run / "kept" / "notes").mkdir()
    (run / "kept" / "notes" / "mine").write_text("mine")
    again = run_cli("train", recipe, "training.updates=6", "--out", run, "--resume")
    assert again.code == 0, again.err
    assert sorted(path.name for path in run.iterdir()) == [
        "best",
        "curves.png",
        "kept",
        "last",
        "log.jsonl",
        "metrics.csv",
        "recipe.json",
        "report.html",
        "run.json",
    ]
    assert (run / "kept" / "notes" / "mine").read_text() == "mine"


def test_a_folder_in_the_way_of_a_checkpoint_is_reported_before_the_training(
    recipe: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert run_cli("train", recipe, "--out", run).code == 0
    (run / "last.old").mkdir()
    (run / "last.old" / "mine").write_text("mine")
    refused = run_cli("train", recipe, "training.updates=6", "--out", run, "--resume")
    assert refused.code == 2
    assert f"{run}/last.old is in the way" in refused.err
    assert (run / "last.old" / "mine").read_text() == "mine"
