"""The public names, and nothing else by accident."""

from __future__ import annotations

import doctest
import importlib
import inspect
import os
import pydoc
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import saccade

MODULES = {"masks", "normalizers", "positions", "scores"}
PARTS = {"Mechanism", "MultiHeadAttention", "attend", "look", "record", "which_backend", *MODULES}
RUNS = {"average", "build", "ensemble", "fit", "load"}
USES = {
    "align",
    "caption",
    "classify",
    "decode",
    "evaluate",
    "generate",
    "show",
    "tag",
    "translate",
}
NAMES = PARTS | RUNS | USES | {"SaccadeError", "explain"}


def test_the_public_names_are_these_and_dir_shows_no_others() -> None:
    assert set(saccade.__all__) == NAMES
    assert list(saccade.__all__) == sorted(saccade.__all__)
    importlib.import_module("saccade.api")  # submodules that were loaded are not shown either
    assert set(dir(saccade)) == {*saccade.__all__, "__version__"}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_public_name_is_there_and_says_what_it_is(name: str) -> None:
    thing = getattr(saccade, name)
    assert inspect.getdoc(thing)
    assert inspect.ismodule(thing) == (name in MODULES)
    assert callable(thing) != inspect.ismodule(thing)


def test_a_star_import_brings_them() -> None:
    found: dict[str, object] = {}
    exec("from saccade import *", found)
    assert set(found) - {"__builtins__"} == NAMES


def test_the_package_alone_loads_no_torch() -> None:
    code = (
        "import sys, saccade; saccade.SaccadeError; dir(saccade); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_a_function_is_the_method_of_a_model() -> None:
    from saccade.system.system import System

    for name in USES - {"show"}:
        assert getattr(saccade, name) is getattr(System, name)
    assert saccade.show is System.look


def test_explain_means_one_thing_and_its_old_meaning_is_named() -> None:
    worked = saccade.explain("the black cat")
    assert worked.tokens == ["the", "black", "cat"]
    assert saccade.explain().tokens == ["input 1", "input 2", "input 3"]
    assert saccade.explain(["New York", "sleeps"]).tokens == ["New York", "sleeps"]
    assert (saccade.explain(scaled=True).weights != saccade.explain().weights).any()
    q = torch.randn(1, 2, 5, 8)
    from saccade.core import explain

    for old in (
        lambda: saccade.explain(q, q),
        lambda: saccade.explain(q=q, k=q),
        lambda: explain(q, q),
    ):
        with pytest.warns(
            DeprecationWarning, match=r"is now called saccade\.which_backend\(q, k, …\)"
        ) as warned:
            assert old() == saccade.which_backend(q, q)
        assert warned[0].filename == __file__, "the line that has to be changed is named"


def test_the_version_is_told() -> None:
    assert saccade.__version__.count(".") == 2


WRONG = {
    "attend(x, x, x, msk=3)": "msk",
    "attend(x, x, x, mask=lambda b, h, i, j: j <= i)": "mask",
    "MultiHeadAttention(16, hedas=3)": "hedas",
    "MultiHeadAttention(16).forward(x, msk=masks.causal())": "msk",
    "Mechanism(normalise=None)": "normalise",
    "masks.causal() & x": "operand",
}
RIGHT = [
    "attend(x, x, x, mask=masks.causal() & ~masks.window(2))",
    "MultiHeadAttention(16, heads=2)(x)",
    "Mechanism(mask=masks.causal())",
]


@pytest.mark.slow
def test_the_type_checker_refuses_unknown_arguments(tmp_path: Path) -> None:
    head = "import torch\nfrom saccade import Mechanism, MultiHeadAttention, attend, masks\nx = torch.zeros(1, 1, 1, 1)\n"
    file = tmp_path / "calls.py"
    file.write_text(head + "\n".join([*WRONG, *RIGHT]) + "\n")
    package = str(Path(saccade.__file__).parents[1])
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--follow-imports=silent",
        "--no-error-summary",
        "--cache-dir",
        str(tmp_path),
        str(file),
    ]
    found = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": package},
        check=False,
    ).stdout
    by_line = {int(line.split(":")[1]): line for line in found.splitlines() if ": error:" in line}
    assert set(by_line) == set(range(4, 4 + len(WRONG))), found
    for number, (call, what) in enumerate(WRONG.items(), 4):
        assert what in by_line[number], call


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (saccade.attend, "q k v mechanism mask positions dropout backend"),
        (
            saccade.MultiHeadAttention,
            "dim heads kv_heads mechanism dim_memory bias dropout head_width",
        ),
        (saccade.MultiHeadAttention.forward, "self x memory mask positions"),
    ],
)
def test_a_signature_holds_the_arguments_there_are(
    function: Callable[..., object], names: str
) -> None:
    assert " ".join(inspect.signature(function).parameters) == names
    assert "unknown" not in pydoc.render_doc(function)


@pytest.mark.parametrize("name", ["attend", "Mechanism", "MultiHeadAttention"])
def test_the_examples_of_a_docstring_run(name: str) -> None:
    thing = getattr(saccade, name)
    found = doctest.DocTestFinder(recurse=True).find(thing, name, globs={})
    runner = doctest.DocTestRunner()
    for one in found:
        runner.run(one)
    assert (runner.tries > 2, runner.failures) == (True, 0)
