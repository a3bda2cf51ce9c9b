"""The plain document: what goes in comes out, what does not fit is named, and nothing can break out of a script."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.errors import SaccadeError
from saccade.views.document import Document, Site

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
    return Document(draw(st.text()), draw(words), draw(words), [draw(sites(name)) for name in names], draw(st.text(max_size=5)))


@given(documents())
def test_a_document_survives_its_json_up_to_rounding(document: Document) -> None:
    text = document.to_json()
    again = Document.from_json(text)
    assert (again.title, again.source, again.target, again.model) == (
        document.title, document.source, document.target, document.model,
    )  # fmt: skip
    for before, after in zip(document.sites, again.sites, strict=True):
        assert (after.name, after.rows, after.columns) == (before.name, before.rows, before.columns)
        np.testing.assert_allclose(after.weights, before.weights, rtol=0, atol=0.50001e-4)
    assert again.to_json() == text


@given(documents())
def test_no_json_can_end_or_open_anything_in_html(document: Document) -> None:
    text = document.to_json()
    assert text.isascii()
    assert not set("<>&\n\r") & set(text)


def test_tokens_that_look_like_tags_come_back_as_they_were(site: Site) -> None:
    evil = "</script><script>alert(1)</script><!-- \u2028"
    document = Document(evil, [evil], [], [replace(site, name=evil, rows=[evil, "b", "c"])])
    assert "script>" not in document.to_json()
    assert Document.from_json(document.to_json()) == document


def test_keys_stand_in_one_order_and_numbers_have_four_digits() -> None:
    document = Document("t", ["a"], ["b"], [Site("s", ["b"], ["a"], [[[1 / 3]], [[-0.00001]]])], "m")
    assert document.to_json() == (
        '{"title":"t","model":"m","source":["a"],"target":["b"],'
        '"sites":[{"name":"s","rows":["b"],"columns":["a"],"weights":[[[0.3333]],[[0.0]]]}]}'
    )


def test_the_model_may_be_left_out_of_the_json(document: Document) -> None:
    plain = json.loads(document.to_json())
    del plain["model"]
    assert Document.from_json(json.dumps(plain)).model == ""


WEIGHTS: list[tuple[Any, str]] = [
    ([], "site 's' has no heads"),
    ("abc", "site 's' has no heads"),
    ([[[1, 0]]], "head 0 of site 's' has 1 rows, but the site has 2 words that look"),
    ([[[1, 0], [1]]], "row 1 of head 0 of site 's' has 1 weights, but 2 words are looked at"),
    ([[[1, 0], [0, 1]], 7], "head 1 of site 's' has a int"),
    ([[[1, 0], [0, float("nan")]]], "row 1, column 1 of head 0 of site 's' is nan, but must be a finite number"),
    ([[[1, 0], [float("-inf"), 0]]], "is -inf, but must be a finite number"),
    ([[[1, "0.5"], [0, 1]]], "is '0.5', but must be a finite number"),
    ([[[True, 0], [0, 1]]], "is True, but must be a finite number"),
    ([[[10**400, 0], [0, 1]]], "but must be a finite number"),
]


@pytest.mark.parametrize(("weights", "sentence"), WEIGHTS)
def test_wrong_weights_are_named_by_place(weights: Any, sentence: str) -> None:
    with pytest.raises(SaccadeError) as error:
        Document("t", [], [], [Site("s", ["a", "b"], ["c", "d"], weights)]).check()
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"title": None}, "the title of a document is None, but must be text"),
        ({"source": "the house"}, "the source must be a list of words, not a str"),
        ({"target": ["a", 3]}, "word 1 of the target is 3, but must be text"),
        ({"sites": []}, "the document has no sites"),
        ({"sites": [Site("s", [], ["a"], [[]])]}, "site 's' has no rows"),
        ({"sites": [Site("s", ["a"], [], [[[]]])]}, "site 's' has no columns"),
        ({"sites": [Site("", ["a"], ["b"], [[[1.0]]])]}, "a site is named ''"),
        ({"sites": [Site("s", ["a"], ["b"], [[[1.0]]])] * 2}, "two sites are named 's'"),
    ],
)
def test_wrong_documents_are_refused_with_a_sentence(document: Document, change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SaccadeError) as error:
        replace(document, **change).to_json()
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "this is not a JSON document"),
        ("[" * 100_000, "this is not a JSON document"),
        ("[]", "the document is 0, but must be an object"),
        ('{"titel": "x"}', "the document has no key named 'titel'; did you mean 'title'?"),
        ('{"title": "x"}', "the document lacks the key 'sites'"),
        ('{"title": "x", "source": [], "target": [], "sites": 3}', "the sites of the document are a int"),
        (
            '{"title": "x", "source": [], "target": [], "sites": [{"name": "s"}]}',
            "site 0 of the document lacks the key 'columns'",
        ),
        (
            '{"title": "x", "source": [], "target": [], '
            '"sites": [{"name": "s", "rows": ["a"], "columns": ["b"], "weights": [[[NaN]]]}]}',
            "is nan, but must be a finite number",
        ),
    ],
)
def test_wrong_json_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(SaccadeError) as error:
        Document.from_json(text)
    assert sentence in str(error.value)


def test_one_head_or_the_mean_of_all(site: Site) -> None:
    np.testing.assert_allclose(site.head()[0], [0.7, 0.125, 0.125, 0.05])
    np.testing.assert_array_equal(site.head(1)[1], [0.1, 0.2, 0.6, 0.1])
    assert site.head_name() == "average of 2 heads"
    assert site.head_name(1) == "head 1 of 2"
    assert replace(site, weights=site.weights[:1]).head_name() == ""


@pytest.mark.parametrize("head", [2, -1])
def test_a_head_that_is_not_there(site: Site, head: int) -> None:
    with pytest.raises(SaccadeError, match=f"there is no head {head} in site 'decoder.2.cross'; its 2 heads are 0 to 1"):
        site.head(head)


def test_the_two_texts_may_have_other_names() -> None:
    site = Site("pool", ["good"], ["a", "film"], [[[0.25, 0.75]]])
    document = Document("a film", ["a", "film"], ["good"], [site], "bag", ("text", "label"))
    assert Document.from_json(document.to_json()) == document
    for wrong in ('["text"]', "3", '["text", 1]'):
        with pytest.raises(SaccadeError, match=r"what the two texts are called is .*, but must be two names"):
            Document.from_json(document.to_json().replace('["text","label"]', wrong))
