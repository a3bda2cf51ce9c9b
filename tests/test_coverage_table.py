"""The table of `make coverage`."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

coverage = pytest.importorskip("coverage")
SCRIPT = Path(__file__).parents[1] / "scripts/coverage_table.py"


def test_shares_of_packages_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {
        "api.py": 2,
        "core/masks.py": 20,
        "core/kernels/softmax_forward.py": 10,
        "data/documents.py": 4,
    }
    for name, lines in files.items():
        (tmp_path / "src/saccade" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "src/saccade" / name).write_text("".join(f"x = {n}\n" for n in range(lines)))
    main: Any = runpy.run_path(str(SCRIPT))["main"]
    monkeypatch.setitem(main.__globals__, "PACKAGE", tmp_path / "src/saccade")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        SystemExit, match="no line was measured, so there is no table; run make coverage"
    ):
        main()
    data = coverage.CoverageData(basename=str(tmp_path / ".coverage"))
    run = {"api.py": [1, 2], "core/masks.py": range(1, 18), "core/kernels/softmax_forward.py": [1]}
    data.add_lines({str(tmp_path / "src/saccade" / name): lines for name, lines in run.items()})
    data.write()
    main()
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert printed == [
        ["package", "lines", "not", "run", "share"],
        ["core", "20", "3", "85.0%"],
        ["core/kernels", "10", "9", "10.0%"],
        ["data", "4", "4", "0.0%"],
        ["root", "2", "0", "100.0%"],
        ["all", "36", "16", "55.6%"],
        ["below", "85%:", "core/kernels", "(10.0%),", "data", "(0.0%),", "all", "(55.6%)"],
    ]
