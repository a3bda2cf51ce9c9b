"""GNMT, Deep-Att and LSTMs with experts against their equations written out step by step, and their sizes against the papers'."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from model_helpers import LENGTHS, SOURCE, TARGET, V, make, shake
from tests.support import raises
from torch import Tensor, nn

from saccade.core import record
from saccade.errors import SaccadeError
from saccade.layers.recurrent import Recurrence
from saccade.models import Seq2Seq
from saccade.models.builder import Builder, NoInit
from saccade.training.flops import counter

DIM, H = 8, 6


def run(rnn: Recurrence, xs: list[Tensor], back: bool = False) -> list[Tensor]:
    """An LSTM over vectors, gate by gate, its states projected where it has a matrix for that."""
    w, u, b, p = (
        getattr(rnn.layers, f"{name}_l0", None)
        for name in ("weight_ih", "weight_hh", "bias_ih", "weight_hr")
    )
    h, c, found = torch.zeros(u.shape[1]).double(), torch.zeros(u.shape[0] // 4).double(), []
    for x in reversed(xs) if back else xs:
        i, f, g, o = (w @ x + b + u @ h + rnn.layers.bias_hh_l0).chunk(4)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        h = h if p is None else p @ h
        found.append(h)
    return found[::-1] if back else found


def context(decoder: Any, s: Tensor, memory: list[Tensor]) -> Tensor:
    score = decoder.cross.mechanism.score
    fits = torch.stack(
        [score.v[0] @ torch.tanh(score.w_q[0].T @ s + score.w_k[0].T @ h) for h in memory]
    )
    return (fits.softmax(0)[:, None] * torch.stack(memory)).sum(0)


def bottom_of(
    decoder: Any, ys: list[Tensor], memory: list[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """The bottom layer's states and contexts: the state before a step asks."""
    states, contexts = [torch.zeros(decoder.width).double()], []
    inputs: list[Tensor] = []
    for y in ys:
        contexts.append(context(decoder, states[-1], memory))
        inputs.append(torch.cat([y, contexts[-1]]))
        states.append(run(decoder.bottom, inputs)[-1])
    return states[1:], contexts


def join(*parts: list[Tensor]) -> list[Tensor]:
    return [torch.cat(each) for each in zip(*parts, strict=True)]


def add(*parts: list[Tensor]) -> list[Tensor]:
    return [sum(each[1:], each[0]) for each in zip(*parts, strict=True)]


def gnmt(model: Any, xs: list[Tensor], ys: list[Tensor]) -> list[Tensor]:
    there, back = model.encoder.bottom.forwards[0], model.encoder.bottom.backwards[0]
    second, third = model.encoder.layers
    x = run(second, join(run(there, xs), run(back, xs, back=True)))
    memory = add(x, run(third, x))  # residuals from the third layer on
    bottom, contexts = bottom_of(model.decoder, ys, memory)
    second, third = model.decoder.layers
    y = run(second, join(bottom, contexts))
    return add(y, run(third, join(y, contexts)))


def deep_att(model: Any, xs: list[Tensor], ys: list[Tensor]) -> list[Tensor]:
    tops = []
    for column in range(2):
        below = xs
        for n, layer in enumerate(model.encoder.columns[column]):
            f = [layer.layers.weight_ih_l0 @ x + layer.layers.bias_ih_l0 for x in below]
            h = run(layer, below, back=(n + column) % 2 == 1)
            below = join([one[: 2 * H] for one in f], h)
        tops += [f, h]
    memory = [model.encoder.shorten.weight @ one for one in join(*tops)]
    h, contexts = bottom_of(model.decoder, ys, memory)
    layer, below = model.decoder.bottom, join(ys, contexts)
    for above in model.decoder.layers:
        half = [
            layer.layers.weight_ih_l0[: 2 * H] @ x + layer.layers.bias_ih_l0[: 2 * H] for x in below
        ]
        layer, below = above, join(half, h)
        h = run(layer, below)
    return h


def moe_lstm(model: Any, xs: list[Tensor], ys: list[Tensor]) -> list[Tensor]:
    encoder, decoder = model.encoder, model.decoder
    x = add(xs, run(encoder.there, xs), run(encoder.back, xs, back=True))
    x = add(x, [encoder.experts[0](one[None])[0] for one in x])
    memory = add(x, run(encoder.layers[0], x))
    bottom, _ = bottom_of(decoder, ys, memory)
    y = add(ys, bottom)
    y = add(y, [decoder.experts[0](one[None])[0] for one in y])
    return add(y, run(decoder.layers[0], y))


@pytest.mark.parametrize(
    ("family", "equations", "more"),
    [
        ("gnmt", gnmt, {"depth": 3}),
        ("deep-att", deep_att, {"depth": 3, "decoder_depth": 3}),
        ("moe-lstm", moe_lstm, {"feedforward": {"count": 4, "top": 2}}),
    ],
)
@torch.no_grad()
def test_a_family_is_its_equations(family: str, equations: Any, more: dict[str, Any]) -> None:
    model = shake(make(Seq2Seq, family, **more))
    found = model(SOURCE, LENGTHS, TARGET)
    for b, length in enumerate(LENGTHS.tolist()):
        xs, ys = list(model.source(SOURCE[b, :length])), list(model.target(TARGET[b]))
        features = torch.stack(equations(model, xs, ys))
        torch.testing.assert_close(found[b], model.head(features))


def test_layers_above_the_bottom_read_whole_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the bottom layer of the decoder goes step by step in training."""
    stepped, plain = [], Recurrence.step
    monkeypatch.setattr(
        Recurrence, "step", lambda self, *given: (stepped.append(self), plain(self, *given))[1]
    )
    for family in ("gnmt", "deep-att", "moe-lstm"):
        model = make(Seq2Seq, family, depth=3)
        model(SOURCE, LENGTHS, TARGET)
        assert stepped == [model.decoder.bottom] * TARGET.shape[1]
        stepped.clear()


@torch.no_grad()
def test_the_bottoms_state_before_the_step_asks() -> None:
    model = make(Seq2Seq, "gnmt", depth=3)
    with record(model) as seen:
        _, state = model.step(TARGET[:, 0], model.start(SOURCE, LENGTHS))
        model.step(TARGET[:, 1], state)
    first, second = (call.q[:, 0, 0] for call in seen["decoder.cross"].calls)
    assert not first.any()
    assert torch.equal(second, state.carried[0][0][:, 0])


# --- sizes ---


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def lstm(reads: int, hidden: int, output: int | None = None) -> int:
    """Parameters of an LSTM, which has two biases here."""
    kept = output or hidden
    return 4 * hidden * (reads + kept + 2) + (hidden * output if output else 0)


def at_size(vocab: int, **settings: Any) -> int:
    with torch.device("meta"), NoInit():
        return count(Builder(settings).make(Seq2Seq, vocab, vocab))


def test_gnmt_has_the_papers_size() -> None:
    d = 1024
    encoder = 2 * lstm(d, d) + lstm(2 * d, d) + 6 * lstm(d, d)
    decoder = 8 * lstm(2 * d, d) + 2 * d * d + d
    expected = 3 * 32_000 * d + 32_000 + encoder + decoder
    found = at_size(32_000, family="gnmt", size="big")
    assert found == expected
    assert found == pytest.approx(278e6, rel=0.015)  # as Shazeer et al. 2017, table 2, give it


def test_deep_att_has_the_size_of_its_formula() -> None:
    d, h, vocab = 256, 512, 1000
    column = lstm(d, h) + 8 * lstm(3 * h, h)
    decoder = lstm(d + 1280, h) + 6 * lstm(3 * h, h) + h * h + 1280 * h + h
    expected = 2 * vocab * d + vocab * (h + 1) + 2 * column + 5120 * 1280 + decoder
    assert at_size(vocab, family="deep-att", size="base") == expected


def test_experts_have_the_papers_size() -> None:
    d, h, experts, vocab = 512, 2048, 2048, 32_000
    mixture = experts * (2 * d * h + d + h) + 2 * d * experts
    lstms = 4 * lstm(d, h, d) + lstm(2 * d, h, d)
    expected = 3 * vocab * d + vocab + 2 * mixture + lstms + 2 * d * d + d
    found = at_size(vocab, family="moe-lstm", size="big", feedforward={"count": experts, "top": 4})
    assert found == expected
    assert found == pytest.approx(8.7e9, rel=0.015)


def test_the_operations_of_gnmt_by_hand() -> None:
    model = make(Seq2Seq, "gnmt", depth=3)
    with counter() as counted:
        model(SOURCE, LENGTHS, TARGET)
    b, n, t = 3, SOURCE.shape[1], TARGET.shape[1]
    encoder = n * 4 * H * (2 * (DIM + H) + 3 * H + 2 * H)
    decoder = t * 4 * H * ((DIM + 2 * H) + 2 * (3 * H))
    # keys once; each step its query, the products with v, and the context
    attention = n * H * H + t * (H * H + n * H + n * H)
    assert counted.get_total_flops() == 2 * b * (encoder + decoder + attention + t * H * V)


def test_mistakes_are_answered_with_sentences() -> None:
    with raises("width-out-of-range"):
        make(Seq2Seq, "moe-lstm", lstm_width=4)
    with raises("experts-out-of-range"):
        make(Seq2Seq, "moe-lstm", feedforward={"count": 3, "top": 3})
    with pytest.raises(SaccadeError, match="must lie between 1 and 1,000"):
        make(Seq2Seq, "deep-att", decoder_depth=0)


# --- encoders from left to right ---


@pytest.mark.parametrize("family", ["fixed-first", "fixed-context", "bahdanau", "luong"])
@torch.no_grad()
def test_an_encoder_of_one_direction_is_its_recurrence(family: str) -> None:
    model = shake(make(Seq2Seq, family, cell="tanh", bidirectional=False, depth=1))
    rnn, x = model.encoder.forwards[0].layers, model.source(SOURCE)
    memory, end = model.encoder(x, LENGTHS)
    for b, length in enumerate(LENGTHS.tolist()):
        h = torch.zeros(H).double()
        for t in range(length):  # h_t = f(x_t, h_(t−1))
            h = torch.tanh(
                rnn.weight_ih_l0 @ x[b, t] + rnn.bias_ih_l0 + rnn.weight_hh_l0 @ h + rnn.bias_hh_l0
            )
            torch.testing.assert_close(memory[b, t], h)
        torch.testing.assert_close(end[b], h)
    assert model.decoder.first.in_features == H
    assert count(model) < count(make(Seq2Seq, family, cell="tanh", depth=1))
