"""Linformer: exact where nothing is projected away, padding invisible, linear in the length, refused where the future is hidden."""

from __future__ import annotations

import pytest
import torch
from mixer_helpers import DIM, HEADS, linformer_loop, shaken
from tests.support import raises

from saccade.core import Mechanism, Positions, masks, normalizers, positions, record, scores
from saccade.layers.linformer import SHARED, Linformer
from saccade.layers.multihead_attention import MultiHeadAttention
from saccade.models import CausalLM, Encoder, Seq2Seq
from saccade.models.builder import Builder
from saccade.models.two_stream import TwoStream
from saccade.training.flops import counter

LENGTHS = [5, 2, 3]
each_sharing = pytest.mark.parametrize("share", SHARED)


@each_sharing
@pytest.mark.parametrize("lengths", [LENGTHS, [5, 5, 5]], ids=str)
def test_it_is_its_loop(share: str, lengths: list[int]) -> None:
    layer, x = (
        shaken(Linformer(DIM, HEADS, k=3, max_len=6, share=share)),
        torch.randn(3, 5, DIM, dtype=torch.float64),
    )
    torch.testing.assert_close(
        layer(x, masks.padding(lengths)), linformer_loop(layer, x, False, lengths)
    )


@each_sharing
@pytest.mark.parametrize(
    "position", [positions.NoPosition, positions.Rotary, lambda: positions.Added(4)]
)
def test_with_as_many_positions_as_tokens_and_the_identity_it_is_attention(
    share: str, position: type
) -> None:
    mechanism = Mechanism(scores.ScaledDot(), normalizers.Softmax(), None, position())
    layer = shaken(Linformer(8, HEADS, k=7, max_len=7, share=share, mechanism=mechanism))
    with torch.no_grad():
        layer.project_keys.copy_(torch.eye(7).expand_as(layer.project_keys))
        layer.project_values.copy_(torch.eye(7).expand_as(layer.project_values))
    exact = MultiHeadAttention(8, HEADS, mechanism=mechanism).double()
    exact.load_state_dict(
        {name: one for name, one in layer.state_dict().items() if "project" not in name}
    )
    x = torch.randn(2, 7, 8, dtype=torch.float64)
    torch.testing.assert_close(layer(x), exact(x))
    at = Positions(torch.arange(7).flip(0), torch.arange(7).flip(0))
    torch.testing.assert_close(layer(x, positions=at), exact(x, positions=at))


@each_sharing
def test_a_token_is_projected_by_its_position(share: str) -> None:
    layer, x = (
        shaken(Linformer(DIM, HEADS, k=3, max_len=9, share=share)),
        torch.randn(2, 5, DIM, dtype=torch.float64),
    )
    back = torch.arange(5).flip(0)
    torch.testing.assert_close(layer(x.flip(1), positions=Positions(back, back)).flip(1), layer(x))
    at = torch.stack([torch.arange(5), torch.arange(5) + 4])
    found = layer(x, positions=Positions(at, at))
    torch.testing.assert_close(found[:1], layer(x[:1]))
    torch.testing.assert_close(found[1:], layer(x[1:], positions=Positions(at[1], at[1])))
    assert not torch.allclose(found[1:], layer(x[1:]))
    with raises("position-out-of-range"):
        layer(x, positions=Positions(at + 1, at + 1))


def test_padding_is_invisible_and_gets_no_gradient() -> None:
    layer, x = (
        shaken(Linformer(DIM, HEADS, k=3, max_len=9)),
        torch.randn(2, 6, DIM, dtype=torch.float64, requires_grad=True),
    )
    mask = masks.padding([4, 6])
    found = layer(x, mask)
    torch.testing.assert_close(found[:1, :4], layer(x[:1, :4]))
    (gradient,) = torch.autograd.grad(found[0, :4].sum(), x)
    assert (gradient[0, 4:] == 0).all()
    assert torch.autograd.gradcheck(
        lambda x, *_: layer(x, mask), (x, *layer.parameters()), fast_mode=True
    )


@each_sharing
@pytest.mark.parametrize("size", [16, 32])
def test_parameters_and_operations_are_the_closed_formula_linear_in_the_length(
    share: str, size: int
) -> None:
    dim, heads, slots, max_len = 12, 3, 4, 40
    layer = Linformer(dim, heads, k=slots, max_len=max_len, share=share)
    matrices = {"none": 2 * heads, "heads": 2, "keys-values": 1}[share]
    assert (
        sum(p.numel() for p in layer.parameters())
        == 4 * (dim * dim + dim) + matrices * slots * max_len
    )
    with counter() as counted, torch.no_grad():
        layer(torch.randn(2, size, dim))
    projections, along, attention = (
        4 * 2 * 2 * size * dim * dim,
        2 * 2 * 2 * slots * size * dim,
        2 * 2 * 2 * size * slots * dim,
    )
    assert counted.get_total_flops() == projections + along + attention


def test_its_weights_are_recorded_over_the_projected_positions() -> None:
    layer = Linformer(DIM, HEADS, k=3, max_len=9)
    with record(layer) as seen:
        layer(torch.randn(2, 6, DIM), masks.padding([4, 6]))
    found = seen["attention"].weights()
    assert found.shape == (2, HEADS, 6, 3)
    torch.testing.assert_close(found.sum(-1), torch.ones(2, HEADS, 6))


@pytest.mark.parametrize(
    ("family", "kind"), [("transformer", Seq2Seq), ("transformer-decoder", CausalLM)]
)
def test_a_model_that_hides_the_future_is_refused_when_it_is_built(family: str, kind: type) -> None:
    builder = Builder({"family": family, "dim": 8, "heads": 2, "mixer": "linformer"})
    with raises("mixer-not-supported"):
        builder.make(kind, *([9] * (2 if kind is Seq2Seq else 1)))


def test_what_it_cannot_do_is_said() -> None:
    layer, x = Linformer(DIM, HEADS, k=3, max_len=4), torch.randn(1, 4, DIM)
    with raises("position-out-of-range"):
        layer(torch.randn(1, 5, DIM))
    for mask in (masks.causal(), masks.window(1), masks.causal() & masks.padding([3])):
        with raises("mask-not-supported"):
            layer(x, mask)
    with raises("cannot-generate"):
        layer.start(x)
    with raises("unknown-choice"):
        Linformer(DIM, HEADS, share="layers")
    small = {"family": "transformer-encoder", "dim": 8, "heads": 2}
    for more in (
        {"mask": {"name": "window", "left": 1}},
        {"position": "alibi"},
        {"position": "shaw"},
    ):
        with raises("parts-do-not-combine"):
            Builder({**small, "mixer": "linformer", **more}).make(Encoder, 9)
    with raises("parts-do-not-combine"):
        TwoStream(Builder({**small, "mixer": "linformer"}).make(Encoder, 9), 9)
