"""Positions drawn: index × dimension, pᵢ·pⱼ, and the digits of binary numbers, which alternate as sinusoids do."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ...core import positions
from ...errors import SaccadeError, did_you_mean
from ...layers import token_inputs
from ...registry import Table
from ...settings import Choice, choose
from ...views.plots.layout import in_rows, panels
from ...views.plots.panels import Heat
from .drawing import Drawing, rounded

MAX_SIZE = 2048
NOT_DRAWN = ("none", "depth", "syntax")  # nothing to draw, or only with a parse tree
BITS = 4


def vectors(name: str, length: int, dim: int, seed: int = 0, **options: Any) -> np.ndarray | None:
    """p₀ … p_(length−1) of a position embedding, length × dim; None for a name that is not one."""
    if name not in token_inputs.table or name in NOT_DRAWN:
        return None
    given = {"name": name, **({"max_len": length} if name == "learned" else {}), **options}
    part = build(token_inputs.table, given, seed, dim=dim)
    with torch.no_grad():
        return np.asarray(part.vectors_at(torch.arange(length)).double().numpy())


def scores(name: str, length: int, dim: int, seed: int = 0, **options: Any) -> np.ndarray:
    """What a position inside attention adds up to for a query and a key that are all ones, divided by their width: length × length."""
    facts = {"dim": dim, "dim_values": dim, "heads": 1, "causal": False}
    part = build(positions.table, {"name": name, **options}, seed, **facts)
    return np.asarray(effect(part, positions.Positions.line(length, length), dim).numpy())


@torch.no_grad()
def effect(part: positions.Position, at: positions.Positions, dim: int) -> torch.Tensor:
    """The scores of queries and keys that are all ones, divided by their width: Q × K."""
    q, k = (torch.ones(1, 1, len(one), dim) for one in (at.i, at.j))
    found = part.encode_query(q, at.i, at) @ part.encode(k, at.j, at).transpose(-2, -1) / dim
    bias = part.bias(q, at, 1.0)
    return (found if bias is None else found + bias).double()[0, 0]


def build(table: Table[Any], given: dict[str, Any], seed: int, **facts: Any) -> Any:
    """A member with its random parameters, from a seed."""
    chosen: Choice = choose(table, given, f"draw positions {given['name']}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return chosen(**facts)


def binary_table(count: int = 16, bits: int = BITS) -> np.ndarray:
    """The digits of 0 … count − 1, the highest first."""
    return np.arange(count)[:, None] >> np.arange(bits)[::-1] & 1


def draw(
    names: list[str], length: int = 128, dim: int = 64, seed: int = 0, **options: Any
) -> Drawing:
    """Position embeddings: index × dimension, pᵢ·pⱼ, the binary table; positions inside attention: what they add to scores."""
    for what, value, most in (("length", length, MAX_SIZE), ("dim", dim, MAX_SIZE)):
        if not 2 <= value <= most:
            raise SaccadeError(
                f"expected a {what} from 2 to {most:,}, got {value}", code="out-of-range"
            )
    every = (*token_inputs.table.names(), *positions.table.names())
    known = [name for name in every if name not in NOT_DRAWN]
    shown, rows = list[Heat](), [["positions", "distance", "least", "mean", "greatest"]]
    for name in names or ["sinusoidal"]:
        if name not in known:
            raise SaccadeError(
                f"no positions named '{name}' to draw{did_you_mean(name, known)}",
                code="unknown-position",
            )
        found = vectors(name, length, dim, seed, **options)
        if found is None:
            products = scores(name, length, dim, seed, **options)
        else:
            products = found @ found.T
            axes = ("dimension", "index", 2.8, 2.8)
            shown.append(Heat(f"{name}: index × dimension", *axes, found, bar=True))
        random = " (random before training)" if name in ("learned", "shaw", "t5") else ""
        what = "pᵢ·pⱼ" if found is not None else "added to equal scores"
        shown.append(Heat(f"{name}: {what}", "j", "i", 2.8, 2.8, products, bar=True))
        for distance in (0, 1, length // 8, length // 2):
            line = np.diagonal(products, distance)
            ends = map(rounded, (line.min(), line.mean(), line.max()))
            rows.append([name + random, str(distance), *ends])
    bits = binary_table()
    shown.append(Heat("binary numbers", "digit", "number", 1.3, 2.8, bits, 0, 1.4, text=bits))
    title = "Positions"
    text = (
        "A row of the table holds all pairs at one distance: where least and greatest are equal, pᵢ·pⱼ depends on the distance alone. "
        "The digits of binary numbers alternate faster to the right; sinusoids do the same in small steps, faster to the left."
    )
    note = f"{length} positions · width {dim} · darker = more; of signed values red: above 0, blue: below 0"
    return Drawing(title, text, rows, panels(title, note, in_rows(shown)))
