"""How much of a Transformer's operations is outside attention, by its size and by the length of its text."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import SaccadeError
from .panels import Drawing, Lines, side_by_side

# width and layers: the published sizes of GPT-3 (Brown et al. 2020, Table 2.1), and the base model of Vaswani et al. 2017 before them
SIZES = {
    "base": (512, 6),
    "125M": (768, 12),
    "1.3B": (2048, 24),
    "13B": (5120, 40),
    "175B": (12288, 96),
}
LENGTHS = (30, 128, 512, 2048, 8192, 32768)


def operations(dim: int, length: int, hidden: int | None = None) -> dict[str, int]:
    """Of one block and a text of `length` tokens, a multiplication and its addition being 2: the four projections of attention, its scores
    and weighted sums (which grow with the square of the length), and the two matrices of the MLP."""
    hidden = 4 * dim if hidden is None else hidden
    return {
        "projections": 8 * length * dim**2,
        "scores": 4 * length**2 * dim,
        "mlp": 4 * length * dim * hidden,
    }


def outside(dim: int, length: int, projections: bool = False) -> float:
    """The share of a block's operations outside attention; `projections` belong to attention, or they do not."""
    counted = operations(dim, length)
    inside = counted["scores"] + (counted["projections"] if projections else 0)
    return 1 - inside / sum(counted.values())


def draw(names: list[str], lengths: Sequence[int] = LENGTHS) -> Drawing:
    """The share of operations outside attention: by length for models of several sizes, with and without its projections."""
    if names or not lengths or min(lengths) < 1 or max(lengths) > 10**7:
        raise SaccadeError("draw share takes no names, and lengths from 1 to 10,000,000")
    panels = []
    for title, projections in (
        ("outside scores and sums", False),
        ("outside attention with its projections", True),
    ):
        series = {
            f"{name} (D = {dim:,})": [
                (length, 100 * outside(dim, length, projections)) for length in lengths
            ]
            for name, (dim, _) in SIZES.items()
        }
        panels.append(Lines(title, "length (tokens)", "% of operations", 3.6, 2.6, series, "x"))
    rows = [["model", "D", "layers", *(f"{length:,} tokens" for length in lengths)]]
    for name, (dim, layers) in SIZES.items():
        rows.append(
            [
                name,
                f"{dim:,}",
                str(layers),
                *(f"{100 * outside(dim, length):.1f} %" for length in lengths),
            ]
        )
    title = "Operations outside attention"
    text = (
        "Scores and sums cost 4 N²D per block, all matrices 24 N D²: their ratio is N / 6D. The larger a model, the more of its work is "
        "outside the part that grows with the square of the length; past N = 6D that part is the larger one. The table counts "
        "projections as outside."
    )
    return Drawing(
        title,
        text,
        rows,
        side_by_side(
            title, "per block: 8 N D² projections, 4 N² D scores and sums, 16 N D² MLP", panels
        ),
    )
