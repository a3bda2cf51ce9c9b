"""The page of a service in a real Chromium: every task, upload, slow servers, keys, keyboard alone, phone, dark, accessibility, long inputs."""

from __future__ import annotations

import base64
import io
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from page_helpers import Watched, chromium, eventually, ready, says, serving
from PIL import Image
from serving_helpers import SENTENCES

from saccade import api

pytestmark = pytest.mark.slow
EVERY = ["en-fr", "words", "labels", "tags", "captions", "questions", "shapes"]
KEY = "a-key-of-enough-letters"
NO_SCROLL = "() => document.documentElement.scrollWidth <= document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def url(models: Path) -> Iterator[str]:
    with serving(models, *EVERY, limits={"text": 20_000}) as where:
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


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("picture") / "seen.png"
    Image.linear_gradient("L").resize((40, 40)).convert("RGB").save(path)
    return path


def choose(page: Any, task: str) -> None:
    page.locator(f"#tasks input[value={task}]").check()


def test_tag_shows_the_tags_and_says_that_nothing_attends(models: Path, watched: Watched) -> None:
    page = watched.open("#do=tag&text=the cats")
    ready(page)
    expected = list(api.load(models / "tags", "cpu").tag("the cats"))
    assert page.locator(".tags li small").all_inner_texts() == expected
    assert page.locator("#no-view").inner_text() == "This model has no attention to show."
    assert page.locator("#save").is_hidden()


def test_classify_shows_the_label_and_the_words_that_count(models: Path, watched: Watched) -> None:
    page = watched.open("#do=classify&model=labels&text=a good film")
    ready(page)
    found = api.load(models / "labels", "cpu").classify("a good film")
    assert page.locator(".output").inner_text() == found.label
    assert page.locator(".chances dt").count() == 2
    assert says(page).startswith(f"weight of each word for the label {found.label}: ")


def test_generate_comes_piece_by_piece(models: Path, watched: Watched) -> None:
    page = watched.open()
    choose(page, "generate")
    page.fill("#text", "the cat")
    page.fill("input[name=limit]", "40")
    page.fill("input[name=temperature]", "0")
    page.evaluate(
        "() => { window.pieces = 0; new MutationObserver((all) => { window.pieces += all.length; })"
        ".observe(document.getElementById('result'), { childList: true, subtree: true }); }"
    )
    page.locator("#go").click()
    ready(page)
    expected = api.load(models / "words", "cpu").generate("the cat", 40, temperature=0).text
    assert page.locator(".output").inner_text() == "the cat" + expected
    assert page.evaluate("() => window.pieces") > 5
    assert page.locator(".attention").count() == 1


@pytest.mark.parametrize("way", ["chosen", "dropped"])
def test_an_uploaded_image_is_described(
    models: Path, watched: Watched, picture: Path, way: str
) -> None:
    page = watched.open()
    choose(page, "caption")
    page.locator("#go").click()
    assert page.locator("#trouble p").inner_text() == "Choose a picture first."
    if way == "chosen":
        page.set_input_files("#image", picture)
    else:
        code = "(data) => { const held = new DataTransfer(), bytes = Uint8Array.from(atob(data), (one) => one.charCodeAt(0));"
        code += (
            " held.items.add(new File([bytes], 'seen.png', { type: 'image/png' })); return held; }"
        )
        held = page.evaluate_handle(code, base64.b64encode(picture.read_bytes()).decode())
        page.dispatch_event("#image-box", "drop", {"dataTransfer": held})
    page.wait_for_selector("#preview:not([hidden])")
    page.locator("#go").click()
    ready(page)
    assert page.locator(".output").inner_text() == (
        api.load(models / "captions", "cpu").caption(picture).text or "—"
    )
    assert page.locator("#trouble").is_hidden()
    page.keyboard.press("Tab")


def test_an_image_is_asked_about_and_labeled(models: Path, watched: Watched, picture: Path) -> None:
    page = watched.open()
    choose(page, "answer")
    page.locator("#examples button").nth(2).click()
    ready(page)
    assert page.locator("#preview").is_visible()
    page.set_input_files("#image", picture)
    page.wait_for_timeout(200)
    page.fill("#text", "what color is it ?")
    page.locator("#go").click()
    page.wait_for_selector("#history li:nth-child(2)", state="attached")
    ready(page)
    assert (
        page.locator(".output").inner_text()
        == api.load(models / "questions", "cpu").answer(picture, "what color is it ?").answer
    )
    page.locator(".map canvas").hover(position={"x": 90, "y": 90})
    assert " · here row " in says(page)
    choose(page, "classify")
    page.locator("#model").select_option("shapes")
    assert page.locator("#text-box").is_hidden()
    page.locator("#go").click()
    ready(page)
    assert (
        page.locator(".output").inner_text()
        == api.load(models / "shapes", "cpu").classify(picture).label
    )


def test_a_slow_server_is_told_and_can_be_stopped(watched: Watched) -> None:
    page = watched.open()
    page.fill("#text", SENTENCES[0])
    held: list[Any] = []
    page.route("**/v1/translate", lambda route: held.append(route))
    page.locator("#go").click()
    page.get_by_text("The server is slow: no answer for 5 s. Wait, or stop.").wait_for()
    page.get_by_role("button", name="Stop").click()
    assert page.locator("#working").inner_text() == "Stopped."
    assert page.locator("#stop").is_hidden()
    page.unroute("**/v1/translate")
    page.locator("#go").click()
    ready(page)
    watched.complaints.clear()


def test_a_key_is_asked_for_and_kept_for_the_tab_alone(models: Path, browser: Any) -> None:
    with serving(models, "en-fr", keys=(KEY,)) as where:
        watched = Watched(browser, where)
        page = watched.open(f"#do=translate&text={SENTENCES[0]}")
        assert page.locator("#trouble p").inner_text() == "This server asks for a key."
        page.fill("#key", "wrong")
        page.keyboard.press("Enter")
        page.get_by_text("The server does not know this key.").wait_for()
        page.fill("#key", KEY)
        page.keyboard.press("Enter")
        ready(page)
        assert page.evaluate("() => [Object.values(sessionStorage), JSON.stringify(localStorage)]")[
            0
        ] == [KEY]
        assert KEY not in page.evaluate("() => JSON.stringify(localStorage)") + page.url
        page.reload()
        ready(page)
        # the browser tells of these
        watched.complaints = [one for one in watched.complaints if "401" not in one]
        watched.check()


def test_all_of_it_by_keyboard_alone(watched: Watched) -> None:
    page = watched.open()
    press = page.keyboard.press

    def tab_to(selector: str) -> None:
        for _ in range(60):
            press("Tab")
            if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
                return
        raise AssertionError(f"Tab never comes to {selector}")

    tab_to("#tasks input")
    press("ArrowRight")
    assert page.locator("#go").inner_text() == "Tag"
    press("ArrowLeft")
    tab_to("#text")
    page.keyboard.type(SENTENCES[0])
    press("Control+Enter")
    ready(page)
    tab_to("#layer")
    before = page.locator(".attention").get_attribute("aria-label")
    press("ArrowDown")
    page.locator(f".attention:not([aria-label='{before}'])").wait_for()
    tab_to("#save")
    with page.expect_download():
        press("Enter")
    tab_to(".heads button")
    press("ArrowRight")
    assert page.locator(".heads [aria-checked=true]").get_attribute("aria-label") == "head 0"
    tab_to(".words button")
    sentence = says(page)
    press("ArrowRight")
    assert says(page) != sentence
    tab_to("canvas")
    press("ArrowRight")
    press("ArrowDown")
    assert " · here " in says(page)
    page.locator("#tab-try").focus()
    press("ArrowRight")
    page.locator("#explains").wait_for()
    tab_to("#words")
    page.keyboard.type("two words")
    press("Enter")
    page.get_by_role("rowheader", name="words").first.wait_for()
    tab_to("td[data-name=q]")
    press("ArrowRight")
    assert page.locator("#explains").inner_text().startswith("'q2' of 'two' = ")


@pytest.mark.parametrize(
    "task", ["translate", "tag", "classify", "generate", "caption", "answer", "learn"]
)
def test_a_phone_needs_no_scrolling_aside(watched: Watched, picture: Path, task: str) -> None:
    page = watched.open(
        "#do=learn" if task == "learn" else "",
        viewport={"width": 360, "height": 740},
        has_touch=True,
        is_mobile=True,
    )
    if task == "learn":
        page.fill("#words", "a rather long sentence of quite a few words")
        page.keyboard.press("Enter")
        page.get_by_role("rowheader", name="sentence").first.wait_for()
        page.locator("td[data-name=scores]").first.tap()
        assert "the query of 'a'" in page.locator("#explains").inner_text()
    else:
        choose(page, task)
        if page.locator("#image-box").is_visible():
            page.set_input_files("#image", picture)
            page.wait_for_selector("#preview:not([hidden])")
        if page.locator("#text-box").is_visible():
            page.fill("#text", "the small mouse saw the old house today")
        page.locator("#go").tap()
        ready(page)
        words = page.locator(".attention .word").filter(visible=True)
        if words.count():
            words.first.tap()
    assert page.evaluate(NO_SCROLL)


def test_dark_follows_the_system(watched: Watched) -> None:
    page = watched.open(f"#do=translate&text={SENTENCES[0]}", color_scheme="dark")
    ready(page)
    assert (
        page.evaluate("() => getComputedStyle(document.body).backgroundColor") == "rgb(17, 20, 26)"
    )
    pixel = "(canvas) => Array.from(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data)"
    colors = page.locator(".map canvas").evaluate(pixel)
    bright = [n for n in range(0, len(colors), 4) if colors[n] > 200 and colors[n + 3] > 200]
    assert bright, "weights are light on dark"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_violation(watched: Watched, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()

    def check(page: Any) -> None:
        page.wait_for_timeout(200)
        found = axe.run(page).response["violations"]
        serious = [
            (one["id"], [node["html"][:120] for node in one["nodes"]][:3])
            for one in found
            if one["impact"] in ("serious", "critical")
        ]
        assert not serious

    page = watched.open(color_scheme=scheme, bypass_csp=True)
    for task in ("translate", "tag", "classify", "generate", "caption", "answer"):
        choose(page, task)
        if page.locator("#examples button").count():
            page.locator("#examples button").first.click()
        else:
            page.fill("#text", "the cats")
            page.locator("#go").click()
        ready(page)
        check(page)
    page.locator("#history summary").click()
    page.fill("#text", " ")
    page.locator("#go").click()
    page.locator("#trouble").wait_for()
    check(page)
    page.locator("#tab-learn").click()
    page.locator("td[data-name=weights]").first.hover()
    check(page)
    choose_long(page)
    check(page)


def choose_long(page: Any) -> str:
    """Classifies 2,000 words and opens the view of an attention among all of them."""
    page.locator("#tab-try").click()
    choose(page, "classify")
    page.locator("#model").select_option("labels")
    chance = random.Random(0)
    text = " ".join(
        chance.choice(["a", "good", "film", "bad", "fun", "no", "at", "all"]) for _ in range(2000)
    )
    page.fill("#text", text)
    page.locator("#go").click()
    page.wait_for_selector("#stop", state="hidden", timeout=120_000)
    page.locator("#layer").select_option("encoder.0.mixer")
    page.locator(".tiles .says b").first.wait_for(timeout=120_000)
    return text


def test_two_thousand_words_by_rows_and_pooled_tiles(models: Path, watched: Watched) -> None:
    asked: list[dict[str, Any]] = []

    def note(request: Any) -> None:
        if request.url.endswith("/v1/look"):
            asked.append(request.post_data_json["look"])

    page = watched.open(before=lambda page: page.on("request", note))
    text = choose_long(page)
    site = api.load(models / "labels", "cpu").look(text, only="encoder.0.mixer")["encoder.0.mixer"]
    size = len(site.rows)
    assert size >= 2000
    assert asked[-1]["rows"] == [0, 1], "the row of the first word"
    assert any(one.get("pool", 1) > 1 and one.get("mean") for one in asked), "an overview"
    for _ in range(4):
        page.get_by_role("button", name="Zoom in").click()
    asked.clear()
    page.locator(".window").evaluate("(box) => box.scrollTo(14 * 1500, 14 * 1200)")
    eventually(page, lambda: any("columns" in one for one in asked))
    tiles = [one for one in asked if "columns" in one]
    assert all(
        one["rows"][1] - one["rows"][0] <= 128 and one["columns"][1] - one["columns"][0] <= 128
        for one in tiles
    )
    spot: dict[str, int] = {}

    def is_shown() -> bool:
        for x in (390, 400):  # a pointer that stays where it is tells a page nothing
            page.locator(".tiles canvas").hover(position={"x": x, "y": 400})
        spot.update(page.locator(".attention").evaluate("(root) => root.saccade.spot") or {})
        weight = site.weights.mean(0)[spot.get("row", 0), spot.get("column", 0)]
        return spot.get("row", 0) > 1100 and says(page).endswith(
            f"({spot['column'] + 1}) {weight:.4f}"
        )

    eventually(page, is_shown)
    assert spot["column"] > 1400
    page.locator(".tiles select").select_option("1")
    page.locator(".window").focus()
    page.keyboard.press("ArrowRight")
    weight = site.weights[1, spot["row"], spot["column"] + 1]

    def is_next() -> bool:
        for key in ("ArrowLeft", "ArrowRight"):
            page.keyboard.press(key)
        return says(page).endswith(f"({spot['column'] + 2}) {weight:.4f}")

    eventually(page, is_next)
    with page.expect_download() as saving:
        page.get_by_role("button", name="Save picture").click()
    with Image.open(io.BytesIO(Path(saving.value.path()).read_bytes())) as picture:
        assert picture.width > 500


def test_what_is_typed_stays_text(watched: Watched) -> None:
    evil = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"
    page = watched.open()
    choose(page, "tag")
    page.fill("#text", evil)
    page.locator("#go").click()
    ready(page)
    assert page.title() == "saccade"
    assert page.locator("#result img, #result script, #history img").count() == 0
