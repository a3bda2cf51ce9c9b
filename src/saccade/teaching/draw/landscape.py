"""The loss around a model's parameters in two random directions, with and without residuals (Li et al. 2018, filter-normalized)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from ... import api
from ...config import recipes
from ...errors import SaccadeError
from ...system.recipe_data import examples_of
from ...training.loop import Watcher
from ...training.losses import batch_loss
from ...views.plots.layout import in_rows, panels
from ...views.plots.panels import Contours
from .drawing import Drawing, rounded

DEPTH, UPDATES, EXAMPLES = 5, 150, 48
RESIDUALS = {"with residuals": "pre-norm", "without residuals": "none"}
MAX_STEPS = 101
DATA = {
    "train": "reviews:train",
    "dev": "reviews:dev",
    "options": {"train": 200, "dev": 20, "test": 1},
}


def directions(model: nn.Module, seed: int) -> list[list[Tensor]]:
    """Two random directions, each row of a matrix as long as that row of the model's; biases and gains stay as they are."""
    chance = torch.Generator().manual_seed(seed)
    made = []
    for _ in range(2):
        one = []
        for parameter in model.parameters():
            drawn = torch.randn(parameter.shape, generator=chance)
            if parameter.dim() < 2:
                one.append(torch.zeros_like(drawn))
                continue
            rows, own = drawn.flatten(1), parameter.detach().cpu().flatten(1)
            scale = own.norm(dim=1, keepdim=True) / rows.norm(dim=1, keepdim=True)
            one.append((rows * scale).view_as(drawn))
        made.append(one)
    return made


@torch.no_grad()
def surface(
    model: nn.Module, loss: Callable[[], float], at: np.ndarray, seed: int = 0
) -> np.ndarray:
    """loss(θ + a·d₁ + b·d₂) for all a (across) and b (down); the parameters are afterwards as they were."""
    ways, before = directions(model, seed), [parameter.clone() for parameter in model.parameters()]
    found = np.empty((len(at), len(at)))
    try:
        for row, b in enumerate(at):
            for column, a in enumerate(at):
                moves = zip(model.parameters(), before, *ways, strict=True)
                for parameter, start, one, two in moves:
                    parameter.copy_(start + float(a) * one + float(b) * two)
                found[row, column] = loss()
    finally:
        for parameter, start in zip(model.parameters(), before, strict=True):
            parameter.copy_(start)
    return found


def train(residual: str, depth: int, updates: int, seed: int, out: Path) -> api.System:
    """A small Transformer that separates good reviews from bad ones."""
    sizes = {
        "dim": 32,
        "hidden": 64,
        "depth": depth,
        "heads": 2,
        "dropout": 0.0,
        "residual": residual,
    }
    training = {
        "updates": updates,
        "tokens": 600,
        "learning_rate": 0.003,
        "warmup": 20,
        "schedule": "cosine",
        "smoothing": 0.0,
    }
    values = {
        "task": "classification",
        "seed": seed,
        "device": "cpu",
        "data": DATA,
        "vocabulary": {"kind": "words"},
    }
    values |= {
        "model": {"family": "transformer-encoder", **sizes},
        "training": {**training, "evaluate_every": updates},
    }
    return api.fit(recipes.recipe(values), out, watcher=Watcher())[0]


def loss_of(system: api.System) -> Callable[[], float]:
    """The mean loss on some of a system's training examples."""
    task = system.task
    if not task.single_examples:
        raise SaccadeError(
            f"a landscape needs a model that learns from single examples, got one of {system.recipe.task}",
            code="no-single-examples",
        )
    batch = task.batch(task.numbers(examples_of(system.recipe, "train")[:EXAMPLES]), system.device)
    count = float(batch.wanted().sum())
    system.model.eval()
    return lambda: batch_loss(system.model, batch).item() / count


def draw(
    names: list[str],
    steps: int = 17,
    reach: float = 1.0,
    depth: int = DEPTH,
    updates: int = UPDATES,
    seed: int = 0,
) -> Drawing:
    """The loss around one or two run folders' models; without these, around two small ones that are trained first."""
    sizes = 3 <= steps <= MAX_STEPS and 0 < reach <= 100 and 1 <= depth <= 100
    if not sizes or not 1 <= updates <= 100_000 or len(names) > 4:
        raise SaccadeError(
            "draw landscape takes up to 4 runs, steps from 3 to 101, a reach up to 100, depth to 100, updates to 100,000",
            code="drawing-options",
        )
    # odd, so that the middle is the model itself
    at = np.linspace(-reach, reach, steps + 1 - steps % 2)
    systems: dict[str, api.System] = {Path(name).name: api.load(name, "cpu") for name in names}
    with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng(devices=[]):
        for name, residual in {} if names else RESIDUALS.items():
            systems |= {name: train(residual, depth, updates, seed, Path(folder) / residual)}
    found = {name: surface(one.model, loss_of(one), at, seed) for name, one in systems.items()}
    shown = list[Contours]()
    rows = [["model", "loss at the middle", "least", "greatest", "mean rise at the rim"]]
    middle = len(at) // 2
    low = min(one.min() for one in found.values())
    high = max(float(np.quantile(one, 0.95)) for one in found.values())
    # of all panels: equal grays are equal losses
    levels = np.linspace(low, max(high, low + 1e-6), 12)
    for name, values in found.items():
        loss = values[middle, middle]
        axes = ("direction 1", "direction 2", 3.2, 3.2)
        shown.append(Contours(f"{name}: loss {loss:.3g}", *axes, at, values, levels))
        rim = np.concatenate([values[0], values[-1], values[:, 0], values[:, -1]]).mean() - loss
        rows.append([name, *map(rounded, (loss, values.min(), values.max(), rim))])
    trained = "trained models"
    if not names:
        trained = f"{depth} layers, {updates} updates on generated reviews"
    title = "The loss around a model"
    text = (
        "A step of 1 in either direction changes each row of each matrix by as much as that row is long (filter-normalized), so that "
        f"models can be compared; all panels have one scale, and the cross is the model itself. {trained[0].upper()}{trained[1:]}."
    )
    note = f"{trained} · lighter = higher loss, one scale"
    return Drawing(title, text, rows, panels(title, note, in_rows(shown, 2)))
