"""README, docs and the catalogue page tell the truth: their Python runs, their links lead somewhere, their tables come from programs."""

from __future__ import annotations

import importlib.util
import json
import re
import textwrap
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md")),
]


@pytest.mark.parametrize(
    "page", ["README.md", "docs/tour.md", "docs/from-torch.md", "docs/foreign-models.md"]
)
def test_python_in_pages_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "transformers" in (ROOT / page).read_text(encoding="utf-8"):
        pytest.importorskip("transformers")
    blocks = re.findall(
        r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL
    )
    assert blocks
    monkeypatch.chdir(tmp_path)
    code = compile("\n".join(blocks), page, "exec")
    exec(code, {"__name__": "page"})
    printed = capsys.readouterr().out
    text = (ROOT / page).read_text(encoding="utf-8")
    for listing in re.findall(r"^    → .*\n(?:^    .*\n)+", text, flags=re.MULTILINE):
        shown, lines = textwrap.dedent(listing).splitlines(), printed.splitlines()
        [at] = [
            n
            for n, line in enumerate(lines)
            if line == shown[0] and lines[n + 2 : n + 3] == shown[2:3]
        ]
        assert len(lines[at : at + len(shown)]) == len(shown)
        assert not lines[at + len(shown)].startswith("  "), "backends are missing on the page"
        for mine, its in zip(shown, lines[at:], strict=False):
            # then the kernels have other reasons, or run
            here = torch.cuda.is_available() or importlib.util.find_spec("triton")
            assert mine == its or (here and mine.split()[:1] == its.split()[:1])


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert target.startswith("https://") or ((ROOT / page).parent / target).exists(), (
            f"{page} links to {target}"
        )


def test_make_targets_named_in_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(
        re.findall(
            r"\bmake ([a-z-]+)",
            (ROOT / "README.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text(),
        )
    )
    assert {"demo", "test"} <= named
    for target in named:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), f"no `make {target}`"


def test_tables_are_what_the_programs_make() -> None:
    spec = importlib.util.spec_from_file_location("tables", ROOT / "benchmarks" / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    assert tables.outdated() == [], "run `python benchmarks/tables.py`"


def test_commands_named_in_the_readme_exist() -> None:
    from saccade.cli import NAMES

    known = set(NAMES)
    named = set(
        re.findall(
            r"\bsaccade (?!import)([a-z]+)\b", (ROOT / "README.md").read_text(encoding="utf-8")
        )
    )
    assert named <= known, named - known


def test_the_ten_lines_of_python_are_about_ten() -> None:
    block = re.search(
        r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL
    )
    assert block is not None
    assert len([line for line in block.group(1).splitlines() if line.strip()]) <= 12


def test_the_bars_of_the_speed_picture_are_the_milliseconds_of_the_file() -> None:
    spec = importlib.util.spec_from_file_location("speed", ROOT / "benchmarks" / "speed.py")
    assert spec is not None
    assert spec.loader is not None
    speed = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(speed)
    rows = json.loads(
        (ROOT / "benchmarks/results/bench-attention.json").read_text(encoding="utf-8")
    )["figures"]["attention"]
    [t5] = [row for row in rows if row["case"] == "T5, forward + backward"]
    bars = speed.times_as_fast(ROOT)
    assert bars["T5 (against FlexAttention)"] == t5["peer_milliseconds"] / t5["milliseconds"]
    assert f"{bars['T5 (against FlexAttention)']:.3g}" == "218"


def test_tables_of_the_pages_are_whole() -> None:
    """No empty line inside a table, whose rest would be shown as text: every row of pipes follows a row or begins with a header."""
    for page in PAGES:
        lines = re.sub(
            r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL
        ).splitlines()
        for before, line, after in zip(["", *lines], lines, [*lines[1:], ""], strict=False):
            if line.startswith("|") and not before.startswith("|"):
                assert re.match(r"\|[-:| ]+\|$", after), f"{page}: {line[:80]}"
