"""The plain document: what goes in comes out of its JSON, and nothing can break out of a script."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from saccade.views.document import Document, Site, shorten
from support import error_of

TOKENS = st.lists(st.text(max_size=6), min_size=1, max_size=4)


@st.composite
def sites(draw: st.DrawFn, name: str) -> Site:
    rows, columns = draw(TOKENS), draw(TOKENS)
    number = st.floats(0, 1, allow_nan=False) | st.floats(-1e6, 1e6) | st.integers(-3, 3)
    line = st.lists(number, min_size=len(columns), max_size=len(columns))
    head = st.lists(line, min_size=len(rows), max_size=len(rows))
    return Site(name, rows, columns, draw(st.lists(head, min_size=1, max_size=3)))


@st.composite
def documents(draw: st.DrawFn) -> Document:
    names = draw(st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=2, unique=True))
    words = st.lists(st.text(max_size=6), max_size=4)
    return Document(
        draw(st.text()),
        draw(words),
        draw(words),
        [draw(sites(name)) for name in names],
        draw(st.text(max_size=5)),
    )


@given(documents())
def test_a_document_survives_its_json_up_to_rounding_and_cannot_end_or_open_anything_in_html(
    document: Document,
) -> None:
    text = document.to_json()
    again, before = json.loads(text), asdict(document)
    assert all(again[name] == before[name] for name in ("title", "source", "target", "model"))
    for site, after in zip(document.sites, again["sites"], strict=True):
        assert (after["name"], after["rows"], after["columns"]) == (
            site.name,
            site.rows,
            site.columns,
        )
        np.testing.assert_allclose(after["weights"], site.weights, rtol=0, atol=0.50001e-4)
    assert text.isascii()
    assert not set("<>&\n\r") & set(text)


def test_tokens_that_look_like_tags_come_back_as_they_were(site: Site) -> None:
    evil = "</script><script>alert(1)</script><!-- \u2028"
    document = Document(evil, [evil], [], [replace(site, name=evil, rows=[evil, "b", "c"])])
    assert "script>" not in document.to_json()
    again = json.loads(document.to_json())
    assert (again["title"], again["source"], again["sites"][0]["name"]) == (evil, [evil], evil)
    assert again["sites"][0]["rows"] == [evil, "b", "c"]


def test_keys_have_one_order_and_numbers_four_digits() -> None:
    document = Document(
        "t", ["a"], ["b"], [Site("s", ["b"], ["a"], [[[1 / 3]], [[-0.00001]]])], "m"
    )
    assert document.to_json() == (
        '{"title":"t","model":"m","source":["a"],"target":["b"],'
        '"sites":[{"name":"s","rows":["b"],"columns":["a"],"weights":[[[0.3333]],[[0.0]]]}]}'
    )
    assert (
        replace(document, called=("text", "label"))
        .to_json()
        .startswith('{"called":["text","label"],"title":"t",')
    )


@pytest.mark.parametrize("bad", [float("nan"), float("-inf")])
def test_weights_of_a_model_that_diverged_are_refused(bad: float) -> None:
    sentence = error_of(lambda: Site("s", ["a"], ["b", "c"], [[[1.0, bad]]]))
    assert (
        sentence == "the weights of site 's' are not finite; the model has diverged, train it again"
    )


def test_weights_that_do_not_fit_the_words_are_refused() -> None:
    sentence = error_of(lambda: Site("s", ["a"], ["b", "c"], [[[1.0]]]))
    assert (
        sentence
        == "the weights of site 's' have the shape (1, 1, 1); expected heads × 1 rows × 2 columns"
    )
    assert "have the shape (1, 1)" in error_of(lambda: Site("s", ["a"], ["b"], [[1.0]]))


def test_weights_are_an_array_whatever_they_were() -> None:
    halves = torch.full((2, 1, 2), 0.5, dtype=torch.bfloat16, requires_grad=True)
    for weights in ([[[0.5, 0.5]], [[0.5, 0.5]]], np.full((2, 1, 2), 0.5, np.float32), halves):
        site = Site("s", ["a"], ["b", "c"], weights)
        assert isinstance(site.weights, np.ndarray)
        assert (site.weights.dtype, site.weights.shape, site.weights.sum()) == (
            np.float64,
            (2, 1, 2),
            2.0,
        )
        assert site == Site("s", ["a"], ["b", "c"], halves) != Site("s", ["a"], ["b", "d"], halves)
    assert (
        '"weights":[[[0.3333]]]'
        in Document(
            "t", [], [], [Site("s", ["a"], ["b"], np.full((1, 1, 1), 1 / 3, np.float32))]
        ).to_json()
    )


def test_sites_are_found_by_name_and_number(document: Document) -> None:
    name = document.sites[1].name
    assert document[name] is document[1] is document.sites[1]
    assert list(document) == document.sites
    assert (
        error_of(lambda: document[name + "x"])
        == f"no attention named '{name}x'; did you mean '{name}'?"
    )


def test_a_document_is_one_line_when_printed(document: Document) -> None:
    many = Document("a sentence " * 50, ["a"], ["b"], [document[0]] * 40, "m")
    assert repr(document) == "Document('the blue house', 2 sites: decoder.2.cross, encoder.0.self)"
    assert repr(document[1]) == "Site('encoder.0.self', 1 × 4 × 4 heads × rows × columns)"
    assert len(repr(many)) < 160
    assert "\n" not in repr(many)


def test_a_document_is_saved_by_the_ending_of_the_name(document: Document, tmp_path: Path) -> None:
    begins = {
        "png": b"\x89PNG",
        "svg": b"<?xml",
        "pdf": b"%PDF",
        "html": b"<!doctype html>",
        "json": b'{"title"',
    }
    for kind, begin in begins.items():
        path = document.save(tmp_path / f"x.{kind}")
        assert path == tmp_path / f"x.{kind}"
        assert path.read_bytes().startswith(begin)
    assert (tmp_path / "x.json").read_text() == document.to_json()
    pictures = {
        document.save(str(tmp_path / "y.png"), site, heads).read_bytes()
        for site in ("encoder.0.self", None)
        for heads in (True, False)
    }
    assert len(pictures) == 4, "another site and all heads are other pictures"
    document.save(tmp_path / "one.json", "encoder.0.self")
    assert [site["name"] for site in json.loads((tmp_path / "one.json").read_text())["sites"]] == [
        "encoder.0.self",
        "decoder.2.cross",
    ]
    document[1].save(tmp_path / "site.png")
    assert (tmp_path / "site.png").read_bytes().startswith(b"\x89PNG")
    assert (
        error_of(lambda: document.save("x.gif"))
        == "cannot draw to 'x.gif'; name a file ending in .png, .svg, .pdf, .html or .json"
    )
    assert "no attention named 'nowhere'" in error_of(
        lambda: document.save(tmp_path / "z.html", "nowhere")
    )


def test_shortening_keeps_24_letters_and_shows_blanks() -> None:
    assert shorten("x" * 24) == "x" * 24
    assert shorten("x" * 25) == "x" * 23 + "…"
    assert [shorten(token) for token in ("", "  ", "a\tb", "\r", "\x07")] == [
        "␣",
        "␣␣",
        "a⇥b",
        "↵",
        "□",
    ]
