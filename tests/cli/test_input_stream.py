"""A model at a terminal answers what is typed; in a pipe it answers lines as they come, also while the pipe stays open."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from saccade.cli import input_stream
from saccade.errors import SaccadeError

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "tests/fixtures/v0.1.0"
PROMPT = b"> "


class Talk:
    """A command whose stdin and stderr are a terminal; stdout too, unless it is a pipe."""

    def __init__(self, *words: object, piped: bool = False) -> None:
        self.ours, theirs = pty.openpty()
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "TERM": "dumb",
            "OMP_NUM_THREADS": "1",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "saccade", *map(str, words), "--device", "cpu"],
            stdin=theirs, stdout=subprocess.PIPE if piped else theirs, stderr=theirs, env=environment, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)

    def until(self, mark: bytes) -> bytes:
        """What is printed, up to a mark."""
        seen = b""
        while not seen.endswith(mark):
            if not select.select([self.ours], [], [], 300)[0]:
                raise AssertionError(f"{mark!r} never came after {seen!r}")
            try:
                seen += os.read(self.ours, 1)
            except OSError:  # the other end of the terminal is closed
                break
        return seen

    def type(self, text: bytes) -> None:
        os.write(self.ours, text)

    def end(self) -> int:
        self.until(b"no such thing")
        os.close(self.ours)
        return self.process.wait(300)


def test_translate_at_a_terminal_answers_line_by_line_until_ctrl_d() -> None:
    talk = Talk("translate", MODELS / "bahdanau")
    assert b"Ctrl-D ends" in talk.until(PROMPT)
    talk.type(b"a cat saw the zebra\n")
    answer = talk.until(PROMPT).decode()
    assert "the model has never seen" in answer
    assert "'zebra'" in answer
    assert len(answer.splitlines()) >= 4, "the echo, the note, the translation and the next prompt"
    talk.type(b"\n")
    assert b"saccade:" not in talk.until(PROMPT), "an empty line is skipped"
    talk.type(b"x" * 3000 + b"\n")
    talk.until(PROMPT)
    talk.type(b"\x04")
    assert talk.end() == 0


@pytest.mark.slow
def test_ctrl_c_at_the_prompt_ends_with_130() -> None:
    talk = Talk("translate", MODELS / "bahdanau", piped=True)
    talk.until(PROMPT)
    talk.type(b"a cat\n")
    talk.until(PROMPT)
    assert talk.process.stdout is not None
    answer = talk.process.stdout.readline()
    assert answer.strip(), "only answers are on stdout, where it is not the terminal"
    assert PROMPT not in answer
    os.kill(talk.process.pid, signal.SIGINT)
    assert b"saccade: stopped" in talk.until(b"stopped")
    assert talk.end() == 130
    assert talk.process.stdout.read() == b""
    talk.process.stdout.close()


def test_a_pipe_that_stays_open_gets_its_answers() -> None:
    command = [
        sys.executable,
        "-m",
        "saccade",
        "classify",
        str(MODELS / "classification-bag-mean"),
        "--device",
        "cpu",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in (b"a good film\n", b"a bad film\n", b"\n", b"good\n"):
            process.stdin.write(line)
            process.stdin.flush()
            assert process.stdout.readline().endswith(line), (
                "answered before the next line is written"
            )
        process.stdin.close()
        assert process.wait(300) == 0


def groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> list[tuple[int, list[str]]]:
    (tmp_path / "lines").write_bytes(content)
    with (tmp_path / "lines").open() as file:
        monkeypatch.setattr("sys.stdin", file)
        return list(input_stream.arriving())


def test_a_whole_file_comes_in_large_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"line {n}" for n in range(30_000)]
    found = groups(tmp_path, monkeypatch, "\n".join(lines).encode())
    assert [line for _, some in found for line in some] == lines
    assert [first for first, _ in found] == [
        1 + sum(len(some) for _, some in found[:n]) for n in range(len(found))
    ]
    assert len(found) <= 30_000 / input_stream.TOGETHER + 1
    monkeypatch.setattr(input_stream, "BLOCK", 7)
    monkeypatch.setattr(input_stream, "TOGETHER", 2)
    assert [
        line
        for _, some in groups(tmp_path, monkeypatch, "été\n\nune\r\nà".encode())
        for line in some
    ] == ["été", "", "une", "à"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "stdin is empty; give at least one line"),
        (b"a\n" * 9000 + b"\xe9\n", "stdin, line 9001: not UTF-8"),
        (b"a\nb\0c\n", "a NUL character"),
    ],
)
def test_lines_that_cannot_be_read_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, sentence: str
) -> None:
    with pytest.raises(SaccadeError) as error:
        groups(tmp_path, monkeypatch, content)
    assert sentence in str(error.value)
