"""Random mechanisms on every backend: the same numbers and gradients as `eager` in float64, and `eager` the same as loops over plain numbers.

`FUZZ_SEED=123 pytest tests/fuzz/test_mechanisms.py` runs one case alone, with its whole traceback.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from fuzz_helpers import (
    JUMPS,
    Case,
    able,
    compare,
    distance,
    draw_case,
    draw_parts,
    run,
    run_all,
    seeds,
    size_of_blocks,
)
from test_normalizers import FORMULAS as NORMALIZED
from test_positions import bucket
from test_scores import FORMULAS as SCORED

from saccade.core import Mechanism, Positions, attend, masks
from saccade.errors import SaccadeError

COUNT = 400  # calls on every backend, in `make test`; 20 times as many in `make test-all`
BY_HAND = 120  # calls that are also worked out by loops
FUSED = 120  # calls of the mechanisms that most backends run
EMPTY = 20  # calls with a batch of 0
EXTREME = 120  # calls with numbers that are not finite, or too large for 16 bits


def check(case: Case) -> None:
    with size_of_blocks(case.blocks):
        compare(case, [*able(case, case.grad), None])


@pytest.mark.usefixtures("plain_flex")
@seeds(COUNT, chunk=80)
def test_every_backend_is_eager_in_float64(cases: range) -> None:
    run_all(cases, draw_case, check)


def fused(
    draw: random.Random, heads: int, wide: tuple[int, int, int]
) -> tuple[Mechanism, tuple[str, str, str]]:
    """A softmax of dot products, or a kernel score divided by its sum: few of all mechanisms, most of those in use."""
    while True:
        made, names = draw_parts(draw, heads, wide)
        if names[1] == "sum" or (names[1] == "softmax" and made.score.dot):
            return made, names


def draw_fused(seed: int) -> Case:
    case = draw_case(seed, dtypes=(torch.float32, torch.bfloat16), parts=fused)
    if case.names[1] == "sum":  # linear attention knows causal and padding alone
        case.made.mask, keys = masks.full(), case.sizes[3]
        padding = masks.padding([(0, keys // 2, keys)[n % 3] for n in range(case.sizes[0])])
        case = replace(case, mask=masks.causal() & padding if case.sizes[2] <= keys else padding)
    # flex has no gradients on a CPU
    return replace(case, grad=case.names[1] == "sum" or seed % 2 == 0)


@pytest.mark.usefixtures("plain_flex")
@seeds(FUSED, chunk=60)
def test_fused_mechanisms_are_eager_in_float64(cases: range) -> None:
    run_all(cases, draw_fused, check)


# --- eager by loops ---


def encoded(name: str, x: np.ndarray, at: float, base: float = 10000.0) -> np.ndarray:
    """A vector with its position worked into it: rotated in pairs, or with a sinusoid added."""
    if name == "rotary":
        half = len(x) // 2
        angles = [at * base ** (-m / half) for m in range(half)]
        left = [x[m] * math.cos(a) - x[m + half] * math.sin(a) for m, a in enumerate(angles)]
        return np.array(
            left + [x[m] * math.sin(a) + x[m + half] * math.cos(a) for m, a in enumerate(angles)]
        )
    if name == "added":
        angles = [at * base ** (-2 * (c // 2) / len(x)) for c in range(len(x))]
        return x + np.array([math.cos(a) if c % 2 else math.sin(a) for c, a in enumerate(angles)])
    return x


def biased(case: Case, b: int, h: int, q: np.ndarray, k: np.ndarray, far: int, step: int) -> float:
    """What a position adds to a score: `far` is j − i, `step` the relation of the pair."""
    name, position, scale = case.names[2], case.made.position, case.made.score.scale(len(q))
    if name == "alibi":
        return -float(position.slopes[h]) * abs(far)
    if name == "t5":
        return float(
            position.table[
                bucket(far, position.buckets, position.max_distance, position.both_sides), h
            ]
        )
    if name == "edges":
        return float(position.table[min(max(step, 0), position.kinds), h])
    if name in ("shaw", "syntax"):
        return scale * float(q @ position.keys[index_of(case, far, step)].detach().numpy())
    if name == "xl":
        angles = [-far * 10000 ** (-2 * c / position.width) for c in range(position.width // 2)]
        wave = np.array([f(angle) for angle in angles for f in (math.sin, math.cos)])
        return scale * float(
            (q + position.v[h, 0].detach().numpy()) @ (position.weight[h].detach().numpy() @ wave)
        )
    return 0.0


def index_of(case: Case, far: int, step: int) -> int:
    """Which of Shaw's vectors a pair has."""
    position, steps = case.made.position, far
    if case.names[2] == "syntax":
        steps = step if position.signed else abs(step)
    low = position.least * position.max_distance
    return min(max(steps, low), position.max_distance) - low


@torch.no_grad()
def by_hand(case: Case) -> np.ndarray:
    """The whole call, one pair of a query and a key after another."""
    batch, heads, queries, keys = case.sizes
    made, means, (_, normal, position) = case.made, case.means, case.names
    q, k, v = (x.double().numpy() for x in (case.q, case.k, case.v))
    shared = heads // case.k.shape[1]
    line = range(keys - queries, keys)
    i, j = (
        (np.array(line), np.arange(keys))
        if case.at is None
        else (case.at.i.numpy(), case.at.j.numpy())
    )
    i, j = np.broadcast_to(i, (batch, queries)), np.broadcast_to(j, (batch, keys))
    steps = (
        None
        if case.at is None or case.at.relation is None
        else case.at.relation.expand(batch, queries, keys).numpy()
    )
    output = np.zeros((batch, heads, queries, v.shape[3]))
    for b, h, n in np.ndindex(batch, heads, queries):
        seen = [m for m in range(keys) if means(b, h, keys - queries + n, m)]  # type: ignore[misc]
        if not seen:
            continue
        query = encoded(position, q[b, h, n], i[b, n]) + (
            made.position.u[h, 0].numpy() if position == "xl" else 0
        )
        pairs = [(j[b, m] - i[b, n], 0 if steps is None else int(steps[b, n, m])) for m in seen]
        row = []
        for m, pair in zip(seen, pairs, strict=True):
            key = encoded(position, k[b, h // shared, m], j[b, m])
            score = SCORED[case.names[0]](made.score, h, query, key)
            row.append(score + biased(case, b, h, q[b, h, n], k[b, h // shared, m], *pair))
        weights = normalized(made.normalize, normal, row)
        for w, m, pair in zip(weights, seen, pairs, strict=True):
            value = encoded("added" if position == "added" else "", v[b, h // shared, m], j[b, m])
            more = 0.0
            if position in ("shaw", "syntax") and made.position.value_vectors is not None:
                more = made.position.value_vectors[index_of(case, *pair)].numpy()
            output[b, h, n] += w * (value + more)
    return output


def normalized(normalize: torch.nn.Module, name: str, row: list[float]) -> list[float]:
    """Weights by the formulas of test_normalizers.py; `by_count` and the learned offset, which these leave out, here."""
    if name == "relu-sum":
        row = [s + float(normalize.offset) - 1 for s in row]
    if getattr(normalize, "by_count", False) and name == "sigmoid":
        row = [s - math.log(len(row)) for s in row]
    if name == "sigmoid":
        return [1 / (1 + math.exp(-s)) if s > -700 else 0.0 for s in row]
    found = NORMALIZED["softmax" if getattr(normalize, "expected", False) else name](np.array(row))
    return (
        [w / len(row) for w in found]
        if getattr(normalize, "by_count", False) and name == "relu"
        else found
    )


def draw_small(seed: int) -> Case:
    """A call in float64, small enough for loops, whose mask and position have formulas here."""
    n = seed
    while True:
        case = draw_case(n, largest=7, dtypes=(torch.float64,))
        learned = getattr(case.made.position, "vectors", None) is not None
        if case.means is not None and not learned:
            return replace(case, seed=seed)
        n += 10**6


def check_by_hand(case: Case) -> None:
    found, expected = run(case, "eager", False)[0], torch.from_numpy(by_hand(case))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


@seeds(BY_HAND, chunk=60)
def test_eager_is_the_loop_over_plain_numbers(cases: range) -> None:
    run_all(cases, draw_small, check_by_hand)


# --- numbers that are not finite ---


def draw_wrong(seed: int) -> Case:
    return draw_case(seed, largest=40, dtypes=(torch.float32, torch.float64))


def check_wrong_row(case: Case) -> None:
    """A query that is NaN or infinite spoils its own row alone, and is an error nowhere."""
    draw = random.Random(-case.seed)
    wrong = draw.choice([math.nan, math.nan, math.inf, -math.inf])
    b, h, n = (draw.randrange(size) for size in case.q.shape[:3])
    spoiled = replace(case, q=case.q.clone())
    spoiled.q[b, h, n, draw.randrange(case.q.shape[3])] = wrong
    with size_of_blocks(case.blocks):
        for name in able(spoiled, False):
            plain, found = run(case, name, False)[0], run(spoiled, name, False)[0]
            others = torch.ones(found.shape[:3], dtype=torch.bool)
            others[b, h, n] = False
            assert distance(found[others], plain[others]) < 1e-3, (
                f"{name}: other rows change with query {b, h, n} = {wrong}"
            )
            sees = bool((plain[b, h, n] != 0).any())  # a row that sees nothing stays 0
            if (
                math.isnan(wrong)
                and sees
                and case.names[1] != "hard"
                and "TopBlocks" not in str(case)
            ):
                assert found[b, h, n].isnan().any(), (
                    f"{name}: query {b, h, n} is NaN and its row is finite"
                )


@pytest.mark.usefixtures("plain_flex")
@seeds(EXTREME, chunk=60)
@torch.no_grad()
def test_a_query_that_is_not_finite_spoils_its_own_row_alone(cases: range) -> None:
    run_all(cases, draw_wrong, check_wrong_row)


def draw_large(seed: int) -> Case:
    """Queries and keys whose products are beyond 65,504, the largest number of float16."""
    case = draw_case(seed, largest=24, dtypes=(torch.float16,))
    return replace(case, q=80 * case.q, k=80 * case.k, scale=80 * case.scale)


def check_large(case: Case) -> None:
    """Where weights are at most 1, every backend has a finite result, or refuses; of plain dot products that of float64."""
    with size_of_blocks(case.blocks):
        exact = run(case.to(torch.float64), "eager", False)[0]
        case = case.to(torch.float16)
        if case.names[1] == "relu" or any(name in str(case) for name in JUMPS):
            return
        for name in able(case, False):
            try:
                found = run(case, name, False)[0]
            except SaccadeError:
                continue
            assert torch.isfinite(found).all(), f"{name}: the result is not finite"
            if case.names[0] in ("dot", "scaled-dot") and case.names[2] in ("none", "alibi", "t5"):
                near = (
                    ((found.double() - exact).abs() < 0.02 * exact.abs().max().clamp_min(1))
                    .all(-1)
                    .double()
                    .mean()
                )
                assert near > 0.8, f"{name}: {near:.0%} of the rows are near"


@pytest.mark.usefixtures("plain_flex")
@seeds(EXTREME, chunk=60)
@torch.no_grad()
def test_products_beyond_float16_are_compared_in_float32(cases: range) -> None:
    run_all(cases, draw_large, check_large)


# --- edges ---


def test_the_cases_reach_what_they_are_for() -> None:
    """Long and short, more queries than keys, shared heads, each member of each table, every backend of a CPU."""
    cases = [draw_case(seed) for seed in range(COUNT)]
    names = {name for case in cases for name in case.names}
    assert names >= set(SCORED) | set(NORMALIZED)
    assert sum(case.sizes[2] > case.sizes[3] for case in cases) >= 10
    assert max(case.sizes[3] for case in cases) > 450
    assert sum(case.q.shape[1] != case.k.shape[1] for case in cases) > 30
    ran = {
        name
        for case in [*cases[:60], *map(draw_fused, range(60))]
        for name in able(case, case.grad)
    }
    assert ran >= {"eager", "sdpa", "flex", "linear", "blocked", "gather"}


def draw_empty(seed: int) -> Case:
    """A call without a batch; masks and positions are made for one, so that only those are kept that are not."""
    case = draw_case(seed, largest=20)
    case.made.mask = masks.full()
    mask = masks.causal() if case.sizes[2] <= case.sizes[3] else None
    at = Positions(
        *map(torch.arange, case.sizes[2:]), torch.zeros(1, *case.sizes[2:], dtype=torch.long)
    )
    return replace(case, q=case.q[:0], k=case.k[:0], v=case.v[:0], mask=mask, at=at)


def check_empty(case: Case) -> None:
    for name in (*able(case, False), None):
        found = attend(case.q, case.k, case.v, case.made, case.mask, case.at, backend=name)
        assert found.shape == (*case.q.shape[:3], case.v.shape[3]), name


@pytest.mark.usefixtures("plain_flex")
@seeds(EMPTY, chunk=20)
@torch.no_grad()
def test_an_empty_batch_gives_an_empty_output(cases: range) -> None:
    run_all(cases, draw_empty, check_empty)
