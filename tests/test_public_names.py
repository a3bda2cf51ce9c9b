"""The public names, and nothing else by accident."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest
import torch

import saccade

MODULES = {"masks", "normalizers", "positions", "scores"}
PARTS = {"Mechanism", "MultiHeadAttention", "attend", "look", "record", "which_backend", *MODULES}
RUNS = {"average", "build", "ensemble", "fit", "load"}
USES = {"align", "caption", "classify", "decode", "evaluate", "generate", "show", "tag", "translate"}
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
    code = "import sys, saccade; saccade.SaccadeError; dir(saccade); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_a_function_is_the_method_of_a_model() -> None:
    from saccade.system import System

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

    for old in (lambda: saccade.explain(q, q), lambda: saccade.explain(q=q, k=q), lambda: explain(q, q)):
        with pytest.warns(DeprecationWarning, match=r"is now called saccade\.which_backend\(q, k, …\)") as warned:
            assert old() == saccade.which_backend(q, q)
        assert warned[0].filename == __file__, "the line that has to be changed is named"


def test_the_version_is_told() -> None:
    assert saccade.__version__.count(".") == 2
