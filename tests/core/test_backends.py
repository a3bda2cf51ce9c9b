"""What each backend refuses, whom it beats, and the traps each must step over. That all equal eager is in test_catalogue.py."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from saccade.core import Mechanism, Positions, attend, backends, masks, normalizers, positions, scores
from saccade.core.attention import pose
from saccade.core.backends import flex, linear
from saccade.core.masks import Mask
from saccade.errors import SaccadeError

KERNEL = Mechanism(scores.EluKernel(), normalizers.Sum())


def tensors(queries: int, keys: int, heads: int = 2, width: int = 16, **options: object) -> tuple[Tensor, Tensor, Tensor]:
    return tuple(torch.randn(2, heads, n, width, **options) for n in (queries, keys, keys))  # type: ignore[return-value,arg-type]


@pytest.fixture
def plain_flex(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """FlexAttention without its compiler: the same arithmetic in a moment."""
    monkeypatch.setattr(flex, "compiled", lambda device: flex_attention)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    flex._block_masks.clear()


# --- refusals and choice ---

REFUSALS: list[tuple[str, Mechanism, dict[str, object], str]] = [
    ("sdpa", Mechanism(scores.Additive(16, 16)), {}, "the score is no dot product"),
    ("sdpa", Mechanism(normalize=normalizers.Relu()), {}, "no normalizer but softmax"),
    ("sdpa", Mechanism(position=positions.Shaw(16)), {}, "adds to what is summed"),
    ("flex", Mechanism(scores.Additive(16, 16)), {}, "the score is no dot product"),
    ("flex", Mechanism(normalize=normalizers.Sparsemax()), {}, "no normalizer but softmax"),
    ("flex", Mechanism(position=positions.Shaw(16)), {}, "adds to what is summed"),
    ("flex", Mechanism(), {"dropout": 0.1}, "drops no weights"),
    ("flex", Mechanism(position=positions.T5Buckets(2)), {}, "no backward on a CPU"),
    ("linear", Mechanism(), {}, "the score is no kernel"),
    ("linear", Mechanism(scores.EluKernel()), {}, "no normalizer but sum"),
    ("linear", KERNEL, {"mask": masks.window(2)}, r"Window\(2, 2\) is more than causal and padding"),
    ("linear", KERNEL, {"mask": masks.causal() | masks.padding([1, 2])}, "more than causal and padding"),
    ("linear", KERNEL, {"dropout": 0.1}, "dropout falls on weights"),
]


@pytest.mark.parametrize(("name", "mechanism", "options", "reason"), REFUSALS, ids=[f"{case[0]}: {case[3]}" for case in REFUSALS])
def test_a_refused_backend_asked_for_by_name_says_its_reason(
    name: str, mechanism: Mechanism, options: dict[str, object], reason: str
) -> None:
    q, k, v = tensors(3, 5)
    with pytest.raises(SaccadeError, match=f"backend '{name}' refuses: .*{reason}.*; leave `backend` out"):
        attend(q, k, v, mechanism, backend=name, **options)  # type: ignore[arg-type]
    assert attend(q, k, v, mechanism, **options).shape == (2, 2, 3, 16)  # type: ignore[arg-type]


def test_flex_refuses_what_its_kernels_cannot_do() -> None:
    with pytest.raises(SaccadeError, match="it does not run in float64"):
        attend(*tensors(3, 3, dtype=torch.float64), backend="flex")
    with pytest.raises(SaccadeError, match="it has no backward on a CPU"):
        attend(*tensors(3, 3, requires_grad=True), backend="flex")
    with pytest.raises(SaccadeError, match="it does not run on 'meta'"):
        attend(*tensors(3, 3, device="meta"), backend="flex")


def test_eager_refuses_nothing_and_the_lowest_rank_is_taken() -> None:
    problem = pose(*tensors(3, 5), Mechanism(normalize=normalizers.Relu()), None, None, 0.0)
    assert backends.eager.Eager().refuses(problem) is None
    assert backends.choose(problem) is backends.table["eager"]
    problem = pose(*tensors(3, 5), None, masks.causal(), None, 0.0)
    assert backends.choose(problem) is backends.table["sdpa"], "measured: twice as fast as eager on a CPU, also with a dense mask"


@pytest.mark.parametrize(("keys", "chosen"), [(17, "linear"), (16, "eager")])
def test_linear_attention_is_taken_where_it_saves_something(keys: int, chosen: str) -> None:
    problem = pose(*tensors(keys, keys), KERNEL, None, None, 0.0)
    assert backends.choose(problem) is backends.table[chosen]


# --- traps of SDPA ---


@pytest.mark.parametrize("queries", [1, 2, 5])
def test_sdpas_is_causal_is_never_used_with_a_cache(queries: int) -> None:
    q, k, v = tensors(7, 7)
    whole = attend(q, k, v, mask=masks.causal(), backend="eager")
    found = attend(q[:, :, -queries:], k, v, mask=masks.causal(), backend="sdpa")
    torch.testing.assert_close(found, whole[:, :, -queries:])


def test_sdpa_runs_the_fused_causal_kernel_only_for_a_square(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, plain = [], torch.nn.functional.scaled_dot_product_attention

    def spy(*args: Tensor, **options: object) -> Tensor:
        asked.append((options["is_causal"], options["attn_mask"] is not None))
        return plain(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    q, k, v = tensors(5, 5)
    attend(q, k, v, mask=masks.causal())
    attend(q[:, :, 3:], k, v, mask=masks.causal())
    attend(q[:, :, 4:], k, v, mask=masks.causal())
    attend(q, k, v, Mechanism(position=positions.Alibi(2)), mask=masks.causal())
    attend(q, k, v)
    assert asked == [(True, False), (False, True), (False, False), (False, True), (False, False)]


@pytest.mark.parametrize("bent", [False, True])
def test_sdpa_gives_zeros_and_no_gradient_in_rows_that_may_attend_nowhere(bent: bool) -> None:
    q, k, v = tensors(3, 4, requires_grad=True)
    mechanism = Mechanism(position=positions.Alibi(2) if bent else None)
    found = attend(q, k, v, mechanism, mask=masks.matrix([[0, 0, 0, 0], [1, 0, 0, 1], [0, 0, 0, 0]]), backend="sdpa")
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


def test_which_masks_lie_on_keys_alone() -> None:
    causal, padding = masks.causal(), masks.padding([1])
    assert linear.on_keys(causal & padding) == (True, True)
    assert linear.on_keys(padding) == (True, False)
    assert linear.on_keys(padding & masks.window(1)) == (False, False)
    assert linear.key_part(causal & padding) is padding


# --- flex ---

PLANES = masks.matrix(torch.stack([torch.zeros(150, 150), torch.ones(150, 150).tril()]).bool())
FLEX: list[tuple[str, Callable[[], Mechanism], Mask | None]] = [
    ("plain", Mechanism, None),
    ("causal", Mechanism, masks.causal()),
    ("padding with an empty row", Mechanism, masks.padding([0, 140])),
    ("window and padding", Mechanism, masks.window(3, 50) & masks.padding([150, 70])),
    ("a matrix a head", Mechanism, PLANES),
    ("documents", Mechanism, masks.documents(torch.arange(300).view(2, 150) // 40)),
    ("alibi", lambda: Mechanism(position=positions.Alibi(2)), masks.causal()),
    ("t5", lambda: Mechanism(position=positions.T5Buckets(2)), masks.padding([150, 20])),
    ("shaw without values", lambda: Mechanism(position=positions.Shaw(16, 3, values=False)), masks.causal()),
    ("rotary and cosine", lambda: Mechanism(scores.Cosine(2), position=positions.Rotary()), masks.prefix([7, 9])),
]


@pytest.mark.usefixtures("plain_flex")
@pytest.mark.parametrize(("mechanism", "mask"), [case[1:] for case in FLEX], ids=[case[0] for case in FLEX])
@pytest.mark.parametrize("queries", [150, 9])
@torch.no_grad()
def test_flex_uncompiled_is_eager(mechanism: Callable[[], Mechanism], mask: Mask | None, queries: int) -> None:
    q, k, v = tensors(queries, 150)
    made = mechanism()
    torch.testing.assert_close(attend(q, k, v, made, mask, backend="flex"), attend(q, k, v, made, mask, backend="eager"))


@pytest.mark.usefixtures("plain_flex")
@torch.no_grad()
def test_flex_shares_heads_by_groups_also_when_the_keys_were_repeated_for_a_score() -> None:
    q, (_, k, v) = torch.randn(2, 4, 5, 16), tensors(1, 5)
    for mechanism in (Mechanism(), Mechanism(scores.Bilinear(16, 16, heads=4))):
        torch.testing.assert_close(attend(q, k, v, mechanism, backend="flex"), attend(q, k, v, mechanism, backend="eager"))


@pytest.mark.usefixtures("plain_flex")
@pytest.mark.parametrize("position", [positions.Alibi(2), positions.T5Buckets(2)], ids=["alibi", "t5"])
@torch.no_grad()
def test_flex_bends_by_the_places_handed_in(position: positions.Position) -> None:
    q, k, v = tensors(3, 4)
    for i, j in (
        (torch.tensor([9, 0, 5]), torch.tensor([7, 7, 2, 0])),
        (torch.randint(0, 50, (2, 3)), torch.randint(0, 50, (2, 4))),
    ):
        found = [attend(q, k, v, Mechanism(position=position), positions=Positions(i, j), backend=name) for name in ("flex", "eager")]
        torch.testing.assert_close(*found)


@pytest.mark.parametrize("mask", [masks.causal(), masks.padding([1, 300]), masks.window(20), PLANES], ids=repr)
def test_a_block_of_the_block_mask_is_there_where_a_place_of_it_is(mask: Mask) -> None:
    queries = keys = 150 if mask is PLANES else 300
    found = flex.block_mask(mask, (2, 2, queries, keys), torch.device("cpu")).to_dense()
    dense = torch.zeros(2, 2, 384, 384, dtype=torch.bool)
    dense[:, :, :queries, :keys] = mask.dense(2, 2, queries, keys)
    blocks = dense.view(2, 2, 3, 128, 3, 128).any(5).any(3)
    found = found.expand(2, 2, *found.shape[2:]).bool()
    assert torch.equal(found, blocks[:, :, : found.shape[2], : found.shape[3]])


def test_block_masks_are_made_once_for_a_mask_and_its_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    flex._block_masks.clear()
    monkeypatch.setattr(flex, "CACHED", 2)
    cpu, sizes = torch.device("cpu"), (2, 2, 20, 20)
    first = flex.block_mask(masks.padding([3, 4]), sizes, cpu)
    assert flex.block_mask(masks.padding([3, 4]), sizes, cpu) is first, "an equal mask made anew is the same mask"
    assert flex.block_mask(masks.padding([3, 5]), sizes, cpu) is not first
    assert flex.block_mask(masks.padding([3, 4]), (2, 2, 20, 24), cpu) is not first
    assert len(flex._block_masks) == 2, "the cache has an end"
    with pytest.raises(SaccadeError, match="batch of 1"):
        flex.block_mask(masks.padding([3]), sizes, cpu)
    causal = flex.block_mask(masks.causal(), sizes, cpu)
    assert flex.block_mask(masks.causal(), (7, 5, 20, 20), cpu) is causal, "where the batch does not matter it is not asked"
    flex._block_masks.clear()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inductor uses parts of torch that torch calls deprecated
@torch.no_grad()
def test_flex_compiled_is_eager() -> None:
    q, k, v = tensors(150, 150)
    for mechanism, mask in ((Mechanism(), PLANES), (Mechanism(position=positions.Alibi(2)), masks.padding([0, 140]))):
        torch.testing.assert_close(
            attend(q, k, v, mechanism, mask, backend="flex"), attend(q, k, v, mechanism, mask, backend="eager")
        )
