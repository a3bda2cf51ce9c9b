"""The machinery around one update stays small: few files and calls besides the model's own."""

from __future__ import annotations

import runpy
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "trace_calls.py"
MAX_FILES, MAX_CALLS = 25, 200


def test_an_update_calls_few_functions_besides_the_model(tmp_path: Path) -> None:
    one_update = runpy.run_path(str(SCRIPT))["one_update"]
    row = one_update(tmp_path / "run", around=True).row()
    assert 5 < row["files"] <= MAX_FILES
    assert 30 < row["calls"] <= MAX_CALLS
