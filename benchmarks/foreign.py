"""Measure the overhead of recording GPT-2 (small, random weights) at 512 positions on its own
kernels.

    python benchmarks/foreign.py [--result NAME]

Times are CPU times on one thread, the minimum of interleaved runs, so other programs disturb them
little. `kept` is the memory of the record for the 12 layers, `all_weights` that of all weights.
"""

from __future__ import annotations

import argparse
import time

import torch
import transformers

from saccade import record
from saccade.experiments.results import Table

LENGTH, REPEATS = 512, 5


def seconds(model: torch.nn.Module, tokens: torch.Tensor, opened: bool) -> tuple[float, int]:
    """One pass, and the bytes that a record kept of it."""
    start = time.process_time()
    if not opened:
        model(tokens)
        return time.process_time() - start, 0
    with record(model) as seen:
        model(tokens)
    took = time.process_time() - start
    kept = {
        one.untyped_storage().data_ptr(): one
        for looks in seen.values()
        for call in looks.calls
        for one in (call.q, call.key)
    }
    return took, sum(one.untyped_storage().nbytes() for one in kept.values())


@torch.no_grad()
def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--result", help="write benchmarks/results/NAME.json")
    given = options.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    found = {}
    for implementation in ("sdpa", "eager"):
        model = transformers.GPT2Model(
            transformers.GPT2Config(attn_implementation=implementation)
        ).eval()
        tokens = torch.randint(0, 50000, (1, LENGTH))
        seconds(model, tokens, True)
        runs = {opened: [] for opened in (False, True)}
        for _ in range(REPEATS):
            for opened, times in runs.items():
                took, kept = seconds(model, tokens, opened)
                times.append(took)
        with record(model) as seen:
            model(tokens)
        start = time.process_time()
        weights = seen["h.11.attn"].weights()
        found[implementation] = {
            "closed_ms": round(1000 * min(runs[False]), 1),
            "open_ms": round(1000 * min(runs[True]), 1),
            "weights_of_a_layer_ms": round(1000 * (time.process_time() - start), 1),
            "kept_mb": round(kept / 1e6, 1),
            "all_weights_mb": round(12 * weights.nbytes / 1e6, 1),
        }
        print(implementation, found[implementation])
    if given.result:
        notes = f"GPT-2 small, random weights, 1 × {LENGTH} tokens, {REPEATS} runs each"
        Table(given.result, found, notes=notes).write()


if __name__ == "__main__":
    main()
