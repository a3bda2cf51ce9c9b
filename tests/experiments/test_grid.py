"""`compare --vary`: how values are split, how rows are called, and what is refused before any training."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from saccade.experiments.grid import split_values, variations, vary
from support import error_of, tiny_recipe


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("dot,bilinear,additive", ["dot", "bilinear", "additive"]),
        (" dot , additive ", ["dot", "additive"]),
        ("full,{name: window, left: 3},{name: blocks, length: [1, 2]}", ["full", "{name: window, left: 3}", "{name: blocks, length: [1, 2]}"]),
        ("'a,b',c", ["'a,b'", "c"]),
        ('{name: "x,}y"},z', ['{name: "x,}y"}', "z"]),
        ("it's,that's", ["it's", "that's"]),
        ("a,,b", ["a", "", "b"]),
        ("", [""]),
    ],
)  # fmt: skip
def test_commas_within_brackets_and_quotes_do_not_separate(text: str, values: list[str]) -> None:
    assert split_values(text) == values


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a,b}", "'a,b}': '}' closes no bracket; write values such as {name: window, left: 3}"),
        ("{a: [1},b", "'}' closes no bracket"),
        ("a,{b: 1", "} is missing at the end; close what was opened"),
        ("'a,b", "' is missing at the end"),
    ],
)
def test_brackets_that_do_not_match_are_refused(text: str, sentence: str) -> None:
    assert sentence in error_of(lambda: split_values(text))


def test_rows_are_called_by_what_varies() -> None:
    assert variations([]) == {"": []}
    assert variations(["model.mask=full,{name: window, left: 3}", "model.dim=4,8"]) == {
        "mask=full,dim=4": ["model.mask=full", "model.dim=4"],
        "mask=full,dim=8": ["model.mask=full", "model.dim=8"],
        "mask=window,left=3,dim=4": ["model.mask={name: window, left: 3}", "model.dim=4"],
        "mask=window,left=3,dim=8": ["model.mask={name: window, left: 3}", "model.dim=8"],
    }
    assert (
        list(variations(["model.dropout=0,0.1", "other.dropout=0,0.2"]))[-1]
        == "model.dropout=0.1,other.dropout=0.2"
    )
    assert next(iter(variations(["data.train=../a b/x.tsv,y.tsv"]))) == "train=.._a_b_x.tsv", (
        "a name of a folder"
    )


def test_each_row_is_a_recipe_of_its_own(tmp_path: Path) -> None:
    path, other = tmp_path / "small.yaml", tmp_path / "other.yaml"
    path.write_text(yaml.safe_dump(tiny_recipe()))
    other.write_text(yaml.safe_dump(tiny_recipe(seed=3)))
    one = vary({"small": str(path)}, ["model.score=dot,bilinear"], ["model.dim=8"])
    assert {name: (made.model["score"], made.model["dim"]) for name, made in one.items()} == {
        "score=dot": ("dot", 8),
        "score=bilinear": ("bilinear", 8),
    }
    two = vary({"small": str(path), "other": str(other)}, ["model.dim=4,8"], [])
    assert {name: (made.seed, made.model["dim"]) for name, made in two.items()} == {
        "small-dim=4": (0, 4),
        "small-dim=8": (0, 8),
        "other-dim=4": (3, 4),
        "other-dim=8": (3, 8),
    }
    assert list(vary({"small": str(path)}, [], [])) == ["small"]
    same = error_of(lambda: vary({"small": str(path)}, ["training.learning_rate=0.001,1e-3"], []))
    assert (
        same
        == "learning_rate=1e-3 is the same recipe as another row; leave one of the two values out"
    )


@pytest.mark.parametrize(
    ("words", "given", "sentence"),
    [
        (
            ["model.score"],
            [],
            "--vary is 'model.score'; write a key and several values, such as model.score=dot,additive",
        ),
        (["=a,b"], [], "--vary is '=a,b'; write a key and several values"),
        (["model.score=dot"], [], "--vary is 'model.score=dot'; write a key and several values"),
        (["model.score=dot,,additive"], [], "write a key and several values"),
        (
            ["model.score=a,b", "model.score=c,d"],
            [],
            "model.score is given twice; vary it by one --vary, and do not set it besides",
        ),
        (["model.score=a,b"], ["model.score"], "model.score is given twice"),
        (
            ["model.score=a,a"],
            [],
            "two rows would be called 'score=a'; leave one of the two values out",
        ),
        (
            [f"k{n}=1,2" for n in range(60)],
            [],
            "--vary makes more than 1,000 combinations; vary fewer settings",
        ),
    ],
    ids=lambda value: None if isinstance(value, list) else value[:20],
)
def test_what_cannot_be_varied_is_refused(
    words: list[str], given: list[str], sentence: str
) -> None:
    assert sentence in error_of(lambda: variations(words, given))
