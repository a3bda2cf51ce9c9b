"""The offline page of an explanation in a real Chromium: it says what Python says, follows pointer and keys, and asks nobody."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from page_helpers import chromium

from saccade.teaching.explain import word_numbers as corpus
from saccade.teaching.explain.input_order import explain_shuffle
from saccade.teaching.explain.lookup import explain_lookup
from saccade.teaching.explain.quiz import explain_quiz
from saccade.teaching.explain.worked_attention import choose_parts, explain
from saccade.teaching.explain.worked_norms import explain_norm
from saccade.views.html_page import explained_page
from saccade.views.worked_steps import Worked

EVIL = [
    "</script><img src=x onerror=alert(1)>",
    "{0}",
    "{value}",
    "<!--",
    "\u202ecat",
    "כלב",
    "'\"&amp;",
    "__proto__",
    "$&",
]
PAGES = {
    "example": lambda: explain(),
    "evil": lambda: explain(EVIL, choose_parts("additive", mask="causal")),
    "long": lambda: explain([f"word{n}" for n in range(12)], choose_parts(scaled=True)),
    "heads": lambda: explain(EVIL[:4], choose_parts(heads=2, normalize="sparsemax")),
    "query": lambda: explain(None, choose_parts(mask={"name": "window", "left": 1}), 2),
    "lookup": lambda: explain_lookup(EVIL),
    "shuffle": lambda: explain_shuffle(),
    "layer": lambda: explain_norm("layer"),
    "batch": lambda: explain_norm("batch", EVIL),
    "tf-idf": lambda: corpus.explain_tf_idf(lambda: corpus.LECTURE, "lecture"),
    "similar": lambda: corpus.explain_similar(
        ["dog", "cat"], corpus.slide_vectors(["dog", "cat"]), corpus.SLIDE, 3000
    ),  # type: ignore[arg-type]
    "quiz": lambda: explain_quiz(answers=True),
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


class Opened:
    """A page from a file, and everything that it asked for or complained about."""

    def __init__(self, browser: Any, worked: Worked, folder: Path, **options: Any) -> None:
        path = folder / "page.html"
        path.write_bytes(explained_page(worked).encode())
        self.context = browser.new_context(
            **{"viewport": {"width": 1100, "height": 900}, **options}
        )
        self.page = self.context.new_page()
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda told: self.complaints.append(told.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.goto(path.as_uri())

    def __enter__(self) -> Any:
        return self.page

    def __exit__(self, *_: object) -> None:
        self.context.close()
        assert not [one for one in self.asked if not one.startswith(("file:", "data:"))], (
            "nothing is asked of others"
        )
        assert not self.complaints


@pytest.mark.parametrize("name", PAGES)
def test_the_page_says_of_every_number_what_python_says(
    browser: Any, name: str, tmp_path: Path
) -> None:
    worked = PAGES[name]()
    expected = [
        worked.arithmetic(matrix, i, j)
        for step in worked.steps()
        for matrix in step.matrices
        for i in range(len(matrix.row_names))
        for j in range(len(matrix.column_names))
    ]
    script = """() => {
      const own = document.querySelector(".steps").saccade;
      return Array.from(document.querySelectorAll("td[data-name]"), ({ dataset: { name, i, j } }) => own.explain(name, Number(i), Number(j))[0]);
    }"""
    with Opened(browser, worked, tmp_path) as page:
        assert page.locator("h1").inner_text() == (worked.title if name != "evil" else page.title())
        assert page.locator("section.step").count() == len(worked.steps())
        assert page.evaluate(script) == expected
        assert page.locator("img").count() == 0


def test_a_number_shows_what_it_was_made_of(browser: Any, tmp_path: Path) -> None:
    with Opened(browser, explain(), tmp_path) as page:
        says = page.locator(".explains")
        assert says.inner_text().startswith("Point at a number or a word")
        page.locator("td[data-name=scores][data-i='1'][data-j='2']").hover()
        assert (
            says.inner_text()
            == "the query of 'input 2' with the key of 'input 3' = 2·2 + 2·3 + 2·1 = 12"
        )
        used = page.locator("td.used").evaluate_all(
            "all => all.map(({ dataset }) => [dataset.name, dataset.i])"
        )
        assert used == [["q", "1"]] * 3 + [["k", "2"]] * 3
        assert page.locator(".here").count() == 1
        page.locator("td[data-name=outputs]").first.hover()
        assert says.inner_text() == "'o1' of 'input 1' = 0.0634·1 + 0.4683·2 + 0.4683·2 = 1.9366"


def test_a_word_shows_its_rows_and_columns_everywhere(browser: Any, tmp_path: Path) -> None:
    with Opened(browser, explain(), tmp_path) as page:
        page.locator("th[data-name=scores][data-j='1']").hover()
        assert (
            page.locator(".explains").inner_text() == "'input 2': its rows and columns everywhere"
        )
        marked = page.locator("td.used[data-name=scores]").evaluate_all(
            "all => all.map(({ dataset }) => dataset.i + dataset.j)"
        )
        assert marked == ["01", "10", "11", "12", "21"]
        assert page.locator("td.used[data-name=x]").count() == 4


def test_keys_move_through_numbers_and_words(browser: Any, tmp_path: Path) -> None:
    with Opened(browser, explain(), tmp_path) as page:
        page.keyboard.press("Tab")
        says = page.locator(".explains")
        assert says.inner_text() == "'input 1' has 1 as its number 'x1'"
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowRight")
        assert says.inner_text() == "'input 2' has 2 as its number 'x2'"
        page.keyboard.press("Tab")
        assert says.inner_text().startswith("a learned number: how much 'x1' counts for 'q1'")
        page.keyboard.press("ArrowLeft")
        assert says.inner_text() == "'x1': its rows and columns everywhere"
        page.keyboard.press("ArrowLeft")
        assert page.evaluate("() => document.activeElement.tagName") == "TH", (
            "there is nothing further left"
        )


CONTRAST = """() => {
  const light = (color) => {
    const parts = color.match(/[\\d.]+/g).slice(0, 3).map((one) => Number(one) / 255);
    const [r, g, b] = parts.map((one) => (one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = getComputedStyle(document.body).backgroundColor;
  const ratio = (one) => {
    const style = getComputedStyle(one), back = /rgba\\(.*, 0(\\.\\d+)?\\)/.test(style.backgroundColor) ? paper : style.backgroundColor;
    const [a, b] = [light(style.color), light(back)].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  };
  return [light(paper), Math.min(...Array.from(document.querySelectorAll("h1, h2, p, th, caption, td.used, td.here"), ratio))];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_readable_in_the_light_and_in_the_dark(
    browser: Any, scheme: Any, tmp_path: Path
) -> None:
    with Opened(browser, explain(), tmp_path, color_scheme=scheme) as page:
        page.locator("td[data-name=scores]").first.hover()
        paper, contrast = page.evaluate(CONTRAST)
        assert (paper > 0.5) == (scheme == "light")
        assert contrast >= 4.5


def test_a_narrow_window_scrolls_matrices_not_the_page(browser: Any, tmp_path: Path) -> None:
    worked = explain([f"word{n}" for n in range(30)])
    with Opened(browser, worked, tmp_path, viewport={"width": 360, "height": 700}) as page:
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 360
