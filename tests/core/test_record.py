"""Looking: names, weights on demand, nothing kept when closed, and life with torch.compile."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import Tensor, nn

from saccade.core import Keys, Mechanism, Places, Site, masks, normalizers, positions, record, scores, weights
from saccade.core.masks import Mask
from saccade.data.trees import tree_distances
from saccade.errors import SaccadeError
from saccade.layers.attention import MultiHeadAttention
from saccade.models import LanguageModel, RnnSeq2Seq, Transformer
from saccade.models.rnn import BahdanauDecoder, BahdanauParts
from saccade.models.rnn import Shape as RnnShape
from saccade.models.transformer import Parts, Shape

SMALL = Shape(dim=8, hidden=16, depth=2, heads=2, dropout=0.0, max_len=40)
SOURCE, LENGTHS, TARGET = (
    torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 0, 0]]),
    torch.tensor([5, 3]),
    torch.tensor([[1, 2, 3], [4, 5, 6]]),
)


def transformer() -> Transformer:
    return Transformer(11, 12, SMALL, Parts()).eval()


class Looker(Site):
    """A site that attends over what it is handed, whatever the mechanism."""

    def __init__(self, mechanism: Mechanism) -> None:
        super().__init__()
        self.mechanism = mechanism

    def forward(self, q: Tensor, k: Tensor, mask: Mask | None = None, places: Places | None = None) -> Tensor:
        at = None if places is None else places.j
        return self.look(q, self.mechanism.keys(k, at), self.mechanism.values(k, at), mask, places)


def sites(model: nn.Module) -> list[Site]:
    return [m for m in model.modules() if isinstance(m, Site)]


def test_sites_are_named_by_their_path_in_the_model() -> None:
    model = transformer()
    with record(model) as seen:
        model(SOURCE, LENGTHS, TARGET)
    expected = {f"{stack}.{n}.attention" for stack in ("encoder", "decoder") for n in (0, 1)} | {
        "decoder.0.cross",
        "decoder.1.cross",
    }
    assert set(seen) == expected
    assert len(seen) == 6
    assert seen["decoder.1.cross"].weights().shape == (2, 2, 3, 5)
    with pytest.raises(SaccadeError, match=r"no attention named 'decoder.1.cros'; did you mean 'decoder.1.cross'"):
        seen["decoder.1.cros"]


MECHANISMS = {
    "plain": (Mechanism(), None),
    "causal": (Mechanism(mask=masks.causal()), None),
    "padding": (Mechanism(), masks.padding([3, 9])),
    "window and padding": (Mechanism(mask=masks.window(2, 1)), masks.padding([9, 5])),
    "a matrix a head": (Mechanism(), masks.matrix(torch.rand(2, 9, 9) < 0.5)),
    "rotary": (Mechanism(position=positions.Rotary()), masks.causal()),
    "shaw, sparsemax": (Mechanism(normalize=normalizers.Sparsemax(), position=positions.Shaw(4, 2)), masks.causal()),
    "syntax": (Mechanism(position=positions.SyntaxDistance(4, 2)), None),
    "additive": (Mechanism(scores.Additive(4, 4, heads=2)), masks.padding([1, 9])),
}


@pytest.mark.parametrize("chunk", [1 << 24, 2 * 2 * 9 * 2, 1], ids=["whole", "two rows at a time", "row by row"])
@pytest.mark.parametrize("name", sorted(MECHANISMS))
def test_weights_on_demand_are_the_definitions_for_any_rows_and_heads(
    name: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["saccade.core.record"], "CHUNK_NUMBERS", chunk)
    mechanism, mask = MECHANISMS[name]
    q, k, tree = torch.randn(2, 2, 9, 4), torch.randn(2, 2, 9, 4), tree_distances([[n - 1 for n in range(9)], [-1] + [0] * 8])
    places = Places.in_line(9, 9, tree=tree) if name == "syntax" else None
    site = Looker(mechanism)
    with record(site) as seen:
        site(q, k, mask, places)
    whole = weights(q, k, mechanism, mask, places)
    look = seen["attention"]
    torch.testing.assert_close(look.weights(), whole)
    for rows in ([0], [8], [4, 5, 6], [6, 1, 1], [0, 8], [-1, -9]):
        torch.testing.assert_close(look.weights(rows=rows), whole[:, :, rows])
        torch.testing.assert_close(look.weights(rows=rows, heads=[1]), whole[:, 1:, rows])
    torch.testing.assert_close(look.weights(heads=[1, 0]), whole.flip(1))
    torch.testing.assert_close(look.weights(rows=3, heads=-1), whole[:, 1:, 3:4])


@pytest.mark.parametrize("mask", [masks.padding([2, 3]), masks.matrix(torch.rand(10, 4) < 0.7)], ids=repr)
def test_more_queries_than_keys_can_be_looked_at_in_part(mask: Mask, monkeypatch: pytest.MonkeyPatch) -> None:
    attention = MultiHeadAttention(8, 2)
    with record(attention) as seen:
        attention(torch.randn(2, 10, 8), torch.randn(2, 4, 8), mask)
    whole = seen["attention"].weights()
    torch.testing.assert_close(seen["attention"].weights(rows=range(8)), whole[:, :, :8])
    monkeypatch.setattr(sys.modules["saccade.core.record"], "CHUNK_NUMBERS", 2 * 2 * 4 * 5)
    torch.testing.assert_close(seen["attention"].weights(), whole)


def test_part_of_the_rows_of_a_matrix_mask_with_fewer_queries_than_keys() -> None:
    attention, mask = MultiHeadAttention(8, 2), masks.matrix(torch.rand(4, 9) < 0.6)
    with record(attention) as seen:
        attention(torch.randn(2, 4, 8), torch.randn(2, 9, 8), mask)
    whole = seen["attention"].weights()
    for rows in ([3], [0, 1], [2, 3]):
        torch.testing.assert_close(seen["attention"].weights(rows=rows), whole[:, :, rows])


def test_a_long_sequence_is_looked_into_without_ever_holding_all_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    length, sizes = 3000, []
    plain = Mechanism().score.compare
    monkeypatch.setattr(scores.ScaledDot, "compare", lambda self, q, k: (sizes.append(q.shape[2] * k.shape[2]), plain(q, k))[1])
    site = Looker(Mechanism())
    q = torch.randn(1, 1, length, 4)
    with record(site) as seen:
        site(q, q, masks.causal())
    found = seen["attention"].weights(rows=[0, 1500, 2999])
    assert max(sizes) <= length, "three rows far apart are computed one by one"
    monkeypatch.setattr(sys.modules["saccade.core.record"], "CHUNK_NUMBERS", 100 * length)
    seen["attention"].weights()
    assert max(sizes) <= 100 * length
    expected = (q[0, 0, 1500] @ q[0, 0, :1501].T / 2).softmax(-1)
    torch.testing.assert_close(found[0, 0, 1, :1501], expected)
    assert (found[0, 0, 1, 1501:] == 0).all()


def test_grouped_heads_are_seen_as_the_heads_of_the_queries() -> None:
    attention = MultiHeadAttention(8, 4, kv_heads=2)
    x = torch.randn(1, 5, 8)
    with record(attention) as seen:
        attention(x, mask=masks.causal())
    q, k = attention.split(attention.q(x), 4), attention.split(attention.k(x), 2).repeat_interleave(2, 1)
    torch.testing.assert_close(seen["attention"].weights(), weights(q, k, None, masks.causal()))


def test_steps_of_a_decoder_follow_one_another_as_rows() -> None:
    model = transformer()
    with torch.no_grad(), record(model) as seen:
        model(SOURCE, LENGTHS, TARGET)
    with torch.no_grad(), record(model) as steps:
        state = model.start(SOURCE, LENGTHS)
        for t in range(3):
            _, state = model.step(TARGET[:, t], state)
    for name in ("decoder.1.cross", "decoder.1.attention"):
        torch.testing.assert_close(steps[name].weights(), seen[name].weights())
        torch.testing.assert_close(steps[name].weights(rows=[2, 0], heads=[1]), seen[name].weights(rows=[2, 0], heads=[1]))
    assert [call.sizes for call in steps["decoder.0.attention"].calls] == [(2, 2, 1, 1), (2, 2, 1, 2), (2, 2, 1, 3)]
    rnn = bahdanau()
    with record(rnn) as seen:
        rnn(SOURCE, LENGTHS, TARGET)
    found = seen["decoder.cross"].weights()
    assert found.shape == (2, 1, 3, 5)
    assert (found[1, ..., 3:] == 0).all()
    torch.testing.assert_close(found.sum(-1), torch.ones(2, 1, 3))


def test_a_closed_record_keeps_what_it_saw_and_nothing_more() -> None:
    model = transformer()
    before = model(SOURCE, LENGTHS, TARGET)
    with record(model) as seen:
        assert torch.equal(model(SOURCE, LENGTHS, TARGET), before)
    assert all(site.tape is None for site in sites(model))
    model(SOURCE, LENGTHS, TARGET)
    assert len(seen["decoder.1.cross"].calls) == 1
    assert not seen["decoder.1.cross"].calls[0].q.requires_grad


def test_an_exception_inside_closes_the_record() -> None:
    model = transformer()
    with pytest.raises(IndexError), record(model):
        model(SOURCE + 1000, LENGTHS, TARGET)
    assert all(site.tape is None for site in sites(model))
    with record(model) as seen:
        assert len(seen) == 6


def test_mistakes_in_looking_are_answered_with_sentences() -> None:
    model = transformer()
    with record(model) as seen:
        with pytest.raises(SaccadeError, match="open already; close it first"), record(model.decoder):
            pass
        with pytest.raises(SaccadeError, match=r"'encoder.0.attention' was not called .* run the model inside"):
            seen["encoder.0.attention"].weights()
        model(SOURCE, LENGTHS, TARGET)
        assert all(site.tape is not None for site in sites(model)), "the refused record left the open one alone"
        for ask, sentence in (
            ({"rows": [3]}, "no row 3; there are 3"),
            ({"heads": [-3]}, "no head -3"),
            ({"rows": []}, "no row was named"),
        ):
            with pytest.raises(SaccadeError, match=sentence):
                seen["decoder.0.cross"].weights(**ask)
        model(SOURCE[:1], LENGTHS[:1], TARGET[:1])
    with pytest.raises(SaccadeError, match="batches of different sizes; look at one call"):
        seen["decoder.0.cross"].weights()
    assert seen["decoder.0.cross"].calls[1].weights().shape == (1, 2, 3, 5)


def bahdanau() -> RnnSeq2Seq:
    shape, parts = RnnShape(8, 6, dropout=0.0), BahdanauParts()
    return RnnSeq2Seq(11, 12, shape, parts, BahdanauDecoder(parts, shape)).eval()


def check_record_and_compile(model: nn.Module, backend: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=backend)
    with torch.no_grad():
        expected = model(SOURCE, LENGTHS, TARGET)
        with record(model) as plain:
            model(SOURCE, LENGTHS, TARGET)
        torch.testing.assert_close(compiled(SOURCE, LENGTHS, TARGET), expected)
        for _ in range(2):
            with record(compiled) as seen:
                torch.testing.assert_close(compiled(SOURCE, LENGTHS, TARGET), expected)
            assert set(seen) == set(plain)
            for name in seen:
                assert len(seen[name].calls) == len(plain[name].calls)
                torch.testing.assert_close(seen[name].weights(), plain[name].weights())
            torch.testing.assert_close(compiled(SOURCE, LENGTHS, TARGET), expected)
            assert all(len(seen[name].calls) == len(plain[name].calls) for name in seen), "a closed record keeps nothing more"
    torch._dynamo.reset()


def test_a_record_survives_torch_compile() -> None:
    check_record_and_compile(transformer(), "aot_eager")


def test_a_record_survives_torch_compile_of_a_decoder_in_steps() -> None:
    check_record_and_compile(bahdanau(), "eager")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inductor uses parts of torch that torch calls deprecated
def test_a_record_survives_the_real_compiler() -> None:
    check_record_and_compile(transformer(), "inductor")


def test_a_compiled_part_of_a_model_keeps_its_name() -> None:
    model = LanguageModel(12, SMALL, Parts()).eval()
    model.decoder = torch.compile(model.decoder, backend="eager")
    with record(model) as seen:
        assert set(seen) == {"decoder.0.attention", "decoder.1.attention"}


def test_a_site_looks_with_its_own_mechanism() -> None:
    q, k = torch.randn(1, 1, 2, 4), torch.randn(1, 1, 3, 4)
    mechanism = Mechanism(scores.Dot(), normalizers.Relu())
    site = Looker(mechanism)
    torch.testing.assert_close(site.look(q, Keys(k), k), (q @ k.mT).relu() @ k)
