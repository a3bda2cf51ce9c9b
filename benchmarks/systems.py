"""Runs every check of every system that the lectures name (`systems.yaml`) and writes what came of it.

    python benchmarks/systems.py [--only A1 G3] [--docs]

For each system its commands are run with tiny settings, the tests that check its arithmetic by pytest, and the results of its recorded runs
are looked up. It *works* when all of that is there and passes; else it is a *part*, with what is missing. Writes benchmarks/results/systems.json
and docs/systems.md; `--only` runs some and keeps what is known of the others, `--docs` runs nothing and looks up what is recorded.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import math
import re
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE, NAME = ROOT / "benchmarks/results", ROOT / "docs/systems.md", "systems"
Row = dict[str, Any]


def data() -> Any:
    return yaml.safe_load((ROOT / "benchmarks/systems.yaml").read_text(encoding="utf-8"))


def systems() -> dict[str, Row]:
    """Every system by its id; the modifications as N-name, in the order of their table."""
    from saccade.models.modifications import table

    every = data()
    found = {row["id"]: row for row in every["systems"]}
    at = list(found).index("G1")  # the table's letters are in the order of its groups
    of_n = {}
    for entry in table:
        if entry.name != "vanilla":
            filled = {key: [one.replace("{name}", entry.name) for one in value] for key, value in every["modifications"].items()}
            of_n[f"N-{entry.name}"] = {"id": f"N-{entry.name}", "what": entry.make.title, **filled}
    rows = list(found.items())
    return dict([*rows[:at], *of_n.items(), *rows[at:]])


def run_command(line: str, folder: Path, tiny: Mapping[str, list[str]]) -> str:
    """Runs a command with tiny settings; "" or what went wrong."""
    from saccade.cli import run

    files = {"FOLDER": folder / "run", "FILE": folder / "drawn.png", "PICTURE": folder / "shown.png"}
    words = [re.sub(r"(?<![^=])(FOLDER|FILE|PICTURE)$", lambda found: str(files[found[0]]), word) for word in shlex.split(line)]
    if "PICTURE" in line:
        Image.fromarray(np.random.default_rng(0).integers(0, 255, (32, 32, 3), np.uint8)).save(files["PICTURE"])
    if words[0] == "train":
        words += next((small for name, small in tiny.items() if name in words[1]), [])
        words += [] if "--out" in words else ["--out", str(folder / f"train-{time.monotonic_ns()}")]
        given = [word.partition("=")[0] for word in words]
        words = [word for n, word in enumerate(words) if "=" not in word or given[n] not in given[:n]]
        words = [
            word for word in words if not word.startswith("model.dim") or not words[1].startswith(("shapes", "karate", "graphs"))
        ]
    if words[0] == "table":
        words += ["--out", str(folder / "table")]
    errors = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
        code = run(words)
    return "" if code == 0 else f"`saccade {line}` ends with {code}: {errors.getvalue().strip().splitlines()[-1:]}"


class Outcomes:
    """Collects how tests end, by their names without parameters too."""

    def __init__(self) -> None:
        self.found: dict[str, list[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            for name in (report.nodeid, report.nodeid.partition("[")[0]):
                self.found.setdefault(name, []).append(report.outcome)


def run_tests(names: list[str]) -> dict[str, str]:
    """ "" for what passed, else what is wrong; one call of pytest for all of them."""
    outcomes = Outcomes()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.chdir(ROOT):
        pytest.main(["-q", "-p", "no:cacheprovider", "-n", "0", "--no-header", *sorted(set(names))], plugins=[outcomes])
    wrong = {}
    for name in names:
        ends = outcomes.found.get(name, [])
        bad = sorted(set(ends) - {"passed", "skipped"})
        wrong[name] = f"{name} {bad[0]}" if bad else "" if "passed" in ends else f"{name} did not run"
    return wrong


def figure_of(name: str) -> Any:
    """FILE:METRIC → its value, or one per seed; KeyError or OSError where there is none."""
    file, _, metric = name.partition(":")
    if file.endswith(".csv"):
        row, _, column = metric.partition(".")
        with (RESULTS / file).open(encoding="utf-8") as lines:
            [found] = [one for one in csv.DictReader(lines) if one["row"] == row]
        return float(found[column])
    return json.loads((RESULTS / f"{file}.json").read_text(encoding="utf-8"))["figures"][metric]


def written(name: str) -> str:
    """A recorded metric for the page: its mean, and ± over the seeds."""
    value = figure_of(name)
    if isinstance(value, dict):
        return "measured"
    values = [float(one) for one in (value if isinstance(value, list) else [value])]
    if not values or not all(map(math.isfinite, values)):
        raise ValueError(f"{name} has no finite value")
    mean = statistics.fmean(values)
    spread = f" ± {statistics.stdev(values):.2g}" if len(values) > 1 else ""
    return f"{mean:.4g}{spread}"


def check_results(row: Row) -> tuple[list[str], list[str]]:
    """What is recorded, in words, and what is missing."""
    found, wrong = [], []
    for name in row.get("results", []):
        try:
            found.append(f"{name} {written(name)}")
        except (OSError, KeyError, ValueError):
            wrong.append(f"no recorded {name}")
    for claim in row.get("shows", []):
        more, less = claim.split(" > ")
        with contextlib.suppress(OSError, KeyError):
            a, b = ([float(v) for v in (one if isinstance(one, list) else [one])] for one in map(figure_of, (more, less)))
            spread = max((statistics.stdev(one) for one in (a, b) if len(one) > 1), default=0.0)
            if statistics.fmean(a) - statistics.fmean(b) <= spread:
                wrong.append(f"not shown: {claim} ({written(more)} against {written(less)})")
    if not row.get("results") and "nothing_to_learn" not in row:
        wrong.append("no recorded run")
    return found, wrong


def check(rows: Mapping[str, Row]) -> dict[str, list[str]]:
    """Runs the commands and tests of these systems; what failed of each."""
    tests = run_tests([name for row in rows.values() for name in row["tests"]])
    tiny, found = data()["tiny"], {}
    for name, row in rows.items():
        with tempfile.TemporaryDirectory() as folder:
            failed = [one for line in row["run"] if (one := run_command(line, Path(folder), tiny))]
        found[name] = failed + [one for test in row["tests"] if (one := tests[test])]
        print(f"{name:30} {'; '.join(found[name]) or 'runs'}", file=sys.stderr)
    return found


def judge(row: Row, failed: list[str], at: str = "") -> Row:
    """The verdict: the commit that was checked, what failed, what is not recorded, and what is known to be missing."""
    recorded, missing = check_results(row)
    missing = [*failed, *missing, *([row["lacks"]] if "lacks" in row else [])]
    return {"verdict": "part" if missing else "works", "commit": at, "failed": failed, "missing": missing, "recorded": recorded}


def page(found: Mapping[str, Row]) -> str:
    """docs/systems.md."""
    rows, groups = systems(), data()["groups"]
    works = sum(one["verdict"] == "works" for one in found.values())
    lines = [
        "# The systems",
        "",
        f"Every mechanism, model, task and picture that the [lectures](lectures.md) name: {len(found)}, of which {works} work and "
        f"{len(found) - works} in part. Made by `python benchmarks/systems.py`, which runs it all: *works* means that its commands ran "
        "with tiny settings, that the tests named here, which compare its arithmetic with something independent, passed, and that a "
        "result file has what it learned in a recorded run (beside it, with ± over seeds). Pictures and checks have nothing to learn. "
        "What is missing is said.",
    ]
    for letter, title in groups.items():
        of_group = {name: row for name, row in rows.items() if name.startswith(letter) and name in found}
        lines += [
            "",
            f"## {letter}. {title}",
            "",
            "| | what | works | command | checked by | recorded |",
            "|---|---|---|---|---|---|",
        ]
        for name, row in of_group.items():
            one = found[name]
            verdict = one["verdict"] + (f": {'; '.join(one['missing'])}" if one["missing"] else "")
            commands = "<br>".join(f"`saccade {line}`" for line in row["run"])
            tests = "<br>".join(f"`{test.removeprefix('tests/')}`" for test in row["tests"])
            recorded = "<br>".join(one["recorded"]) or row.get("nothing_to_learn", "")
            cells = (name.removeprefix("N-"), row["what"], verdict, commands, tests, recorded)
            lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    from saccade.results import commit, write_result

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--docs", action="store_true")
    given = parser.parse_args()
    path, every = RESULTS / f"{NAME}.json", systems()
    known = json.loads(path.read_text(encoding="utf-8"))["figures"] if path.exists() else {}
    if unknown := [name for name in given.only if name not in every]:
        sys.exit(f"no system named {', '.join(unknown)}; expected ids such as A1 or N-geglu")
    failed = {name: one["failed"] for name, one in known.items() if name in every}
    commits = {name: one["commit"] for name, one in known.items() if name in every}
    sys.argv[1:] = []  # the file holds every system, which the program alone checks; each has the commit of its own last check
    asked = [] if given.docs else [name for name in every if not given.only or name in given.only]
    for letter in data()["groups"]:
        names = [name for name in asked if name.startswith(letter)]
        failed |= check({name: every[name] for name in names}) if names else {}
        commits |= dict.fromkeys(names, commit())
        known = {name: judge(row, failed[name], commits[name]) for name, row in every.items() if name in failed}
        if given.docs:  # the verdicts alone: what was run, when and on what stays as it was
            kept = json.loads(path.read_text(encoding="utf-8"))
            path.write_text(json.dumps({**kept, "figures": known}, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        else:
            write_result(NAME, known, folder=RESULTS)  # after each group, so that what was found stays when a run is stopped
        PAGE.write_text(page(known), encoding="utf-8")


if __name__ == "__main__":
    main()
