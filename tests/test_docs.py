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
    "page",
    [
        "README.md",
        "docs/tour.md",
        "docs/from-torch.md",
        "docs/foreign-models.md",
        "docs/operations.md",
    ],
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


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line).lower().replace(" ", "-") for line in headings}


@pytest.mark.parametrize("page", [*PAGES, "CHANGELOG.md", "SECURITY.md"])
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        path = (ROOT / page).parent / file if file else ROOT / page
        assert path.exists(), f"{page} links to {target}"
        assert not anchor or anchor in anchors(path), f"{page} links to {target}: no such heading"


@pytest.mark.parametrize("page", PAGES)
def test_python_files_named_in_pages_exist(page: str) -> None:
    folders = ("src", "tests", "benchmarks", "examples", "scripts")
    known = {path.name for folder in folders for path in (ROOT / folder).rglob("*.py")}
    named = re.findall(r"`([\w/.-]+\.py)`", (ROOT / page).read_text(encoding="utf-8"))
    for name in named:
        assert Path(name).name in known, f"{page} names {name}"
        assert "/" not in name or any((ROOT / at / name).exists() for at in ("", "src/saccade"))


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


def commands_of(page: str) -> list[list[str]]:
    """The words of every `saccade …` command of a page: in code spans, in listings and in console sessions."""
    text = (ROOT / page).read_text(encoding="utf-8")
    listings = "\n".join(re.findall(r"```(?:sh|console)\n(.*?)```", text, flags=re.DOTALL))
    lines = re.findall(r"^(?:\$ )?saccade (.+)$", listings, flags=re.MULTILINE)
    lines += re.findall(r"^ {4}saccade (.+)$", text, flags=re.MULTILINE)
    spans = re.findall(r"`saccade ([^`]+)`", text)
    parts = [re.split(r" (?:#|&&|>|\|) ?", line)[0] for line in lines + spans]
    return [part.replace("\\|", " ").split() for part in parts]


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_pages_exist_and_have_their_options(page: str) -> None:
    import typer

    from saccade.cli import app

    top = typer.main.get_command(app)
    for words in commands_of(page):
        command, left = top, list(words)
        while left and hasattr(command, "commands"):
            name = left[0]
            if re.fullmatch(r"[a-z][a-z-]*", name) and name in command.commands:
                command, left = command.commands[name], left[1:]
                continue
            break
        assert command is not top or not re.fullmatch(r"[a-z][a-z-]*", words[0]), (
            f"{page}: saccade {' '.join(words)}"
        )
        known = {option for one in command.params for option in one.opts + one.secondary_opts}
        default = getattr(command, "commands", {}).get("attention")
        known |= {option for one in getattr(default, "params", []) for option in one.opts}
        for word in left:
            if re.match(r"--[a-z]", word) and word.rstrip(",.") not in {"--help", "--version"}:
                option = re.match(r"--[a-z-]+", word)
                assert option is not None
                assert option[0] in known, f"{page}: saccade {' '.join(words)} has no {option[0]}"


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
    )["rows"]
    t5 = rows["attention: T5, forward + backward"]
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
