"""Check that the resident memory of commands on large files stops growing after a thousand lines.

Writes benchmarks/results/memory.json.

    python benchmarks/memory.py [--lines 100000]

Models are tiny and untrained: it is the reading, splitting and printing that is measured.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from saccade.experiments.results import Table

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "robust"))
from hostile_cases import make_folders  # noqa: E402 – the same small models

COMMANDS = {
    "translate": ("words", ["--input", "{}", "--max-length", "5"]),
    "classify": ("labels", ["--input", "{}"]),
    "tag": ("tags", ["{}"]),
}


def watch(command: list[str], lines: int) -> dict[str, Any]:
    """Runs a command and follows its resident memory, by the lines it has printed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    )
    assert process.stdout is not None
    early, most, count, begun = 0.0, 0.0, 0, time.perf_counter()
    for line in process.stdout:
        count += line.startswith((b"#", b"1\t")) if command[3] == "tag" else 1
        if count % 250 == 0:
            pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
            now = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
            early = max(early, now) if count <= 2000 else early
            most = max(most, now)
    code = process.wait()
    seconds = time.perf_counter() - begun
    return {
        "lines": lines,
        "code": code,
        "mb_after_2000": round(early, 1),
        "mb_most": round(most, 1),
        "seconds": round(seconds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=100_000)
    lines = parser.parse_args().lines
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        good, path, found = make_folders(root), root / "in.txt", {}
        with path.open("w", encoding="utf-8") as file:
            for n in range(lines):
                file.write(f"the cat {'saw ' * (n % 4)}a dog\n")
        for verb, (kind, rest) in COMMANDS.items():
            words = [word.format(path) for word in rest]
            found[verb] = watch(
                [sys.executable, "-m", "saccade", verb, str(good[kind]), *words], lines
            )
            print(verb, found[verb], flush=True)
    notes = "resident memory of commands on a large file, by benchmarks/memory.py"
    Table("memory", found, notes=notes).write()


if __name__ == "__main__":
    main()
