"""Convolutions against explicit loops, in whole passes and steps. Attention has tests of its own (test_attention_layer.py)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from mixer_helpers import linformer_loop, shaken, synthesizer_loop
from tests.support import raises
from torch import Tensor

from saccade.core import Positions, masks
from saccade.errors import SaccadeError
from saccade.layers.convolution_mixers import (
    ConvolutionMixer,
    DynamicConvolution,
    FullConvolution,
    LightConvolution,
    SeparableConvolution,
)
from saccade.layers.graph_mixers import GraphAttention, GraphConvolution, MessagePassing
from saccade.layers.linformer import Linformer
from saccade.layers.mixers import Mixer, table
from saccade.layers.multihead_attention import MultiHeadAttention, PlainAttention
from saccade.layers.synthesizers import Synthesizer
from saccade.training.flops import counter

DIM, HEADS = 6, 2
LENGTHS = torch.tensor([5, 2, 3])


def some(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def made(
    width: int = 3, kind: type[LightConvolution] = LightConvolution, **options: float
) -> LightConvolution:
    return shaken(kind(DIM, HEADS, width, **options))


def loop(mixer: LightConvolution, x: Tensor, causal: bool, lengths: list[int]) -> Tensor:
    """Channel by channel, position by position; what lies beyond the ends or is padding is 0."""
    both = x @ mixer.inner.weight.T + mixer.inner.bias
    inputs = both[..., :DIM] * both[..., DIM:].sigmoid()
    mixed = torch.zeros_like(x)
    for b, length in enumerate(lengths):
        for n in range(x.shape[1]):
            for channel in range(DIM):
                at = channel // (DIM // mixer.heads)
                if isinstance(mixer, DynamicConvolution):
                    rows = mixer.to_kernels.weight[at * mixer.width : (at + 1) * mixer.width]
                    kernel = (rows @ inputs[b, n]).softmax(0)
                else:
                    kernel = mixer.kernel[at].softmax(0)
                for k in range(mixer.width):
                    m = n + k - (mixer.width - 1 if causal else mixer.width // 2)
                    if 0 <= m < length:
                        mixed[b, n, channel] = (
                            mixed[b, n, channel] + kernel[k] * inputs[b, m, channel]
                        )
    mixed = (
        mixed
        if mixer.pointwise is None
        else mixed @ mixer.pointwise.weight.T + mixer.pointwise.bias
    )
    return torch.stack([mixed[b] @ mixer.outer.weight.T + mixer.outer.bias for b in range(len(x))])


def attention_loop(
    layer: MultiHeadAttention, x: Tensor, causal: bool, lengths: list[int]
) -> Tensor:
    found = torch.zeros_like(x)
    q, k, v = (part(x).unflatten(-1, (HEADS, -1)) for part in (layer.q, layer.k, layer.v))
    for b, length in enumerate(lengths):
        for n in range(x.shape[1]):
            seen = [m for m in range(length) if m <= n or not causal]
            heads = []
            for h in range(HEADS):
                fits = torch.stack([q[b, n, h] @ k[b, m, h] for m in seen]) / (DIM // HEADS) ** 0.5
                heads.append(
                    sum(w * v[b, m, h] for w, m in zip(fits.softmax(0), seen, strict=True))
                )
            found[b, n] = layer.out(torch.cat(heads))
    return found


def graph_loop(layer: Mixer, x: Tensor, causal: bool, lengths: list[int]) -> Tensor:
    """A text is a graph in which all real words are neighbors; graphs of other shapes are in test_graphs.py."""
    found = torch.zeros_like(x)
    for b, length in enumerate(lengths):
        for n in range(x.shape[1]):
            near = x[b, :length]
            if isinstance(layer, GraphConvolution):
                found[b, n] = layer.project(near.sum(0) / length)
            elif isinstance(layer, GraphAttention):
                h, own = (
                    part.unflatten(-1, (HEADS, -1))
                    for part in (layer.project(near), layer.project(x[b, n]))
                )
                score = layer.mechanism.score
                fits = torch.einsum("hd,hd->h", own, score.a_q[..., 0]) + torch.einsum(
                    "nhd,hd->nh", h, score.a_k[..., 0]
                )
                weights = torch.where(fits > 0, fits, 0.2 * fits).softmax(0)
                found[b, n] = (weights.unsqueeze(-1) * h).sum(0).flatten() + layer.bias
            else:
                messages = (layer.own(x[b, n]) + layer.other(near)).clamp_min(0)
                found[b, n] = layer.update(torch.cat([x[b, n], messages.sum(0)]))
    return found


ORACLES: dict[str, tuple[Callable[[], Mixer], Callable[..., Tensor]]] = {
    "attention": (lambda: MultiHeadAttention(DIM, HEADS).double(), attention_loop),
    "plain-attention": (lambda: PlainAttention(DIM, HEADS).double(), attention_loop),
    "light-convolution": (made, loop),
    "synthesizer": (lambda: shaken(Synthesizer(DIM, HEADS, max_len=7)), synthesizer_loop),
    "linformer": (lambda: shaken(Linformer(DIM, HEADS, k=3, max_len=7)), linformer_loop),
    "graph-convolution": (lambda: shaken(GraphConvolution(DIM)), graph_loop),
    "graph-attention": (lambda: shaken(GraphAttention(DIM, HEADS)), graph_loop),
    "message-passing": (lambda: shaken(MessagePassing(DIM)), graph_loop),
    "dynamic-convolution": (lambda: made(kind=DynamicConvolution), loop),
}
CAUSAL = [name for name in table.names() if table[name].causal]


def test_every_mixer_has_its_loop() -> None:
    assert set(ORACLES) == set(table.names())


@pytest.mark.parametrize(
    ("name", "causal"),
    [(name, False) for name in table.names()] + [(name, True) for name in CAUSAL],
)
@pytest.mark.parametrize("padded", [True, False])
def test_a_mixer_is_its_loop(name: str, causal: bool, padded: bool) -> None:
    build, slow = ORACLES[name]
    mixer, x = build(), some(3, 5, DIM)
    mask = (masks.causal() if causal else masks.full()) & (
        masks.padding(LENGTHS) if padded else masks.full()
    )
    lengths = LENGTHS.tolist() if padded else [5, 5, 5]
    expected = slow(mixer, x, causal, lengths)
    for given in (
        mask,
        mask.prepare(3, HEADS, 5, 5),
        *([None] if not causal and not padded else []),
    ):
        found = mixer.mix(x, given, Positions.line(5, 5))
        # what a kernel from the input makes of padding is nobody's business
        for b, length in enumerate(lengths):
            torch.testing.assert_close(found[b, :length], expected[b, :length])


@pytest.mark.parametrize("kind", [LightConvolution, DynamicConvolution])
@pytest.mark.parametrize(
    "options", [{}, {"kernels": 3}, {"kernels": 6, "pointwise": True}], ids=str
)
@pytest.mark.parametrize("width", [1, 2, 4, 7])
@pytest.mark.parametrize("causal", [True, False])
def test_kernels_of_any_width_and_number(
    kind: type[LightConvolution], options: dict[str, int], width: int, causal: bool
) -> None:
    mixer, x = made(width, kind, **options), some(2, 4, DIM)
    found = mixer.mix(x, masks.causal() if causal else None, None)
    torch.testing.assert_close(found, loop(mixer, x, causal, [4, 4]))


@pytest.mark.parametrize("kind", [LightConvolution, DynamicConvolution])
def test_gradients(kind: type[LightConvolution]) -> None:
    mixer, x = made(3, kind), some(2, 3, DIM).requires_grad_()
    mask = masks.padding([3, 2])
    assert torch.autograd.gradcheck(
        lambda x, *_: mixer.mix(x, mask, None), (x, *mixer.parameters()), fast_mode=True
    )
    (gradient,) = torch.autograd.grad(mixer.mix(x, mask, None)[1, :2].sum(), x)
    assert (gradient[1, 2] == 0).all(), "padding"


@pytest.mark.parametrize("name", CAUSAL)
@pytest.mark.parametrize("sizes", [[1] * 6, [4, 1, 1], [2, 3, 1]], ids=str)
def test_steps_with_a_cache_are_the_whole_pass_and_change_no_cache(
    name: str, sizes: list[int]
) -> None:
    mixer, x = ORACLES[name][0](), some(3, 6, DIM)
    whole = mixer.mix(x, masks.causal(), Positions.line(6, 6))
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            cache, done, found = mixer.start(x[:, 0]), 0, []
            for piece in x.split(sizes, 1):
                done += piece.shape[1]
                at = Positions.line(piece.shape[1], done)
                mixed, after = mixer.step(piece, cache, masks.causal(), at)
                # another continuation of the same cache
                mixer.step(some(*piece.shape), cache, masks.causal(), at)
                again, _ = mixer.step(piece, cache, masks.causal(), at)
                assert torch.equal(mixed, again)
                cache = after
                found.append(mixed)
        torch.testing.assert_close(torch.cat(found, 1), whole)


@pytest.mark.parametrize("name", CAUSAL)
def test_rows_of_a_cache_repeat_move_and_leave(name: str) -> None:
    mixer, x, rows = ORACLES[name][0](), some(3, 4, DIM), torch.tensor([2, 0, 2])
    _, cache = mixer.step(x[:, :3], mixer.start(x), masks.causal(), Positions.line(3, 3))
    found, _ = mixer.step(x[rows, 3:], cache.reorder(rows), masks.causal(), Positions.line(1, 4))
    torch.testing.assert_close(
        found, mixer.mix(x[rows], masks.causal(), Positions.line(4, 4))[:, 3:]
    )


def test_a_kernel_is_shares_and_its_dropout_falls_in_training_alone() -> None:
    mixer, x = made(kernel_dropout=0.5), some(2, 5, DIM)
    assert not torch.equal(mixer.mix(x, None, None), mixer.mix(x, None, None))
    mixer.eval()
    assert torch.equal(mixer.mix(x, None, None), mixer.mix(x, None, None))
    assert (
        sum(p.numel() for p in LightConvolution(DIM, HEADS, 9).parameters())
        == 3 * DIM * DIM + 3 * DIM + HEADS * 9
    )
    assert mixer.to(torch.bfloat16).mix(x.to(torch.bfloat16), None, None).dtype == torch.bfloat16


def test_parameters_and_operations_of_convolutions_by_hand() -> None:
    x, d, width, kernels = torch.randn(2, 5, DIM), DIM, 4, 3
    for kind, own in (
        (LightConvolution, kernels * width),
        (DynamicConvolution, kernels * width * d),
    ):
        mixer = kind(DIM, HEADS, width, kernels=kernels, pointwise=True)
        assert sum(p.numel() for p in mixer.parameters()) == 4 * d * d + 4 * d + own
        with counter() as count:
            mixer.mix(x, masks.causal(), None)
        predicted = kernels * width * d if kind is DynamicConvolution else 0
        assert count.get_total_flops() == 2 * 10 * (4 * d * d + predicted + d * width)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kind", [FullConvolution, SeparableConvolution])
def test_full_and_separable_convolutions_are_their_loops_and_step(
    kind: type[ConvolutionMixer], causal: bool
) -> None:
    mixer, x = shaken(kind(DIM, 5, 3)), some(2, 6, DIM)
    found, padded = mixer.mix(x, masks.causal() if causal else None, None), x.clone()
    for n in range(6):
        expected = mixer.bias if isinstance(mixer, FullConvolution) else mixer.outer.bias
        for k in range(3):
            m = n + k - (2 if causal else 1)
            if 0 <= m < 6:
                at = x[:, m]
                if isinstance(mixer, SeparableConvolution):
                    expected = expected + (mixer.kernel[:, 0, k] * at) @ mixer.outer.weight.T
                else:
                    expected = expected + at @ mixer.kernel[:, :, k].T
        torch.testing.assert_close(found[:, n], expected)
    padded[0, 3:] = 7.0
    alone = mixer.mix(x[:1, :3], masks.causal() if causal else None, None)
    mask = masks.padding([3, 6]) & (masks.causal() if causal else masks.full())
    torch.testing.assert_close(mixer.mix(padded, mask, None)[:1, :3], alone)
    if causal:
        first, cache = mixer.step(x[:, :2], mixer.start(x), None, Positions.line(2, 2))
        rest, _ = mixer.step(x[:, 2:], cache, None, Positions.line(4, 6))
        torch.testing.assert_close(torch.cat([first, rest], 1), found)


def test_mistakes_are_answered_with_sentences() -> None:
    mixer, x = made(), some(2, 4, DIM)
    for mask in (
        masks.window(1),
        masks.documents([[0, 0, 1, 1]] * 2) & masks.causal(),
        masks.causal() | masks.padding([4, 2]),
    ):
        for given in (mask, mask.prepare(2, HEADS, 4, 4)):
            with raises("mask-not-supported"):
                mixer.mix(x, given, None)
    for heads in (4, 0):
        with pytest.raises(
            SaccadeError, match=f"dim must be a multiple of heads, got dim=6 and heads={heads}"
        ):
            LightConvolution(6, heads)
    with raises("heads-do-not-divide"):
        DynamicConvolution(6, 2, kernels=4)
