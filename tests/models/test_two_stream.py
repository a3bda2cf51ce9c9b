"""Permutation language modeling: what stands later in the order is invisible, and the streams are those of a slow loop."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from saccade.models.rnn_encoder import BagParts, BagShape
from torch import Tensor

from saccade.core import Places, masks, positions
from saccade.errors import SaccadeError
from saccade.layers import embeddings
from saccade.models import Bag, TransformerEncoder, TwoStream
from saccade.models.families import Choice, MechanismPlan
from saccade.models.transformer import EncoderParts, Shape
from saccade.models.two_stream import two_streams

V, N = 13, 5
POSITIONS = [name for name in positions.table.names() if name != "syntax"]
each_position = pytest.mark.parametrize("position", POSITIONS)


def built(position: str = "none", places: type = embeddings.Sinusoidal, mask: Choice | None = None) -> TwoStream:
    torch.manual_seed(0)
    plan = MechanismPlan(position=Choice(positions.table[position]), **({} if mask is None else {"mask": mask}))
    shape = Shape(dim=8, hidden=16, depth=2, heads=2, dropout=0.0, max_len=20)
    model = TwoStream(TransformerEncoder(V, shape, EncoderParts(plan, places=places)), V).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def slow(model: TwoStream, tokens: Tensor, order: Tensor, place: int) -> Tensor:
    """One text, one asked place: only the tokens before it in the order are there at all, and the query comes last."""
    before = [n for n in range(len(tokens)) if order[n] < order[place]]
    x = model.body.embedding(tokens[None, before], places=torch.tensor([before])) if before else None
    query = model.body.embedding.join(model.query.expand(1, 1, -1), torch.tensor([[place]]))
    at = torch.tensor([*before, place])
    rows = query if x is None else torch.cat([x, query], 1)
    rank = [order[n].item() for n in before]
    seen = [[other <= mine for other in rank] + [False] for mine in rank] + [[True] * len(before) + [False]]
    return model.head(model.body.encoder(rows, masks.matrix(seen), places=Places(at, at)))[0, -1]


def test_who_sees_whom_by_hand() -> None:
    order, at = torch.tensor([[1, 0, 2]]), torch.tensor([[0, 1]])  # first the second place, then the first, then the third
    found = two_streams(torch.tensor([3]), order, at).dense(1, 1, 5, 5)[0, 0].int().tolist()
    assert found == [[1, 1, 0, 0, 0], [0, 1, 0, 0, 0], [1, 1, 1, 0, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0]]
    padded = two_streams(torch.tensor([2]), order, at).dense(1, 1, 5, 5)[0, 0].int().tolist()
    assert [row[2] for row in padded] == [0] * 5


@each_position
@given(order=st.permutations(range(N)), length=st.integers(1, N))
def test_every_prediction_is_that_of_a_text_without_the_later_tokens(position: str, order: list[int], length: int) -> None:
    model = built(position)
    tokens, ranks = torch.randint(0, V, (2, N)), torch.tensor([order, order[::-1]])
    lengths = torch.tensor([N, length])
    found = model(tokens, lengths, ranks, torch.arange(N).expand(2, -1))
    for b in range(2):
        size = int(lengths[b])
        for place in range(size):
            torch.testing.assert_close(found[b, place], slow(model, tokens[b, :size], ranks[b], place))


@each_position
def test_hidden_tokens_do_not_change_a_prediction_and_get_no_gradient(position: str) -> None:
    model, order = built(position, embeddings.Learned), torch.tensor([[3, 0, 4, 1, 2]])
    tokens, lengths, at = torch.tensor([[3, 1, 4, 2, 5]]), torch.tensor([N]), torch.arange(N)[None]
    found = model.features(tokens, lengths, order, at)
    for place in range(N):
        other = torch.where(order >= order[0, place], (tokens + 6) % V, tokens)
        torch.testing.assert_close(model.features(other, lengths, order, at)[0, place], found[0, place])
        table = model.body.embedding.tokens.weight
        (gradient,) = torch.autograd.grad(found[0, place].square().sum(), table, retain_graph=True, allow_unused=True)
        reached = set() if gradient is None else set(gradient.any(-1).nonzero().flatten().tolist())
        assert reached == set(tokens[0, order[0] < order[0, place]].tolist()), "those before it, and no other"


def test_the_asked_places_alone_are_the_same_as_all() -> None:
    model, order = built("rotary"), torch.tensor([[3, 0, 4, 1, 2], [0, 1, 2, 3, 4]])
    tokens, lengths, at = torch.randint(0, V, (2, N)), torch.tensor([N, 4]), torch.tensor([[4, 2], [3, 3]])
    every = model(tokens, lengths, order, torch.arange(N).expand(2, -1))
    found = model(tokens, lengths, order, at)
    torch.testing.assert_close(found, every.gather(1, at.unsqueeze(-1).expand(-1, -1, V)))
    assert not torch.allclose(every[1, 0], every[1, 1]), "two places that see nothing or little still know where they are"


def test_everything_learns_the_query_too() -> None:
    model = built("t5").train()
    order, at = torch.tensor([[3, 0, 4, 1, 2]]), torch.tensor([[2, 0]])
    model(torch.tensor([[3, 1, 4, 2, 5]]), torch.tensor([N]), order, at).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for _, parameter in model.named_parameters())
    assert model.head.weight is model.body.embedding.tokens.weight


def test_mistakes_are_answered_with_sentences() -> None:
    with pytest.raises(SaccadeError, match=r"two streams stand side by side, where the mask Window\(1, 1\) counts places wrong"):
        built(mask=Choice(masks.window, {"left": 1}))
    with pytest.raises(SaccadeError, match="two streams through a Bag; only a transformer-encoder can run them"):
        TwoStream(Bag(V, BagShape(), BagParts()), V)
    with pytest.raises(SaccadeError, match="a head for 5 tokens on a body that reads 13"):
        TwoStream(built().body, 5)
