"""Nothing that a user pipes in, unpacks or looks at fills the memory or hangs, and nothing of a model folder commands the terminal."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saccade import api
from saccade.cli import input_stream
from saccade.cli.shared import visible
from saccade.config import recipes
from saccade.data import lines
from saccade.errors import SaccadeError
from saccade.views import long_texts
from saccade.views.html_page import attention_page
from support import error_of, run_cli

MERGES = "a0: &a0 {k: 1}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 8)}]}}\n" for n in range(1, 12)
)


def test_merge_keys_are_refused_and_aliases_counted(tmp_path: Path) -> None:
    path = tmp_path / "bomb.yaml"
    path.write_text(MERGES)
    assert "'<<' merges settings into others, which recipes do not have" in error_of(
        lambda: recipes.read_recipe(path)
    )
    path.write_text("x: &x [1]\n" + "y: &y [*x, *x]\n")
    assert "no setting named 'x'" in error_of(lambda: recipes.read_recipe(path))
    path.write_text("a: " + "x" * recipes.LARGEST)
    assert "is larger than a recipe can be" in error_of(lambda: recipes.read_recipe(path))


def test_half_a_surrogate_in_a_recipe_is_refused() -> None:
    assert "data.train holds half of a surrogate pair" in error_of(
        lambda: recipes.recipe({"data": {"train": "\ud800"}})
    )


def test_a_packed_file_may_not_unpack_to_a_hundred_times_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MIN_UNPACKED_BYTES", 10_000 * (lines.EXAMPLE_BYTES + 8))
    bomb, fine = tmp_path / "bomb.txt.gz", tmp_path / "fine.txt.gz"
    bomb.write_bytes(gzip.compress(b"the cat\n" * 100_000))
    fine.write_bytes(gzip.compress(b"the cat\n" * 10_000))
    assert "times its own; if it is really so much text, unpack it" in error_of(
        lambda: list(lines.open_text(bomb))
    )
    assert len(list(lines.open_text(fine))) == 10_000


def test_a_sentence_without_an_end_is_one_error(tmp_path: Path) -> None:
    path = tmp_path / "endless.tsv"
    path.write_text("a\tb\n" * (lines.MAX_BLOCK_LINES + 5) + "\na\tb\n")
    found = list(lines.blocks(path))
    assert [type(one).__name__ for _, one in found] == ["LineError", "list"]
    assert "more than 10,000 lines without an empty one" in str(found[0][1])


def test_a_line_of_stdin_without_an_end_is_refused(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_stream, "MAX_LINE_BYTES", 1000)
    printed = run_cli("translate", models / "run", stdin="x" * 5000)
    assert (printed.code, printed.out) == (2, "")
    assert "stdin, line 1: longer than 1,000 bytes; put one sentence on each line" in printed.err


@pytest.mark.parametrize(
    "line",
    [
        "translate {}/run --input {}",
        "classify {}/../shelf/labels --input {}",
        "tag {}/../shelf/tags {}",
    ],
)
def test_files_are_answered_in_parts(
    line: str, models: Path, shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more lines than fit together are ever asked for before the first are answered, and the answers are those of one part."""
    path = tmp_path / "in.txt"
    path.write_text("a good film\nthe cat\n" * 10)
    where = (
        line.replace("{}/../shelf", str(shelf))
        .replace("{}/run", f"{models}/run")
        .replace("{}", str(path))
        .split()
    )
    whole = run_cli(*where)
    sizes = []
    task = api.load(where[1]).task
    real = type(task).predict
    monkeypatch.setattr(
        type(task),
        "predict",
        lambda self, model, given, *more, **how: (
            sizes.append(len(given)) or real(self, model, given, *more, **how)
        ),
    )
    monkeypatch.setattr("saccade.cli.predict.MANY", 7)
    assert run_cli(*where).out == whole.out
    assert (whole.code, max(sizes), sum(sizes)) == (0, 7, 20)


def test_escape_sequences_are_spelled_out() -> None:
    assert visible("a\x1b[2J\x9b31m\x07\tb\r\n") == "a\\x1b[2J\\x9b31m\\x07\tb\r\n"
    printed = run_cli("translate", "\x1b[31mno\x1b[0m", "hi")
    assert printed.code == 2
    assert "\x1b" not in printed.err


def test_what_the_model_names_as_its_test_data_is_said_before_it_is_read(models: Path) -> None:
    printed = run_cli("evaluate", models / "run", "test")
    assert printed.code == 0
    assert "note: test is what the model's own recipe names: phrasebook:test" in printed.err
    assert "note: test is" not in run_cli("evaluate", models / "run", "phrasebook:test").err


def python(*words: str, **how: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "saccade", *words], capture_output=True, timeout=300, **how
    )


def test_streams_that_cannot_be_written_to_end_in_no_traceback(shelf: Path) -> None:
    latin = python("list", "scores", env={**os.environ, "PYTHONIOENCODING": "latin-1"})
    assert (latin.returncode, latin.stderr) == (0, b"")
    assert b"additive" in latin.stdout
    closed = subprocess.run(
        f"{sys.executable} -m saccade list scores 2>&-",
        shell=True,
        capture_output=True,
        timeout=300,
    )
    assert closed.returncode == 0
    assert b"additive" in closed.stdout
    plain = {
        **os.environ,
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "COLUMNS": "0",
    }
    told = python("show", str(shelf / "labels"), "кот 日本", env=plain)
    assert (told.returncode, b"Traceback" in told.stderr) == (0, False), told.stderr
    assert rb"\u043a\u043e\u0442" in told.stdout
    assert re.search(rb"\n\w+ +\d+ +\d+ +\d+\n", told.stdout), "the table"
    wrong = python("list", "scores", env={**os.environ, "RANK": "abc", "WORLD_SIZE": "2"})
    assert wrong.returncode == 2
    assert b"expected a whole number in the environment variable RANK, got 'abc'" in wrong.stderr


def test_a_long_text_is_shown_pooled(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system, text = api.load(shelf / "labels"), "a good film " * 20
    exact = system.look(text)
    monkeypatch.setattr(long_texts, "MAX_WEIGHTS", 1000)
    monkeypatch.setattr(long_texts, "MAX_GROUPS", 16)
    monkeypatch.setattr(long_texts, "CHUNK_WEIGHTS", 500)
    found = system.look(text)
    whole, site = exact.sites[-1], found.sites[-1]
    assert (len(whole.rows), site.weights.shape[1:]) == (61, (16, 16))
    np.testing.assert_allclose(site.weights[:, 3].sum(-1), 1.0, atol=1e-5)
    tile = whole.weights[:, 12:16, 4:8].sum(-1).mean(-1)
    np.testing.assert_allclose(site.weights[:, 3, 1], tile, atol=1e-5)
    assert site.long is not None
    assert (site.long.rows, site.long.each, site.rows[1]) == (
        whole.rows,
        (4, 4),
        f"5–8: {whole.rows[4]} … {whole.rows[7]}",
    )
    at, weight = site.long.strongest[10][0]
    assert weight == pytest.approx(whole.weights.mean(0)[10].max(), abs=1e-6)
    assert whole.weights.mean(0)[10, at] == pytest.approx(weight, abs=1e-6)
    assert json.loads(found.to_json())["sites"][-1]["long"]["each"] == [4, 4]
    assert found.words().sites[-1] is site
    assert "tellEach" in attention_page(found)


def test_attention_in_parts_is_the_same(
    monkeypatch: pytest.MonkeyPatch, models: Path, shelf: Path
) -> None:
    from saccade.core import query_chunks

    system, text = api.load(shelf / "labels"), "a good film " * 10
    before = system.classify(text)
    calls = []
    real = query_chunks.attend_in_chunks
    monkeypatch.setattr(
        "saccade.core.attention.attend_in_chunks", lambda *given: calls.append(1) or real(*given)
    )
    monkeypatch.setattr(query_chunks, "MAX_UNCHUNKED_NUMBERS", 10)
    monkeypatch.setattr(query_chunks, "CHUNK_NUMBERS", 100)
    after = system.classify(text)
    assert calls
    assert after.probabilities == pytest.approx(before.probabilities, abs=1e-6)


def test_values_of_parameters_that_are_no_numbers_are_refused(models: Path, tmp_path: Path) -> None:
    import torch

    from saccade.training.checkpoints import is_sound

    assert is_sound(torch.tensor([1.0, -1e9]))
    assert is_sound(torch.zeros(0))
    for bad in (float("nan"), float("inf"), -float("inf"), 3e38):
        assert not is_sound(torch.tensor([0.0, bad]))


def test_settings_of_a_larger_model_than_is_stored_are_refused_before_anything_is_made() -> None:
    from torch import nn

    from saccade.models.builder import limit_size

    with limit_size(100, 10):
        nn.Linear(9, 10)
    with (
        pytest.raises(SaccadeError, match="its settings describe a larger model"),
        limit_size(100, 10),
    ):
        nn.Linear(100, 100)
    nn.Linear(11, 11)
