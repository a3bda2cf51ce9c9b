"""The gradient at a source word against its distance from the output: fixed context, attention, Transformer."""

from __future__ import annotations

from typing import Any

import torch

from ...errors import SaccadeError
from ...models.builder import Builder
from ...models.protocols import Seq2Seq
from ...views.plots.layout import panels
from ...views.plots.panels import Lines
from .drawing import Drawing, rounded

WIDE = {"dim": 32, "dropout": 0.0}
RNN = {"hidden": 32, "cell": "tanh", "bidirectional": False, **WIDE}
MODELS: dict[str, dict[str, Any]] = {
    "fixed context": {"family": "fixed-first", **RNN},
    "attention": {"family": "bahdanau", **RNN},
    "Transformer": {"family": "transformer", "hidden": 64, "depth": 2, "heads": 4, **WIDE},
}


def gradients(model: Any, length: int, seed: int = 0) -> list[float]:
    """‖∂(first output)/∂(source vector)‖ of each source position, from the last one (distance 1) to the first."""
    chance = torch.Generator().manual_seed(seed)
    tokens = torch.randint(4, 50, (4, length), generator=chance)
    kept = list[torch.Tensor]()
    handle = model.source.register_forward_hook(lambda module, given, out: kept.append(out))
    try:
        logits = model.double().eval()(tokens, torch.full((4,), length), torch.full((4, 1), 1))
    finally:
        handle.remove()
    weights = torch.randn(logits.shape[-1], generator=chance, dtype=torch.float64)
    [found] = torch.autograd.grad((logits[:, 0] @ weights).sum(), kept[0])
    return [float(one) for one in found.norm(dim=-1).mean(0).flip(0)]


def measure(length: int, seeds: int) -> dict[str, list[float]]:
    """By model, from distance 1 on: mean gradients over freshly drawn parameters, divided by the sum of all distances."""
    found = {}
    for name, settings in MODELS.items():
        rows = []
        for seed in range(seeds):
            torch.manual_seed(seed)
            rows.append(gradients(Builder(settings).make(Seq2Seq, 50, 50), length, seed))
        mean = torch.tensor(rows, dtype=torch.float64).mean(0)
        found[name] = [float(one) for one in mean / mean.sum()]
    return found


def draw(names: list[str], length: int = 40, seeds: int = 5) -> Drawing:
    """The gradient of the first output at each source word, against the word's distance from the source's end."""
    if names or not 2 <= length <= 1000 or not 1 <= seeds <= 100:
        raise SaccadeError(
            "draw distance takes no names, a length from 2 to 1,000 and 1 to 100 seeds",
            code="drawing-options",
        )
    with torch.random.fork_rng(devices=[]):
        found = measure(length, seeds)
    series = {
        name: [(n, max(value, 1e-16)) for n, value in enumerate(values, 1)]
        for name, values in found.items()
    }
    title = "Gradient against distance"
    heading, x = "share of the gradient at a source word", "words between it and the output"
    panel = Lines(heading, x, "share", 5.0, 2.8, series, "y")
    shown = sorted({1, max(1, length // 4), length // 2, length})
    rows = [["model", *(f"{at} words back" for at in shown)]]
    for name, values in found.items():
        rows.append([name, *(rounded(values[at - 1]) for at in shown)])
    text = (
        "The first output's gradient at each word of the source, before any training, as a share of the whole. Through a recurrence it "
        "passes every word between, and is smaller by a factor at each; attention reaches every word in one step, so that a far word's "
        "share is about that of a near one."
    )
    note = f"tanh recurrences from left to right · a source of {length} words · mean of {seeds} random starts"
    return Drawing(title, text, rows, panels(title, note, [[panel]]))
