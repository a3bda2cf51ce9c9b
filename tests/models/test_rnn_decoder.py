"""The recurrent language model against nn.RNN, nn.GRU, nn.LSTM and its dropouts written out; texts read in pieces."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from model_helpers import make, shake
from tests.support import raises
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.core import masks
from saccade.core.auxiliary_losses import collect
from saccade.layers.dropouts import LockedDropout, WeightDropped, drop_words
from saccade.layers.recurrent import Recurrence, cells
from saccade.models import CarryingLM, RnnLanguageModel
from saccade.models.rnn_decoder import Config

DROPOUTS = ["dropout", "embedding_dropout", "input_dropout", "layer_dropout", "weight_dropout"]
PEERS = {"tanh": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8]])
each_cell = pytest.mark.parametrize("cell", cells.names())
each_depth = pytest.mark.parametrize("depth", [1, 3])


def built(cell: str = "lstm", depth: int = 3, **changed: float) -> RnnLanguageModel:
    torch.manual_seed(0)
    model = shake(
        make(CarryingLM, "rnn-decoder", dim=5, hidden=7, depth=depth, cell=cell, **changed)
    ).train()
    assert isinstance(model, RnnLanguageModel)
    return model


@each_cell
@each_depth
def test_without_dropout_it_is_pytorchs_layers_and_a_tied_head(cell: str, depth: int) -> None:
    model = built(cell, depth)  # in training: what is compared is the dropouts at 0, too
    x = F.embedding(TOKENS, model.embedding.tokens.weight)
    widths = [5, *[7] * (depth - 1), 5]
    for n, layer in enumerate(model.decoder):
        theirs = PEERS[cell](widths[n], widths[n + 1], batch_first=True).double()
        theirs.load_state_dict(layer.layers.state_dict())
        x, _ = theirs(x)
    torch.testing.assert_close(model.features(TOKENS), x)
    torch.testing.assert_close(model(TOKENS), x @ model.embedding.tokens.weight.T + model.head.bias)
    untied = built(cell, depth, tied=False)
    torch.testing.assert_close(
        untied(TOKENS), untied.features(TOKENS) @ untied.head.weight.T + untied.head.bias
    )


@each_cell
@each_depth
def test_steps_are_the_whole_pass(cell: str, depth: int) -> None:
    model = built(cell, depth).eval()
    whole = model(TOKENS)
    for prompt in (0, 2):
        state, found = model.start(TOKENS[:, :prompt], torch.full((2,), prompt)), []
        for t in range(prompt, 6):
            logits, state = model.step(TOKENS[:, t], state)
            found.append(logits)
        torch.testing.assert_close(torch.stack(found, 1), whole[:, prompt:])
    state = model.start(TOKENS[:, :3], torch.tensor([3, 3])).reorder(torch.tensor([1, 0, 1]))
    logits, _ = model.step(torch.tensor([3, 1, 3]), state)
    torch.testing.assert_close(logits, whole[[1, 0, 1], 3])


@each_cell
@given(cuts=st.lists(st.integers(1, 5), max_size=3, unique=True))
def test_a_text_read_in_pieces_is_the_text(cell: str, cuts: list[int]) -> None:
    model = built(cell, 2).eval()
    state, found = model.start(TOKENS[:, :0], torch.zeros(2).long()), []
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), 6], strict=True):
        logits, state = model.forward_from(TOKENS[:, start:end], state)
        found.append(logits)
    torch.testing.assert_close(torch.cat(found, 1), model(TOKENS))


def test_gradients_stop_where_a_piece_begins() -> None:
    model = built(tied=False)  # what the head learns is not asked for
    _, state = model.forward_from(
        TOKENS[:1, :3], model.start(TOKENS[:1, :0], torch.zeros(1).long())
    )
    logits, _ = model.forward_from(TOKENS[:1, 3:], state)
    (gradient,) = torch.autograd.grad(logits.square().sum(), model.embedding.tokens.weight)
    assert set(gradient.any(-1).nonzero().flatten().tolist()) == {1, 5, 9}, (
        "3 and 4 are in the first piece alone"
    )


def test_the_future_is_invisible() -> None:
    model, other = built().eval(), TOKENS.clone()
    other[:, 3:] = 7
    torch.testing.assert_close(model(other)[:, :3], model(TOKENS)[:, :3])
    assert not torch.allclose(model(other)[:, 3], model(TOKENS)[:, 3])


# --- dropouts


def dropped_pass(layer: WeightDropped, x: Tensor) -> Tensor:
    """The recurrence step by step with the weights that one draw leaves."""
    weight = F.dropout(layer.layers.weight_hh_l0, layer.share)
    twin = Recurrence(layer.cell, x.shape[-1], layer.hidden).double()
    memory, tops = twin.empty(len(x), x), []
    for t in range(x.shape[1]):
        inner = F.linear(memory[0][:, 0], weight, layer.layers.bias_hh_l0)
        new = layer.cell.advance(
            layer.project(x[:, t]), inner, tuple(part[:, 0] for part in memory)
        )
        memory = tuple(part.unsqueeze(1) for part in new)
        tops.append(new[0])
    return torch.stack(tops, 1)


@each_cell
def test_dropped_weights_are_one_draw_per_pass(cell: str) -> None:
    layer, x = (
        WeightDropped(cells[cell], 3, 4, 0.5).double(),
        torch.randn(2, 5, 3, dtype=torch.float64),
    )
    torch.manual_seed(1)
    found = layer(x)[0]
    torch.manual_seed(1)
    expected = dropped_pass(layer, x)
    torch.testing.assert_close(found, expected)
    pull = torch.randn_like(found)
    for one, other in zip(
        torch.autograd.grad(found, list(layer.parameters()), pull),
        torch.autograd.grad(expected, list(layer.parameters()), pull),
        strict=True,
    ):
        torch.testing.assert_close(one, other)
    assert not torch.equal(layer(x)[0], layer(x)[0])


@each_cell
def test_gradients_through_dropped_weights(cell: str) -> None:
    layer, x = (
        WeightDropped(cells[cell], 2, 2, 0.5).double(),
        torch.randn(1, 3, 2, dtype=torch.float64, requires_grad=True),
    )

    def passed(x: Tensor, *_: Tensor) -> Tensor:
        torch.manual_seed(3)  # the same draw each time
        return layer(x)[0]

    assert torch.autograd.gradcheck(passed, (x, *layer.parameters()))


@each_cell
def test_after_training_the_whole_weights_run_and_the_layer_can_be_copied(cell: str) -> None:
    layer, x = WeightDropped(cells[cell], 3, 4, 0.5), torch.randn(2, 5, 3)
    plain = Recurrence(cells[cell], 3, 4)
    plain.load_state_dict(layer.state_dict())
    layer(x)[0].sum().backward()
    twin = copy.deepcopy(layer).eval()
    torch.testing.assert_close(twin(x)[0], plain(x)[0])
    with torch.no_grad():  # an update in place
        for parameter in (*layer.parameters(), *plain.parameters()):
            parameter.mul_(0.5)
    torch.testing.assert_close(layer.eval()(x)[0], plain(x)[0])
    assert not torch.equal(twin(x)[0], layer(x)[0])


def test_a_locked_mask_is_one_for_all_positions_and_keeps_the_mean() -> None:
    drop, x = LockedDropout(0.25), torch.ones(40, 6, 50)
    found = drop(x)
    assert (found == found[:, :1]).all()
    assert found.unique().tolist() == pytest.approx([0, 1 / 0.75])
    assert found.mean() == pytest.approx(1, abs=0.05)
    assert not torch.equal(found[0], found[1]), "each text has its own"
    assert drop.eval()(x) is x


def test_a_dropped_word_is_dropped_wherever_it_occurs() -> None:
    ids = torch.arange(200).repeat(2, 3) % 100
    found = drop_words(torch.ones(2, 600, 4), ids, 100, 0.3)
    by_word = [found[ids == n] for n in range(100)]
    assert all((rows == rows[0, 0]).all() for rows in by_word)
    assert 10 < sum(rows[0, 0].item() == 0 for rows in by_word) < 50
    assert found.max() == pytest.approx(1 / 0.7)


@pytest.mark.parametrize("where", DROPOUTS)
def test_every_share_of_dropout_falls_in_training_alone(where: str) -> None:
    model = built(**{where: 0.5})
    assert not torch.equal(model(TOKENS), model(TOKENS))
    model.eval()
    assert torch.equal(model(TOKENS), model(TOKENS))
    torch.testing.assert_close(model(TOKENS), built()(TOKENS))


def test_the_defaults_are_the_papers_model() -> None:
    with torch.device("meta"):
        model = RnnLanguageModel(33278, Config())
    gates = sum(
        4 * there * (here + there + 2) for here, there in ((400, 1150), (1150, 1150), (1150, 400))
    )
    # 33.6 million
    assert sum(parameter.numel() for parameter in model.parameters()) == gates + 33278 * 400 + 33278


def test_mistakes_are_answered_with_sentences() -> None:
    model = built()
    with raises("mask-not-supported"):
        model(TOKENS, masks.documents([[0, 0, 0, 1, 1, 1]] * 2))
    torch.testing.assert_close(model(TOKENS, masks.full()), model(TOKENS))
    with raises("prompt-lengths-differ"):
        model.start(TOKENS, torch.tensor([6, 1]))
    with raises("positions-not-supported"):
        model(TOKENS, positions=torch.arange(6))


def left_by(model: RnnLanguageModel, tokens: Tensor) -> tuple[Tensor, list[tuple[str, Tensor]]]:
    with collect() as left:
        found = model.features(tokens)
    return found, left.costs


def test_the_penalty_of_a_pass_by_hand() -> None:
    model = built("lstm", 2, dropout=0.5, size_penalty=3.0, change_penalty=5.0)
    torch.manual_seed(1)
    dropped, [(name, found)] = left_by(model, TOKENS)
    assert name == "activations"
    with torch.no_grad():
        plain, _ = model.decoder(model.embedding(TOKENS), model.empty(TOKENS))
    for b in range(2):
        size = sum(float(x) ** 2 for x in dropped[b].detach().flatten()) / dropped[b].numel()
        changes = [
            float(plain[b, t + 1, d] - plain[b, t, d]) ** 2 for t in range(5) for d in range(5)
        ]
        assert float(found[b].detach()) == pytest.approx(
            3 * size + 5 * sum(changes) / len(changes), rel=1e-5
        )
    model(TOKENS)
    copy.deepcopy(model)  # a pass leaves nothing in the model
    _, [(_, short)] = left_by(model, TOKENS[:, :1])
    assert bool(short.isfinite().all()), "one position has no changes"
    with collect() as left:
        state = model.start(TOKENS[:, :0], torch.zeros(2).long())
        model.forward_from(TOKENS, state)
    assert [name for name, _ in left.costs] == ["activations"]
    assert left_by(model.eval(), TOKENS)[1] == [], "nothing is learned there"
