"""The ten public names, and nothing else by accident."""

from __future__ import annotations

import inspect

import pytest

import saccade

TEN = {"attend", "Mechanism", "masks", "MultiHeadAttention", "build", "load", "fit", "decode", "record", "show"}


def test_the_public_names_are_the_ten() -> None:
    assert set(saccade.__all__) == TEN
    assert len(saccade.__all__) == 10
    assert list(saccade.__all__) == sorted(saccade.__all__)


@pytest.mark.parametrize("name", sorted(TEN | {"explain"}))
def test_a_public_name_is_there_and_says_what_it_is(name: str) -> None:
    thing = getattr(saccade, name)
    assert inspect.getdoc(thing)
    assert inspect.ismodule(thing) == (name == "masks")
    assert callable(thing) != inspect.ismodule(thing)


def test_a_star_import_brings_the_ten() -> None:
    found: dict[str, object] = {}
    exec("from saccade import *", found)
    assert set(found) - {"__builtins__"} == TEN


def test_the_version_is_told() -> None:
    assert saccade.__version__.count(".") == 2
