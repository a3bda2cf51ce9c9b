"""What the terminal shows, read back as text and as colors."""

from __future__ import annotations

import io
import itertools

from rich.console import Console, RenderableType

from saccade.views.terminal import in_percent, render, shade_words
from saccade.views.worked import worked_example, worked_sentence


def printed(what: RenderableType, width: int = 100) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(what)
    return out.getvalue()


def backgrounds(text: str, weights: list[float]) -> list[str | None]:
    line = shade_words(text.split(), weights)
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
    assert shade_words(["[red]x[/red]", "\n", " "], [1, 0, 0]).plain.split() == ["[red]x[/red]", "↵", "␣"]


def test_the_worked_example_is_explained_in_order() -> None:
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
