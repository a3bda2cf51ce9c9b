"""The recorded walk of docs/walk.md: its commands are those of the program, and a short version of it runs from end to end."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROGRAM, PAGE = ROOT / "benchmarks" / "walk.py", ROOT / "docs" / "walk.md"


def commands(page: str) -> list[str]:
    """The commands of a page without settings, which differ between a short walk and a whole one."""
    return [
        re.sub(r" (training|model)\.\S+", "", line)
        for line in re.findall(r"^\$ (.+)$", page, flags=re.MULTILINE)
    ]


@pytest.mark.slow
def test_a_short_walk_takes_the_recorded_steps(tmp_path: Path) -> None:
    page = tmp_path / "walk.md"
    settings = ["training.updates=20", "model.size=tiny"]
    words = [
        sys.executable,
        PROGRAM,
        "--out",
        page,
        "--folder",
        tmp_path / "walk",
        "--pairs",
        "900",
        *settings,
    ]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    found = page.read_text(encoding="utf-8")
    assert commands(found) == commands(PAGE.read_text(encoding="utf-8"))
    for file in ("test.out", "clean.tsv", "runs/mine/report.html", "runs/mine/curves.png"):
        assert (tmp_path / "walk" / file).stat().st_size > 0
    assert len((tmp_path / "walk" / "test.out").read_text().splitlines()) == 300
    assert "Traceback" not in found
