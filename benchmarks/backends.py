"""Which backend runs a mechanism fastest here: forward and backward, as ratios to `eager` in the same run, medians of interleaved runs.

    python benchmarks/backends.py [--out FOLDER] [--quick]

Every backend's output and gradients are compared with eager's before it is timed.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from pathlib import Path

import torch

from saccade.core import Mechanism, attend, backends, masks, positions
from saccade.core.attention import pose
from saccade.core.masks import Mask
from saccade.results import write_result

CUDA = torch.cuda.is_available()
DEVICE, DTYPE = ("cuda", torch.bfloat16) if CUDA else ("cpu", torch.float32)


def cases(batch: int, length: int) -> dict[str, tuple[Mechanism, Mask]]:
    """Name → mechanism and mask."""
    lengths = torch.linspace(length // 2, length, batch).long()
    documents = torch.arange(length).div(max(length // 4, 1), rounding_mode="floor").expand(batch, -1).contiguous()
    return {
        "full": (Mechanism(), masks.full()),
        "causal": (Mechanism(), masks.causal()),
        "padding": (Mechanism(), masks.padding(lengths)),
        "causal+documents": (Mechanism(), masks.causal() & masks.documents(documents)),
        "window": (Mechanism(), masks.causal() & masks.window(128)),
        "alibi+causal": (Mechanism(position=positions.Alibi(8)).to(DEVICE), masks.causal()),
    }


def inputs(batch: int, length: int) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    return tuple(torch.randn(batch, 8, length, 64, device=DEVICE, dtype=DTYPE, requires_grad=True) for _ in range(3))


def run(backend: str, mechanism: Mechanism, mask: Mask, qkv: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    output = attend(*qkv, mechanism, mask, backend=backend)
    return (output, *torch.autograd.grad(output.float().square().sum(), qkv))


def seconds(backend: str, mechanism: Mechanism, mask: Mask, qkv: tuple[torch.Tensor, ...], repeats: int) -> float:
    if CUDA:
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        run(backend, mechanism, mask, qkv)
    if CUDA:
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / repeats


def compare(batch: int, length: int, rounds: int, repeats: int) -> dict[str, dict[str, float]]:
    """Case → backend → how many times as fast as eager, and the largest error against eager relative to its size."""
    found: dict[str, dict[str, float]] = {}
    for name, (mechanism, mask) in cases(batch, length).items():
        qkv = inputs(batch, length)
        problem = pose(*qkv, mechanism, mask, None, 0.0)
        able = [b for b, backend in backends.all_named() if backend.refuses(problem) is None]
        wanted = run("eager", mechanism, mask, qkv)
        row: dict[str, float] = {}
        for backend in able:
            got = run(backend, mechanism, mask, qkv)
            error = max(
                float((a - b).detach().float().norm() / a.detach().float().norm().clamp_min(1e-9))
                for a, b in zip(wanted, got, strict=True)
            )
            row[f"{backend}_error"] = round(error, 6)
            seconds(backend, mechanism, mask, qkv, 2)
        times: dict[str, list[float]] = {backend: [] for backend in able}
        for _, backend in itertools.product(range(rounds), able):
            times[backend].append(seconds(backend, mechanism, mask, qkv, repeats))
        base = statistics.median(times["eager"])
        row["eager_ms"] = round(1000 * base, 3)
        row.update({backend: round(base / statistics.median(values), 2) for backend, values in times.items()})
        row["chosen"] = backends.table.name_of(backends.choose(problem))  # type: ignore[assignment]
        found[name] = row
        print(f"B{batch} T{length} {name:<18}", row, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    sizes = [(32, 64), (16, 256), (8, 1024), (4, 4096)] if CUDA else [(32, 32), (16, 128), (8, 512)]
    rounds, repeats = (3, 2) if options.quick or not CUDA else (7, 10)
    figures = {
        f"B{batch}-T{length}": compare(batch, length, rounds, repeats)
        for batch, length in (sizes[:2] if options.quick else sizes)
    }
    notes = f"8 heads of 64, {DTYPE}, forward and backward; numbers are speed relative to eager in the same run, medians of interleaved rounds"
    print(write_result(f"backends-{DEVICE}", figures, notes=notes, folder=options.out))


if __name__ == "__main__":
    main()
