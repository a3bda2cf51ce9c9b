"""The command `saccade bench`: saccade beside its peers in one run.

A module has `plan(scale, device)`: what is measured in this process, and against whom. Decoding runs each engine in a process of its own."""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch

from ...errors import SaccadeError

if TYPE_CHECKING:
    from .contenders import Plan

MODULES = {
    "attention": "attention_speed",
    "train": "training_speed",
    "decode": "decoding_speed",
    "length": "block_speed",
    "backends": "backend_speed",
}


def module_of(kind: str) -> Any:
    name = f"{__name__}.{MODULES[kind]}"
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise SaccadeError(
            f"expected a measurement of {kind}, and this installation has none; choose another",
            code="measurement-missing",
        ) from None


def plan_of(kind: str, scale: str, device: torch.device) -> "Plan":
    """What `saccade bench KIND` measures in this process."""
    found: Plan = module_of(kind).plan(scale, device)
    return found


def rows_of_engines(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per case and precision, of engines such as `saccade int8, 2 threads`, whose values are sentences per second."""
    groups: dict[str, dict[str, float]] = {}
    processor = {(one["case"], one["engine"]): one["processor"] for one in found}
    for one in found:
        precision = one["engine"].split()[1].strip(",").replace("plain", "fp32")
        groups.setdefault(f"{one['case']}, {precision}", {})[one["engine"]] = one["value"]
    rows = []
    for case, values in groups.items():
        work = {engine: processor[case.rpartition(", ")[0], engine] for engine in values}
        row: dict[str, Any] = {"case": case}
        mine = [engine for engine in values if engine.startswith("saccade")]
        best, peer = (
            max(some, key=values.__getitem__, default=None)
            for some in (mine, [one for one in values if one not in mine])
        )
        if best is not None:
            row |= {"ours": best, "milliseconds": round(1000 / values[best], 3)}
        if peer is not None:
            row |= {"peer": peer, "peer_milliseconds": round(1000 / values[peer], 3)}
        if best is not None and peer is not None:
            row["ratio"] = round(values[peer] / values[best], 3)
            least = [
                min(work[one] for one in work if (one in mine) is own) for own in (True, False)
            ]
            row["processor_ratio"] = round(least[0] / least[1], 3)
        every = {
            engine: {"sentences_per_second": value, "processor_milliseconds": work[engine]}
            for engine, value in values.items()
        }
        rows.append(row | {"all": every})
    return rows
