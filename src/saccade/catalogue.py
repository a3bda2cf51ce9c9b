"""The catalogue: slot → table. `saccade list`, the docs page and the tests read it."""

from typing import Any

from . import models, tasks
from .core import backends, masks, normalizers, positions, scores
from .core.table import Table
from .data import corpora
from .errors import SaccadeError, did_you_mean
from .layers import embeddings, feedforward, heads, inputs, mixers, norms, pooling, recurrent, residuals, stack
from .tasks import objectives
from .training import schedules

CORE = (scores.table, normalizers.table, masks.table, positions.table, backends.table)
BLOCKS = (mixers.table, feedforward.table, feedforward.activations, residuals.table, norms.table, stack.table)
ENDS = (embeddings.table, inputs.table, inputs.joins, heads.table, recurrent.cells, pooling.pools)
WHOLE = (models.table, tasks.table, objectives.table, schedules.table, corpora.table)
SLOTS: dict[str, Table[Any]] = {table.slot: table for table in (*CORE, *BLOCKS, *ENDS, *WHOLE)}


def slot(name: str) -> Table[Any]:
    """The table of a slot, or an error that knows the nearest name."""
    if name not in SLOTS:
        raise SaccadeError(f"no slot named '{name}'{did_you_mean(name, SLOTS)}")
    return SLOTS[name]


def rows(slot_name: str | None = None, where: str | None = None) -> list[dict[str, str]]:
    """The catalogue as rows; `where` keeps those whose name, paper or summary contains it, whatever the case."""
    tables = SLOTS.values() if slot_name is None else [slot(slot_name)]
    entries = [(table.slot, entry) for table in tables for entry in table]
    found = [{"slot": name, "name": entry.name, "paper": entry.paper, "what": entry.summary} for name, entry in entries]
    return [row for row in found if any((where or "").lower() in value.lower() for value in row.values())]
