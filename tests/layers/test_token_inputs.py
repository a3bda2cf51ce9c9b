"""What models read: position embeddings, how they join tokens, and the inputs of Transformers and of recurrent models."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from tests.support import raises
from torch import Tensor, nn

from saccade.errors import SaccadeError
from saccade.layers.embeddings import Tokens
from saccade.layers.embeddings import table as embeddings
from saccade.layers.token_inputs import (
    Add,
    Concatenate,
    Depth,
    Learned,
    NoPositionEmbedding,
    PositionedInput,
    Sinusoidal,
    WordInput,
    joins,
)
from saccade.layers.token_inputs import table as positions
from saccade.settings import Choice, choose

DIM = 6
AT = torch.tensor([[0, 3], [7, 1]])


def sinusoids(at: Tensor) -> Tensor:
    rows = []
    for t in at.flatten().tolist():
        waves = [
            (math.sin(t / 10000 ** (2 * k / DIM)), math.cos(t / 10000 ** (2 * k / DIM)))
            for k in range(DIM // 2)
        ]
        rows.append([number for pair in waves for number in pair])
    return torch.tensor(rows).view(*at.shape, DIM)


POSITIONS: dict[str, Callable[[nn.Module, Tensor, Tensor], Tensor]] = {
    "none": lambda one, x, at: x,
    "sinusoidal": lambda one, x, at: x + sinusoids(at),
    "learned": lambda one, x, at: (
        x + torch.stack([one.vectors[t] for t in at.flatten().tolist()]).view(*at.shape, DIM)
    ),
    # depths are the positions divided by 2 here
    "depth": lambda one, x, at: (
        x
        + sinusoids(at)
        + torch.stack([one.vectors[min(t // 2, 3)] for t in at.flatten()]).view(*at.shape, DIM)
    ),
}


def deep(one: nn.Module, at: Tensor) -> tuple[Tensor, ...]:
    """The further argument of positions that ask for depths."""
    return (at // 2,) if getattr(one, "needs_relation", False) else ()


JOINS: dict[str, Callable[[nn.Module, Tensor, Tensor], Tensor]] = {
    "add": lambda one, x, p: x + p,
    "concatenate": lambda one, x, p: (
        x @ one.project.weight[:, :DIM].T + p @ one.project.weight[:, DIM:].T + one.project.bias
    ),
}


def test_every_position_embedding_and_join_has_its_formula() -> None:
    assert set(POSITIONS) == set(positions.names())
    assert set(JOINS) == set(joins.names())


@pytest.mark.parametrize("name", positions.names())
def test_position_embeddings(name: str) -> None:
    one, x = Choice(positions[name], positions.entry(name).example)(dim=DIM), torch.randn(2, 2, DIM)
    torch.testing.assert_close(one(x, AT, *deep(one, AT)), POSITIONS[name](one, x, AT))
    torch.testing.assert_close(
        one(x, AT[0], *deep(one, AT[0])),
        POSITIONS[name](one, x, AT[:1]),
        msg="the same positions in each row",
    )
    assert one(x.bfloat16(), AT, *deep(one, AT)).dtype == torch.bfloat16


@pytest.mark.parametrize("name", joins.names())
@pytest.mark.parametrize("position", ["sinusoidal", "learned"])
def test_positions_join_tokens_in_each_way(name: str, position: str) -> None:
    join, x, p = Choice(joins[name])(dim=DIM), torch.randn(2, 3, DIM), torch.randn(3, DIM)
    torch.testing.assert_close(join(x, p), JOINS[name](join, x, p))
    one, x = (
        choose(positions, {"name": position, "join": name}, "p")(dim=DIM),
        torch.randn(2, 2, DIM),
    )
    torch.testing.assert_close(one(x, AT), JOINS[name](one.join, x, one.vectors_at(AT)))
    assert type(one.join) is joins[name]


def test_a_learned_table_ends_where_it_ends() -> None:
    learned, x = Learned(DIM, max_len=8), torch.zeros(2, 2, DIM)
    assert learned(x, AT).shape == (2, 2, DIM)
    with raises("position-out-of-range"):
        learned(x, AT + 1)
    assert Learned(64, 4000).vectors.std().item() == pytest.approx(math.sqrt(0.5), abs=0.01), (
        "as wide as sinusoids"
    )
    with pytest.raises(SaccadeError, match=r"p\.max_len is 0; it must lie between 1 and"):
        choose(positions, {"name": "learned", "max_len": 0}, "p")
    with pytest.raises(SaccadeError, match="no join of positions named 'ad'; did you mean 'add'"):
        choose(positions, {"name": "learned", "join": "ad"}, "p")
    with raises("width-not-even"):
        Sinusoidal(5)(torch.zeros(1, 2, 5), AT)


def test_depths_in_a_tree_are_read_beside_plain_positions() -> None:
    x, depths = torch.randn(2, 2, DIM), torch.tensor([[0, 1], [5, 0]])
    sine = Depth(DIM)
    torch.testing.assert_close(
        sine(x, AT, depths), x + sinusoids(AT) + sinusoids(depths) @ sine.project.weight.T
    )
    assert not torch.allclose(sine(x, depths, AT), sine(x, AT, depths)), (
        "depth 3 at position 5 is not depth 5 at position 3"
    )
    alone = Depth(DIM, max_len=4, plain=Choice(NoPositionEmbedding), join=Choice(Concatenate))
    vectors = alone.vectors[depths.clamp(max=3)]
    torch.testing.assert_close(alone(x, AT, depths), JOINS["concatenate"](alone.join, x, vectors))
    one = PositionedInput(Tokens(11, DIM), sine, DIM)
    assert one.needs_relation
    torch.testing.assert_close(
        one(AT, AT, depths), sine(one.tokens.weight[AT] * math.sqrt(DIM), AT, depths)
    )
    with raises("depth-missing"):
        one(AT, AT)
    with raises("parts-do-not-combine"):
        choose(positions, {"name": "depth", "plain": "depth"}, "p")(dim=DIM)


def test_token_vectors_are_scaled_and_know_their_positions() -> None:
    one, tokens = (
        PositionedInput(Tokens(11, DIM), Sinusoidal(DIM), DIM),
        torch.tensor([[3, 1, 4, 1]]),
    )
    expected = one.tokens.weight[tokens] * math.sqrt(DIM) + sinusoids(torch.arange(4))
    torch.testing.assert_close(one(tokens, torch.arange(4)), expected)
    torch.testing.assert_close(one(tokens[:, 2:], torch.arange(2, 4)), expected[:, 2:])
    vectors = torch.randn(1, 4, DIM)
    torch.testing.assert_close(
        one.join(vectors, torch.arange(4)), vectors + sinusoids(torch.arange(4))
    )
    large = PositionedInput(Tokens(3000, 64), NoPositionEmbedding(), 64, dropout=0.5).eval()
    every = torch.arange(3000)[None]
    assert large(every, every[0]).std().item() == pytest.approx(1.0, abs=0.05)
    large.train()
    assert (large(every, every[0]) == 0).float().mean().item() == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("scale", [None, 3.0])
def test_an_embedding_may_name_its_own_scale(scale: float | None) -> None:
    tokens = torch.tensor([[3, 1]])
    for one, usual in (
        (PositionedInput(Tokens(11, DIM, scale), NoPositionEmbedding(), DIM), math.sqrt(DIM)),
        (WordInput(Tokens(11, DIM, scale), nn.Identity()), 1.0),
    ):
        found = one(tokens, torch.arange(2)) if isinstance(one, PositionedInput) else one(tokens)
        torch.testing.assert_close(
            found, one.tokens.weight[tokens] * (usual if scale is None else scale)
        )


def test_words_are_read_without_positions_one_by_one_too_and_whole_words_are_dropped() -> None:
    one = WordInput(Tokens(100, DIM), nn.Identity(), word_dropout=0.3)
    tokens = torch.arange(100).repeat(2, 3)
    found = one(tokens)
    kept = (found != 0).all(-1)
    assert (kept[:, :100] == kept[:, 100:200]).all(), "wherever the word occurs"
    assert 10 < (~kept[0, :100]).sum() < 50
    torch.testing.assert_close(found[kept], one.tokens.weight[tokens][kept] / 0.7)
    one.eval()
    torch.testing.assert_close(one(tokens[:, 5]), one.tokens.weight[tokens[:, 5]])
    assert one.tokens.weight.std().item() == pytest.approx(0.2, abs=0.03)


@pytest.mark.parametrize("name", embeddings.names())
def test_inputs_take_any_embedding_and_start_at_a_sensible_width(name: str) -> None:
    vocab, dim = 500, 64
    tokens = torch.arange(40)[None]
    if embeddings[name].reads_bytes:
        tokens = torch.cat([tokens.unsqueeze(-1), torch.randint(3, 259, (1, 40, 9))], -1)
    of = Choice(embeddings[name])
    for one in (
        PositionedInput(of(vocab=vocab, dim=dim), NoPositionEmbedding(), dim),
        WordInput(of(vocab=vocab, dim=dim), nn.Identity()),
    ):
        assert one.reads_bytes == embeddings[name].reads_bytes
        x = one(tokens, torch.arange(40)) if isinstance(one, PositionedInput) else one(tokens)
        assert x.shape == (1, 40, dim)
        assert 0.05 < x.std() < 1.5


def test_both_joins_have_their_classes() -> None:
    assert (joins["add"], joins["concatenate"]) == (Add, Concatenate)
