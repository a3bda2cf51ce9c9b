"""Layers of graph networks against their formulas, the dense forms of the mixers, and loops over edges, in float64."""

from __future__ import annotations

import pytest
import torch
from mixer_helpers import shaken
from tests.support import raises
from torch import Tensor

from saccade.core import masks
from saccade.layers.graph_mixers import (
    AttendLinks,
    ConvolveLinks,
    GraphAttention,
    GraphConvolution,
    IgnoreLinks,
    Links,
    layers,
)
from saccade.models.graph_network import join_edges

# 0 – 1 – 2 and 3 alone, and a second graph of the edge 0 – 2; each node of the first is its own neighbor
EDGES = torch.tensor(
    [
        [[0, 0], [0, 1], [1, 0], [1, 1], [1, 2], [2, 1], [2, 2], [3, 3]],
        [[0, 2], [2, 0], [-1, -1], [-1, -1], [-1, -1], [-1, -1], [-1, -1], [-1, -1]],
    ]
)


def dense() -> Tensor:
    """A, B N N."""
    found = torch.zeros(2, 4, 4, dtype=torch.float64)
    for b in range(2):
        for target, source in EDGES[b].tolist():
            if target >= 0:
                found[b, target, source] = 1
    return found


def nodes(width: int) -> Tensor:
    return torch.randn(8, width, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_edges_of_a_batch_stay_within_their_graphs() -> None:
    links = join_edges(EDGES, 4)
    assert links.nodes == 8
    assert links.target.tolist() == [0, 0, 1, 1, 1, 2, 2, 3, 4, 6]
    assert links.source.tolist() == [0, 1, 0, 1, 2, 1, 2, 3, 6, 4]


def test_a_convolution_is_the_product_of_matrices() -> None:
    """D^(−½) (A + I) D^(−½) X W."""
    weight, x = torch.randn(5, 3, dtype=torch.float64), nodes(5)
    found = ConvolveLinks(3)((x @ weight).unsqueeze(1), join_edges(EDGES, 4))
    for b, a in enumerate(dense()):
        d = torch.diag(a.sum(1).clamp_min(1) ** -0.5)
        torch.testing.assert_close(
            found[4 * b : 4 * b + 4], d @ a @ d @ x[4 * b : 4 * b + 4] @ weight
        )


def test_a_convolution_is_the_mixer_on_a_list_of_edges() -> None:
    mixer = GraphConvolution(6).double()
    x = nodes(6).unflatten(0, (2, 4))
    wanted = mixer.mix(x, masks.matrix(dense().long().unsqueeze(1)), None) - mixer.project.bias
    h = (x @ mixer.project.weight.T).flatten(0, 1).unsqueeze(1)
    torch.testing.assert_close(
        ConvolveLinks(6)(h, join_edges(EDGES, 4)).unflatten(0, (2, 4)), wanted
    )


@pytest.mark.parametrize("last", [False, True])
def test_attention_is_a_loop_over_edges(last: bool) -> None:
    layer = shaken(AttendLinks(6, last, heads=2, last_heads=3)).eval()
    h, links = (
        nodes(layer.heads * layer.width).unflatten(1, (layer.heads, -1)),
        join_edges(EDGES, 4),
    )
    found = layer(h, links)
    for i in range(8):
        near = [int(j) for t, j in zip(links.target, links.source, strict=True) if t == i]
        parts = []
        for head in range(layer.heads):
            e = [
                layer.a_own[head, :, 0] @ h[i, head] + layer.a_other[head, :, 0] @ h[j, head]
                for j in near
            ]
            alpha = (
                torch.stack([one if one > 0 else 0.2 * one for one in e]).softmax(0) if near else []
            )
            parts.append(
                sum(
                    (w * h[j, head] for w, j in zip(alpha, near, strict=True)),
                    torch.zeros_like(h[i, head]),
                )
            )
        wanted = (torch.stack(parts).mean(0) if last else torch.cat(parts)) + layer.bias
        torch.testing.assert_close(found[i], wanted)


def test_attention_is_the_mixer_on_a_list_of_edges() -> None:
    mixer, layer = shaken(GraphAttention(6, 2)), AttendLinks(6, heads=2).double().eval()
    with torch.no_grad():
        layer.a_own.copy_(mixer.mechanism.score.a_q)
        layer.a_other.copy_(mixer.mechanism.score.a_k)
        layer.bias.copy_(mixer.bias)
    x = nodes(6).unflatten(0, (2, 4))
    wanted = mixer.mix(x, masks.matrix(dense().long().unsqueeze(1)), None)
    h = mixer.project(x).flatten(0, 1).unflatten(1, (2, 3))
    torch.testing.assert_close(layer(h, join_edges(EDGES, 4)).unflatten(0, (2, 4)), wanted)


def test_gradients_through_edges() -> None:
    links = join_edges(EDGES, 4)
    for layer in (ConvolveLinks(4), shaken(AttendLinks(4, heads=2)).eval()):
        h = nodes(4).unflatten(1, (layer.heads, -1)).requires_grad_()
        assert torch.autograd.gradcheck(lambda h, layer=layer: layer(h, links), [h])


def test_attention_drops_weights_in_training_alone() -> None:
    layer, h, links = (
        shaken(AttendLinks(6, heads=2, dropout=0.9)),
        nodes(6).unflatten(1, (2, 3)),
        join_edges(EDGES, 4),
    )
    torch.manual_seed(0)
    assert not torch.allclose(layer.train()(h, links), layer.eval()(h, links))


def test_no_layer_is_left_untested() -> None:
    assert set(layers.names()) == {"convolution", "attention", "none"}
    h = nodes(6)
    assert torch.equal(
        IgnoreLinks(6)(h.unsqueeze(1), Links(8, torch.tensor([0]), torch.tensor([1]))), h
    )
    with raises("heads-do-not-divide"):
        AttendLinks(5, heads=2)
