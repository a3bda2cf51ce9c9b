"""What the terminal shows, read back as text and as colors."""

from __future__ import annotations

import io
import itertools

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.style import Style

from saccade.teaching.explain.worked_attention import worked_example, worked_sentence
from saccade.views.document import Site
from saccade.views.terminal import heat_table, render, shade_effects, shade_words


def printed(what: RenderableType, width: int = 100) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(what)
    return out.getvalue()


def background(style: str | Style) -> str | None:
    return style.bgcolor.name if isinstance(style, Style) and style.bgcolor else None


def backgrounds(text: str, weights: list[float]) -> list[str | None]:
    line = shade_words(text.split(), weights)
    styles = {line.plain[span.start : span.end].split()[0]: span.style for span in line.spans}
    return [background(styles.get(word, "")) for word in text.split()]


def test_the_greatest_weight_is_orange_and_what_is_below_the_mean_has_no_shade() -> None:
    strong, middle, weak, weaker = backgrounds("strong middle weak weaker", [0.5, 0.35, 0.1, 0.05])
    assert strong == "#ff8c00"
    assert weak is weaker is None
    assert middle not in (None, strong)


def test_weights_that_hardly_differ_have_no_shade() -> None:
    assert backgrounds("a b c", [0.35, 0.33, 0.32]) == [None] * 3
    assert backgrounds("a b", [0.0, 0.0]) == [None, None]
    assert backgrounds("a", [1.0]) == [None]


def test_a_small_difference_looks_smaller_than_a_large_one() -> None:
    pale, strong = (
        backgrounds("a b c d", [0.35, 0.25, 0.2, 0.2])[0],
        backgrounds("a b c d", [0.85, 0.05, 0.05, 0.05])[0],
    )
    assert pale is not None
    assert pale != strong == "#ff8c00"


def test_words_are_words_with_their_percent_and_never_markup() -> None:
    shown = shade_words(["[red]x[/red]", "\n", " ", " film"], [0.676, 0.004, 0.32, 0]).plain
    assert shown.split() == ["[red]x[/red]", "68", "↵", "0", "␣", "32", "▁film", "0"]


def test_effects_have_a_sign_and_a_color_for_each_side() -> None:
    line = shade_effects(["not", "a", "bad"], [0.5, 0.0, -0.5])
    assert line.plain.split() == ["not", "+50.0", "a", "+0.0", "bad", "-50.0"]
    shades = {
        line.plain[span.start : span.end].split()[0]: background(span.style) for span in line.spans
    }
    assert shades["not"] == "#ff8c00"
    assert "a" not in shades
    assert shades["bad"] not in (None, "#ff8c00")
    assert shade_effects(["a"], [0.0]).plain.split() == ["a", "+0.0"]


# --- the table


def test_a_table_has_rows_and_columns_in_percent_under_each_other(site: Site) -> None:
    head, *rows = heat_table(site, np.asarray(site.weights[0])).plain.splitlines()
    assert head.split() == ["the", "blue", "house", "."]
    assert [row.split() for row in rows] == [
        ["la", "90", "5", "5", "·"],
        ["maison", "·", "10", "90", "·"],
        ["bleue", "·", "95", "·", "5"],
    ]
    assert head.index("house") + len("house") == rows[1].index("90") + len("90"), (
        "numbers stand under the ends of their words"
    )
    assert len({len(row) for row in (head, *rows[:-1])}) == 1


def test_cells_are_shaded_by_their_weight(site: Site) -> None:
    table = heat_table(site, np.asarray(site.weights[0]))
    shades = {
        table.plain[span.start : span.end].strip(): background(span.style) for span in table.spans
    }
    assert shades["95"] == "#ff8c00"
    assert not {"·", "5"} & set(shades)
    assert shades["90"] not in (None, shades["95"])


@pytest.mark.parametrize("word", ["word", "日本語", "a" * 40])
def test_a_long_table_folds_to_the_window(word: str) -> None:
    names = [f"{word}{n}" for n in range(90)]
    long = Site("s", names, names, [np.eye(90).tolist()])
    text = heat_table(long, np.eye(90), width=60).plain
    assert max(map(cell_len, text.splitlines())) <= 60
    assert text.count("100") == 90
    whole = heat_table(long, np.eye(90)).plain.splitlines()
    assert len(whole) == 91, "in a pipe nothing is folded"
    assert sum(line.count("100") for line in whole) == 90


# --- the worked example


def test_the_worked_example_is_explained_in_order() -> None:
    text = printed(render(worked_example()))
    titles = [
        text.index(f"\n{number}. ") if number > 1 else text.index("1. Inputs")
        for number in range(1, 8)
    ]
    assert all(a < b for a, b in itertools.pairwise(titles))
    assert "input 1 1.9366 6.6831 1.5951" in text


def test_thirty_words_stay_inside_the_window() -> None:
    text = printed(render(worked_sentence([f"word{index}" for index in range(30)])), width=80)
    assert "weights, columns 25 to 30" in text
    assert "word29" in text
    assert max(map(len, text.splitlines())) <= 80
