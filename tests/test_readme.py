"""The README's examples do what is written beside them: the ten lines of Python, the recipe, the commands."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from saccade import api
from saccade.cli import run
from saccade.config import recipes
from saccade.data.pairs import Pair

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    part.strip()
    for line in re.findall(r"^    (saccade .*)$", TEXT, flags=re.MULTILINE)
    for part in line.split("#")[0].split("&&")
]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, flags=re.DOTALL)


def test_the_lines_of_python_print_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    [code] = blocks("python")
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    said = re.search(r"computed on demand: ([\d ×]+)", code)
    assert said is not None
    shape = ", ".join(re.findall(r"\d+", said.group(1)))
    assert capsys.readouterr().out == f"torch.Size([{shape}])\n"
    assert list(tmp_path.iterdir()) == []


def test_the_recipe_is_one() -> None:
    [text] = blocks("yaml")
    made = recipes.recipe(yaml.safe_load(text))
    assert (made.data.train, made.model["position"]["name"]) == ("train.en,train.fr", "rotary")
    shrunk = recipes.recipe(
        made.to_dict(), ["model.dim=16", "model.hidden=16", "model.depth=1", "vocabulary.size=300"]
    )
    assert api.build(shrunk, [Pair("the cat", "le chat", 1)]).name == "transformer"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_the_options_it_is_given(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    name, *words = shlex.split(command)[1:]
    assert run([name, "--help"]) == 0
    told = capsys.readouterr().out
    for word in words:
        assert not word.startswith("-") or word in told, f"saccade {name} has no {word}"
        if name == "train" and "=" in word:
            recipes.recipe({"model": {"family": "transformer"}}, [word])


def test_there_are_commands_for_the_whole_way() -> None:
    assert {shlex.split(command)[1] for command in COMMANDS} >= {
        "check",
        "train",
        "translate",
        "evaluate",
        "show",
    }


def test_the_first_screen_has_what_a_visitor_needs() -> None:
    screen = TEXT.split("## ")[0]
    picture, python, shell = (
        screen.index(sign) for sign in ("![", "```python", "    saccade train")
    )
    assert (
        picture
        < screen.index("**")
        < screen.index("    make demo")
        < screen.index("    make test")
        < python
        < shell
    )
    [path] = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", screen)
    assert (ROOT / path).read_bytes().startswith(b"\x89PNG")


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")
@pytest.mark.parametrize("target", sorted(set(re.findall(r"`?make ([a-z-]+)", TEXT))))
def test_make_knows_the_targets(target: str) -> None:
    done = subprocess.run(
        ["make", "-n", target], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
