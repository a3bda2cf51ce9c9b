"""Graph layers against formulas worked by hand and plain loops over edges, in float64."""

from __future__ import annotations

import math

import pytest
import torch
from mixer_helpers import shaken
from tests.support import raises
from torch import Tensor

from saccade.core import Mechanism, Positions, attend, masks
from saccade.core.graph_attention import EdgeBias
from saccade.layers.graph_mixers import GraphAttention, GraphConvolution, MessagePassing
from saccade.layers.mixers import Mixer

# 0 – 1 – 2 and 3 alone; each node is its own neighbor
LINKS = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 1]])
KINDS = torch.tensor([[1, 2, 0, 0], [2, 1, 3, 0], [0, 3, 1, 0], [0, 0, 0, 1]])


def at() -> Positions:
    return Positions.line(4, 4, relation=KINDS.unsqueeze(0))


def some() -> Tensor:
    return torch.randn(2, 4, 6, dtype=torch.float64)


def test_a_graph_convolution_worked_by_hand() -> None:
    layer = GraphConvolution(1).double()
    with torch.no_grad():
        layer.project.weight.fill_(2.0)
        layer.project.bias.fill_(0.5)
    x = torch.tensor([[[1.0], [10.0], [100.0], [7.0]]], dtype=torch.float64)
    found = layer.mix(x, masks.matrix(LINKS), None).flatten()
    # degrees 2, 3, 2, 1
    wanted = [
        2 * (1 / 2 + 10 / math.sqrt(6)) + 0.5,
        2 * (1 / math.sqrt(6) + 10 / 3 + 100 / math.sqrt(6)) + 0.5,
    ]
    wanted += [2 * (10 / math.sqrt(6) + 100 / 2) + 0.5, 2 * 7 + 0.5]
    torch.testing.assert_close(found, torch.tensor(wanted, dtype=torch.float64))


def test_graph_attention_is_the_papers_formula_along_edges() -> None:
    layer, x = shaken(GraphAttention(6, 2)), some()
    found = layer.mix(x, masks.matrix(LINKS), None)
    h = (x @ layer.project.weight.T).unflatten(-1, (2, 3))
    score = layer.mechanism.score
    for b in range(2):
        for i in range(4):
            parts = []
            for head in range(2):
                # the paper's one vector a over [W h_i ; W h_j]
                a = torch.cat([score.a_q[head, :, 0], score.a_k[head, :, 0]])
                near = [j for j in range(4) if LINKS[i, j]]
                e = [a @ torch.cat([h[b, i, head], h[b, j, head]]) for j in near]
                alpha = torch.stack([one if one > 0 else 0.2 * one for one in e]).softmax(0)
                parts.append(sum(w * h[b, j, head] for w, j in zip(alpha, near, strict=True)))
            torch.testing.assert_close(found[b, i], torch.cat(parts) + layer.bias)


def test_kinds_of_edges_are_a_bias_of_attention() -> None:
    position = shaken(EdgeBias(2, kinds=3))
    q, k, v = (torch.randn(1, 2, 4, 3, dtype=torch.float64) for _ in range(3))
    found = attend(q, k, v, Mechanism(position=position), masks.matrix(LINKS), at())
    for head in range(2):
        for i in range(4):
            near = [j for j in range(4) if LINKS[i, j]]
            fits = torch.stack(
                [
                    q[0, head, i] @ k[0, head, j] / 3**0.5 + position.table[KINDS[i, j], head]
                    for j in near
                ]
            )
            wanted = sum(w * v[0, head, j] for w, j in zip(fits.softmax(0), near, strict=True))
            torch.testing.assert_close(found[0, head, i], wanted)
    beyond = Positions.line(4, 4, relation=(KINDS + 96 * (KINDS == 3)).unsqueeze(0))
    torch.testing.assert_close(
        attend(q, k, v, Mechanism(position=position), masks.matrix(LINKS), beyond), found
    )
    with raises("relation-missing"):
        attend(q, k, v, Mechanism(position=position))


@pytest.mark.parametrize("kinds", [0, 3])
@pytest.mark.parametrize("aggregate", ["sum", "mean", "max"])
def test_message_passing_is_a_loop_over_edges(aggregate: str, kinds: int) -> None:
    layer, x = shaken(MessagePassing(6, aggregate, kinds)), some()
    lonely = LINKS.clone()
    lonely[3, 3] = 0  # a node without any neighbor hears nothing
    found = layer.mix(x, masks.matrix(lonely), at())
    join = {"sum": lambda m: m.sum(0), "mean": lambda m: m.mean(0), "max": lambda m: m.amax(0)}[
        aggregate
    ]
    for b in range(2):
        for i in range(4):
            heard = []
            for j in range(4):
                if lonely[i, j]:
                    edge = layer.edges[KINDS[i, j]] if kinds else 0.0
                    own = layer.own.weight @ x[b, i] + layer.own.bias
                    heard.append((own + layer.other.weight @ x[b, j] + edge).clamp_min(0))
            message = join(torch.stack(heard)) if heard else torch.zeros(6, dtype=torch.float64)
            torch.testing.assert_close(found[b, i], layer.update(torch.cat([x[b, i], message])))


@pytest.mark.parametrize(
    "make",
    [
        lambda: GraphConvolution(6),
        lambda: GraphAttention(6, 2),
        lambda: MessagePassing(6, "max", 3),
    ],
)
def test_nodes_in_another_order_give_outputs_in_that_order(make: object) -> None:
    """F(PX, PAPᵀ) = P F(X, A), with P as a matrix; and not when the edges stay behind."""
    layer: Mixer = shaken(make())  # type: ignore[operator]
    x, order = some(), torch.tensor([2, 0, 3, 1])
    p = torch.eye(4, dtype=torch.float64)[order]
    moved = (p @ LINKS.double() @ p.T).long()
    kinds = Positions.line(4, 4, relation=(p @ KINDS.double() @ p.T).long().unsqueeze(0))
    expected = p @ layer.mix(x, masks.matrix(LINKS), at())
    torch.testing.assert_close(
        layer.mix(p @ x, masks.matrix(moved), kinds), expected, rtol=0, atol=1e-12
    )
    assert not torch.allclose(layer.mix(p @ x, masks.matrix(LINKS), at()), expected)


def test_wrong_sizes_and_names_are_told() -> None:
    with raises("unknown-choice"):
        MessagePassing(4, "median")
    with raises("heads-do-not-divide"):
        GraphAttention(5, 2)
    with raises("relation-missing"):
        MessagePassing(4, kinds=2).mix(torch.zeros(1, 2, 4), None, None)
