"""Time one read of N positions with soft and hard attention, with and without the scores.

    python benchmarks/hard.py [--result hard] [--device cuda] [--quick]

"Hard attention is computationally more efficient than soft attention": the scores of all positions are computed in both, and what differs
is what follows. Soft attention exponentiates and sums N values; hard attention finds the largest score and reads one value. Measured
are whole reads of keys that are ready (the backend chosen by itself) with the additive score of a caption decoder and with the scaled
dot product, for which soft attention has PyTorch's fused kernel; and the step after the scores by itself, as plain operations.

Times are of the fastest of many calls, in microseconds, without gradients, float32, one thread on a CPU.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from saccade import masks
from saccade.core import Mechanism, backends, normalizers, scores, which_backend
from saccade.core.attention import call_of
from saccade.experiments.results import Table

# batch, heads, queries, positions, width: caption decoders over feature maps of 14 × 14 and 28 × 28, one step at a time; a step of a
# translation; one step over long memories; a whole Transformer layer
SIZES = [
    (32, 1, 1, 196, 512),
    (32, 1, 1, 784, 512),
    (4, 8, 1, 50, 64),
    (1, 8, 1, 4096, 64),
    (1, 8, 1, 65536, 64),
    (4, 8, 512, 512, 64),
]


def least_times(
    runs: dict[str, Callable[[], Any]], device: torch.device, seconds: float
) -> dict[str, float]:
    """Microseconds of the fastest of many calls of each, one after another in turns: what disturbs one disturbs all."""
    least = dict.fromkeys(runs, float("inf"))
    for run in runs.values():
        run()
    count, end = 0, time.perf_counter() + seconds * len(runs)
    while time.perf_counter() < end or count < 5:
        count += 1
        for name, run in runs.items():
            wait(device)
            start = time.perf_counter()
            run()
            wait(device)
            least[name] = min(least[name], time.perf_counter() - start)
    return {name: round(1e6 * value, 1) for name, value in least.items()}


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


@torch.no_grad()
def measure(sizes: tuple[int, ...], device: torch.device, seconds: float) -> dict[str, Any]:
    """One row of the table."""
    batch, heads, queries, keys, width = sizes
    q, k, v = (torch.randn(batch, heads, n, width, device=device) for n in (queries, keys, keys))
    mask = masks.padding([keys] * batch).prepare(batch, heads, queries, keys, device)
    found: dict[str, Any] = dict(
        zip(("batch", "heads", "queries", "keys", "width"), sizes, strict=True)
    )
    kinds: dict[str, scores.Score] = {"dot": scores.ScaledDot()}
    if queries == 1 and keys <= 4096:  # the additive score holds a vector for each pair
        kinds["additive"] = scores.Additive(width, width)
    for kind, score in kinds.items():
        runs: dict[str, Callable[[], Any]] = {}
        for name, normalize in (("soft", normalizers.Softmax()), ("hard", normalizers.Hard())):
            mechanism = Mechanism(score, normalize).to(device).eval()
            call = call_of(q, mechanism.prepare(k, v), mechanism, mask, None, 0.0)
            found[f"{kind}_{name}_backend"] = which_backend(q, k, mechanism, mask, v).chosen
            runs |= {
                f"{kind}_{name}": partial(backends.run, call),
                f"{kind}_{name}_eager": partial(backends.run, call, "eager"),
            }
        found |= least_times(runs, device, seconds)
    scored, index = q @ k.transpose(-2, -1), (batch, heads, queries, width)
    both = {
        "after_scores_soft": lambda: scored.softmax(-1) @ v,
        "after_scores_hard": lambda: v.gather(2, scored.argmax(-1, keepdim=True).expand(index)),
    }
    return found | least_times(both, device, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--result", default="", help="write benchmarks/results/NAME.json")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--quick", action="store_true", help="a few calls of the small sizes")
    given = parser.parse_args()
    torch.set_num_threads(1)
    device, seconds = torch.device(given.device), 0.02 if given.quick else 2.0
    chosen = (
        [one for one in SIZES if one[0] * one[1] * one[2] * one[3] < 10_000]
        if given.quick
        else SIZES
    )
    rows = {"-".join(map(str, sizes)): measure(sizes, device, seconds) for sizes in chosen}
    for row in rows.values():
        print("  ".join(f"{name} {value}" for name, value in row.items()))
    if given.result:
        notes = "Microseconds of one read, the fastest of many, one thread on a CPU, without gradients, float32."
        notes += " Names are batch-heads-queries-positions-width."
        print(Table(given.result, rows, notes=notes).write(given.out))


if __name__ == "__main__":
    main()
