"""Commands on hostile files, each in a process of its own, with its time, its memory and what it opened: `with Attempts() as attempts`.

One process imports saccade once and forks for each attempt, so that thousands of attempts take minutes. Run as a program, this file is
that process: a line of JSON in, a line of JSON out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS, MEGABYTES = 10, 200  # the limits of one attempt; the memory is above the size of the files
# bytes of addresses that an attempt may take before it is stopped for the machine's sake
ROOM = 6 * 2**30
HARMLESS = ("/proc/", "/sys/", "/dev/null", "/dev/urandom", "/etc/localtime", "/usr/share/zoneinfo")


@dataclass(frozen=True)
class Outcome:
    """What one command did: its exit code (negative: the signal that ended it), what it printed, its cost and the files it opened."""

    code: int
    text: str
    seconds: float
    megabytes: float
    opened: tuple[str, ...]

    def fault(self, folder: Path) -> str:
        """What is wrong with it, whatever the folder: a crash, a hang, a traceback, too much memory, a file outside the folder."""
        size = sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir()) / 2**20
        outside = [path for path in self.opened if not Path(path).is_relative_to(folder)]
        if self.code < 0:
            return "hang" if self.code == -14 else f"crash (signal {-self.code})"
        if self.code not in (0, 2) or "Traceback" in self.text or "panicked" in self.text:
            return f"traceback: {self.text[-300:]}"
        if self.megabytes > MEGABYTES + size:
            return f"memory: {self.megabytes:.0f} MB above the start"
        if outside:
            return f"opened {outside[0]}"
        if (
            self.code == 2
            and not self.text.lstrip().startswith("saccade: ")
            and "\nsaccade: " not in self.text
        ):
            return f"no sentence: {self.text[-200:]!r}"
        return "an escape sequence is printed" if "\x1b" in self.text else ""


class Attempts:
    """A process that runs commands; `attempts.run(words)` answers with an Outcome."""

    def __enter__(self) -> Attempts:
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "PYTHONIOENCODING": "utf-8",
        }
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(timeout=300)
        self.process.stdout.close()

    def run(self, *words: object) -> Outcome:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([str(word) for word in words]) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout is not None
        facts = json.loads(self.process.stdout.readline())
        return Outcome(**{**facts, "opened": tuple(facts["opened"])})


def attempt(words: list[str], answer: int) -> None:
    """In a forked process: runs the command and writes what it did to the descriptor `answer`."""
    import resource
    import signal
    import time

    from saccade.cli import run

    opened: set[str] = set()
    packages = tuple(
        sorted(
            {
                *filter(None, sys.path),
                sys.prefix,
                sys.base_prefix,
                str(Path(__file__).parents[2] / "src"),
            }
        )
    )

    def listen(event: str, values: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(values[0], str | bytes):
            path = os.path.realpath(os.fsdecode(values[0]))
            if not path.startswith(HARMLESS) and not path.startswith(packages):
                opened.add(path)
        elif event in ("socket.connect", "subprocess.Popen", "os.system"):
            opened.add(event)

    begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (ROOM, ROOM))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(SECONDS + 2)
    sys.addaudithook(listen)
    start, code = time.perf_counter(), 1
    try:
        code = run(words)
    except BaseException:  # a traceback is what is looked for
        import traceback

        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    seconds, most = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    facts = {
        "code": code,
        "seconds": seconds,
        "megabytes": (most - begun) / 1024,
        "opened": sorted(opened),
    }
    os.write(answer, json.dumps(facts).encode())


def serve() -> None:
    """Forks for each line of stdin."""
    import contextlib
    import io
    import tempfile

    import torch._dynamo  # noqa: F401
    import typer.main

    from saccade import api, cli  # noqa: F401 – imported once, for all attempts
    from saccade.cli import attention_output, progress  # noqa: F401
    from saccade.views import selection, terminal  # noqa: F401

    cli.app = typer.main.get_command(cli.app)  # type: ignore[assignment]
    # the first call of a command imports what later ones need
    with contextlib.redirect_stderr(io.StringIO()):
        cli.run(["translate", "/nowhere", "x"])
    for line in sys.stdin:
        words, (read, write) = json.loads(line), os.pipe()
        with tempfile.TemporaryFile() as printed:
            child = os.fork()
            if not child:
                os.dup2(printed.fileno(), 1)
                os.dup2(printed.fileno(), 2)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                try:
                    attempt(words, write)
                finally:
                    os._exit(0)
            os.close(write)
            with os.fdopen(read, "rb") as answer:
                found = answer.read()
            _, status = os.waitpid(child, 0)
            printed.seek(0)
            text = printed.read(20_000).decode("utf-8", "replace")
        ended = {
            "code": -os.WTERMSIG(status) if os.WIFSIGNALED(status) else 1,
            "seconds": 0.0,
            "megabytes": 0.0,
            "opened": [],
        }
        facts = {**(json.loads(found) if found else ended), "text": text}
        sys.stdout.write(json.dumps(facts) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
