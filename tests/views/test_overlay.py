"""Weights over a picture: every cell where it belongs, the scan path in the order of the words, sheets that can be read, a page that works."""

from __future__ import annotations

import base64
import io
import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import Circle, Rectangle
from matplotlib.text import Text
from PIL import Image
from test_browser import CHROMIUM, browse, drive

from saccade.views import figures, overlay
from saccade.views.document import MAX_PICTURE_SIDE, Document, Site
from saccade.views.html_page import attention_page
from saccade.views.overlay import contact_sheet, lit, of_document, upsample
from saccade.views.plots.sheet import put_boxes
from saccade.views.scan_path import Fixation, fixations
from saccade.views.selection import best_site
from saccade.views.terminal import picture_maps
from support import error_of

CAPTION = ["a", "small", "red", "circle", "above", "a", "large", "blue", "square"]
PICTURE = np.random.default_rng(0).integers(60, 200, (48, 64, 3), dtype=np.uint8)


def one_hot(rows: int, columns: int, *cells: tuple[int, int]) -> np.ndarray:
    """One head; each word has all its weight at one cell."""
    weights = np.zeros((1, len(cells), rows, columns))
    for word, (row, column) in enumerate(cells):
        weights[0, word, row, column] = 1
    return weights.reshape(1, len(cells), -1)


def caption_document(**more: Any) -> Document:
    """The words of a caption, each looking at one object; in two heads, one of which sees nothing."""
    cells = [(0, 0), (1, 1), (1, 1), (1, 1), (2, 0), (0, 0), (2, 3), (2, 3), (1, 3), (0, 3)]
    sharp = one_hot(3, 4, *cells)[0]
    site = Site.over_picture(
        "decoder.cross",
        [*CAPTION, "<eos>"],
        [0.9 * sharp + 0.1 / 12, np.full_like(sharp, 1 / 12)],
        (3, 4),
    )
    words = Site("decoder.mixer", CAPTION, CAPTION, np.eye(len(CAPTION))[None])
    return Document(
        "dog.png",
        ["dog.png"],
        CAPTION,
        [words, site],
        "a model",
        ("picture", "caption"),
        PICTURE,
        **more,
    )


def test_weights_between_cells_are_bilinear_as_torch_has_it() -> None:
    weights = np.random.default_rng(1).random((5, 7))
    wanted = torch.nn.functional.interpolate(
        torch.from_numpy(weights)[None, None], (33, 50), mode="bilinear", align_corners=False
    )
    np.testing.assert_allclose(upsample(weights, 33, 50), wanted[0, 0].numpy(), atol=1e-12)


@pytest.mark.parametrize(("row", "column"), [(0, 0), (1, 2), (2, 3)])
def test_a_hard_choice_lights_exactly_its_cell_and_frames_it(row: int, column: int) -> None:
    weights = one_hot(3, 4, (row, column))
    shown = lit(np.full((48, 64, 3), 100, np.uint8), weights.reshape(3, 4))
    inside = np.zeros((48, 64), bool)
    inside[16 * row : 16 * row + 16, 16 * column : 16 * column + 16] = True
    assert set(shown[~inside].ravel()) == {round(100 * overlay.DIM)}
    assert len(set(shown[inside].ravel())) == 1
    assert shown[inside].min() > 100
    figure = of_document(
        Document(
            "x", [], [], [Site.over_picture("pool", ["cat"], weights, (3, 4))], picture=PICTURE
        ),
        None,
        False,
        None,
    )
    [frame] = [one for axes in figure.axes for one in axes.findobj(Rectangle) if not one.get_fill()]
    assert (frame.get_x(), frame.get_y(), frame.get_width(), frame.get_height()) == (
        16 * column,
        16 * row,
        16,
        16,
    )


def test_soft_weights_are_brightest_at_the_middle_of_the_strongest_cell_and_dark_two_cells_away() -> (
    None
):
    weights = np.array([[0.0, 0.0, 0.0, 0.0], [0.0, 0.3, 0.7, 0.0], [0.0, 0.0, 0.0, 0.0]])
    shown = lit(np.full((48, 64, 3), 100, np.uint8), weights)[:, :, 0]
    row, column = np.unravel_index(shown.argmax(), shown.shape)
    assert (row // 16, column // 16) == (1, 2)
    assert abs(int(row) - 23.5) <= 1
    assert abs(int(column) - 39.5) <= 1
    assert set(shown[:, :8].ravel()) == {round(100 * overlay.DIM)}
    assert lit(PICTURE, np.zeros((3, 4))).max() <= round(overlay.DIM * 200), (
        "no weight at all is all dark, not an error"
    )


def test_positions_that_look_elsewhere_than_at_the_middles_of_cells_are_drawn_where_they_look() -> (
    None
):
    gray, offset = np.full((48, 64, 3), 100, np.uint8), (-6 / 48, -4 / 64)
    shown = lit(gray, one_hot(3, 4, (1, 2)).reshape(3, 4), offset)[:, :, 0]
    rows, columns = np.nonzero(shown > 100)
    assert (rows.min(), rows.max() + 1, columns.min(), columns.max() + 1) == (10, 26, 28, 44)
    last = lit(gray, one_hot(3, 4, (2, 3)).reshape(3, 4), offset)[:, :, 0]
    assert (last[26:, 44:] > 100).all(), "nothing of the picture belongs to no position"
    soft = upsample(
        np.array([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]), 48, 48, (-6 / 48, 2 / 48)
    )
    assert np.unravel_index(soft.argmax(), soft.shape) in [
        (y, x) for y in (17, 18) for x in (25, 26)
    ]
    site = Site.over_picture("x", ["cat"], one_hot(3, 4, (1, 2)), (3, 4), offset)
    figure = of_document(Document("x", [], ["cat"], [site], picture=PICTURE), None, False, None)
    [frame] = [one for axes in figure.axes for one in axes.findobj(Rectangle) if not one.get_fill()]
    assert (frame.get_x(), frame.get_y()) == (28, 10)
    two = Site.over_picture("x", ["cat", "dog"], one_hot(3, 4, (1, 2), (2, 1)), (3, 4), offset)
    drawn = of_document(Document("x", [], ["cat", "dog"], [two], picture=PICTURE), two, False, None)
    assert [circle.center for axes in drawn.axes for circle in axes.findobj(Circle)] == [
        (36.0, 18.0),
        (20.0, 34.0),
    ]
    assert json.loads(two.document.to_json())["sites"][0]["offset"] == list(offset)
    assert two.document.words().sites[0].offset == offset


def test_the_scan_path_visits_the_strongest_cells_of_content_words_in_order() -> None:
    found = fixations(caption_document()["decoder.cross"])
    share = (0.9 + 0.1 / 12 + 1 / 12) / 2  # of both heads in the mean
    assert [(one.words, one.row, one.column) for one in found] == [
        (("small", "red", "circle"), 1, 1),
        (("above",), 2, 0),
        (("large", "blue"), 2, 3),
        (("square",), 1, 3),
    ]
    assert [one.dwell for one in found] == pytest.approx([3 * share, share, 2 * share, share])
    sharp = fixations(caption_document()["decoder.cross"], head=0)
    assert [one.dwell for one in sharp] == pytest.approx(
        [3 * (0.9 + 0.1 / 12), *(n * (0.9 + 0.1 / 12) for n in (1, 2, 1))]
    )


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        (["▁sm", "all", "▁dog", "▁!"], [("small", "dog")]),
        (["eine", "rote", "Katze", "!"], [("eine", "rote", "Katze")]),
        (["一", "只", "猫", "<eos>"], [("一", "只", "猫")]),
        (["the", "of", "a", "<eos>"], [("the", "of", "a")]),
        (["<bos>", "…", "[SEP]", "<eos>"], []),
    ],
    ids=["pieces", "German", "Chinese", "function words alone", "no words"],
)
def test_words_of_a_scan_path(rows: list[str], wanted: list[tuple[str, ...]]) -> None:
    assert [
        one.words
        for one in fixations(Site.over_picture("x", rows, one_hot(2, 2, *[(0, 1)] * 4), (2, 2)))
    ] == wanted


def test_a_scan_path_is_drawn_where_it_was_with_a_second_visit_beside_the_first() -> None:
    rows = ["one", "two", "three", "four"]
    site = Site.over_picture("x", rows, one_hot(3, 4, (0, 0), (2, 3), (0, 0), (1, 1)), (3, 4))
    figure = of_document(Document("x", [], rows, [site], picture=PICTURE), site, False, None)
    axes = next(axes for axes in figure.axes if axes.findobj(Circle))
    circles = axes.findobj(Circle)
    numbers = {text.get_text(): text.get_position() for text in axes.texts}
    assert list(numbers) == ["1", "2", "3", "4"]
    assert [numbers[name] for name in numbers] == [circle.center for circle in circles]
    assert (numbers["2"], numbers["4"]) == ((56.0, 40.0), (24.0, 24.0)), (
        "the middles of their cells"
    )
    assert math.dist(numbers["1"], (8, 8)) < 1e-9
    assert 2 < math.dist(numbers["1"], numbers["3"]) < 16
    for circle in circles:
        x, y = circle.center
        assert circle.radius <= x <= 64 - circle.radius
        assert circle.radius <= y <= 48 - circle.radius


@pytest.mark.parametrize("count", [1, 3, 15, 40])
def test_titles_do_not_overlap_whatever_the_number_of_words(count: int) -> None:
    rows = [f"extraordinarily{n}" if n % 3 else "的猫" for n in range(count)]
    cells = [(n % 3, n % 4) for n in range(count)]
    site = Site.over_picture(
        "decoder.cross", [*rows, "<eos>"], one_hot(3, 4, *cells, (0, 0)), (3, 4)
    )
    figure = of_document(
        Document("dog.png", [], rows, [site], "m", picture=PICTURE), site, False, None
    )
    put_boxes(figure)  # as when it is saved: this machine may lack a font
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    page, renderer = figure.bbox, canvas.get_renderer()
    panels = [axes for axes in figure.axes if axes.get_title()]
    assert len(panels) == count
    boxes = [axes.title.get_window_extent(renderer) for axes in panels]
    for one, other in pairwise(boxes):
        assert not one.overlaps(other)
    for text in figure.findobj(Text):
        box = text.get_window_extent(renderer)
        assert not text.get_text() or (
            box.x0 >= page.x0 - 1
            and box.x1 <= page.x1 + 1
            and box.y0 >= -1
            and box.y1 <= page.y1 + 1
        )
        assert not text.get_text() or text.get_fontsize() >= 7


def test_a_sheet_has_for_each_picture_its_caption_and_a_panel_for_each_word(tmp_path: Path) -> None:
    tall = Document("b.png", [], ["猫"], [Site.over_picture("x", ["猫", "<eos>"], one_hot(2, 2, (0, 1), (1, 1)), (2, 2))],
                    picture=np.full((80, 20, 3), 90, np.uint8))  # fmt: skip
    figure = contact_sheet([caption_document(), tall], "where it looks")
    texts = [text.get_text() for text in figure.texts]
    assert "where it looks" in texts
    assert " ".join(CAPTION) in texts
    assert [axes.get_title() for axes in figure.axes if axes.get_title()] == [
        "picture",
        *CAPTION,
        "picture",
        "猫",
    ]
    assert figures.save(figure, tmp_path / "sheet.png").stat().st_size > 10_000
    assert "needs documents with a picture" in error_of(lambda: contact_sheet([]))


def test_the_document_keeps_the_pixels_and_the_grid_and_documents_of_texts_stay_as_they_were(
    document: Document,
) -> None:
    plain = json.loads(caption_document().to_json())
    kind, data = plain["picture"].split(",")
    assert kind == "data:image/png;base64"
    np.testing.assert_array_equal(
        np.asarray(Image.open(io.BytesIO(base64.b64decode(data)))), PICTURE
    )
    assert [site.get("grid") for site in plain["sites"]] == [None, [3, 4]]
    assert plain["sites"][1]["columns"][5] == "row 2, column 2"
    assert set(json.loads(document.to_json())) == {"title", "model", "source", "target", "sites"}
    assert all(
        set(site) == {"name", "rows", "columns", "weights"}
        for site in json.loads(document.to_json())["sites"]
    )
    large = Document("x", [], [], [], picture=np.zeros((2000, 1000, 3), np.uint8))
    assert large.picture.shape == (MAX_PICTURE_SIDE, MAX_PICTURE_SIDE // 2, 3)
    alone = caption_document()["decoder.cross"].document
    assert alone.picture.shape == (48, 64, 3), "a site by itself lies over a gray ground"
    assert caption_document().words()["decoder.cross"].grid == (3, 4)


def test_what_looks_at_the_picture_is_shown_first() -> None:
    document = caption_document()
    flat = Site.over_picture("flat", [*CAPTION, "<eos>"], np.full((1, 10, 12), 1 / 12), (3, 4))
    rollout = Site.over_picture("rollout", ["x"], one_hot(3, 4, (0, 0)), (3, 4))
    assert best_site([document.sites[0], flat, document.sites[1]]).name == "decoder.cross"
    assert best_site([document.sites[0], rollout, flat]).name == "flat"
    assert best_site([document.sites[0], rollout]).name == "rollout"


@pytest.mark.parametrize(
    ("how", "panels"),
    [({}, 9), ({"head": 1}, 9), ({"heads": True}, 18), ({"site": "decoder.mixer"}, 0)],
)
def test_each_way_to_save_is_another_picture(
    how: dict[str, Any], panels: int, tmp_path: Path
) -> None:
    made = caption_document().save(tmp_path / "x.svg", **how).read_text()
    assert made.count("<image") >= max(panels, 1)
    assert [one.name for one in tmp_path.iterdir()] == ["x.svg"]


def test_a_picture_that_cannot_be_drawn_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.png").write_bytes(b"old")

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(overlay, "lit", fail)
    with pytest.raises(MemoryError):
        caption_document().save(tmp_path / "x.png")
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("x.png", b"old")]


@pytest.mark.parametrize(
    ("work", "sentence"),
    [
        (
            lambda: Site.over_picture("x", ["a"], np.ones((1, 1, 5)), (2, 2)),
            "expected heads × 1 rows × 4 columns",
        ),
        (
            lambda: Site("x", ["a"], ["b"] * 5, np.ones((1, 1, 5)), (2, 2)),
            "one column per position of its grid, got 2 × 2 for 5",
        ),
        (
            lambda: Document("x", [], [], [], picture=np.ones((4, 4, 3))),
            "as bytes, height × width × 3, got float64",
        ),
        (
            lambda: Document("x", [], [], [], picture=np.ones((3, 4, 4), np.uint8)),
            r"got uint8 of shape (3, 4, 4)",
        ),
        (
            lambda: Document("x", [], [], [], picture=np.ones((0, 4, 3), np.uint8)),
            r"got uint8 of shape (0, 4, 3)",
        ),
        (
            lambda: fixations(Site("text", ["a"], ["b"], [[[1.0]]])),
            "'text' does not look at a picture",
        ),
        (lambda: caption_document().save("x.gif"), "name a file ending in .png"),
    ],
)
def test_bad_input(work: Any, sentence: str) -> None:
    assert sentence in error_of(work)


def test_the_terminal_has_a_map_of_each_word() -> None:
    site = Site.over_picture("x", ["a", "cat"], one_hot(2, 3, (0, 1), (1, 2)), (2, 3))
    lines = picture_maps(site, site.weights[0], 80).plain.split("\n")
    assert lines[0].split() == ["a", "cat"]
    assert "row 1, column 2: 100 %" in lines[1]
    assert "row 2, column 3: 100 %" in lines[1]
    assert [line.split() for line in lines[2:]] == [["··██··", "······"], ["······", "····██"]]
    narrow = picture_maps(site, site.weights[0], 30).plain
    assert max(map(len, narrow.split("\n"))) <= 30
    wide = Site.over_picture("x", ["cat"], one_hot(50, 50, (49, 0)), (50, 50))
    rows = picture_maps(wide, wide.weights[0], 80).plain.split("\n")[2:]
    assert len(rows) == 13, "four positions share a sign"
    assert rows[-1] == "██" + "·" * 24


def test_fixations_are_plain_values() -> None:
    assert fixations(Site.over_picture("x", ["cat"], one_hot(2, 2, (1, 0)), (2, 2))) == [
        Fixation(("cat",), 1, 0, 1.0)
    ]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_the_page_shows_the_picture_as_bright_as_a_word_looks(tmp_path: Path) -> None:
    site = Site.over_picture("decoder.cross", ["red", "cat"], one_hot(3, 4, (0, 0), (2, 3)), (3, 4))
    soft = Site.over_picture("soft", ["red", "cat"], [[[0.6] + [0.0] * 10 + [0.4]] * 2] * 2, (3, 4))
    page = attention_page(
        Document(
            "dog.png", [], ["red", "cat"], [site, soft], picture=np.full((48, 64, 3), 200, np.uint8)
        )
    )
    assert 'style="width: 460px; height: 345px;"' in browse(page, tmp_path), (
        "drawn under its own policy"
    )
    found = drive(
        page,
        tmp_path,
        """
        const gray = (width, height) => {
          const made = Object.assign(document.createElement("canvas"), { width, height, naturalWidth: width, naturalHeight: height });
          made.getContext("2d").fillStyle = "rgb(200 200 200)";
          made.getContext("2d").fillRect(0, 0, width, height);
          return made;
        };
        const pixel = (x, y) => {
          const copy = gray(1, 1).getContext("2d");
          copy.drawImage(view.map, Math.floor(view.map.width * x), Math.floor(view.map.height * y), 1, 1, 0, 0, 1, 1);
          return copy.getImageData(0, 0, 1, 1).data[0];
        };
        const corners = () => [pixel(0.1, 0.15), pixel(0.9, 0.85), pixel(0.5, 0.5)];
        view.image = gray(64, 48); /* the picture itself comes a moment later */
        words("rows")[1].focus();
        words("rows")[0].focus();
        const first = [says(), corners()];
        words("rows")[1].focus();
        const second = [says(), corners()];
        view.openSite(1);
        view.map.focus(); key("ArrowRight"); key("ArrowDown");
        return [first, second, says(), view.spot, getComputedStyle(view.columns).display, view.heads.children.length];
        """,
    )
    first, second, moved, spot, columns, heads = found
    assert first == ["red looks at row 1, column 1 100 %", [200, 60, 60]]
    assert second == ["cat looks at row 3, column 4 100 %", [60, 200, 60]]
    assert moved.startswith(
        "red looks at row 1, column 1 60 %, row 3, column 4 40 % · here row 2, column 2"
    )
    assert spot == {"row": 0, "column": 5}
    assert (columns, heads) == ("none", 3)


def test_strips_of_channels_are_as_bright_as_the_maps_say_on_one_scale() -> None:
    maps = Site.over_picture("rollout", ["x"], one_hot(3, 4, (0, 0)), (3, 4))
    strips = [
        Site(name, ["factor"], ["a", "b"], [[values]])
        for name, values in (("low", [0.0, 0.4]), ("high", [0.5, 0.8]))
    ]
    figure = of_document(
        Document("dog.png", ["dog.png"], ["dog"], [maps, *strips], "a model", picture=PICTURE),
        None,
        False,
        None,
    )
    texts = [text.get_text() for text in figure.findobj(Text)]
    assert "a model · strips: 0 is black, 0.80 is white · brighter = more weight" in texts
    drawn = {}
    for axes in figure.axes:
        name = axes.get_title(loc="left")
        if name:
            [image] = axes.get_images()
            drawn[name] = image.to_rgba(image.get_array())[0, :, 0].tolist()
    assert drawn == {
        "low: 2, 0.00 to 0.40": pytest.approx([0.0, 0.5], abs=0.01),
        "high: 2, 0.50 to 0.80": pytest.approx([0.625, 1.0], abs=0.01),
    }
