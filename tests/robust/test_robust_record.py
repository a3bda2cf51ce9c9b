"""The counts of attacks reach the result file, and a later run replaces those of the same name alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from record import collect, record


def test_counts_are_added_up_and_older_ones_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = tmp_path / "counts.jsonl"
    monkeypatch.delenv("ROBUST_COUNTS", raising=False)
    record("nothing", 1, 0)
    monkeypatch.setenv("ROBUST_COUNTS", str(counts))
    record("kills", 3, 1)
    record("kills", 4, 0, {"slowest": 2})
    record("others", 1, 1)
    collect(counts, tmp_path)
    counts.unlink()
    record("others", 5, 0)
    found = json.loads(collect(counts, tmp_path).read_text())["rows"]
    assert found == {
        "kills": {"tried": 7, "failed": 1, "details": {"slowest": 2}},
        "others": {"tried": 5, "failed": 0},
    }
