"""README, docs and the catalogue page tell the truth: their Python runs, their links lead somewhere, their tables come from programs."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = ["README.md", "CONTRIBUTING.md", *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", ["README.md", "docs/tour.md", "docs/from-torch.md", "docs/foreign-models.md"])
def test_python_in_pages_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "transformers" in (ROOT / page).read_text(encoding="utf-8"):
        pytest.importorskip("transformers")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    assert blocks
    monkeypatch.chdir(tmp_path)
    code = compile("\n".join(blocks), page, "exec")
    exec(code, {"__name__": "page"})


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert target.startswith("https://") or ((ROOT / page).parent / target).exists(), f"{page} links to {target}"


def test_make_targets_named_in_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"\bmake ([a-z-]+)", (ROOT / "README.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()))
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
    from saccade.cli import app

    known = {command.name for command in app.registered_commands}
    named = set(re.findall(r"\bsaccade (?!import)([a-z]+)\b", (ROOT / "README.md").read_text(encoding="utf-8")))
    assert named <= known, named - known


def test_the_ten_lines_of_python_are_about_ten() -> None:
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    assert block is not None
    assert len([line for line in block.group(1).splitlines() if line.strip()]) <= 11
