"""Recurrences against nn.RNN, nn.GRU, nn.LSTM and their cells; the bidirectional encoder against packed sequences."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from saccade.layers import recurrent
from saccade.layers.recurrent import Bidirectional, Recurrence, cells, mirrored

DIM, HIDDEN = 5, 4
PEERS = {"tanh": (nn.RNN, nn.RNNCell), "gru": (nn.GRU, nn.GRUCell), "lstm": (nn.LSTM, nn.LSTMCell)}
each_cell = pytest.mark.parametrize("name", cells.names())


def shaken(module: nn.Module) -> nn.Module:
    """In float64, all parameters (biases too) far from zero."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.6)
    return module.double()


def some(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def test_every_cell_of_the_table_has_a_peer() -> None:
    assert set(PEERS) == set(cells.names())


@each_cell
def test_one_step_is_pytorchs_cell(name: str) -> None:
    ours, theirs = (
        shaken(Recurrence(cells[name], DIM, HIDDEN)),
        PEERS[name][1](DIM, HIDDEN).double(),
    )
    theirs.load_state_dict({key: getattr(ours.layers, f"{key}_l0") for key in theirs.state_dict()})
    x, carried = (
        some(3, DIM).requires_grad_(),
        tuple(some(3, 1, HIDDEN) for _ in range(cells[name].carries)),
    )
    top, after = ours.step(ours.project(x), carried)
    expected = theirs(
        x, tuple(part[:, 0] for part in carried) if len(carried) > 1 else carried[0][:, 0]
    )
    expected = expected if isinstance(expected, tuple) else (expected,)
    torch.testing.assert_close(top, expected[0])
    for one, other in zip(after, expected, strict=True):
        torch.testing.assert_close(one[:, 0], other)
    gradients = [torch.autograd.grad(y.square().sum(), x)[0] for y in (top, expected[0])]
    torch.testing.assert_close(*gradients)


@each_cell
def test_gradients_of_one_step(name: str) -> None:
    ours = shaken(Recurrence(cells[name], 2, 2, depth=2))
    x, carried = (
        some(1, 2).requires_grad_(),
        tuple(some(1, 2, 2).requires_grad_() for _ in range(cells[name].carries)),
    )
    assert torch.autograd.gradcheck(
        lambda x, *c: ours.step(ours.project(x), c[: len(carried)])[0],
        (x, *carried, *ours.parameters()),
    )


@each_cell
@pytest.mark.parametrize("depth", [1, 3])
def test_whole_sequences_are_pytorchs_layer_and_the_steps_one_after_another(
    name: str, depth: int
) -> None:
    ours = shaken(Recurrence(cells[name], DIM, HIDDEN, depth))
    theirs = PEERS[name][0](DIM, HIDDEN, depth, batch_first=True).double()
    theirs.load_state_dict(ours.layers.state_dict())
    x = some(2, 6, DIM)
    for carried in (None, tuple(some(2, depth, HIDDEN) for _ in range(cells[name].carries))):
        found, after = ours(x, carried)
        first = (
            None
            if carried is None
            else tuple(part.transpose(0, 1).contiguous() for part in carried)
        )
        expected, last = theirs(x, first if first is None or len(first) > 1 else first[0])
        torch.testing.assert_close(found, expected)
        for one, other in zip(after, last if isinstance(last, tuple) else (last,), strict=True):
            torch.testing.assert_close(one, other.transpose(0, 1))
        memory, tops = ours.empty(2, x) if carried is None else carried, []
        for t in range(6):
            top, memory = ours.step(ours.project(x[:, t]), memory)
            tops.append(top)
        torch.testing.assert_close(torch.stack(tops, 1), expected)
        for one, other in zip(memory, after, strict=True):
            torch.testing.assert_close(one, other)


@each_cell
def test_long_sequences_are_read_in_pieces(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, x = shaken(Recurrence(cells[name], DIM, HIDDEN, 2)), some(2, 7, DIM)
    whole, after = ours(x)
    monkeypatch.setattr(recurrent, "MAX_CHUNK_POSITIONS", 3)
    pieces, state = ours(x)
    torch.testing.assert_close(pieces, whole)
    torch.testing.assert_close(state, after)


@each_cell
def test_parts_of_an_input_may_be_projected_apart(name: str) -> None:
    ours, x = shaken(Recurrence(cells[name], DIM, HIDDEN)), some(3, 7, DIM)
    torch.testing.assert_close(
        ours.project(x[..., :2]) + ours.project(x[..., 2:], 2), ours.project(x)
    )


def test_dropout_falls_between_layers_in_training_alone() -> None:
    ours, x = Recurrence(cells["gru"], DIM, HIDDEN, depth=2, dropout=0.5), torch.randn(2, DIM)
    carried = (torch.randn(2, 2, HIDDEN),)
    assert not torch.equal(
        ours.step(ours.project(x), carried)[0], ours.step(ours.project(x), carried)[0]
    )
    ours.eval()
    assert torch.equal(
        ours.step(ours.project(x), carried)[0], ours.step(ours.project(x), carried)[0]
    )


def packed_twin(ours: Bidirectional, name: str, depth: int) -> nn.RNNBase:
    theirs = PEERS[name][0](DIM, HIDDEN, depth, batch_first=True, bidirectional=True).double()
    state = {}
    for n in range(depth):
        for suffix, side in (("", ours.forwards), ("_reverse", ours.backwards)):
            for key, value in side[n].layers.state_dict().items():
                state[key.replace("_l0", f"_l{n}{suffix}")] = value
    theirs.load_state_dict(state)
    return theirs


@each_cell
@pytest.mark.parametrize("depth", [1, 2])
def test_both_directions_are_pytorchs_over_packed_sequences(name: str, depth: int) -> None:
    ours = shaken(Bidirectional(cells[name], DIM, HIDDEN, depth))
    theirs, x, lengths = packed_twin(ours, name, depth), some(3, 6, DIM), torch.tensor([6, 1, 4])
    found, end = ours(x, lengths)
    packed, last = theirs(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
    expected, _ = pad_packed_sequence(packed, batch_first=True)
    for b, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(found[b, :length], expected[b, :length])
    h = last[0] if isinstance(last, tuple) else last
    torch.testing.assert_close(end, torch.cat([h[-2], h[-1]], -1))


@given(
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    more=st.integers(0, 3),
    depth=st.integers(1, 2),
)
def test_padding_never_reaches_a_state(lengths: list[int], more: int, depth: int) -> None:
    torch.manual_seed(0)
    ours = shaken(Bidirectional(cells["gru"], DIM, HIDDEN, depth))
    sizes, x = torch.tensor(lengths), some(len(lengths), 5 + more, DIM).requires_grad_()
    found, end = ours(x, sizes)
    here = torch.arange(5 + more) < sizes[:, None]
    (gradient,) = torch.autograd.grad(end.square().sum() + found[here].square().sum(), x)
    assert (gradient[~here] == 0).all()
    assert (gradient[here] != 0).any()
    for b, length in enumerate(lengths):
        alone, its_end = ours(x[b : b + 1, :length], sizes[b : b + 1])
        torch.testing.assert_close(found[b : b + 1, :length], alone)
        torch.testing.assert_close(end[b : b + 1], its_end)


def test_mirrored_positions() -> None:
    assert mirrored(torch.tensor([3, 1, 4]), 4).tolist() == [
        [2, 1, 0, 3],
        [0, 1, 2, 3],
        [3, 2, 1, 0],
    ]
