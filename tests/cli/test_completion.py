"""What needs no model loads no PyTorch: help, mistakes, lists, checks, fetching and completion answer at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from saccade.cli import COMMANDS
from saccade.config import index
from saccade.core import scores
from support import run_cli

ROOT = Path(__file__).parents[2]
SLOW = ("torch", "matplotlib", "sacrebleu", "tokenizers", "safetensors", "PIL")
# runs each command line in one process and prints which of the slow packages each has loaded
DRIVER = """
import contextlib, io, json, sys
from saccade.cli import run
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as err:
        code = run(words)
    print(json.dumps([words, code, [name for name in sys.argv[2:] if name in sys.modules]]))
"""


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), **more}


def test_no_quick_command_loads_a_slow_package(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("the cat\tle chat\n")
    (tmp_path / "a.txt").write_text("the cat\n")
    (tmp_path / "a.conllu").write_text("1\tcat\tcat\tNOUN\t_\t_\t0\troot\t_\t_\n\n")
    commands = [[*name.split(), "--help"] for name in COMMANDS]
    lines = [
        "--help",
        "--version",
        "list",
        "list --json",
        "list recipes",
        "list families",
        "list foo",
        "check a.tsv --as labels",
    ]
    lines += [
        "check a.tsv",
        "check a.txt",
        "check a.conllu",
        "check nowhere.tsv",
        "fetch",
        "fetch nothing",
        "table",
        "runs",
        "runs remove nothing --yes",
        "nope",
        "train --lr 3",
        "translate",
    ]
    commands += [line.split() for line in lines]
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps(commands), *SLOW],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [words for words, _, _ in rows] == commands
    assert [(words, loaded) for words, _, loaded in rows if loaded] == []
    codes = {" ".join(words): code for words, code, _ in rows}
    assert {
        codes[line]
        for line in (
            "list",
            "list recipes",
            "list families",
            "check a.tsv",
            "check a.conllu",
            "fetch",
            "table",
            "train --help",
        )
    } == {0}
    assert {
        codes[line]
        for line in ("list foo", "nope", "fetch nothing", "train --lr 3", "check nowhere.tsv")
    } == {2}


def protocol(shell: str, line: str) -> dict[str, str]:
    """How a shell asks for the completion of a line whose last word is being typed."""
    words = line.split(" ")
    more = {
        "_SACCADE_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    return {**more, "_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_completes_keys_with_their_meaning(shell: str, tmp_path: Path) -> None:
    asked = environment(**protocol(shell, "saccade train multi30k-en-de training.w"))
    command = [sys.executable, "-X", "importtime", "-m", "saccade"]
    done = subprocess.run(
        command, cwd=tmp_path, env=asked, capture_output=True, text=True, timeout=300, check=False
    )
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "saccade.cli" in loaded
    assert not loaded & set(SLOW)
    assert "training.warmup=" in done.stdout
    assert "training.weight_decay=" in done.stdout
    assert "training.updates" not in done.stdout
    assert ("updates in which the learning rate rises" in done.stdout) == (shell != "bash"), (
        "bash shows no meanings"
    )


LINES = {  # what is typed: a proposal, and what is not one
    "saccade train phrasebook-": ("phrasebook-bahdanau", "multi30k"),
    "saccade train m": ("my.yaml", "phrasebook-bahdanau"),
    "saccade train my.yaml model.fam": ("model.family=transformer", "model.dim"),
    "saccade train my.yaml model.family = trans": ("transformer-decoder", "bahdanau"),
    "saccade train my.yaml model.family =": ("bahdanau", "model.family"),
    "saccade train my.yaml training.precision=b": ("training.precision=bf16", "float32"),
    "saccade train my.yaml training.updat": ("training.updates=2000", "training.tokens"),
    "saccade compare my.yaml seed=1 data.sw": ("data.swap=true", "data.train"),
    "saccade translate ru": ("runs/demo/bahdanau", "runs/notes"),
    "saccade list ": ("recipes", "families"),
    "saccade fetch mu": ("multi30k", "sst2"),
    "saccade translate x --device m": ("mps", "cuda"),
}
COMPLETER = """
import contextlib, io, json, os, sys
from saccade.cli import run
for asked in json.loads(sys.argv[1]):
    os.environ.update(asked)
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        run([])
    print(json.dumps(out.getvalue().splitlines()))
assert "torch" not in sys.modules
"""


def test_values_are_completed(tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text("seed: 1\n")
    (tmp_path / "runs" / "demo" / "bahdanau").mkdir(parents=True)
    (tmp_path / "runs" / "demo" / "bahdanau" / "recipe.json").write_text("{}")
    (tmp_path / "runs" / "notes").mkdir()
    asked = json.dumps([protocol("bash", line) for line in LINES])
    done = subprocess.run(
        [sys.executable, "-c", COMPLETER, asked],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    for (line, (wanted, unwanted)), printed in zip(
        LINES.items(), map(json.loads, done.stdout.splitlines()), strict=True
    ):
        assert wanted in printed, line
        assert not [one for one in printed if unwanted in one], line


def test_the_packaged_index_is_the_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    live = index.rows()
    monkeypatch.delitem(sys.modules, "torch")
    assert index.rows() == live, "run `python benchmarks/tables.py`"
    assert index.slots()["scores"][0]["name"] == "dot"


def test_users_own_entries_are_listed_where_pytorch_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scores.table, "_entries", dict(scores.table._entries))

    @scores.table.add("mine")
    class Mine(scores.Dot):
        """My own [score]."""

    assert {"slot": "scores", "name": "mine", "what": "My own [score].", "paper": ""} in index.rows(
        "scores"
    )


def test_usual_names_of_slots_are_known() -> None:
    assert run_cli("list", "families").out == run_cli("list", "models").out
    assert set(index.USUAL.values()) <= set(index.slots())
    assert not set(index.USUAL) & set(index.slots())
    assert run_cli("list", "masks").out.splitlines()[0].startswith("masks\tfull\t"), (
        "one line per row for grep"
    )


def test_recipes_are_listed_with_what_they_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SACCADE_DATA", str(tmp_path / "cache"))
    rows = {row["name"]: row for row in run_cli("list", "recipes", "--json").json}
    assert set(rows) == {path.stem for path in (ROOT / "recipes").rglob("*.yaml")}
    assert rows["phrasebook-bahdanau"]["needs"] == "nothing"
    assert rows["translation"]["needs"] == "data.train=YOUR_FILE"
    assert rows["ud-ewt-upos"]["task"] == "tagging"
    assert rows["sst2-pretrained"]["needs"] == "saccade fetch sst2 + saccade fetch wikitext-2"
    (tmp_path / "data" / "tinyshakespeare").mkdir(parents=True)
    (tmp_path / "data" / "tinyshakespeare" / "input.txt.xz").write_bytes(b"")
    (tmp_path / "cache" / "ud-ewt").mkdir(parents=True)
    for part in ("train", "dev"):
        (tmp_path / "cache" / "ud-ewt" / f"en_ewt-ud-{part}.conllu.xz").write_bytes(b"")
    needs = {row["name"]: row["needs"] for row in run_cli("list", "recipes", "--json").json}
    assert (needs["tinyshakespeare"], needs["ud-ewt-upos"], needs["sst2-rnn"]) == (
        "nothing",
        "nothing",
        "saccade fetch sst2",
    )
