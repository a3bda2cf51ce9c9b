"""Plain words: names and sentences that users and readers meet are those that engineers of this field use."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "src" / "saccade").rglob("*.py"))
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "recipes").rglob("*.yaml")),
]

# pattern → what to write instead
INSTEAD = {
    r"(?<!in )\bplaces?\b(?! of (a|the) )": "position",
    r"\b(bend|bends|bending|bent)\b": "bias",
    r"\bis no (?!longer|more)\w": "is not a …; expected X, got Y",
    r"\b(told|tells|tell)\b": "reported, prints",
    r"\b(go|goes|going|went) on\b": "continue, resume",
    r"\bput(s|ting)? out\b": "generate, output",
    r"\bhand(s|ed|ing)? in\b": "pass",
    r"\bstand(s|ing)? (at|in|on|where|here|there|for|beside|behind|before|above|below)\b": "is",
    r"\bone a (head|token|word|row|layer|block|sentence|text|place)\b": "one per …",
    r"\ba (vector|number|weight|label|score|line|row|matrix|bias) a (head|token|word|row|text|sentence|place|position|query|key|pair)\b": "one per …",
    r"\brecorded? (and played|updates?|as a? ?CUDA)": "captured and replayed",
    r"\bto be seen here\b": "available",
}
# what a word may also mean
ALLOWED = {
    # the key of a result file, and of what 0.1.0 wrote; the figures of a paper
    "figures": ("experiments/results.py", "training/checkpoints.py", "views/figures.py"),
    # settings of 0.1.0; where a sentence says that something happens; a tensor changed in place
    "places": (
        "models/builder.py",
        "config/upgrade.py",
        "generated/phrasebook.py",
        "core/masks.py",
    ),
    # the words that still fit into a sentence; the inches of a picture
    "room": ("generated/choice.py", "generated/phrasebook.py", "views/figures.py"),
    # "there is no file"
    "is no": (
        "data/lines.py",
        "data/vocabulary.py",
        "saccade/demo.py",
        "models/rnn.py",
        "views/document.py",
    ),
    # to tell apart
    "tell": ("layers/token_inputs.py", "tasks/label_task.py", "views/figures.py"),
    # an alias of YAML stands for what it repeats
    "stand": ("saccade/recipe.py",),
}


def texts(path: Path) -> list[tuple[int, str]]:
    """Docstrings, messages and comments of a file, by line."""
    source = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return list(enumerate(re.sub(r"`[^`]*`", "", source).splitlines(), 1))
    found = [
        (node.lineno, node.value)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    comments = [
        (n, line.partition("  # ")[2] or line.strip()[2:])
        for n, line in enumerate(source.splitlines(), 1)
        if "# " in line
    ]
    return found + [(n, text) for n, text in comments if "noqa" not in text and "type:" not in text]


@pytest.mark.parametrize("path", [*FILES, *PAGES], ids=lambda path: str(path.relative_to(ROOT)))
def test_the_words_are_plain(path: Path) -> None:
    odd, found = [], texts(path)
    for pattern, better in INSTEAD.items():
        if any(
            str(path).endswith(name)
            for word, names in ALLOWED.items()
            for name in names
            if word in pattern
        ):
            continue
        odd += [
            f"line {n}: {text.strip()[:90]!r}: write {better}"
            for n, text in found
            if re.search(pattern, text)
        ]
    assert odd == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_are_plain(path: Path) -> None:
    names = {
        node.name
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    assert not {
        name
        for name in names
        if re.search(
            r"(^|_)(told|said|bend|turn|turned|place|places|spoken|speaks|hush)(_|$)", name.lower()
        )
    }


def test_an_odd_word_is_found() -> None:
    assert re.search(next(iter(INSTEAD)), "the places of keys")
    assert any(re.search(pattern, "'x' is no score; hand in a built one") for pattern in INSTEAD)
