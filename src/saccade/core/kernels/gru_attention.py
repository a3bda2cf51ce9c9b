"""Kernels of a GRU that attends with an additive score, one step at a time: what is between a step's matrix products, forward and backward.

B batch, T steps, N memory positions, H hidden width, A width of the score, M width of the memory. A row of `both` (A + 3H) is W_q s and then
U s, what the state asks for and what it gives the gates; the bias is not added yet.

A program owns a row of the batch, so that nothing is added by several at once. No tanh is kept: backward computes them again, in a step for
the gradient of its query, and after all steps for those of K and v, which no step waits for.
"""

import inspect
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import interpreted
from .decode_step import launch
from .score_tiles import hyperbolic_tangent, load_tile, store_tile
from .tiles import power

TILE_BYTES = 96 << 10  # bytes of K and V that a program holds at a time, in registers
MAX_TILE_ROWS = 32  # positions of it at most
PER_WARP = 3072  # its numbers: more would not fit a warp's registers
# Sizes of a batch, and tensors whose rows need not begin at multiples of 16 bytes: a kernel for each kind would be no faster.
SIZES, UNALIGNED = ["steps", "batch", "positions"], ["Added", "Read", "Weights", "OfScore"]
MAX_WIDTH = 1 << 13  # of A and M: a program has whole rows
MAX_STATE_TILE = 256  # numbers of a state that one program takes down
MAX_VALUE_TILES = 8  # of a row of V
KEYS, WIDTH = 32, 64  # the tile whose gradient one program adds up over all steps


def plain_sizes(kernel: Any) -> Any:
    """A kernel that is not built again for another number of steps, rows or positions."""
    names = inspect.signature(kernel).parameters
    some, others = ([name for name in those if name in names] for those in (SIZES, UNALIGNED))
    return triton.jit(kernel, do_not_specialize=some, do_not_specialize_on_alignment=others)


@triton.jit
def asked(Both, Bias, row, a, WIDE: tl.constexpr, A: tl.constexpr):
    """What the state of a row asks for."""
    q = tl.load(Both + row * WIDE + a, mask=a < A, other=0.0)
    return q + tl.load(Bias + a, mask=a < A, other=0.0)


@plain_sizes
def attend_forward(
    Both, Bias, Key, Value, Added, Score, Read, Weights, Context, Seen, positions,
    WIDE: tl.constexpr, A: tl.constexpr, BA: tl.constexpr, M: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    a, m, block = tl.arange(0, BA), tl.arange(0, BM), tl.arange(0, BN)
    q, v = asked(Both, Bias, row, a, WIDE, A), tl.load(Score + a, mask=a < A, other=0.0)
    top, total, context = float("-inf"), 0.0, tl.zeros([BM], tl.float32)
    Weights += row * positions
    for start in tl.range(0, positions, BN):
        n = start + block
        # on their way while scores are computed
        values = load_tile(Value + row * positions * M, n, M, positions, m, M, BM, True)
        key = load_tile(Key + row * positions * A, n, A, positions, a, A, BA, True)
        added = tl.load(Added + row * positions + n, mask=n < positions, other=float("-inf"))
        score = (
            tl.sum(hyperbolic_tangent(key.to(tl.float32) + q[None, :], FAST) * v[None, :], 1)
            + added
        )
        tl.store(Weights + n, score, mask=n < positions)
        higher = tl.maximum(top, tl.max(score))
        weight, shrunk = tl.exp(score - higher), tl.exp(top - higher)
        total = total * shrunk + tl.sum(weight)
        context = context * shrunk + tl.sum(weight[:, None] * values.to(tl.float32), 0)
        top = higher
    context = context / total
    tl.store(Context + row * M + m, context, mask=m < M)
    if Seen is not None:
        if Read is not None:
            context = context * tl.load(Read + row)
        tl.store(Seen + row * M + m, context.to(Seen.dtype.element_ty), mask=m < M)
    tl.debug_barrier()  # scores are read by other threads than wrote them
    for start in tl.range(0, positions, BN):
        n = start + block
        score = tl.load(Weights + n, mask=n < positions, other=float("-inf"))
        tl.store(Weights + n, tl.exp(score - top) / total, mask=n < positions)


@triton.jit
def pulled_at(Pulled, OfContext, Read, row, m, of_context_b, M: tl.constexpr):
    """The gradient of a context: the output's, and that of what the state read of it."""
    pulled = tl.load(Pulled + row * M + m, mask=m < M, other=0.0)
    if Read is not None:
        pulled = pulled * tl.load(Read + row)
    return pulled + tl.load(OfContext + row * of_context_b + m, mask=m < M, other=0.0)


@plain_sizes
def attend_backward(
    Pulled, OfContext, Context, Read, Both, Bias, Key, Value, Score, Weights, OfSeen, OfScore, OfBoth, positions, of_context_b,
    WIDE: tl.constexpr, A: tl.constexpr, BA: tl.constexpr, M: tl.constexpr, BM: tl.constexpr, PARTS: tl.constexpr, BN: tl.constexpr,
    FAST: tl.constexpr,
):  # fmt: skip
    """The gradients of scores and query. Of a softmax that of a score is w (∂w − Σ w ∂w); since the sum is the context's product with its
    gradient, that is w (V − c) ∂c. Values come in parts as wide as a key, so that both are spread over threads in the same way."""
    row = tl.program_id(0).to(tl.int64)
    a, block = tl.arange(0, BA), tl.arange(0, BN)
    q, of_query = asked(Both, Bias, row, a, WIDE, A), tl.zeros([BA], tl.float32)
    for start in tl.range(0, positions, BN):
        n = start + block
        key = load_tile(Key + row * positions * A, n, A, positions, a, A, BA, True)
        weight = tl.load(Weights + row * positions + n, mask=n < positions, other=0.0)
        product, of_mean = tl.zeros([BN, BM], tl.float32), tl.zeros([BM], tl.float32)
        for part in tl.static_range(PARTS):
            m = part * BM + tl.arange(0, BM)
            values = load_tile(Value + row * positions * M, n, M, positions, m, M, BM, True).to(
                tl.float32
            )
            pulled = pulled_at(Pulled, OfContext, Read, row, m, of_context_b, M)
            product += values * pulled[None, :]
            of_mean += pulled * tl.load(Context + row * M + m, mask=m < M, other=0.0)
        of_score = weight * tl.sum(product - of_mean[None, :], 1)
        tl.store(OfScore + row * positions + n, of_score, mask=n < positions)
        fit = hyperbolic_tangent(key.to(tl.float32) + q[None, :], FAST)
        of_query += tl.sum(of_score[:, None] * (1.0 - fit * fit), 0)
    of_query = of_query * tl.load(Score + a, mask=a < A, other=0.0)
    tl.store(OfBoth + row * WIDE + a, of_query.to(OfBoth.dtype.element_ty), mask=a < A)
    for part in tl.static_range(PARTS):
        m = part * BM + tl.arange(0, BM)
        pulled = pulled_at(Pulled, OfContext, Read, row, m, of_context_b, M)
        tl.store(OfSeen + row * M + m, pulled.to(OfSeen.dtype.element_ty), mask=m < M)


@plain_sizes
def keys_backward(
    Both, Bias, Key, Score, OfScore, OfKey, OfV, steps, batch, positions,
    WIDE: tl.constexpr, A: tl.constexpr, BA: tl.constexpr, BN: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """The gradients of a tile of K, and what it gives that of v, added up over all steps."""
    across, down = tl.cdiv(A, BA), tl.cdiv(positions, BN)
    part = tl.program_id(0) // across  # of all rows' blocks of positions
    row, a = (part // down).to(tl.int64), (tl.program_id(0) % across) * BA + tl.arange(0, BA)
    n = (part % down) * BN + tl.arange(0, BN)
    key = load_tile(Key + row * positions * A, n, A, positions, a, A, BA, True).to(tl.float32)
    of_key, of_v = tl.zeros([BN, BA], tl.float32), tl.zeros([BN, BA], tl.float32)
    for t in tl.range(0, steps):
        at = t * batch + row
        of_score = tl.load(OfScore + at * positions + n, mask=n < positions, other=0.0)[:, None]
        fit = hyperbolic_tangent(key + asked(Both, Bias, at, a, WIDE, A)[None, :], FAST)
        of_key += of_score * (1.0 - fit * fit)
        of_v += of_score * fit
    v = tl.load(Score + a, mask=a < A, other=0.0)
    store_tile(OfKey + row * positions * A, n, A, positions, a, of_key * v[None, :], A)
    tl.store(OfV + part.to(tl.int64) * A + a, tl.sum(of_v, 0), mask=a < A)


@triton.jit
def gru_forward(
    X,
    Both,
    Bias,
    Gates,
    Before,
    After,
    Low,
    x_b,
    WIDE: tl.constexpr,
    A: tl.constexpr,
    H: tl.constexpr,
    BH: tl.constexpr,
):
    """The next state; gates take the memory of what the context gives them."""
    row = (tl.program_id(0) // tl.cdiv(H, BH)).to(tl.int64)
    h = (tl.program_id(0) % tl.cdiv(H, BH)) * BH + tl.arange(0, BH)
    there = h < H
    x, inner, gates = X + row * x_b + h, Both + row * WIDE + A + h, Gates + row * 3 * H + h
    bias = Bias + A + h
    reset = tl.load(x, mask=there, other=0.0).to(tl.float32) + tl.load(gates, mask=there, other=0.0)
    reset = tl.sigmoid(
        reset + tl.load(inner, mask=there, other=0.0) + tl.load(bias, mask=there, other=0.0)
    )
    update = tl.load(x + H, mask=there, other=0.0).to(tl.float32) + tl.load(
        gates + H, mask=there, other=0.0
    )
    update = tl.sigmoid(
        update
        + tl.load(inner + H, mask=there, other=0.0)
        + tl.load(bias + H, mask=there, other=0.0)
    )
    new = tl.load(x + 2 * H, mask=there, other=0.0).to(tl.float32) + tl.load(
        gates + 2 * H, mask=there, other=0.0
    )
    own = tl.load(inner + 2 * H, mask=there, other=0.0) + tl.load(
        bias + 2 * H, mask=there, other=0.0
    )
    new = hyperbolic_tangent(new + reset * own, False)
    after = new + update * (tl.load(Before + row * H + h, mask=there, other=0.0) - new)
    tl.store(gates, reset, mask=there)
    tl.store(gates + H, update, mask=there)
    tl.store(gates + 2 * H, new, mask=there)
    tl.store(After + row * H + h, after, mask=there)
    if Low is not None:
        tl.store(Low + row * H + h, after.to(Low.dtype.element_ty), mask=there)


@triton.jit
def gru_backward(
    Pulled, Direct, OfState, Gates, Both, Bias, Before, OfX, OfBoth, of_state_b,
    WIDE: tl.constexpr, A: tl.constexpr, H: tl.constexpr, BH: tl.constexpr,
):  # fmt: skip
    """From the three parts of a state's gradient, what the next step pulled through its products, what it passed on directly, and the output's,
    to those of x and of what the state gives the gates; the part passed on is written over the one read."""
    row = (tl.program_id(0) // tl.cdiv(H, BH)).to(tl.int64)
    h = (tl.program_id(0) % tl.cdiv(H, BH)) * BH + tl.arange(0, BH)
    there, at = h < H, row * H + h
    slope = tl.load(Pulled + at, mask=there, other=0.0) + tl.load(
        Direct + at, mask=there, other=0.0
    )
    slope += tl.load(OfState + row * of_state_b + h, mask=there, other=0.0)
    gates, before = Gates + row * 3 * H + h, tl.load(Before + at, mask=there, other=0.0)
    reset = tl.load(gates, mask=there, other=0.0)
    update = tl.load(gates + H, mask=there, other=0.0)
    new = tl.load(gates + 2 * H, mask=there, other=0.0)
    own = tl.load(Both + row * WIDE + A + 2 * H + h, mask=there, other=0.0) + tl.load(
        Bias + A + 2 * H + h, mask=there, other=0.0
    )
    of_new = slope * (1.0 - update) * (1.0 - new * new)
    of_reset = (of_new * own * reset * (1.0 - reset)).to(OfX.dtype.element_ty)
    of_update = (slope * (before - new) * update * (1.0 - update)).to(OfX.dtype.element_ty)
    of_x, of_inner = OfX + row * 3 * H + h, OfBoth + row * WIDE + A + h
    tl.store(of_x, of_reset, mask=there)
    tl.store(of_x + H, of_update, mask=there)
    tl.store(of_x + 2 * H, of_new.to(OfX.dtype.element_ty), mask=there)
    tl.store(of_inner, of_reset, mask=there)
    tl.store(of_inner + H, of_update, mask=there)
    tl.store(of_inner + 2 * H, (of_new * reset).to(OfBoth.dtype.element_ty), mask=there)
    tl.store(Direct + at, slope * update, mask=there)


def tile_of(key: Tensor, value: Tensor, wide: int) -> dict[str, int]:
    """Sizes of the kernels that attend: as many positions at a time as TILE has bytes for."""
    a, m, positions = key.shape[-1], value.shape[-1], key.shape[1]
    across = power(a) + power(m)
    fitting = max(TILE_BYTES // (across * key.element_size()), 1)
    rows = min(1 << fitting.bit_length() - 1, MAX_TILE_ROWS, power(positions))
    warps = min(triton.next_power_of_2(triton.cdiv(rows * across, PER_WARP)), 16)
    known = {
        "WIDE": wide,
        "A": a,
        "BA": power(a),
        "M": m,
        "BM": power(m),
        "BN": rows,
        "FAST": is_fast(key),
    }
    return {**known, "num_warps": warps, "num_stages": 1}


def is_fast(key: Tensor) -> bool:
    """Whether a tanh may be one instruction: it is as exact as keys of 16 bits."""
    return key.dtype != torch.float32 and not interpreted()


def attend(both: Tensor, bias: Tensor, key: Tensor, value: Tensor, added: Tensor, v: Tensor, read: Tensor | None, weights: Tensor,
           context: Tensor, seen: Tensor | None) -> None:  # fmt: skip
    """From both (B A+3H), K (B N A), V (B N M) and what is added to scores (B N) to weights (B N), contexts (B M), and what the states see
    of these: those times `read` (B 1), in the type of `seen`."""
    given = (both, bias, key, value, added, v, read, weights, context, seen, key.shape[1])
    launch(attend_forward, len(key), *given, **tile_of(key, value, both.shape[1]))


def attend_back(pulled: Tensor, of_context: Tensor, context: Tensor, read: Tensor | None, both: Tensor, bias: Tensor, key: Tensor,
                value: Tensor, v: Tensor, weights: Tensor, of_seen: Tensor, of_score: Tensor, of_both: Tensor) -> None:  # fmt: skip
    """From the gradients of what a state saw and of the context (B M) to their sum, and those of scores (B N) and query (of_both, first part)."""
    inputs = (pulled, of_context, context, read, both, bias, key, value, v, weights)
    given = (*inputs, of_seen, of_score, of_both, key.shape[1])
    sizes = tile_of(key, value, both.shape[1])
    part = min(sizes["BM"], max(sizes["BA"], sizes["BM"] // MAX_VALUE_TILES))
    sizes |= {"BM": part, "PARTS": sizes["BM"] // part}
    launch(attend_backward, len(key), *given, of_context.stride(0), **sizes)


def differentiate_keys(
    both: Tensor, bias: Tensor, key: Tensor, v: Tensor, of_score: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of K (B N A) and v (A) from both (T B A+3H) and the gradients of scores (T B N) of all steps."""
    (batch, positions, a), width = key.shape, min(power(key.shape[2]), WIDTH)
    parts = batch * triton.cdiv(positions, KEYS)
    of_key, of_v = torch.empty_like(key), v.new_empty(parts, a)
    given = (both, bias, key, v, of_score, of_key, of_v, len(both), batch, positions)
    sizes = {
        "WIDE": both.shape[2],
        "A": a,
        "BA": width,
        "BN": KEYS,
        "FAST": is_fast(key),
        "num_warps": 8,
    }
    launch(keys_backward, parts * triton.cdiv(a, width), *given, **sizes)
    return of_key, of_v.sum(0)


def advance(
    x: Tensor,
    both: Tensor,
    bias: Tensor,
    gates: Tensor,
    before: Tensor,
    after: Tensor,
    low: Tensor | None,
) -> None:
    """The state after a step (B H), in its own type and, where `low` is given, in that one's; `gates` has W_c c_t, and after it the gates."""
    hidden = before.shape[1]
    block = min(power(hidden), MAX_STATE_TILE)
    sizes = {
        "WIDE": both.shape[1],
        "A": both.shape[1] - 3 * hidden,
        "H": hidden,
        "BH": block,
        "num_warps": 4,
    }
    count = len(before) * triton.cdiv(hidden, block)
    launch(gru_forward, count, x, both, bias, gates, before, after, low, x.stride(0), **sizes)


def advance_back(pulled: Tensor, direct: Tensor, of_state: Tensor, gates: Tensor, both: Tensor, bias: Tensor, before: Tensor,
                 of_x: Tensor, of_both: Tensor) -> None:  # fmt: skip
    """The gradients of x (B 3H) and of what the state gives the gates (of_both, second part); `direct` (B H) is that of the state before it,
    without what comes through products."""
    hidden = before.shape[1]
    block = min(power(hidden), MAX_STATE_TILE)
    sizes = {
        "WIDE": both.shape[1],
        "A": both.shape[1] - 3 * hidden,
        "H": hidden,
        "BH": block,
        "num_warps": 4,
    }
    count = len(before) * triton.cdiv(hidden, block)
    given = (pulled, direct, of_state, gates, both, bias, before, of_x, of_both)
    launch(gru_backward, count, *given, of_state.stride(0), **sizes)
