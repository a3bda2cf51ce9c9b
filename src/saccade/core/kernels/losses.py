"""Cross-entropy of rows of logits, which become their own gradients: each is read once and written once. R rows, V tokens of a vocabulary."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import custom_op

HELD = 1 << 14  # logits of a row that a program holds in registers
STEP = 1 << 12  # logits that it reads at a time where there are more
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
    tl.store(Logits + row * V + at, tl.where(counts, slope, 0.0).to(Logits.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=["rows", "ignore"])
def become_slopes_in_steps(Logits, Target, Losses, rows, ignore, smoothing, V: tl.constexpr, STEP: tl.constexpr):
    """The same for a vocabulary that no program can hold: sums are kept per thread, and a row is read again, from the cache, when they are known.
    Few programs, each with many rows: else the rows would not stay in the cache."""
    at = tl.arange(0, STEP)
    for n in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        row = Logits + (tl.program_id(0).to(tl.int64) * 0 + n) * V
        target = tl.load(Target + n)
        counts = target != ignore
        wanted = tl.load(row + tl.where(counts, target, 0)).to(tl.float32)
        top = tl.full([STEP], -1e30, tl.float32)
        total = tl.zeros([STEP], tl.float32)
        plain = tl.zeros([STEP], tl.float32)
        for start in tl.range(0, V, 2 * STEP):
            one, other = start + at, start + STEP + at
            x = tl.load(row + one, mask=one < V, other=float("-inf")).to(tl.float32)
            y = tl.load(row + other, mask=other < V, other=float("-inf")).to(tl.float32)
            higher = tl.maximum(top, tl.maximum(x, y))
            total = total * tl.exp(top - higher) + tl.exp(x - higher) + tl.exp(y - higher)
            top = higher
            plain += tl.where(one < V, x, 0.0) + tl.where(other < V, y, 0.0)
        largest = tl.max(top)
        log_total = tl.log(tl.sum(total * tl.exp(top - largest))) + largest
        loss = log_total - (1.0 - smoothing) * wanted - smoothing * (tl.sum(plain) / V)
        tl.store(Losses + n, tl.where(counts, loss, 0.0))
        tl.debug_barrier()  # every thread has read the target's logit before another one overwrites it
        for start in tl.range(0, V, STEP):
            one = start + at
            x = tl.load(row + one, mask=one < V, other=float("-inf")).to(tl.float32)
            slope = tl.exp(x - log_total) - smoothing / V - tl.where(one == target, 1.0 - smoothing, 0.0)
            tl.store(row + one, tl.where(counts, slope, 0.0).to(Logits.dtype.element_ty), mask=one < V)


@custom_op("saccade::losses_and_slopes", mutates_args=("logits",))
def losses_and_slopes(logits: Tensor, target: Tensor, ignore: int, smoothing: float) -> Tensor:
    """(1 − ε) · −log p of the target + ε · the mean of −log p of each row, 0 where its target is to `ignore`; the logits (R V, contiguous) are
    overwritten with the gradient of their row's loss."""
    losses = fake(logits, target, ignore, smoothing)
    rows, vocab = logits.shape
    block = int(triton.next_power_of_2(vocab))
    if block <= HELD:
        size = {"V": vocab, "BV": block, "num_warps": min(max(block // 1024, 4), 16)}
        become_slopes[(rows,)](logits, target, losses, ignore, smoothing, **size)
    else:
        grid = (min(rows, PROGRAMS),)
        become_slopes_in_steps[grid](logits, target, losses, rows, ignore, smoothing, V=vocab, STEP=STEP, num_warps=16)
    return losses


@losses_and_slopes.register_fake
def fake(logits: Tensor, target: Tensor, ignore: int, smoothing: float) -> Tensor:
    return logits.new_empty(len(logits), dtype=torch.float32)
