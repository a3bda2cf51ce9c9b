"""Documents packed into one block: what a model makes of each is what it makes of the document alone."""

from __future__ import annotations

import pytest
import torch

from saccade.config import recipes
from saccade.core import masks
from saccade.models.classifiers import MaskedModel
from saccade.models.protocols import Encoder
from saccade.models.transformer import TransformerEncoder
from saccade.models.two_stream import TwoStream
from saccade.tasks.objectives import restart_positions

VOCAB = 30
DOCUMENTS = torch.tensor([[0] * 5 + [1] * 4])
PARTS = (slice(0, 5), slice(5, 9))


def body(**parts: str) -> TransformerEncoder:
    torch.manual_seed(0)
    model = {
        "family": "transformer-encoder",
        "dim": 16,
        "hidden": 32,
        "depth": 2,
        "heads": 2,
        "dropout": 0.0,
        **parts,
    }
    built = recipes.Builder(model).make(Encoder, VOCAB)
    assert isinstance(built, TransformerEncoder)
    return built


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"position_embedding": "none", "position": "rotary"},
        {"position_embedding": "none", "position": "alibi"},
    ],
)
def test_a_masked_model_reads_each_packed_document_as_if_it_were_alone(
    parts: dict[str, str],
) -> None:
    model = MaskedModel(body(**parts), VOCAB).eval().double()
    tokens = torch.randint(4, VOCAB, (1, 9))
    packed = model(
        tokens, torch.tensor([9]), None, masks.documents(DOCUMENTS), restart_positions(DOCUMENTS)
    )
    for part in PARTS:
        alone = model(tokens[:, part], torch.tensor([part.stop - part.start]))
        torch.testing.assert_close(packed[:, part], alone)
    across = model(tokens, torch.tensor([9]))
    assert not torch.allclose(packed, across), "without the mask the documents see each other"


def test_two_streams_keep_to_their_document() -> None:
    model = TwoStream(body(position_embedding="none", position="rotary"), VOCAB).eval().double()
    tokens, order = torch.randint(4, VOCAB, (1, 9)), torch.tensor([[3, 0, 7, 1, 5, 2, 8, 4, 6]])
    at = torch.tensor([[2, 4, 6, 8]])
    packed = model(tokens, torch.tensor([9]), order, at, DOCUMENTS)
    for part, asked in zip(PARTS, ([2, 4], [6, 8]), strict=True):
        inside = torch.tensor([[place - part.start for place in asked]])
        alone = model(
            tokens[:, part], torch.tensor([part.stop - part.start]), order[:, part], inside
        )
        torch.testing.assert_close(
            packed[:, [at[0].tolist().index(place) for place in asked]], alone
        )


def test_places_restart_where_a_document_begins() -> None:
    assert restart_positions(torch.tensor([[7, 7, 7, 2, 2, 9], [1, 1, 1, 1, 1, 1]])).tolist() == [
        [0, 1, 2, 0, 1, 0],
        [0, 1, 2, 3, 4, 5],
    ]
