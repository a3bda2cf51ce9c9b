"""The public names, and nothing else by accident."""

from __future__ import annotations

import inspect

import pytest

import saccade

NAMES = {"attend", "Mechanism", "masks", "MultiHeadAttention", "build", "load", "fit", "decode", "record", "look", "show"}


def test_the_public_names_are_these() -> None:
    assert set(saccade.__all__) == NAMES
    assert list(saccade.__all__) == sorted(saccade.__all__)


@pytest.mark.parametrize("name", sorted(NAMES | {"explain"}))
def test_a_public_name_is_there_and_says_what_it_is(name: str) -> None:
    thing = getattr(saccade, name)
    assert inspect.getdoc(thing)
    assert inspect.ismodule(thing) == (name == "masks")
    assert callable(thing) != inspect.ismodule(thing)


def test_a_star_import_brings_them() -> None:
    found: dict[str, object] = {}
    exec("from saccade import *", found)
    assert set(found) - {"__builtins__"} == NAMES


def test_the_version_is_told() -> None:
    assert saccade.__version__.count(".") == 2
