"""Softmax attention, the gradients of keys and values: a program goes with BLOCK_K keys over the queries that may attend to them, in all
heads that share these keys. Tiles are transposed, keys × queries, so that the weights are never moved to be multiplied."""

import triton
import triton.language as tl

from .score_tiles import (
    LEANING,
    LOG2E,
    NEAR,
    TABLE,
    gathered,
    kept_by_dropout,
    lean,
    load_tile,
    numbers_of,
    score,
    seen,
    store_tile,
)
from .softmax_forward import part_of


@triton.jit
def query_blocks(
    first, last, length, queries, offset, left, right,
    HAS_LEFT: tl.constexpr, HAS_RIGHT: tl.constexpr, LIMIT: tl.constexpr, BIAS: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Blocks of queries for keys at first … last: see `key_blocks`."""
    # 0, unknown to the compiler, which would make the products of one tile wait for each other
    low = tl.minimum(queries, 0)
    whole_from = 0
    high = queries
    whole_to = queries
    if HAS_RIGHT:
        low = tl.maximum(first - right - offset, 0)
        whole_from = tl.maximum(last - right - offset, 0)
    if HAS_LEFT:
        high = tl.minimum(high, tl.maximum(last + left - offset + 1, 0))
        whole_to = tl.minimum(whole_to, tl.maximum(first + left - offset + 1, 0))
    high = tl.where(first < length, high, 0)
    whole_to = tl.where(first + BLOCK_K <= length, whole_to, 0)
    begin = low // BLOCK_Q
    end = tl.maximum(tl.cdiv(high, BLOCK_Q), begin)
    whole_begin = tl.minimum(tl.cdiv(whole_from, BLOCK_Q), end)
    whole_end = tl.minimum(tl.maximum(whole_to // BLOCK_Q, whole_begin), end)
    near_begin = whole_end
    near_end = whole_end
    if BIAS == TABLE:
        near_begin = tl.maximum(first - LIMIT + 1 - offset, 0) // BLOCK_Q
        near_begin = tl.minimum(tl.maximum(near_begin, whole_begin), whole_end)
        near_end = tl.cdiv(tl.maximum(last + LIMIT - offset, 0), BLOCK_Q)
        near_end = tl.minimum(tl.maximum(near_end, near_begin), whole_end)
    return begin, whole_begin, near_begin, near_end, whole_end, end


@triton.jit
def sweep(
    dk, dv, k, v, q_base, g_base, lse_base, delta_base, begin, end, rows, partly, bits, j, offset, d, e,
    stride_q, stride_g, table, stride_table, pulls, slope, seed,
    queries, keys, length, left, right, scale, cap, drop,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, WIDTH_V: tl.constexpr, PADDED_V: tl.constexpr,
    BIAS: tl.constexpr, PLACE: tl.constexpr, LIMIT: tl.constexpr, CAPPED: tl.constexpr, FAST: tl.constexpr,
    MASKED: tl.constexpr, LISTED: tl.constexpr, HAS_LEFT: tl.constexpr, HAS_RIGHT: tl.constexpr, VALUES: tl.constexpr,
    DROP: tl.constexpr, BLOCK_Q: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dk (not yet scaled) and dv after the blocks of queries begin … end − 1."""
    # a copy of the table would take shared memory from the keys
    STAGES: tl.constexpr = 1 if BIAS == TABLE and PLACE == NEAR else None
    for n in tl.range(begin, end, num_stages=STAGES):
        block = n
        if LISTED:
            block = tl.load(rows + n)
        row = block * BLOCK_Q + tl.arange(0, BLOCK_Q)
        i = row + offset
        CHECK: tl.constexpr = MASKED or LISTED
        q = load_tile(q_base, row, stride_q, queries, d, WIDTH, PADDED, CHECK)
        do = load_tile(g_base, row, stride_g, queries, e, WIDTH_V, PADDED_V, CHECK)
        lse = (
            tl.load(lse_base + row, mask=row < queries, other=float("inf"))
            if CHECK
            else tl.load(lse_base + row)
        )
        delta = (
            tl.load(delta_base + row, mask=row < queries, other=0.0)
            if CHECK
            else tl.load(delta_base + row)
        )
        far = tl.zeros([BLOCK_Q], tl.float32)
        if BIAS == TABLE and PLACE != NEAR:
            far = (
                tl.load(
                    table + row * stride_table + PLACE * LIMIT, mask=row < queries, other=0.0
                ).to(tl.float32)
                * LOG2E
            )
        beside = far[None, :]
        if BIAS == LEANING:
            beside = lean(slope, j, block * BLOCK_Q + offset)[:, None]
            lse += lean(slope, row, block * BLOCK_Q)
        product = tl.dot(k, tl.trans(q), input_precision=PRECISION)
        s, bend = score(product, i[None, :], j[:, None], row[None, :], queries, scale, cap, slope, table, stride_table,
                        beside, BIAS, PLACE, LIMIT, CAPPED, FAST)  # fmt: skip
        p = tl.exp2(s - lse[None, :])
        if LISTED:
            if MASKED:
                word = tl.load(
                    bits + tl.load(rows + partly + n).to(tl.int64) * BLOCK_Q + tl.arange(0, BLOCK_Q)
                )
                p = tl.where(
                    ((word[None, :] >> (j % BLOCK_Q)[:, None].to(tl.int64)) & 1) != 0, p, 0.0
                )
        elif MASKED:
            p = tl.where(
                seen(i[None, :], j[:, None], left, right, length, HAS_LEFT, HAS_RIGHT), p, 0.0
            )
        kept = 1.0
        if DROP:
            kept = kept_by_dropout(seed, row[None, :], j[:, None], keys, drop)
        dv = tl.dot((p * kept).to(do.dtype), do, dv, input_precision=PRECISION)
        dp = tl.dot(v, tl.trans(do), input_precision=PRECISION)
        if VALUES:
            if PLACE == NEAR:
                dp += gathered(
                    pulls, 2 * LIMIT + 1, row[None, :], i[None, :], j[:, None], queries, LIMIT
                )
            else:
                pull = tl.load(
                    pulls + row * (2 * LIMIT + 1) + PLACE * LIMIT, mask=row < queries, other=0.0
                )
                dp += pull.to(tl.float32)[None, :]
        ds = p * (dp * kept - delta[None, :])
        if CAPPED:
            ds *= bend
        dk = tl.dot(ds.to(q.dtype), q, dk, input_precision=PRECISION)
    return dk, dv


@triton.jit
def backward_keys(
    Q, K, V, Lse, Grad, Delta, DK, DV, Table, Pulls, Slopes, Lengths, Plan, Bits, Seed,
    q_b, q_h, q_n, k_b, k_h, k_n, v_b, v_h, v_n, g_b, g_h, g_n, dk_b, dk_h, dk_n, dv_b, dv_h, dv_n, t_b, t_h, t_n,
    plan_b, plan_h, plan_n, partly,
    heads, group, queries, keys, left, right, scale, cap, drop,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, WIDTH_V: tl.constexpr, PADDED_V: tl.constexpr,
    BIAS: tl.constexpr, LIMIT: tl.constexpr, CAPPED: tl.constexpr, FAST: tl.constexpr, LISTED: tl.constexpr,
    HAS_LEFT: tl.constexpr, HAS_RIGHT: tl.constexpr, HAS_LENGTHS: tl.constexpr, VALUES: tl.constexpr, DROP: tl.constexpr,
    PRECISION: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(keys, BLOCK_K)
    if LISTED:
        planes = tl.num_programs(0) // blocks
        plane, block = tl.program_id(0) % planes, tl.program_id(0) // planes
    else:  # the first keys of a causal mask have the most queries
        plane, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    shared = heads // group
    b, kv_head = (plane // shared).to(tl.int64), (plane % shared).to(tl.int64)
    j = block * BLOCK_K + tl.arange(0, BLOCK_K)
    d, e = tl.arange(0, PADDED), tl.arange(0, PADDED_V)
    k = load_tile(K + b * k_b + kv_head * k_h, j, k_n, keys, d, WIDTH, PADDED, True)
    v = load_tile(V + b * v_b + kv_head * v_h, j, v_n, keys, e, WIDTH_V, PADDED_V, True)
    offset = keys - queries
    dk = tl.zeros([BLOCK_K, PADDED], tl.float32)
    dv = tl.zeros([BLOCK_K, PADDED_V], tl.float32)
    last = tl.minimum(block * BLOCK_K + BLOCK_K, keys) - 1
    for member in tl.range(0, group):
        h = kv_head * group + member
        line = (b * heads + h) * queries
        q_base, g_base = Q + b * q_b + h * q_h, Grad + b * g_b + h * g_h
        table, pulls = Table + b * t_b + h * t_h, Pulls + line * (2 * LIMIT + 1)
        slope, length, seed = numbers_of(
            b, (b * heads + h).to(tl.int32), h, keys, Slopes, Lengths, Seed, BIAS, HAS_LENGTHS, DROP
        )
        plan = Plan + b * plan_b + h * plan_h + block * plan_n
        begin, whole, near, beyond, edge, end = query_blocks(
            block * BLOCK_K,
            last,
            length,
            queries,
            offset,
            left,
            right,
            HAS_LEFT,
            HAS_RIGHT,
            LIMIT,
            BIAS,
            BLOCK_Q,
            BLOCK_K,
        )
        for part in tl.static_range(5):
            start, stop, _ = part_of(
                part, begin, whole, near, beyond, edge, end, 0, 0, plan, LISTED
            )
            if (
                part == 1
                or (part == 0 and (HAS_RIGHT or LISTED))
                or (not LISTED and (part == 4 or (BIAS == TABLE and part > 1)))
            ):
                dk, dv = sweep(
                    dk, dv, k, v, q_base, g_base, Lse + line, Delta + line, start, stop, plan + 2 + part * 2 * partly, partly,
                    Bits, j, offset, d, e, q_n, g_n, table, t_n, pulls, slope, seed,
                    queries, keys, length, left, right, scale, cap, drop, WIDTH, PADDED, WIDTH_V, PADDED_V,
                    BIAS, NEAR if LISTED or part % 2 == 0 else 3 - part, LIMIT, CAPPED, FAST, part % 4 == 0, LISTED,
                    HAS_LEFT, HAS_RIGHT, VALUES, DROP, BLOCK_Q, PRECISION)  # fmt: skip
    store_tile(DK + b * dk_b + kv_head * dk_h, j, dk_n, keys, d, dk * scale, WIDTH)
    store_tile(DV + b * dv_b + kv_head * dv_h, j, dv_n, keys, e, dv, WIDTH_V)
