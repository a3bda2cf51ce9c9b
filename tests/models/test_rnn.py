"""RNN encoder–decoders against their equations written out step by step. What holds for every model is in test_every_model.py."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from model_helpers import LENGTHS, SOURCE, TARGET, V, make, shake, stepped
from torch import Tensor, nn

from saccade import models
from saccade.core import masks, normalizers, record, scores
from saccade.layers.recurrent import Bidirectional, Recurrence, cells
from saccade.models import RnnSeq2Seq, Seq2Seq
from saccade.models.builder import Builder
from saccade.models.protocols import ImageToText
from saccade.models.rnn import Config

FAMILIES = [entry.name for entry in models.table if issubclass(entry.make.config, Config)]


def built(family: str, cell: str = "gru", depth: int = 1, **changed: object) -> RnnSeq2Seq:
    """A tiny model whose parameters are large enough for everything to matter."""
    model = make(Seq2Seq, family, dim=5, hidden=6, cell=cell, depth=depth, **changed)
    assert isinstance(model, RnnSeq2Seq)
    return shake(model).float()


# --- the equations ---


def cell_of(rnn: Recurrence, width: int) -> nn.GRUCell:
    cell = nn.GRUCell(width, 6)
    cell.load_state_dict({key: getattr(rnn.layers, f"{key}_l0") for key in cell.state_dict()})
    return cell


def encoded(model: nn.Module, b: int) -> tuple[Tensor, Tensor, Tensor]:
    """One source from left and from right step by step: memory N × 2H, the decoder's first state, and the two last states."""
    x, n = model.source(SOURCE[b : b + 1]), int(LENGTHS[b])
    there, back = (
        cell_of(side[0], 5) for side in (model.encoder.forwards, model.encoder.backwards)
    )
    right, left, h = [], [], torch.zeros(1, 6)
    for t in range(n):
        h = there(x[:, t], h)
        right.append(h)
    h = torch.zeros(1, 6)
    for t in reversed(range(n)):
        h = back(x[:, t], h)
        left.insert(0, h)
    memory = torch.cat([torch.cat(right), torch.cat(left)], -1)
    end = torch.cat([right[-1], left[0]], -1)
    return memory, torch.tanh(model.decoder.first(end)), end


def bahdanau_context(model: nn.Module, s: Tensor, memory: Tensor) -> Tensor:
    score = model.decoder.cross.mechanism.score
    fits = [
        (score.v[0] * torch.tanh(score.w_q[0].T @ s[0] + score.w_k[0].T @ h)).sum() for h in memory
    ]
    return (torch.stack(fits).softmax(0)[:, None] * memory).sum(0, keepdim=True)


def luong_context(model: nn.Module, s: Tensor, memory: Tensor) -> Tensor:
    fits = [s[0] @ model.decoder.cross.mechanism.score.weight[0] @ h for h in memory]
    return (torch.stack(fits).softmax(0)[:, None] * memory).sum(0, keepdim=True)


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_a_family_is_its_equations(family: str) -> None:
    model = built(family)
    found, decoder = model(SOURCE, LENGTHS, TARGET), model.decoder
    cell = cell_of(decoder.rnn, decoder.rnn.layers.input_size)
    for b in range(3):
        memory, s, end = encoded(model, b)
        for t in range(4):
            y = model.target(TARGET[b : b + 1, t])
            if family == "bahdanau":  # the state before the step asks
                c = bahdanau_context(model, s, memory)
                s = cell(torch.cat([y, c], -1), s)
                features = torch.tanh(decoder.readout(torch.cat([s, c, y], -1)))
            elif family == "luong":  # the state after the step asks
                s = cell(y, s)
                features = torch.tanh(
                    decoder.readout(torch.cat([s, luong_context(model, s, memory)], -1))
                )
            else:
                s = features = cell(torch.cat([y, end], -1) if family == "fixed-context" else y, s)
            torch.testing.assert_close(found[b, t], model.head(features)[0], rtol=1e-4, atol=1e-5)


# --- mechanisms, cells, learning ---


@pytest.mark.parametrize("family", ["bahdanau", "luong"])
@pytest.mark.parametrize("name", ["additive", "reduced-rank"])
def test_keys_are_projected_once_per_sentence_not_once_per_step(
    family: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, make = [], scores.table[name]
    plain = make.key
    monkeypatch.setattr(make, "key", lambda self, k: (calls.append(k.shape), plain(self, k))[1])
    model = built(family, score=name)
    model(SOURCE, LENGTHS, TARGET)
    assert calls == [(3, 1, 5, 12)]
    stepped(model, TARGET, SOURCE, LENGTHS)
    assert len(calls) == 2


PAIRS = [
    (score.name, normalize)
    for score in scores.table
    for normalize in normalizers.table.names()
    # by an estimator, not by a gradient: test_hard_learning.py
    if not normalizers.table[normalize].samples
    if (score.make.kernel if normalize == "sum" else not score.make.needs_sum)
]


@pytest.mark.parametrize("family", ["bahdanau", "luong"])
@pytest.mark.parametrize(("score", "normalize"), PAIRS)
def test_any_mechanism_of_the_catalogue_learns_and_steps(
    family: str, score: str, normalize: str
) -> None:
    check_learns(built(family, score=score, normalize=normalize))


@pytest.mark.parametrize("family", ["fixed-first", "fixed-context"])
@pytest.mark.parametrize("cell", cells.names())
def test_the_fixed_contexts_learn(family: str, cell: str) -> None:
    check_learns(built(family, cell, depth=2))


def check_learns(model: nn.Module) -> None:
    """Steps equal the whole pass, and a short move against the gradient lowers the loss."""
    torch.testing.assert_close(
        stepped(model, TARGET, SOURCE, LENGTHS),
        model(SOURCE, LENGTHS, TARGET),
        rtol=1e-4,
        atol=1e-5,
    )

    def loss() -> Tensor:
        return nn.functional.cross_entropy(
            model(SOURCE, LENGTHS, TARGET[:, :-1]).flatten(0, 1), TARGET[:, 1:].flatten()
        )

    before = loss()
    before.backward()
    with torch.no_grad():
        size = math.sqrt(
            sum(parameter.grad.square().sum().item() for parameter in model.parameters())
        )
        for parameter in model.parameters():
            parameter.sub_(0.01 / size * parameter.grad)
    assert loss().item() < before.item() - 1e-3


def test_a_decoder_looks_at_words_and_never_at_padding() -> None:
    for family in ("bahdanau", "luong"):
        model = built(family)
        with record(model) as seen:
            model(SOURCE, LENGTHS, TARGET)
        weights = seen["decoder.cross"].weights()
        hidden = ~masks.padding(LENGTHS).dense(3, 1, 4, 5).expand(3, 1, 4, 5)
        assert (weights[hidden] == 0).all()
        torch.testing.assert_close(weights.sum(-1), torch.ones(3, 1, 4))


@pytest.mark.parametrize(
    ("family", "asks"),
    [("bahdanau", "the state before the step"), ("luong", "the state after the step")],
)
@torch.no_grad()
def test_the_top_layer_asks(family: str, asks: str) -> None:
    model = built(family, depth=3)
    with record(model) as seen:
        state = model.start(SOURCE, LENGTHS)
        _, after = model.step(TARGET[:, 0], state)
    carried = state.carried if asks == "the state before the step" else after.carried
    torch.testing.assert_close(
        seen["decoder.cross"].calls[0].q[:, 0, 0], model.decoder.cross.project(carried[0][:, -1])
    )


def test_dropout_falls_in_training_alone() -> None:
    model = Builder({"family": "bahdanau", "dim": 16, "hidden": 16, "dropout": 0.5}).make(
        Seq2Seq, V, V
    )
    assert not torch.equal(model(SOURCE, LENGTHS, TARGET), model(SOURCE, LENGTHS, TARGET))
    model.eval()
    assert torch.equal(model(SOURCE, LENGTHS, TARGET), model(SOURCE, LENGTHS, TARGET))


# --- how the encoder of a decoder that attends begins ---


def gate_biases(encoder: Bidirectional) -> Tensor:
    """The biases on the states of all recurrences of an encoder, gate by gate: recurrences × gates × H."""
    return torch.stack(
        [
            side.parameter("bias_hh_l0").unflatten(0, (-1, side.hidden))
            for side in (*encoder.forwards, *encoder.backwards)
        ]
    )


@pytest.mark.parametrize(("cell", "gate"), [(entry.name, entry.make.carry_gate) for entry in cells])
def test_states_that_are_attended_to_favor_their_own_word(cell: str, gate: int | None) -> None:
    size = {"dim": 16, "hidden": 64, "depth": 2, "cell": cell}
    for family in FAMILIES:
        biases = gate_biases(make(Seq2Seq, family, **size).encoder).detach()
        means = biases.mean((0, 2)).tolist()
        for n, mean in enumerate(means):  # PyTorch draws biases around 0, up to 1/√H = 1/8
            favored = family in ("bahdanau", "luong") and n == gate
            assert mean == pytest.approx(-1.5 if favored else 0.0, abs=0.05), (family, n)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_an_own_word_that_is_favored_moves_its_state_more_than_its_neighbors_do(cell: str) -> None:
    def share_of_own(favored: bool) -> float:
        torch.manual_seed(0)
        encoder, x = Bidirectional(cells[cell], 16, 32), torch.randn(8, 7, 16, requires_grad=True)
        if favored:
            encoder.favor_own_word()
        found, _ = encoder(x, torch.full((8,), 7))
        (gradient,) = torch.autograd.grad((found[:, 3] * torch.randn(8, 64)).sum(), x)
        moved = gradient.norm(dim=-1).mean(0)
        return (moved[3] / moved.sum()).item()

    assert share_of_own(True) > share_of_own(False) + 0.15


def test_favoring_by_hand() -> None:
    encoder = Bidirectional(cells["gru"], 3, 2, depth=2)
    before = [
        one.parameter("bias_hh_l0").detach().clone()
        for one in (*encoder.forwards, *encoder.backwards)
    ]
    encoder.favor_own_word(by=0.5)
    for one, was in zip((*encoder.forwards, *encoder.backwards), before, strict=True):
        torch.testing.assert_close(
            one.parameter("bias_hh_l0") - was, torch.tensor([0.0, 0.0, -0.5, -0.5, 0.0, 0.0])
        )


# --- the first state and the dropout of a captioner, as in the code of Xu et al. 2015


def captioner(**changed: Any) -> nn.Module:
    cnn = {"family": "cnn", "dim": 4, "depths": [1, 1], "stem_stride": 2}
    settings = {
        "family": "bahdanau",
        "cell": "lstm",
        "dim": 5,
        "hidden": 6,
        "dropout": 0.5,
        "image_encoder": cnn,
        **changed,
    }
    builder = Builder(settings)
    return builder.make(ImageToText, builder.image_encoder(), 11)


@pytest.mark.parametrize(
    ("family", "cell"),
    [("bahdanau", "lstm"), ("fixed-context", "lstm"), ("luong", "gru"), ("fixed-first", "tanh")],
)
def test_the_first_state_of_an_mlp_by_hand(family: str, cell: str) -> None:
    model = captioner(family=family, cell=cell, first_state="mlp").eval().double()
    images = torch.rand(2, 3, 16, 16).double()
    carried = model.start(images, torch.ones(2, dtype=torch.long)).carried  # type: ignore[operator]
    parts = dict(model.decoder.named_parameters())  # type: ignore[union-attr]
    mean = model.image(images).mean(1)  # type: ignore[operator]
    inner = torch.relu(mean @ parts["before.0.weight"].T + parts["before.0.bias"])
    torch.testing.assert_close(
        carried[0][:, 0], torch.tanh(inner @ parts["first.weight"].T + parts["first.bias"])
    )
    assert len(carried) == (2 if cell == "lstm" else 1)
    if cell == "lstm":
        torch.testing.assert_close(
            carried[1][:, 0],
            torch.tanh(inner @ parts["first_cell.weight"].T + parts["first_cell.bias"]),
        )


def test_linear_is_the_default_with_an_empty_cell_and_the_same_parameters_as_before() -> None:
    model = captioner().eval()
    carried = model.start(torch.rand(2, 3, 16, 16), torch.ones(2, dtype=torch.long)).carried  # type: ignore[operator]
    assert not carried[1].any()
    assert not any(
        name.startswith(("decoder.before", "decoder.first_cell")) for name in model.state_dict()
    )


def test_input_dropout_is_apart_from_that_of_the_output() -> None:
    images, one = torch.rand(2, 3, 16, 16), torch.ones(2, dtype=torch.long)
    kept = captioner(input_dropout=0.0).train()
    kept.image.eval()  # type: ignore[union-attr]
    found = [kept.start(images, one).value for _ in range(2)]  # type: ignore[operator]
    assert torch.equal(found[0], found[1])
    assert kept.dropout.p == 0.5
    dropped = captioner().train()
    assert dropped.dropout_of_image.p == dropped.target.dropout.p == 0.5  # type: ignore[union-attr]
    assert bool((dropped.start(images, one).value == 0).any())  # type: ignore[operator]
