"""Positions against the papers' formulas, worked by loops in float64."""

from __future__ import annotations

import cmath
import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
import torch
from core_helpers import member, random_tree, steps_between
from hypothesis import given
from hypothesis import strategies as st
from tests.support import raises
from torch import Tensor

from saccade.core import Mechanism, Positions, attend, backends, masks, positions, scores, weights
from saccade.core.attention import build_call
from saccade.core.positions import T5Buckets, alibi_slopes, sinusoid
from saccade.core.xl_positions import TransformerXL
from saccade.errors import SaccadeError

HEADS, DIM = 2, 4


def tensors(
    queries: int, keys: int, batch: int = 2, dim: int = DIM
) -> tuple[Tensor, Tensor, Tensor]:
    return tuple(
        torch.randn(batch, HEADS, n, dim, dtype=torch.float64) for n in (queries, keys, keys)
    )  # type: ignore[return-value]


def softmax(scores: Sequence[float]) -> list[float]:
    total = sum(math.exp(s) for s in scores)
    return [math.exp(s) / total for s in scores]


# --- sinusoids ---


def test_the_sinusoid_is_the_papers_formula() -> None:
    found = sinusoid(torch.arange(50), 6, dtype=torch.float64)
    for t, c in np.ndindex(50, 6):
        angle = t * 10000 ** (-2 * (c // 2) / 6)
        assert found[t, c].item() == pytest.approx(
            math.cos(angle) if c % 2 else math.sin(angle), abs=1e-12
        )
    assert sinusoid(torch.arange(3), 6).dtype == torch.float32


@given(step=st.integers(-40, 40), start=st.integers(50, 5000))
def test_one_linear_map_takes_every_position_to_the_one_a_step_further(
    step: int, start: int
) -> None:
    dim = 8
    move = np.zeros((dim, dim))
    for k in range(dim // 2):
        angle = step * 10000 ** (-2 * k / dim)
        block = [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
        move[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] = block
    here = sinusoid(torch.tensor([0, 7, start]), dim, dtype=torch.float64).numpy()
    there = sinusoid(torch.tensor([0, 7, start]) + step, dim, dtype=torch.float64).numpy()
    np.testing.assert_allclose(here @ move.T, there, atol=1e-9)


def test_sinusoids_are_bounded_unique_and_exact_far_away() -> None:
    table = sinusoid(torch.arange(3000), 16)
    assert table.abs().max() <= 1
    assert len(torch.unique(table, dim=0)) == 3000
    far = sinusoid(torch.tensor([1_000_003]), 16)[0]
    assert far[2].item() == pytest.approx(math.sin(1_000_003 * 10000 ** (-2 / 16)), abs=1e-6)


def test_an_odd_width_has_no_pairs() -> None:
    with raises("width-not-even"):
        sinusoid(torch.arange(3), 5)
    with raises("width-not-even"):
        attend(*[torch.randn(1, 1, 2, 3)] * 3, Mechanism(position=positions.Rotary()))


@pytest.mark.parametrize("max_len", [None, 9])
def test_added_is_added_to_queries_keys_and_values(max_len: int | None) -> None:
    q, k, v = tensors(3, 5)
    position = positions.Added(DIM, max_len).double()
    table = (
        sinusoid(torch.arange(5), DIM, dtype=torch.float64)
        if max_len is None
        else position.vectors[:5]
    )
    found = attend(q, k, v, Mechanism(position=position))
    torch.testing.assert_close(found, attend(q + table[2:], k + table, v + table))
    at = torch.tensor([[4, 1], [0, 2]])
    torch.testing.assert_close(
        position.encode(q[:, :, :2], at, Positions(at, at)), q[:, :, :2] + table[at].unsqueeze(1)
    )


def test_a_learned_table_ends_with_a_clear_error() -> None:
    q = torch.randn(1, 1, 6, DIM)
    with raises("position-out-of-range"):
        attend(q, q, q, Mechanism(position=positions.Added(DIM, max_len=5)))


# --- rotary ---


def test_rotary_rotates_each_pair_by_its_angle() -> None:
    x, at = torch.randn(2, 1, 5, 6, dtype=torch.float64), torch.tensor([0, 1, 7, 300, 100_000])
    found = positions.Rotary(base=500.0).encode(x, at, Positions(at, at))
    for b, n, m in np.ndindex(2, 5, 3):
        rotated = complex(x[b, 0, n, m], x[b, 0, n, m + 3]) * cmath.exp(
            1j * at[n].item() * 500.0 ** (-2 * m / 6)
        )
        assert found[b, 0, n, m].item() == pytest.approx(rotated.real, abs=1e-10)
        assert found[b, 0, n, m + 3].item() == pytest.approx(rotated.imag, abs=1e-10)


@given(shift=st.integers(-30, 100_000))
def test_rotary_depends_on_distances_alone(shift: int) -> None:
    q, k, _ = tensors(4, 6)
    here = Positions.line(4, 6)
    mechanism = Mechanism(position=positions.Rotary())
    torch.testing.assert_close(
        weights(q, k, mechanism, None, Positions(here.i + shift, here.j + shift)),
        weights(q, k, mechanism),
    )
    moved = weights(q, k, mechanism, None, Positions(here.i + 3, here.j))
    assert not torch.allclose(moved, weights(q, k, mechanism))


def test_rotary_takes_positions_of_their_own_for_each_batch_row() -> None:
    q, k, v = tensors(3, 3)
    at = torch.tensor([[0, 1, 2], [5, 9, 4]])
    mechanism = Mechanism(position=positions.Rotary())
    found = attend(q, k, v, mechanism, positions=Positions(at, at))
    for b in range(2):
        row = Positions(at[b], at[b])
        torch.testing.assert_close(
            found[b : b + 1],
            attend(q[b : b + 1], k[b : b + 1], v[b : b + 1], mechanism, positions=row),
        )


# --- ALiBi and T5 ---


def test_alibi_slopes_are_those_of_the_paper() -> None:
    assert alibi_slopes(8) == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
    assert alibi_slopes(16) == pytest.approx([2 ** (-0.5 * n) for n in range(1, 17)])
    # For 12 heads: those of 8, and the 1st, 3rd, 5th and 7th of 16.
    assert alibi_slopes(12) == pytest.approx(
        [2.0**-n for n in range(1, 9)] + [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]
    )
    assert alibi_slopes(1) == [2**-8]


def test_alibi_takes_the_slope_times_the_distance_from_the_scores() -> None:
    q, k, _ = tensors(3, 5)
    found = weights(q, k, Mechanism(position=positions.Alibi(HEADS)), masks.causal())
    for b, h, i in np.ndindex(2, HEADS, 3):
        slope, last = 2.0 ** (-8 * (h + 1) / HEADS), i + 2
        scores = [
            (q[b, h, i] @ k[b, h, j]).item() / 2 - slope * (last - j) for j in range(last + 1)
        ]
        np.testing.assert_allclose(found[b, h, i], softmax(scores) + [0.0] * (4 - last), rtol=1e-6)


def bucket(distance: int, buckets: int, longest: int, both_sides: bool) -> int:
    """Raffel et al. 2020: half of the buckets for single distances, the rest ever wider up to `longest`; exact, in fractions."""
    base = 0
    if both_sides:
        buckets //= 2
        base = buckets if distance > 0 else 0
        far = abs(distance)
    else:
        far = max(-distance, 0)
    exact = buckets // 2
    if far < exact:
        return base + far
    wider = buckets - exact
    # the largest n with log(far/exact) / log(longest/exact) · wider ≥ n
    n = max(
        n
        for n in range(wider)
        if n == 0 or Fraction(far, exact) ** wider >= Fraction(longest, exact) ** n
    )
    return base + exact + n


@pytest.mark.parametrize(
    ("buckets", "longest", "both_sides"),
    [(32, 128, True), (32, 128, False), (8, 20, True), (16, 100, False), (10, 50, True)],
)
def test_t5_buckets_are_single_when_near_and_logarithmic_when_far(
    buckets: int, longest: int, both_sides: bool
) -> None:
    distances = range(-2 * longest, 2 * longest + 1)
    found = T5Buckets(1, buckets, longest, both_sides).bucket(torch.tensor(distances)).tolist()
    assert found == [bucket(d, buckets, longest, both_sides) for d in distances]
    assert set(found) == set(range(buckets)) - ({buckets // 2} if both_sides else set()), (
        "0 is no distance to the right"
    )


def test_t5_adds_the_learned_number_of_the_bucket() -> None:
    q, k, _ = tensors(3, 4)
    position = T5Buckets(HEADS, buckets=8, max_distance=16).double()
    torch.nn.init.normal_(position.table)
    found = weights(q, k, Mechanism(position=position))
    for b, h, i in np.ndindex(2, HEADS, 3):
        bias = [position.table[bucket(j - (i + 1), 8, 16, True), h].item() for j in range(4)]
        scores = [(q[b, h, i] @ k[b, h, j]).item() / 2 + bias[j] for j in range(4)]
        np.testing.assert_allclose(found[b, h, i].detach(), softmax(scores), rtol=1e-10)


@pytest.mark.parametrize(("buckets", "longest"), [(3, 100), (32, 32)])
def test_t5_needs_enough_buckets_and_a_longer_distance(buckets: int, longest: int) -> None:
    with pytest.raises(
        SaccadeError,
        match=f"at least 4 buckets and max_distance > buckets, got {buckets} and {longest}",
    ):
        T5Buckets(2, buckets, longest)


@pytest.mark.parametrize("position", [positions.Alibi(3), T5Buckets(3)], ids=["alibi", "t5"])
def test_a_position_for_another_number_of_heads_says_so(position: positions.Position) -> None:
    q = torch.randn(1, 2, 3, 4)
    with raises("shapes-do-not-fit"):
        attend(q, q, q, Mechanism(position=position))


# --- Shaw and syntax ---


def shaw_by_loops(
    q: Tensor, k: Tensor, v: Tensor, position: positions.Shaw, index: Tensor, scale: float
) -> Tensor:
    """e_ij = scale · q_i·(k_j + a^K_ij), z_i = Σ_j w_ij (v_j + a^V_ij); `index` is B × Q × K."""
    output = torch.zeros_like(q)
    for b, h, i in np.ndindex(*q.shape[:3]):
        rows = index[b, i].tolist()
        scores = [
            scale * (q[b, h, i] @ (k[b, h, j] + position.keys[r])).item()
            for j, r in enumerate(rows)
        ]
        for j, (w, r) in enumerate(zip(softmax(scores), rows, strict=True)):
            output[b, h, i] += w * (
                v[b, h, j] + (position.value_vectors[r] if position.adds_values else 0)
            )
    return output


@pytest.mark.parametrize("score", [scores.ScaledDot(), scores.Dot()], ids=["scaled-dot", "dot"])
@pytest.mark.parametrize("values", [True, False])
def test_shaw_adds_to_keys_and_values_by_the_clipped_distance(
    values: bool, score: scores.Score
) -> None:
    q, k, v = tensors(4, 6)
    position = positions.Shaw(DIM, max_distance=2, values=values).double()
    index = torch.tensor(
        [[max(-2, min(2, j - (i + 2))) + 2 for j in range(6)] for i in range(4)]
    ).expand(2, 4, 6)
    found = attend(q, k, v, Mechanism(score, position=position))
    torch.testing.assert_close(found, shaw_by_loops(q, k, v, position, index, score.scale(DIM)))
    assert positions.Shaw(DIM, 3).keys.shape == (7, DIM)
    assert positions.Shaw(DIM, 3, dim_values=9).value_vectors.shape == (7, 9)


def test_syntax_positions_are_shaws_vectors_by_distance_in_the_tree() -> None:
    q, k, v = tensors(5, 5)
    trees = [random_tree(5, 1), [-1, 0, 1, 2, 3]]
    position = positions.SyntaxDistance(DIM, max_distance=2).double()
    steps = steps_between(*trees)
    index = torch.tensor([[[min(d, 2) for d in row] for row in tree] for tree in steps.tolist()])
    torch.testing.assert_close(
        attend(
            q, k, v, Mechanism(position=position), positions=Positions.line(5, 5, relation=steps)
        ),
        shaw_by_loops(q, k, v, position, index, 0.5),
    )
    signs = torch.where(torch.rand(2, 5, 5) < 0.5, -1, 1) * steps
    torch.testing.assert_close(
        attend(
            q, k, v, Mechanism(position=position), positions=Positions.line(5, 5, relation=signs)
        ),
        shaw_by_loops(q, k, v, position, index, 0.5),
        msg="without `signed` signs do not matter",
    )
    with raises("relation-missing"):
        attend(q, k, v, Mechanism(position=position))
    signed = positions.SyntaxDistance(DIM, max_distance=2, signed=True).double()
    assert (signed.keys.shape[0], position.keys.shape[0]) == (5, 3)
    index = torch.tensor(
        [[[max(-2, min(d, 2)) + 2 for d in row] for row in tree] for tree in signs.tolist()]
    )
    torch.testing.assert_close(
        attend(q, k, v, Mechanism(position=signed), positions=Positions.line(5, 5, relation=signs)),
        shaw_by_loops(q, k, v, signed, index, 0.5),
    )


# --- Transformer-XL ---


def xl_by_loops(
    q: Tensor, k: Tensor, v: Tensor, position: TransformerXL, i: list[int], j: list[int]
) -> Tensor:
    """(q + u)·k + (q + v)·W r_(i−j), over √D, one pair at a time."""
    found = torch.zeros_like(q[..., : v.shape[-1]])
    for b, h, n in np.ndindex(*q.shape[:3]):
        row = []
        for m in range(k.shape[2]):
            distance = i[n] - j[m]
            angles = [
                distance * 10000 ** (-2 * c / position.width) for c in range(position.width // 2)
            ]
            wave = torch.tensor(
                [f(angle) for angle in angles for f in (math.sin, math.cos)], dtype=torch.float64
            )
            content = (q[b, h, n] + position.u[h, 0]) @ k[b, h, m]
            row.append(
                (content + (q[b, h, n] + position.v[h, 0]) @ (position.weight[h] @ wave)).item()
                / math.sqrt(q.shape[-1])
            )
        found[b, h, n] = torch.tensor(softmax(row), dtype=torch.float64) @ v[b, h]
    return found


@torch.no_grad()
def test_xl_is_the_papers_formula_at_any_positions() -> None:
    position = TransformerXL(DIM, HEADS).double()
    for parameter in position.parameters():
        parameter.normal_()
    q, k, v = tensors(3, 5)
    mechanism = Mechanism(position=position)
    torch.testing.assert_close(
        attend(q, k, v, mechanism), xl_by_loops(q, k, v, position, [2, 3, 4], [0, 1, 2, 3, 4])
    )
    i, j = [9, 0, 100_000], [7, 100_003, 2, 0, 9]
    found = attend(q, k, v, mechanism, positions=Positions(torch.tensor(i), torch.tensor(j)))
    torch.testing.assert_close(found, xl_by_loops(q, k, v, position, i, j))
    rows = Positions(torch.tensor([i, i[::-1]]), torch.tensor([j, j]))
    found = attend(q, k, v, mechanism, positions=rows)
    torch.testing.assert_close(found[1:], xl_by_loops(q[1:], k[1:], v[1:], position, i[::-1], j))
    moved = Positions(torch.tensor(i) - 40, torch.tensor(j) - 40)
    torch.testing.assert_close(
        attend(q, k, v, mechanism, positions=moved)[0], found[0], msg="distances alone matter"
    )


# --- all of them ---


@pytest.mark.parametrize("name", positions.table.names())
def test_gradients_through_every_position_and_to_all_of_its_parameters(name: str) -> None:
    position = member(positions.table, name, dim=DIM, heads=HEADS).double()
    q, k, v = (x.requires_grad_() for x in tensors(2, 3, batch=1))
    at = Positions.line(2, 3, relation=steps_between([-1, 0, 1])[:, 1:])
    mechanism = Mechanism(position=position)
    inputs = (q, k, v, *position.parameters())
    assert torch.autograd.gradcheck(
        lambda q, k, v, *_: attend(q, k, v, mechanism, masks.causal(), at, backend="eager"), inputs
    )


@pytest.mark.parametrize("name", positions.table.names())
def test_what_is_derived_of_a_position_is_true(name: str) -> None:
    position = member(positions.table, name, dim=DIM, heads=HEADS)
    q = torch.randn(1, HEADS, 3, DIM)
    at = Positions.line(3, 3, relation=steps_between([-1, 0, 1]))
    assert (not torch.equal(position.encode_query(q, at.i, at), q)) == position.encodes
    assert (position.bias(q, at, 1.0) is not None) == position.biases
    assert (position.values(torch.rand(1, HEADS, 3, 3), at) is not None) == position.adds_values
    assert position.biases_by_position == (name in ("alibi", "t5"))
    if position.biases_by_position:
        found = [position.bias_at(torch.tensor(h), at.i[:, None], at.j) for h in range(HEADS)]
        torch.testing.assert_close(position.bias(q, at, 1.0).squeeze(0), torch.stack(found))


def test_positions_in_a_line_end_together_and_what_is_computed_from_them_is_kept() -> None:
    at, made = Positions.line(2, 5), []
    assert (at.i.tolist(), at.j.tolist(), at.in_line) == ([3, 4], [0, 1, 2, 3, 4], True)
    assert at.distance.tolist() == [[-3, -2, -1, 0, 1], [-4, -3, -2, -1, 0]]
    assert at.once("key", lambda: made.append(1)) is at.once("key", lambda: made.append(2))
    assert made == [1]
    cut = Positions.line(3, 3, relation=steps_between([-1, 0, 1])).rows(slice(1, 2))
    assert (cut.i.tolist(), cut.j.tolist(), cut.relation.tolist()) == (
        [1],
        [0, 1, 2],
        [[[1, 0, 1]]],
    )
    assert not cut.in_line, "the last query is no longer at the last key"
    same = Positions.same(torch.tensor([4, 7]), None, 2, torch.device("cpu"))
    assert same.i is same.j
    assert not same.in_line


@pytest.mark.parametrize("name", ["rotary", "t5"])
def test_what_a_pass_shares_between_layers_is_computed_once(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, method = {"rotary": (positions.Rotary, "angles"), "t5": (T5Buckets, "bucket")}[name]
    asked, plain = [], getattr(kind, method)
    monkeypatch.setattr(
        kind, method, lambda self, *args: (asked.append(args), plain(self, *args))[1]
    )
    at, (q, k, v) = Positions.line(4, 4), tensors(4, 4)
    for _ in range(3):
        attend(
            q,
            k,
            v,
            Mechanism(position=member(positions.table, name, dim=DIM, heads=HEADS)),
            positions=at,
        )
    assert len(asked) == 1


def test_positions_of_one_length_do_not_serve_another() -> None:
    mechanism = Mechanism(position=positions.Rotary())
    for size in (3, 5, 3):
        q, k, v = tensors(size, size)
        at = Positions(torch.arange(size), torch.arange(size))
        torch.testing.assert_close(
            attend(q, k, v, mechanism), attend(q, k, v, mechanism, positions=at)
        )


def test_what_inference_made_can_be_read_outside_of_it() -> None:
    with torch.inference_mode():
        at = torch.arange(5)
    x, rotary = torch.randn(1, 2, 5, 8), positions.Rotary()
    other = torch.arange(5)
    torch.testing.assert_close(
        rotary.encode(x, at, Positions(at, at)), rotary.encode(x, other, Positions(other, other))
    )


# --- more queries than keys ---


def by_hand(
    name: str, position: positions.Position, q: Tensor, k: Tensor, v: Tensor, relation: Tensor
) -> Tensor:
    """Any position of the table with query n at keys − queries + n, one pair at a time."""
    queries, keys = q.shape[2], k.shape[2]
    i, j = list(range(keys - queries, keys)), list(range(keys))
    if name == "xl":
        return xl_by_loops(q, k, v, position, i, j)  # type: ignore[arg-type]
    if name in ("shaw", "syntax"):
        near = position.max_distance
        steps = [[[max(-near, min(near, m - n)) + near for m in j] for n in i]] * len(q)
        index = torch.tensor(steps) if name == "shaw" else relation.clamp(0, near)
        return shaw_by_loops(q, k, v, position, index, q.shape[-1] ** -0.5)  # type: ignore[arg-type]
    found = torch.zeros_like(q)

    def placed(x: Tensor, at: int) -> Tensor:
        if name == "rotary":
            half = len(x) // 2
            turned = [
                complex(x[m], x[m + half]) * cmath.exp(1j * at * 10000.0 ** (-m / half))
                for m in range(half)
            ]
            return x.new_tensor([z.real for z in turned] + [z.imag for z in turned])
        if name == "added":
            angles = [at * 10000 ** (-2 * (c // 2) / len(x)) for c in range(len(x))]
            return x + x.new_tensor(
                [math.cos(a) if c % 2 else math.sin(a) for c, a in enumerate(angles)]
            )
        return x

    def bias(b: int, h: int, n: int, m: int) -> float:
        if name == "alibi":
            return -(2.0 ** (-8 * (h + 1) / HEADS)) * abs(i[n] - j[m])
        if name == "t5":
            return float(position.table[bucket(j[m] - i[n], 8, 16, True), h])
        return (
            float(position.table[relation[b, n, m].clamp(0, position.kinds), h])
            if name == "edges"
            else 0.0
        )

    for b, h, n in np.ndindex(*q.shape[:3]):
        query, places = placed(q[b, h, n], i[n]), [placed(k[b, h, m], j[m]) for m in j]
        row = softmax(
            [
                (query @ key).item() / math.sqrt(len(query)) + bias(b, h, n, m)
                for m, key in enumerate(places)
            ]
        )
        added = name == "added"
        found[b, h, n] = sum(
            w * (placed(v[b, h, m], j[m]) if added else v[b, h, m]) for m, w in enumerate(row)
        )
    return found


@pytest.mark.usefixtures("plain_flex")
@pytest.mark.parametrize("queries", [5, 6, 12])
@pytest.mark.parametrize("name", positions.table.names())
@torch.no_grad()
def test_with_more_queries_than_keys_the_last_query_is_at_the_last_key(
    name: str, queries: int
) -> None:
    keys = 4
    position = member(positions.table, name, dim=DIM, heads=HEADS).double()
    for parameter in position.parameters():
        parameter.normal_()
    q, k, v = tensors(queries, keys)
    relation = torch.randint(0, 5, (2, queries, keys))
    at, mechanism = Positions.line(queries, keys, relation=relation), Mechanism(position=position)
    assert (at.i.tolist(), at.j.tolist()) == (list(range(keys - queries, keys)), list(range(keys)))
    expected = by_hand(name, position, q, k, v, relation)
    torch.testing.assert_close(attend(q, k, v, mechanism, positions=at), expected)
    if not position.needs_relation:
        torch.testing.assert_close(attend(q, k, v, mechanism), expected)
    mechanism, single = mechanism.float(), [x.float() for x in (q, k, v)]
    masked = masks.matrix(torch.ones(queries, keys, dtype=torch.bool)) & masks.padding([keys, keys])
    ran = set()
    for backend, mask in itertools.product(backends.table.names(), (None, masked)):
        if backends.table[backend].refuses(build_call(*single, mechanism, mask, at, 0.0)) is None:
            found = attend(*single, mechanism, mask, at, backend=backend)
            torch.testing.assert_close(
                found, expected.float(), rtol=1e-4, atol=1e-5, msg=lambda m, b=backend: f"{b}: {m}"
            )
            ran.add(backend)
    assert {"eager"} <= ran


@pytest.mark.parametrize("compiled", [False, True])
def test_a_learned_table_has_nothing_before_its_first_position(compiled: bool) -> None:
    position = positions.Added(DIM, max_len=9)
    q, k = torch.randn(1, 1, 6, DIM), torch.randn(1, 1, 4, DIM)
    run = torch.compile(attend, backend="aot_eager") if compiled else attend
    wrong = IndexError if compiled else SaccadeError
    with pytest.raises(
        wrong, match="index out of range" if compiled else "position -2 is before the learned table"
    ):
        run(q, k, k, Mechanism(position=position))
