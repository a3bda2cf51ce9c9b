"""Softmax attention, forward (Dao 2023, FlashAttention-2): a program goes with BLOCK_Q queries over the keys that they may attend to."""

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
    kept_by_dropout,
    lean,
    load_tile,
    numbers_of,
    row_block,
    score,
    seen,
    store_tile,
)


@triton.jit
def key_blocks(
    first, last, length, left, right,
    HAS_LEFT: tl.constexpr, HAS_RIGHT: tl.constexpr, LIMIT: tl.constexpr, BIAS: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Blocks of keys for queries at first … last: from the first needed one to the first that all of them see whole, the first and the
    last near ones, the last seen whole and the last needed."""
    low = 0
    whole_from = 0
    high = length
    whole_to = length
    if HAS_LEFT:
        low = tl.maximum(first - left, 0)
        whole_from = tl.maximum(last - left, 0)
    if HAS_RIGHT:
        high = tl.minimum(high, last + right + 1)
        whole_to = tl.minimum(whole_to, first + right + 1)
    begin = low // BLOCK_K
    end = tl.maximum(tl.cdiv(high, BLOCK_K), begin)
    whole_begin = tl.minimum(tl.cdiv(whole_from, BLOCK_K), end)
    whole_end = tl.minimum(tl.maximum(whole_to // BLOCK_K, whole_begin), end)
    near_begin = whole_end
    near_end = whole_end
    if BIAS == TABLE:
        near_begin = tl.minimum(
            tl.maximum(tl.maximum(first - LIMIT + 1, 0) // BLOCK_K, whole_begin), whole_end
        )
        near_end = tl.minimum(tl.maximum(tl.cdiv(last + LIMIT, BLOCK_K), near_begin), whole_end)
    return begin, whole_begin, near_begin, near_end, whole_end, end


@triton.jit
def part_of(
    PART: tl.constexpr,
    begin,
    whole,
    near,
    beyond,
    edge,
    end,
    far_left,
    far_right,
    plan,
    LISTED: tl.constexpr,
):
    """The blocks of one part of a row, and what the table has for all of them: 0 the left edge, 1 whole and far to the left, 2 near,
    3 far to the right, 4 the right edge; of a plan, 0 those that are seen partly and 1 whole."""
    start, stop, far = begin, whole, far_left
    if LISTED:
        start, stop = 0, tl.load(plan + PART % 2)
    elif PART == 1:
        start, stop = whole, near
    elif PART == 2:
        start, stop = near, beyond
    elif PART == 3:
        start, stop, far = beyond, edge, far_right
    elif PART == 4:
        start, stop = edge, end
    return start, stop, far


@triton.jit
def sweep(
    acc, top, total, at_left, at_right, q, k_base, v_base, begin, end, columns, partly, bits, i, row, d, e,
    stride_k, stride_v, table, stride_table, far, band, slope, seed,
    queries, keys, length, left, right, scale, cap, drop,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, WIDTH_V: tl.constexpr, PADDED_V: tl.constexpr,
    BIAS: tl.constexpr, PLACE: tl.constexpr, LIMIT: tl.constexpr, CAPPED: tl.constexpr, FAST: tl.constexpr,
    MASKED: tl.constexpr, LISTED: tl.constexpr, HAS_LEFT: tl.constexpr, HAS_RIGHT: tl.constexpr, VALUES: tl.constexpr,
    DROP: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The weighted sum (not yet divided), largest scores and sums of weights after the blocks begin … end − 1."""
    # a copy of the table would take shared memory from the keys
    STAGES: tl.constexpr = 1 if BIAS == TABLE and PLACE == NEAR else None
    for n in tl.range(begin, end, num_stages=STAGES):
        block = n
        if LISTED:
            block = tl.load(columns + n)
        j = block * BLOCK_K + tl.arange(0, BLOCK_K)
        CHECK: tl.constexpr = MASKED or LISTED
        k = load_tile(k_base, j, stride_k, keys, d, WIDTH, PADDED, CHECK)
        product = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        beside = far[:, None]
        if BIAS == LEANING:
            beside = lean(slope, j, block * BLOCK_K)[None, :]
        s, _ = score(product, i[:, None], j[None, :], row[:, None], queries, scale, cap, slope, table, stride_table,
                     beside, BIAS, PLACE, LIMIT, CAPPED, FAST)  # fmt: skip
        if LISTED:
            if MASKED:
                word = tl.load(
                    bits + tl.load(columns + partly + n).to(tl.int64) * BLOCK_K + row % BLOCK_K
                )
                s = tl.where(
                    ((word[:, None] >> (j % BLOCK_K)[None, :].to(tl.int64)) & 1) != 0,
                    s,
                    float("-inf"),
                )
        elif MASKED:
            s = tl.where(
                seen(i[:, None], j[None, :], left, right, length, HAS_LEFT, HAS_RIGHT),
                s,
                float("-inf"),
            )
        largest = tl.max(s, 1)
        if BIAS == LEANING:
            largest -= lean(slope, i, block * BLOCK_K)
        largest = tl.maximum(top, largest)
        base = tl.where(largest == float("-inf"), 0.0, largest)  # a row that saw nothing yet
        taken = base
        if BIAS == LEANING:
            taken = base + lean(slope, i, block * BLOCK_K)
        p = tl.exp2(s - taken[:, None])
        shrink = tl.exp2(top - base)
        total = total * shrink + tl.sum(p, 1)
        if VALUES:
            c = clipped(i[:, None], j[None, :], LIMIT)
            at_left, at_right = at_left * shrink, at_right * shrink
            if PLACE == NEAR:
                inside = (c > 0) & (c < 2 * LIMIT) & (row[:, None] < queries) & (j[None, :] < keys)
                tl.store(band + row[:, None] * (2 * LIMIT + 1) + c, s, mask=inside)
                at_left += tl.sum(tl.where(c == 0, p, 0.0), 1)
                at_right += tl.sum(tl.where(c == 2 * LIMIT, p, 0.0), 1)
            elif PLACE == LEFT:
                at_left += tl.sum(p, 1)
            else:
                at_right += tl.sum(p, 1)
        if DROP:
            p *= kept_by_dropout(seed, row[:, None], j[None, :], keys, drop)
        v = load_tile(v_base, j, stride_v, keys, e, WIDTH_V, PADDED_V, CHECK)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision=PRECISION)
        top = largest
    return acc, top, total, at_left, at_right


@triton.jit
def forward(
    Q, K, V, Out, Lse, Table, Band, Ends, Slopes, Lengths, Plan, Bits, Seed,
    q_b, q_h, q_n, k_b, k_h, k_n, v_b, v_h, v_n, o_b, o_h, o_n, t_b, t_h, t_n, plan_b, plan_h, plan_n, partly,
    heads, group, queries, keys, left, right, scale, cap, drop,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, WIDTH_V: tl.constexpr, PADDED_V: tl.constexpr,
    BIAS: tl.constexpr, LIMIT: tl.constexpr, CAPPED: tl.constexpr, FAST: tl.constexpr, LISTED: tl.constexpr,
    HAS_LEFT: tl.constexpr, HAS_RIGHT: tl.constexpr, HAS_LENGTHS: tl.constexpr, VALUES: tl.constexpr, DROP: tl.constexpr,
    PRECISION: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    plane, block = row_block(queries, BLOCK_Q, LISTED)
    b, h = (plane // heads).to(tl.int64), (plane % heads).to(tl.int64)
    row = block * BLOCK_Q + tl.arange(0, BLOCK_Q)
    offset = keys - queries
    i = row + offset
    d, e = tl.arange(0, PADDED), tl.arange(0, PADDED_V)
    q = load_tile(Q + b * q_b + h * q_h, row, q_n, queries, d, WIDTH, PADDED, True)
    k_base, v_base = K + b * k_b + (h // group) * k_h, V + b * v_b + (h // group) * v_h
    table, band = Table + b * t_b + h * t_h, Band + plane.to(tl.int64) * queries * (2 * LIMIT + 1)
    slope, length, seed = numbers_of(
        b, plane, h, keys, Slopes, Lengths, Seed, BIAS, HAS_LENGTHS, DROP
    )
    far_left, far_right = far_of(table, t_n, row, queries, LOG2E, LIMIT, BIAS == TABLE)
    acc = tl.zeros([BLOCK_Q, PADDED_V], tl.float32)
    total = tl.zeros([BLOCK_Q], tl.float32)
    top, at_left, at_right = total - float("inf"), total, total
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
            acc, top, total, at_left, at_right = sweep(
                acc, top, total, at_left, at_right, q, k_base, v_base, start, stop, plan + 2 + part * 2 * partly, partly, Bits,
                i, row, d, e, k_n, v_n, table, t_n, far, band, slope, seed,
                queries, keys, length, left, right, scale, cap, drop, WIDTH, PADDED, WIDTH_V, PADDED_V,
                BIAS, NEAR if LISTED or part % 2 == 0 else part - 1, LIMIT, CAPPED, FAST, part % 4 == 0, LISTED,
                HAS_LEFT, HAS_RIGHT, VALUES, DROP, BLOCK_K, PRECISION)  # fmt: skip
    there = total > 0
    scaled = tl.where(there, 1.0 / tl.where(there, total, 1.0), 0.0)
    store_tile(Out + b * o_b + h * o_h, row, o_n, queries, e, acc * scaled[:, None], WIDTH_V)
    at = plane.to(tl.int64) * queries + row
    # +∞ for a row that may attend nowhere: exp2(score − ∞) is 0 in the backward pass
    tl.store(
        Lse + at,
        tl.where(there, top + tl.log2(tl.where(there, total, 1.0)), float("inf")),
        mask=row < queries,
    )
    if VALUES:
        tl.store(Ends + at * 2, at_left * scaled, mask=row < queries)
        tl.store(Ends + at * 2 + 1, at_right * scaled, mask=row < queries)
