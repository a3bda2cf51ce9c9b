"""Kernels of one step of decoding, where a row has one query and what is read is small: each replaces several launches of PyTorch's.

R rows, H heads of queries, H' of keys and values, D width of a head, T positions of a cache, M of a memory, V vocabulary."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..backends.call import CannotCompile

TILE_KEYS = 32  # read at a time


@triton.jit
def add_keys(q, keys, values, k_at, v_at, scale, top, total, output, there, added):
    """Continues a softmax over keys one block further: its largest score, the sum of its weights, and that of weighted values."""
    k = tl.load(keys + k_at[:, None], mask=there[:, None], other=0.0).to(tl.float32)
    v = tl.load(values + v_at[:, None], mask=there[:, None], other=0.0).to(tl.float32)
    score = tl.where(there, tl.sum(k * q[None, :], 1) * scale + added, float("-inf"))
    higher = tl.maximum(top, tl.max(score))
    weight, shrunk = tl.exp(score - higher), tl.exp(top - higher)
    return higher, total * shrunk + tl.sum(weight), output * shrunk + tl.sum(weight[:, None] * v, 0)


@triton.jit(do_not_specialize=["capacity"])
def own_step(QKV, Cache, Origins, Position, Out, scale, capacity, HEADS: tl.constexpr, GROUPS: tl.constexpr, D: tl.constexpr,
             BD: tl.constexpr, BN: tl.constexpr, TRACED: tl.constexpr):  # fmt: skip
    """A row's new key and value go to the cache; its query reads those before, and the new ones as they are. With TRACED, `Origins` has
    the row that wrote what a row reads at each position, so that caches stay as they are when beams are reordered."""
    row = (tl.program_id(0) // (HEADS * GROUPS)).to(tl.int64)
    head = tl.program_id(0) % (HEADS * GROUPS)
    kv = head // GROUPS
    d = tl.arange(0, BD)
    wide = d < D
    base = QKV + row * (HEADS * GROUPS + 2 * HEADS) * D
    q = tl.load(base + head * D + d, mask=wide, other=0.0).to(tl.float32)
    new_key = tl.load(base + (HEADS * GROUPS + kv) * D + d, mask=wide, other=0.0)
    new_value = tl.load(base + (HEADS * GROUPS + HEADS + kv) * D + d, mask=wide, other=0.0)
    position = tl.load(Position).to(tl.int32)
    here = Cache + kv * D + d[None, :]
    if head % GROUPS == 0:
        at = Cache + (row * capacity + position) * 2 * HEADS * D + kv * D + d
        tl.store(at, new_key, mask=wide)
        tl.store(at + HEADS * D, new_value, mask=wide)
    top = tl.sum(q * new_key.to(tl.float32)) * scale
    total, output = top * 0.0 + 1.0, new_value.to(tl.float32)
    for start in tl.range(0, position, BN):
        place = start + tl.arange(0, BN)
        origin = tl.zeros_like(place).to(tl.int64) + row
        if TRACED:
            origin = tl.load(Origins + row * capacity + place, mask=place < position, other=0).to(
                tl.int64
            )
        at = (origin * capacity + place) * 2 * HEADS * D
        top, total, output = add_keys(
            q, here, here + HEADS * D, at, at, scale, top, total, output, place < position, 0.0
        )
    tl.store(
        Out + (row * HEADS * GROUPS + head) * D + d,
        (output / total).to(Out.dtype.element_ty),
        mask=wide,
    )


@triton.jit(do_not_specialize=["columns", "hidden_s"])
def memory_step(Q, Keys, Values, Hidden, Out, scale, columns, k_s, k_h, k_n, v_s, v_h, v_n, hidden_s, WIDTH: tl.constexpr,
                HEADS: tl.constexpr, GROUPS: tl.constexpr, D: tl.constexpr, BD: tl.constexpr, BN: tl.constexpr):  # fmt: skip
    """A row's query reads the memory of its sentence, which WIDTH rows share; `Hidden` is added to scores, 0 or −∞."""
    row = (tl.program_id(0) // (HEADS * GROUPS)).to(tl.int64)
    head = tl.program_id(0) % (HEADS * GROUPS)
    sentence, kv = row // WIDTH, head // GROUPS
    d = tl.arange(0, BD)
    wide = d < D
    q = tl.load(Q + (row * HEADS * GROUPS + head) * D + d, mask=wide, other=0.0).to(tl.float32)
    keys = Keys + sentence * k_s + kv * k_h + d[None, :]
    values = Values + sentence * v_s + kv * v_h + d[None, :]
    top, total, output = tl.sum(q) * 0.0 - 1e30, tl.sum(q) * 0.0, q * 0.0
    for start in tl.range(0, columns, BN):
        place = start + tl.arange(0, BN)
        there = place < columns
        added = tl.load(Hidden + sentence * hidden_s + place, mask=there, other=0.0).to(tl.float32)
        top, total, output = add_keys(
            q, keys, values, place * k_n, place * v_n, scale, top, total, output, there, added
        )
    tl.store(
        Out + (row * HEADS * GROUPS + head) * D + d,
        (output / total).to(Out.dtype.element_ty),
        mask=wide,
    )


@triton.jit
def matrix_step(X, Weight, Bias, Out, outputs, K: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr, BIASED: tl.constexpr,
                RELU: tl.constexpr):  # fmt: skip
    """BN numbers of W x + b. A product of one row does little but read its matrix: small programs, all of which read at the same time."""
    n, k = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros([BN], tl.float32)
    for start in tl.static_range(0, K, BK):
        there = start + k < K
        x = tl.load(X + start + k, mask=there, other=0.0).to(tl.float32)
        at = Weight + n[:, None].to(tl.int64) * K + start + k[None, :]
        w = tl.load(at, mask=(n[:, None] < outputs) & there[None, :], other=0.0).to(tl.float32)
        total += tl.sum(w * x[None, :], 1)
    if BIASED:
        total += tl.load(Bias + n, mask=n < outputs, other=0.0).to(tl.float32)
    if RELU:
        total = tl.maximum(total, 0.0)
    tl.store(Out + n, total.to(Out.dtype.element_ty), mask=n < outputs)


@triton.jit
def norm_step(X, Y, Weight, Bias, Out, eps, D: tl.constexpr, BD: tl.constexpr):
    """The layer norm of a row of X + Y."""
    at = tl.arange(0, BD)
    there, row = at < D, tl.program_id(0).to(tl.int64) * D
    x = tl.load(X + row + at, mask=there, other=0.0).to(tl.float32) + tl.load(
        Y + row + at, mask=there, other=0.0
    ).to(tl.float32)
    x = x.to(X.dtype.element_ty).to(tl.float32)  # as the sum by itself would be
    centered = tl.where(there, x - tl.sum(x) / D, 0.0)
    scaled = centered / tl.sqrt_rn(tl.sum(centered * centered) / D + eps)
    weight = tl.load(Weight + at, mask=there, other=0.0).to(tl.float32)
    bias = tl.load(Bias + at, mask=there, other=0.0).to(tl.float32)
    tl.store(Out + row + at, (scaled * weight + bias).to(Out.dtype.element_ty), mask=there)


@triton.jit
def best_step(
    Logits, Never, Values, Tokens, vocab, never: tl.constexpr, TOP: tl.constexpr, BV: tl.constexpr
):
    """The TOP largest log-probabilities of a row and their tokens, the first of equal ones first, without those in `Never`."""
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BV)
    x = tl.load(Logits + row * vocab + at, mask=at < vocab, other=float("-inf")).to(tl.float32)
    largest = tl.max(x)
    log_sum = tl.log(tl.sum(tl.exp(x - largest)))
    for n in tl.static_range(never):
        x = tl.where(at == tl.load(Never + n).to(tl.int32), float("-inf"), x)
    for n in tl.static_range(TOP):
        found = tl.max(x)
        token = tl.min(tl.where(x == found, at, BV))
        tl.store(Values + row * TOP + n, (found - largest) - log_sum)
        tl.store(Tokens + row * TOP + n, token.to(tl.int64))
        x = tl.where(at == token, float("-inf"), x)


@triton.jit(do_not_specialize=["rows"])
def note_step(
    Values,
    Tokens,
    Position,
    Chosen,
    Kept,
    Last,
    Limits,
    Done,
    Alive,
    eos,
    rows,
    chosen_n,
    kept_n,
    BR: tl.constexpr,
):
    """Greedy search: what each row has chosen is written down, the position moves on, and sentences that ended are counted. One program."""
    at = tl.arange(0, BR)
    there, position = at < rows, tl.load(Position)
    token = tl.load(Tokens + at, mask=there, other=0)
    value = tl.load(Values + at, mask=there, other=0.0)
    limit = tl.load(Limits + at, mask=there, other=0)
    done = tl.load(Done + at, mask=there, other=1) != 0
    done = done | (token == eos) | (position + 1 >= limit)
    tl.store(Last + at, token, mask=there)
    tl.store(Chosen + position * chosen_n + at, token, mask=there)
    tl.store(Kept + position * kept_n + at, value, mask=there)
    tl.store(Done + at, done.to(tl.int8), mask=there)
    tl.store(Alive, tl.sum(tl.where(there & (done == 0), 1, 0)).to(tl.int64))
    tl.debug_barrier()
    tl.store(Position, position + 1)


def launch(kernel: Any, count: int, *given: Any, **constants: Any) -> None:
    try:
        kernel[(count,)](*given, **constants)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever Triton raises
        raise CannotCompile(
            (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        ) from error


def power(size: int) -> int:
    return int(triton.next_power_of_2(size))


def read_own(
    qkv: Tensor,
    cache: Tensor,
    position: Tensor,
    groups: int,
    scale: float,
    origins: Tensor | None = None,
) -> Tensor:
    """qkv: R (H + 2H') D; cache: R T 2 H' D, of which the positions before `position` (1) are filled; origins: the rows (R T) whose cache
    has each row's keys, or None where it is their own; → R (H D)"""
    rows, capacity, _, heads, width = cache.shape
    output = qkv.new_empty(rows, heads * groups * width)
    sizes = {
        "HEADS": heads,
        "GROUPS": groups,
        "D": width,
        "BD": power(width),
        "BN": TILE_KEYS,
        "TRACED": origins is not None,
    }
    where = position if origins is None else origins
    given = (qkv.contiguous(), cache, where, position, output, scale, capacity)
    launch(own_step, rows * heads * groups, *given, **sizes, num_warps=2)
    return output


def read_memory(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    hidden: Tensor,
    width: int,
    groups: int,
    scale: float,
) -> Tensor:
    """query: R (H D); keys, values: S H' M D with R = S · `width`; hidden: S 1 1 M, 0 or −∞; → R (H D)"""
    _, heads, columns, wide = keys.shape
    output = torch.empty_like(query)
    strides = (*keys.stride()[:3], *values.stride()[:3], hidden.stride(0))
    sizes = {
        "WIDTH": width,
        "HEADS": heads,
        "GROUPS": groups,
        "D": wide,
        "BD": power(wide),
        "BN": TILE_KEYS,
    }
    given = (query.contiguous(), keys, values, hidden, output, scale, columns)
    launch(memory_step, len(query) * heads * groups, *given, *strides, **sizes, num_warps=2)
    return output


def multiply_row(x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
    """W x + b of one row (1 K), and its ReLU: 1 N"""
    outputs, inputs = weight.shape
    output = x.new_empty(1, outputs)
    sizes = {
        "K": inputs,
        "BK": min(power(inputs), 1024),
        "BN": 4 if outputs <= 512 else 8 if outputs <= 4096 else 16,
    }
    how = {"BIASED": bias is not None, "RELU": relu, "num_warps": 4}
    given = (x, weight, x if bias is None else bias, output, outputs)
    launch(matrix_step, triton.cdiv(outputs, sizes["BN"]), *given, **sizes, **how)
    return output


def add_norm(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """layer_norm(x + y), R dim"""
    output = torch.empty_like(x)
    dim = x.shape[-1]
    given = (x.contiguous(), y.contiguous(), weight, bias, output, eps)
    launch(norm_step, len(x), *given, D=dim, BD=power(dim), num_warps=4)
    return output


def best_tokens(logits: Tensor, never: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """Log-probabilities and tokens, R × top each."""
    rows, vocab = logits.shape
    values, tokens = logits.new_empty(rows, top, dtype=torch.float32), never.new_empty(rows, top)
    size = power(vocab)
    warps = min(max(size // 1024, 1), 16)
    given = (logits.contiguous(), never, values, tokens, vocab)
    launch(best_step, rows, *given, never=len(never), TOP=top, BV=size, num_warps=warps)
    return values, tokens


def note_best(values: Tensor, tokens: Tensor, position: Tensor, chosen: Tensor, kept: Tensor, last: Tensor, limits: Tensor,
              done: Tensor, alive: Tensor, eos: int) -> None:  # fmt: skip
    """Of each row: value and token (R × 1) go to kept[position, 0] and chosen[position, 0]; the rest as in the kernel."""
    rows = len(last)
    state = done.view(torch.int8)
    tensors = (values, tokens, position, chosen, kept, last, limits, state, alive)
    strides, sizes = (chosen.stride(0), kept.stride(0)), {"BR": power(rows), "num_warps": 4}
    launch(note_step, 1, *tensors, eos, rows, *strides, **sizes)
