"""Properties of position encodings, measured: unique, the same at every length, for longer texts, bounded, deterministic. N positions.

The effect of a pair of positions is ‖p_i − p_j‖ for a vector that joins the input, and what is added to equal scores for a position inside
attention. Positions in a parse tree are measured on a tree in which each word's head is the middle of the words around it.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...core import positions
from ...data.batches import tree_depths, tree_distances
from ...errors import SaccadeError, did_you_mean
from ...layers import token_inputs
from ...settings import needed_options
from ...views.plots.layout import in_rows, panels
from ...views.plots.panels import Heat
from .drawing import Drawing, rounded
from .position_pictures import build, effect

DIM = 8  # its slowest wave has a period of 6,283 positions, which the longest texts contain
# a bounded value is as large in both; distances in a tree need N × N numbers
FAR_LENGTHS, FAR_TREE_LENGTHS = ((8192, 65_536), (256, 512))
MIN_DIFFERENCE, MAX_SPREAD, MAX_GROWTH = 1e-6, 1e-4, 1.1
MAX_LENGTH = 256


def kinds() -> dict[str, tuple[str, Any]]:
    """Every kind of position by its name: where it is, and its entry. `none` is in both tables, and once here."""
    found: dict[str, tuple[str, Any]] = {}
    for where, table in (("input", token_inputs.table), ("attention", positions.table)):
        for entry in table:
            found.setdefault(entry.name, (where, entry))
    return found


def make(name: str, length: int, dim: int = DIM, seed: int = 0) -> nn.Module:
    """A position of this kind with its usual options, random where it is learned; a table that must end ends with `length`."""
    where, entry = kinds()[name]
    table = token_inputs.table if where == "input" else positions.table
    facts: dict[str, Any] = {"dim": dim}
    if where == "attention":
        facts |= {"dim_values": dim, "heads": 1, "causal": False}
    given = {"name": name, **needed_options(table, entry, length)}
    made: nn.Module = build(table, given, seed, **facts)
    return made


def balanced(first: int, last: int, head: int = -1) -> list[tuple[int, int]]:
    """(word, its head) of the words first … last − 1: the middle one is below `head`, and above those on both sides."""
    if first >= last:
        return []
    middle = (first + last) // 2
    return [*balanced(first, middle, middle), (middle, head), *balanced(middle + 1, last, middle)]


def tree(length: int) -> list[list[int]]:
    return [[head for _, head in balanced(0, length)]]


@torch.no_grad()
def vectors(part: nn.Module, length: int, dim: int = DIM) -> Tensor:
    """The vectors that an embedding adds to inputs of zeros: N × D."""
    x, at = torch.zeros(1, length, dim), torch.arange(length)
    more = {"depth": tree_depths(tree(length))} if getattr(part, "needs_relation", False) else {}
    found: Tensor = part(x, at, **more)
    return found[0].double()


@torch.no_grad()
def pairs(part: nn.Module, length: int, dim: int = DIM) -> Tensor:
    """The effect of each pair of positions: N × N."""
    if not isinstance(part, positions.Position):
        found = vectors(part, length, dim)
        apart: Tensor = (found.unsqueeze(1) - found.unsqueeze(0)).norm(dim=-1)
        return apart
    line = positions.Positions.line(length, length, relation=relation(part, length))
    return effect(part, line, dim)


def relation(part: nn.Module, length: int) -> Tensor | None:
    return tree_distances(tree(length)) if getattr(part, "needs_relation", False) else None


@torch.no_grad()
def largest(part: nn.Module, length: int, dim: int = DIM) -> float:
    """The largest number of an embedding; or the largest effect on the scores of the queries 0, 1, 2, 4 … and the last."""
    if not isinstance(part, positions.Position):
        return float(vectors(part, length, dim).abs().max())
    powers = (2**n for n in range(length.bit_length()) if 2**n < length - 1)
    at, steps = torch.tensor([0, *powers, length - 1]), relation(part, length)
    steps = None if steps is None else steps[:, at]
    seen = positions.Positions(at, torch.arange(length), steps)
    return float(effect(part, seen, dim).abs().max())


@dataclass(frozen=True)
class Desiderata:
    """The measurements of one position encoding."""

    nearest: float  # the largest difference by which the two most similar positions of a text differ for some query
    moved: float  # how much the effect of a pair differs in a text of two thirds of the length
    spread: float  # how much the effects of pairs at one distance differ, as a share of how much all differ
    # the largest value in the longest texts, divided by that in shorter ones; None where no text is so long
    growth: float | None
    repeated: bool  # two passes are equal
    learned: int  # numbers

    def cells(self) -> list[str]:
        """Yes or no with the number that says so."""
        growth = self.growth
        return [
            f"yes ({rounded(self.nearest)})" if self.nearest > MIN_DIFFERENCE else "no",
            "yes" if self.moved <= MIN_DIFFERENCE else f"no ({rounded(self.moved)})",
            "yes" if self.spread <= MAX_SPREAD else f"no ({rounded(self.spread)})",
            "no" if growth is None else "yes",
            "–" if growth is None else "yes" if growth < MAX_GROWTH else f"no (× {growth:.2f})",
            "yes" if self.repeated else "no",
            f"{self.learned:,}",
        ]


def measure(part: nn.Module, length: int, dim: int = DIM) -> Desiderata:
    """Of one position, in texts of `length` positions, shorter and far longer ones."""
    one, again = pairs(part.train(), length, dim), pairs(part, length, dim)
    shorter = 2 * length // 3
    moved = float((pairs(part, shorter, dim) - one[:shorter, :shorter]).abs().max())
    # of each two keys, by the query that distinguishes them best
    apart = (one.unsqueeze(2) - one.unsqueeze(1)).abs().amax(0)
    apart.fill_diagonal_(torch.inf)
    diagonals = (one.diagonal(n) for n in range(1 - length, length))
    spread = max(float(line.max() - line.min()) for line in diagonals)
    spread /= float(one.max() - one.min()) or 1.0
    growth: float | None = None
    with contextlib.suppress(SaccadeError):  # a learned table ends
        trees = getattr(part, "needs_relation", False)
        lengths = FAR_TREE_LENGTHS if trees else FAR_LENGTHS
        less, more = (largest(part, far, dim) for far in lengths)
        growth = more / less if less else 1.0
    learned = sum(parameter.numel() for parameter in part.parameters())
    return Desiderata(
        float(apart.min()), moved, spread, growth, bool(torch.equal(one, again)), learned
    )


def draw(names: list[str], length: int = 64, dim: int = DIM, seed: int = 0) -> Drawing:
    """The properties of position encodings as a table, and the effect of each pair of positions."""
    known = kinds()
    if wrong := next((name for name in names if name not in known), None):
        raise SaccadeError(
            f"no positions named '{wrong}'{did_you_mean(wrong, known)}", code="unknown-position"
        )
    if not 8 <= length <= MAX_LENGTH or not 4 <= dim <= MAX_LENGTH or dim % 2:
        raise SaccadeError(
            f"expected a length from 8 to {MAX_LENGTH} and an even dim from 4 to {MAX_LENGTH}, got {length} and {dim}",
            code="out-of-range",
        )
    head = ["positions", "at the", "unique", "same at every length", "by distance alone"]
    head += ["longer texts", "bounded", "deterministic", "learned numbers"]
    rows, shown = [head], list[Heat]()
    for name in names or known:
        part, where = make(name, length, dim, seed), known[name][0]
        rows.append([name, where, *measure(part, length, dim).cells()])
        effects = pairs(part, length, dim)
        shown.append(Heat(f"{name} ({where})", "j", "i", 1.9, 1.7, effects, bar=True))
    title = "Properties of position encodings"
    text = (
        "Unique: the largest difference by which some query distinguishes the two most similar positions. Same at every length: the effect "
        "of a pair does not depend on the length of the text. By distance alone: nor on where the pair is; else the difference, as a share "
        f"of all. Longer texts: no table ends. Bounded: the largest value in texts of {FAR_LENGTHS[1]:,} positions is less than "
        f"{MAX_GROWTH} times that of {FAR_LENGTHS[0]:,} ({FAR_TREE_LENGTHS[1]} and {FAR_TREE_LENGTHS[0]} in trees). "
        "Learned numbers are random here."
    )
    note = f"{length} positions · width {dim} · the effect of each pair: ‖pᵢ − pⱼ‖ at the input, what is added to equal scores in attention"
    return Drawing(title, text, rows, panels(title, note, in_rows(shown, 4)))
