"""Check every system of the lectures (`systems.yaml`) and write the verdicts.

    python benchmarks/systems.py [--only A1 G3] [--docs] [--record --out runs/systems]

Each system's commands run with tiny settings in an empty folder, then the tests of its arithmetic;
its claims are compared with the recorded runs. A system *works* if all commands and tests pass and
all claims hold; otherwise it is a *part*, with the missing items. Writes
benchmarks/results/systems.json and docs/systems.md. `--only` checks some systems and keeps the
other verdicts, `--docs` only reads the recorded runs again, `--record` first makes the result files
of the chosen systems by their `record` commands, which resume after a stop.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import math
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import yaml
from PIL import Image

from saccade.errors import SaccadeError
from saccade.experiments.results import Table

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE, NAME = ROOT / "benchmarks/results", ROOT / "docs/systems.md", "systems"
FEWEST_SEEDS = 3
Row = dict[str, Any]


def data() -> Any:
    return yaml.safe_load((ROOT / "benchmarks/systems.yaml").read_text(encoding="utf-8"))


def systems() -> dict[str, Row]:
    """Every system by its id; the modifications as N-name, in the order of their table."""
    from saccade.models.modifications import table

    every = data()
    found = {row["id"]: row for row in every["systems"]}
    of_n, tests_of = {}, every["modifications"].pop("tests_of")
    for entry in table:
        if entry.name != "vanilla":
            filled = {
                key: [one.replace("{name}", entry.name) for one in value]
                if isinstance(value, list)
                else value
                for key, value in every["modifications"].items()
            }
            filled["tests"] += tests_of[entry.name]
            of_n[f"N-{entry.name}"] = {"id": f"N-{entry.name}", "what": entry.make.title, **filled}
    order = list(every["groups"])
    return dict(sorted([*found.items(), *of_n.items()], key=lambda item: order.index(item[0][0])))


# Claims


CLAIM = re.compile(
    r"(?P<ours>\S+:\S+) (?P<sign>[<>]) (?:(?P<theirs>\S+:\S+)|(?P<number>-?\d\S*) = (?P<reason>\S.*))"
)


@dataclass(frozen=True)
class Claim:
    """`FILE:METRIC > FILE:METRIC` (`<` where lower is better) or `FILE:METRIC > NUMBER = what the number is`."""

    ours: str
    sign: str
    theirs: str = ""
    number: float = 0.0
    reason: str = ""

    @classmethod
    def parse(cls, text: str) -> Claim:
        found = CLAIM.fullmatch(text)
        if not found:
            raise ValueError(
                f"'{text}' is not a claim; expected FILE:METRIC > FILE:METRIC or FILE:METRIC > NUMBER = REASON"
            )
        ours, sign, theirs, number, reason = found.groups()
        return cls(ours, sign, theirs or "", float(number or 0), reason or "")

    @property
    def metrics(self) -> list[str]:
        return [self.ours, *filter(None, [self.theirs])]

    def judge(self) -> tuple[bool, str]:
        """Whether it holds, and in words: both means, their standard deviations and seeds, or what is missing."""
        sides = {}
        for name in self.metrics:
            try:
                sides[name] = values_of(name)
            except (OSError, KeyError, ValueError):
                return False, f"no recorded {name}"
        ours = sides[self.ours]
        theirs = sides[self.theirs] if self.theirs else [self.number]
        gap = (statistics.fmean(ours) - statistics.fmean(theirs)) * (1 if self.sign == ">" else -1)
        few = [
            f"{name} has {len(found)} of {FEWEST_SEEDS} seeds"
            for name, found in sides.items()
            if len(found) < FEWEST_SEEDS
        ]
        spread = max(map(deviation, (ours, theirs)))
        right = (
            f"{self.theirs} {in_words(theirs)}"
            if self.theirs
            else f"{self.number:g} ({self.reason})"
        )
        seeds = " and ".join(dict.fromkeys(str(len(one)) for one in sides.values()))
        said = f"{self.ours} {in_words(ours)} {self.sign} {right}"
        if gap <= spread:
            return False, f"not shown: {said}: a difference of {gap:.3g}, ± {spread:.2g}"
        return not few, f"not shown: {', '.join(few)}" if few else f"{said}, {seeds} seeds"


def deviation(values: list[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def in_words(values: list[float]) -> str:
    """The mean, and ± the standard deviation over the seeds."""
    spread = f" ± {deviation(values):.2g}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.4g}{spread}"


def figure_of(name: str) -> Any:
    """FILE:METRIC → its value, or one per seed; KeyError or OSError where there is none."""
    file, _, metric = name.partition(":")
    if file.endswith(".csv"):
        row, _, column = metric.partition(".")
        with (RESULTS / file).open(encoding="utf-8") as lines:
            [found] = [one for one in csv.DictReader(lines) if one["row"] == row]
        return float(found[column])
    try:
        return Table.read(RESULTS / f"{file}.json")[metric]
    except SaccadeError as error:
        raise OSError(error) from None


def values_of(name: str) -> list[float]:
    """The values of FILE:METRIC, one per seed."""
    value = figure_of(name)
    values = [float(one) for one in (value if isinstance(value, list) else [value])]
    if not values or not all(map(math.isfinite, values)):
        raise ValueError(f"{name} has no finite value")
    return values


# Commands and tests


def sets_of(line: str) -> list[str]:
    """The public data sets that the recipes of a command read, by the names that `saccade fetch` has for them."""
    from saccade.config.index import recipe_files, values_of
    from saccade.data.corpora import is_generated
    from saccade.data.delimited import split_name
    from saccade.data.lines import paths_of
    from saccade.data.sets import set_of

    found: list[str] = []
    for word in recipes_of(line):
        given = values_of(recipe_files()[word]).get("data") or {}
        sources = [str(given[split]) for split in ("train", "dev", "test") if given.get(split)]
        paths = [
            path
            for one in sources
            if not is_generated(one)
            for path in paths_of(split_name(one)[0])
        ]
        found += [name for path in paths if (name := set_of(Path(path))) is not None]
    return list(dict.fromkeys(found))


def recipes_of(line: str) -> list[str]:
    """The recipes that a `train` or `compare` command names: the words before its options and settings."""
    command, *words = shlex.split(line)
    if command not in ("train", "compare"):
        return []
    first = next(
        (n for n, word in enumerate(words) if word.startswith("-") or "=" in word), len(words)
    )
    return words[:first]


def run_command(line: str, folder: Path, tiny: Mapping[str, list[str]]) -> str:
    """Runs a command with tiny settings in a folder; "" or what went wrong. Data sets are hidden from commands that name none."""
    from saccade.cli import run

    files = {
        "FOLDER": folder / "run",
        "FILE": folder / "drawn.png",
        "PICTURE": folder / "shown.png",
    }
    words = [
        re.sub(r"(?<![^=])(FOLDER|FILE|PICTURE)$", lambda found: str(files[found[0]]), word)
        for word in shlex.split(line)
    ]
    if "PICTURE" in line:
        Image.fromarray(np.random.default_rng(0).integers(0, 255, (32, 32, 3), np.uint8)).save(
            files["PICTURE"]
        )
    if words[0] == "train":
        words += next((small for name, small in tiny.items() if name in words[1]), [])
        words += [] if "--out" in words else ["--out", str(folder / f"train-{time.monotonic_ns()}")]
        given = [word.partition("=")[0] for word in words]
        words = [
            word for n, word in enumerate(words) if "=" not in word or given[n] not in given[:n]
        ]
        words = [
            word
            for word in words
            if not word.startswith("model.dim")
            or not words[1].startswith(("shapes", "karate", "graphs"))
        ]
    if words[0] == "table":
        words += ["--out", str(folder / "table")]
    errors = io.StringIO()
    hidden = {} if sets_of(line) else {"SACCADE_DATA": str(folder / "no-sets")}
    quiet = contextlib.redirect_stdout(io.StringIO())
    with (
        quiet,
        contextlib.redirect_stderr(errors),
        contextlib.chdir(folder),
        mock.patch.dict(os.environ, hidden),
    ):
        code = run(words)
    return (
        ""
        if code == 0
        else f"`saccade {line}` ends with {code}: {errors.getvalue().strip().splitlines()[-1:]}"
    )


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
        pytest.main(
            ["-q", "-p", "no:cacheprovider", "-n", "0", "--no-header", *sorted(set(names))],
            plugins=[outcomes],
        )
    wrong = {}
    for name in names:
        ends = outcomes.found.get(name, [])
        bad = sorted(set(ends) - {"passed", "skipped"})
        wrong[name] = (
            f"{name} {bad[0]}" if bad else "" if "passed" in ends else f"{name} did not run"
        )
    return wrong


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


def record(rows: Mapping[str, Row], out: Path) -> None:
    """Makes the result files of these systems: each `record` command in a folder of its own, which it continues."""
    lines = list(dict.fromkeys(line for row in rows.values() for line in row.get("record", [])))
    commands = [recording(line, out) for line in lines]
    for command in commands:
        print(f"will run: {shlex.join(command)}", flush=True)
    for line, command in zip(lines, commands, strict=True):
        print(f"recording: {line}", flush=True)
        if subprocess.run(command, cwd=ROOT).returncode:
            sys.exit(
                f"`{line}` failed; the lines above say why. Run the same command again to continue"
            )


def recording(line: str, out: Path) -> list[str]:
    """A `record` command as it is run: `saccade …` into OUT/NAME of its result, or a program of this checkout as it is."""
    first, *words = shlex.split(line)
    if first == "python":
        return [sys.executable, *words]
    result = words[words.index("--result") + 1]
    return [sys.executable, "-m", "saccade", first, *words, "--out", str(out.absolute() / result)]


# Verdicts and the page


def check_results(row: Row) -> tuple[list[str], list[str], list[str]]:
    """What is recorded and what is shown, in words, and what is missing."""
    found, shown, wrong = [], [], []
    for name in row.get("results", []):
        try:
            found.append(
                f"{name} "
                + ("measured" if isinstance(figure_of(name), dict) else in_words(values_of(name)))
            )
        except (OSError, KeyError, ValueError):
            wrong.append(f"no recorded {name}")
    for text in row.get("shows", []):
        holds, said = Claim.parse(text).judge()
        (shown if holds else wrong).append(said)
    if not row.get("shows") and "nothing_to_learn" not in row:
        wrong.append("no control that a recorded run beats")
    return found, shown, list(dict.fromkeys(wrong))


def judge(row: Row, failed: list[str], at: str = "") -> Row:
    """The verdict: the commit that was checked, what failed, what is not recorded, and what is known to be missing."""
    recorded, shown, missing = check_results(row)
    missing = [*failed, *missing, *([row["lacks"]] if "lacks" in row else [])]
    verdict = "part" if missing else "works"
    return {
        "verdict": verdict,
        "commit": at,
        "failed": failed,
        "missing": missing,
        "shown": shown,
        "recorded": recorded,
    }


HEAD = """# The systems

Every mechanism, model, task and picture in the [lectures](lectures.md): {all} systems, of which
{works} work and {part} work in part. Made by `python benchmarks/systems.py`, which runs the
commands and tests below and reads the [recorded runs](results.md).

A system *works* when its commands run with tiny settings in an empty folder, its tests pass, and a
recorded run beats a control. The tests compare its arithmetic with something independent: a formula
by hand, a slow loop or another library. The control is chance, a unigram model or the same model
without the mechanism. Both have at least three seeds, and their means differ by more than the
larger standard deviation (±). Pictures and checks have nothing to learn, and the table says so.
`FILE:METRIC` is a metric of `benchmarks/results/FILE.json`; [the last section](#how-the-result-files-were-recorded) has the command
that recorded it."""


def short(row: Row, one: Row) -> str:
    """The claims of a system as numbers alone, or why there are none."""
    shown = [re.sub(r"\S+:\S+ ", "", said) for said in one["shown"]]
    return "<br>".join(shown) or (
        f"nothing to learn: {row['nothing_to_learn']}" if "nothing_to_learn" in row else ""
    )


def marked(line: str) -> str:
    """A command for the page, with the data sets that it reads."""
    needed = sets_of(line)
    command = line if line.startswith("python ") else f"saccade {line}"
    return f"`{command}`" + (f" (data: {', '.join(needed)})" if needed else "")


def details(name: str, row: Row, one: Row) -> Iterator[str]:
    """How one system is checked, as a list."""
    commands = "; ".join(map(marked, row["run"]))
    yield f"- **{name}** {row['what']}" + (f"; run {commands}" if commands else "")
    parts = {
        "tests": tests_line("", row["tests"]),
        "shown": "; ".join(one["shown"]),
        "recorded": "; ".join(one["recorded"]),
        "missing": "; ".join(one["missing"]),
        "note": row.get("note", ""),
    }
    yield from (f"  - {part}: {text}" for part, text in parts.items() if text)


def tests_line(name: str, tests: list[str]) -> str:
    """The tests of a system, without the folder that all of them share."""
    listed = ", ".join(f"`{test.removeprefix('tests/')}`" for test in tests)
    return f"**{name}** {listed}" if name else listed


def recordings(rows: Mapping[str, Row]) -> Iterator[str]:
    """Each command that records result files once, with the systems that it is for."""
    systems_of: dict[str, list[str]] = {}
    for name, row in rows.items():
        for line in row.get("record", []):
            systems_of.setdefault(line, []).append(name)
    for line, names in systems_of.items():
        every_n = all(name.startswith("N-") for name in names) and len(names) > 1
        yield f"- {'N' if every_n else ', '.join(names)}: {marked(line)}"


def table_row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def page(found: Mapping[str, Row]) -> str:
    """docs/systems.md."""
    every = data()
    rows, groups, template = systems(), every["groups"], every["modifications"]
    works = sum(one["verdict"] == "works" for one in found.values())
    lines = [HEAD.format(all=len(found), works=works, part=len(found) - works)]
    for letter, title in groups.items():
        of_group = {
            name: row for name, row in rows.items() if name.startswith(letter) and name in found
        }
        lines += [
            "",
            f"## {letter}. {title}",
            "",
            "| | what | works | against its control |",
            "|---|---|---|---|",
        ]
        for name, row in of_group.items():
            one = found[name]
            verdict = one["verdict"] + (f": {'; '.join(one['missing'])}" if one["missing"] else "")
            lines.append(table_row(name.removeprefix("N-"), row["what"], verdict, short(row, one)))
        lines += ["", f"How each of {letter} is checked:", ""]
        if letter == "N":  # alike for all of them
            nothing = {
                "shown": template.get("shows", []),
                "recorded": template.get("results", []),
                "missing": [],
            }
            lines += details(
                "N-{name}", {"what": "for each {name} of the table", **template}, nothing
            )
            lines += [
                f"- {tests_line(f'N-{n}', tests)}" for n, tests in template["tests_of"].items()
            ]
        else:
            lines += [
                line for name, row in of_group.items() for line in details(name, row, found[name])
            ]
    lines += ["", "## How the result files were recorded", "", *recordings(rows)]
    return "\n".join(lines) + "\n"


def main() -> None:
    from saccade.system.provenance import commit

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--docs", action="store_true")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("runs/systems"))
    given = parser.parse_args()
    path, every = RESULTS / f"{NAME}.json", systems()
    table = Table.read(path) if path.exists() else Table(NAME, {})
    known = table.rows
    if unknown := [name for name in given.only if name not in every]:
        sys.exit(f"no system named {', '.join(unknown)}; expected ids such as A1 or N-geglu")
    asked = [] if given.docs else [name for name in every if not given.only or name in given.only]
    if given.record:
        record({name: every[name] for name in asked}, given.out)
    failed = {name: one["failed"] for name, one in known.items() if name in every}
    commits = {name: one["commit"] for name, one in known.items() if name in every}
    # the file holds every system, which the program alone checks; each has the commit of its own last check
    sys.argv[1:] = []
    for letter in data()["groups"]:
        names = [name for name in asked if name.startswith(letter)]
        failed |= check({name: every[name] for name in names}) if names else {}
        commits |= dict.fromkeys(names, commit())
        known = {
            name: judge(row, failed[name], commits[name])
            for name, row in every.items()
            if name in failed
        }
        if given.docs:  # the verdicts alone: what was run, when and on what stays as it was
            table.rows = known
            table.write(RESULTS)
        else:
            # after each group, so that what was found stays when a run is stopped
            Table(NAME, known).write(RESULTS)
        PAGE.write_text(page(known), encoding="utf-8")


if __name__ == "__main__":
    main()
