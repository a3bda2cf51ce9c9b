"""A disk that fails at every single call of a training, of `average` and of `convert`; needs a C compiler for the shim.

Run as a program under the shim, it forks a process for each fault, so that each starts at once, and prints what failed as JSON.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
COUNT, KILL_BEFORE, KILL_HALF, KILL_AFTER, FAIL_ONCE, FAIL_ON = range(6)
FAULTS = {
    "kill": [(kind, 0) for kind in (KILL_BEFORE, KILL_HALF, KILL_AFTER)],
    "full": [(FAIL_ONCE, errno.ENOSPC), (FAIL_ON, errno.ENOSPC)],
    "broken": [(FAIL_ONCE, errno.EIO)],
}
SENTENCE = 7  # the exit code of a process that ended with a sentence
ROOM = re.compile(r"[\d,]+ bytes are needed and [\d,]+ are free")


def build(folder: Path) -> Path | None:
    """The shim, or None where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        return None
    made = folder / "shim.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", str(HERE / "shim.c"), "-o", str(made), "-ldl"],
        check=True,
        timeout=300,
    )
    return made


def attack(shim: Path, work: str, fault: str, every: int, timeout: float = 600) -> dict[str, Any]:
    """Runs this file under the shim: each `every`-th call of the work fails once in each way."""
    environment = {
        **os.environ,
        "LD_PRELOAD": str(shim),
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, work, fault, str(every), folder]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=timeout, check=False
        )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


class Program:
    """What is attacked: `work` in a folder, and what must be there in the end."""

    def __init__(self, name: str, root: Path) -> None:
        from trainings import cases, changed, left

        from saccade import api
        from saccade.training.checkpoints import convert
        from saccade.training.loop import Watcher

        made = changed(
            cases()["language-carry"],
            {
                "updates": 4,
                "checkpoint_every": 2,
                "evaluate_every": 2,
                "average": 2,
                "log_every": 1,
            },
        )
        sharded = changed(made, {"checkpoint": "sharded"})
        self.name = name
        if name != "train":
            api.fit(sharded if name == "convert" else made, root / "given", watcher=Watcher())

        def train(folder: Path) -> None:
            api.fit(made, folder, resume=(folder / "recipe.json").exists(), watcher=Watcher())

        others: dict[str, Callable[[Path], object]] = {
            "average": lambda folder: api.average(
                [root / "given", root / "given" / "last"], folder
            ),
            "convert": lambda folder: convert(root / "given", folder),
        }
        self.work = others.get(name, train)
        self.left: Callable[[Path], dict[str, Any]] = left if name == "train" else hashes


def hashes(folder: Path) -> dict[str, Any]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def is_torn(path: Path) -> bool:
    """Whether what was being written is not whole, or is there beside what it was to replace."""
    from saccade.files import broken

    return (
        path.with_name(path.name.removesuffix(".new")).exists()
        or not path.is_dir()
        or broken(path) is not None
    )


def main(name: str, fault: str, every: int, root: Path) -> None:
    import torch
    from trainings import differences, hurry

    from saccade.errors import SaccadeError

    torch.set_num_threads(1)
    hurry(reports=name == "train")
    program, library = Program(name, root), ctypes.CDLL(None)

    def run(folder: Path, number: int, kind: int, code: int) -> tuple[int, str]:
        """The work in a process of its own, with its fault; its exit code, and its sentence or the number of its calls."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            ended, text = 1, ""
            os.close(reader)
            try:
                library.fault_arm(str(folder).encode(), ctypes.c_long(number), kind, code)
                program.work(folder)
                ended, text = 0, str(library.fault_seen())
            except SaccadeError as error:
                ended, text = SENTENCE, str(error)
            except BaseException as error:
                text = f"{type(error).__name__}: {error}"
            library.fault_disarm()
            os.write(writer, text.encode())
            os._exit(ended)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            said = pipe.read().decode()
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said

    program.work(root / "warm" / "x")
    code, calls = run(root / "whole" / "x", -1, COUNT, 0)
    assert code == 0, calls
    whole = program.left(root / "whole" / "x")
    tried, failed = 0, Counter[str]()
    examples: dict[str, str] = {}

    def fail(what: str, where: str) -> None:
        failed[what] += 1
        examples.setdefault(what, where)

    for kind, error in FAULTS[fault]:
        for number in range(0, int(calls), every):
            tried += 1
            folder = root / f"{kind}-{error}-{number}" / "x"
            folder.parent.mkdir()
            where = f"call {number} of {calls}, fault {kind}"
            code, said = run(folder, number, kind, error)
            if code == 1:
                fail("traceback", f"{where}: {said}")
            if code == SENTENCE and str(folder) not in said:
                fail("no path in the sentence", f"{where}: {said}")
            if code == SENTENCE and error == errno.ENOSPC and not ROOM.search(said):
                fail("no bytes in the sentence", f"{where}: {said}")
            # a disk that takes no second rename leaves a complete new folder and no target: that one is not torn, and is found again
            if error and (torn := [path for path in folder.parent.rglob("*.new") if is_torn(path)]):
                fail(
                    "torn folders or files left",
                    f"{where}: {[str(path.relative_to(folder.parent)) for path in torn]}",
                )
            code, said = run(folder, -1, COUNT, 0)
            if code != 0:
                fail("not accepted again", f"{where}: {said}")
            elif wrong := differences(whole, program.left(folder)):
                fail("another result", f"{where}: {wrong[:5]}")
            elif rest := [*folder.parent.rglob("*.new"), *folder.parent.rglob("*.old")]:
                fail("leftovers", f"{where}: {[path.name for path in rest]}")
            shutil.rmtree(folder.parent)
    print(
        json.dumps(
            {"tried": tried, "calls": int(calls), "failed": dict(failed), "examples": examples}
        )
    )


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
