"""The share of a Transformer's operations outside attention, by its size and the length of its text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import SaccadeError
from ...views.plots.layout import panels
from ...views.plots.panels import Lines
from .drawing import Drawing

# width and layers: the published sizes of GPT-3 (Brown et al. 2020, Table 2.1), and the base model of Vaswani et al. 2017 before them
SIZES = {
    "base": (512, 6),
    "125M": (768, 12),
    "1.3B": (2048, 24),
    "13B": (5120, 40),
    "175B": (12288, 96),
}
LENGTHS = (30, 128, 512, 2048, 8192, 32768)
POINTS = 49  # of a curve


def operations(dim: int, length: float, hidden: int | None = None) -> dict[str, float]:
    """Operations of one block for a text of `length` tokens, a multiplication and its addition counting 2: the four projections
    of attention, its scores and weighted sums (which grow with the square of the length), and the two matrices of the MLP."""
    hidden = 4 * dim if hidden is None else hidden
    return {
        "projections": 8 * length * dim**2,
        "scores": 4 * length**2 * dim,
        "mlp": 4 * length * dim * hidden,
    }


def outside(dim: int, length: float, projections: bool = False) -> float:
    """The share of a block's operations outside attention; `projections` count as attention, or they do not."""
    counted = operations(dim, length)
    inside = counted["scores"] + (counted["projections"] if projections else 0)
    return 1 - inside / sum(counted.values())


def draw(names: list[str], lengths: Sequence[int] = LENGTHS) -> Drawing:
    """The share of operations outside attention: by length for models of several sizes, with and without its projections."""
    if names or not lengths or min(lengths) < 1 or max(lengths) > 10**7:
        raise SaccadeError(
            "draw share takes no names, and lengths from 1 to 10,000,000", code="drawing-options"
        )
    curve = np.geomspace(min(lengths), max(lengths), POINTS).tolist()
    heads = {"outside scores and sums": False, "outside attention with its projections": True}
    shown = []
    for about, projections in heads.items():
        series = {
            f"{name} (D = {dim:,})": [(n, 100 * outside(dim, n, projections)) for n in curve]
            for name, (dim, _) in SIZES.items()
        }
        axes = ("length (tokens)", "% of operations", 3.6, 2.6)
        shown.append(Lines(about, *axes, series, "x", limits=(0, 100), ticks=lengths))
    rows = [["model", "D", "layers", *(f"{length:,} tokens" for length in lengths)]]
    for name, (dim, layers) in SIZES.items():
        shares = [f"{100 * outside(dim, length):.1f} %" for length in lengths]
        rows.append([name, f"{dim:,}", str(layers), *shares])
    title = "Operations outside attention"
    text = (
        "Scores and sums cost 4 N²D per block, all matrices 24 N D²: their ratio is N / 6D. The larger a model, the more of its work is "
        "outside the part that grows with the square of the length; past N = 6D that part is the larger one. The table counts "
        "projections as outside."
    )
    note = "per block: 8 N D² projections, 4 N² D scores and sums, 16 N D² MLP"
    return Drawing(title, text, rows, panels(title, note, [shown]))
