"""`python tests/mutants/run.py`: does a test fail when one line of the package is wrong? The answer goes to benchmarks/results/mutants.json.

Each mutant of mutants.toml replaces one piece of text in a copy of the checkout and runs the tests that should notice. A run that was
stopped continues where it was; a mutant runs again when its file, its tests or its text changed. The list is written by hand: a
generator of mutants makes thousands for this package, each of which costs seconds to minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import importlib.util
import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest

ROOT = Path(__file__).parents[2]
MUTANTS, STATE = Path(__file__).with_name("mutants.toml"), ROOT / ".mutants.jsonl"
NEEDED = 0.95  # the share of mutants that must be killed
TIMEOUT_SECONDS = 300.0
SECONDS = 25.0  # of a mutant, for the estimate before the first one has run
OPTIONS = [
    "-x",
    "-q",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "--tb=no",
    "-rfE",
    "-W",
    "ignore:Module already imported",
]


@dataclass(frozen=True)
class Mutant:
    """One wrong line: `old` occurs once in `file` (below src/saccade) and becomes `new`; `why` says what is wrong then."""

    file: str
    old: str
    new: str
    why: str
    tests: tuple[str, ...]  # below tests/, files or single tests
    survives: str = ""  # why no test can notice

    @property
    def group(self) -> str:
        return self.file.partition("/")[0]

    @property
    def name(self) -> str:
        return f"{self.file}: {self.why}"

    def fingerprint(self, root: Path) -> str:
        """Changes when the mutant, its file or its tests change."""
        texts = [
            root / "src/saccade" / self.file,
            *(root / "tests" / one.partition("::")[0] for one in self.tests),
        ]
        parts = [
            self.file,
            self.old,
            self.new,
            *self.tests,
            *(path.read_text(encoding="utf-8") for path in texts),
        ]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def read_mutants(path: Path = MUTANTS) -> list[Mutant]:
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    return [Mutant(**{**row, "tests": tuple(row["tests"])}) for row in rows]


def find_mistakes(mutants: Iterable[Mutant], root: Path) -> list[str]:
    """One sentence for each mutant that cannot be applied, or whose tests do not exist."""
    found, names = [], set[str]()
    for one in mutants:
        source = root / "src/saccade" / one.file
        count = source.read_text(encoding="utf-8").count(one.old) if source.exists() else 0
        if count != 1:
            found.append(
                f"{one.name}: `{one.old}` occurs {count} times in its file, expected once; correct it in mutants.toml"
            )
        if one.old == one.new or one.name in names:
            found.append(
                f"{one.name}: the mutant changes nothing or is listed twice; correct it in mutants.toml"
            )
        names.add(one.name)
        for test in one.tests:
            if not (root / "tests" / test.partition("::")[0]).exists():
                found.append(
                    f"{one.name}: tests/{test} does not exist; name the tests that should fail"
                )
    return found


def copy_checkout(root: Path, folder: Path) -> None:
    """All files that git knows or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "-coz", "--exclude-standard"], cwd=root, capture_output=True, check=True
    ).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (root / name).is_file():  # a deleted file is listed until the next commit
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name)


def preload() -> None:
    """Imports what every test imports, but not saccade: each run of tests is a fork of this process and need not do it again."""
    os.environ.update(OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
    os.environ.pop("PYTEST_ADDOPTS", None)
    runpy.run_path(str(ROOT / "tests/conftest.py"))  # which imports torch as the tests want it
    for name in (
        "_pytest.assertion.rewrite",
        "_pytest.junitxml",
        "safetensors.torch",
        "tokenizers",
        "rich.console",
        "typer",
    ):
        importlib.import_module(name)


def run_tests(folder: Path, tests: Iterable[str], seconds: float) -> tuple[int | None, str]:
    """The exit code of pytest, None after a timeout, and what it printed. All processes that it started are ended."""
    sys.stdout.flush()
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        child = os.fork()
        if not child:
            become_pytest(folder, tests, output.fileno())
        code, end = None, time.monotonic() + seconds
        try:
            while code is None and time.monotonic() < end:
                done, status = os.waitpid(child, os.WNOHANG)
                code = os.waitstatus_to_exitcode(status) if done else None
                time.sleep(0.05)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            if code is None:
                os.waitpid(child, 0)
        output.seek(0)
        return code, output.read()


def become_pytest(folder: Path, tests: Iterable[str], output: int) -> NoReturn:
    code = 3  # pytest's own code for an error that is not a test's
    try:
        os.setsid()
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ["PYTHONPATH"] = str(folder / "src")
        sys.path.insert(0, str(folder / "src"))
        found = importlib.util.find_spec("saccade")
        if found is None or not str(found.origin).startswith(str(folder)):
            sys.exit(f"expected saccade from {folder}, found {found and found.origin}")
        code = int(pytest.main([*OPTIONS, *(f"tests/{test}" for test in tests)]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def try_mutant(one: Mutant, folder: Path, seconds: float) -> dict[str, Any]:
    """Applies a mutant in the copy, runs its tests and takes it back."""
    source = folder / "src/saccade" / one.file
    text, began = source.read_text(encoding="utf-8"), time.monotonic()
    try:
        write_source(source, text.replace(one.old, one.new))
        code, printed = run_tests(folder, one.tests, seconds)
    finally:
        write_source(source, text)
    if code not in (None, 0, 1, 2) and code >= 0:  # 2: a test file could not be imported
        sys.exit(f"pytest ended with {code} for the mutant {one.name}:\n{printed}")
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", printed, re.MULTILINE)
    by = (
        f"no end after {seconds:g} s"
        if code is None
        else failed[1]
        if failed
        else f"the exit code {code} of pytest"
    )
    return {
        "result": "survived" if code == 0 else "killed",
        "by": "" if code == 0 else by,
        "seconds": round(time.monotonic() - began),
    }


def write_source(path: Path, text: str) -> None:
    """Without compiled code of another text, which Python knows by size and second alone."""
    path.write_text(text, encoding="utf-8")
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


def known_results(state: Path, results: Path) -> dict[str, dict[str, Any]]:
    """Fingerprint → what was found, from the last result file and from runs that were stopped."""
    rows = (
        json.loads(results.read_text(encoding="utf-8"))["rows"]["mutants"]["each"]
        if results.exists()
        else []
    )
    if state.exists():
        rows += [json.loads(line) for line in state.read_text(encoding="utf-8").splitlines()]
    return {row["fingerprint"]: row for row in rows}


def summarize(mutants: Iterable[Mutant], rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Counts of each group and of all, and a row for each mutant."""
    groups: dict[str, dict[str, int]] = {}
    each = []
    for one, row in zip(mutants, rows, strict=True):
        for name in (one.group, "all"):
            counts = groups.setdefault(name, {"mutants": 0, "killed": 0, "survived": 0})
            counts["mutants"] += 1
            counts[row["result"]] += 1
        what = {"file": one.file, "change": f"{one.old} → {one.new}", "why": one.why}
        reason = {"survives": one.survives} if one.survives else {}
        each.append(
            {
                **what,
                **reason,
                **{key: row[key] for key in ("result", "by", "seconds", "fingerprint")},
            }
        )
    whole = groups.pop("all")
    return {
        **whole,
        "share_killed": round(whole["killed"] / whole["mutants"], 4),
        "groups": groups,
        "each": each,
    }


def find_faults(figures: dict[str, Any]) -> list[str]:
    """Why the result is not good enough: sentences."""
    found = []
    for row in figures["each"]:
        if row["result"] == "survived" and "survives" not in row:
            found.append(
                f"{row['file']}: no test fails when {row['why']} (`{row['change']}`); write one, or say in `survives` why"
            )
        if row["result"] == "killed" and "survives" in row:
            found.append(
                f"{row['file']}: {row['by']} fails when {row['why']}; remove `survives` from this mutant"
            )
    if figures["share_killed"] < NEEDED:
        found.append(
            f"{figures['share_killed']:.1%} of the mutants were killed, expected {NEEDED:.0%} or more"
        )
    return found


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument(
        "--only",
        default="",
        help="run the mutants whose file or text contains this, and write no result",
    )
    asked.add_argument("--fresh", action="store_true", help="run all mutants again")
    asked.add_argument(
        "--timeout",
        type=float,
        default=TIMEOUT_SECONDS,
        help="seconds after which a mutant counts as killed",
    )
    given = asked.parse_args()
    every, results = read_mutants(), ROOT / "benchmarks/results/mutants.json"
    if mistakes := find_mistakes(every, ROOT):
        sys.exit("\n".join(mistakes))
    preload()
    if given.fresh:
        STATE.unlink(missing_ok=True)
    known = {} if given.fresh else known_results(STATE, results)
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        folder = Path(name)
        copy_checkout(ROOT, folder)
        # of the copy: the checkout may change meanwhile
        prints = {one: one.fingerprint(folder) for one in every}
        waiting = [
            one
            for one in every
            if prints[one] not in known and (given.only in one.name or given.only in one.old)
        ]
        print(f"{len(every)} mutants, {len(waiting)} to run", flush=True)
        if waiting:
            tests = sorted({test for one in waiting for test in one.tests})
            print(f"without a mutant: {len(tests)} test files", flush=True)
            code, printed = run_tests(folder, tests, 3600.0)
            if code != 0:
                sys.exit(f"{printed}\nthe tests do not pass without a mutant; repair them first")
        began = time.monotonic()
        for n, one in enumerate(waiting):
            pace = (time.monotonic() - began) / n if n else SECONDS
            row = {"fingerprint": prints[one], **try_mutant(one, folder, given.timeout)}
            known[row["fingerprint"]] = row
            with STATE.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            left = f"about {pace * (len(waiting) - n - 1) / 60:.0f} min left"
            by = f" by {row['by']}" if row["by"] else ""
            print(
                f"{n + 1}/{len(waiting)} {row['result']}{by} in {row['seconds']} s: {one.name}; {left}",
                flush=True,
            )
    if given.only:
        return
    from saccade.experiments.results import Table

    figures = summarize(every, [known[prints[one]] for one in every])
    notes = "one wrong line each, and the tests that should fail; list: tests/mutants/mutants.toml"
    rows = {"mutants": figures, "groups": figures.pop("groups")}
    print(Table("mutants", rows, notes=notes).write(results.parent))
    STATE.unlink(missing_ok=True)
    print(f"{figures['killed']} of {figures['mutants']} mutants killed")
    if faults := find_faults(figures):
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
