"""The command `bench`: saccade beside its peers, measured in one run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, NamedTuple

import typer

from ..errors import SaccadeError
from .common_options import Json, Result
from .completion import BENCHES, bench_names
from .shared import check_name, check_result, err, note, print_json, write

KIND = f"{', '.join(BENCHES)}. [default: all]"
SCALE = "tiny (seconds on two cores) or full (made for a GPU). [default: full on a GPU, else tiny]"
ONLY = "These cases alone, by a part of their name, and of decode these engines (`saccade int8, 1`); repeatable. [default: all]"
SCALES = ("tiny", "full")


def bench(
    kind: Annotated[str | None, typer.Argument(help=KIND, autocompletion=bench_names)] = None,
    scale: Annotated[str | None, typer.Option("--scale", help=SCALE)] = None,
    only: Annotated[list[str] | None, typer.Option("--only", help=ONLY)] = None,
    result: Result = None,
    json_: Json = False,
) -> None:
    """Benchmark speed and memory against PyTorch and other packages.

    All contenders take turns in one run. A ratio below 1 is faster than the fastest peer. The last column is the share of this machine's
    measured limits (products, copies, operations) that was reached. Peers that are not installed are named and left out.

    Examples:
        saccade bench attention
        saccade bench train --scale tiny --json
        saccade bench attention --only causal --result bench-attention
    """
    if kind is not None:
        check_name("measurement", kind, BENCHES)
    if scale is not None:
        check_name("scale", scale, SCALES)
    check_result(result)
    with err.status("starting …"):
        from ..studies.bench.contenders import device_and_type

        device, _ = device_and_type()
        from ..experiments.results import Table

    chosen = scale or ("full" if device.type == "cuda" else "tiny")
    table = Table(result or "bench", {}, f"scale {chosen}", notes="medians of interleaved runs")

    def keep(one: str, found: Measurement, rows: list[dict[str, Any]]) -> None:
        """What is known so far goes to a file beside the result: who stops a measurement keeps what was measured, and the last result too."""
        table.rows |= {f"{one}: {row['case']}": row for row in rows}
        table.peers |= {peer: {"left_out": why} for peer, why in found.left_out.items()}
        if (about := f"{one}: {found.notes}; ") not in table.notes:
            table.notes = about + table.notes
        if result is not None:
            replace(table, name=f"{result}-unfinished").write()

    for one in [kind] if kind else list(BENCHES):
        try:
            run_one(one, chosen, only or [], json_, partial(keep, one))
        except SaccadeError as error:
            if kind or only:
                raise
            note(f"{one}: {error}")
    if result is not None:
        path = table.write()
        path.with_name(f"{result}-unfinished.json").unlink(missing_ok=True)
        note(f"written: {path}")


class Measurement(NamedTuple):
    """What one kind measures; `rounds` gives all rows so far, again and again."""

    headline: str
    notes: str
    left_out: Mapping[str, str]
    rounds: Iterator[list[dict[str, Any]]]


def run_one(
    kind: str, scale: str, only: list[str], as_json: bool, keep: Callable[..., object]
) -> None:
    """Announces, measures and prints one kind; `keep` gets the rows as they come."""
    with err.status(f"{kind}: preparing …"):
        found = (of_engines if kind == "decode" else of_cases)(kind, scale, only)
    note(f"{kind}, scale {scale}: {found.headline}")
    for name, why in found.left_out.items():
        note(f"left out: {name} ({why})")
    rows: list[dict[str, Any]] = []
    with err.status(f"{kind}: measuring …") as status:
        for number, rows in enumerate(found.rounds, 1):
            keep(found, rows)
            status.update(f"{kind}: {number} measured …")
            if as_json and kind != "decode":
                print_json({"bench": kind, "scale": scale, **rows[-1]})
    for row in rows if as_json and kind == "decode" else ():
        print_json({"bench": kind, "scale": scale, **row})
    if not as_json:
        print_rows(kind, rows)


def of_cases(kind: str, scale: str, only: list[str]) -> Measurement:
    """Cases that are measured one after another in this process."""
    from itertools import accumulate

    from ..studies.bench import plan_of
    from ..studies.bench.contenders import device_and_type, run
    from ..training.cost import duration

    device, dtype = device_and_type()
    plan = plan_of(kind, scale, device)
    cases = [
        case
        for case in plan.cases
        if not only or any(word.lower() in case.name.lower() for word in only)
    ]
    if not cases:
        known = "; ".join(case.name for case in plan.cases)
        raise SaccadeError(
            f"expected --only to be a part of a case's name, got {', '.join(only)}; the cases are: {known}",
            code="unknown-case",
        )
    plan = replace(plan, cases=cases)
    count = sum(len({**case.ours, **case.peers}) for case in cases)
    headline = f"{len(cases)} cases, {count} measurements, about {duration(plan.cost)}"
    rounds = accumulate([row] for row in run(plan, device, dtype))
    return Measurement(f"{headline}; {plan.notes}", plan.notes, plan.left_out, rounds)


def of_engines(kind: str, scale: str, only: list[str]) -> Measurement:
    """Decoding, each engine in a process of its own."""
    from importlib.util import find_spec

    from ..studies.bench import module_of, rows_of_engines
    from ..studies.bench.contenders import device_and_type

    peers = ("transformers", "ctranslate2")
    left_out = {name: "not installed" for name in peers if find_spec(name) is None}
    engines = tuple(word for word in only if word.startswith(("saccade", *peers)))
    words = [word.lower() for word in only if word not in engines]
    measured = module_of(kind).cases(device_and_type()[0].type, small=scale == "tiny", only=engines)
    rounds = (
        [
            row
            for row in rows_of_engines(found)
            if not words or any(word in row["case"].lower() for word in words)
        ]
        for found in measured
    )
    notes = "milliseconds per sentence, each engine in a process of its own, a few minutes in all"
    return Measurement(notes, notes, left_out, rounds)


def print_rows(kind: str, rows: list[dict[str, Any]]) -> None:
    """A table; a contender that failed is named below it."""
    from ..views.text_table import MISSING, terminal

    rate = any("tokens_per_second" in row for row in rows)
    columns = {
        "ms": ("milliseconds", "{:,.3f}"),
        "MiB": ("mebibytes", "{:,.0f}"),
        **({"tokens/s": ("tokens_per_second", "{:,.0f}")} if rate else {}),
        "best peer": ("peer", "{}"),
        "its ms": ("peer_milliseconds", "{:,.3f}"),
        "ratio": ("ratio", "{:.2f}"),
        "of the limit": ("of_limit", "{:.0%}"),
    }
    lines = [
        [
            row["case"],
            row.get("about") or row.get("ours", MISSING),
            *(
                MISSING if row.get(key) is None else form.format(row[key])
                for key, form in columns.values()
            ),
        ]
        for row in rows
    ]
    write(f"saccade bench {kind}")
    write(terminal([["case", "by", *columns], *lines], longest=100))
    for row in rows:
        for name, found in row["all"].items():
            if "failed" in found:
                note(f"{row['case']}: {name} failed: {found['failed']}")
