"""`show` as people type it: a table in the terminal, the attention worth seeing, words in place of pieces."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib import font_manager
from rich.cells import cell_len

from saccade import api
from saccade.training.checkpoints import RunFolder
from saccade.views.plots import fonts
from support import run_cli, tiny_recipe

TEXT = "the black cat ate the mouse"


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained Transformer of two layers and two heads over few pieces, so that words fall apart."""
    root = tmp_path_factory.mktemp("pieces")
    recipe = tiny_recipe(
        vocabulary={"kind": "bpe", "size": 280},
        model={"family": "transformer", "dim": 8, "hidden": 8, "depth": 2, "heads": 2},
    )
    system = api.build(recipe)
    RunFolder(root, api.model_files(system)).save("model", system.model)
    return root / "model"


def test_without_a_file_a_table_is_printed_and_what_else_there_is(pieces: Path) -> None:
    printed = run_cli("show", pieces, "the cat", "--target", "le chat", "--site", "decoder.0.cross")
    assert printed.code == 0, printed.err
    source, target, empty, name, head, *rows = printed.out.splitlines()
    assert (source, target, empty) == ("the cat", "→ le chat", "")
    assert name == "decoder.0.cross: average of 2 heads, in %"
    document = api.show(api.load(pieces), "the cat", "le chat")
    assert head.split() == document.sites[0].columns
    assert [row.split()[0] for row in rows] == document.sites[0].rows
    shown = [[float(number.replace("·", "0")) for number in row.split()[1:]] for row in rows]
    np.testing.assert_allclose(shown, 100 * np.mean(document.sites[0].weights, 0), atol=0.51)
    assert "--head 0 to 1 shows one head of decoder.0.cross, --heads each of them" in printed.err


def test_the_attention_worth_seeing_is_chosen_and_the_others_are_named(
    pieces: Path, tmp_path: Path
) -> None:
    printed = run_cli("show", pieces, "the cat", "--target", "le chat", "--json")
    chosen, sites = printed.json["site"], printed.json["sites"]
    assert chosen in ("decoder.0.cross", "decoder.1.cross"), (
        "attention to the source tells more than that within a text"
    )
    told = run_cli("show", pieces, "the cat", "--target", "le chat").err
    others = ", ".join(site for site in sites if site != chosen)
    assert f"note: {chosen} singles out the most words; --site shows another: {others}\n" in told
    page = tmp_path / "x.html"
    for site in ("encoder.0.mixer", "decoder.1.cross"):
        assert run_cli("show", pieces, "the cat", "--site", site, "--out", page).code == 0
        assert re.search(r'"sites":\[\{"name":"([^"]*)"', page.read_text())[1] == site, (
            "the page begins with it"
        )  # type: ignore[index]


def test_one_head_and_every_head(pieces: Path) -> None:
    words = ("show", pieces, "the cat", "--target", "le chat", "--site", "decoder.1.cross")
    weights = api.show(api.load(pieces), "the cat", "le chat").sites[1].weights
    one = run_cli(*words, "--head", 1, "--json").json["weights"]
    np.testing.assert_allclose(one["head 1"], weights[1], atol=1e-4)
    both = run_cli(*words, "--heads", "--json").json["weights"]
    assert list(both) == ["head 0", "head 1"]
    names = [
        line for line in run_cli(*words, "--heads").out.splitlines() if line.startswith("decoder")
    ]
    assert names == ["decoder.1.cross: head 0, in %", "decoder.1.cross: head 1, in %"]


def test_pieces_have_marks_and_words_have_none(pieces: Path, tmp_path: Path) -> None:
    facts = run_cli("show", pieces, TEXT, "--target", "le chat", "--json").json
    assert (facts["source"], facts["target"]) == (TEXT, "le chat"), "a sentence, not its pieces"
    assert facts["columns"][-1] == "<eos>"
    assert "".join(facts["columns"][:-1]) == "▁" + TEXT.replace(" ", "▁")
    words = run_cli("show", pieces, TEXT, "--target", "le chat", "--words", "--json").json
    assert (words["rows"], words["columns"]) == (["le", "chat", "<eos>"], [*TEXT.split(), "<eos>"])
    [table] = words["weights"].values()
    np.testing.assert_allclose(np.sum(table, 1), 1.0, atol=1e-3)
    pages = [tmp_path / "pieces.json", tmp_path / "words.json"]
    for page, more in zip(pages, ((), ("--words",)), strict=True):
        assert run_cli("show", pieces, TEXT, "--out", page, *more).code == 0
    assert pages[0].stat().st_size > pages[1].stat().st_size


def test_characters_of_several_bytes_are_never_spaces(pieces: Path) -> None:
    facts = run_cli("show", pieces, "私は 🙂", "--target", "né", "--json").json
    assert facts["columns"] == [
        "▁",
        "私₁",
        "私₂",
        "私₃",
        "は₁",
        "は₂",
        "は₃",
        "▁",
        *(f"🙂{n}" for n in "₁₂₃₄"),
        "<eos>",
    ]
    assert run_cli("show", pieces, "私は 🙂", "--target", "né", "--words", "--json").json[
        "columns"
    ] == ["私は", "🙂", "<eos>"]


def test_a_real_terminal_gets_colors_and_no_line_that_is_too_long(models: Path) -> None:
    ours, theirs = pty.openpty()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TERM": "xterm-256color",
        "COLUMNS": "40",
    }
    command = [sys.executable, "-m", "saccade", "show", str(models / "run"), TEXT]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        os.close(theirs)
        printed = b""
        while True:
            try:
                some = os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            if not some:
                break
            printed += some
    os.close(ours)
    assert process.returncode == 0
    text = printed.decode()
    assert re.search(r"\x1b\[[0-9;]*48;[25];", text), "a background"
    table = re.sub(r"\x1b\[[0-9;]*m", "", text).replace("\r", "").split("in %\n")[1].rstrip()
    assert max(map(cell_len, table.splitlines())) <= 40
    assert table.count("<eos>") > 1, "folded: the last column comes under the first ones"


def test_a_character_that_no_font_has_is_noted_once(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = [entry for entry in font_manager.fontManager.ttflist if "mpl-data" in entry.fname]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", own)
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda *_: [])
    fonts._cover.cache_clear()
    told = {
        ending: run_cli("show", models / "run", "the 私 cat", "--out", tmp_path / f"x.{ending}").err
        for ending in ("png", "svg", "html")
    }
    fonts._cover.cache_clear()
    assert (
        told["png"].count("note: no font here has 私; install fonts-noto-cjk, or write .html\n")
        == 1
    )
    assert "font" not in told["svg"] + told["html"], "who opens these has fonts"
    assert ">私</text>" in (tmp_path / "x.svg").read_text()
