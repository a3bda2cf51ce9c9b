"""The page of a service in a real Chromium, as people use it: type, translate, hover, switch head, save, links, history, troubles."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from page_helpers import Watched, chromium, ready, says, serving, weights
from PIL import Image

from saccade import api

TEXT = "the black cat sleeps"


@pytest.fixture(scope="module")
def url(models: Path) -> Iterator[str]:
    with serving(models, "en-fr", "words", "labels", "tags") as where:
        yield where


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def watched(browser: Any, url: str) -> Iterator[Watched]:
    made = Watched(browser, url)
    yield made
    made.check()


def test_type_translate_hover_switch_head_save(
    models: Path, watched: Watched, tmp_path: Path
) -> None:
    page = watched.open()
    page.locator("#text").press_sequentially(TEXT)
    page.get_by_role("button", name="Translate").click()
    ready(page)
    alone = api.load(models / "en-fr", "cpu")
    expected = alone.translate(TEXT).text
    assert page.locator(".output").inner_text() == expected
    shown = page.locator(".attention").evaluate("(root) => root.saccade.site")
    [site] = [one for one in alone.look(TEXT).sites if one.name == shown["name"]]
    assert shown["rows"] == site.rows
    assert shown["weights"][1][0] == pytest.approx(site.weights[1][0].tolist(), abs=1e-4)

    before, sentence = weights(page), says(page)
    page.locator(".words[aria-label='Words that look'] button").nth(1).hover()
    assert says(page) != sentence
    assert weights(page) != before
    page.get_by_role("radio", name="head 1").click()
    shown_now = float(weights(page)[0].removesuffix(" %"))
    assert abs(shown_now - 100 * site.weights[1, 1, 0]) < 0.6, (
        "the second head's weight of the second word"
    )

    with page.expect_download() as saving:
        page.get_by_role("button", name="Save picture").click()
    saving.value.save_as(tmp_path / "saved.png")
    assert saving.value.suggested_filename.endswith(".png")
    with Image.open(tmp_path / "saved.png") as picture:
        assert picture.width > 300
        assert len(picture.convert("RGB").getcolors(2**24)) > 20, "something is drawn"


def test_another_attention_is_asked_for(watched: Watched) -> None:
    page = watched.open(f"#do=translate&text={TEXT}")
    ready(page)
    page.locator("#layer").select_option("encoder.0.mixer")
    page.wait_for_selector(".attention[aria-label='Attention encoder.0.mixer']")
    assert page.locator(".attention .words").nth(1).locator("button").first.inner_text() == "the"


def test_a_model_without_attention_leaves_no_empty_view(watched: Watched) -> None:
    page = watched.open(f"#do=translate&text={TEXT}")
    ready(page)
    assert page.locator("#view > *").count() == 1
    page.locator("#tasks input[value=tag]").check()
    page.fill("#text", "the cats")
    page.locator("#go").click()
    ready(page)
    assert page.locator("#no-view").is_visible()
    assert page.locator("#view > *").count() == 0


def test_a_link_holds_the_input_and_history_stays_in_the_browser(
    watched: Watched, url: str
) -> None:
    page = watched.open()
    page.locator("#examples button").first.click()
    ready(page)
    text, answer = page.locator("#text").input_value(), page.locator(".output").inner_text()
    again = watched.open(page.url.removeprefix(url + "/"))
    ready(again)
    assert (again.locator("#text").input_value(), again.locator(".output").inner_text()) == (
        text,
        answer,
    )

    page.fill("#text", "a dog")
    page.locator("#go").click()
    page.wait_for_selector("#history li:nth-child(2)", state="attached")
    page.reload()
    ready(page)
    page.locator("#history summary").click()
    entries = page.locator("#history li button")
    assert entries.count() == 2
    assert entries.nth(1).inner_text() == f"translate: {text} → {answer}"
    entries.nth(1).click()
    ready(page)
    assert page.locator("#text").input_value() == text
    page.get_by_role("button", name="Clear history").click()
    assert page.evaluate("() => localStorage.length") == 0
    page.goto("about:blank")  # a reload would ask again what the link holds
    page.goto(url + "/")
    page.wait_for_selector("#form:not([hidden])")
    assert page.locator("#history").is_hidden()
    told = [one for one in watched.asked if text.split()[0] in one]
    assert not told, "the fragment of a link goes to no server"


def test_a_failing_server_is_told_in_a_sentence_and_tried_again(watched: Watched) -> None:
    page = watched.open()
    page.fill("#text", TEXT)
    page.route("**/v1/translate", lambda route: route.abort())
    page.locator("#go").click()
    alert = page.locator("#trouble")
    alert.wait_for(state="visible")
    assert alert.locator("p").inner_text() == "The server cannot be reached. Is it still running?"
    page.unroute("**/v1/translate")
    busy = {
        "status": 429,
        "headers": {"Retry-After": "1"},
        "json": {"error": "256 texts are waiting already; try again in a second"},
    }
    page.route("**/v1/translate", lambda route: route.fulfill(**busy))
    page.get_by_role("button", name="Try again").click()
    page.get_by_text("The server says: 256 texts are waiting already").wait_for()
    assert alert.locator("p").inner_text().endswith("Try again in 1 s.")
    page.unroute("**/v1/translate")
    page.get_by_role("button", name="Try again").click()
    ready(page)
    assert alert.is_hidden()
    watched.complaints.clear()  # the browser itself tells of what failed


def test_the_worked_example_follows_the_mouse_and_the_keys(watched: Watched) -> None:
    page = watched.open("#do=learn&text=the cat saw the dog")
    cells = page.locator("td[data-name=weights]")
    cells.first.wait_for()
    expected = api_worked("the cat saw the dog")
    assert cells.nth(1).inner_text() == f"{expected.weights[0][1]:.4f}"
    cells.nth(1).hover()
    told = page.locator("#explains")
    assert told.inner_text().startswith("'the' looks at 'cat' with e^(")
    assert told.inner_text().endswith(f"= {expected.weights[0][1]:.4f}")
    assert (
        page.locator("td.used").evaluate_all("all => all.map((one) => one.dataset.name)")
        == ["scores"] * 5
    )
    cells.first.focus()
    page.keyboard.press("ArrowDown")
    assert told.inner_text().startswith("'cat' looks at 'the'")
    page.fill("#words", "")
    page.keyboard.press("Enter")
    page.get_by_role("rowheader", name="input 3").first.wait_for()


def api_worked(text: str) -> Any:
    from saccade.teaching.explain.worked_attention import worked_sentence

    return worked_sentence(text.split())
