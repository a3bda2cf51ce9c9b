"""What the softmax kernels share: tiles of memory, scores with their biases, masks, dropout. i: positions of queries, j: of keys; `row` is
the number of a query. Each has the shape of a row or a column, as the kernel lays its tile out. Scores are kept times log₂e, for exp2.

Biases: 0 none, 1 −slope·|i − j|, 2 a number per distance, clipped to ±LIMIT, from a table per query (or one for all queries): `near` tiles
look it up, tiles that are wholly beyond LIMIT have one number per row, `far`; 3 the first where no query sees a later key. That is
slope·(j − n) − slope·(i − n), with a tile's first position n: one number per key, `far`, and one per query, which is added to what is
subtracted from all scores of the query, so that a pair costs one addition.
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
ALIBI = tl.constexpr(1)
TABLE = tl.constexpr(2)
LEANING = tl.constexpr(3)
# where a tile is: all of its keys are LIMIT or more to the left of its queries
LEFT = tl.constexpr(0)
NEAR = tl.constexpr(1)
RIGHT = tl.constexpr(2)


@triton.jit
def load_tile(
    pointer, n, stride, limit, d, WIDTH: tl.constexpr, PADDED: tl.constexpr, CHECK: tl.constexpr
):
    """Rows n of a matrix WIDTH wide, PADDED columns of them, zeros beyond its edges."""
    at = pointer + n[:, None] * stride + d[None, :]
    if CHECK:
        found = tl.load(at, mask=(n[:, None] < limit) & (d[None, :] < WIDTH), other=0.0)
    elif WIDTH != PADDED:
        found = tl.load(at, mask=d[None, :] < WIDTH, other=0.0)
    else:
        found = tl.load(at)
    return found


@triton.jit
def store_tile(pointer, n, stride, limit, d, values, WIDTH: tl.constexpr):
    """The first WIDTH columns of `values`, to the rows n that are there."""
    kept = (n[:, None] < limit) & (d[None, :] < WIDTH)
    tl.store(
        pointer + n[:, None] * stride + d[None, :], values.to(pointer.dtype.element_ty), mask=kept
    )


@triton.jit
def hyperbolic_tangent(x, FAST: tl.constexpr):
    if FAST:  # one instruction, exact enough for 16 bits
        return tl.inline_asm_elementwise(
            "tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    return 1.0 - 2.0 / (tl.exp2(x * (2.0 * LOG2E)) + 1.0)


@triton.jit
def clipped(i, j, LIMIT: tl.constexpr):
    """j − i as an index into a table of distances."""
    return tl.minimum(tl.maximum(j - i, -LIMIT), LIMIT) + LIMIT


@triton.jit
def gathered(table, stride, row, i, j, queries, LIMIT: tl.constexpr):
    """What the table of each query has for the distances of a tile."""
    at = table + row * stride + clipped(i, j, LIMIT)
    return tl.load(at, mask=(row < queries) & (j >= 0), other=0.0).to(tl.float32)


@triton.jit
def score(
    product, i, j, row, queries, scale, cap, slope, table, stride, far,
    BIAS: tl.constexpr, PLACE: tl.constexpr, LIMIT: tl.constexpr, CAPPED: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """q·k scaled, capped and biased; and what the cap's own gradient is multiplied by."""
    slope_of_cap = 1.0
    if CAPPED:
        bent = hyperbolic_tangent(product * (scale / cap), FAST)
        found = bent * (cap * LOG2E)
        slope_of_cap = 1.0 - bent * bent
    else:
        found = product * (scale * LOG2E)
    if BIAS == ALIBI:
        # each converted once, not the difference of each pair: that is slow
        found -= slope * tl.abs(i.to(tl.float32) - j.to(tl.float32))
    elif BIAS == LEANING:
        found += far
    elif BIAS == TABLE:
        if PLACE == NEAR:
            found += gathered(table, stride, row, i, j, queries, LIMIT) * LOG2E
        else:
            found += far
    return found, slope_of_cap


@triton.jit
def lean(slope, at, n):
    """slope · (at − n), of positions of queries or keys."""
    return slope * (at - n).to(tl.float32)


@triton.jit
def seen(i, j, left, right, length, HAS_LEFT: tl.constexpr, HAS_RIGHT: tl.constexpr):
    """Where the mask allows attention: keys below `length`, from i − left to i + right."""
    allowed = (j < length) & (i == i)  # the second gives it the shape of a tile
    if HAS_LEFT:
        allowed = allowed & (j >= i - left)
    if HAS_RIGHT:
        allowed = allowed & (j <= i + right)
    return allowed


@triton.jit
def row_block(queries, BLOCK_Q: tl.constexpr, LISTED: tl.constexpr):
    """Batch row and head as one number, and the block of queries, of this program."""
    blocks = tl.cdiv(queries, BLOCK_Q)
    if LISTED:  # rows of blocks may differ much: the longest, those of global blocks, come first in all heads
        planes = tl.num_programs(0) // blocks
        plane, block = tl.program_id(0) % planes, tl.program_id(0) // planes
    else:  # programs that run together share the keys of a head; the longest rows of a causal mask are the last ones
        plane, block = tl.program_id(0) // blocks, blocks - 1 - tl.program_id(0) % blocks
    return plane, block


@triton.jit
def far_of(table, stride, row, queries, factor, LIMIT: tl.constexpr, USED: tl.constexpr):
    """What a table has for all distances beyond ±LIMIT, one number per query for each side."""
    left = tl.zeros([row.shape[0]], tl.float32)
    right = left
    if USED:
        left = tl.load(table + row * stride, mask=row < queries, other=0.0).to(tl.float32) * factor
        right = (
            tl.load(table + row * stride + 2 * LIMIT, mask=row < queries, other=0.0).to(tl.float32)
            * factor
        )
    return left, right


@triton.jit
def numbers_of(
    b,
    plane,
    h,
    keys,
    Slopes,
    Lengths,
    Seed,
    BIAS: tl.constexpr,
    HAS_LENGTHS: tl.constexpr,
    DROP: tl.constexpr,
):
    """ALiBi's slope of a head, the number of keys of a row, the seed of both."""
    slope = 0.0
    length = keys
    seed = 0
    if BIAS == ALIBI or BIAS == LEANING:  # noqa: SIM109  # Triton has no `in`
        slope = tl.load(Slopes + h) * LOG2E
    if HAS_LENGTHS:
        length = tl.maximum(tl.minimum(keys, tl.load(Lengths + b).to(tl.int32)), 0)
    if DROP:
        seed = tl.load(Seed) + plane
    return slope, length, seed


@triton.jit
def kept_by_dropout(seed, row, j, keys, drop):
    """What weights are multiplied by: 0, or 1 / (1 − drop)."""
    return tl.where(tl.rand(seed, row * keys + j) >= drop, 1.0 / (1.0 - drop), 0.0)
