"""A recipe with some of its settings varied: the grid of all combinations, each row named by what varies."""

import itertools
import re
from collections.abc import Sequence

import yaml

from .config import NOT_READ, Recipe, read_recipe
from .errors import SaccadeError

MOST_ROWS, LONGEST = 1000, 60  # letters of a value in a name
OPENING, CLOSING, QUOTES = "([{", ")]}", "\"'"
UNSAFE = re.compile(r"[^\w.,=+-]+")  # in the name of a folder


def split_values(text: str) -> list[str]:
    """The values between commas; those within brackets or quotes belong to a value."""
    found, open_ones, quote = [""], list[str](), ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in QUOTES and found[-1].rstrip()[-1:] in ("", ",", ":", *OPENING):  # not an apostrophe
            quote = letter
        elif letter in OPENING:
            open_ones.append(CLOSING[OPENING.index(letter)])
        elif letter in CLOSING and (not open_ones or open_ones.pop() != letter):
            raise SaccadeError(f"'{text}': '{letter}' closes no bracket; write values such as {{name: window, left: 3}}")
        if letter == "," and not open_ones and not quote:
            found.append("")
        else:
            found[-1] += letter
    if open_ones or quote:
        raise SaccadeError(f"'{text}': '{open_ones[-1] if open_ones else quote}' is missing at the end; close what was opened")
    return [value.strip() for value in found]


def read_variation(word: str, given: Sequence[str]) -> tuple[str, list[str]]:
    """`model.score=dot,additive` as its key and values; `given` are the keys that are already set."""
    key, equals, text = word.partition("=")
    if not equals or not key:
        raise SaccadeError(f"--vary is '{word}'; write KEY=VALUE,VALUE, such as model.score=dot,additive")
    if key in given:
        raise SaccadeError(f"{key} is given twice; vary it in one --vary alone, and do not set it besides")
    values = split_values(text)
    if "" in values:
        raise SaccadeError(f"--vary is '{word}', which has an empty value; leave one comma out")
    if len(values) < 2:
        raise SaccadeError(f"--vary is '{word}', which has one value; give several, separated by commas")
    return key, values


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
    """The grid of some `KEY=VALUE,VALUE`: row name → its `KEY=VALUE`s. Without any: one row without a name."""
    axes: dict[str, list[str]] = {}
    for word in words:
        key, values = read_variation(word, [*axes, *given])
        axes[key] = values
    size = 1
    for values in axes.values():
        size *= len(values)
    if size > MOST_ROWS:
        raise SaccadeError(f"these settings vary in {size:,} combinations, more than {MOST_ROWS:,}; vary fewer")
    last = [key.rpartition(".")[2] for key in axes]
    short = {key: name if last.count(name) == 1 else key for key, name in zip(axes, last, strict=True)}
    rows: dict[str, list[str]] = {}
    for chosen in itertools.product(*axes.values()):
        settings = dict(zip(axes, chosen, strict=True))
        name = ",".join(f"{short[key]}={called(value)}" for key, value in settings.items())
        if name in rows:
            raise SaccadeError(f"two rows would be called '{name}'; leave one of the two values out")
        rows[name] = [f"{key}={value}" for key, value in settings.items()]
    return rows


def vary(recipes: dict[str, str], words: Sequence[str], settings: Sequence[str]) -> dict[str, Recipe]:
    """Row name → recipe, for each of some recipes (name → where it is) and each row of the grid."""
    rows, found = variations(words, [setting.partition("=")[0] for setting in settings]), dict[str, Recipe]()
    for name, where in recipes.items():
        for varied, chosen in rows.items():
            row = "-".join(filter(None, (name if len(recipes) > 1 or not varied else "", varied)))
            made = read_recipe(where, [*settings, *chosen])
            same = next((other for other, one in found.items() if varied and one == made), None)
            if same is not None:
                raise SaccadeError(f"{same} and {row} are the same recipe; leave one of the two values out")
            found[row] = made
    return found
