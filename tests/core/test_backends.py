"""What each backend refuses, which one is chosen, and the traps of each. That all equal eager is in test_catalogue.py."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable

import pytest
import torch
from core_helpers import mechanism as built
from tests.support import raises
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask

from saccade.core import (
    Mechanism,
    Positions,
    attend,
    backends,
    masks,
    normalizers,
    positions,
    scores,
    which_backend,
)
from saccade.core import weights as core_weights
from saccade.core.attention import build_call
from saccade.core.backends import flex
from saccade.core.backends.call import CannotCompile
from saccade.core.masks import Mask
from saccade.errors import SaccadeError

KERNEL = Mechanism(scores.EluKernel(), normalizers.Sum())


def tensors(
    queries: int, keys: int, heads: int = 2, width: int = 16, **options: object
) -> tuple[Tensor, Tensor, Tensor]:
    return tuple(torch.randn(2, heads, n, width, **options) for n in (queries, keys, keys))  # type: ignore[return-value,arg-type]


# --- refusals and choice ---

REFUSALS: list[tuple[str, Mechanism, dict[str, object], str]] = [
    ("sdpa", Mechanism(scores.Additive(16, 16)), {}, "the score is not a dot product"),
    ("sdpa", Mechanism(normalize=normalizers.Relu()), {}, "the normalizer is not softmax"),
    ("sdpa", Mechanism(position=positions.Shaw(16)), {}, "the position adds to the values"),
    ("flex", Mechanism(scores.Additive(16, 16)), {}, "the score is not a dot product"),
    ("flex", Mechanism(normalize=normalizers.Sparsemax()), {}, "the normalizer is not softmax"),
    ("flex", Mechanism(position=positions.Shaw(16)), {}, "the position adds to the values"),
    ("flex", Mechanism(), {"dropout": 0.1}, "it has no dropout"),
    ("flex", Mechanism(position=positions.T5Buckets(2)), {}, "no backward on a CPU"),
    ("linear", Mechanism(), {}, "the score is not a kernel"),
    ("linear", Mechanism(scores.EluKernel()), {}, "the normalizer is not sum"),
    (
        "linear",
        KERNEL,
        {"mask": masks.window(2)},
        r"Window\(2, 2\) is more than causal and padding",
    ),
    (
        "linear",
        KERNEL,
        {"mask": masks.causal() | masks.padding([1, 2])},
        "more than causal and padding",
    ),
    ("linear", KERNEL, {"dropout": 0.1}, "dropout falls on weights"),
]


@pytest.mark.parametrize(
    ("name", "mechanism", "options", "reason"),
    REFUSALS,
    ids=[f"{case[0]}: {case[3]}" for case in REFUSALS],
)
def test_a_refused_backend_asked_for_by_name_says_its_reason(
    name: str, mechanism: Mechanism, options: dict[str, object], reason: str
) -> None:
    q, k, v = tensors(3, 5)
    with pytest.raises(
        SaccadeError, match=f"backend '{name}' refuses: .*{reason}.*; leave `backend` out"
    ):
        attend(q, k, v, mechanism, backend=name, **options)  # type: ignore[arg-type]
    assert attend(q, k, v, mechanism, **options).shape == (2, 2, 3, 16)  # type: ignore[arg-type]


def test_flex_refuses_what_its_kernels_cannot_do() -> None:
    with pytest.raises(SaccadeError, match="it does not run in float64"):
        attend(*tensors(3, 3, dtype=torch.float64), backend="flex")
    with pytest.raises(SaccadeError, match="it has no backward on a CPU"):
        attend(*tensors(3, 3, requires_grad=True), backend="flex")
    with pytest.raises(SaccadeError, match="it does not run on 'meta'"):
        attend(*tensors(3, 3, device="meta"), backend="flex")
    with pytest.raises(SaccadeError, match="the batch is empty"):
        attend(*(x[:0] for x in tensors(3, 3)), backend="flex")


def test_eager_refuses_nothing_and_the_lowest_rank_is_taken() -> None:
    call = build_call(*tensors(3, 5), Mechanism(normalize=normalizers.Relu()), None, None, 0.0)
    assert backends.eager.Eager().refuses(call) is None
    assert backends.choose(call) is backends.table["eager"]
    call = build_call(*tensors(3, 5), None, masks.causal(), None, 0.0)
    assert backends.choose(call) is backends.table["sdpa"], (
        "measured: twice as fast as eager on a CPU, also with a dense mask"
    )


@pytest.mark.parametrize(("keys", "chosen"), [(17, "linear"), (16, "eager")])
def test_linear_attention_is_taken_where_it_saves_something(keys: int, chosen: str) -> None:
    call = build_call(*tensors(keys, keys), KERNEL, None, None, 0.0)
    assert backends.choose(call) is backends.table[chosen]


@pytest.mark.parametrize("normalize", [one.name for one in normalizers.table if one.name != "sum"])
def test_a_compiled_function_holds_every_normalizer_in_one_graph(normalize: str) -> None:
    torch._dynamo.reset()
    mechanism, mask = (
        built("scaled-dot", normalize, "rotary"),
        masks.causal() & masks.padding([3, 6]),
    )
    q, k, v = tensors(6, 6, width=4, requires_grad=True)
    run = lambda q, k, v: attend(q, k, v, mechanism, mask)
    found, expected = (
        one(q, k, v) for one in (torch.compile(run, backend="eager", fullgraph=True), run)
    )
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    inputs = [v] if normalize == "hard" else [q, k, v]
    pairs = (torch.autograd.grad(x.square().sum(), inputs) for x in (found, expected))
    for one, other in zip(*pairs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


LARGE = {
    "dot": lambda: Mechanism(scores.Dot()),
    "bilinear": lambda: Mechanism(scores.Bilinear(64, 64)),
    "soft-capped": lambda: Mechanism(scores.SoftCapped()),
    "cosine": lambda: Mechanism(scores.Cosine()),
    "alibi": lambda: Mechanism(scores.Dot(), position=positions.Alibi(2)),
    "shaw": lambda: Mechanism(scores.Dot(), position=positions.Shaw(64, 3)),
    "xl": lambda: Mechanism(scores.Dot(), position=positions.table["xl"](dim=64, heads=2)),
    "sparsemax": lambda: Mechanism(scores.Dot(), normalizers.Sparsemax()),
    "entmax": lambda: Mechanism(scores.Dot(), normalizers.Entmax15()),
    "hard": lambda: Mechanism(scores.Dot(), normalizers.Hard()),
}


@pytest.mark.usefixtures("plain_flex")
@pytest.mark.parametrize(
    "mask", [None, masks.causal(), masks.window(2, 0)], ids=["none", "causal", "window"]
)
@pytest.mark.parametrize("name", LARGE)
def test_scores_that_float16_cannot_hold_are_those_of_float32(name: str, mask: Mask | None) -> None:
    """Products of up to 65,504 times four, and a first query whose score of every key is 0."""
    mechanism = LARGE[name]().half().eval()
    q, k, v = (x.half() for x in tensors(9, 9, width=64))
    q, k = 200 * q, 200 * k
    q[:, :, 0] = 0
    expected = attend(
        q.double(), k.double(), v.double(), copy.deepcopy(mechanism).double(), mask, backend="eager"
    )
    assert (
        name in ("cosine", "bilinear", "soft-capped")
        or float((q.float() @ k.float().mT).abs().max()) > 2 * 65504
    )
    for backend in backends.table.names():
        if backends.table[backend].refuses(build_call(q, k, v, mechanism, mask, None, 0.0)) is None:
            found = attend(q, k, v, mechanism, mask, backend=backend)
            assert found.dtype == torch.float16
            torch.testing.assert_close(
                found.double(), expected, rtol=1e-2, atol=1e-2, msg=lambda m, b=backend: f"{b}: {m}"
            )
    assert core_weights(q, k, mechanism, mask).dtype == torch.float16
    q, k, v = (x.requires_grad_() for x in (q, k, v))
    gradients = torch.autograd.grad(
        attend(q, k, v, mechanism, mask, backend="eager").float().sum(),
        (q, k, v),
        allow_unused=True,
    )
    for one in gradients:  # of a zero vector in `cosine` it is infinite
        assert (
            one is None or name == "cosine" or (one.isfinite().all() and one.dtype == torch.float16)
        )


def test_scores_are_those_of_float32_under_autocast_to_float16_too() -> None:
    q, k, v = (100 * x for x in tensors(5, 5, width=64))
    with torch.autocast("cpu", torch.float16):
        found = attend(q, k, v, Mechanism(scores.Dot()), backend="eager")
    torch.testing.assert_close(
        found.float(), attend(q, k, v, Mechanism(scores.Dot())), rtol=1e-2, atol=0.1
    )


@pytest.mark.parametrize("position", [None, positions.Rotary()], ids=["none", "rotary"])
def test_what_a_part_overrides_is_seen_while_a_function_is_compiled(
    position: positions.Position | None,
) -> None:
    mechanism, (q, k, v), reasons = Mechanism(position=position), tensors(3, 3), []

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        reasons.append(
            backends.sdpa.backend.refuses(build_call(q, k, v, mechanism, masks.causal(), None, 0.0))
        )
        return q

    torch.compile(run, backend="eager", fullgraph=True)(q, k, v)
    assert reasons == [None], "a compiled model runs on the fused kernel too"


@pytest.mark.parametrize("queries", [1, 2, 3, 5])
def test_the_definition_hides_the_future_from_any_number_of_queries(queries: int) -> None:
    q, k, v = tensors(queries, 5, dtype=torch.float64)
    seen = torch.arange(5) <= torch.arange(5 - queries, 5)[:, None]
    expected = (q @ k.mT / 4).masked_fill(~seen, -torch.inf).softmax(-1) @ v
    torch.testing.assert_close(attend(q, k, v, mask=masks.causal(), backend="eager"), expected)


# --- traps of SDPA ---


@pytest.mark.parametrize("queries", [1, 2, 5])
def test_sdpas_is_causal_is_never_used_with_a_cache(queries: int) -> None:
    q, k, v = tensors(7, 7)
    whole = attend(q, k, v, mask=masks.causal(), backend="eager")
    found = attend(q[:, :, -queries:], k, v, mask=masks.causal(), backend="sdpa")
    torch.testing.assert_close(found, whole[:, :, -queries:])


@pytest.mark.parametrize(
    ("device", "grad", "queries", "keys", "left_out"),
    [("cuda", True, 64, 64, True), ("cuda", True, 256, 200, True), ("cuda", True, 1, 128, True), ("cuda", True, 256, 128, False),
     ("cuda", False, 64, 64, False), ("cpu", True, 64, 64, False)],
)  # fmt: skip
def test_cudnn_gives_no_gradients_of_lengths_that_do_not_fill_its_tiles(
    device: str, grad: bool, queries: int, keys: int, left_out: bool
) -> None:
    before = torch.backends.cuda.cudnn_sdp_enabled()
    with backends.sdpa.kernels(device, grad, queries, keys):
        assert torch.backends.cuda.cudnn_sdp_enabled() is (before and not left_out)
        assert torch.backends.cuda.math_sdp_enabled()
    assert torch.backends.cuda.cudnn_sdp_enabled() is before


def test_sdpa_runs_the_fused_causal_kernel_only_for_a_square(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, plain = [], torch.nn.functional.scaled_dot_product_attention

    def spy(*args: Tensor, **options: object) -> Tensor:
        asked.append((args[5], args[3] is not None))
        return plain(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    q, k, v = tensors(5, 5)
    attend(q, k, v, mask=masks.causal())
    attend(q[:, :, 3:], k, v, mask=masks.causal())
    attend(q[:, :, 4:], k, v, mask=masks.causal())
    attend(q, k, v, Mechanism(position=positions.Alibi(2)), mask=masks.causal())
    attend(q, k, v)
    assert asked == [(True, False), (False, True), (False, False), (False, True), (False, False)]


@pytest.mark.parametrize("biased", [False, True])
def test_sdpa_gives_zeros_and_no_gradient_in_rows_that_may_attend_nowhere(biased: bool) -> None:
    q, k, v = tensors(3, 4, requires_grad=True)
    mechanism = Mechanism(position=positions.Alibi(2) if biased else None)
    found = attend(
        q,
        k,
        v,
        mechanism,
        mask=masks.matrix([[0, 0, 0, 0], [1, 0, 0, 1], [0, 0, 0, 0]]),
        backend="sdpa",
    )
    assert (found[:, :, [0, 2]] == 0).all()
    assert (found[:, :, 1] != 0).any()
    found.square().sum().backward()
    for x in (q, k, v):
        assert torch.isfinite(x.grad).all()
    assert (q.grad[:, :, [0, 2]] == 0).all()
    assert (k.grad[:, :, 1:3] == 0).all()


# --- linear ---


@pytest.mark.parametrize("length", [1, 63, 64, 65, 150])
def test_the_running_sum_of_linear_attention_crosses_chunks(length: int) -> None:
    q, k, v = tensors(length, length + 3, dtype=torch.float64)
    mask = masks.causal() & masks.padding([length + 3, length // 2])
    found = attend(q, k, v, KERNEL, mask, backend="linear")
    torch.testing.assert_close(found, attend(q, k, v, KERNEL, mask, backend="eager"))


def test_linear_attention_sums_in_float32_also_for_16_bits() -> None:
    q, k, v = tensors(1, 4000, dtype=torch.bfloat16)
    found = attend(q, k, v, KERNEL, backend="linear")
    exact = attend(q.double(), k.double(), v.double(), KERNEL, backend="eager")
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), exact, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize(
    "mask", [masks.padding([0, 40]), masks.padding([0, 40]) & masks.causal()], ids=str
)
def test_linear_attention_has_no_gradient_of_a_row_without_keys(mask: Mask) -> None:
    qkv = [(20 * x).requires_grad_() for x in tensors(40, 40)]
    assert which_backend(*qkv[:2], KERNEL, mask).chosen == "linear"
    pull = torch.randn(2, 2, 40, 16)
    found, expected = (
        torch.autograd.grad(attend(*qkv, KERNEL, mask, backend=name), qkv, pull)
        for name in (None, "eager")
    )
    for one, other in zip(found, expected, strict=True):
        assert (one[0] == 0).all()
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


def test_which_masks_lie_on_keys_alone() -> None:
    causal, padding = masks.causal(), masks.padding([1])
    assert (causal & padding).causal_and_keys() == (True, padding)
    assert padding.causal_and_keys() == (False, padding)
    assert (padding & masks.window(1)).causal_and_keys() is None
    assert (padding | causal).causal_and_keys() is None
    found = (causal & padding & masks.padding([2])).prepare(1, 1, 3, 3).causal_and_keys()
    assert found[0]
    assert found[1].dense(1, 1, 1, 3).tolist() == [[[[True, False, False]]]]


# --- flex ---

PLANES = masks.matrix(torch.stack([torch.zeros(150, 150), torch.ones(150, 150).tril()]).bool())
FLEX: list[tuple[str, Callable[[], Mechanism], Mask | None]] = [
    ("plain", Mechanism, None),
    ("causal", Mechanism, masks.causal()),
    ("padding with an empty row", Mechanism, masks.padding([0, 140])),
    ("window and padding", Mechanism, masks.window(3, 50) & masks.padding([150, 70])),
    ("a matrix per head", Mechanism, PLANES),
    ("documents", Mechanism, masks.documents(torch.arange(300).view(2, 150) // 40)),
    ("alibi", lambda: Mechanism(position=positions.Alibi(2)), masks.causal()),
    ("t5", lambda: Mechanism(position=positions.T5Buckets(2)), masks.padding([150, 20])),
    (
        "shaw without values",
        lambda: Mechanism(position=positions.Shaw(16, 3, values=False)),
        masks.causal(),
    ),
    (
        "rotary and cosine",
        lambda: Mechanism(scores.Cosine(2), position=positions.Rotary()),
        masks.prefix([7, 9]),
    ),
]


@pytest.mark.usefixtures("plain_flex")
@pytest.mark.parametrize(
    ("mechanism", "mask"), [case[1:] for case in FLEX], ids=[case[0] for case in FLEX]
)
@pytest.mark.parametrize("queries", [150, 9])
@torch.no_grad()
def test_flex_uncompiled_is_eager(
    mechanism: Callable[[], Mechanism], mask: Mask | None, queries: int
) -> None:
    q, k, v = tensors(queries, 150)
    made = mechanism()
    torch.testing.assert_close(
        attend(q, k, v, made, mask, backend="flex"), attend(q, k, v, made, mask, backend="eager")
    )


@pytest.mark.usefixtures("plain_flex")
@torch.no_grad()
def test_flex_shares_heads_by_groups_also_when_the_keys_were_repeated_for_a_score() -> None:
    q, (_, k, v) = torch.randn(2, 4, 5, 16), tensors(1, 5)
    for mechanism in (Mechanism(), Mechanism(scores.Bilinear(16, 16, heads=4))):
        torch.testing.assert_close(
            attend(q, k, v, mechanism, backend="flex"), attend(q, k, v, mechanism, backend="eager")
        )


@pytest.mark.usefixtures("plain_flex")
@pytest.mark.parametrize(
    "position", [positions.Alibi(2), positions.T5Buckets(2)], ids=["alibi", "t5"]
)
@torch.no_grad()
def test_flex_biases_by_the_positions_it_is_given(position: positions.Position) -> None:
    q, k, v = tensors(3, 4)
    for i, j in (
        (torch.tensor([9, 0, 5]), torch.tensor([7, 7, 2, 0])),
        (torch.randint(0, 50, (2, 3)), torch.randint(0, 50, (2, 4))),
    ):
        found = [
            attend(q, k, v, Mechanism(position=position), positions=Positions(i, j), backend=name)
            for name in ("flex", "eager")
        ]
        torch.testing.assert_close(*found)


BLOCK_MASKS = {
    "causal": (masks.causal(), 300, 300),
    "padding": (masks.padding([1, 300]), 300, 300),
    "padding, more queries": (masks.padding([1, 100]), 300, 140),
    "causal & padding": (masks.causal() & masks.padding([300, 7]), 300, 300),
    "causal, fewer queries": (masks.causal(), 140, 300),
    "window": (masks.window(20), 300, 300),
    "window & padding": (masks.window(20) & masks.padding([150, 700]), 700, 700),
    "window, fewer queries": (masks.window(20, 0), 130, 700),
    "blocks": (masks.blocks(700, 32, random=1), 700, 700),
    "blocks by head": (masks.blocks(700, 32, random=2, heads=2), 700, 700),
    "a matrix by head": (PLANES, 150, 150),
    "a predicate": (masks.where(lambda b, h, i, j: (i - j) % 256 < 40), 400, 400),
}


@pytest.mark.parametrize("at_once", [1, flex.MAX_CHUNK_PAIRS])
@pytest.mark.parametrize("name", BLOCK_MASKS)
def test_the_blocks_of_a_mask_are_those_that_pytorch_finds_among_all_pairs(
    name: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mask, queries, keys = BLOCK_MASKS[name]
    monkeypatch.setattr(flex, "MAX_CHUNK_PAIRS", at_once)
    made = flex.block_mask(mask, (2, 2, queries, keys), torch.device("cpu"))
    theirs = create_block_mask(
        lambda b, h, i, j: mask(b, h, i + keys - queries, j), 2, 2, queries, keys, device="cpu"
    )
    assert made.seq_lengths == theirs.seq_lengths
    found, wanted = (one.to_dense().expand(2, 2, -1, -1).bool() for one in (made, theirs))
    # a block at the diagonal may end before the first key that is there: it is looked at, and empty
    if name == "causal & padding":
        assert bool((found | ~wanted).all())
    else:
        assert torch.equal(found, wanted)
    assert torch.equal(made.full_kv_num_blocks.expand(2, 2, -1), theirs.full_kv_num_blocks)
    for row, column in wanted.new_ones(wanted.shape[2:]).nonzero().tolist():
        for b, h in ((0, 0), (1, 1)):
            full = [
                column
                in one.full_kv_indices.expand(2, 2, -1, -1)[
                    b, h, row, : one.full_kv_num_blocks.expand(2, 2, -1)[b, h, row]
                ]
                for one in (made, theirs)
            ]
            assert full[0] == full[1]


def test_a_mask_that_knows_its_blocks_is_not_asked_about_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    plain = masks.Window.__call__

    def counted(self: masks.Window, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        answer = plain(self, b, h, i, j)
        asked.append(answer.numel())
        return answer

    monkeypatch.setattr(masks.Window, "__call__", counted)
    for length in (4096, 8192):
        asked.clear()
        flex.block_mask(
            masks.window(64) & masks.padding([length]), (1, 1, length, length), torch.device("cpu")
        )
        assert sum(asked) <= 3 * 128 * length + 1, "three blocks a row"


@pytest.mark.usefixtures("plain_flex")
@torch.no_grad()
def test_a_prepared_mask_makes_its_block_mask_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made, plain = [], flex.block_mask
    monkeypatch.setattr(
        flex, "block_mask", lambda mask, *where: (made.append(mask), plain(mask, *where))[1]
    )
    q, k, v = tensors(20, 20)
    prepared = masks.padding([3, 4]).prepare(2, 2, 20, 20)
    found = [attend(q, k, v, mask=prepared, backend="flex") for _ in range(3)]
    assert len(made) == 1
    torch.testing.assert_close(
        found[2], attend(q, k, v, mask=masks.padding([3, 4]), backend="eager")
    )
    attend(q, k, v, mask=masks.padding([3, 4]).prepare(2, 2, 20, 20), backend="flex")
    assert len(made) == 2, "another mask is another one"
    with raises("mask-batch-differs"):
        plain(masks.padding([3]), (2, 2, 20, 20), torch.device("cpu"))
    causal = plain(masks.causal(), (7, 5, 20, 20), torch.device("cpu"))
    assert causal.kv_num_blocks.shape[:2] == (1, 1), (
        "where the batch and the heads do not matter they are not asked"
    )


# --- a kernel that does not compile ---


def fails(*args: object, **options: object) -> Tensor:
    raise RuntimeError("LoweringException: TypeError: no such op\nand much more")


@pytest.fixture
def broken_flex(plain_flex: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """FlexAttention is the best backend, and its kernel does not compile."""
    monkeypatch.setattr(flex, "compiled_kernel", lambda device: fails)
    monkeypatch.setattr(flex.Flex, "rank", lambda self, call: 1)
    monkeypatch.setattr(backends, "_chosen", {})


WHY = "its kernel does not compile here (LoweringException: TypeError: no such op)"


@pytest.mark.usefixtures("broken_flex")
@torch.no_grad()
def test_a_kernel_that_does_not_compile_falls_to_the_next_backend_with_one_warning() -> None:
    (q, k, v), mask = tensors(3, 5), masks.window(1)
    assert which_backend(q, k, mask=mask).chosen == "flex"
    expected = attend(q, k, v, mask=mask, backend="eager")
    with pytest.warns(
        UserWarning, match=f"backend 'flex': {re.escape(WHY)}; 'sdpa' runs instead"
    ) as warned:
        found = attend(q, k, v, mask=mask)
    assert len(warned) == 1
    torch.testing.assert_close(found, expected)
    # a second warning would be an error
    torch.testing.assert_close(attend(q, k, v, mask=mask), expected)
    found = which_backend(q, k, mask=mask)
    assert found.chosen == "sdpa"
    assert {verdict.backend: verdict.reason for verdict in found}["flex"] == WHY
    assert f"flex    refuses: {WHY}" in str(found)
    # another kind of call is tried by itself
    with pytest.warns(UserWarning, match="'sdpa' runs instead"):
        attend(q, k, v, mask=masks.window(2))


@pytest.mark.usefixtures("broken_flex")
@torch.no_grad()
def test_a_kernel_that_does_not_compile_is_refused_when_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    q, k, v = tensors(3, 5)
    for _ in range(2):
        with pytest.raises(
            SaccadeError,
            match=f"backend 'flex' refuses: {re.escape(WHY)}; leave `backend` out to let one be",
        ):
            attend(q, k, v, backend="flex")
    monkeypatch.setattr(
        flex, "compiled_kernel", lambda device: lambda *args, **options: torch.zeros(())
    )
    assert attend(q, k[:, :, :4], v[:, :, :4], backend="flex").shape == (), (
        "other sizes are not held responsible"
    )


@pytest.mark.usefixtures("broken_flex")
@torch.no_grad()
def test_running_out_of_memory_is_not_taken_for_a_failed_compilation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*args: object, **options: object) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(flex, "compiled_kernel", lambda device: full)
    with pytest.raises(torch.OutOfMemoryError):
        attend(*tensors(3, 3))
    assert not backends.table["flex"].failed


class Fails(masks.Mask):
    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        raise ZeroDivisionError("mine")


class FailsToo(positions.Position):
    def bias(self, q: Tensor, positions: Positions, scale: float) -> Tensor:
        raise ZeroDivisionError("mine")


@pytest.mark.usefixtures("broken_flex")
@pytest.mark.parametrize("backend", ["flex", "sdpa", "eager", None])
@pytest.mark.parametrize(
    ("mechanism", "mask"),
    [(Mechanism(), Fails()), (Mechanism(position=FailsToo()), None)],
    ids=["mask", "bias"],
)
@torch.no_grad()
def test_an_error_of_a_users_own_part_is_raised_as_it_is(
    mechanism: Mechanism, mask: Mask | None, backend: str | None
) -> None:
    with pytest.raises(ZeroDivisionError, match="mine"):
        attend(*tensors(3, 3), mechanism, mask, backend=backend)
    assert not backends.table["flex"].failed


@pytest.mark.usefixtures("plain_flex")
@torch.no_grad()
def test_a_predicate_that_a_kernel_cannot_follow_runs_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flex.Flex, "rank", lambda self, call: 1)
    allowed = masks.window(1).dense(1, 1, 5, 5)[0, 0].tolist()

    def predicate(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return torch.tensor([[allowed[at][to] for to in j.tolist()] for at in i.flatten().tolist()])

    q, k, v = tensors(5, 5)
    with pytest.warns(
        UserWarning,
        match="backend 'flex': its kernel does not compile here .*; 'sdpa' runs instead",
    ):
        found = attend(q, k, v, mask=masks.where(predicate))
    torch.testing.assert_close(found, attend(q, k, v, mask=masks.window(1)))


def test_a_backend_of_ones_own_that_does_not_compile_falls_to_the_next_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken(backends.Backend):
        def refuses(self, call: backends.Call) -> str | None:
            return None

        def rank(self, call: backends.Call) -> int:
            return 1

        def run(self, call: backends.Call) -> Tensor:
            raise CannotCompile("no compiler here")

    monkeypatch.setattr(backends.table, "_entries", dict(backends.table._entries))
    backends.table.add("broken")(Broken())
    q, k, v = tensors(3, 5)
    with pytest.warns(UserWarning, match="backend 'broken': no compiler here; 'sdpa' runs instead"):
        found = attend(q, k, v)
    torch.testing.assert_close(found, attend(q, k, v, backend="sdpa"))
    with pytest.raises(
        SaccadeError, match="backend 'broken' refuses: no compiler here; leave `backend` out"
    ):
        attend(q, k, v, backend="broken")


@pytest.mark.slow
# inductor uses parts of torch that torch calls deprecated
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@torch.no_grad()
def test_flex_compiled_is_eager() -> None:
    q, k, v = tensors(150, 150)
    by_head = masks.where(lambda b, h, i, j: torch.where(h == 0, i == j, j <= i))
    biased = Mechanism(position=positions.Alibi(2))
    for mechanism, mask in (
        (Mechanism(), PLANES),
        (biased, masks.padding([0, 140])),
        (biased, by_head),
        (biased, masks.top_blocks(16, 2)),
    ):
        torch.testing.assert_close(
            attend(q, k, v, mechanism, mask, backend="flex"),
            attend(q, k, v, mechanism, mask, backend="eager"),
        )
