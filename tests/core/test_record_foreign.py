"""Records of models that are not made of saccade's layers: torch.nn on all of its paths, any scaled_dot_product_attention, attend."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest
import torch
from tests.support import raises
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.functional import scaled_dot_product_attention as aliased

import saccade
from saccade.core import attention, intercepts, masks
from saccade.core.record import Seen
from saccade.core.recorder import record

X = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(1))
PADDING = torch.tensor([[0, 0, 0, 0, 0], [0, 0, 0, 1, 1]]).bool()
LATER = torch.ones(5, 5).triu(1).bool()
pytestmark = pytest.mark.filterwarnings(
    "ignore:The PyTorch API of nested tensors",
    "ignore:enable_nested_tensor",
    "ignore:Converting mask",
)


class Own(nn.Module):
    """Attention as people write it, by a function that can be chosen."""

    def __init__(self, call: Any, heads: int = 2, kv_heads: int = 2) -> None:
        super().__init__()
        self.call, self.heads, self.kv_heads = call, heads, kv_heads
        self.q, self.k = nn.Linear(16, heads * 4), nn.Linear(16, kv_heads * 4)

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, 4)).transpose(1, 2)

    def forward(self, x: Tensor, memory: Tensor | None = None, **options: Any) -> Tensor:
        k = self.split(self.k(x if memory is None else memory))
        return self.call(self.split(self.q(x)), k, k, **options)


def stack(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(*layers)


def expected(module: Own, x: Tensor, bias: Tensor | float = 0.0, scale: float = 0.5) -> Tensor:
    q, k = (
        module.split(module.q(x)),
        module.split(module.k(x)).repeat_interleave(module.heads // module.kv_heads, 1),
    )
    return (q @ k.mT * scale + bias).softmax(-1).detach()


def nothing_is_patched() -> None:
    assert F.scaled_dot_product_attention is aliased is intercepts.LISTENERS[0][0]
    assert F.multi_head_attention_forward is intercepts.LISTENERS[1][0]
    assert torch._native_multi_head_attention is intercepts.LISTENERS[2][0]
    assert torch._transformer_encoder_layer_fwd is intercepts.LISTENERS[3][0]
    assert not intercepts.open_watches
    assert not intercepts.model_namespaces
    assert not attention.attend_listeners


@pytest.fixture(autouse=True)
def _all_is_put_back() -> Any:
    torch.manual_seed(0)
    yield
    nothing_is_patched()


# --- scaled_dot_product_attention and attend ---

BIAS = torch.linspace(-3, 3, 25).reshape(5, 5)
SDPA = {
    "plain": ({}, 0.0, 0.5),
    "causal": ({"is_causal": True}, torch.zeros(5, 5).masked_fill(LATER, -torch.inf), 0.5),
    "booleans": ({"attn_mask": ~LATER}, torch.zeros(5, 5).masked_fill(LATER, -torch.inf), 0.5),
    "a bias": ({"attn_mask": BIAS}, BIAS, 0.5),
    "a bias per text": (
        {"attn_mask": torch.stack((BIAS, -BIAS))[:, None]},
        torch.stack((BIAS, -BIAS))[:, None],
        0.5,
    ),
    "scale": ({"scale": 2.0}, 0.0, 2.0),
}


@pytest.mark.parametrize("name", sorted(SDPA))
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_every_option_of_scaled_dot_product_attention(name: str, kv_heads: int) -> None:
    options, bias, scale = SDPA[name]
    module = Own(lambda *args, **more: F.scaled_dot_product_attention(*args, **more), 4, kv_heads)
    with record(module) as seen:
        found = module(X, **options, enable_gqa=kv_heads == 2)
    assert torch.equal(found, module(X, **options, enable_gqa=kv_heads == 2))
    whole = expected(module, X, bias, scale)
    assert list(seen) == ["attention"]
    torch.testing.assert_close(seen["attention"].weights(), whole)
    torch.testing.assert_close(
        seen["attention"].weights(rows=[3, 0], heads=[1]), whole[:, 1:2, [3, 0]]
    )
    assert not seen["attention"].calls[0].q.requires_grad
    assert not seen["attention"].cross


@pytest.mark.parametrize("shape", [(5, 4), (3, 5, 4), (2, 3, 2, 5, 4)])
@pytest.mark.parametrize("masked", [False, True])
def test_any_number_of_dimensions(shape: tuple[int, ...], masked: bool) -> None:
    class Plain(nn.Module):
        def forward(self, q: Tensor, mask: Tensor | None) -> Tensor:
            return F.scaled_dot_product_attention(q, q, q, mask)

    q, module = torch.randn(shape), Plain()
    mask = torch.randn(*shape[:-2], 5, 5) if masked else None
    with record(module) as seen:
        module(q, mask)
    whole = (q @ q.mT / 2 + (0 if mask is None else mask)).softmax(-1)
    torch.testing.assert_close(
        seen["attention"].weights(), whole.reshape(-1, shape[-3] if len(shape) > 3 else 1, 5, 5)
    )


def test_a_row_that_sees_nothing_has_no_weights() -> None:
    module = Own(F.scaled_dot_product_attention)
    allowed = (~LATER).clone()
    allowed[0] = False
    with record(module) as seen:
        module(X, attn_mask=allowed)
    found = seen["attention"].weights()
    assert (found[:, :, 0] == 0).all()
    torch.testing.assert_close(found[:, :, 1:].sum(-1), torch.ones(2, 2, 4))


@pytest.mark.parametrize(
    "call",
    [aliased, F.scaled_dot_product_attention, saccade.attend],
    ids=["alias", "attribute", "attend"],
)
def test_a_function_kept_under_another_name_is_heard(call: Any) -> None:
    module = stack(Own(call), Own(lambda *args: aliased(*args)))
    with record(module[0]) as seen:
        module[0](X)
    torch.testing.assert_close(seen["attention"].weights(), expected(module[0], X))
    with record(module[1]) as seen:
        module[1](X)
    torch.testing.assert_close(seen["attention"].weights(), expected(module[1], X))
    assert module[0].call is call


def test_attend_in_an_own_module_is_seen_once_with_its_mask() -> None:
    module = stack(Own(lambda *args, **more: saccade.attend(*args, mask=masks.causal(), **more)))
    with record(module) as seen:
        module(X)
    assert repr(seen) == "Seen(1 site: 0)"
    assert repr(seen["0"]) == "Looks(0: 1 call, the last B×H×Q×K = 2×2×5×5)"
    torch.testing.assert_close(
        seen["0"].weights(),
        expected(module[0], X, torch.zeros(5, 5).masked_fill(LATER, -torch.inf)),
    )


def test_own_sites_and_foreign_layers_in_one_model() -> None:
    model = stack(
        saccade.MultiHeadAttention(16, 2), nn.TransformerEncoderLayer(16, 2, 8, batch_first=True)
    )
    with record(model) as seen:
        model(X)
    assert list(seen) == ["0", "1.self_attn"]
    assert [len(seen[name].calls) for name in seen] == [1, 1]


def test_other_models_are_not_recorded() -> None:
    mine, other = (
        Own(F.scaled_dot_product_attention),
        Own(lambda *args: F.scaled_dot_product_attention(*args)),
    )
    with record(mine) as seen:
        other(X)
        F.scaled_dot_product_attention(X, X, X)
        mine(X)
    assert len(seen["attention"].calls) == 1


def test_records_of_two_models_inside_one_another_and_closed_in_any_order() -> None:
    models = [stack(Own(F.scaled_dot_product_attention)) for _ in range(2)]
    opened = [record(model) for model in models]
    seen = [one.__enter__() for one in opened]
    for one in models:
        one(X)
    opened[0].__exit__(None, None, None)
    for one in models:
        one(X)
    opened[1].__exit__(None, None, None)
    assert [len(one["0"].calls) for one in seen] == [1, 2]


def test_a_part_of_a_model_can_be_recorded_together_with_the_whole() -> None:
    model = stack(Own(lambda *args: F.scaled_dot_product_attention(*args)))
    with record(model) as whole, record(model[0]) as part:
        model(X)
    assert (list(whole), list(part)) == (["0"], ["attention"])


def test_a_model_that_runs_in_another_thread_is_seen() -> None:
    models = [stack(Own(lambda *args: F.scaled_dot_product_attention(*args))) for _ in range(4)]

    def run(model: nn.Module, into: list[Seen]) -> None:
        with record(model) as seen:
            for _ in range(20):
                model(X)
        into.append(seen)

    found: list[list[Seen]] = [[] for _ in models]
    threads = [threading.Thread(target=run, args=pair) for pair in zip(models, found, strict=True)]
    with record(models[0]) as outer:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [len(one[0]["0"].calls) for one in found] == [20] * 4
    assert len(outer["0"].calls) == 20


def test_an_exception_inside_puts_everything_back() -> None:
    module = Own(F.scaled_dot_product_attention)
    with pytest.raises(RuntimeError), record(module):
        module(torch.randn(2, 5, 7))
    assert module.call is aliased


def test_a_module_imported_while_a_record_is_open_gets_the_plain_function_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late = type(sys)("imported_late")
    monkeypatch.setitem(sys.modules, "imported_late", late)
    with record(Own(F.scaled_dot_product_attention)) as seen:
        late.scaled_dot_product_attention = F.scaled_dot_product_attention  # type: ignore[attr-defined]
        seen["attention"] = None  # type: ignore[assignment]
    assert late.scaled_dot_product_attention is aliased  # type: ignore[attr-defined]


# --- names, passes, cross ---


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.k = nn.Linear(4, 4)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        for _ in range(2):
            x = F.scaled_dot_product_attention(x, self.k(x), x)
        return F.scaled_dot_product_attention(x, memory, memory)


def test_calls_of_one_line_are_passes_and_other_lines_have_numbers() -> None:
    module = stack(Twice())
    with record(module) as seen:
        module[0](torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 4))
    assert list(seen) == ["0", "0#2"]
    assert seen["0"].weights().shape == (2, 2, 3, 5, 5)
    assert seen["0#2"].weights().shape == (2, 3, 5, 7)
    assert [seen[name].cross for name in seen] == [False, True]


class Cached(nn.Module):
    """A decoder's layer with a cache, and a memory."""

    def forward(self, x: Tensor, before: Tensor | None, memory: Tensor) -> Tensor:
        keys = x if before is None else torch.cat((before, x), 2)
        causal = torch.ones(x.shape[2], keys.shape[2]).tril(keys.shape[2] - x.shape[2]).bool()
        F.scaled_dot_product_attention(x, keys, keys, causal)
        F.scaled_dot_product_attention(x, memory, memory)
        return keys


def test_cross_is_read_from_the_layers_own_name_and_not_from_the_models() -> None:
    model = nn.ModuleDict({"cross_encoder": stack(stack(Own(F.scaled_dot_product_attention)))})
    model["encoder_attn"] = Own(F.scaled_dot_product_attention)
    with record(model) as seen:
        model["cross_encoder"](X)
        model["encoder_attn"](X)
    assert {name: looks.cross for name, looks in seen.items()} == {
        "cross_encoder.0.0": False,
        "encoder_attn": True,
    }


@pytest.mark.parametrize("prompt", [1, 3])
def test_steps_with_a_cache_are_rows(prompt: int) -> None:
    layer, x, memory = Cached(), torch.randn(2, 2, 6, 4), torch.randn(2, 2, 4, 4)
    with record(layer) as whole:
        layer(x, None, memory)
    with record(layer) as steps:
        for _ in range(2):
            cache = layer(x[:, :, :prompt], None, memory)
            for t in range(prompt, 6):
                cache = layer(x[:, :, t : t + 1], cache, memory)
    for name in ("attention", "attention#2"):
        torch.testing.assert_close(
            steps[name].weights(), whole[name].weights().expand(2, -1, -1, -1, -1)
        )
        assert steps[name].cross == (name == "attention#2")


def test_what_is_kept_of_many_steps_is_one_cache_and_of_a_projection_is_q_and_k() -> None:
    layer, x, memory, cache = Cached(), torch.randn(2, 2, 50, 4), torch.randn(2, 2, 4, 4), None
    with record(layer) as seen:
        for t in range(50):
            cache = layer(x[:, :, t : t + 1], cache, memory)
    assert len({call.key.untyped_storage().data_ptr() for call in seen["attention"].calls}) == 1
    assert [call.key.shape[2] for call in seen["attention"].calls] == list(range(1, 51))
    q, k, v = torch.randn(2, 2, 5, 3 * 4).chunk(3, -1)
    module = Own(lambda *args: F.scaled_dot_product_attention(q, k, v))
    with record(module) as seen:
        module(X)
    (call,) = seen["attention"].calls
    assert (
        call.q.untyped_storage().nbytes() + call.key.untyped_storage().nbytes()
        == q.nbytes + k.nbytes
    )


def test_a_cache_whose_texts_change_their_order_is_kept_at_each_step() -> None:
    layer, x, memory = Cached(), torch.randn(2, 2, 3, 4), torch.randn(2, 2, 4, 4)
    with record(layer) as seen:
        cache = layer(x[:, :, :2], None, memory)
        layer(x[:, :, 2:], cache.flip(0), memory)
    (looks,) = (seen["attention"],)
    torch.testing.assert_close(looks.calls[0].key, cache)
    torch.testing.assert_close(looks.calls[1].key[:, :, :2], cache.flip(0))
    assert len(looks.passes) == 1


def test_a_cache_that_was_begun_before_the_record() -> None:
    layer, x, memory = Cached(), torch.randn(2, 2, 6, 4), torch.randn(2, 2, 4, 4)
    with record(layer) as whole:
        cache = layer(x[:, :, :3], None, memory)
        layer(x[:, :, 3:], cache, memory)
    with record(layer) as late:
        for t in range(3, 6):
            cache = layer(x[:, :, t : t + 1], cache, memory)
    torch.testing.assert_close(late["attention"].weights(), whole["attention"].weights()[:, :, 3:])
    assert not late["attention"].cross


def test_a_record_that_saw_nothing_says_so() -> None:
    with (
        pytest.warns(
            UserWarning,
            match=r"no attention was seen: .* the model called none of saccade.attend, F.scaled",
        ) as warned,
        record(nn.Linear(2, 2)) as seen,
    ):
        pass
    assert warned[0].filename == __file__
    assert repr(seen) == "Seen(0 sites)"
    with raises("unknown-site"):
        seen["x"]


def test_long_reprs_are_one_line() -> None:
    model = stack(*(Own(F.scaled_dot_product_attention) for _ in range(12)))
    with record(model) as seen:
        for one in model:
            one(X)
    assert repr(seen) == "Seen(12 sites: 0, 1, …, 11)"


# --- torch.nn ---

MHA: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "sequence first": ({"batch_first": False}, {}),
    "padding": ({}, {"key_padding_mask": PADDING}),
    "later positions hidden": ({}, {"attn_mask": LATER, "is_causal": True}),
    "both": ({}, {"attn_mask": LATER, "key_padding_mask": PADDING}),
    "numbers": ({}, {"attn_mask": BIAS}),
    "per head": ({}, {"attn_mask": torch.randn(8, 5, 5)}),
    "bias of k and v": ({"add_bias_kv": True}, {"attn_mask": LATER, "key_padding_mask": PADDING}),
    "a zero": ({"add_zero_attn": True}, {"attn_mask": BIAS}),
    "without biases": ({"bias": False}, {}),
    "odd heads": ({"embed_dim": 16, "num_heads": 1}, {}),
}


@pytest.mark.parametrize("training", [False, True], ids=["evaluating", "training"])
@pytest.mark.parametrize("grad", [False, True], ids=["fast path", "slow path"])
@pytest.mark.parametrize("need_weights", [False, True], ids=["", "with weights"])
@pytest.mark.parametrize("name", sorted(MHA))
def test_multihead_attention(name: str, training: bool, grad: bool, need_weights: bool) -> None:
    settings, given = MHA[name]
    model = nn.MultiheadAttention(
        **{"embed_dim": 16, "num_heads": 4, "batch_first": True, **settings}
    ).train(training)
    if model.bias_k is not None:
        nn.init.normal_(model.in_proj_bias)
    x = X if model.batch_first else X.transpose(0, 1)
    with torch.set_grad_enabled(grad):
        before = model(x, x, x, need_weights=need_weights, **given)[0]
        with record(model) as seen:
            found = model(x, x, x, need_weights=need_weights, **given)[0]
    assert torch.equal(found, before)
    options = {key: value for key, value in given.items() if key != "is_causal"}
    whole = model(x, x, x, need_weights=True, average_attn_weights=False, **options)[1]
    torch.testing.assert_close(seen["attention"].weights(), whole.detach(), atol=1e-5, rtol=1e-5)
    assert not seen["attention"].cross


def test_multihead_attention_to_other_widths_and_without_a_batch() -> None:
    model = nn.MultiheadAttention(16, 4, kdim=6, vdim=3, batch_first=True)
    memory, values = torch.randn(2, 7, 6), torch.randn(2, 7, 3)
    with record(model) as seen:
        model(X, memory, values, need_weights=False)
    whole = model(X, memory, values, average_attn_weights=False)[1]
    torch.testing.assert_close(seen["attention"].weights(), whole.detach())
    flat = nn.MultiheadAttention(16, 4)
    with record(flat) as seen:
        flat(X[1], X[0], X[0], key_padding_mask=PADDING[1])
    whole = flat(X[1], X[0], X[0], key_padding_mask=PADDING[1], average_attn_weights=False)[1]
    torch.testing.assert_close(seen["attention"].weights(), whole[None].detach())
    assert seen["attention"].cross, "another sequence of the same length"


def test_one_module_on_the_fast_and_on_the_slow_path_is_one_site() -> None:
    model = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    with record(model) as seen:
        model(X, X, X)
        with torch.no_grad():
            model(X, X, X)
    found = seen["attention"].weights()
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"src_key_padding_mask": PADDING},
        {"mask": LATER},
        {"mask": LATER, "src_key_padding_mask": PADDING},
    ],
    ids=["plain", "padding", "mask", "both"],
)
def test_an_encoder_on_its_fast_path(norm_first: bool, given: dict[str, Any]) -> None:
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=norm_first)
    model = nn.TransformerEncoder(layer, 2).eval()
    with record(model) as slow:
        model(X, **given)
    with torch.no_grad():
        before = model(X, **given)
        with record(model) as fast:
            assert torch.equal(model(X, **given), before)
    assert list(fast) == list(slow) == ["layers.0.self_attn", "layers.1.self_attn"]
    for name in fast:
        found, whole = fast[name].weights(), slow[name].weights()
        torch.testing.assert_close(found[0], whole[0], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(found[1, :, :3], whole[1, :, :3], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("grad", [True, False])
def test_a_whole_transformer(grad: bool) -> None:
    model = nn.Transformer(16, 4, 2, 2, 32, batch_first=True).eval()
    target = torch.randn(2, 4, 16)
    causal = nn.Transformer.generate_square_subsequent_mask(4)
    with torch.set_grad_enabled(grad):
        before = model(X, target, tgt_mask=causal, memory_key_padding_mask=torch.zeros(2, 5))
        with record(model) as seen:
            assert torch.equal(
                model(X, target, tgt_mask=causal, memory_key_padding_mask=torch.zeros(2, 5)), before
            )
    assert [name for name, looks in seen.items() if looks.cross] == [
        f"decoder.layers.{n}.multihead_attn" for n in (0, 1)
    ]
    assert {name: seen[name].weights().shape for name in seen} == {
        **{f"encoder.layers.{n}.self_attn": (2, 4, 5, 5) for n in (0, 1)},
        **{f"decoder.layers.{n}.self_attn": (2, 4, 4, 4) for n in (0, 1)},
        **{f"decoder.layers.{n}.multihead_attn": (2, 4, 4, 5) for n in (0, 1)},
    }
    assert (seen["decoder.layers.1.self_attn"].weights().triu(1) == 0).all()


# --- torch.compile ---


@pytest.mark.parametrize("in_its_own_class", [True, False])
def test_a_compiled_model_runs_uncompiled_while_it_is_recorded(in_its_own_class: bool) -> None:
    model, calls = stack(Own(lambda *args: F.scaled_dot_product_attention(*args))), []

    def backend(graph: Any, inputs: Any) -> Any:
        calls.append(1)
        return graph.forward

    if in_its_own_class:
        compiled = torch.compile(model, backend=backend)
    else:
        compiled = model
        model.compile(backend=backend)
    compiled(X)
    before = len(calls)
    with record(compiled) as seen:
        compiled(X)
    torch.testing.assert_close(seen["0"].weights(), expected(model[0], X))
    compiled(X)
    assert before == len(calls) == 1, "afterwards it is the compiled one again"


def test_another_model_is_compiled_while_a_record_is_open() -> None:
    model = Own(lambda *args: F.scaled_dot_product_attention(*args))
    other = Own(lambda *args: F.scaled_dot_product_attention(*args))
    compiled = torch.compile(other, backend="eager", fullgraph=True)
    with record(model) as seen:
        torch.testing.assert_close(compiled(X), other(X))
        model(X)
    torch.testing.assert_close(compiled(X), other(X))
    assert len(seen["attention"].calls) == 1
