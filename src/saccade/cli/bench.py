"""The command `bench`: saccade beside its peers, measured in one run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import SaccadeError
from .common_options import Json, Result
from .completion import BENCHES, bench_names
from .shared import check_name, check_result, err, note, print_json, write

if TYPE_CHECKING:
    from ..studies.bench.contenders import Plan

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
    chosen = scale or ("full" if device.type == "cuda" else "tiny")
    figures: dict[str, Any] = {}

    def keep(one: str, found: dict[str, Any]) -> None:
        """What is known so far goes to a file beside the result: who stops a measurement keeps what was measured, and the last result too."""
        figures[one] = found
        if result is not None:
            record(f"{result}-unfinished", chosen, figures)

    for one in [kind] if kind else list(BENCHES):
        try:
            figures[one] = run_one(one, chosen, only or [], json_, partial(keep, one))
        except SaccadeError as error:
            if kind or only:
                raise
            note(f"{one}: {error}")
    if result is not None:
        path = record(result, chosen, figures)
        path.with_name(f"{result}-unfinished.json").unlink(missing_ok=True)
        note(f"written: {path}")


def record(name: str, scale: str, figures: dict[str, Any]) -> Path:
    """Writes a result file with a row for each case; peers that were measured are in each row, those left out are named with the reason."""
    from ..experiments.results import Table

    about = "; ".join(f"{one}: {found['notes']}" for one, found in figures.items())
    rows = {
        f"{one}: {row['case']}": row for one, found in figures.items() for row in found["cases"]
    }
    left_out = {
        peer: {"left_out": why}
        for found in figures.values()
        for peer, why in found["left_out"].items()
    }
    notes = f"{about}; medians of interleaved runs"
    return Table(name, rows, f"scale {scale}", peers=left_out, notes=notes).write()


def run_one(
    kind: str, scale: str, only: list[str], as_json: bool, keep: Callable[[dict[str, Any]], object]
) -> dict[str, Any]:
    """Announces, measures and prints one kind; its cases, who was left out, and what the sizes were. `keep` gets them as they come."""
    from ..studies.bench import plan_of
    from ..studies.bench.contenders import device_and_type, run

    if kind == "decode":
        return run_engines(scale, only, as_json, keep)
    device, dtype = device_and_type()
    with err.status(f"{kind}: preparing …"):
        plan = chosen_cases(plan_of(kind, scale, device), only)
    announce(kind, scale, plan)
    rows = []
    with err.status(f"{kind}: measuring …") as status:
        for number, row in enumerate(run(plan, device, dtype), 1):
            rows.append(row)
            keep({"cases": rows, "left_out": dict(plan.left_out), "notes": plan.notes})
            status.update(f"{kind}: {number} of {len(plan.cases)} cases measured …")
            if as_json:
                print_json({"bench": kind, "scale": scale, **row})
    if not as_json:
        print_rows(kind, rows)
    return {"cases": rows, "left_out": dict(plan.left_out), "notes": plan.notes}


def run_engines(
    scale: str, only: list[str], as_json: bool, keep: Callable[[dict[str, Any]], object]
) -> dict[str, Any]:
    """Decoding, each engine in a process of its own."""
    from importlib.util import find_spec

    from ..studies.bench import module_of, rows_of_engines
    from ..studies.bench.contenders import device_and_type

    module = module_of("decode")
    notes = "milliseconds per sentence, each engine in a process of its own, a few minutes in all"
    note(f"decode, scale {scale}: {notes}")
    left_out = {
        name: "not installed" for name in ("transformers", "ctranslate2") if find_spec(name) is None
    }
    for name, why in left_out.items():
        note(f"left out: {name} ({why})")
    engines = tuple(
        word for word in only if word.startswith(("saccade", "transformers", "ctranslate2"))
    )
    words = [word.lower() for word in only if word not in engines]
    rows: list[dict[str, Any]] = []
    with err.status("decode: starting the engines …") as status:
        for number, found in enumerate(
            module.cases(device_and_type()[0].type, small=scale == "tiny", only=engines), 1
        ):
            status.update(f"decode: round {number} measured …")
            rows = [
                row
                for row in rows_of_engines(found)
                if not words or any(word in row["case"].lower() for word in words)
            ]
            keep({"cases": rows, "left_out": left_out, "notes": notes})
    for row in rows if as_json else ():
        print_json({"bench": "decode", "scale": scale, **row})
    if not as_json:
        print_rows("decode", rows)
    return {"cases": rows, "left_out": left_out, "notes": notes}


def chosen_cases(plan: Plan, only: list[str]) -> Plan:
    from dataclasses import replace

    cases = [
        case
        for case in plan.cases
        if not only or any(word.lower() in case.name.lower() for word in only)
    ]
    if not cases:
        known = "; ".join(case.name for case in plan.cases)
        raise SaccadeError(
            f"expected --only to be a part of a case's name, got {', '.join(only)}; the cases are: {known}"
        )
    return replace(plan, cases=cases)


def announce(kind: str, scale: str, plan: Plan) -> None:
    """What will be measured, how long it will take, and who is left out."""
    from ..training.cost import duration

    count = sum(len({**case.ours, **case.peers}) for case in plan.cases)
    note(
        f"{kind}, scale {scale}: {len(plan.cases)} cases, {count} measurements, about {duration(plan.cost)}; {plan.notes}"
    )
    for name, why in plan.left_out.items():
        note(f"left out: {name} ({why})")


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
