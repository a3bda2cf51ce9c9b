"""What the terminal shows, read back as text and as colors."""

from __future__ import annotations

import io
import itertools
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType

from saccade.errors import SaccadeError
from saccade.views.document import Site
from saccade.views.terminal import heat_table, in_percent, render, shaded
from saccade.views.worked import worked_example, worked_sentence


def printed(what: RenderableType, width: int = 100) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(what)
    return out.getvalue()


def backgrounds(text: str, weights: list[float]) -> list[str | None]:
    line = shaded(text.split(), weights)
    styles = {line.plain[span.start : span.end].strip(): span.style for span in line.spans}
    found = [styles.get(word) for word in text.split()]
    return [style.bgcolor.name if style and style.bgcolor else None for style in found]  # type: ignore[union-attr]


def test_the_greatest_weight_is_orange_and_next_to_nothing_has_no_shade() -> None:
    strong, middle, weak = backgrounds("strong middle weak", [0.6, 0.3, 0.01])
    assert strong == "#ff8c00"
    assert weak is None
    assert middle not in (None, strong)


def test_all_zero_weights_have_no_shade_and_no_division_by_zero() -> None:
    assert backgrounds("a b", [0.0, 0.0]) == [None, None]


def test_words_are_words_and_never_markup() -> None:
    assert shaded(["[red]x[/red]", "\n", " "], [1, 0, 0]).plain.split() == ["[red]x[/red]", "↵", "␣"]
    assert "[red]" in printed(heat_table(Site("[bold]s", ["[red]"], ["b"], [[[1.0]]])))


@pytest.mark.parametrize(
    ("tokens", "weights", "sentence"),
    [
        ([], [], "there are no words to shade"),
        (["a"], [], "1 words but 0 weights"),
        (["a"], [float("nan")], "the weight of 'a' is nan"),
    ],
)
def test_what_cannot_be_shaded(tokens: list[str], weights: list[float], sentence: str) -> None:
    with pytest.raises(SaccadeError, match=sentence):
        shaded(tokens, weights)


def test_the_table_shows_percent_under_letters_that_run_downward(site: Site) -> None:
    lines = printed(heat_table(site, head=0)).splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines if line.split() and line.split()[0] in site.rows}
    assert rows == {"la": ["90", "5", "5"], "maison": ["10", "90"], "bleue": ["95", "5"]}
    first = next(index for index, line in enumerate(lines) if line.split()[:1] == ["la"])
    place = lines[first].rindex("5")
    assert "".join(line[place] for line in lines[first - 5 : first]) == "house"
    assert "head 0 of 2" in " ".join(" ".join(lines).split())


def test_the_table_averages_and_fits_eighty_columns_for_a_sentence() -> None:
    words = [f"word{index}" for index in range(15)]
    table = heat_table(Site("s", words, words, [[[1.0] * 15] * 15, [[0.0] * 15] * 15]))
    text = printed(table, width=80)
    assert "average of 2 heads" in text
    assert all(line.split()[1:] == ["50"] * 15 for line in text.splitlines() if line.strip().startswith("word"))


def test_the_table_says_what_it_leaves_out() -> None:
    words = [str(index) for index in range(50)]
    text = printed(heat_table(Site("s", ["x"], words, [[[0.02] * 50]])), width=300)
    assert "the first 1 of 1 × 40 of 50 words" in text


def test_a_head_that_is_not_there_is_refused(site: Site) -> None:
    with pytest.raises(SaccadeError, match="there is no head 7"):
        heat_table(site, head=7)
    with pytest.raises(SaccadeError, match="its only head is 0"):
        heat_table(replace(site, weights=site.weights[:1]), head=1)


def test_the_worked_example_is_told_in_order() -> None:
    text = printed(render(worked_example()))
    titles = [text.index(f"\n{number}. ") if number > 1 else text.index("1. Inputs") for number in range(1, 8)]
    assert all(a < b for a, b in itertools.pairwise(titles))
    assert "input 1 1.9366 6.6831 1.5951" in text


def test_thirty_words_stay_inside_the_window() -> None:
    text = printed(render(worked_sentence([f"word{index}" for index in range(30)])), width=80)
    assert "weights, columns 25 to 30" in text
    assert "word29" in text
    assert max(map(len, text.splitlines())) <= 80


def test_without_colors_each_word_has_its_percent_behind_it() -> None:
    assert in_percent(["a", "good", "film"], [0.004, 0.676, 0.32]) == "a 0  good 68  film 32"
    with pytest.raises(SaccadeError, match="2 words but 1 weights"):
        in_percent(["a", "b"], [1.0])
    with pytest.raises(SaccadeError, match="the weight of 'a' is nan"):
        in_percent(["a"], [float("nan")])
