"""A small document that every view can draw: two heads with known weights, and a site of its own for the encoder."""

from __future__ import annotations

import pytest

from saccade.views.document import Document, Site


@pytest.fixture
def site() -> Site:
    return Site(
        "decoder.2.cross",
        ["la", "maison", "bleue"],
        ["the", "blue", "house", "."],
        [
            [[0.9, 0.05, 0.05, 0.0], [0.0, 0.1, 0.9, 0.0], [0.0, 0.95, 0.0, 0.05]],
            [[0.5, 0.2, 0.2, 0.1], [0.1, 0.2, 0.6, 0.1], [0.2, 0.3, 0.3, 0.2]],
        ],
    )


@pytest.fixture
def document(site: Site) -> Document:
    words = site.columns
    even = Site("encoder.0.self", words, words, [[[0.25] * 4 for _ in words]])
    return Document("the blue house", words, site.rows, [site, even], model="a small model")
