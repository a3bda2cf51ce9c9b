"""Benchmark the page of `saccade serve` in Chromium: latency, scrolling and accessibility. Draw it
for the docs.

python benchmarks/serve_page.py measure en-fr=runs/en-fr labels=runs/reviews [--out FOLDER]
python benchmarks/serve_page.py pictures en-fr=runs/en-fr labels=… words=… tags=… captions=… questions=… [--out FOLDER]

A model that translates and one that labels texts with a transformer-encoder are measured; pictures
are drawn of whatever the models can do.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

from saccade.experiments.results import Table

RUNS, WORDS, LONG = 10, 30, 2000
VOCABULARY = [
    "the",
    "black",
    "cat",
    "and",
    "a",
    "small",
    "dog",
    "saw",
    "the",
    "old",
    "house",
    "near",
    "green",
    "park",
]
OPTIONS = ["--port", "0", "--json", "--longest-text", "20000", "--most-tokens", "2048"]
LAYER = "encoder.1.mixer"
# Scrolls the window so many pixels each frame along its diagonal; gives the milliseconds between frames, and those of the page's own work
SCROLL = """async (box, pixels) => {
  const view = box.closest(".attention").saccade, frames = [], work = [];
  for (const name of ["draw", "paint"]) {
    const real = Object.getPrototypeOf(view)[name];
    view[name] = (...given) => {
      const start = performance.now(), found = real.apply(view, given);
      work.push(performance.now() - start);
      return found;
    };
  }
  let last = performance.now();
  for (let n = 0; n < 300; n++) {
    box.scrollBy(pixels, pixels);
    const now = await new Promise(requestAnimationFrame);
    frames.push(now - last);
    last = now;
  }
  return [frames.slice(1), work];
}"""
# From the click to the frame in which the text, and then the view, is there
PAINT = """() => {
  window.seen = new Promise((resolve) => {
    const found = {};
    document.getElementById("go").addEventListener("click", () => {
      const start = performance.now();
      const look = () => {
        if (!found.text && document.querySelector("#result:not([hidden]) .output")) found.text = performance.now() - start;
        if (document.querySelector("#view .attention canvas")) { found.view = performance.now() - start; resolve(found); }
        else requestAnimationFrame(look);
      };
      requestAnimationFrame(look);
    }, { once: true });
  });
}"""


@contextmanager
def service(models: list[str]) -> Iterator[str]:
    command = [sys.executable, "-m", "saccade", "serve", *models, *OPTIONS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            yield json.loads(running.stdout.readline())["url"]
        finally:
            running.terminate()


@contextmanager
def chromium() -> Iterator[Any]:
    with sync_playwright() as driver:
        own = Path(driver.chromium.executable_path)
        path = (
            str(own) if own.exists() else shutil.which("chromium") or shutil.which("google-chrome")
        )
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def opened(browser: Any, url: str, **options: Any) -> Any:
    page = browser.new_page(viewport={"width": 1000, "height": 800}, **options)
    page.set_default_timeout(60_000)
    page.goto(url)
    page.wait_for_selector("#form:not([hidden])")
    return page


def ready(page: Any) -> None:
    page.wait_for_selector("#seen:not([hidden])")
    page.wait_for_selector("#stop", state="hidden")
    page.wait_for_timeout(200)


def words(count: int, seed: int = 0) -> str:
    chance = random.Random(seed)
    return " ".join(chance.choice(VOCABULARY) for _ in range(count))


def time_translations(page: Any) -> dict[str, list[float]]:
    """Milliseconds from the click to the text and to the view, of sentences of 30 words that are all new."""
    found: dict[str, list[float]] = {"text_ms": [], "view_ms": []}
    page.locator("#tasks input[value=translate]").check()
    for seed in range(RUNS + 1):
        page.fill("#text", words(WORDS, seed))
        page.evaluate("() => { document.getElementById('result').hidden = true; }")
        page.evaluate(PAINT)
        page.locator("#go").click()
        seen = page.evaluate("() => window.seen")
        ready(page)
        if seed:  # the first warms up
            found["text_ms"].append(round(seen["text"], 1))
            found["view_ms"].append(round(seen["view"], 1))
    return found


def open_long(page: Any) -> None:
    page.locator("#tasks input[value=classify]").check()
    page.fill("#text", words(LONG))
    page.locator("#go").click()
    ready(page)
    page.locator("#layer").select_option(LAYER)
    page.locator(".tiles .says b").first.wait_for()


def time_scrolling(page: Any) -> dict[str, Any]:
    """Milliseconds of each frame while the window scrolls over 2,000 × 2,000 weights, at every zoom that scrolls; twice: tiles come, and are
    there; and while it stands still, which says what the machine allows."""
    open_long(page)
    found: dict[str, Any] = {}
    for zoom in ("2", "4", "8", "14"):
        page.get_by_role("button", name="Zoom in").click()
        for run, pixels in (("first", 40), ("second", 40), ("still", 0)):
            page.locator(".window").evaluate("(box) => box.scrollTo(0, 0)")
            frames, work = page.locator(".window").evaluate(SCROLL, pixels)
            late = {
                "longest_frame_ms": round(max(frames), 1),
                "frames_over_50_ms": sum(one > 50 for one in frames),
            }
            own = {"longest_work_ms": round(max(work, default=0.0), 1)}
            found[f"{zoom} px, {run}"] = {
                "median_frame_ms": round(statistics.median(frames), 1),
                **late,
                **own,
            }
    return found


def count_violations(page: Any) -> int:
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return sum(one["impact"] in ("serious", "critical") for one in found)


def measure(models: list[str], out: Path) -> None:
    with service(models) as url, chromium() as browser:
        page = opened(browser, url, bypass_csp=True)  # axe is put into the page
        painted = time_translations(page)
        violations = count_violations(page)
        frames = time_scrolling(page)
        moving = [one for name, one in frames.items() if "still" not in name]
        sums = {
            "frames": 299 * len(moving),
            "frames_over_50_ms": sum(one["frames_over_50_ms"] for one in moving),
        }
        sums["longest_work_ms"] = max(one["longest_work_ms"] for one in moving)
        figures = {
            "words": WORDS, **painted, "longest_first_paint_ms": max(painted["text_ms"]), "longest_view_ms": max(painted["view_ms"]),
            "scrolled_words": LONG, "scrolling": frames, **sums,
            "serious_violations": violations + count_violations(page), "chromium": browser.version, "load_average": round(os.getloadavg()[0], 1),
        }  # fmt: skip
    notes = (
        "milliseconds from the click to the frame with the translation and with its view; milliseconds between frames of scrolling, "
        "and of the page's own work in them"
    )
    print(
        Table(
            "serve-page",
            {"serve-page": figures},
            "phrasebook-transformer, reviews-transformer",
            [0],
            notes=notes,
        ).write(out)
    )


def save(page: Any, out: Path, name: str, within: str = "", whole: bool = True) -> None:
    """A small PNG: of 256 colors, which is enough for a page."""
    data = page.locator(within).screenshot() if within else page.screenshot(full_page=whole)
    with Image.open(io.BytesIO(data)) as image:
        small = image.convert("RGB").quantize(
            256, Image.Quantize.MEDIANCUT, kmeans=1, dither=Image.Dither.NONE
        )
        small.save(out / f"page-{name}.png", optimize=True)
    print(out / f"page-{name}.png", (out / f"page-{name}.png").stat().st_size)


def pictures(models: list[str], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with service(models) as url, chromium() as browser:
        page = opened(browser, url)
        for task, example in (
            ("translate", 3),
            ("tag", 3),
            ("classify", 3),
            ("generate", 2),
            ("caption", 0),
            ("answer", 0),
        ):
            choice = page.locator(f"#tasks input[value={task}]")
            if not choice.count():
                continue
            choice.check()
            if task == "generate":
                page.fill("input[name=limit]", "40")
            page.locator("#examples button").nth(example).click()
            ready(page)
            save(page, out, task)
        page.goto(f"{url}/#do=learn&text=the cat saw the dog")
        page.locator("td[data-name=weights]").nth(1).hover()
        save(page, out, "learn", whole=False)
        page.goto(url)
        open_long(page)
        save(page, out, "long", "#seen")
        for _ in range(4):
            page.get_by_role("button", name="Zoom in").click()
        page.wait_for_timeout(2000)
        save(page, out, "long-near", "#seen")
        phone = opened(browser, url, color_scheme="dark")
        phone.set_viewport_size({"width": 360, "height": 740})
        phone.locator("#tasks input[value=translate]").check()
        phone.locator("#examples button").nth(3).click()
        ready(phone)
        save(phone, out, "phone-dark")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["measure", "pictures"])
    parser.add_argument("models", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.what == "measure":
        measure(options.models, options.out or Path("benchmarks/results"))
    else:
        pictures(options.models, options.out or Path("docs/images"))


if __name__ == "__main__":
    main()
