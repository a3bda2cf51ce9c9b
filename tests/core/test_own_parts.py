"""Parts of one's own: whatever a user overrides holds on every backend, or the backend refuses and says why."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from core_helpers import BACKENDS, HEADS, WIDTH, tensors
from hypothesis import given
from hypothesis import strategies as st
from tests.support import raises
from torch import Tensor, nn

from saccade.core import (
    Mechanism,
    Positions,
    attend,
    backends,
    masks,
    normalizers,
    positions,
    scores,
    weights,
)
from saccade.core.attention import build_call
from saccade.core.masks import Mask
from saccade.errors import SaccadeError

pytestmark = pytest.mark.usefixtures("plain_flex")
near = {"rtol": 1e-4, "atol": 1e-5}
KERNEL = (scores.EluKernel, normalizers.Sum)


def check(
    mechanism: Mechanism,
    mask: Mask | None = None,
    qkv: list[Tensor] | None = None,
    positions: Positions | None = None,
) -> set[str]:
    """Every backend gives what eager gives, or refuses by name; which ones ran, forward and, where they can, backward."""
    ran = set()
    for grad in (False, True):
        q, k, v = (x.detach().requires_grad_(grad) for x in (qkv or tensors()))
        inputs = [q, k, v, *mechanism.parameters()]
        with torch.set_grad_enabled(grad):
            expected = attend(q, k, v, mechanism, mask, positions, backend="eager")
            pull = torch.randn_like(expected)
            wanted = (
                torch.autograd.grad(expected, inputs, pull, materialize_grads=True) if grad else ()
            )
            for name in (*BACKENDS, None):
                call = build_call(q, k, v, mechanism, mask, positions, 0.0)
                if name is not None and backends.table[name].refuses(call) is not None:
                    with pytest.raises(
                        SaccadeError, match=f"backend '{name}' refuses: .*; leave `backend` out"
                    ):
                        attend(q, k, v, mechanism, mask, positions, backend=name)
                    continue
                found = attend(q, k, v, mechanism, mask, positions, backend=name)
                torch.testing.assert_close(
                    found, expected, **near, msg=lambda m, name=name: f"{name}: {m}"
                )
                for one, other in zip(
                    torch.autograd.grad(found, inputs, pull, materialize_grads=True)
                    if grad
                    else (),
                    wanted,
                    strict=True,
                ):
                    torch.testing.assert_close(
                        one, other, rtol=1e-3, atol=1e-4, msg=lambda m, name=name: f"{name}: {m}"
                    )
                ran.add(str(name))
    return ran - {"None", "eager"}


def differs(
    mechanism: Mechanism, plain: Mechanism, mask: Mask | None = None, plain_mask: Mask | None = None
) -> None:
    """The part does something, so that a backend that skipped it would be seen."""
    q, k, v = tensors()
    assert not torch.allclose(
        attend(q, k, v, mechanism, mask), attend(q, k, v, plain, plain_mask), **near
    )


# --- scores ---


class Distance(scores.Score):
    """−‖q − k‖²"""

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return -(query.unsqueeze(-2) - key.unsqueeze(-3)).square().sum(-1)


class Sharp(scores.Score):
    """A learned scale per head."""

    def __init__(self) -> None:
        super().__init__()
        self.sharpness = nn.Parameter(torch.tensor([0.5, 3.0]).view(HEADS, 1, 1))

    def scale(self, width: int) -> Any:
        return self.sharpness / math.sqrt(width)


class Halved(scores.ScaledDot):
    """Another factor, still a plain number."""

    def scale(self, width: int) -> float:
        return super().scale(width) / 2


class Signs(scores.ScaledDot):
    """Queries and keys reduced to their signs."""

    def query(self, q: Tensor) -> Tensor:
        return q.sign()

    def key(self, k: Tensor) -> Tensor:
        return k.sign()


class Shifted(scores.EluKernel):
    """A kernel whose own comparison is more than the product."""

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return super().compare(query, key) + 1


@pytest.mark.parametrize(
    ("make", "runs"),
    [(Distance, set()), (Sharp, set()), (Halved, {"sdpa", "flex"}), (Signs, {"sdpa", "flex"})],
    # a set's own order varies
    ids=lambda one: one.__name__ if isinstance(one, type) else "+".join(sorted(one)) or "none",
)
def test_a_score_of_ones_own_holds_on_every_backend(
    make: Callable[[], scores.Score], runs: set[str]
) -> None:
    mechanism = Mechanism(make())
    differs(mechanism, Mechanism())
    assert check(mechanism, masks.causal()) == runs


def test_a_comparison_set_on_one_object_holds_on_every_backend() -> None:
    score = scores.ScaledDot()
    score.compare = lambda query, key: torch.cdist(query, key)  # type: ignore[method-assign]
    assert not score.dot
    differs(Mechanism(score), Mechanism())
    assert check(Mechanism(score)) == set()


def test_a_query_step_set_on_one_object_holds_on_every_backend() -> None:
    score = scores.ScaledDot()
    score.query = lambda q: 3 * q  # type: ignore[method-assign]
    differs(Mechanism(score), Mechanism())
    assert check(Mechanism(score)) == {"sdpa", "flex"}


def test_a_learned_scale_gets_its_gradient() -> None:
    mechanism = Mechanism(Sharp())
    attend(*tensors(), mechanism).square().sum().backward()
    assert (mechanism.score.sharpness.grad != 0).all()


def test_a_kernel_of_ones_own_is_linear_until_it_compares_in_another_way() -> None:
    assert check(Mechanism(KERNEL[0](), KERNEL[1]()), masks.causal()) == {"linear"}
    differs(Mechanism(Shifted(), KERNEL[1]()), Mechanism(KERNEL[0](), KERNEL[1]()))
    assert check(Mechanism(Shifted(), KERNEL[1]()), masks.causal()) == set()


def test_a_score_that_defines_forward_is_refused_when_the_class_is_made() -> None:
    with raises("override-forbidden"):

        class Late(scores.Score):
            def forward(self, q: Tensor, k: Tensor) -> Tensor:
                return q @ k.mT


# --- normalizers ---


class Cold(normalizers.Softmax):
    """Softmax of doubled scores."""

    def rows(self, scores: Tensor, hidden: Tensor | None) -> Tensor:
        return super().rows(2 * scores, hidden)


class Talking(normalizers.Softmax):
    """Heads mixed after the softmax by a learned matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Parameter(torch.eye(HEADS) + 0.3)

    def rows(self, scores: Tensor, hidden: Tensor | None) -> Tensor:
        return torch.einsum("bhqk,hg->bgqk", super().rows(scores, hidden), self.mix)


class Halves(normalizers.Sum):
    """The sum, halved."""

    def rows(self, scores: Tensor, hidden: Tensor | None) -> Tensor:
        return super().rows(scores, hidden) / 2


@pytest.mark.parametrize(
    ("make", "plain"),
    [
        (lambda: Mechanism(normalize=Cold()), Mechanism()),
        (lambda: Mechanism(normalize=Talking()), Mechanism()),
        (
            lambda: Mechanism(scores.EluKernel(), Halves()),
            Mechanism(scores.EluKernel(), normalizers.Sum()),
        ),
    ],
    ids=["softmax", "with a parameter", "sum"],
)
def test_a_normalizer_of_ones_own_holds_on_every_backend(
    make: Callable[[], Mechanism], plain: Mechanism
) -> None:
    mechanism = make()
    differs(mechanism, plain)
    assert check(mechanism, masks.causal() & masks.padding([3, 6])) == set()


@pytest.mark.parametrize(
    ("score", "normalize", "taken"),
    [
        (scores.ScaledDot, normalizers.Softmax, {"sdpa", "flex"}),
        (scores.EluKernel, normalizers.Sum, {"linear"}),
    ],
    ids=["softmax", "sum"],
)
@pytest.mark.parametrize("method", ["rows", "forward"])
def test_a_method_of_a_normalizer_set_on_one_object_holds_on_every_backend(
    score: type[scores.Score], normalize: type[normalizers.Normalizer], taken: set[str], method: str
) -> None:
    mechanism = Mechanism(score(), normalize())
    assert check(mechanism) == taken
    plain = getattr(mechanism.normalize, method)
    setattr(mechanism.normalize, method, lambda *scores: plain(*scores).flip(-1))
    differs(mechanism, Mechanism(score(), normalize()))
    assert check(mechanism) == set()


def test_a_hook_on_a_normalizer_is_called_whatever_backend_would_have_been_taken() -> None:
    mechanism, seen = Mechanism(), []
    mechanism.normalize.register_forward_hook(lambda module, scores, found: seen.append(found))
    q, k, v = tensors()
    attend(q, k, v, mechanism)
    torch.testing.assert_close(seen[0], (q @ k.mT / 2).softmax(-1))
    assert check(mechanism) == set()


def test_the_parameters_of_a_normalizer_are_the_mechanisms_and_learn() -> None:
    mechanism = Mechanism(normalize=Talking())
    assert [name for name, _ in mechanism.named_parameters()] == ["normalize.mix"]
    attend(*tensors(), mechanism).square().sum().backward()
    assert (mechanism.normalize.mix.grad != 0).all()


# --- masks ---


class Strided(masks.Causal):
    """Every second of the past."""

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (j <= i) & ((i - j) % 2 == 0)


class HeadsApart(masks.Causal):
    """Head 0 sees nothing but the own position, head 1 all of the past; nothing is declared."""

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return torch.where(h == 0, i == j, j <= i)


class RowsApart(masks.Full):
    """Row b of the batch sees the keys from b on; nothing is declared."""

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return j >= b + 1


class Own(Mask):
    """Keys that a tensor of its own allows."""

    def __init__(self, allowed: Tensor) -> None:
        self.allowed = allowed

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return self.allowed[j]


class Reversed(masks.Padding):
    """The last lengths[b] keys."""

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return j >= self.values[b]


class Corner(masks.Matrix):
    """A matrix for head 0 alone; the other heads see everything."""

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return super().__call__(b, h, i, j) | (h > 0)


class Neither(masks.Both):
    """Where none of the two allows it."""

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return ~self.first(b, h, i, j) | ~self.second(b, h, i, j)


OWN_MASKS: dict[str, tuple[Mask, Callable[[int, int, int, int], bool]]] = {
    "strided": (Strided(), lambda b, h, i, j: j <= i and (i - j) % 2 == 0),
    "by head": (HeadsApart(), lambda b, h, i, j: i == j if h == 0 else j <= i),
    "by row": (RowsApart(), lambda b, h, i, j: j >= b + 1),
    "own tensor": (Own(torch.tensor([True, False] * 75)), lambda b, h, i, j: j % 2 == 0),
    "padding turned round": (Reversed([2, 4]), lambda b, h, i, j: j >= (2, 4)[b]),
    "a matrix for one head": (
        Corner(torch.ones(150, 150).tril().bool()),
        lambda b, h, i, j: h > 0 or j <= i,
    ),
    "a pair": (
        Neither(masks.causal(), masks.padding([2, 4])),
        lambda b, h, i, j: not (j <= i and j < (2, 4)[b]),
    ),
    "a function": (
        masks.where(lambda b, h, i, j: (i + j + h) % 3 == b),
        lambda b, h, i, j: (i + j + h) % 3 == b,
    ),
    "a function of heads alone": (
        masks.where(lambda b, h, i, j: h == 1),
        lambda b, h, i, j: h == 1,
    ),
    "combined": (
        masks.where(lambda b, h, i, j: h == b) | (Strided() & masks.window(2)),
        lambda b, h, i, j: h == b or (j <= i and (i - j) % 2 == 0 and abs(i - j) <= 2),
    ),
}


def by_loops(predicate: Callable[[int, int, int, int], bool], queries: int, keys: int) -> Tensor:
    every = [
        [
            [[predicate(b, h, keys - queries + i, j) for j in range(keys)] for i in range(queries)]
            for h in range(HEADS)
        ]
        for b in (0, 1)
    ]
    return torch.tensor(every)


@pytest.mark.parametrize("queries", [6, 2])
@pytest.mark.parametrize("name", sorted(OWN_MASKS))
def test_a_mask_of_ones_own_holds_on_every_backend(name: str, queries: int) -> None:
    mask, predicate = OWN_MASKS[name]
    dense = masks.matrix(by_loops(predicate, queries, 6))
    qkv = tensors(queries)
    for mechanism in (Mechanism(), Mechanism(scores.EluKernel(), normalizers.Sum())):
        assert check(mechanism, mask, qkv) == (
            {"sdpa", "flex"} if mechanism.score.dot and not mechanism.score.kernel else set()
        )
        torch.testing.assert_close(
            attend(*qkv, mechanism, mask), attend(*qkv, mechanism, dense, backend="eager"), **near
        )
    assert repr(mask)


@pytest.mark.parametrize("name", sorted(OWN_MASKS))
@torch.no_grad()
def test_the_blocks_of_a_mask_of_ones_own_are_those_of_every_row_and_head(name: str) -> None:
    mask, predicate = OWN_MASKS[name]
    found = (
        backends.flex.block_mask(mask, (2, HEADS, 140, 140), torch.device("cpu")).to_dense().bool()
    )
    dense = torch.zeros(2, HEADS, 256, 256, dtype=torch.bool)
    dense[:, :, :140, :140] = by_loops(predicate, 140, 140)
    assert torch.equal(
        found.expand(2, HEADS, 2, 2), dense.view(2, HEADS, 2, 128, 2, 128).any(5).any(3)
    )


@pytest.mark.parametrize("backend", ["eager", "sdpa", "flex"])
@torch.no_grad()
def test_a_tensor_of_a_mask_changed_between_calls_is_seen(backend: str) -> None:
    allowed, (q, k, v) = torch.tensor([True] * 6), tensors()
    for mechanism, mask in ((Mechanism(mask=Own(allowed)), None), (Mechanism(), Own(allowed))):
        allowed[:] = True
        torch.testing.assert_close(
            attend(q, k, v, mechanism, mask, backend=backend), attend(q, k, v), **near
        )
        allowed[3:] = False
        expected = attend(q, k[:, :, :3], v[:, :, :3])
        torch.testing.assert_close(
            attend(q, k, v, mechanism, mask, backend=backend), expected, **near
        )


@pytest.mark.parametrize("backend", ["eager", "sdpa", "flex"])
@pytest.mark.parametrize(
    ("predicate", "kind"),
    [
        (lambda b, h, i, j: (j <= i).int(), "torch.int32"),
        (lambda b, h, i, j: j * 1.0, "torch.float32"),
        (lambda b, h, i, j: True, "bool"),
        (lambda b, h, i, j: None, "NoneType"),
    ],
    ids=["ints", "floats", "a plain True", "nothing"],
)
@torch.no_grad()
def test_a_predicate_must_answer_with_booleans(predicate: Any, kind: str, backend: str) -> None:
    with pytest.raises(
        SaccadeError, match=f"answered with {kind}, expected booleans; compare, as in `j <= i`"
    ):
        attend(*tensors(), mask=masks.where(predicate), backend=backend)


def test_what_is_not_a_function_is_not_a_predicate() -> None:
    with raises("not-a-predicate"):
        masks.where([[1]])


@given(
    a=st.integers(-3, 3),
    b=st.integers(-3, 3),
    c=st.integers(1, 4),
    queries=st.integers(1, 7),
    more=st.integers(0, 3),
    heads=st.integers(1, 3),
)
@torch.no_grad()
def test_any_predicate_is_one_predicate_on_every_backend(
    a: int, b: int, c: int, queries: int, more: int, heads: int
) -> None:
    mask = masks.where(lambda row, h, i, j: (a * i + b * j + h + row) % c == 0)
    qkv = tensors(queries, queries + more, heads)
    expected = attend(*qkv, mask=mask, backend="eager")
    for backend in ("sdpa", "flex"):
        torch.testing.assert_close(attend(*qkv, mask=mask, backend=backend), expected, **near)


# --- positions ---


class Steep(positions.Alibi):
    """Another bias than `bias_at`, which is the parent's."""

    def bias(self, q: Tensor, positions: Positions, scale: float) -> Tensor:
        return 5 * super().bias(q, positions, scale)


class SteepBoth(positions.Alibi):
    """Both of them overridden."""

    def bias(self, q: Tensor, positions: Positions, scale: float) -> Tensor:
        return 5 * super().bias(q, positions, scale)

    def bias_at(self, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return 5 * super().bias_at(h, i, j)


class Mixin:
    """Overrides from beside."""

    def bias(self, q: Tensor, positions: Positions, scale: float) -> Tensor:
        return positions.distance.to(q.dtype)


class FromBeside(Mixin, positions.Alibi):
    """The bias of a mixin, `bias_at` of the parent."""


class Content(positions.Position):
    """A bias that depends on the query."""

    def bias(self, q: Tensor, positions: Positions, scale: float) -> Tensor:
        return q.sum(-1, keepdim=True) * positions.distance


class Doubled(positions.Position):
    """Encodes by counting."""

    def encode(self, x: Tensor, at: Tensor, positions: Positions) -> Tensor:
        return x * (1 + at.to(x.dtype)).unsqueeze(-1)


class ValuesAlone(positions.Position):
    """Encodes nothing but values."""

    def encode_values(self, v: Tensor, at: Tensor, positions: Positions) -> Tensor:
        return v * (1 + at.to(v.dtype)).unsqueeze(-1)


class AddsWeights(positions.Shaw):
    """A Shaw position without vectors for values that adds something of its own."""

    def values(self, weights: Tensor, positions: Positions) -> Tensor:
        return weights.cumsum(-1)[..., :WIDTH]


OWN_POSITIONS: dict[str, tuple[Callable[[], positions.Position], set[str]]] = {
    "bias alone": (lambda: Steep(HEADS), {"sdpa", "flex"}),
    "bias and bias_at": (lambda: SteepBoth(HEADS), {"sdpa", "flex"}),
    "bias of a mixin": (lambda: FromBeside(HEADS), {"sdpa", "flex"}),
    "bias from the query": (Content, {"sdpa", "flex"}),
    "encode": (Doubled, {"sdpa", "flex"}),
    "encode_values": (ValuesAlone, {"sdpa", "flex"}),
    "values": (lambda: AddsWeights(WIDTH, 3, values=False), set()),
}


@pytest.mark.parametrize("queries", [6, 2])
@pytest.mark.parametrize("name", sorted(OWN_POSITIONS))
def test_a_position_of_ones_own_holds_on_every_backend(name: str, queries: int) -> None:
    make, runs = OWN_POSITIONS[name]
    mechanism = Mechanism(position=make())
    differs(mechanism, Mechanism())
    assert check(mechanism, masks.causal(), tensors(queries)) == runs
    elsewhere = Positions(torch.randint(0, 9, (queries,)), torch.randint(0, 9, (6,)))
    assert check(mechanism, masks.padding([2, 5]), tensors(queries), elsewhere) == runs


@pytest.mark.parametrize("name", ["encode", "encode_values"])
def test_a_position_of_ones_own_that_encodes_is_encoded_before_linear_attention(name: str) -> None:
    assert check(
        Mechanism(scores.EluKernel(), normalizers.Sum(), None, OWN_POSITIONS[name][0]()),
        masks.causal(),
    ) == {"linear"}


@pytest.mark.parametrize("method", ["bias", "bias_at"])
def test_a_bias_set_on_one_object_holds_on_every_backend(method: str) -> None:
    position = positions.Alibi(HEADS)
    plain = getattr(position, method)
    setattr(position, method, lambda *args: 4 * plain(*args))
    assert not position.biases_by_position
    assert check(Mechanism(position=position)) == {"sdpa", "flex"}


def test_bias_at_without_bias_is_refused_when_the_class_is_made() -> None:
    with raises("override-missing"):

        class Half(positions.Alibi):
            def bias_at(self, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
                return i * 0.0


def test_values_of_a_subclass_are_added_though_the_parent_has_none() -> None:
    q, k, v = tensors()
    mechanism = Mechanism(position=AddsWeights(WIDTH, 3, values=False))
    plain = Mechanism(position=positions.Shaw(WIDTH, 3, values=False))
    plain.load_state_dict(mechanism.state_dict())
    expected = attend(q, k, v, plain) + weights(q, k, plain).cumsum(-1)[..., :WIDTH]
    torch.testing.assert_close(attend(q, k, v, mechanism), expected)


class Given(positions.Position):
    """A bias made beforehand."""

    def __init__(self, given: Tensor) -> None:
        super().__init__()
        self.given = given

    def bias(self, q: Tensor, positions: Positions, scale: float) -> Tensor:
        return self.given


SHAPES: list[tuple[int, ...]] = [
    (),
    (6,),
    (4, 1),
    (1, 6),
    (4, 6),
    (HEADS, 1, 1),
    (2, 1, 4, 6),
    (2, HEADS, 4, 1),
    (1, HEADS, 1, 6),
]


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool], ids=str
)
@pytest.mark.parametrize("mask", [None, masks.causal(), masks.padding([0, 4])], ids=str)
@torch.no_grad()
def test_a_bias_may_have_any_shape_that_broadcasts_and_any_type(
    dtype: torch.dtype, mask: Mask | None
) -> None:
    for shape in SHAPES:
        bias, (q, k, v) = torch.randint(0, 3, shape).to(dtype), tensors(4)
        mechanism = Mechanism(position=Given(bias))
        for backend in ("eager", "sdpa", "flex"):
            torch.testing.assert_close(
                attend(q, k, v, mechanism, mask, backend=backend),
                attend(q, k, v, mechanism, mask),
                **near,
            )
        scored = (q @ k.mT / 2 + bias.float()).expand(2, HEADS, 4, 6)
        allowed = torch.ones(4, 6, dtype=torch.bool) if mask is None else mask.dense(2, HEADS, 4, 6)
        expected = scored.masked_fill(~allowed, -1e9).softmax(-1).masked_fill(~allowed, 0.0) @ v
        torch.testing.assert_close(attend(q, k, v, mechanism, mask), expected, **near)


# --- positions that keep what they computed for a pass ---


class Slow(positions.Rotary):
    """Angles of its own."""

    def __init__(self, speed: float) -> None:
        super().__init__()
        self.speed = speed

    def angles(self, at: Tensor, half: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        return super().angles(at * self.speed, half, dtype)


class Coarse(positions.T5Buckets):
    """Buckets of its own."""

    def __init__(self, step: int) -> None:
        super().__init__(HEADS)
        self.step = step
        nn.init.normal_(self.table)

    def bucket(self, distance: Tensor) -> Tensor:
        return super().bucket(distance // self.step * self.step)


@pytest.mark.parametrize(
    "make",
    [
        lambda: [positions.Rotary(), Slow(0.5), Slow(3.0), positions.Rotary(100.0)],
        lambda: [
            positions.T5Buckets(HEADS, 8, 16),
            Coarse(2),
            Coarse(3),
            positions.T5Buckets(HEADS),
        ],
    ],
    ids=["rotary", "t5"],
)
def test_layers_with_different_positions_share_one_pass_without_mixing(
    make: Callable[[], list[positions.Position]],
) -> None:
    shared, (q, k, v) = Positions.line(6, 6), tensors()
    for position in make():
        mechanism = Mechanism(position=position)
        with torch.no_grad():
            for parameter in position.parameters():
                parameter.normal_()
        torch.testing.assert_close(
            attend(q, k, v, mechanism, positions=shared), attend(q, k, v, mechanism)
        )


def test_an_angle_set_on_one_object_is_not_shared() -> None:
    shared, (q, k, v) = Positions.line(6, 6), tensors()
    own = positions.Rotary()
    plain = own.angles
    own.angles = lambda at, half, dtype: plain(2 * at, half, dtype)  # type: ignore[method-assign]
    attend(q, k, v, Mechanism(position=positions.Rotary()), positions=shared)
    twice = Positions(2 * shared.i, 2 * shared.j)
    expected = attend(q, k, v, Mechanism(position=positions.Rotary()), positions=twice)
    torch.testing.assert_close(attend(q, k, v, Mechanism(position=own), positions=shared), expected)


def test_rotary_encodes_at_the_positions_it_is_given_whatever_the_pass_has() -> None:
    x, at, rotary = torch.randn(1, 1, 3, 4), torch.tensor([5, 0, 7]), positions.Rotary()
    used = Positions.line(2, 3)
    rotary.encode(x, used.j, used)
    torch.testing.assert_close(rotary.encode(x, at, used), rotary.encode(x, at, Positions(at, at)))


# --- a backend of one's own ---


def test_a_backend_of_ones_own_is_chosen_by_its_rank_and_refuses_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Tripled(backends.Backend):
        def refuses(self, call: backends.Call) -> str | None:
            return None if call.unmasked else "it knows no masks"

        def rank(self, call: backends.Call) -> int:
            return 1

        def run(self, call: backends.Call) -> Tensor:
            return 3 * call.value

    monkeypatch.setattr(backends.table, "_entries", dict(backends.table._entries))
    backends.table.add("tripled")(Tripled())
    q, k, v = tensors()
    assert torch.equal(attend(q, k, v), 3 * v)
    torch.testing.assert_close(
        attend(q, k, v, mask=masks.causal()), attend(q, k, v, mask=masks.causal(), backend="eager")
    )
    with pytest.raises(SaccadeError, match="backend 'tripled' refuses: it knows no masks"):
        attend(q, k, v, mask=masks.causal(), backend="tripled")
