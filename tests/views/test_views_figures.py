"""Pictures, saved and opened again: the pixels say what the weights say, and no text of a user breaks one."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib import colors, font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from saccade.views.document import Site
from saccade.views.figures import confusion, curves, dots, heat_map, lines, png, save
from saccade.views.plots import fonts
from saccade.views.plots.layout import in_rows, panels
from saccade.views.plots.panels import Heat, Lines
from saccade.views.plots.scatter import leader, overlap, place_names
from saccade.views.plots.sheet import look, two_digits
from support import error_of

HARD_WORDS = [
    "中文",
    "$x$ and $y$",
    "naïve",
    "a" * 60,
    "\n",
    " ",
    "",
    "🙂",
    "العربية",
    "</b>",
    "\x00",
    "\ud800",
    r"$\no{$",
    "_^{",
]


def pixels(figure: Figure, path: Path) -> np.ndarray:
    with Image.open(save(figure, path / "picture.png")) as image:
        return np.asarray(image.convert("RGB"))


def shade_at(figure: Figure, axes: Axes, picture: np.ndarray, row: int, column: int) -> int:
    """The gray in the lower right corner of a cell, where no number stands."""
    x, y = axes.transData.transform((column + 0.38, row + 0.38))
    red, green, blue = picture[round(picture.shape[0] - y), round(x)]
    assert red == green == blue
    return int(red)


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def everything_is_inside(figure: Figure) -> bool:
    """Whether nothing that is drawn reaches over the edge of the sheet."""
    with warnings.catch_warnings():
        fonts.ignore_missing_glyphs()
        box = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    return bool(box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height)


def square(words: list[str], count: int = 1) -> Site:
    side = len(words)
    rng = np.random.default_rng(0)
    return Site(
        "encoder.0.self", words, words, rng.dirichlet(np.ones(side), size=(count, side)).tolist()
    )


def test_the_strongest_cell_is_black_and_zero_is_white(site: Site, tmp_path: Path) -> None:
    site = replace(site, weights=site.weights[:1])
    figure = heat_map(site, "Title")
    picture, axes = pixels(figure, tmp_path), figure.axes[0]
    shades = np.array([[shade_at(figure, axes, picture, y, x) for x in range(4)] for y in range(3)])
    weights = np.array(site.weights[0])
    assert shades[2, 1] == 0
    assert (shades[weights == 0] == 255).all()
    np.testing.assert_allclose(shades, 255 * (1 - weights / 0.95), atol=2)


def test_no_head_means_the_average_and_the_picture_names_it(site: Site, tmp_path: Path) -> None:
    figure = heat_map(site, "Title")
    picture, mean = pixels(figure, tmp_path), np.mean(site.weights, 0)
    assert shade_at(figure, figure.axes[0], picture, 1, 2) == 0  # 0.75, the greatest mean
    assert shade_at(figure, figure.axes[0], picture, 0, 0) == pytest.approx(
        255 * (1 - mean[0, 0] / 0.75), abs=2
    )
    assert "decoder.2.cross · average of 2 heads · darker = more weight" in " ".join(texts(figure))
    alone = heat_map(replace(site, weights=site.weights[:1]))
    assert "decoder.2.cross · darker = more weight" in " ".join(texts(alone))


def test_words_and_numbers_are_written(site: Site) -> None:
    figure = heat_map(replace(site, weights=site.weights[:1]), "A title")
    written = texts(figure)
    for word in ["A title", *site.rows, *site.columns, ".90", ".95", ".05"]:
        assert word in written
    assert ".00" not in written


@pytest.mark.parametrize("side", [1, 2, 40, 60])
def test_any_number_of_words_fits_its_sheet(side: int) -> None:
    figure = heat_map(square([f"word{index}" for index in range(side)]), "A title of some length")
    assert everything_is_inside(figure)
    size = min(float(text.get_fontsize()) for text in figure.findobj(Text) if text.get_text())
    assert size >= (6 if side <= 40 else 5)
    assert (".0" in {text[:2] for text in texts(figure)}) == (2 < side <= 40)


@pytest.mark.parametrize(("rows", "columns"), [(1, 200), (200, 1)])
def test_one_word_against_hundreds_is_a_strip(rows: int, columns: int, tmp_path: Path) -> None:
    strip = Site("s", ["a"] * rows, ["b"] * columns, [[[0.1] * columns] * rows])
    for figure in (heat_map(strip), heat_map(strip, each=True)):
        assert everything_is_inside(figure)
        assert min(pixels(figure, tmp_path).shape[:2]) > 60


def test_a_picture_grows_with_its_words() -> None:
    small, large = (
        heat_map(square([f"w{i}" for i in range(side)])).get_size_inches() for side in (8, 24)
    )
    assert (large > 1.5 * small).all()


@pytest.mark.parametrize("kind", ["png", "svg", pytest.param("pdf", marks=pytest.mark.slow)])
def test_no_text_of_a_user_warns_or_becomes_a_formula(kind: str, tmp_path: Path) -> None:
    figure = heat_map(square(HARD_WORDS, count=2), "中文 $x^2$ \ud800 \n title")
    save(figure, tmp_path / f"picture.{kind}")
    assert "$x$ and $y$" in texts(figure)
    assert "a" * 23 + "…" in texts(figure)
    assert everything_is_inside(figure)


# --- fonts

NOBODY = "\U0001e290"  # a letter of Toto, which hardly any font has


def without_system_fonts(monkeypatch: pytest.MonkeyPatch, found: list[str]) -> None:
    """Only matplotlib's own fonts are in the list; a search finds those that are given."""
    own = [entry for entry in font_manager.fontManager.ttflist if "mpl-data" in entry.fname]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", own)
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda *_: found)
    fonts._cover.cache_clear()


@pytest.fixture(autouse=True)
def forget_fonts() -> Iterator[None]:
    yield
    fonts._cover.cache_clear()


def test_a_character_that_no_font_has_is_named_once_with_a_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_system_fonts(monkeypatch, [])
    assert (
        fonts.find("é私a 私は\n\ufe0f\u200d")
        == "no font here has 私 は; install fonts-noto-cjk, or write .html"
    )
    assert fonts.find("naïve ▁₁ ␣ العربية") == ""
    assert fonts.families("私") == fonts.families() == ["DejaVu Sans"]
    assert fonts.find("क").endswith("install fonts-noto-core, or write .html")
    assert fonts.find("一二三四五六七八九").startswith(
        "no font here has 一 二 三 四 五 六 七 八 …;"
    )


def test_another_family_draws_what_the_first_one_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    without_system_fonts(monkeypatch, [])
    lacking = min(
        fonts._signs_of("STIXGeneral")
        & fonts._beyond_base("".join(map(chr, range(0x2000, 0x3000))))
    )
    assert fonts.families(f"a{lacking}") == ["DejaVu Sans", "STIXGeneral"]
    assert fonts.find(lacking) == ""


def test_a_font_that_was_installed_a_moment_ago_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    without_system_fonts(monkeypatch, [])
    lacking = min(
        fonts._signs_of("STIXGeneral")
        & fonts._beyond_base("".join(map(chr, range(0x2000, 0x3000))))
    )
    file = font_manager.findfont("STIXGeneral")
    kept = [entry for entry in font_manager.fontManager.ttflist if "STIX" not in entry.name]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", kept)
    fonts._cover.cache_clear()
    assert f"no font here has {lacking}" in fonts.find(lacking)
    (tmp_path / "broken.ttf").write_bytes(b"no font")
    installed = shutil.copy(file, tmp_path / "new.ttf")
    monkeypatch.setattr(
        font_manager, "findSystemFonts", lambda *_: [str(installed), str(tmp_path / "broken.ttf")]
    )
    assert fonts.find(lacking) == ""
    assert fonts.families(lacking) == ["DejaVu Sans", "STIXGeneral"]


def test_text_in_svg_stays_text_and_the_viewer_may_take_its_own_fonts(tmp_path: Path) -> None:
    words = ["私", "▁Ver", "</b>", "$x$"]
    content = save(heat_map(square(words), "日本語"), tmp_path / "x.svg").read_text(
        encoding="utf-8"
    )
    for word in ("私", "▁Ver", "&lt;/b&gt;", "$x$", "日本語"):
        assert f">{word}</text>" in content
    assert "□" not in content
    assert all("sans-serif" in style for style in re.findall(r'<text style="([^"]*)"', content))


def test_a_picture_of_characters_that_no_font_has_prints_nothing(tmp_path: Path) -> None:
    program = f"""
from saccade.views.document import Site
from saccade.views.figures import heat_map, save
for kind in ("png", "pdf"):
    save(heat_map(Site("s", ["{NOBODY}", "ﷺ"], ["中文"], [[[1.0], [0.5]]]), "中文"), f"{tmp_path}/x.{{kind}}")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")


# --- what is written


def test_numbers_are_written_alike(site: Site) -> None:
    assert [two_digits(value) for value in (0.98, 0.994, 1.0, 0.07, -0.35, 1.73)] == [
        ".98",
        ".99",
        "1.0",
        ".07",
        "-.35",
        "1.7",
    ]
    written = texts(
        heat_map(
            replace(site, weights=[[[0.99, 0.01, 0, 0], [0.98, 0, 0, 0.02], [1e-4, 0, 0.5, 0.5]]])
        )
    )
    assert {".99", ".98", ".50"} <= set(written)
    assert not {"0.99", "0.5", "0.50"} & set(written)


def test_the_title_is_the_sentence_and_the_note_says_the_rest_once(site: Site) -> None:
    written = texts(heat_map(site, "the blue house .", "bahdanau"))
    assert "the blue house ." in written
    assert "bahdanau · decoder.2.cross · average of 2 heads · darker = more weight" in written
    assert sum("decoder.2.cross" in text for text in written) == 1
    assert "bahdanau · decoder.2.cross · head 1 · darker = more weight" in texts(
        heat_map(site, "", "bahdanau", head=1)
    )
    assert "bahdanau · decoder.2.cross · 2 heads · darker = more weight" in texts(
        heat_map(site, "", "bahdanau", each=True)
    )


def test_the_note_of_a_narrow_picture_is_one_line() -> None:
    figure = heat_map(
        Site("decoder.layers.11.cross", ["x"], ["y"], [[[1.0]]] * 12), "y", "a long name"
    )
    assert (
        "a long name · decoder.layers.11.cross · average of 12 heads · darker = more weight"
        in texts(figure)
    )
    assert everything_is_inside(figure)


def test_one_head_can_be_drawn(site: Site) -> None:
    assert ".90" in texts(heat_map(site, head=0))
    assert ".90" not in texts(heat_map(site, head=1))


def test_weights_of_a_label_are_dark_where_they_stand_out(tmp_path: Path) -> None:
    words = ["not", "a", "bad", "film"]
    figure = heat_map(Site("pool", ["neg"], words, [[[0.55, 0.05, 0.3, 0.1]]]))
    picture = pixels(figure, tmp_path)
    black, white, gray, none = (shade_at(figure, figure.axes[0], picture, 0, n) for n in range(4))
    assert (black, white, none) == (0, 255, 255)
    assert 0 < gray < 255
    assert {"≤ .25", ".55"} <= set(texts(figure))
    flat = heat_map(Site("pool", ["neg"], words, [[[0.26, 0.24, 0.25, 0.25]]]))
    picture = pixels(flat, tmp_path)
    assert all(shade_at(flat, flat.axes[0], picture, 0, n) > 240 for n in range(4))
    assert "pool · nearly the same for all · darker = more weight" in texts(flat)


def test_long_titles_break_into_lines_and_stay_inside(site: Site) -> None:
    figure = heat_map(site, "a rather long title of many words " * 6)
    assert everything_is_inside(figure)
    title = [text for text in texts(figure) if text.startswith("a rather")]
    assert 1 <= len(title) <= 3


def test_all_heads_share_one_scale(site: Site, tmp_path: Path) -> None:
    figure = heat_map(site, "Heads", each=True)
    picture = pixels(figure, tmp_path)
    assert shade_at(figure, figure.axes[0], picture, 2, 1) == 0
    assert shade_at(figure, figure.axes[1], picture, 1, 2) == pytest.approx(
        255 * (1 - 0.6 / 0.95), abs=2
    )
    assert {"head 0", "head 1"} <= set(texts(figure))
    assert everything_is_inside(figure)


@pytest.mark.parametrize("count", [1, 3, 4, 5, 8, 9, 16, 20])
def test_up_to_sixteen_heads_and_a_note_for_more(count: int) -> None:
    figure = heat_map(square(["a", "b", "c"], count), each=True)
    panels = [text for text in texts(figure) if text.startswith("head ")]
    assert len(panels) == min(count, 16)
    assert (
        "encoder.0.self · the first 16 of 20 heads · darker = more weight" in texts(figure)
    ) == (count == 20)
    boxes = [axes.get_position() for axes in figure.axes]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    assert everything_is_inside(figure)


def test_all_zero_and_negative_weights_can_be_drawn(site: Site, tmp_path: Path) -> None:
    nothing = replace(site, weights=[[[0.0] * 4] * 3])
    figure = heat_map(nothing)
    assert shade_at(figure, figure.axes[0], pixels(figure, tmp_path), 0, 0) == 255
    signed = replace(site, weights=[[[-1.0, 0.0, 1.0, 0.5]] * 3])
    figure = heat_map(signed)
    image = figure.axes[0].images[0]
    below, zero, above, half = (
        image.to_rgba(np.array([[one]]))[0, 0, :3] for one in (-1, 0, 1, 0.5)
    )
    assert below[2] > below[0] + 0.2, "blue"
    assert zero.min() > 0.95, "white"
    assert above[0] > above[2] + 0.2, "red"
    assert half.mean() > above.mean(), "paler"
    assert any("red: above 0 · blue: below 0" in text for text in texts(figure))


def test_lines_differ_by_more_than_color_and_carry_their_names() -> None:
    many = {f"model {index}": [(0.0, float(index)), (1.0, 1.0)] for index in range(20)}
    figure = lines(many, "length", "BLEU", "Title")
    drawn = figure.axes[0].lines
    looks = {(line.get_color(), line.get_marker()) for line in drawn}
    assert len(drawn) == len(looks) == 20
    assert len({line.get_marker() for line in drawn[:8]}) == 8
    names = figure.legends[0].get_texts()
    assert [text.get_text() for text in names] == list(many), "all end at the same height"
    figure.draw_without_rendering()
    heights = sorted(text.get_window_extent().y0 for text in names)
    assert min(np.diff(heights)) > names[0].get_window_extent().height * 0.9
    assert everything_is_inside(figure)


def test_lines_go_through_their_points_in_order_of_x() -> None:
    figure = lines({"m": [(3.0, 1.0), (1.0, 2.0), (2.0, 5.0)]}, "x", "y", "")
    assert figure.axes[0].lines[0].get_xydata().tolist() == [[1, 2], [2, 5], [3, 1]]  # type: ignore[union-attr]
    assert everything_is_inside(lines({"one $point$": [(1.0, 1.0)]}, "", "", ""))


def test_the_names_of_lines_are_in_the_order_in_which_the_lines_end() -> None:
    figure = lines({"low": [(0, 9), (1, 1)], "high": [(1, 5), (0, 0)]}, "x", "y", "")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["high", "low"]
    assert everything_is_inside(figure)


def test_numbers_have_contrast_on_every_shade() -> None:
    values = np.linspace(0.01, 1, 40)
    axes = heat_map(
        Site("s", ["row"], [str(index) for index in range(40)], [[values.tolist()]])
    ).axes[0]
    written = [
        text
        for text in axes.texts
        if text.get_text().startswith(".") or text.get_position()[1] == 0
    ]
    for value, text in zip(values, written, strict=True):
        background = np.array(axes.images[0].to_rgba(np.array([[value]]))[0, 0, :3])
        ink = np.array(colors.to_rgb(text.get_color()))
        light, dark = sorted([_luminance(background), _luminance(ink)], reverse=True)
        assert (light + 0.05) / (dark + 0.05) > 4.0


def _luminance(color: np.ndarray) -> float:
    """Relative luminance as WCAG 2 defines it."""
    linear = np.where(color <= 0.04045, color / 12.92, ((color + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize(
    ("suffix", "start"), [(".png", b"\x89PNG"), (".SVG", b"<?xml"), (".pdf", b"%PDF")]
)
def test_saving_by_suffix_twice_gives_the_same_bytes_and_leaves_nothing_behind(
    site: Site, tmp_path: Path, suffix: str, start: bytes
) -> None:
    path = tmp_path / f"picture{suffix}"
    path.write_bytes(b"old")
    first = save(heat_map(site, "t"), path).read_bytes()
    assert first.startswith(start)
    assert save(heat_map(site, "t"), str(path)).read_bytes() == first
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_names_that_cannot_be_written(site: Site, tmp_path: Path) -> None:
    figure = heat_map(site)
    with pytest.raises(ValueError, match="Format 'xyz' is not supported"):
        save(figure, tmp_path / "x.xyz")
    (tmp_path / "folder.png").mkdir()
    assert error_of(lambda: save(figure, tmp_path / "folder.png")).startswith(
        f"cannot write {tmp_path}/folder.png: "
    )
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder.png"]


def test_a_disk_that_fills_up_keeps_the_old_picture(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(heat_map(site), tmp_path / "x.png")
    before = path.read_bytes()

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert "No space left on device" in error_of(lambda: save(heat_map(site, "another"), path))
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.png"]


def test_pictures_leave_no_global_state(site: Site) -> None:
    before = dict(matplotlib.rcParams)
    save_to = io.BytesIO()
    heat_map(site).savefig(save_to, format="png")
    assert dict(matplotlib.rcParams) == before
    assert save_to.getvalue().startswith(b"\x89PNG")


def test_a_character_that_no_font_has_is_a_box_in_a_png_and_itself_in_an_svg(
    tmp_path: Path,
) -> None:
    missing = min(
        map(chr, range(0x10300, 0x10FFF)),
        key=lambda sign: not fonts._cover(fonts._beyond_base(sign))[1],
    )
    assert fonts.boxed(f"a{missing}b") == "a□b"
    site = Site("decoder.cross", [missing, "b"], ["a", "b"], [[[0.5, 0.5], [0.1, 0.9]]])
    save(figure := heat_map(site, "a title"), tmp_path / "x.svg")
    assert missing in (tmp_path / "x.svg").read_text(encoding="utf-8")
    save(figure, tmp_path / "x.png")
    shown = [text.get_text() for text in figure.findobj(Text)]
    assert "□" in shown
    assert missing not in "".join(shown)


# --- results


def log_rows(count: int = 40, *metrics: str) -> list[dict[str, float]]:
    found: list[dict[str, float]] = []
    for update in range(1, count + 1):
        found.append({"update": update, "loss": 5 / update + 1, "learning_rate": 1e-3})
        if update % 10 == 0:
            found.append(
                {
                    "update": update,
                    "dev_loss": 5 / update + 2,
                    **{f"dev_{name}": float(update) for name in metrics},
                }
            )
    return found


@pytest.mark.parametrize(
    ("metrics", "panels"), [((), 2), (("bleu",), 3), (("perplexity", "accuracy"), 4)]
)
def test_a_panel_for_each_metric(metrics: tuple[str, ...], panels: int) -> None:
    figure = curves({"run": log_rows(40, *metrics)})
    assert len(figure.axes) == panels
    names = ["loss", *(f"dev {name}" for name in metrics), "learning rate"]
    assert [axes.get_title(loc="left") for axes in figure.axes] == names
    training, dev = figure.axes[0].lines
    assert training.get_xdata().tolist() == list(range(1, 41))
    assert dev.get_ydata().tolist() == [5 / n + 2 for n in (10, 20, 30, 40)]
    assert (training.get_marker(), bool(dev.get_marker())) == ("", True), (
        "they differ without colors too"
    )
    assert Image.open(io.BytesIO(png(figure))).width > 600


def test_several_runs_differ_without_colors() -> None:
    looks = [(look(n)["linestyle"], look(n)["marker"]) for n in range(8)]
    assert len(set(looks)) == 8
    figure = curves({"a": log_rows(), "b $x$ </script>": log_rows(20)}, "two")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b $x$ </script>"]
    assert png(figure)[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    "log", [[], [{"update": 1}], [{"update": 1, "dev_loss": 2.0}], log_rows(5000)]
)
def test_any_log_can_be_drawn(log: list[dict[str, Any]]) -> None:
    figure = curves({"run": log})
    assert (
        max((len(line.get_xdata()) for axes in figure.axes for line in axes.lines), default=0)
        <= 300
    )
    assert png(figure)[:4] == b"\x89PNG"


def test_dots_are_seeds_and_bars_are_means() -> None:
    figure = dots({"one": [70.0, 72.0], "two": [80.0]}, "accuracy")
    drawn = [
        (line.get_marker(), np.asarray(line.get_xdata()).tolist()) for line in figure.axes[0].lines
    ]
    assert drawn == [("|", [71.0]), ("o", [70.0, 72.0]), ("|", [80.0]), ("o", [80.0])]
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == ["one", "two"]


def test_a_confusion_matrix_shows_shares_of_the_right_label() -> None:
    figure = confusion(["good", "b$a$d", "never"], [[3, 1, 0], [0, 8, 0], [0, 0, 0]])
    shares = np.asarray(figure.axes[0].images[0].get_array())
    assert shares.tolist() == [[0.75, 0.25, 0], [0, 1, 0], [0, 0, 0]]
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == [
        "good",
        "b$a$d",
        "never",
    ]
    texts = " ".join(text.get_text() for text in figure.findobj(Text))
    assert "darker = a larger share of the true label's examples" in texts.replace("\n", " ")
    assert {"3", "1", "8"} <= {text.get_text() for text in figure.axes[0].texts}, (
        "how many examples"
    )
    assert "weight" not in texts
    assert (
        png(confusion([f"label {n}" for n in range(24)], np.eye(24, dtype=int).tolist()))[:4]
        == b"\x89PNG"
    )


# --- layout


def test_no_name_lies_over_another_or_over_a_line() -> None:
    chance = np.random.default_rng(1)
    places = chance.random((40, 2)) * (6.0, 4.0)
    sizes = [(0.6, 0.11)] * 40
    found = place_names(places, sizes, (6.0, 4.0))
    placed = [(at, move) for at, move in zip(places, found, strict=True) if move is not None]
    boxes = [(x + a, y + b, x + a + 0.6, y + b + 0.11) for (x, y), (a, b, _) in placed]
    assert len(boxes) > 30
    assert not any(overlap(one, other) for n, one in enumerate(boxes) for other in boxes[:n])
    assert not any(b[0] < x < b[2] and b[1] < y < b[3] for x, y in places for b in boxes)
    for n, ((x, y), (_, _, far)) in enumerate(placed):
        for line in leader((x, y), boxes[n]) if far else []:
            assert not any(overlap(line, box) for m, box in enumerate(boxes) if m != n)


def test_lines_of_compared_panels_have_one_style_and_one_legend_in_a_free_place() -> None:
    series = {"one": [(1.0, 2.0), (2.0, 3.0)], "two": [(1.0, 1.0), (2.0, 5.0)]}
    shown = [Lines(f"panel {n}", series=dict([*series.items()][n % 2 :])) for n in range(5)]
    figure = panels("title", "note", in_rows(shown))
    styles = {(line.get_color(), line.get_marker()) for axes in figure.axes for line in axes.lines}
    assert len(styles) == 2
    [legend] = figure.legends
    figure.draw_without_rendering()
    box = legend.get_window_extent()
    assert not any(axes.get_window_extent().overlaps(box) for axes in figure.axes)
    assert box.y0 > figure.axes[4].get_window_extent().y0, "beside the last row, not below it"
    assert everything_is_inside(figure)


def test_the_scale_of_a_heat_map_is_beside_it_and_as_high() -> None:
    figure = panels("", "", [[Heat("x", "j", "i", 2.0, 1.8, np.eye(4) - 0.25, bar=True)]])
    axes, bar = (one.get_position() for one in figure.axes)
    assert (bar.y0, bar.y1) == pytest.approx((axes.y0, axes.y1))
    assert bar.x0 > axes.x1
    assert figure.axes[0].images[0].get_clim() == (-0.75, 0.75)


def test_the_title_is_in_the_metadata(site: Site, tmp_path: Path) -> None:
    with Image.open(save(heat_map(site, "la maison bleue"), tmp_path / "x.png")) as image:
        assert image.info["Title"] == "la maison bleue"
    written = save(heat_map(site, "la maison bleue"), tmp_path / "x.svg").read_text()
    assert "<dc:title>la maison bleue</dc:title>" in written
