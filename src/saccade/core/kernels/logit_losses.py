"""Cross-entropy of rows of logits, which become their own gradients: each is read once and written once. R rows, V tokens of a vocabulary."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import custom_op

from .score_tiles import LOG2E

REGISTER_LOGITS = 1 << 14  # logits of a row that a program holds in registers
CHUNK_LOGITS = 1 << 12  # logits that it reads at a time where there are more
PROGRAMS = 264  # then, two for each multiprocessor of a large GPU


@triton.jit(do_not_specialize=["ignore"])
def become_slopes(Logits, Target, Losses, ignore, smoothing, V: tl.constexpr, BV: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BV)
    there = at < V
    x = tl.load(Logits + row * V + at, mask=there, other=float("-inf")).to(tl.float32)
    target = tl.load(Target + row)
    counts = target != ignore
    wanted = tl.load(Logits + row * V + tl.where(counts, target, 0)).to(tl.float32)
    top = tl.max(x)
    mean = tl.sum(tl.where(there, x - top, 0.0)) / V
    weight = tl.exp(x - top)
    total = tl.sum(weight)
    log_total = tl.log(total)
    loss = log_total - (1.0 - smoothing) * (wanted - top) - smoothing * mean
    tl.store(Losses + row, tl.where(counts, loss, 0.0))
    tl.debug_barrier()  # every thread has read what it needs before another one overwrites it
    slope = weight * (1.0 / total) - smoothing / V - tl.where(at == target, 1.0 - smoothing, 0.0)
    tl.store(
        Logits + row * V + at, tl.where(counts, slope, 0.0).to(Logits.dtype.element_ty), mask=there
    )


@triton.jit(do_not_specialize=["rows", "ignore"])
def become_slopes_in_steps(
    Logits,
    Target,
    Losses,
    rows,
    ignore,
    smoothing,
    V: tl.constexpr,
    STEP: tl.constexpr,
    SMOOTHED: tl.constexpr,
):
    """The same for a vocabulary that no program can hold: sums are kept per thread, and a row is read again, from the cache, when they are known.
    Few programs, each with many rows: else the rows would not stay in the cache. Logits are taken times log₂ e, for exp2."""
    at = tl.arange(0, STEP)
    for n in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        row = Logits + (tl.program_id(0).to(tl.int64) * 0 + n) * V
        target = tl.load(Target + n)
        counts = target != ignore
        wanted = tl.load(row + tl.where(counts, target, 0)).to(tl.float32)
        top = tl.full([STEP], -1e30, tl.float32)
        total = tl.zeros([STEP], tl.float32)
        plain = tl.zeros([STEP], tl.float32)
        for start in tl.range(0, V, 4 * STEP):
            a, b, c, d = start + at, start + STEP + at, start + 2 * STEP + at, start + 3 * STEP + at
            w = tl.load(row + a, mask=a < V, other=float("-inf")).to(tl.float32)
            x = tl.load(row + b, mask=b < V, other=float("-inf")).to(tl.float32)
            y = tl.load(row + c, mask=c < V, other=float("-inf")).to(tl.float32)
            z = tl.load(row + d, mask=d < V, other=float("-inf")).to(tl.float32)
            higher = tl.maximum(top, tl.maximum(tl.maximum(w, x), tl.maximum(y, z)))
            base = higher * LOG2E
            total = (
                total * tl.exp2((top - higher) * LOG2E)
                + tl.exp2(w * LOG2E - base)
                + tl.exp2(x * LOG2E - base)
            )
            total += tl.exp2(y * LOG2E - base) + tl.exp2(z * LOG2E - base)
            top = higher
            if SMOOTHED:
                plain += (
                    tl.where(a < V, w, 0.0)
                    + tl.where(b < V, x, 0.0)
                    + tl.where(c < V, y, 0.0)
                    + tl.where(d < V, z, 0.0)
                )
        largest = tl.max(top)
        log_total = tl.log(tl.sum(total * tl.exp2((top - largest) * LOG2E))) + largest
        loss = log_total - wanted
        if SMOOTHED:
            loss += smoothing * (wanted - tl.sum(plain) / V)
        tl.store(Losses + n, tl.where(counts, loss, 0.0))
        tl.debug_barrier()  # every thread has read the target's logit before another one overwrites it
        # 2^−∞ = 0 in rows that do not count
        base = tl.where(counts, log_total * LOG2E, float("inf"))
        even = tl.where(counts, smoothing / V, 0.0)
        for start in tl.range(0, V, 2 * STEP):
            a, b = start + at, start + STEP + at
            x = tl.load(row + a, mask=a < V, other=0.0).to(tl.float32)
            y = tl.load(row + b, mask=b < V, other=0.0).to(tl.float32)
            tl.store(
                row + a, (tl.exp2(x * LOG2E - base) - even).to(Logits.dtype.element_ty), mask=a < V
            )
            tl.store(
                row + b, (tl.exp2(y * LOG2E - base) - even).to(Logits.dtype.element_ty), mask=b < V
            )
        tl.debug_barrier()
        slope = tl.exp2(wanted * LOG2E - base) - even - (1.0 - smoothing)
        tl.store(row + target, slope.to(Logits.dtype.element_ty), mask=counts)


def compute(logits: Tensor, target: Tensor, ignore: int, smoothing: float) -> Tensor:
    """(1 − ε) · −log p of the target + ε · the mean of −log p of each row, 0 where its target is to `ignore`; the logits (R V, contiguous) are
    overwritten with the gradient of their row's loss."""
    losses = fake(logits, target, ignore, smoothing)
    rows, vocab = logits.shape
    block = int(triton.next_power_of_2(vocab))
    if block <= REGISTER_LOGITS:
        size = {"V": vocab, "BV": block, "num_warps": min(max(block // 1024, 4), 16)}
        become_slopes[(rows,)](logits, target, losses, ignore, smoothing, **size)
    else:
        grid = (min(rows, PROGRAMS),)
        how = {"V": vocab, "STEP": CHUNK_LOGITS, "SMOOTHED": smoothing > 0, "num_warps": 16}
        become_slopes_in_steps[grid](logits, target, losses, rows, ignore, smoothing, **how)
    return losses


losses_and_slopes = custom_op("saccade::losses_and_slopes", compute, mutates_args=("logits",))


@losses_and_slopes.register_fake
def fake(logits: Tensor, target: Tensor, ignore: int, smoothing: float) -> Tensor:
    return logits.new_empty(len(logits), dtype=torch.float32)
