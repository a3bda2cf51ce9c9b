"""Why scores are divided by √D: the variance of q·k, the entropy of its softmax and the gradient through it, against D."""

from __future__ import annotations

from typing import Any

import torch

from ...errors import SaccadeError
from ...views.plots.layout import panels
from ...views.plots.panels import Lines
from .drawing import Drawing, rounded

WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
PLAIN, SCALED = "q·k", "q·k / √D"
KEYS, TRIALS = 32, 400
Numbers = dict[str, dict[int, dict[str, float]]]


def measure(
    widths: tuple[int, ...] = WIDTHS, keys: int = KEYS, trials: int = TRIALS, seed: int = 0
) -> Numbers:
    """For random q and k with variance 1, by way and D: the variance of scores, the entropy of their softmax in bits, and its gradient:
    the Frobenius norm of ∂a/∂s = diag(a) − a aᵀ; all but the first are means over the trials."""
    found: Numbers = {PLAIN: {}, SCALED: {}}
    for width in widths:
        chance = torch.Generator().manual_seed(seed)
        exact: Any = {"generator": chance, "dtype": torch.float64}
        q, k = (torch.randn(trials, n, width, **exact) for n in (1, keys))
        for name, divisor in ((PLAIN, 1.0), (SCALED, width**0.5)):
            scores = (q @ k.transpose(1, 2)).squeeze(1) / divisor
            a = scores.softmax(-1)
            entropy = -(a * scores.log_softmax(-1)).sum(-1) / torch.log(torch.tensor(2.0))
            jacobian = torch.diag_embed(a) - a.unsqueeze(2) * a.unsqueeze(1)
            values = {
                "variance": scores.var(),
                "entropy": entropy.mean(),
                "gradient": jacobian.norm(dim=(1, 2)).mean(),
            }
            found[name][width] = {key: float(value) for key, value in values.items()}
    return found


def draw(names: list[str], seed: int = 0, keys: int = KEYS, trials: int = TRIALS) -> Drawing:
    """Variance, entropy and gradient of softmax(q·k) against the width D, with and without √D."""
    if names or not 2 <= keys <= 1024 or not 2 <= trials <= 100_000:
        raise SaccadeError(
            "draw scaling takes no names, keys from 2 to 1,024 and trials from 2 to 100,000",
            code="drawing-options",
        )
    found = measure(keys=keys, trials=trials, seed=seed)
    shown = []
    units = {"variance": "of the scores", "entropy": "bits", "gradient": "‖∂a/∂s‖"}
    for what, unit in units.items():
        log = "xy" if what == "variance" else "x"
        series = {
            name: [(width, one[what]) for width, one in by.items()] for name, by in found.items()
        }
        shown.append(Lines(what, "D", unit, 2.7, 2.4, series, log))
    columns = [(what, name) for what in units for name in found]
    rows = [["D", *(f"{what}, {name}" for what, name in columns)]]
    for width in WIDTHS:
        rows.append([str(width), *(rounded(found[name][width][what]) for what, name in columns)])
    title = "Why scores are divided by √D"
    plain, scaled = found[PLAIN], found[SCALED]
    larger = [width for width in WIDTHS if plain[width]["gradient"] > scaled[width]["gradient"]]
    beyond = (
        f"; up to D = {larger[-1]} it is larger without the scale than with it" if larger else ""
    )
    last = WIDTHS[-1]
    text = (
        f"q·k is a sum of D products, so its variance is D. At D = {last} the softmax nearly picks one key: its entropy is "
        f"{rounded(plain[last]['entropy'])} bits instead of {rounded(scaled[last]['entropy'])}, and the gradient through it is "
        f"{rounded(plain[last]['gradient'])} instead of {rounded(scaled[last]['gradient'])}{beyond}. Divided by √D, all three "
        f"stay about the same for every D. Random q and {keys} random keys, {trials} times."
    )
    note = f"{keys} keys, {trials} random queries"
    return Drawing(title, text, rows, panels(title, note, [shown]))
