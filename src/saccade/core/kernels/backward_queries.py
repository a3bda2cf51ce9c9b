"""Softmax attention, the gradient of the queries: a program goes with BLOCK_Q queries over their keys once more. It also sums
δ_i = dO_i·O_i for the kernel of the keys, and, where scores have a table of distances, writes that table's gradient."""

import triton
import triton.language as tl

from .score_tiles import (
    LEANING,
    LEFT,
    LOG2E,
    NEAR,
    TABLE,
    clipped,
    far_of,
    gathered,
    kept_by_dropout,
    lean,
    load_tile,
    numbers_of,
    row_block,
    score,
    seen,
    store_tile,
)
from .softmax_forward import key_blocks, part_of


@triton.jit
def sweep(
    dq, at_left, at_right, q, do, lse, delta, k_base, v_base, begin, end, columns, partly, bits, i, row, d, e,
    stride_k, stride_v, table, stride_table, far, pulls, far_pull, band, slope, seed,
    queries, keys, length, left, right, scale, cap, drop,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, WIDTH_V: tl.constexpr, PADDED_V: tl.constexpr,
    BIAS: tl.constexpr, PLACE: tl.constexpr, LIMIT: tl.constexpr, CAPPED: tl.constexpr, FAST: tl.constexpr,
    MASKED: tl.constexpr, LISTED: tl.constexpr, HAS_LEFT: tl.constexpr, HAS_RIGHT: tl.constexpr, VALUES: tl.constexpr,
    LEARNED: tl.constexpr, DROP: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dq (not yet scaled) and the sums of gradients of scores beyond ±LIMIT, after the blocks begin … end − 1."""
    # a copy of the table would take shared memory from the keys
    STAGES: tl.constexpr = 1 if BIAS == TABLE and PLACE == NEAR else None
    for n in tl.range(begin, end, num_stages=STAGES):
        block = n
        if LISTED:
            block = tl.load(columns + n)
        j = block * BLOCK_K + tl.arange(0, BLOCK_K)
        CHECK: tl.constexpr = MASKED or LISTED
        k = load_tile(k_base, j, stride_k, keys, d, WIDTH, PADDED, CHECK)
        v = load_tile(v_base, j, stride_v, keys, e, WIDTH_V, PADDED_V, CHECK)
        product = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        beside, taken = far[:, None], lse
        if BIAS == LEANING:
            beside = lean(slope, j, block * BLOCK_K)[None, :]
            taken = lse + lean(slope, i, block * BLOCK_K)
        s, bend = score(product, i[:, None], j[None, :], row[:, None], queries, scale, cap, slope, table, stride_table,
                        beside, BIAS, PLACE, LIMIT, CAPPED, FAST)  # fmt: skip
        p = tl.exp2(s - taken[:, None])
        if LISTED:
            if MASKED:
                word = tl.load(
                    bits + tl.load(columns + partly + n).to(tl.int64) * BLOCK_K + row % BLOCK_K
                )
                p = tl.where(
                    ((word[:, None] >> (j % BLOCK_K)[None, :].to(tl.int64)) & 1) != 0, p, 0.0
                )
        elif MASKED:
            p = tl.where(
                seen(i[:, None], j[None, :], left, right, length, HAS_LEFT, HAS_RIGHT), p, 0.0
            )
        dp = tl.dot(do, tl.trans(v), input_precision=PRECISION)
        if VALUES:
            if PLACE == NEAR:
                dp += gathered(
                    pulls, 2 * LIMIT + 1, row[:, None], i[:, None], j[None, :], queries, LIMIT
                )
            else:
                dp += far_pull[:, None]
        if DROP:
            dp *= kept_by_dropout(seed, row[:, None], j[None, :], keys, drop)
        ds = p * (dp - delta[:, None])
        if LEARNED:
            if PLACE == NEAR:
                c = clipped(i[:, None], j[None, :], LIMIT)
                inside = (c > 0) & (c < 2 * LIMIT) & (row[:, None] < queries) & (j[None, :] < keys)
                tl.store(
                    band + row[:, None] * (2 * LIMIT + 1) + c,
                    ds.to(band.dtype.element_ty),
                    mask=inside,
                )
                at_left += tl.sum(tl.where(c == 0, ds, 0.0), 1)
                at_right += tl.sum(tl.where(c == 2 * LIMIT, ds, 0.0), 1)
            elif PLACE == LEFT:
                at_left += tl.sum(ds, 1)
            else:
                at_right += tl.sum(ds, 1)
        if CAPPED:
            ds *= bend
        dq = tl.dot(ds.to(k.dtype), k, dq, input_precision=PRECISION)
    return dq, at_left, at_right


@triton.jit
def backward_queries(
    Q, K, V, Out, Lse, Grad, Delta, DQ, Table, Pulls, Band, Slopes, Lengths, Plan, Bits, Seed,
    q_b, q_h, q_n, k_b, k_h, k_n, v_b, v_h, v_n, o_b, o_h, o_n, g_b, g_h, g_n, dq_b, dq_h, dq_n, t_b, t_h, t_n,
    plan_b, plan_h, plan_n, partly,
    heads, group, queries, keys, left, right, scale, cap, drop,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, WIDTH_V: tl.constexpr, PADDED_V: tl.constexpr,
    BIAS: tl.constexpr, LIMIT: tl.constexpr, CAPPED: tl.constexpr, FAST: tl.constexpr, LISTED: tl.constexpr,
    HAS_LEFT: tl.constexpr, HAS_RIGHT: tl.constexpr, HAS_LENGTHS: tl.constexpr, VALUES: tl.constexpr, LEARNED: tl.constexpr,
    DROP: tl.constexpr, PRECISION: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    plane, block = row_block(queries, BLOCK_Q, LISTED)
    b, h = (plane // heads).to(tl.int64), (plane % heads).to(tl.int64)
    row = block * BLOCK_Q + tl.arange(0, BLOCK_Q)
    offset = keys - queries
    i = row + offset
    at = plane.to(tl.int64) * queries + row
    d, e = tl.arange(0, PADDED), tl.arange(0, PADDED_V)
    q = load_tile(Q + b * q_b + h * q_h, row, q_n, queries, d, WIDTH, PADDED, True)
    do = load_tile(Grad + b * g_b + h * g_h, row, g_n, queries, e, WIDTH_V, PADDED_V, True)
    out = load_tile(Out + b * o_b + h * o_h, row, o_n, queries, e, WIDTH_V, PADDED_V, True)
    delta = tl.sum(do.to(tl.float32) * out.to(tl.float32), 1)
    tl.store(Delta + at, delta, mask=row < queries)
    lse = tl.load(Lse + at, mask=row < queries, other=float("inf"))
    k_base, v_base = K + b * k_b + (h // group) * k_h, V + b * v_b + (h // group) * v_h
    plane_of_band = plane.to(tl.int64) * queries * (2 * LIMIT + 1)
    table, pulls, band = Table + b * t_b + h * t_h, Pulls + plane_of_band, Band + plane_of_band
    slope, length, seed = numbers_of(
        b, plane, h, keys, Slopes, Lengths, Seed, BIAS, HAS_LENGTHS, DROP
    )
    far_left, far_right = far_of(table, t_n, row, queries, LOG2E, LIMIT, BIAS == TABLE)
    pull_left, pull_right = far_of(pulls, 2 * LIMIT + 1, row, queries, 1.0, LIMIT, VALUES)
    dq = tl.zeros([BLOCK_Q, PADDED], tl.float32)
    at_left = tl.zeros([BLOCK_Q], tl.float32)
    at_right = at_left
    plan = Plan + b * plan_b + h * plan_h + block * plan_n
    first = block * BLOCK_Q + offset
    last = tl.minimum(block * BLOCK_Q + BLOCK_Q, queries) - 1 + offset
    begin, whole, near, beyond, edge, end = key_blocks(
        first, last, length, left, right, HAS_LEFT, HAS_RIGHT, LIMIT, BIAS, BLOCK_K
    )
    for part in tl.static_range(5):
        start, stop, far = part_of(
            part, begin, whole, near, beyond, edge, end, far_left, far_right, plan, LISTED
        )
        if (
            part == 1
            or (part == 0 and (HAS_LEFT or LISTED))
            or (not LISTED and (part == 4 or (BIAS == TABLE and part > 1)))
        ):
            dq, at_left, at_right = sweep(
                dq, at_left, at_right, q, do, lse, delta, k_base, v_base, start, stop, plan + 2 + part * 2 * partly, partly, Bits,
                i, row, d, e, k_n, v_n, table, t_n, far, pulls, pull_right if part == 3 else pull_left, band, slope, seed,
                queries, keys, length, left, right, scale, cap, drop, WIDTH, PADDED, WIDTH_V, PADDED_V,
                BIAS, NEAR if LISTED or part % 2 == 0 else part - 1, LIMIT, CAPPED, FAST, part % 4 == 0, LISTED,
                HAS_LEFT, HAS_RIGHT, VALUES, LEARNED, DROP, BLOCK_K, PRECISION)  # fmt: skip
    store_tile(DQ + b * dq_b + h * dq_h, row, dq_n, queries, d, dq * scale, WIDTH)
    if LEARNED:
        edge_of_band = band + row * (2 * LIMIT + 1)
        tl.store(edge_of_band, at_left.to(band.dtype.element_ty), mask=row < queries)
        tl.store(edge_of_band + 2 * LIMIT, at_right.to(band.dtype.element_ty), mask=row < queries)
