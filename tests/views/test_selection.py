"""What of a document is shown: words made of pieces, and the attention worth seeing."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.views.document import Document, Site
from saccade.views.selection import best_site, in_words, is_flat, shade_range


def words_of(*labels: str) -> list[str]:
    row = [[1 / len(labels)] * len(labels)]
    return in_words(Site("s", ["x"], list(labels), [row])).columns


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ("▁Ich ▁habe ▁M us ik ▁ver bracht . <eos>", "Ich habe Musik verbracht. <eos>"),
        ("▁ 私₁ 私₂ 私₃ は ▁ ▁ b", "私は b"),
        ("▁H ₂₁ ₂₂ ₂₃ O", "H₂O"),
        ("▁H₂O ▁H₁ H₂ x", "H₂O Hx"),
        ("[CLS] un ##want ##ed dog [SEP]", "[CLS] unwanted dog [SEP]"),
        ("<bos> the cat . <eos>", "<bos> the cat . <eos>"),
        ("<0xE4> ▁x", "<0xE4> x"),
        ("the", "the"),
    ],
)
def test_pieces_become_words_by_their_marks(labels: str, words: str) -> None:
    assert words_of(*labels.split()) == words.split()


def test_characters_and_old_documents_become_words_too() -> None:
    assert words_of("t", "h", "e", " ", "c", "a", "t", "<eos>") == ["the", "cat", "<eos>"]
    assert words_of("M", "us", "ik", " ver", "bracht", "", "<eos>") == [
        "Musik",
        "verbracht",
        "<eos>",
    ]
    assert words_of("a", "\n", "▁b", "\n", "<eos>") == ["a", "b", "\n", "<eos>"]


def test_columns_are_added_and_rows_averaged() -> None:
    pieces = Site(
        "s",
        ["▁a", "b", "▁c"],
        ["▁x", "y", "<eos>"],
        [[[0.2, 0.3, 0.5], [0.4, 0.6, 0.0], [0.1, 0.1, 0.8]], [[1, 0, 0]] * 3],
    )
    document = Document("ab c", ["ab", "c"], ["xy"], [pieces]).words()
    site = document.sites[0]
    assert (site.rows, site.columns) == (["ab", "c"], ["xy", "<eos>"])
    np.testing.assert_allclose(site.weights, [[[0.75, 0.25], [0.2, 0.8]], [[1, 0], [1, 0]]])
    assert (document.title, document.source) == ("ab c", ["ab", "c"])
    again = document.words().sites[0]
    assert (again.rows, again.columns) == (site.rows, site.columns), (
        "words of words are the same words"
    )


def test_the_attention_that_singles_out_words_is_chosen_and_a_look_at_the_end_is_not() -> None:
    rows, columns = ["le", "chat"], ["the", "cat", "<eos>"]
    flat = Site("0.cross", rows, columns, [[[1 / 3] * 3] * 2])
    sink = Site("1.cross", rows, columns, [[[0.0, 0.0, 1.0]] * 2])
    aligned = Site("2.cross", rows, columns, [[[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]]])
    own = Site("self", columns, columns, [np.eye(3).tolist()])
    before = Site("before", columns, columns, [[[1, 0, 0], [1, 0, 0], [0, 1, 0]]])
    assert best_site([flat, sink, aligned, own]) is aligned
    assert best_site([own, before]) is before, "a look at oneself tells little"
    pool = Site("pool", ["good"], columns, [[[0.3, 0.3, 0.4]]])
    assert best_site([own, pool]) is pool
    assert best_site([own]) is own


def test_one_row_is_shaded_from_its_mean() -> None:
    assert shade_range(np.array([[0.1, 0.2, 0.9]])) == pytest.approx((0.4, 0.9))
    assert shade_range(np.array([[0.3, 0.4, 0.3]])) == pytest.approx((1 / 3, 2 / 3)), (
        "no small difference is black"
    )
    assert shade_range(np.array([[1.0]])) == (0.0, 1.0)
    assert shade_range(np.array([[0.5, 0.5], [0.1, 0.9]])) == (0.0, 0.9)
    assert is_flat([0.21, 0.19, 0.2])
    assert not is_flat([0.6, 0.2, 0.2])
