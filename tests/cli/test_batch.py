"""Many lines translated part by part: kept, continued, in order, on a cluster too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from saccade.errors import SaccadeError
from saccade.experiments import batch
from support import run_cli

ROOT = Path(__file__).parents[2]
LINES = [f"{'the ' * (n % 5)}black cat saw a dog" for n in range(23)]


@pytest.fixture
def big(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(batch, "PART", 5)
    path = tmp_path / "big.txt"
    path.write_text("\n".join(LINES) + "\n")
    return path


def test_a_file_is_written_whole_and_equals_stdout(models: Path, big: Path) -> None:
    out = big.with_name("out.txt")
    for options in ([], ["--json"], ["--align", "--beam", "2"]):
        printed = run_cli("translate", models / "run", "--input", big, *options)
        written = run_cli("translate", models / "run", "--input", big, *options, "--out", out)
        assert (written.code, written.out) == (0, "")
        assert f"{out}: 23 lines" in "".join(written.err.splitlines())
        assert len(printed.out.splitlines()) == len(LINES)
        if "--json" in options:  # log-probabilities depend on the batch in their last digits
            texts = [
                [json.loads(line)["translation"] for line in made.splitlines()]
                for made in (printed.out, out.read_text())
            ]
            assert texts[0] == texts[1]
        else:
            assert out.read_text() == printed.out
        assert sorted(path.name for path in big.parent.iterdir()) == ["big.txt", "out.txt"]
        out.unlink()


def test_a_second_run_does_what_is_missing(
    models: Path, big: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, real, done = big.with_name("out.txt"), batch.answer_texts, list[int]()
    command = ("translate", models / "run", "--input", big, "--out", out)

    def breaks(*given: Any) -> Any:
        if len(done) == 2:
            raise SaccadeError("the power went out; wait for it")
        done.append(len(given[1]))
        return real(*given)

    monkeypatch.setattr(batch, "answer_texts", breaks)
    assert run_cli(*command).code == 2
    assert not out.exists()
    parts = out.with_name("out.txt.parts")
    assert len(list(parts.glob("part-*"))) == 2
    other = run_cli(*command, "--beam", 3)
    assert other.code == 2
    assert (
        "are of another text, model or setting; remove them, or choose another --out"
        in " ".join(other.err.split())
    )
    done.clear()
    monkeypatch.setattr(
        batch, "answer_texts", lambda *given: done.append(len(given[1])) or real(*given)
    )
    assert run_cli(*command).code == 0
    assert done == [5, 5, 3]
    assert out.read_text() == run_cli("translate", models / "run", "--input", big).out
    assert not parts.exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--out", "x.txt"], "--out needs inputs; give texts, images or --input FILE"),
        (["a cat", "--out", "x.png"], "pictures and pages are drawn by `saccade show`"),
        (["a cat", "--on", "ray"], "--on ray is for many lines in a file; give --input FILE"),
        (["a cat", "--on", "rays"], "no way to run named 'rays'; did you mean 'ray'?"),
        (
            ["--input", "big.txt", "--out", "big.txt"],
            "big.txt exists already; remove it, or choose another --out",
        ),
    ],
)
def test_wrong_words(
    models: Path, big: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], sentence: str
) -> None:
    monkeypatch.chdir(big.parent)
    found = run_cli("translate", models / "run", *words)
    assert (found.code, found.out) == (2, "")
    assert sentence in " ".join(found.err.split())


def test_without_ray_it_is_named(models: Path, big: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    found = run_cli("translate", models / "run", "--input", big, "--on", "ray")
    assert (found.code, found.out) == (2, "")
    assert (
        "--on ray needs the package ray; install it with: pip install 'saccade-attention[cluster]'"
        in " ".join(found.err.split())
    )


@pytest.mark.slow
def test_a_cluster_of_two_gives_all_in_order_and_does_that_of_a_killed_worker_again(
    models: Path, big: Path
) -> None:
    """The part with the mark kills its process once; then the rest is continued, and nothing that was kept is done again."""
    pytest.importorskip("ray")
    out, marks = big.with_name("out.txt"), big.with_name("marks")
    marks.mkdir()
    script = f"""
import os, sys, signal
from pathlib import Path
from saccade.experiments import batch as bulk
bulk.PART = 5
real = bulk.answer_there

def dies_once(how, lines, folder):
    marks = Path({str(marks)!r})
    (marks / f"{{os.getpid()}}-{{len(list(marks.iterdir()))}}").touch()
    if lines[0] == {LINES[10]!r} and not (marks / "died").exists():
        (marks / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return real(how, lines, folder)

bulk.answer_there = dies_once
from saccade.cli import run
sys.exit(run(["translate", {str(models / "run")!r}, "--input", {str(big)!r}, "--out", {str(out)!r}, "--on", "ray"]))
"""
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
    }
    subprocess.run([sys.executable, "-c", script], check=True, timeout=240, cwd=big.parent, env=env)
    assert out.read_text() == run_cli("translate", models / "run", "--input", big).out
    assert (marks / "died").exists()
    calls = [path.name.partition("-")[0] for path in marks.iterdir() if path.name != "died"]
    assert len(calls) == 6  # five parts, one of them twice
    assert len(set(calls)) >= 2  # processes
    assert not out.with_name("out.txt.parts").exists()
