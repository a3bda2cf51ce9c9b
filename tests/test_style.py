"""Style of names, docstrings, errors and docs. The lists of unfinished rooms and pages shrink to nothing."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "saccade"
TREES = {
    path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))
}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

# Rooms with constants such as MOST or LONGEST. Write the unit and the meaning: MAX_BODY_BYTES.
VAGUE_CONSTANTS_LEFT = {"cli", "config", "data", "experiments", "files.py", "recipe.py", "serving"}
VAGUE_CONSTANTS_LEFT |= {"studies", "system", "tasks", "teaching", "views"}
# Pages with lines of more than 100 columns: a system's commands, tests and claims have one each.
LONG_LINES_LEFT = {"systems.md"}

VAGUE = "MOST|MANY|FEW|FEWEST|LARGEST|LARGE|LONGEST|LONG|SHORTEST|SHORT|WIDEST|WIDE|TOGETHER|HUGE"
VAGUE_CONSTANT = re.compile(rf"_?({VAGUE}|DEEPEST|FAINTEST|OLDEST)(_[A-Z]+)?")
PUBLIC_PACKAGES = ("saccade", "saccade.core", "saccade.models", "saccade.decoding")
WITH_CODE = {"SaccadeError", "UnknownArgument", "WrongExample"}
CODE = re.compile(r"'[a-z0-9]+(-[a-z0-9]+)*'|error\.code")


def room(path: Path) -> str:
    """The package of a module, or the file name of a root module."""
    return path.relative_to(PACKAGE).parts[0]


def by_room() -> dict[str, list[Path]]:
    rooms: dict[str, list[Path]] = {}
    for path in TREES:
        rooms.setdefault(room(path), []).append(path)
    return rooms


ROOMS = by_room()


def public_objects() -> dict[str, Any]:
    """Classes and functions that the public packages export, by qualified name."""
    found = {}
    for package in PUBLIC_PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isroutine(value):
                found[f"{package}.{name}"] = value
    return found


PUBLIC = public_objects()


def constants(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        for target in targets:
            yield from (name.id for name in ast.walk(target) if isinstance(name, ast.Name))


def vague_constants(tree: ast.Module) -> list[str]:
    return [name for name in constants(tree) if VAGUE_CONSTANT.fullmatch(name)]


def raises_without_code(tree: ast.Module) -> list[int]:
    """Lines that make an error without a literal code in kebab case, or that of the `error` they explain."""
    found = []
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and ast.unparse(node.func) in WITH_CODE):
            continue
        codes = [ast.unparse(word.value) for word in node.keywords if word.arg == "code"]
        if not any(map(CODE.fullmatch, codes)):
            found.append(node.lineno)
    return sorted(found)


def sentence_lengths(text: str) -> list[int]:
    """Words per sentence; code spans count as one word, list items end a sentence."""
    text = re.sub(r"`[^`]*`", "code", text)
    text = re.sub(r"(?m)^\s*(?:[-*]|\d+\.) ", "\n\n", text)
    sentences = re.split(r"(?<=[.!?:])\s+|\n\s*\n", text)
    return [count for count in (len(one.split()) for one in sentences) if count > 2]


def prose(page: Path) -> list[str]:
    """Lines of a page without code, tables, headings, HTML and images."""
    text = re.sub(r"(?ms)^ *```.*?^ *```", "", page.read_text(encoding="utf-8"))
    return [line for line in text.splitlines() if not line.startswith(("|", "#", "<", "!["))]


def long_lines(page: Path) -> list[str]:
    """Lines of more than 100 columns; links and indented code cannot be wrapped."""
    lines = [line for line in prose(page) if not line.startswith("    ")]
    return [line for line in lines if len(line) > 100 and "](" not in line]


def mean(counts: list[int]) -> float:
    return sum(counts) / max(len(counts), 1)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_has_a_docstring_with_a_summary(name: str) -> None:
    own = PUBLIC[name].__doc__
    assert own, f"{name} has no docstring"
    summary = inspect.cleandoc(own).splitlines()[0]
    assert summary.strip(), f"{name}: begin the docstring with a summary line"


@pytest.mark.parametrize("name", sorted({value.__module__ for value in PUBLIC.values()}))
def test_examples_in_docstrings_run(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert failed == 0


@pytest.mark.parametrize("name", ["masks", "normalizers", "positions", "scores"])
def test_a_public_module_has_an_example_that_runs(name: str) -> None:
    module = importlib.import_module(f"saccade.core.{name}")
    assert ">>>" in str(module.__doc__)
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("name", sorted(ROOMS))
def test_constants_name_unit_and_meaning(name: str) -> None:
    vague = {str(path): names for path in ROOMS[name] if (names := vague_constants(TREES[path]))}
    assert not vague or name in VAGUE_CONSTANTS_LEFT, vague


@pytest.mark.parametrize("name", sorted(ROOMS))
def test_errors_have_codes(name: str) -> None:
    lines = {str(path): at for path in ROOMS[name] if (at := raises_without_code(TREES[path]))}
    assert not lines, lines


@pytest.mark.parametrize("name", sorted(ROOMS))
def test_docstrings_have_short_sentences(name: str) -> None:
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef
    nodes = (node for path in ROOMS[name] for node in ast.walk(TREES[path]))
    docs = [ast.get_docstring(node) or "" for node in nodes if isinstance(node, kinds)]
    plain = [re.sub(r"(?ms)^\s*>>>.*?(\n\s*\n|\Z)", "", doc) for doc in docs]
    assert mean([count for doc in plain for count in sentence_lengths(doc)]) <= 20


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_have_short_sentences(page: Path) -> None:
    words = mean(sentence_lengths("\n".join(prose(page))))
    assert words <= 20, f"{words:.1f} words per sentence"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_wrap_at_100_columns(page: Path) -> None:
    found = long_lines(page)
    assert not found or page.name in LONG_LINES_LEFT, found[:3]


def test_the_checks_find_mistakes() -> None:
    assert vague_constants(ast.parse("MOST = 3\nMAX_ROWS = 3\nFEW, LONGEST_NAME = 1, 2")) == [
        "MOST",
        "FEW",
        "LONGEST_NAME",
    ]
    raises = "raise SaccadeError('x')\nraise SaccadeError('x', code='not-a-mask')\n"
    assert raises_without_code(ast.parse(raises + "raise SaccadeError('x', code='No')")) == [1, 3]
    passed_on = "raise WrongExample('x', code=error.code)\nerror = WrongExample(code=kind)"
    assert raises_without_code(ast.parse(passed_on)) == [2]
    assert sentence_lengths("One two three. Four five six `a b c` seven.\n- eight nine ten") == [
        3,
        5,
        3,
    ]
