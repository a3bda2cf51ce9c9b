"""RNN encoder–decoders against their equations written out step by step, and what must hold for every one of them."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from saccade import models
from saccade.core import masks, normalizers, record, scores
from saccade.layers.recurrent import Recurrence, cells
from saccade.models.families import Choice, MechanismPlan
from saccade.models.rnn import Shape

V, SHAPE = 13, {"dim": 5, "hidden": 6, "depth": 1, "dropout": 0.0}
SOURCE, LENGTHS = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 0, 0], [7, 0, 0, 0, 0]]), torch.tensor([5, 3, 1])
TARGET = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]])
FAMILIES = [entry.name for entry in models.table if entry.make.shape is Shape]
KINDS = [
    (family, cell, depth)
    for family in FAMILIES
    for cell, depth in (("tanh", 1), ("gru", 1), ("lstm", 1), ("gru", 2), ("lstm", 2))
]
each_kind = pytest.mark.parametrize(("family", "cell", "depth"), KINDS)


def built(family: str, cell: str = "gru", depth: int = 1, **parts: object) -> nn.Module:
    """A tiny model whose parameters are large enough for everything to matter."""
    make = models.table[family]
    model = make.build(V, V, Shape(**{**SHAPE, "depth": depth}), make.parts(cell=cells[cell], **parts)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def plan(score: str, normalize: str) -> MechanismPlan:
    return MechanismPlan(Choice(scores.table[score]), Choice(normalizers.table[normalize]))


def stepped(model: nn.Module, target: Tensor, source: Tensor, lengths: Tensor) -> Tensor:
    state, logits = model.start(source, lengths), []
    for t in range(target.shape[1]):
        found, state = model.step(target[:, t], state)
        logits.append(found)
    return torch.stack(logits, 1)


# --- the equations ---


def cell_of(rnn: Recurrence, width: int) -> nn.GRUCell:
    cell = nn.GRUCell(width, 6)
    cell.load_state_dict({key: getattr(rnn.layers, f"{key}_l0") for key in cell.state_dict()})
    return cell


def encoded(model: nn.Module, b: int) -> tuple[Tensor, Tensor, Tensor]:
    """One source from left and from right step by step: memory N × 2H, the decoder's first state, and the two last states."""
    x, n = model.source(SOURCE[b : b + 1]), int(LENGTHS[b])
    there, back = (cell_of(side[0], 5) for side in (model.encoder.forwards, model.encoder.backwards))
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
    fits = [(score.v[0] * torch.tanh(score.w_q[0].T @ s[0] + score.w_k[0].T @ h)).sum() for h in memory]
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
                features = torch.tanh(decoder.readout(torch.cat([s, luong_context(model, s, memory)], -1)))
            else:
                s = features = cell(torch.cat([y, end], -1) if family == "fixed-context" else y, s)
            torch.testing.assert_close(found[b, t], model.head(features)[0], rtol=1e-4, atol=1e-5)


# --- what holds for all of them ---


@each_kind
def test_steps_are_the_whole_pass(family: str, cell: str, depth: int) -> None:
    model = built(family, cell, depth)
    torch.testing.assert_close(stepped(model, TARGET, SOURCE, LENGTHS), model(SOURCE, LENGTHS, TARGET), rtol=1e-4, atol=1e-5)


@each_kind
def test_padding_is_invisible_and_every_word_is_seen(family: str, cell: str, depth: int) -> None:
    model = built(family, cell, depth)
    longer = torch.where(torch.arange(9) < LENGTHS[:, None], nn.functional.pad(SOURCE, (0, 4)), torch.randint(0, V, (3, 9)))
    found = model(SOURCE, LENGTHS, TARGET)
    torch.testing.assert_close(model(longer, LENGTHS, TARGET), found, rtol=1e-4, atol=1e-5)
    for b, length in enumerate(LENGTHS.tolist()):
        alone = model(SOURCE[b : b + 1, :length], LENGTHS[b : b + 1], TARGET[b : b + 1])
        torch.testing.assert_close(found[b : b + 1], alone, rtol=1e-4, atol=1e-5)
    for n in range(5):
        other = SOURCE.clone()
        other[0, n] = 8
        assert not torch.allclose(model(other, LENGTHS, TARGET)[0], found[0])


@each_kind
def test_the_future_is_invisible(family: str, cell: str, depth: int) -> None:
    model = built(family, cell, depth)
    found = model(SOURCE, LENGTHS, TARGET)
    for t in (1, 3):
        other = TARGET.clone()
        other[:, t:] = (other[:, t:] + 5) % V
        after = model(SOURCE, LENGTHS, other)
        torch.testing.assert_close(after[:, :t], found[:, :t])
        assert not torch.allclose(after[:, t], found[:, t])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("cell", ["gru", "lstm"])
@torch.no_grad()
def test_rows_of_a_state_repeat_move_and_leave(family: str, cell: str) -> None:
    model = built(family, cell, depth=2)
    state = model.start(SOURCE, LENGTHS)
    for t in range(2):
        _, state = model.step(TARGET[:, t], state)
    for rows in ([0, 0, 1, 2, 2], [2, 0], [1]):
        moved, target = state.reorder(torch.tensor(rows)), torch.cat([TARGET[rows, :2], torch.tensor([[7, 3]] * len(rows))], 1)
        for t in (2, 3):
            logits, moved = model.step(target[:, t], moved)
        torch.testing.assert_close(logits, model(SOURCE[rows], LENGTHS[rows], target)[:, -1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", ["bahdanau", "luong"])
@pytest.mark.parametrize("name", ["additive", "reduced-rank"])
def test_keys_are_projected_once_a_sentence_not_once_a_step(family: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, make = [], scores.table[name]
    plain = make.key
    monkeypatch.setattr(make, "key", lambda self, k: (calls.append(k.shape), plain(self, k))[1])
    model = built(family, mechanism=plan(name, "softmax"))
    model(SOURCE, LENGTHS, TARGET)
    assert calls == [(3, 1, 5, 12)]
    stepped(model, TARGET, SOURCE, LENGTHS)
    assert len(calls) == 2


PAIRS = [(score, normalize) for score in scores.table.names() for normalize in normalizers.table.names()]
PAIRS = [pair for pair in PAIRS if pair[1] != "sum" or scores.table[pair[0]].kernel]


@pytest.mark.parametrize("family", ["bahdanau", "luong"])
@pytest.mark.parametrize(("score", "normalize"), PAIRS)
def test_any_mechanism_of_the_catalogue_learns_and_steps(family: str, score: str, normalize: str) -> None:
    check_learns(built(family, mechanism=plan(score, normalize)))


@pytest.mark.parametrize("family", ["fixed-first", "fixed-context"])
@pytest.mark.parametrize("cell", cells.names())
def test_the_fixed_contexts_learn(family: str, cell: str) -> None:
    check_learns(built(family, cell, depth=2))


def check_learns(model: nn.Module) -> None:
    """Steps equal the whole pass, and a short move against the gradient lowers the loss."""
    torch.testing.assert_close(stepped(model, TARGET, SOURCE, LENGTHS), model(SOURCE, LENGTHS, TARGET), rtol=1e-4, atol=1e-5)

    def loss() -> Tensor:
        return nn.functional.cross_entropy(model(SOURCE, LENGTHS, TARGET[:, :-1]).flatten(0, 1), TARGET[:, 1:].flatten())

    before = loss()
    before.backward()
    with torch.no_grad():
        size = math.sqrt(sum(parameter.grad.square().sum().item() for parameter in model.parameters()))
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


@pytest.mark.parametrize(("family", "asks"), [("bahdanau", "the state before the step"), ("luong", "the state after the step")])
@torch.no_grad()
def test_the_top_layer_asks(family: str, asks: str) -> None:
    model = built(family, depth=3)
    with record(model) as seen:
        state = model.start(SOURCE, LENGTHS)
        _, after = model.step(TARGET[:, 0], state)
    carried = state.carried if asks == "the state before the step" else after.carried
    torch.testing.assert_close(seen["decoder.cross"].calls[0].q[:, 0, 0], model.decoder.cross.project(carried[0][:, -1]))


def test_dropout_falls_in_training_alone() -> None:
    make = models.table["bahdanau"]
    model = make.build(V, V, Shape(dim=16, hidden=16, dropout=0.5), make.parts())
    assert not torch.equal(model(SOURCE, LENGTHS, TARGET), model(SOURCE, LENGTHS, TARGET))
    model.eval()
    assert torch.equal(model(SOURCE, LENGTHS, TARGET), model(SOURCE, LENGTHS, TARGET))
