"""Results as plain values: JSON, tables and HTTP answers are made of `to_dict`."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from saccade.views.answers import (
    Aligned,
    Answered,
    Caption,
    Classified,
    Generated,
    Metrics,
    Reconstructed,
    Result,
    Seen,
    Tagged,
    Translated,
    Written,
)
from saccade.views.step_answers import Scored, ScoredToken, Steps

HALVES = np.array([[0.5, 0.5], [0.25, 0.75]], np.float32)
CHANCES = {"good": 0.75, "bad": np.float32(0.25)}
PIXELS = np.zeros((2, 2, 3), np.uint8)


def unused() -> Any:
    raise AssertionError("a result as plain values runs no model")


RESULTS: dict[str, Any] = {
    "translated": Translated("ja", -0.5, -0.25, [4, 5], True, ["nein"], "yes", ((0, 1),), unused),
    "classified": Classified("good", CHANCES, ["a", "b"], HALVES[0], unused),
    "tagged": Tagged(["D", "N"], ["the", "dog"], ["D", "N"], HALVES),
    "seen": Seen("cat", CHANCES, "cat.png", HALVES, unused),
    "caption": Caption("a cat", -1.0, True, [], ["a", "cat"], HALVES[None], "cat.png", unused),
    "caption without attention": Caption(
        "a cat", -math.inf, False, [], ["a", "cat"], None, "cat.png"
    ),
    "answered": Answered("good", CHANCES, "how?", "cat.png", ["how", "?"], HALVES[None]),
    "reconstructed": Reconstructed("cat.png", 0.5, 3.0, PIXELS, None, PIXELS),
    "aligned": Aligned(
        SimpleNamespace(pieces=["a"]), SimpleNamespace(pieces=["b"]), HALVES, [(0, 0)]
    ),
    "steps": Steps("ja", -0.5, (), "yes"),
    "scored": Scored("yes", "ja", (ScoredToken("ja", -0.5, 1, "ja", 0.6, "yes"),), ((0, 0),)),
    "generated": Generated("once", iter([" upon", " a"])),
    "metrics": Metrics({"bleu": 25.5}),
}
WANTED = {
    "translated": {"text": "ja", "log_prob": -0.5, "score": -0.25, "tokens": [4, 5], "finished": True, "alternatives": ["nein"],
                   "source": "yes", "copied": [[0, 1]]},
    "classified": {"label": "good", "probabilities": {"good": 0.75, "bad": 0.25}, "pieces": ["a", "b"], "weights": [0.5, 0.5]},
    "tagged": {"words": ["the", "dog"], "tags": ["D", "N"], "labels": ["D", "N"], "probabilities": HALVES.tolist()},
    "reconstructed": {"name": "cat.png", "error": 0.5, "psnr": 3.0},
    "aligned": {"source": ["a"], "target": ["b"], "weights": HALVES.tolist(), "links": [[0, 0]]},
    "generated": {"prompt": "once", "text": " upon a"},
}  # fmt: skip


def subclasses(kind: type) -> set[type]:
    return {one for direct in kind.__subclasses__() for one in (direct, *subclasses(direct))}


def test_every_kind_of_result_is_tried_here() -> None:
    # a task's own kinds are tried in its test; `Written` is what generated texts share
    found = {one for one in subclasses(Result) if one.__module__.startswith("saccade.views")}
    assert found - {Written} == {type(one) for one in RESULTS.values()} - {Generated, Metrics}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_becomes_json(name: str) -> None:
    one = RESULTS[name]
    values = dict(one) if isinstance(one, Metrics) else one.to_dict()
    assert json.loads(json.dumps(values, allow_nan=False)) == values
    assert values == WANTED.get(name, values)
    assert all(isinstance(key, str) for key in values)


def test_some_fields_alone_and_what_json_lacks() -> None:
    assert RESULTS["translated"].to_dict("text", "log_prob") == {"text": "ja", "log_prob": -0.5}
    assert RESULTS["caption without attention"].to_dict("log_prob", "weights") == {
        "log_prob": None,
        "weights": None,
    }
    assert list(RESULTS["classified"].to_dict("probabilities", "label")) == [
        "probabilities",
        "label",
    ]
