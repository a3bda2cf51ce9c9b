"""The fast decoder generates what the plain loop does, and leaves to the model itself what it does not know."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.support import raises
from torch import Tensor, nn
from torch.nn import functional as F

from saccade import decoding
from saccade.core import masks, record
from saccade.decoding import (
    Beam,
    Hypothesis,
    Sample,
    Search,
    SlidingWindow,
    decode,
    decode_loop,
    engine,
    gpu_loop,
    session,
    weight_layouts,
    why_plain,
)
from saccade.decoding.searches import largest
from saccade.layers.fast.int8 import Int8Linear, to_int8
from saccade.layers.norms import LayerNorm
from saccade.models.builder import Builder
from saccade.models.protocols import CausalLM, Seq2Seq

VOCAB, BOS, EOS, NEVER = 14, 2, 3, (0, 2)
SMALL = {"family": "transformer", "dim": 16, "hidden": 24, "depth": 2, "heads": 4, "dropout": 0.0}
MODELS: dict[str, dict[str, Any]] = {
    "sinusoidal": {},
    "post-norm, one embedding": {"residual": "post-norm", "shared": True},
    "rotary, grouped heads": {"position": "rotary", "kv_heads": 2},
    "alibi, one head of keys": {"position": "alibi", "kv_heads": 1},
    "t5, rms norms": {"position": "t5", "norm": "rms", "residual": "deepnorm"},
    "learned positions, own output matrix": {
        "position_embedding": {"name": "learned", "max_len": 40},
        "tied": False,
    },
    "gated, other heads for the source": {
        "feedforward": "swiglu",
        "cross_heads": 2,
        "stack": "transparent",
    },
    "factorized, shared blocks": {
        "embedding": {"name": "factorized", "rank": 5},
        "stack": "shared",
        "head": "mixture",
    },
    "rezero, gelu, plain dot products": {
        "residual": "rezero",
        "feedforward": {"name": "mlp", "activation": "gelu"},
        "score": "dot",
    },
}
SEARCHES: dict[str, Callable[[], Search]] = {
    "greedy": lambda: Sample(BOS, EOS, NEVER, temperature=0.0),
    "sampled": lambda: Sample(BOS, EOS, NEVER, temperature=1.2, top_k=8, seed=5),
    "beam": lambda: Beam(BOS, EOS, NEVER, width=3),
    "beam of one": lambda: Beam(BOS, EOS, NEVER, width=1),
    "beam, gnmt": lambda: Beam(BOS, EOS, NEVER, width=4, length_penalty=0.6, length_rule="gnmt"),
}
LENGTHS = [9, 1, 4, 9, 7, 2, 9, 5, 3, 8, 6, 9]
needs_blocks = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="this PyTorch has no oneDNN"
)
LIMITS = [35, 5, 13, 0, 20, 1, 35, 3, 8, 35, 2, 4]


def model_of(seed: int = 0, **settings: Any) -> Any:
    torch.manual_seed(seed)
    made = Builder({**SMALL, **settings}).make(Seq2Seq, VOCAB, VOCAB).eval()
    with torch.no_grad():
        # far from the first numbers, where norms and biases do nothing
        for parameter in made.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return made


def batch() -> tuple[Tensor, Tensor]:
    return torch.randint(
        4, VOCAB, (len(LENGTHS), 9), generator=torch.Generator().manual_seed(1)
    ), torch.tensor(LENGTHS)


def plain(monkeypatch: pytest.MonkeyPatch, *given: Any) -> list[list[Hypothesis]]:
    with monkeypatch.context() as patch:
        patch.setattr(decode_loop, "why_plain", lambda model: "asked for")
        patch.setattr(gpu_loop, "why_plain", lambda model: "asked for")
        return decode(*given)


def check_same(wanted: list[list[Hypothesis]], got: list[list[Hypothesis]]) -> None:
    assert [[one.tokens for one in each] for each in got] == [
        [one.tokens for one in each] for each in wanted
    ]
    assert [[one.finished for one in each] for each in got] == [
        [one.finished for one in each] for each in wanted
    ]
    for each, other in zip(wanted, got, strict=True):
        for one, two in zip(each, other, strict=True):
            assert two.log_prob == pytest.approx(one.log_prob, rel=1e-3, abs=1e-3)
            assert two.score == pytest.approx(one.score, rel=1e-3, abs=1e-3)


# the other models there take too long for each run of the tests
RESIDENT = ("rotary, grouped heads", "alibi, one head of keys")
PATHS = [
    pytest.param(
        name,
        there,
        id=f"{name}-{'resident' if there else 'steps'}",
        marks=[pytest.mark.slow] * (there and name not in RESIDENT),
    )
    for name in MODELS
    for there in (False, True)
]


@pytest.mark.parametrize(("name", "device_search"), PATHS)
def test_the_same_tokens_as_the_plain_loop(
    name: str, device_search: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(**MODELS[name])
    assert why_plain(model) is None
    monkeypatch.setattr(gpu_loop, "on_cpu", device_search)
    source, lengths = batch()
    for how in SEARCHES.values():
        wanted = plain(monkeypatch, model, source, lengths, how(), LIMITS)
        check_same(wanted, decode(model, source, lengths, how(), LIMITS))
        one = plain(monkeypatch, model, source[:1], lengths[:1], how(), [12])
        check_same(one, decode(model, source[:1], lengths[:1], how(), [12]))


@pytest.mark.parametrize(
    "name", ["sinusoidal", "rotary, grouped heads", "alibi, one head of keys", "t5, rms norms"]
)
def test_keys_that_no_beam_sees_any_more_are_dropped(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, (source, lengths), kept = model_of(8, **MODELS[name]), batch(), list[bool]()
    original = session.FastSession.grow

    def grow(self: session.FastSession) -> None:
        before = self.filled
        original(self)
        kept.append(self.filled == before)

    monkeypatch.setattr(session.FastSession, "grow", grow)
    monkeypatch.setattr(session, "MIN_GROWTH", 3)
    check_same(
        plain(monkeypatch, model, source, lengths, SEARCHES["beam, gnmt"](), LIMITS),
        decode(model, source, lengths, SEARCHES["beam, gnmt"](), LIMITS),
    )
    assert len(kept) > 2
    assert not all(kept)


@pytest.mark.parametrize("name", list(MODELS))
def test_what_large_models_do_on_a_cpu_gives_the_same_tokens(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, (source, lengths) = model_of(4, **MODELS[name]), batch()
    # every matrix in oneDNN's blocks, also those of the encoder
    monkeypatch.setattr(weight_layouts, "MIN_PACKED_NUMBERS", 0)
    monkeypatch.setattr(weight_layouts, "MAX_DIRECT_ROWS", 0)
    monkeypatch.setattr(session, "MIN_TRANSPOSED_HEADS", 1)  # turned keys of the source
    monkeypatch.setattr(session, "DROP_INTERVAL", 2)
    for search in ("greedy", "beam", "beam, gnmt"):
        made = [SEARCHES[search]() for _ in range(2)]
        check_same(
            plain(monkeypatch, model, source, lengths, made[0], LIMITS),
            decode(model, source, lengths, made[1], LIMITS),
        )


@needs_blocks
def test_the_encoder_multiplies_by_blocks_that_are_made_once() -> None:
    torch.manual_seed(0)
    one, other = nn.Linear(400, 400), nn.Linear(8, 8)
    x, small, bias, blocks = (
        torch.randn(2, 5, 400),
        torch.randn(3, 8),
        torch.randn(400),
        weight_layouts.PackedLinears(weight_layouts.WeightCopies()),
    )
    with torch.inference_mode():
        wanted = [
            one(x),
            F.linear(x, one.weight),
            F.linear(x, one.weight, bias=bias),
            other(small),
            F.linear(x, one.weight * 2),
        ]
        for _ in range(2):
            with blocks:
                got = [
                    one(x),
                    F.linear(x, one.weight),
                    F.linear(x, one.weight, bias=bias),
                    other(small),
                ]
                got.append(F.linear(x, one.weight * 2))
            assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(wanted, got, strict=True))
    assert list(blocks.made) == [id(one.weight)]


@needs_blocks
def test_the_encoder_of_a_large_model_is_in_blocks_where_they_are_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, (source, lengths) = model_of(4), batch()
    for layout, count in (("packed", 2 * 6 + 2 * 2), ("turned", 0)):
        monkeypatch.setattr(weight_layouts, "MIN_PACKED_NUMBERS", 0)
        monkeypatch.setattr(engine, "layout_for", lambda rows, like, layout=layout: layout)
        session.engines.pop(model, None)
        with torch.inference_mode():
            one = session.FastSession(model, source, lengths, 1, 8)
        assert one.engine.blocks is not None
        # of each block of the encoder 6; keys and values of each of the decoder
        assert len(one.engine.blocks.made) == count


@pytest.mark.parametrize("size", [200, 640, 1003, 4096])
def test_the_largest_of_long_rows_are_those_of_topk(size: int) -> None:
    x = torch.randn(9, size, generator=torch.Generator().manual_seed(size))
    x[0, -1], x[1] = 9.0, float("-inf")
    x[1, 5] = 1.0
    for count in (1, 8):
        values, where = largest(x, count)
        assert torch.equal(values, x.topk(count, -1).values)
        assert torch.equal(x.gather(1, where), values)
        assert all(len(set(row)) == count for row in where.tolist())
    # of equal ones the first
    assert torch.equal(largest(torch.zeros(9, size), 1)[1], torch.zeros(9, 1, dtype=torch.long))


def test_sentences_leave_in_groups_and_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    model, (source, lengths), taken = model_of(3), batch(), list[int]()
    original = gpu_loop.Buffers.take

    def take(self: gpu_loop.Buffers, other: gpu_loop.Buffers, slots: list[int]) -> None:
        taken.append(len(slots))
        original(self, other, slots)

    monkeypatch.setattr(gpu_loop.Buffers, "take", take)
    monkeypatch.setattr(gpu_loop, "on_cpu", True)
    limits = [30, *[2] * 11]
    for how in ("greedy", "beam"):
        check_same(
            plain(monkeypatch, model, source, lengths, SEARCHES[how](), limits),
            decode(model, source, lengths, SEARCHES[how](), limits),
        )
    assert taken
    assert max(taken) < len(LENGTHS)


def test_the_fast_decoder_is_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    model, (source, lengths) = model_of(), batch()
    monkeypatch.setattr(
        type(model), "step", lambda *given: pytest.fail("a step of the model itself")
    )
    monkeypatch.setattr(decode_loop, "why_plain", lambda model: None)
    assert len(decode(model, source, lengths, SEARCHES["beam"](), LIMITS)) == len(LENGTHS)


@pytest.mark.parametrize(
    "settings", [{}, {"position": "rotary", "kv_heads": 2}, {"position": "alibi"}], ids=str
)
def test_language_models_continue_a_prompt_alike(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(2)
    model = (
        Builder({**SMALL, "family": "transformer-decoder", **settings}).make(CausalLM, VOCAB).eval()
    )
    assert why_plain(model) is None
    for size in (0, 5, 30):
        prompt = torch.randint(4, VOCAB, (1, size))
        given = (model, prompt, torch.tensor([size]))
        check_same(
            plain(monkeypatch, *given, SEARCHES["beam"](), [36]),
            decode(*given, SEARCHES["beam"](), [36]),
        )
        for how in ("greedy", "sampled"):
            for reader in (model, SlidingWindow(model, 16)):
                given = (reader, prompt, torch.tensor([size]))
                check_same(
                    plain(monkeypatch, *given, SEARCHES[how](), [40]),
                    decode(*given, SEARCHES[how](), [40]),
                )


class OwnNorm(LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 2


def all_readable(model: Any, memory: Tensor, queries: int) -> Any:
    return masks.full().prepare(len(memory), model.heads, queries, memory.shape[1], memory.device)


def own_parts() -> dict[str, Callable[[Any], object]]:
    """What somebody may change in a model: each must be used, on the fast path or off it."""

    def replace_norm(model: Any) -> None:
        for block in model.decoder:
            block.around_mixer.norm.__class__ = OwnNorm

    def subclass(part: Any, name: str, body: Callable[..., Any]) -> None:
        part.__class__ = type("Own", (type(part),), {name: body})

    return {
        "norm": replace_norm,
        "score": lambda model: subclass(model.decoder.block(0).mixer.mechanism.score, "scale", lambda self, width: 0.7),
        "block": lambda model: subclass(model.decoder.block(1), "after_mixer", lambda self, x, *more: x),
        "linear": lambda model: subclass(model.decoder.block(0).cross.out, "forward", lambda self, x: x * 0.5),
        "stack": lambda model: subclass(model.decoder, "step", lambda self, x, caches, *more: (x, caches)),
        "model": lambda model: subclass(model, "readable", lambda self, memory, lengths, queries: all_readable(self, memory, queries)),
        "hook": lambda model: model.decoder.block(0).mixer.register_forward_hook(lambda *given: None),
        "hook of a projection": lambda model: model.decoder.block(0).mixer.q.register_forward_hook(lambda part, x, y: y * 2),
        "feed-forward": lambda model: subclass(model.decoder.block(0).feedforward, "forward", lambda self, x: x.sin()),
        "head": lambda model: subclass(model.head, "forward", lambda self, x: x[..., :VOCAB].cumsum(-1)),
        "embedding": lambda model: subclass(model.target.tokens, "forward", lambda self, ids: nn.Embedding.forward(self, ids.flip(-1)).cos()),
    }  # fmt: skip


@pytest.mark.parametrize("name", own_parts())
@pytest.mark.parametrize("device_search", [False, True], ids=["steps", "resident"])
def test_what_somebody_changed_is_used(
    name: str, device_search: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, (source, lengths) = model_of(4), batch()
    before = decode(model, source, lengths, SEARCHES["greedy"](), [12] * 12)
    own_parts()[name](model)
    monkeypatch.setattr(gpu_loop, "on_cpu", device_search)
    wanted = plain(monkeypatch, model, source, lengths, SEARCHES["greedy"](), [12] * 12)
    check_same(wanted, decode(model, source, lengths, SEARCHES["greedy"](), [12] * 12))
    assert name == "hook" or [one[0].log_prob for one in wanted] != [
        one[0].log_prob for one in before
    ]


def test_parameters_that_change_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model, (source, lengths) = model_of(5), batch()
    for change in (
        lambda: model.decoder.block(0).mixer.q.weight.data.mul_(-1),
        lambda: model.target.tokens.weight.detach().mul_(2),
        lambda: setattr(model.decoder.block(1).mixer, "k", nn.Linear(16, 16)),
        lambda: model.load_state_dict(model_of(6).state_dict()),
    ):
        decode(model, source, lengths, SEARCHES["greedy"](), [9] * 12)
        with torch.no_grad():
            change()
        wanted = plain(monkeypatch, model, source, lengths, SEARCHES["greedy"](), [9] * 12)
        check_same(wanted, decode(model, source, lengths, SEARCHES["greedy"](), [9] * 12))


def first_half(parameter: Tensor) -> None:
    half = parameter.data.view(-1)[: (parameter.numel() + 1) // 2]
    half += 0.5


def one_element(parameter: Tensor) -> None:
    parameter.data.view(-1)[-1] -= 3.0


def rows_reversed(parameter: Tensor) -> None:
    parameter.data.copy_(parameter.data.flip(0))


def two_swapped(parameter: Tensor) -> None:
    flat = parameter.data.view(-1)
    pair = torch.stack([flat.argmax(), flat.argmin()])
    flat[pair] = flat[pair.flip(0)]


def signs_by_numpy(parameter: Tensor) -> None:
    numbers = parameter.detach().numpy().reshape(-1)
    numbers[1::2] *= -1


def other_strides(parameter: Tensor) -> None:
    if parameter.dim() == 2 and parameter.shape[0] == parameter.shape[1]:
        parameter.data = parameter.data.t()


def other_tensor(parameter: Tensor) -> None:
    parameter.data = parameter.data * 1.5


CHANGES = (
    first_half,
    one_element,
    rows_reversed,
    two_swapped,
    signs_by_numpy,
    other_strides,
    other_tensor,
)
CHANGED = {
    **{
        name: MODELS[name]
        for name in (
            "rotary, grouped heads",
            "t5, rms norms",
            "learned positions, own output matrix",
        )
    },
    "turned": {},
    "resident": {"position_embedding": {"name": "learned", "max_len": 40}},
    "int8": {},
    "of inference": {},
    "rnn": {"family": "bahdanau", "dim": 8, "hidden": 8},
    "language model": {"family": "transformer-decoder"},
}


@pytest.mark.parametrize("name", CHANGED)
def test_every_change_of_a_parameter_is_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each parameter and buffer changed in part, in ways that no version counter and no sum sees; the oracle is a copy without caches."""
    settings: Any = CHANGED[name] if name == "rnn" else {**SMALL, "depth": 1, **CHANGED[name]}
    torch.manual_seed(8)
    model: Any = (
        Builder(settings)
        .make(*((CausalLM, VOCAB) if name == "language model" else (Seq2Seq, VOCAB, VOCAB)))
        .eval()
    )
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    if name == "of inference":
        with torch.inference_mode():
            model = copy.deepcopy(model)
        assert next(model.parameters()).is_inference()
    model = to_int8(model) if name == "int8" else model
    monkeypatch.setattr(weight_layouts, "MIN_PACKED_NUMBERS", 10**9 if name == "turned" else 0)
    monkeypatch.setattr(engine, "MIN_PACKED_TOKENS", 0)
    monkeypatch.setattr(gpu_loop, "on_cpu", name == "resident")
    source, lengths = torch.tensor([[5, 6, 7], [8, 9, 4]]), torch.tensor([3, 3])
    tensors = [*model.parameters(), *(one for one in model.buffers() if one.is_floating_point())]
    kinds, found = itertools.cycle(CHANGES), []
    for each in tensors:
        for _ in range(2):
            with torch.inference_mode(name == "of inference"):
                next(kinds)(each)
            wanted = plain(
                monkeypatch, copy.deepcopy(model), source, lengths, SEARCHES["greedy"](), [2, 2]
            )
            got = decode(model, source, lengths, SEARCHES["greedy"](), [2, 2])
            check_same(wanted, got)
            found.append([one[0].log_prob for one in wanted])
            assert [one[0].log_prob for one in got] == pytest.approx(found[-1], abs=1e-4)
    # most changes do change the output
    assert sum(one != other for one, other in itertools.pairwise(found)) >= len(tensors)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_fingerprint_knows_every_bit_and_its_place(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(weight_layouts, "THREAD_BYTES", 1000)
    weight = torch.randn(40, 30, generator=torch.Generator().manual_seed(0))
    prints = {tuple(weight_layouts.fingerprint(weight))}
    for change in (
        first_half,
        one_element,
        rows_reversed,
        two_swapped,
        signs_by_numpy,
        lambda w: w.data.copy_(w.data.roll(1, 1)),
    ):
        change(weight)
        prints.add(tuple(weight_layouts.fingerprint(weight)))
    for place in (0, 1, 599, 1199):
        bits = weight.view(torch.int32).view(-1)
        for bit in (1, 1 << 23, -(1 << 31)):
            bits[place] ^= bit
            prints.add(tuple(weight_layouts.fingerprint(weight)))
    assert len(prints) == 1 + 6 + 12
    # of numbers, however they lie
    assert weight_layouts.fingerprint(weight.t().contiguous().t()) == weight_layouts.fingerprint(
        weight
    )


def test_a_changed_setting_of_a_part_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    model, (source, lengths) = model_of(4, position="rotary", residual="deepnorm"), batch()
    for change in (
        lambda: setattr(model.decoder.block(0).around_mixer, "alpha", 3.0),
        lambda: setattr(model.decoder.block(0).mixer.mechanism.position, "base", 7.0),
        lambda: setattr(model.decoder.block(1).around_mixer.norm, "eps", 2.0),
        lambda: setattr(model.head, "scale", 0.3),
    ):
        before = decode(model, source, lengths, SEARCHES["greedy"](), [9] * 12)
        change()
        wanted = plain(
            monkeypatch, copy.deepcopy(model), source, lengths, SEARCHES["greedy"](), [9] * 12
        )
        check_same(wanted, decode(model, source, lengths, SEARCHES["greedy"](), [9] * 12))
        assert [one[0].log_prob for one in before] != [one[0].log_prob for one in wanted]


@pytest.mark.parametrize(
    ("settings", "part"),
    [({"mixer": "dynamic-convolution"}, "mixer"), ({"normalize": "sparsemax"}, "normalizer"), ({"position": "shaw"}, "position"),
     ({"mask": {"name": "window", "left": 3}}, "mask"), ({"residual": "fixup"}, "residual"), ({"score": "additive"}, "score")],
)  # fmt: skip
def test_the_reason_names_the_part(settings: dict[str, Any], part: str) -> None:
    assert f"the {part} " in str(why_plain(model_of(**settings)))


def test_a_model_in_training_or_with_an_open_record_decodes_by_itself() -> None:
    model, (source, lengths) = model_of(), batch()
    assert why_plain(model.train()) == "the model is in training mode"
    model.eval()
    with record(model) as seen:
        assert why_plain(model) == "a record of the weights is open"
        decode(model, source[:2], lengths[:2], SEARCHES["greedy"](), [4, 4])
    assert seen["decoder.0.cross"].calls
    found = decode(
        model, source, lengths, Beam(BOS, EOS, NEVER, width=2, coverage_penalty=0.5), LIMITS
    )
    assert len(found) == len(LIMITS)
    assert "not a Transformer" in str(why_plain(nn.Linear(2, 2)))


@pytest.mark.parametrize("device_search", [False, True], ids=["steps", "resident"])
def test_a_position_beyond_a_learned_table_is_an_error(
    device_search: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(position_embedding={"name": "learned", "max_len": 10})
    monkeypatch.setattr(gpu_loop, "on_cpu", device_search)
    source, lengths = batch()
    with raises("position-out-of-range"):
        decode(model, source, lengths, Sample(BOS, EOS, (*NEVER, EOS), temperature=0.0), [20] * 12)


def test_memory_is_kept_once_for_all_beams() -> None:
    model, (source, lengths) = model_of(), batch()
    with torch.inference_mode():
        one = session.FastSession(model, source, lengths, 5, 8)
        one.reorder(torch.arange(len(source)).repeat_interleave(5))
        one.step(torch.full((5 * len(source),), BOS))
    assert one.memory is not None
    assert len(one.memory) == len(source)
    assert one.cache.shape[1] == len(source)
    assert one.memory.turned is (len(source) * model.heads >= session.MIN_TRANSPOSED_HEADS)


def test_eight_bits_are_close_and_decode_on_both_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    model, (source, lengths) = model_of(7, dim=32, hidden=64), batch()
    small = to_int8(model)
    assert isinstance(small.decoder.block(0).mixer.q, Int8Linear)
    assert why_plain(small) is None
    target = torch.randint(4, VOCAB, (12, 6))
    with torch.no_grad():
        exact, near = model(source, lengths, target), small(source, lengths, target)
    assert 0 < float((exact - near).norm() / exact.norm()) < 0.05
    wanted = plain(monkeypatch, small, source, lengths, SEARCHES["beam"](), LIMITS)
    got = decode(small, source, lengths, SEARCHES["beam"](), LIMITS)
    same = sum(a[0].tokens == b[0].tokens for a, b in zip(wanted, got, strict=True))
    assert same >= 10  # rounded inputs may round otherwise where a sum ends in another digit


def test_the_searches_of_the_package_are_still_there() -> None:
    assert decoding.why_plain is why_plain
