"""Looking: names, weights on demand, nothing kept when closed, and life with torch.compile."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import pytest
import torch
from core_helpers import steps_between
from tests.support import raises
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils._python_dispatch import TorchDispatchMode

from saccade.core import (
    Mechanism,
    Positions,
    Site,
    masks,
    normalizers,
    positions,
    record,
    record_foreign,
    recorder,
    scores,
    sites,
    weights,
)
from saccade.core.masks import Mask
from saccade.core.record import paths_in
from saccade.errors import SaccadeError
from saccade.layers.multihead_attention import MultiHeadAttention
from saccade.models import AttendingEncoder, CausalLM, RnnSeq2Seq, Seq2Seq, Transformer
from saccade.models.builder import Builder

SMALL = {"family": "transformer", "dim": 8, "hidden": 16, "depth": 2, "heads": 2, "dropout": 0.0}
SOURCE, LENGTHS, TARGET = (
    torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 0, 0]]),
    torch.tensor([5, 3]),
    torch.tensor([[1, 2, 3], [4, 5, 6]]),
)


def transformer(**settings: Any) -> Transformer:
    return Builder({**SMALL, **settings}).make(Seq2Seq, 11, 12).eval()


class Looker(Site):
    """A site that attends over what it is given, whatever the mechanism."""

    def __init__(self, mechanism: Mechanism) -> None:
        super().__init__()
        self.mechanism = mechanism

    def forward(
        self, q: Tensor, k: Tensor, mask: Mask | None = None, positions: Positions | None = None
    ) -> Tensor:
        return self.look(q, self.mechanism.prepare(k, k, positions, q.shape[1]), mask, positions)


def test_sites_are_named_by_their_path_in_the_model() -> None:
    model = transformer()
    with record(model) as seen:
        model(SOURCE, LENGTHS, TARGET)
    expected = {f"{stack}.{n}.mixer" for stack in ("encoder", "decoder") for n in (0, 1)} | {
        "decoder.0.cross",
        "decoder.1.cross",
    }
    assert set(seen) == expected
    assert len(seen) == 6
    assert seen["decoder.1.cross"].weights().shape == (2, 2, 3, 5)
    with raises("unknown-site"):
        seen["decoder.1.cros"]


MECHANISMS = {
    "plain": (Mechanism(), None),
    "causal": (Mechanism(mask=masks.causal()), None),
    "padding": (Mechanism(), masks.padding([3, 9])),
    "window and padding": (Mechanism(mask=masks.window(2, 1)), masks.padding([9, 5])),
    "a matrix per head": (Mechanism(), masks.matrix(torch.rand(2, 9, 9) < 0.5)),
    "rotary": (Mechanism(position=positions.Rotary()), masks.causal()),
    "shaw, sparsemax": (
        Mechanism(normalize=normalizers.Sparsemax(), position=positions.Shaw(4, 2)),
        masks.causal(),
    ),
    "syntax": (Mechanism(position=positions.SyntaxDistance(4, 2)), None),
    "a predicate": (Mechanism(), masks.where(lambda b, h, i, j: (i + 2 * j + h) % 3 != b)),
    "top blocks": (Mechanism(mask=masks.top_blocks(2, 1)), masks.padding([5, 9])),
    "additive": (Mechanism(scores.Additive(4, 4, heads=2)), masks.padding([1, 9])),
}


@pytest.mark.parametrize(
    "chunk", [1 << 24, 2 * 2 * 9 * 2, 1], ids=["whole", "two rows at a time", "row by row"]
)
@pytest.mark.parametrize("name", sorted(MECHANISMS))
def test_weights_on_demand_are_the_definitions_for_any_rows_and_heads(
    name: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["saccade.core.record"], "CHUNK_NUMBERS", chunk)
    mechanism, mask = MECHANISMS[name]
    q, k, tree = (
        torch.randn(2, 2, 9, 4),
        torch.randn(2, 2, 9, 4),
        steps_between([n - 1 for n in range(9)], [-1] + [0] * 8),
    )
    at = Positions.line(9, 9, relation=tree) if name == "syntax" else None
    site = Looker(mechanism)
    with record(site) as seen:
        site(q, k, mask, at)
    whole = weights(q, k, mechanism, mask, at)
    look = seen["attention"]
    torch.testing.assert_close(look.weights(), whole)
    for rows in ([0], [8], [4, 5, 6], [6, 1, 1], [0, 8], [-1, -9]):
        torch.testing.assert_close(look.weights(rows=rows), whole[:, :, rows])
        torch.testing.assert_close(look.weights(rows=rows, heads=[1]), whole[:, 1:, rows])
    torch.testing.assert_close(look.weights(heads=[1, 0]), whole.flip(1))
    torch.testing.assert_close(look.weights(rows=3, heads=-1), whole[:, 1:, 3:4])


@pytest.mark.parametrize(
    "mask", [masks.padding([2, 3]), masks.matrix(torch.rand(10, 4) < 0.7)], ids=repr
)
def test_more_queries_than_keys_can_be_looked_at_in_part(
    mask: Mask, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_long_sequence_is_looked_into_without_ever_holding_all_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    length, sizes = 3000, []
    plain = Mechanism().score.compare
    site = Looker(Mechanism())
    q = torch.randn(1, 1, length, 4)
    with record(site) as seen:
        site(q, q, masks.causal())
    monkeypatch.setattr(
        scores.ScaledDot,
        "compare",
        lambda self, q, k: (sizes.append(q.shape[2] * k.shape[2]), plain(q, k))[1],
    )
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
    q, k = (
        attention.split(attention.q(x), 4),
        attention.split(attention.k(x), 2).repeat_interleave(2, 1),
    )
    torch.testing.assert_close(seen["attention"].weights(), weights(q, k, None, masks.causal()))


def test_steps_of_a_decoder_follow_one_another_as_rows() -> None:
    model = transformer()
    with torch.no_grad(), record(model) as seen:
        model(SOURCE, LENGTHS, TARGET)
    with torch.no_grad(), record(model) as steps:
        state = model.start(SOURCE, LENGTHS)
        for t in range(3):
            _, state = model.step(TARGET[:, t], state)
    for name in ("decoder.1.cross", "decoder.1.mixer"):
        torch.testing.assert_close(steps[name].weights(), seen[name].weights())
        torch.testing.assert_close(
            steps[name].weights(rows=[2, 0], heads=[1]), seen[name].weights(rows=[2, 0], heads=[1])
        )
    assert [call.sizes for call in steps["decoder.0.mixer"].calls] == [
        (2, 2, 1, 1),
        (2, 2, 1, 2),
        (2, 2, 1, 3),
    ]
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
    assert all(site.tape is None for site in sites(model).values())
    model(SOURCE, LENGTHS, TARGET)
    assert len(seen["decoder.1.cross"].calls) == 1
    assert not seen["decoder.1.cross"].calls[0].q.requires_grad


def test_an_exception_inside_closes_the_record() -> None:
    model = transformer()
    with pytest.raises(IndexError), record(model):
        model(SOURCE + 1000, LENGTHS, TARGET)
    assert all(site.tape is None for site in sites(model).values())
    with record(model) as seen:
        assert len(seen) == 6


def test_a_record_can_be_opened_again_and_sees_what_was_added_in_between() -> None:
    model, x = nn.Sequential(MultiHeadAttention(8, 2)), torch.randn(1, 3, 8)
    again = record(model)
    for count in (1, 2):
        with again as seen:
            model(x)
        assert sorted(seen) == [str(n) for n in range(count)]
        assert [len(looks.calls) for looks in seen.values()] == [1] * count
        model.append(MultiHeadAttention(8, 2))
    assert vars(again).keys() == {"model", "quiet", "listening"}, (
        "it holds nothing of what was seen"
    )


def test_paths_are_those_of_torch() -> None:
    shared, model = nn.Linear(2, 2), transformer()
    for one in (
        model,
        nn.ModuleDict({"a": shared, "b": nn.Sequential(shared, nn.Identity())}),
        nn.Linear(1, 1),
    ):
        assert [(path, inner) for inner, path in paths_in(one).items()] == list(one.named_modules())


def test_nobody_listens_to_a_model_of_sites_and_one_who_fails_leaves_nothing_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> NoReturn:
        raise ValueError("cannot listen")

    monkeypatch.setattr(recorder, "listeners", [*recorder.listeners, fails])
    layer = MultiHeadAttention(8, 2)
    with record(layer, quiet=True):
        assert not record_foreign.open_watches
    mixed = nn.Sequential(layer, nn.MultiheadAttention(8, 2))
    with pytest.raises(ValueError, match="cannot listen"), record(mixed):
        pass
    assert layer.tape is None
    assert "tape" not in vars(layer)
    assert not record_foreign.open_watches


def test_mistakes_in_looking_are_answered_with_sentences() -> None:
    model = transformer()
    with record(model) as seen:
        with raises("record-already-open"), record(model.decoder):
            pass
        with raises("site-not-called"):
            seen["encoder.0.mixer"].weights()
        model(SOURCE, LENGTHS, TARGET)
        assert all(site.tape is not None for site in sites(model).values()), (
            "the refused record left the open one alone"
        )
        for ask, sentence in (
            ({"rows": [3]}, "row must be in 0 … 2, got 3"),
            ({"heads": [-3]}, "head must be in 0 … 1, got -3"),
            ({"rows": []}, "row must be in 0 … 2, got none"),
        ):
            with pytest.raises(SaccadeError, match=sentence):
                seen["decoder.0.cross"].weights(**ask)
        model(SOURCE[:1], LENGTHS[:1], TARGET[:1])
    with raises("batch-sizes-differ"):
        seen["decoder.0.cross"].weights()
    assert seen["decoder.0.cross"].calls[1].weights().shape == (1, 2, 3, 5)


def bahdanau() -> RnnSeq2Seq:
    return (
        Builder({"family": "bahdanau", "dim": 8, "hidden": 6, "dropout": 0.0})
        .make(Seq2Seq, 11, 12)
        .eval()
    )


def check_record_and_compile(
    model: nn.Module, backend: str, inputs: tuple[Tensor, ...] = (SOURCE, LENGTHS, TARGET)
) -> None:
    torch._dynamo.reset()
    counter, versions = CompileCounterWithBackend(backend), 0
    compiled = torch.compile(model, backend=counter)
    with torch.no_grad():
        expected = model(*inputs)
        torch.testing.assert_close(compiled(*inputs), expected)
        with record(model) as plain:
            model(*inputs)
        for _ in range(2):
            with record(compiled) as seen:
                torch.testing.assert_close(compiled(*inputs), expected)
            versions = versions or counter.frame_count
            assert set(seen) == set(plain)
            for name in seen:
                assert len(seen[name].calls) == len(plain[name].calls)
                torch.testing.assert_close(seen[name].weights(), plain[name].weights())
            torch.testing.assert_close(compiled(*inputs), expected)
            assert all(len(seen[name].calls) == len(plain[name].calls) for name in seen), (
                "a closed record keeps nothing more"
            )
    assert counter.frame_count == versions, "one version with a record and one without, and no more"
    torch._dynamo.reset()


def test_a_record_survives_torch_compile() -> None:
    check_record_and_compile(transformer(depth=1), "aot_eager")


@pytest.mark.slow
def test_a_record_survives_torch_compile_of_a_decoder_in_steps() -> None:
    check_record_and_compile(bahdanau(), "eager", (SOURCE, LENGTHS, TARGET[:, :2]))


@pytest.mark.slow
# inductor uses parts of torch that torch calls deprecated
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_record_survives_the_real_compiler() -> None:
    check_record_and_compile(transformer(), "inductor")


def test_a_compiled_part_of_a_model_keeps_its_name() -> None:
    model = Builder({**SMALL, "family": "transformer-decoder"}).make(CausalLM, 12).eval()
    model.decoder = torch.compile(model.decoder, backend="eager")
    with record(model) as seen:
        assert set(seen) == {"decoder.0.mixer", "decoder.1.mixer"}


def test_a_site_looks_with_its_own_mechanism() -> None:
    q, k = torch.randn(1, 1, 2, 4), torch.randn(1, 1, 3, 4)
    mechanism = Mechanism(scores.Dot(), normalizers.Relu())
    site = Looker(mechanism)
    torch.testing.assert_close(site.look(q, mechanism.prepare(k, k)), (q @ k.mT).relu() @ k)


# --- the memory that looking takes ---


class Largest(TorchDispatchMode):
    """Notices how many numbers the largest tensor has that is made while it is open."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for one in found if isinstance(found, tuple | list) else (found,):
            if isinstance(one, Tensor):
                self.numbers = max(
                    self.numbers, one.untyped_storage().nbytes() // one.element_size()
                )
        return found


class Far(scores.Score):
    """A score of one's own that holds a vector for each query and key."""

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return -(query.unsqueeze(-2) - key.unsqueeze(-3)).abs().sum(-1)


LENGTH = 256
PROMISED = {
    "scaled dot": (Mechanism(), 1),
    "additive": (Mechanism(scores.Additive(8, 8, hidden=32, heads=2)), 32),
    "additive, one head for all": (Mechanism(scores.Additive(8, 8, hidden=32)), 32),
    "of one's own": (Mechanism(Far()), 8),
    "shaw, entmax": (Mechanism(normalize=normalizers.Entmax15(), position=positions.Shaw(8, 4)), 1),
    "alibi": (Mechanism(position=positions.Alibi(2)), 1),
}


@pytest.mark.parametrize(
    "mask",
    [
        None,
        masks.causal(),
        masks.padding([LENGTH]),
        masks.where(lambda b, h, i, j: (i + h) % 7 != j % 5),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", sorted(PROMISED))
def test_looking_holds_what_it_returns_and_a_chunk(
    name: str, mask: Mask | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    mechanism, width = PROMISED[name]
    chunk = 16 * 2 * LENGTH * width  # sixteen rows at a time
    monkeypatch.setattr(sys.modules["saccade.core.record"], "CHUNK_NUMBERS", chunk)
    site, q = Looker(mechanism), torch.randn(1, 2, LENGTH, 8)
    with torch.no_grad(), record(site) as seen:
        site(q, q, None if mask is None else mask)
    returned = 2 * LENGTH * LENGTH
    with Largest() as whole:
        found = seen["attention"].weights()
    assert found.numel() == returned
    assert whole.numbers <= max(chunk, returned)
    with Largest() as some:
        found = seen["attention"].weights(rows=[3, 100, 255], heads=[1])
    assert some.numbers <= chunk, "three rows far apart are computed one by one"
    torch.testing.assert_close(found, weights(q, q, mechanism, mask)[:, 1:, [3, 100, 255]])


def test_the_largest_tensor_is_noticed() -> None:
    with Largest() as seen:
        (torch.zeros(3, 4).unsqueeze(-1) + torch.zeros(5)).sum()
    assert seen.numbers == 60


# --- several passes of one site ---


def test_a_layer_that_is_called_three_times_has_an_axis_for_the_calls() -> None:
    layer, x = MultiHeadAttention(8, 2), [torch.randn(2, 5, 8) for _ in range(3)]
    with record(layer) as seen:
        for one in x:
            layer(one, mask=masks.causal())
    found = seen["attention"].weights()
    assert found.shape == (3, 2, 2, 5, 5)
    assert [len(calls) for calls in seen["attention"].passes] == [1, 1, 1]
    for n, one in enumerate(x):
        q, k = layer.split(layer.q(one), 2), layer.split(layer.k(one), 2)
        torch.testing.assert_close(found[n], weights(q, k, None, masks.causal()))
        torch.testing.assert_close(seen["attention"].calls[n].weights(), found[n])
    torch.testing.assert_close(
        seen["attention"].weights(rows=[4, 0], heads=[1]), found[:, :, 1:, [4, 0]]
    )
    memory = torch.randn(2, 7, 8)
    with record(layer) as seen:
        for one in x:
            layer(one, memory)
    assert seen["attention"].weights().shape == (3, 2, 2, 5, 7)


@pytest.mark.parametrize("groups", [1, 2])
def test_a_block_used_at_several_depths_has_a_pass_for_each(groups: int) -> None:
    settings = {**SMALL, "depth": 4, "stack": {"name": "shared", "groups": groups}}
    model = Builder({**settings, "family": "transformer-encoder"}).make(AttendingEncoder, 11).eval()
    x, inputs = model.embedding(SOURCE, torch.arange(5)), []
    with record(model) as seen:
        model(SOURCE, LENGTHS)
    for block in model.encoder:
        inputs.append(block.around_mixer.norm(x))
        x = block(x, masks.padding(LENGTHS))
    for n in range(groups):
        found, layer = seen[f"encoder.{n}.mixer"].weights(), model.encoder.block(n).mixer
        assert found.shape == (4 // groups, 2, 2, 5, 5)
        for turn, each in enumerate(inputs[n::groups]):
            q, k = layer.split(layer.q(each), 2), layer.split(layer.k(each), 2)
            torch.testing.assert_close(found[turn], weights(q, k, None, masks.padding(LENGTHS)))


def test_the_steps_of_a_shared_decoder_are_the_rows_of_each_depths_pass() -> None:
    model = transformer(depth=3, stack="shared")
    with torch.no_grad(), record(model) as seen:
        model(SOURCE, LENGTHS, TARGET)
    with torch.no_grad(), record(model) as steps:
        state = model.start(SOURCE, LENGTHS)
        for t in range(3):
            _, state = model.step(TARGET[:, t], state)
    for name, shape in (
        ("decoder.0.mixer", (3, 2, 2, 3, 3)),
        ("decoder.0.cross", (3, 2, 2, 3, 5)),
        ("encoder.0.mixer", (3, 2, 2, 5, 5)),
    ):
        assert steps[name].weights().shape == shape
        torch.testing.assert_close(steps[name].weights(), seen[name].weights())
        assert steps[name].cross == name.endswith("cross")
    assert [len(calls) for calls in steps["decoder.0.cross"].passes] == [3, 3, 3]


def test_a_second_sentence_decoded_in_steps_is_a_second_pass() -> None:
    model = transformer()
    with torch.no_grad(), record(model) as seen:
        for rows in ([0, 1], [1, 0]):
            state = model.start(SOURCE, LENGTHS)
            for t in range(3):
                _, state = model.step(TARGET[rows][:, t], state)
    found = seen["decoder.1.cross"].weights()
    assert found.shape == (2, 2, 2, 3, 5)
    assert not torch.equal(found[0], found[1])


def test_a_prompt_and_the_steps_behind_it_are_one_pass() -> None:
    model = (
        Builder({**SMALL, "family": "transformer-decoder", "position": "alibi"})
        .make(CausalLM, 12)
        .eval()
    )
    tokens = torch.tensor([[1, 2, 3, 4, 5], [5, 4, 3, 2, 1]])
    with torch.no_grad(), record(model) as whole:
        model(tokens)
    with torch.no_grad(), record(model) as steps:
        state = model.start(tokens[:, :3], torch.tensor([3, 3]))
        for t in (3, 4):
            _, state = model.step(tokens[:, t], state)
    for name in ("decoder.0.mixer", "decoder.1.mixer"):
        assert len(steps[name].passes) == 1
        torch.testing.assert_close(steps[name].weights(), whole[name].weights())


@pytest.mark.slow
def test_a_record_of_a_shared_stack_survives_torch_compile() -> None:
    settings = {**SMALL, "family": "transformer-encoder", "stack": "shared", "position": "rotary"}
    check_record_and_compile(
        Builder(settings).make(AttendingEncoder, 11).eval(), "eager", (SOURCE, LENGTHS)
    )


def test_what_is_not_a_model_is_not_recorded() -> None:
    with raises("not-a-module"), record(3):
        pass
