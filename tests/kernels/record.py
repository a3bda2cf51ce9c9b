"""`python tests/kernels/record.py`: the tests of all kernels, on a GPU those of whole models too, in several processes (pytest alone is needed); the
counts go to benchmarks/results/kernels-gpu.json, or kernels-interpreter.json where Triton's interpreter runs them."""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "slow or not slow"]
CUDA = ["tests/core/test_cuda.py", "tests/models/test_models_cuda.py"]


def collect(paths: list[str]) -> list[str]:
    """The names of all tests; of a file that cannot be read, an error."""
    found = subprocess.run(
        [*PYTEST, "--collect-only", *paths], capture_output=True, text=True, cwd=ROOT, check=False
    )
    if found.returncode:
        sys.exit(found.stdout + found.stderr)
    return [line for line in found.stdout.splitlines() if "::" in line]


def run(tests: list[str], jobs: int, folder: Path) -> tuple[dict[str, int], str]:
    """How many passed, failed and were skipped, and what was printed of those that failed."""
    started = []
    for n in range(jobs):
        names, log = folder / f"names-{n}", folder / f"log-{n}"
        names.write_text("\n".join(tests[n::jobs]), encoding="utf-8")
        with open(log, "w", encoding="utf-8") as file:
            one = subprocess.Popen(
                [*PYTEST, "--show-capture=no", "-rf", f"@{names}"],
                stdout=file,
                stderr=file,
                cwd=ROOT,
            )
        started.append((one, log))
    counts, printed = {"passed": 0, "failed": 0, "skipped": 0}, ""
    for one, log in started:
        code = one.wait()
        text = log.read_text(encoding="utf-8")
        last = (text.strip().splitlines() or [""])[-1]
        for count, what in re.findall(r"(\d+) (passed|failed|error|skipped)", last):
            counts["failed" if what == "error" else what] += int(count)
        if code:
            printed += text
            # a process that broke off
            counts["failed"] += " failed" not in last and " error" not in last
    return counts, printed


def main() -> None:
    import torch

    from saccade.experiments.results import Table

    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument(
        "--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes at a time"
    )
    jobs = asked.parse_args().jobs
    if jobs < 1:
        asked.error(f"--jobs must be at least 1, got {jobs}")
    if importlib.util.find_spec("triton") is None:
        sys.exit(
            "expected Triton, which is not installed here; pip install triton (a gigabyte) runs the kernels in its interpreter"
        )
    on_gpu = torch.cuda.is_available()
    if not on_gpu:
        os.environ["TRITON_INTERPRET"] = "1"
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tests = collect(["tests/kernels", *(CUDA if on_gpu else [])])
        counts, printed = run(tests, min(jobs, len(tests)), Path(folder))
    print(printed)
    print(
        ", ".join(f"{count} {what}" for what, count in counts.items()),
        f"in {time.monotonic() - began:.0f} s",
    )
    if not counts["passed"]:
        sys.exit("no test passed, and nothing was written; what is above says why")
    name = f"kernels-{'gpu' if on_gpu else 'interpreter'}"
    notes = "kernels and what is built on them against eager and PyTorch's own operations in float64, forward and backward, random shapes"
    print(
        Table(name, {name: {"tests": len(tests), **counts}}, notes=notes).write(
            ROOT / "benchmarks/results"
        )
    )
    sys.exit(counts["failed"] > 0)


if __name__ == "__main__":
    main()
