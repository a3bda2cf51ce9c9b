"""Stdout is stdout: with a terminal on stderr a pipe gets what it gets without one, and a terminal's width breaks no line of a result."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path

import pytest

from support import run_cli

# Several commands in one process, since each new one imports torch; what each prints is between two marks.
RUNNER = """
import json, sys
from saccade.cli import run
for line in sys.stdin.read().splitlines():
    words = json.loads(line)
    sys.stdin = open(words.pop("stdin")) if "stdin" in words else sys.stdin
    code = run(words["line"])
    sys.stdout.write(f"<<{code}>>\\n")
    sys.stdout.flush()
"""
LONG = " ".join(["the black cat saw the old dog"] * 12)


def start(
    folder: Path,
    lines: list[list[str]],
    piped: dict[int, str] | None = None,
    stdout: bool = False,
    columns: int = 40,
) -> str:
    """Stdout of these commands, run in that folder; `columns` is the width of the terminal on stderr; `stdout`: also there."""
    given = [
        {"line": line, **({"stdin": piped[n]} if piped and n in piped else {})}
        for n, line in enumerate(lines)
    ]
    source = str(Path(__file__).parents[2] / "src")
    environment = {
        **os.environ,
        "PYTHONPATH": source,
        "OMP_NUM_THREADS": "1",
        "TERM": "xterm-256color",
    }
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
        environment.pop(name, None)
    text = "\n".join(map(json.dumps, given)).encode()
    command = [sys.executable, "-c", RUNNER]
    here, there = pty.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    shown = bytearray()

    def read() -> None:
        try:
            while block := os.read(here, 1 << 16):
                shown.extend(block)
        except OSError:  # the other end is closed
            pass

    listening = threading.Thread(target=read)
    listening.start()
    kind = there if stdout else subprocess.PIPE
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=kind, stderr=there, cwd=folder, env=environment
    ) as process:
        os.close(there)
        out, _ = process.communicate(text, timeout=200)
    listening.join(timeout=300)
    os.close(here)
    assert process.returncode == 0, shown.decode()
    return shown.decode() if stdout else out.decode()


@pytest.fixture(scope="module")
def commands(
    shelf: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[list[str]], dict[int, str]]:
    """Every command that prints results, and what some of them read on stdin."""
    root = tmp_path_factory.mktemp("terminal")
    texts, recipe = root / "texts.txt", root / "short.yaml"
    texts.write_text(
        "\n".join(["the black cat", "the dog saw a [red] cat", LONG, "a horse"] * 3) + "\n"
    )
    plain = {"train": str(shelf / "reviews.tsv"), "dev": str(shelf / "reviews.tsv")}
    training = {"updates": 2, "tokens": 80, "evaluate_every": 2}
    recipe.write_text(
        json.dumps(
            {
                "task": "classification",
                "data": plain,
                "model": {"family": "bag", "dim": 4},
                "training": training,
            }
        )
    )
    run, labels, words = str(shelf / "run"), str(shelf / "labels"), str(shelf / "words")
    lines = [
        ["translate", run, LONG],
        ["translate", run, "--input", str(texts)],
        ["translate", run, "--input", str(texts), "--align"],
        ["translate", run, "--input", str(texts), "--json", "--beam", "2"],
        ["translate", run],
        ["classify", labels, LONG],
        ["classify", labels, "--input", str(texts)],
        ["tag", str(shelf / "tags"), str(shelf / "words.conllu")],
        ["generate", words, "the cat", "--limit", "60"],
        ["evaluate", run, "phrasebook:test"],
        ["evaluate", run, "phrasebook:test", "--lengths", "--json"],
        ["check", str(shelf / "text.txt")],
        ["check", "phrasebook:test"],
        ["list"],
        ["list", "masks", "--json"],
        ["explain"],
        ["explain", LONG[:60]],
        ["show", run, LONG, "--out", "x.json"],
        ["train", str(recipe), "--out", "trained"],
        ["train", str(recipe), "--out", "trained", "--resume"],
        ["compare", str(recipe), "--out", "compared"],
        ["average", run, run, "--out", "mean"],
    ]
    return lines, {4: str(texts)}


def run_here(
    folder: Path, lines: list[list[str]], piped: dict[int, str], monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """Stdout of each command in this process, where there is no terminal."""
    monkeypatch.chdir(folder)
    found = [
        run_cli(*line, stdin=Path(piped[n]).read_text() if n in piped else "")
        for n, line in enumerate(lines)
    ]
    assert [one.err for one in found if one.code] == []
    return [one.out for one in found]


def alike(text: str) -> str:
    """A text without what depends on the machine."""
    return re.sub(
        " +", " ", re.sub(r"(?m)^(seconds|updates_per_second|peak_memory_\w+) .*$", "", text)
    )


def test_a_pipe_gets_the_same_with_and_without_a_terminal(
    commands: tuple[list[list[str]], dict[int, str]],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines, piped = commands
    seen = start(tmp_path_factory.mktemp("seen"), lines, piped)
    plain = run_here(tmp_path_factory.mktemp("plain"), lines, piped, monkeypatch)
    # seconds differ from run to run, and may make the column of a table wider
    before, after = ([alike(text) for text in texts] for texts in (plain, seen.split("<<0>>\n")))
    assert after.pop() == "", "each command ends with 0"
    for line, wanted, found in zip(lines, before, after, strict=False):
        assert wanted.strip(), f"{line[0]} prints a result"
        assert found == wanted, f"{line[0]} in a terminal"
    assert "\x1b" not in seen
    translated = before[1].splitlines()
    assert len(translated) == 12
    assert before[4].splitlines() == translated, "lines on stdin"
    assert [row.split("\t")[0] for row in before[2].splitlines()] == translated
    assert [json.loads(row)["source"] for row in before[3].splitlines()][2] == LONG


@pytest.mark.slow
def test_a_terminals_width_breaks_no_line_of_an_output(
    commands: tuple[list[list[str]], dict[int, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines, _ = commands
    chosen = [0, 1, 2, 3, 6, 7, 8, 11]
    wanted = "".join(run_here(tmp_path, [lines[n] for n in chosen], {}, monkeypatch))
    shown = start(tmp_path, [lines[n] for n in chosen], stdout=True).replace("\r\n", "\n")
    for line in filter(None, wanted.split("\n")):
        assert f"{line}\n" in shown, line
    assert max(map(len, wanted.splitlines())) > 120, "some of them are wider than the terminal"


def test_the_catalogue_keeps_its_brackets(tmp_path: Path) -> None:
    rows = run_cli("list", "--json").json
    piped, wide = run_cli("list").out, start(tmp_path, [["list"]], stdout=True, columns=80)
    assert [line.split("\t") for line in piped.splitlines()] == [
        [row["slot"], row["name"], row["what"], row["paper"]] for row in rows
    ]
    bracketed = [
        word for row in rows for word in row["what"].split() if "[" in word and len(word) < 20
    ]
    assert len(bracketed) > 3
    for word in bracketed:
        assert word in wide
    lengths = [len(line.rstrip()) for line in wide.replace("\r", "").splitlines()]
    assert max(lengths) <= 100
    assert sum(lengths) / len(lengths) > 35, "a line of a terminal is used"
