"""A recipe with some of its settings varied: the grid of all combinations, each row named by what varies."""

import itertools
import math
import re
from collections.abc import Sequence

import yaml

from ..config.recipes import NOT_READ, Recipe, read_recipe
from ..errors import SaccadeError

MOST_ROWS, LONGEST = 1000, 60  # letters of a value in a name
PAIRS, QUOTES = {"[": "]", "{": "}"}, "\"'"
UNSAFE = re.compile(r"[^\w.,=+-]+")  # in the name of a folder


def split_values(text: str) -> list[str]:
    """The values between commas; those within brackets or quotes belong to a value."""
    found, ends = [""], list[str]()
    for letter in text:
        if ends and letter == ends[-1]:
            ends.pop()
        elif ends and ends[-1] in QUOTES:
            pass
        elif letter in PAIRS.values():
            raise SaccadeError(
                f"'{text}': '{letter}' closes no bracket; write values such as {{name: window, left: 3}}",
                code="bracket-open",
            )
        elif letter in PAIRS or (
            letter in QUOTES and found[-1].rstrip()[-1:] in ("", ",", ":", *PAIRS)
        ):  # not an apostrophe
            ends.append(PAIRS.get(letter, letter))
        if letter == "," and not ends:
            found.append("")
        else:
            found[-1] += letter
    if ends:
        raise SaccadeError(
            f"'{text}': {ends[-1]} is missing at the end; close what was opened",
            code="bracket-open",
        )
    return [value.strip() for value in found]


def called(value: str) -> str:
    """A value as a part of a row's name: `{name: window, left: 3}` is `window,left=3`."""
    try:
        read = yaml.safe_load(value)
    except NOT_READ:
        read = value  # the recipe will refuse it
    if isinstance(read, dict):
        value = ",".join(str(one) if key == "name" else f"{key}={one}" for key, one in read.items())
    return UNSAFE.sub("_", value)[:LONGEST]


def variations(words: Sequence[str], given: Sequence[str] = ()) -> dict[str, list[str]]:
    """The grid of some `KEY=VALUE,VALUE`: row name → its `KEY=VALUE`s; `given`: keys set besides. Without any: one row without a name."""
    axes: dict[str, list[str]] = {}
    for word in words:
        key, _, text = word.partition("=")
        values = split_values(text)
        if not key or "" in values or len(values) < 2:
            raise SaccadeError(
                f"--vary is '{word}'; write a key and several values, such as model.score=dot,additive",
                code="not-a-variation",
            )
        if key in (*axes, *given):
            raise SaccadeError(
                f"{key} is given twice; vary it by one --vary, and do not set it besides",
                code="given-twice",
            )
        axes[key] = values
    if math.prod(map(len, axes.values())) > MOST_ROWS:
        raise SaccadeError(
            f"--vary makes more than {MOST_ROWS:,} combinations; vary fewer settings",
            code="too-many-rows",
        )
    last = [key.rpartition(".")[2] for key in axes]
    short = [name if last.count(name) == 1 else key for key, name in zip(axes, last, strict=True)]
    rows: dict[str, list[str]] = {}
    for chosen in itertools.product(*axes.values()):
        name = ",".join(f"{key}={called(value)}" for key, value in zip(short, chosen, strict=True))
        if name in rows:
            raise SaccadeError(
                f"two rows would be called '{name}'; leave one of the two values out",
                code="duplicate-name",
            )
        rows[name] = [f"{key}={value}" for key, value in zip(axes, chosen, strict=True)]
    return rows


def vary(
    recipes: dict[str, str], words: Sequence[str], settings: Sequence[str]
) -> dict[str, Recipe]:
    """Row name → recipe, for each of some recipes (name → where it is) and each row of the grid."""
    rows = variations(words, [setting.partition("=")[0] for setting in settings])
    found = dict[str, Recipe]()
    for name, where in recipes.items():
        for varied, chosen in rows.items():
            row = "-".join(filter(None, (name if len(recipes) > 1 or not varied else "", varied)))
            made = read_recipe(where, [*settings, *chosen])
            if varied and made in found.values():
                raise SaccadeError(
                    f"{row} is the same recipe as another row; leave one of the two values out",
                    code="duplicate-recipe",
                )
            found[row] = made
    return found
