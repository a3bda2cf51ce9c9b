"""How long the path of the data through the package is, and what `attend` costs above the bare kernel: CPU, one thread.

    python benchmarks/path.py [--result path-before] [--out FOLDER] [--quick]

Three measurements:

- The path of one training update and of one decode step (beam of 4): files of the package that are entered, functions, calls, and
  switches: how often a call lands in another file than the call before it (the first counts). `switches_with_returns` counts
  the returns as well as the calls.
- `attend` of one decode step against `F.scaled_dot_product_attention` with an equal mask that is ready-made.
- Lines of source, by package.

What reaches into the package's insides are the functions `one_update`, `one_decode_step` and `attentions`, and nothing else.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.nn import functional as F

import saccade
from saccade import api, config, masks
from saccade.data.vocabulary import BOS, EOS, PAD
from saccade.results import write_result
from saccade.system import examples_of

FOLDER = tempfile.TemporaryDirectory()  # removed when the program ends
PACKAGE = Path(saccade.__file__).parent
MODELS: dict[str, dict[str, Any]] = {
    "transformer": {"family": "transformer", "dim": 32, "hidden": 64, "depth": 2, "heads": 4},
    "bahdanau": {"family": "bahdanau", "dim": 32, "hidden": 32},
}
LENGTH = 13  # words of every sentence: a recurrent model makes a call for each
BEAM, SENTENCES = 4, 4
B, H, Q, K, D = 4, 8, 1, 50, 64


def prepare(family: str) -> Any:
    """A recipe whose data are sentences of one length, in a file of its own."""
    path = Path(FOLDER.name) / "pairs.tsv"
    lines = [" ".join(f"{side}{(n * 7 + at) % 50}" for at in range(LENGTH)) for n in range(64) for side in "st"]
    path.write_text("".join(f"{s}\t{t}\n" for s, t in zip(lines[::2], lines[1::2], strict=True)), encoding="utf-8")
    values = {"data": {"train": str(path), "dev": str(path)}, "vocabulary": {"kind": "words"}, "model": MODELS[family]}
    return config.recipe({**values, "device": "cpu", "training": {"updates": 100, "tokens": 1000}})


def one_update(family: str) -> Callable[[], Any]:
    """One update of a training, by each call."""
    from saccade.training.checkpoints import RunFolder
    from saccade.training.loop import Training

    recipe = prepare(family)
    system, work = api.prepared(recipe)
    return Training(system.model, work, recipe.training, RunFolder(Path(FOLDER.name), {}))._update


def one_decode_step(family: str) -> Callable[[], Any]:
    """One step of the decoding loop with a beam, by each call."""
    recipe = prepare(family)
    system = api.build(recipe)
    model, task = system.model.eval(), system.task
    batch = task.batch(task.numbers(examples_of(recipe, "dev")[:SENTENCES]), system.device)
    source, lengths, _ = batch.inputs
    search = api.searcher(BEAM)(BOS, EOS, (PAD, BOS))
    with torch.inference_mode():
        state = model.start(source, lengths)
    rows = search.begin([LENGTH] * SENTENCES, system.device)

    @torch.inference_mode()
    def step() -> None:
        nonlocal state, rows
        state = state if rows is None else state.reorder(rows)
        logits, state = model.step(search.tokens, state)
        rows = search.advance(logits.float().log_softmax(-1))

    return step


def attentions() -> dict[str, Callable[[], torch.Tensor]]:
    """The same attention of one decode step: the bare kernel, as the models call it, and as one would write it by hand."""
    from saccade.core import Mechanism, attend, read

    torch.manual_seed(0)
    q, k, v = torch.randn(B, H, Q, D), torch.randn(B, H, K, D), torch.randn(B, H, K, D)
    lengths = torch.tensor([K, K - 7, K - 20, K // 2])
    allowed = (torch.arange(K) < lengths[:, None])[:, None, None]
    added = torch.zeros(allowed.shape).masked_fill(~allowed, float("-inf"))
    mechanism, mask = Mechanism(), masks.padding(lengths).prepare(B, H, Q, K)
    ready = mechanism.prepare(k, v)  # both are made once per sentence, for all steps
    return {
        "sdpa": lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=added),
        "sdpa_boolean": lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=allowed),
        "attend_as_models": lambda: read(q, ready, mechanism, mask),
        "attend_naive": lambda: attend(q, k, v, mask=masks.padding(lengths)),
    }


def walk(what: Callable[[], Any]) -> dict[str, int]:
    """Files, functions, calls and switches of what runs within the package."""
    seen: list[tuple[str, str, str]] = []

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event in ("call", "return") and frame.f_code.co_filename.startswith(str(PACKAGE)):
            seen.append((event, frame.f_code.co_filename, frame.f_code.co_qualname))

    sys.setprofile(profile)
    try:
        what()
    finally:
        sys.setprofile(None)
    calls = [one for one in seen if one[0] == "call"]
    return {
        "files": len({file for _, file, _ in calls}),
        "functions": len({(file, name) for _, file, name in calls}),
        "calls": len(calls),
        "switches": switches(calls),
        "switches_with_returns": switches(seen),
    }


def switches(events: list[tuple[str, str, str]]) -> int:
    return sum(n == 0 or events[n - 1][1] != one[1] for n, one in enumerate(events))


def paths() -> dict[str, dict[str, int]]:
    found = {}
    for family in MODELS:
        for name, make in (("update", one_update), ("decode_step", one_decode_step)):
            move = make(family)
            for _ in range(3):  # what is made once is there already
                move()
            found[f"{family}_{name}"] = walk(move)
    return found


def overhead(rounds: int, repeats: int) -> dict[str, float]:
    """Microseconds of each attention (medians over alternating rounds) and their ratios to the bare kernel in the same round."""
    with torch.inference_mode():
        ways = attentions()
        wanted = ways["sdpa"]()
        for way in ways.values():
            torch.testing.assert_close(way(), wanted)
        times: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(rounds + 5):
            for name, way in ways.items():
                start = time.perf_counter()
                for _ in range(repeats):
                    way()
                if turn >= 5:
                    times[name].append((time.perf_counter() - start) / repeats)
    found = {f"{name}_us": round(1e6 * statistics.median(values), 1) for name, values in times.items()}
    for name in ("attend_as_models", "attend_naive"):
        found[f"{name}_ratio"] = round(statistics.median(a / b for a, b in zip(times[name], times["sdpa"], strict=True)), 2)
    return found


def source_lines() -> dict[str, int]:
    """All lines of *.py, by package; files beside the packages under `(top)`."""
    found: dict[str, int] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).parts
        name = parts[0] if len(parts) > 1 else "(top)"
        found[name] = found.get(name, 0) + len(path.read_text(encoding="utf-8").splitlines())
    return {**dict(sorted(found.items())), "total": sum(found.values())}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--result", default="path")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    figures: dict[str, Any] = {"path": paths()}
    columns = list(next(iter(figures["path"].values())))
    print(f"{'':<26}" + "".join(f"{name:>23}" for name in columns))
    for name, row in figures["path"].items():
        print(f"{name:<26}" + "".join(f"{row[column]:>23}" for column in columns))
    figures["attention"] = overhead(*((20, 10) if options.quick else (1000, 20)))
    figures["lines"] = source_lines()
    for part in ("attention", "lines"):
        print()
        for name, value in figures[part].items():
            print(f"{name:<26}{value:>23,}")
    notes = (
        f"path: depth-2 transformer and bahdanau, sentences of {LENGTH} words, beam {BEAM} of {SENTENCES} sentences, one steady update or "
        f"step; attention: B{B} H{H} Q{Q} K{K} D{D} float32 with a padding mask under inference_mode, one thread, medians of alternating "
        "rounds, ratios to sdpa with the equal additive mask; lines: all lines of src/saccade/**/*.py"
    )
    print(write_result(options.result, figures, notes=notes, folder=options.out))


if __name__ == "__main__":
    main()
