"""The page in a real Chromium: its script runs under its own policy, words answer pointer and keyboard, evil tokens stay text."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saccade.views.document import Document, Site
from saccade.views.html_page import Section, attention_page, report_page

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]
QUIET = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--virtual-time-budget=2000",
    "--enable-logging=stderr",
]


def browse(page: str, folder: Path, *options: str) -> str:
    """The page's DOM after its script ran; a script error or a refused resource fails the test."""
    (folder / "page.html").write_text(page, encoding="utf-8")
    command = [
        str(CHROMIUM),
        *QUIET,
        *options,
        f"--user-data-dir={folder / 'profile'}",
        "--dump-dom",
        (folder / "page.html").as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert not re.findall(r"CONSOLE.*", done.stderr)
    return done.stdout


def drive(page: str, folder: Path, script: str, *options: str) -> Any:
    """What a script finds after it used the page; the policy is taken out, because it would rightly stop that script."""
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    helper = """
      const view = document.querySelector(".attention").saccade, root = view.root;
      const words = (side) => Array.from(view[side].children);
      const key = (name) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true }));
      const numbers = (side) => words(side).map((word) => word.lastChild.textContent);
      const says = () => view.says.textContent;
    """
    tell = "document.body.dataset.result = JSON.stringify(result);"
    tail = (
        f"<script>{{{helper}\n const result = (() => {{ {script} }})(); {tell} }}</script></body>"
    )
    dom = browse(page.replace("</body>", tail), folder, *options)
    found = re.search(r'data-result="([^"]*)"', dom)
    assert found, "the driving script did not finish"
    return json.loads(html.unescape(found.group(1)))


def test_the_script_runs_under_the_policy_and_evil_tokens_stay_text(
    document: Document, tmp_path: Path
) -> None:
    evil = "<img src=x onerror=\"document.title='broken'\"></script><script>document.title='broken'</script>"
    site = replace(
        document.sites[0], rows=[evil, "\n", " "], columns=["العربية", "中文", "$", "x" * 60]
    )
    dom = browse(attention_page(Document(evil, [evil], [evil], [site], model=evil)), tmp_path)
    assert dom.count('class="word"') + dom.count('class="word chosen"') == 7
    assert "<title>&lt;img" in dom
    assert "<img" not in dom.replace("&lt;img", "")
    assert "x" * 23 + "…" in dom
    assert "↵" in dom


def test_keys_that_a_causal_mask_hides_are_not_listed(tmp_path: Path) -> None:
    words = ["A", " t", "o", "o"]
    causal = [[1.0, 0, 0, 0], [0.4, 0.6, 0, 0], [0.5, 0.5, 0.0, 0], [0.1, 0.2, 0.3, 0.4]]
    page = attention_page(
        Document("A too", words, ["o"], [Site("decoder.0.mixer", words, words, [causal])])
    )
    first, second, third, looked_at, names = drive(
        page,
        tmp_path,
        """
        const found = [0, 1, 2].map((i) => { words("rows")[i].focus(); return [says(), numbers("columns")]; });
        words("columns")[2].focus();
        return [...found, [says(), numbers("rows")], words("columns").map((word) => word.firstChild.textContent)];
        """,
    )
    assert first == ["A looks at A 100 %", ["100 %", "", "", ""]]
    assert second == ["▁t looks at ▁t 60 %, A 40 %", ["40 %", "60 %", "", ""]]
    assert third == ["o looks at A 50 %, ▁t 50 %", ["50 %", "50 %", "0 %", ""]], (
        "what is not hidden and gets nothing has its 0 %"
    )
    assert looked_at == ["o is looked at by o 30 %", ["", "", "0 %", "30 %"]]
    assert names == ["A", "▁t", "o", "o"]


def test_a_label_has_weights_and_a_flat_row_looks_flat(tmp_path: Path) -> None:
    words = ["not", "a", "bad", "film"]
    steep, flat = (
        Site("pool", ["neg"], words, [[row]])
        for row in ([0.5, 0.0, 0.3, 0.2], [0.26, 0.24, 0.25, 0.25])
    )
    script = """
        const shade = (image) => (image.includes("rgba") ? Number(image.match(/([0-9.]+)\\)/)[1]) : Number(image !== ""));
        const shades = () => words("columns").map((word) => shade(word.style.backgroundImage));
        const start = [says(), shades(), view.least.textContent];
        words("columns")[0].focus();
        return [...start, says(), root.textContent.includes("looks at")];
        """
    told, shades, least, word, looks = drive(
        attention_page(Document("x", words, ["neg"], [steep])), tmp_path, script
    )
    assert told == "weight of each word for the label neg: not 50 %, bad 30 %, film 20 %"
    assert word == "weight of not for the label neg 50 %"
    assert shades == [1, 0, pytest.approx(0.2), 0]
    assert least == "≤ 0.250, the mean"
    assert not looks
    _, shades, *_ = drive(attention_page(Document("x", words, ["neg"], [flat])), tmp_path, script)
    assert max(shades) < 0.1


def test_words_answer_pointer_and_keyboard(document: Document, tmp_path: Path) -> None:
    found = drive(
        attention_page(document),
        tmp_path,
        """
        const start = [numbers("columns"), numbers("rows"), says()];
        words("rows")[1].dispatchEvent(new PointerEvent("pointerenter"));
        const hovered = [numbers("columns"), words("rows")[1].classList.contains("chosen"),
                         words("columns")[2].style.backgroundImage];
        words("rows")[1].focus(); key("ArrowRight");
        const moved = [document.activeElement.firstChild.textContent, says()];
        key("End"); key("ArrowRight"); key("Home");
        const home = document.activeElement.firstChild.textContent;
        words("columns")[1].focus();
        const back = [numbers("columns"), numbers("rows"), says()];
        return { start, hovered, moved, home, back, stops: root.querySelectorAll('.words [tabindex="0"]').length };
        """,
    )
    assert found["start"][0] == ["70 %", "13 %", "13 %", "5.0 %"]
    assert found["start"][1] == ["", "", ""]
    assert found["start"][2] == "la looks at the 70 %, blue 13 %, house 13 %, . 5.0 %"
    assert found["hovered"][:2] == [["5.0 %", "15 %", "75 %", "5.0 %"], True]
    assert "rgb(23, 78, 166)" in found["hovered"][2]
    assert found["moved"] == ["bleue", "bleue looks at blue 63 %, house 15 %, . 13 %, the 10 %"]
    assert found["home"] == "la"
    assert found["back"][0] == ["", "", "", ""]
    assert found["back"][1] == ["13 %", "15 %", "63 %"]
    assert found["back"][2].startswith("blue is looked at by bleue 63 %")
    assert found["stops"] == 2


def test_heads_and_sites_can_be_chosen_by_keyboard(document: Document, tmp_path: Path) -> None:
    found = drive(
        attention_page(document),
        tmp_path,
        """
        const heads = Array.from(view.heads.children);
        heads[0].focus(); key("ArrowRight");
        const first = [numbers("columns"), heads.map((head) => head.getAttribute("aria-checked")),
                       heads.map((head) => head.tabIndex)];
        key("ArrowRight");
        const second = numbers("columns");
        const select = root.querySelector("select");
        select.value = "1"; select.dispatchEvent(new Event("change"));
        return { first, second, names: heads.map((head) => head.getAttribute("aria-label")),
                 hidden: view.headBox.hidden, other: numbers("columns"), rows: words("rows").length };
        """,
    )
    assert found["first"] == [
        ["90 %", "5.0 %", "5.0 %", "0 %"],
        ["false", "true", "false"],
        [-1, 0, -1],
    ]
    assert found["second"] == ["50 %", "20 %", "20 %", "10 %"]
    assert found["names"] == ["average", "head 0", "head 1"]
    assert found["hidden"] is True
    assert found["other"] == ["25 %"] * 4
    assert found["rows"] == 4


def test_the_heat_map_answers_pointer_and_keyboard(document: Document, tmp_path: Path) -> None:
    found = drive(
        attention_page(document),
        tmp_path,
        """
        const box = view.map.getBoundingClientRect(), { left, above, cell } = view.place;
        const at = (row, column) => view.map.dispatchEvent(new PointerEvent("pointermove",
          { clientX: box.left + left + (column + 0.5) * cell, clientY: box.top + above + (row + 0.5) * cell, bubbles: true }));
        const seen = [];
        at(1, 2); seen.push([view.spot, says()]);
        at(-1, 3); seen.push([view.spot]);
        at(2, -1); seen.push([view.spot]);
        at(9, 9); seen.push([view.spot]);
        view.map.focus(); key("ArrowRight"); key("ArrowRight"); key("ArrowUp");
        seen.push([view.spot, document.activeElement === view.map]);
        return seen;
        """,
    )
    assert found[0] == [
        {"row": 1, "column": 2},
        "maison looks at house 75 %, blue 15 %, the 5.0 %, . 5.0 % · here house 0.7500",
    ]
    assert [entry[0] for entry in found[1:4]] == [
        {"row": -1, "column": 3},
        {"row": 2, "column": -1},
        {"row": 2, "column": -1},
    ]
    assert found[4] == [{"row": 1, "column": 1}, True]


@pytest.mark.parametrize(("width", "theme"), [(1280, 1), (400, 0)])
def test_no_page_is_wider_than_its_window_and_the_theme_follows(
    document: Document, tmp_path: Path, width: int, theme: int
) -> None:
    many = [f"word{index}" for index in range(70)]
    long = replace(
        document,
        sites=[replace(document.sites[0], columns=many, weights=[[[1 / 70] * 70] * 3] * 16)],
    )
    table = [["a rather long name of a column"] * 9, ["cell"] * 9]
    page = report_page(
        "A report", [Section("x" * 80, "y" * 200, table), Section("Look", document=long)]
    )
    # A headless window is never narrower than 500 pixels; a frame may be.
    frame = f'<iframe style="width:{width}px;height:900px;border:0" srcdoc="{html.escape(page)}"></iframe>'
    probe = """<body><script>onload = () => { const inside = frames[0].document, style = getComputedStyle(inside.body);
      document.body.dataset.result = JSON.stringify([inside.documentElement.scrollWidth, inside.querySelectorAll(".word").length,
        style.backgroundColor]); };</script></body>"""
    dom = browse(
        f'<!doctype html><meta charset="utf-8">{frame}{probe}',
        tmp_path,
        f"--blink-settings=preferredColorScheme={theme}",
        "--window-size=1400,1000",
    )
    found = re.search(r'data-result="([^"]*)"', dom)
    assert found
    scroll_width, words, background = json.loads(html.unescape(found.group(1)))
    assert scroll_width <= width
    assert words == 73
    assert background == ("rgb(250, 249, 246)" if theme else "rgb(17, 20, 26)")


def test_views_in_one_notebook_live_beside_each_other(document: Document, tmp_path: Path) -> None:
    """As JupyterLab, VS Code and nbconvert put them: the HTML of each cell into one page that knows nothing of saccade."""
    long = replace(
        document, sites=[replace(document.sites[0], rows=["mot"] * 30, weights=[[[0.25] * 4] * 30])]
    )
    cells = "".join(f"<div class='output'>{one._repr_html_()}</div>" for one in (document, long))
    probe = """<body><script>onload = () => setTimeout(() => { const found = Array.from(document.querySelectorAll("iframe")).map((frame) => {
        const inside = frame.contentDocument, view = inside.querySelector(".attention").saccade;
        view.rows.children[1].dispatchEvent(new frame.contentWindow.PointerEvent("pointerenter"));
        return [view.rows.children.length, view.rows.children[1].classList.contains("chosen"), frame.clientHeight,
                inside.documentElement.scrollHeight]; });
      document.body.dataset.result = JSON.stringify(found); }, 500);</script></body>"""
    dom = browse(
        f'<!doctype html><meta charset="utf-8">{cells}{probe}', tmp_path, "--window-size=1000,1000"
    )
    found = re.search(r'data-result="([^"]*)"', dom)
    assert found
    small, tall = json.loads(html.unescape(found.group(1)))
    assert (small[:2], tall[:2]) == ([3, True], [30, True])
    for _, _, height, inner in (small, tall):
        assert abs(height - inner) <= 4, (
            "as high as what it shows: neither cut nor with a second scroll bar"
        )


@pytest.mark.parametrize("rows", [1, 4])
def test_thumbnails_of_heads_have_the_shades_of_the_matrix(rows: int, tmp_path: Path) -> None:
    words, flat = ["the", "cat", "sat", "down"], np.full((rows, 4), 0.25)
    steep = np.tile([0.7, 0.1, 0.1, 0.1], (rows, 1))
    page = attention_page(
        Document("x", words, words[:rows], [Site("cross", words[:rows], words, [flat, steep])])
    )
    script = """
        const shade = (canvas, x, y) => {
          const pen = new OffscreenCanvas(1, 1).getContext("2d");
          pen.drawImage(canvas, -x, -y);
          return pen.getImageData(0, 0, 1, 1).data[3] / 255;
        };
        return [1, 2].map((n) => {
          view.openHead(n - 1);
          const { left, above, cell } = view.place, small = root.querySelectorAll(".heads canvas")[n];
          return [[0, 1].map((x) => shade(small, x, 0)), [0, 1].map((x) => shade(view.map, left + x * cell + 3, above + 3))];
        });
        """
    for n, (small, large) in enumerate(drive(page, tmp_path, script)):
        assert small == pytest.approx(large, abs=0.02)
        assert small == pytest.approx([[0.0, 0.0], [1.0, 0.0 if rows == 1 else 1 / 7]][n], abs=0.02)
