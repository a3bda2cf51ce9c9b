"""MultiHeadAttention against torch.nn.MultiheadAttention, caches, grouped heads; the one-headed Reader."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support import raises
from torch import Tensor, nn

from saccade.core import KeyValues, Mechanism, Positions, masks, normalizers, positions, scores
from saccade.errors import SaccadeError
from saccade.layers.block import Block
from saccade.layers.feedforward import MLP
from saccade.layers.funnel_transformer import FunnelStack
from saccade.layers.grid_windows import WindowAttention, Windows
from saccade.layers.linformer import Linformer
from saccade.layers.multihead_attention import MultiHeadAttention, Reader
from saccade.layers.residuals import PreNorm
from saccade.settings import Choice

DIM, HEADS = 12, 3


def twins(
    dim_memory: int | None = None, bias: bool = True
) -> tuple[MultiHeadAttention, nn.MultiheadAttention]:
    """Our layer and PyTorch's with the same parameters, in float64."""
    ours = MultiHeadAttention(DIM, HEADS, dim_memory=dim_memory, bias=bias).double()
    theirs = nn.MultiheadAttention(
        DIM,
        HEADS,
        bias=bias,
        kdim=dim_memory,
        vdim=dim_memory,
        batch_first=True,
        dtype=torch.float64,
    )
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.copy_(torch.randn_like(parameter) / 3)
        if dim_memory is None:
            theirs.in_proj_weight.copy_(torch.cat([ours.q.weight, ours.k.weight, ours.v.weight]))
        else:
            for name in ("q", "k", "v"):
                getattr(theirs, f"{name}_proj_weight").copy_(getattr(ours, name).weight)
        theirs.out_proj.weight.copy_(ours.out.weight)
        if bias:
            theirs.in_proj_bias.copy_(torch.cat([ours.q.bias, ours.k.bias, ours.v.bias]))
            theirs.out_proj.bias.copy_(ours.out.bias)
    return ours, theirs


def assert_same(
    ours: MultiHeadAttention,
    theirs: nn.MultiheadAttention,
    inputs: list[Tensor],
    found: Tensor,
    expected: Tensor,
) -> None:
    """Outputs, gradients of the inputs, and gradients of all parameters."""
    torch.testing.assert_close(found, expected)
    pull = torch.randn_like(found)
    gradients = torch.autograd.grad(found, [*inputs, *ours.parameters()], pull)
    by_name = dict(
        zip([name for name, _ in ours.named_parameters()], gradients[len(inputs) :], strict=True)
    )
    parameters = dict(theirs.named_parameters())
    expected_gradients = torch.autograd.grad(expected, [*inputs, *parameters.values()], pull)
    for one, other in zip(gradients, expected_gradients[: len(inputs)], strict=False):
        torch.testing.assert_close(one, other)
    for name, gradient in zip(parameters, expected_gradients[len(inputs) :], strict=True):
        kind = name.rsplit("_", 1)[-1]
        if name.startswith("in_proj"):
            torch.testing.assert_close(
                torch.cat([by_name[f"{part}.{kind}"] for part in "qkv"]), gradient
            )
        else:
            torch.testing.assert_close(
                by_name[name.replace("out_proj", "out").replace("_proj_", ".")], gradient
            )


def data(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("bias", [True, False])
def test_self_attention_is_pytorchs(bias: bool) -> None:
    (ours, theirs), x = twins(bias=bias), data(2, 5, DIM)
    assert_same(ours, theirs, [x], ours(x), theirs(x, x, x)[0])


@pytest.mark.parametrize("dim_memory", [None, 7])
def test_cross_attention_is_pytorchs_also_over_a_memory_of_another_width(
    dim_memory: int | None,
) -> None:
    (ours, theirs), x, memory = twins(dim_memory), data(2, 5, DIM), data(2, 8, dim_memory or DIM)
    assert_same(ours, theirs, [x, memory], ours(x, memory), theirs(x, memory, memory)[0])


def test_causal_attention_is_pytorchs_with_its_opposite_mask() -> None:
    (ours, theirs), x = twins(), data(2, 5, DIM)
    future = torch.ones(5, 5).triu(1).bool()  # True = may NOT attend
    assert_same(
        ours,
        theirs,
        [x],
        ours(x, mask=masks.causal()),
        theirs(x, x, x, attn_mask=future, is_causal=True)[0],
    )
    torch.testing.assert_close(ours(x, mask=masks.matrix(~future)), ours(x, mask=masks.causal()))


def test_padding_is_pytorchs_key_padding_mask_inverted() -> None:
    (ours, theirs), x, memory = twins(), data(2, 4, DIM), data(2, 6, DIM)
    lengths = torch.tensor([6, 2])
    hidden = torch.arange(6) >= lengths[:, None]  # True = padding
    found = ours(x, memory, masks.padding(lengths))
    assert_same(
        ours, theirs, [x, memory], found, theirs(x, memory, memory, key_padding_mask=hidden)[0]
    )
    assert not torch.allclose(found, ours(x, memory))


def test_the_number_of_parameters_does_not_depend_on_the_number_of_heads() -> None:
    counts = {
        sum(p.numel() for p in MultiHeadAttention(24, heads).parameters())
        for heads in (1, 2, 3, 8, 24)
    }
    assert counts == {4 * 24 * 24 + 4 * 24}
    assert (
        sum(p.numel() for p in MultiHeadAttention(24, 8, kv_heads=2).parameters())
        == 2 * 24 * 24 + 2 * 24 * 6 + 2 * 24 + 2 * 6
    )


def test_the_first_parameters_keep_the_size_of_what_passes() -> None:
    layer = MultiHeadAttention(256, 4)
    assert layer.q(torch.randn(100, 256)).std().item() == pytest.approx(1.0, abs=0.1)
    assert (layer.out.bias == 0).all()
    assert MultiHeadAttention(8, 2, bias=False).q.bias is None


def in_steps(layer: MultiHeadAttention, x: Tensor, sizes: list[int]) -> tuple[Tensor, KeyValues]:
    """Piece after piece with a cache: the outputs, and the cache at the end."""
    cache, done, found = layer.start(x), 0, []
    for piece in x.split(sizes, 1):
        done += piece.shape[1]
        output, cache = layer.step(
            piece, cache, masks.causal(), Positions.line(piece.shape[1], done)
        )
        found.append(output)
    return torch.cat(found, 1), cache


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("score", ["scaled-dot", "bilinear", "additive", "cosine"])
def test_grouped_heads_equal_a_layer_with_those_heads_written_out(
    kv_heads: int, score: str
) -> None:
    def layer(groups: int) -> MultiHeadAttention:
        return MultiHeadAttention(
            16, 4, groups, Mechanism(Choice(scores.table[score])(dim_q=4, dim_k=4, heads=4))
        )

    grouped, full = layer(kv_heads), layer(4)
    full.mechanism.load_state_dict(grouped.mechanism.state_dict())
    with torch.no_grad():
        for name in ("q", "out"):
            getattr(full, name).load_state_dict(getattr(grouped, name).state_dict())
        for name in ("k", "v"):
            few, all_ = getattr(grouped, name), getattr(full, name)
            all_.weight.copy_(
                few.weight.view(kv_heads, 4, 16).repeat_interleave(4 // kv_heads, 0).view(16, 16)
            )
    x = torch.randn(2, 5, 16)
    torch.testing.assert_close(grouped(x, mask=masks.causal()), full(x, mask=masks.causal()))
    torch.testing.assert_close(in_steps(grouped, x, [1] * 5)[0], full(x, mask=masks.causal()))


@pytest.mark.parametrize(
    "position", [one.name for one in positions.table if not one.make.needs_relation]
)
@pytest.mark.parametrize("sizes", [[1] * 6, [4, 1, 1], [2, 3, 1]], ids=str)
def test_steps_with_a_cache_are_the_whole_pass(position: str, sizes: list[int]) -> None:
    mechanism = Mechanism(
        scores.ReducedRank(4, 4, 3, heads=2),
        position=Choice(positions.table[position])(dim=4, heads=2),
    )
    layer, x = MultiHeadAttention(8, 2, mechanism=mechanism), torch.randn(3, 6, 8)
    whole = layer(x, mask=masks.causal())
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            steps, cache = in_steps(layer, x, sizes)
        torch.testing.assert_close(steps, whole)
        assert cache.length == 6


def test_a_memory_prepared_once_is_read_many_times() -> None:
    layer = MultiHeadAttention(8, 2, mechanism=Mechanism(scores.Additive(4, 4, heads=2)))
    x, memory = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    ready = layer.prepare(memory)
    for _ in range(2):
        torch.testing.assert_close(
            layer.read(x, ready, masks.padding([2, 5])), layer(x, memory, masks.padding([2, 5]))
        )


def test_positions_and_relations_reach_the_mechanism() -> None:
    layer, x = (
        MultiHeadAttention(8, 2, mechanism=Mechanism(position=positions.Rotary())),
        torch.randn(2, 3, 8),
    )
    at = torch.tensor([[0, 4, 9], [0, 1, 2]])
    found = layer(x, positions=Positions(at, at))
    torch.testing.assert_close(found[1], layer(x)[1])
    assert not torch.allclose(found[0], layer(x)[0])
    syntax = MultiHeadAttention(8, 2, mechanism=Mechanism(position=positions.SyntaxDistance(4)))
    trees = [
        torch.tensor([[0, 1, 2], [1, 0, 1], [2, 1, 0]]),
        torch.tensor([[0, 1, 1], [1, 0, 2], [1, 2, 0]]),
    ]
    chain, star = (
        syntax(x, positions=Positions.line(3, 3, relation=tree.expand(2, 3, 3))) for tree in trees
    )
    assert not torch.allclose(chain, star)
    assert (syntax.needs_relation, layer.needs_relation) == (True, False)


@pytest.mark.parametrize(
    "name",
    [one.name for one in positions.table if not (one.make.needs_relation or one.make.absolute)],
)
@pytest.mark.parametrize("more", [1, 2, 8])
def test_a_memory_shorter_than_the_input_ends_where_the_input_ends(name: str, more: int) -> None:
    """Distances are those of self-attention over a text whose first keys are hidden."""
    mechanism = Mechanism(position=Choice(positions.table[name])(dim=4, heads=2))
    layer, keys = MultiHeadAttention(8, 2, mechanism=mechanism).double(), 4
    x, memory = torch.randn(2, keys + more, 8).double(), torch.randn(2, keys, 8).double()
    hidden = torch.arange(keys + more).expand(keys + more, -1) >= more
    padded = torch.cat([torch.zeros(2, more, 8).double(), memory], 1)
    torch.testing.assert_close(layer(x, memory), layer(x, padded, masks.matrix(hidden)))
    padding = masks.padding([2, keys])
    torch.testing.assert_close(
        layer(x, memory, padding), layer.read(x, layer.prepare(memory), padding)
    )


class Mine(MultiHeadAttention):
    """A mixer of one's own."""

    def mix(self, x: Tensor, mask: masks.Mask | None, positions: Positions | None) -> Tensor:
        return 3 * x


def test_a_layer_that_is_called_runs_its_own_mix() -> None:
    x, layer = torch.randn(2, 16, 8), Mine(8, 2)
    torch.testing.assert_close(layer(x), 3 * x)
    torch.testing.assert_close(Block(layer, None, partial(PreNorm, nn.Identity))(x), 4 * x)
    with raises("override-missing"):
        layer.start(x)
    windows = Windows.over(4, 4, 2, torch.device("cpu"))
    divided = WindowAttention(8, 2, Mechanism())
    torch.testing.assert_close(divided(x, positions=windows), divided.mix(x, None, windows))
    assert not torch.allclose(
        divided(x, positions=windows), MultiHeadAttention.mix(divided, x, None, windows)
    )


@pytest.mark.parametrize("make", [Mine, Linformer])
def test_a_funnel_refuses_attention_that_mixes_in_another_way(
    make: type[MultiHeadAttention],
) -> None:
    with raises("parts-do-not-combine"):
        FunnelStack(
            lambda n: Block(make(8, 2), None, partial(PreNorm, nn.Identity)),
            2,
            lambda: nn.LayerNorm(8),
        )


def test_dropout_falls_in_training_alone() -> None:
    layer, x = MultiHeadAttention(8, 2, dropout=0.5), torch.randn(2, 5, 8)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))


# --- mistakes ---

MISTAKES: list[tuple[str, Callable[[], object], str]] = [
    (
        "heads that do not divide",
        lambda: MultiHeadAttention(10, 3),
        "dim must be a multiple of heads, got dim=10 and heads=3; choose heads",
    ),
    (
        "no heads",
        lambda: MultiHeadAttention(10, 0),
        "got dim=10 and heads=0; choose heads that divide it",
    ),
    (
        "shared heads",
        lambda: MultiHeadAttention(12, 4, kv_heads=3),
        "heads must be a multiple of kv_heads, got 4 and 3",
    ),
    ("no shared heads", lambda: MultiHeadAttention(12, 4, kv_heads=0), "choose a divisor of 4"),
    (
        "width",
        lambda: MultiHeadAttention(8, 2)(torch.zeros(2, 3, 9)),
        r"x must be batch × positions × 8, got shape \(2, 3, 9\)",
    ),
    (
        "dimensions",
        lambda: MultiHeadAttention(8, 2)(torch.zeros(3, 8)),
        r"x must be batch × positions × 8, got shape \(3, 8\)",
    ),
    (
        "memory",
        lambda: MultiHeadAttention(8, 2)(torch.zeros(2, 3, 8), torch.zeros(2, 3, 6)),
        r"memory must be batch × positions × 8, got shape \(2, 3, 6\)",
    ),
    (
        "batches",
        lambda: MultiHeadAttention(8, 2)(torch.zeros(2, 3, 8), torch.zeros(1, 3, 8)),
        "batch of 2, memory a batch of 1",
    ),
    (
        "mask",
        lambda: MultiHeadAttention(8, 2)(torch.zeros(2, 3, 8), mask=torch.ones(3, 3).bool()),
        "expected a mask, got Tensor",
    ),
    (
        "order",
        lambda: MultiHeadAttention(8, 2)(
            torch.zeros(2, 3, 8), torch.zeros(2, 2, 8), masks.causal()
        ),
        "got 3 queries and 2 keys",
    ),
    (
        "positions",
        lambda: MultiHeadAttention(8, 2)(torch.zeros(2, 3, 8), positions=torch.arange(3)),
        "expected Positions, got Tensor",
    ),
    (
        "one position for all",
        lambda: MultiHeadAttention(8, 2)(torch.zeros(2, 3, 8), positions=Positions.line(1, 3)),
        "positions are given for 1 queries and 3 keys, got 3 and 3; pass one position per query and key",
    ),
    ("name", lambda: MultiHeadAttention(8, 2, mechanism="dot"), "expected a Mechanism, got 'dot'"),
]


@pytest.mark.parametrize(
    ("make", "sentence"), [case[1:] for case in MISTAKES], ids=[case[0] for case in MISTAKES]
)
def test_a_mistake_is_answered_with_a_sentence(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(SaccadeError, match=sentence):
        make()


@given(
    dim=st.integers(1, 12),
    heads=st.integers(-1, 13),
    kv_heads=st.integers(-1, 13),
    shape=st.lists(st.integers(1, 12), min_size=1, max_size=4),
)
def test_any_sizes_give_a_layer_and_an_output_or_a_sentence(
    dim: int, heads: int, kv_heads: int, shape: list[int]
) -> None:
    x = torch.zeros(*shape)
    if heads < 1 or dim % heads or kv_heads < 1 or heads % kv_heads:
        with raises("heads-do-not-divide"):
            MultiHeadAttention(dim, heads, kv_heads)
    elif len(shape) == 3 and shape[-1] == dim:
        assert MultiHeadAttention(dim, heads, kv_heads)(x).shape == x.shape
    else:
        with raises("shapes-do-not-fit"):
            MultiHeadAttention(dim, heads, kv_heads)(x)


# --- traces and exports ---


class Masked(nn.Module):
    """A module with a fixed mask."""

    def __init__(self, inner: nn.Module, mask: masks.Mask | None) -> None:
        super().__init__()
        self.inner, self.mask = inner, mask

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, mask=self.mask)


MASKS = {
    "none": None,
    "causal": masks.causal(),
    "window": masks.window(16, 0),
    "lengths": masks.padding([300, 700]),
    "causal lengths": masks.causal() & masks.padding([300, 700]),
}


@pytest.mark.filterwarnings(
    "ignore::torch.jit.TracerWarning", "ignore:`torch.jit.trace:DeprecationWarning"
)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", ["rotary", "alibi", "shaw"])
def test_a_trace_of_an_encoder_layer_is_the_layer(name: str, mask: str) -> None:
    mechanism = Mechanism(position=Choice(positions.table[name])(dim=4, heads=4))
    attention = MultiHeadAttention(16, 4, kv_heads=2, mechanism=mechanism)
    made = Masked(
        Block(attention, MLP(16, 32), partial(PreNorm, partial(nn.LayerNorm, 16))), MASKS[mask]
    ).eval()
    traced = torch.jit.trace(made, (torch.randn(2, 7, 16),))
    x = torch.randn(2, 7, 16)
    torch.testing.assert_close(traced(x), made(x))


@pytest.mark.parametrize(
    ("mechanism", "mask"),
    [
        *((Mechanism(position=positions.Rotary()), name) for name in MASKS),
        (Mechanism(scores.EluKernel(), normalizers.Sum()), "causal"),
        (Mechanism(None, normalizers.Sparsemax()), "lengths"),
        (Mechanism(None, normalizers.Relu(by_count=True)), "none"),
    ],
    ids=["none", "causal", "window", "lengths", "causal lengths", "kernel", "sparsemax", "relu"],
)
def test_one_export_is_for_every_length(mechanism: Mechanism, mask: str) -> None:
    layer = Masked(MultiHeadAttention(16, 4, kv_heads=2, mechanism=mechanism), MASKS[mask]).eval()
    length = torch.export.Dim("length", min=2, max=4096)
    exported = torch.export.export(
        layer, (torch.randn(2, 600, 16),), dynamic_shapes={"x": {1: length}}
    ).module()
    for count in (2, 511, 512, 1100):
        x = torch.randn(2, count, 16)
        torch.testing.assert_close(exported(x), layer(x), rtol=1e-4, atol=1e-5)


# --- the reader ---


@pytest.mark.parametrize("name", scores.table.names())
def test_a_reader_is_one_head_without_projections_except_where_widths_must_agree(name: str) -> None:
    make = scores.table[name]
    mechanism = Mechanism(
        Choice(make)(dim_q=4, dim_k=6, heads=1),
        normalizers.Sum() if make.needs_sum else normalizers.Softmax(),
    )
    reader = Reader(4, 6, mechanism)
    assert isinstance(reader.project, nn.Identity) == make.unequal_widths
    query, memory = torch.randn(2, 3, 4), torch.randn(2, 5, 6)
    found = reader(query, reader.prepare(memory), masks.padding([5, 2]))
    scored = mechanism.score(reader.project(query).unsqueeze(1), memory.unsqueeze(1)).squeeze(1)
    scored[1, :, 2:] = 0.0 if make.needs_sum else -torch.inf
    expected = scored / scored.sum(-1, keepdim=True) if make.needs_sum else scored.softmax(-1)
    torch.testing.assert_close(found, expected @ memory)
    assert isinstance(Reader(6, 6, mechanism).project, nn.Identity)


def test_a_step_knows_its_positions_from_the_cache() -> None:
    layer = MultiHeadAttention(
        DIM, HEADS, mechanism=Mechanism(mask=masks.causal(), position=positions.Rotary())
    ).double()
    x = torch.randn(2, 6, DIM, dtype=torch.float64)
    cache, found = layer.start(x), []
    for chunk in x.split((1, 3, 1, 1), 1):
        output, cache = layer.step(chunk, cache)
        found.append(output)
    torch.testing.assert_close(torch.cat(found, 1), layer(x))


LAYER, X = MultiHeadAttention(DIM, HEADS), torch.randn(2, 5, DIM)
MISTAKES: list[tuple[Callable[[], object], str]] = [
    (lambda: LAYER(X, masks.causal()), "memory must be a tensor, got Causal(); the order of arguments is x, memory, mask, positions; pass mask="),
    (lambda: LAYER([1.0]), "x must be a tensor, got list; pass a tensor"),
    (lambda: LAYER(X.double()), "x is of torch.float64, the layer of torch.float32; convert one of them with .to(dtype)"),
    (lambda: LAYER(X, X.half()), "memory is of torch.float16, the layer of torch.float32"),
    (lambda: LAYER(X.to("meta")), "x is on meta, the layer on cpu; move one of them with .to(device)"),
    (lambda: LAYER(X, mask=lambda b, h, i, j: j <= i), "expected a mask, got function; make one with saccade.masks, such as masks.where(function)"),
    (lambda: MultiHeadAttention(DIM, 4, mechanism=Mechanism(position=positions.Alibi(2))),
     "the position is made for 2 heads, the layer has 4; build the position with heads=4"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "sentence"), MISTAKES, ids=[sentence[:30] for _, sentence in MISTAKES]
)
def test_a_likely_mistake_is_answered_with_a_sentence(
    make: Callable[[], object], sentence: str
) -> None:
    with pytest.raises(SaccadeError, match=re.escape(sentence)):
        make()
