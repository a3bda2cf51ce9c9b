"""ByteNet and ConvS2S against plain loops, their counts, and what is particular to each. What holds for every model: test_every_model.py."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from model_helpers import LENGTHS, SOURCE, TARGET, V, make, shake
from torch import Tensor, nn

from saccade.core import record
from saccade.layers.convolution import Convolution
from saccade.layers.norms import LayerNorm
from saccade.models import Seq2Seq, bytenet, convs2s
from saccade.models.builder import Builder
from saccade.settings import Choice
from saccade.training.flops import counter

DIM, HIDDEN, DEPTH, WIDTH, B, N, T = 8, 6, 2, 3, 3, 5, 4


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def operations(model: nn.Module) -> int:
    with counter() as counted:
        model(SOURCE, LENGTHS, TARGET)
    return counted.get_total_flops()


def by_loops(conv: Convolution, x: Tensor, left: int) -> Tensor:
    """Σ_k W_k x_(n + (k − left) · dilation) + b, one number after another; W = g v / |v| where there is a gain."""
    weight = conv.weight.tolist()
    if conv.gain is not None:
        for o, row in enumerate(weight):
            length = math.sqrt(sum(number**2 for taps in row for number in taps))
            weight[o] = [[number * conv.gain[o].item() / length for number in taps] for taps in row]
    found = torch.zeros(len(x), x.shape[1], len(weight), dtype=x.dtype)
    for b in range(len(x)):
        for n in range(x.shape[1]):
            for o, row in enumerate(weight):
                total = conv.bias[o].item()
                for i, taps in enumerate(row):
                    for k, tap in enumerate(taps):
                        at = n + (k - left) * conv.dilation
                        total += tap * x[b, at, i].item() if 0 <= at < x.shape[1] else 0.0
                found[b, n, o] = total
    return found


# --- the convolution


SHAPES = [
    (3, 1, False, True),
    (3, 2, True, False),
    (2, 4, True, True),
    (4, 1, False, False),
    (1, 1, True, True),
]


@pytest.mark.parametrize(("width", "dilation", "causal", "normed"), SHAPES)
@torch.no_grad()
def test_a_convolution_is_its_formula_and_its_steps(
    width: int, dilation: int, causal: bool, normed: bool
) -> None:
    conv, x = (
        shake(Convolution(4, 3, width, dilation, causal, normed=normed)),
        torch.randn(2, 7, 4).double(),
    )
    torch.testing.assert_close(conv(x), by_loops(conv, x, width - 1 if causal else width // 2))
    theirs = nn.functional.conv1d(
        nn.functional.pad(x.transpose(1, 2), (conv.left, conv.reach - conv.left)),
        conv.kernel(),
        conv.bias,
        dilation=dilation,
    )
    torch.testing.assert_close(conv(x), theirs.transpose(1, 2))
    if causal:
        cache = conv.start(x)
        some, cache = conv.step(x[:, :3], cache)
        rest = [conv.step(x[:, 3:5], cache)[0], conv.step(x[:, 3:5], cache)[0]]
        torch.testing.assert_close(torch.cat([some, rest[0]], 1), conv(x[:, :5]))
        assert torch.equal(*rest), "a cache is a value"


def test_weight_norm_starts_as_the_weights_and_moves_length_and_direction() -> None:
    conv = Convolution(4, 3, 3, std=0.2, normed=True)
    torch.testing.assert_close(conv.kernel(), conv.weight)
    with torch.no_grad():
        conv.weight.mul_(5.0)
    torch.testing.assert_close(
        conv.kernel().flatten(1).norm(dim=1), conv.gain, msg="only its direction counts"
    )


# --- ConvS2S


@torch.no_grad()
def test_a_gated_block_is_its_formula() -> None:
    layer, x = (
        shake(convs2s.Layer(convs2s.Config(hidden=4, width=3, dropout=0.0), causal=False)),
        torch.randn(2, 5, 4).double(),
    )
    both = by_loops(layer.conv, x, 1)
    gated = torch.zeros(2, 5, 4).double()
    for b, n, o in itertools.product(range(2), range(5), range(4)):
        gated[b, n, o] = both[b, n, o].item() / (1 + math.exp(-both[b, n, 4 + o].item()))
    torch.testing.assert_close(layer(x), math.sqrt(0.5) * (x + gated))


@torch.no_grad()
def test_a_step_of_attention_is_its_formula() -> None:
    model = shake(make(Seq2Seq, "convs2s"))
    with record(model) as seen:
        model(SOURCE, LENGTHS, TARGET)
    names = [f"decoder.{n}.cross" for n in range(DEPTH)]
    assert [name for name, site in seen.items() if site.cross] == names, (
        "every layer attends, and is seen"
    )
    state, layer = model.encode(SOURCE, LENGTHS, T), model.decoder[0]
    target = model.target(TARGET, torch.arange(T))
    h = nn.functional.glu(layer.conv(model.enter_target(target)))
    z, values = state.keys[0][:, 0], state.value[:, 0]
    weights = seen[names[0]].weights()
    for b, m in enumerate(LENGTHS.tolist()):
        for t in range(T):
            query = math.sqrt(0.5) * (layer.cross.ask(h)[b, t] + target[b, t])
            scores = [math.exp(float(query @ z[b, j])) for j in range(m)]
            shares = [score / sum(scores) for score in scores]
            torch.testing.assert_close(weights[b, 0, t, :m].tolist(), shares)
            assert not weights[b, 0, t, m:].any()
            context = math.sqrt(m) * sum(share * values[b, j] for j, share in enumerate(shares))
            expected = math.sqrt(0.5) * (h[b, t] + layer.cross.answer(context.view(1, 1, -1))[0, 0])
            found = layer.cross(h, target, state.keys[0], state)[b, t]
            torch.testing.assert_close(found, expected)


def test_the_gradient_of_the_encoder_is_divided_by_twice_the_attentions() -> None:
    x = torch.randn(3, requires_grad=True)
    y = convs2s.scale_gradient(x, 0.25)
    assert torch.equal(x, y)
    (y**2).sum().backward()
    torch.testing.assert_close(x.grad, 0.5 * x.detach())
    model = shake(make(Seq2Seq, "convs2s"))
    grads = []
    for factor in (None, 1.0):  # with the model's own factor, and without one
        model.zero_grad()
        with pytest.MonkeyPatch.context() as patch:
            if factor:
                patch.setattr(convs2s, "scale_gradient", lambda x, _: x)
            model(SOURCE, LENGTHS, TARGET).sum().backward()
        grads.append(model.encoder[0].conv.weight.grad.clone())
    torch.testing.assert_close(grads[0], grads[1] / (2 * DEPTH))


def test_variances_stay_what_they_are_at_the_start() -> None:
    torch.manual_seed(0)
    layers = [
        convs2s.Layer(convs2s.Config(hidden=256, dropout=0.0), causal=False) for _ in range(6)
    ]
    x = 0.1 * torch.randn(4, 50, 256)
    with torch.no_grad():
        for layer in layers:
            x = layer(x)
    assert 0.05 < float(x.std()) < 0.2
    model = Builder({"family": "convs2s", "size": "medium"}).make(Seq2Seq, 500, 500)
    for made in (model.source.tokens.weight, model.source.position.vectors):
        assert float(made.detach().std()) == pytest.approx(0.1, rel=0.1)
    assert float(model.decoder[0].conv.weight.detach().std()) == pytest.approx(
        math.sqrt(4 * 0.8 / (3 * 256)), rel=0.05
    )


@pytest.mark.parametrize(
    ("changed", "more"),
    [({}, 0), ({"tied": True}, -V * DIM), ({"weight_norm": False}, None)],
    ids=str,
)
def test_parameters_and_operations_of_convs2s(changed: dict[str, Any], more: int | None) -> None:
    model = make(
        Seq2Seq, "convs2s", position_embedding={"name": "learned", "max_len": 20}, **changed
    )
    norm = 1 if more is not None else 0

    def linear(i: int, o: int, width: int = 1) -> int:
        return o * (i * width + 1 + norm)

    conv, attention = linear(HIDDEN, 2 * HIDDEN, WIDTH), linear(HIDDEN, DIM) + linear(DIM, HIDDEN)
    ends = 2 * (V * DIM + 20 * DIM + linear(DIM, HIDDEN) + linear(HIDDEN, DIM)) + V * DIM + V
    assert count(model) == ends + DEPTH * (2 * conv + attention) + (more or 0)
    side, convolve = 2 * HIDDEN * DIM, HIDDEN * 2 * HIDDEN * WIDTH
    expected = (
        B * N * (side + DEPTH * convolve)
        + B * T * (side + DEPTH * (convolve + side) + V * DIM)
        + DEPTH * 2 * B * T * N * DIM
    )
    assert operations(model) == 2 * expected


# --- ByteNet


@torch.no_grad()
def test_units_are_their_formulas() -> None:
    facts: dict[str, Any] = {"dim": 4, "hidden": 3, "width": 3, "dilation": 2, "causal": True}
    x = torch.randn(2, 6, 4).double()

    def normed(norm: nn.Module, x: Tensor) -> Tensor:
        return (x - x.mean(-1, keepdim=True)) / (
            x.var(-1, unbiased=False, keepdim=True) + 1e-5
        ).sqrt() * norm.weight + norm.bias

    unit = shake(bytenet.ReluUnit(**facts, norm=Choice(LayerNorm)))
    h = normed(unit.inside, unit.inner(normed(unit.before, x).clamp(min=0))).clamp(min=0)
    inner = normed(unit.after, by_loops(unit.conv, h, 2)).clamp(min=0)
    torch.testing.assert_close(unit(x), x + unit.outer(inner))
    unit = shake(bytenet.MultiplicativeUnit(**facts, norm=Choice(LayerNorm)))
    h = normed(unit.inside, unit.inner(normed(unit.before, x)))
    one, two, three, update = (
        normed(unit.after, by_loops(unit.conv, h, 2)).unflatten(-1, (4, 3)).unbind(-2)
    )
    gate = lambda g: 1 / (1 + (-g).exp())
    torch.testing.assert_close(
        unit(x), x + unit.outer(gate(one) * (gate(two) * h + gate(three) * update.tanh()).tanh())
    )


@torch.no_grad()
def test_a_target_position_stands_on_the_encoders_and_on_zeros_beyond_its_end() -> None:
    model = shake(make(Seq2Seq, "bytenet"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "decoder", nn.ModuleList())  # nothing else joins positions
        alone = model(SOURCE[2:, :1], LENGTHS[2:], TARGET[2:])
        below = model.encode(SOURCE[2:, :1], LENGTHS[2:])
        embedded = model.target(TARGET[2:])
        torch.testing.assert_close(alone[:, 0], model.read(embedded[:, 0] + below[:, 0]))
        torch.testing.assert_close(alone[:, 1:], model.read(embedded[:, 1:]))
        other = model(SOURCE[:1], LENGTHS[:1], TARGET[:1])
        torch.testing.assert_close(
            other,
            model.read(model.target(TARGET[:1]) + model.encode(SOURCE[:1], LENGTHS[:1])[:, :T]),
        )


def test_dilations_double_and_begin_anew_and_decide_how_far_a_unit_sees() -> None:
    model = make(Seq2Seq, "bytenet", depth=5, dilations=3, width=2)
    assert (
        [unit.conv.dilation for unit in model.decoder]
        == [unit.conv.dilation for unit in model.encoder]
        == [1, 2, 4, 1, 2]
    )
    tokens = torch.randint(0, V, (1, 16))
    with torch.no_grad():
        before = shake(model)(SOURCE[:1], LENGTHS[:1], tokens)
        moved = (
            (
                model(
                    SOURCE[:1], LENGTHS[:1], torch.cat([(tokens[:, :1] + 1) % V, tokens[:, 1:]], 1)
                )
                - before
            )
            .abs()
            .amax(-1)[0]
        )
    assert [bool(one > 1e-12) for one in moved] == [t <= 1 + 2 + 4 + 1 + 2 for t in range(16)]


@pytest.mark.parametrize(("unit", "gates"), [("relu", 1), ("multiplicative", 4)])
def test_parameters_and_operations_of_bytenet(unit: str, gates: int) -> None:
    model = make(Seq2Seq, "bytenet", unit=unit)
    maps, convolve = 2 * DIM * HIDDEN, gates * HIDDEN * HIDDEN * WIDTH
    per_unit = maps + HIDDEN + DIM + convolve + gates * HIDDEN + 2 * (DIM + HIDDEN + gates * HIDDEN)
    ending = 2 * DIM + DIM * DIM + DIM
    assert count(model) == 2 * DEPTH * per_unit + 2 * ending + 2 * V * DIM + V * DIM + V
    expected = (B * N + B * T) * (DEPTH * (maps + convolve) + DIM * DIM) + B * T * V * DIM
    assert operations(model) == 2 * expected
