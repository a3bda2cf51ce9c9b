"""Attention masks: any mask of the catalogue, Swin's shifted windows, or a matrix of zeros and ones from a file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...core import masks
from ...errors import SaccadeError, did_you_mean
from ...layers.grid_windows import Windows
from ...settings import choose, options_of
from ...views.plots.layout import in_rows, panels
from ...views.plots.panels import Heat
from .drawing import Drawing

MAX_POSITIONS = 1024  # positions
SWIN, BIG_BIRD = "swin", "big-bird"
NOT_FROM_OPTIONS = ("matrix", "shifted-windows")  # by a file, and as `swin`
BATCH_OPTION = {"padding": "lengths", "prefix": "lengths", "documents": "ids"}


def mask_matrix(name: str, length: int = 32, seed: int = 0, **options: Any) -> np.ndarray:
    """The booleans of a mask of the catalogue over `length` positions, queries down and keys across; True may attend."""
    name = "blocks" if name == BIG_BIRD else name
    if name in BATCH_OPTION:
        mask = batch_mask(name, length, options)
    else:
        known = options_of(masks.table, masks.table[name])
        given = {"name": name, **usual(name, length, known), **options}
        mask = choose(masks.table, given, f"draw mask {name}")()
    if mask.computed:  # from queries and keys: random ones show what such a mask looks like
        chance = torch.Generator().manual_seed(seed)
        mask = mask.given(*(torch.randn(1, 1, length, 8, generator=chance) for _ in range(2)))
    found = mask.dense(1, 1, length, length)[0, 0].expand(length, length)
    return np.asarray(found.numpy())


def usual(name: str, length: int, known: Any) -> dict[str, Any]:
    """Options with which a mask can be seen at this length: windows and blocks of a few positions."""
    few = max(2, length // 16)
    wanted = {"length": length, "size": few, "left": few}
    wanted |= {"random": 2} if name == "blocks" else {}
    return {key: value for key, value in wanted.items() if key in known}


def batch_mask(name: str, length: int, options: dict[str, Any]) -> masks.Mask:
    """A mask that is made for each batch, of one row: `lengths=20`, or `ids=[0, 0, 1]`; without these, at two thirds of the length."""
    key = BATCH_OPTION[name]
    if wrong := next((one for one in options if one != key), None):
        raise SaccadeError(
            f"the mask '{name}' has no option '{wrong}'{did_you_mean(wrong, [key])}",
            code="unknown-option",
        )
    split = length * 2 // 3
    value = options.get(key, split if key == "lengths" else [0] * split + [1] * (length - split))
    return masks.table[name]([value])  # type: ignore[call-arg]


def read_matrix(path: Path) -> np.ndarray:
    """A matrix of 0 and 1 from a text file: a row per line, numbers separated by spaces, tabs or commas, or not at all."""
    if path.stat().st_size > 4 * MAX_POSITIONS * MAX_POSITIONS:
        raise SaccadeError(
            f"{path} has {path.stat().st_size:,} bytes; expected at most {MAX_POSITIONS:,} × {MAX_POSITIONS:,} zeros and ones",
            code="too-large",
        )
    try:
        text = path.read_text(encoding="utf-8").replace(",", " ")
        lines = [line.split() for line in text.splitlines() if line.strip()]
    except UnicodeDecodeError:
        raise SaccadeError(
            f"{path} is not a text; write a matrix as lines of 0 and 1", code="not-a-matrix"
        ) from None
    rows = [list(line[0]) if len(line) == 1 else line for line in lines]
    wrong = [n for n, row in enumerate(rows, 1) if len(row) != len(rows[0]) or {*row} - {"0", "1"}]
    if not rows or wrong:
        where = f"row {wrong[0]} of {path}" if wrong else f"{path}"
        raise SaccadeError(
            f"{where}: expected rows of 0 and 1, all of one length; 1 may attend",
            code="not-a-matrix",
        )
    if max(len(rows), len(rows[0])) > MAX_POSITIONS:
        raise SaccadeError(
            f"{path} is {len(rows):,} × {len(rows[0]):,}; expected at most {MAX_POSITIONS:,} × {MAX_POSITIONS:,}",
            code="too-large",
        )
    ones: np.ndarray = np.array(rows) == "1"
    return ones


def swin_windows(side: int, window: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Over a square grid: the windows of one block, the parts of the shifted windows of the next, and its mask."""
    at = Windows.over(side, side, window, torch.device("cpu"))
    if not at.shift:
        raise SaccadeError(
            f"windows of {window} over {side} × {side} positions are not shifted; use window < {side}",
            code="windows-do-not-fit",
        )
    mask = at.mask(1, 1, torch.device("cpu"))
    assert mask is not None
    allowed = at.spread(mask.allowed().float(), shifted=True)[0, 0].numpy() > 0
    each, count = at.size**2, (at.padded[0] // at.size) ** 2
    numbers = at.join(torch.arange(count).repeat_interleave(each).view(-1, each, 1), 0)
    shifted = np.unique(allowed, axis=0, return_inverse=True)[1].reshape(side, side)
    return numbers.view(side, side).numpy(), shifted, allowed


def draw(names: list[str], length: int = 32, seed: int = 0, **options: Any) -> Drawing:
    """Masks side by side: names of the catalogue, big-bird, swin, or files of zeros and ones; options as left=3 or size=4."""
    if not 1 <= length <= MAX_POSITIONS:
        raise SaccadeError(
            f"expected a length from 1 to {MAX_POSITIONS:,}, got {length}", code="out-of-range"
        )
    shown = list[Heat]()
    rows = [["mask", "queries", "keys", "pairs that may attend", "share", "keys per query"]]
    known = [*(one for one in masks.table.names() if one not in NOT_FROM_OPTIONS), BIG_BIRD, SWIN]
    unused = {*options}
    for name in names or ["causal", "window", BIG_BIRD]:
        mine = {key: value for key, value in options.items() if key in options_taken(name)}
        unused -= {*mine}
        if name == SWIN:
            side, window = max(4, math.isqrt(length)), int(mine.get("window", 4))
            plain, shifted, allowed = swin_windows(side, window)
            shown.append(windows_panel(f"block l: windows of {window} × {window}", plain))
            shown.append(windows_panel("block l + 1: shifted", shifted))
        elif name in known:
            allowed = mask_matrix(name, length, seed, **mine)
        elif Path(name).is_file():
            allowed = read_matrix(Path(name))
        else:
            raise SaccadeError(
                f"no mask or file named '{name}'{did_you_mean(name, known)}", code="unknown-mask"
            )
        title = f"{Path(name).name}{''.join(f', {key} {value}' for key, value in mine.items())}"
        shown.append(Heat(title, "key", "query", 2.4, 2.4, allowed, 0, 1))
        keys = allowed.sum(1)
        counts = [f"{allowed.sum():,}", f"{allowed.mean():.1%}", f"{keys.min()} to {keys.max()}"]
        rows.append([name, *map(str, allowed.shape), *counts])
    if unused:
        raise SaccadeError(
            f"no mask of this drawing has the option '{min(unused)}'; leave it out",
            code="unknown-option",
        )
    title = "Attention masks"
    note = "black: the query may attend to the key · white: set to −∞ before the softmax"
    shares = "; ".join(f"{row[0]}: {row[4]}" for row in rows[1:])
    text = f"A black cell lets its query look at its key. Of all pairs: {shares}."
    return Drawing(title, text, rows, panels(title, note, in_rows(shown)))


def windows_panel(name: str, grid: np.ndarray) -> Heat:
    """A grid whose windows differ in shade and number, counted from the upper left corner."""
    _, first, which = np.unique(grid, return_index=True, return_inverse=True)
    numbers = first.argsort().argsort()[which].reshape(grid.shape) + 1
    made = Heat(name, "column", "row", 2.4, 2.4, numbers, 0, 2 * numbers.max())
    made.text, made.edges = numbers, True
    return made


def options_taken(name: str) -> set[str]:
    """The options that a mask of this name takes."""
    if name in BATCH_OPTION or name == SWIN:
        return {BATCH_OPTION.get(name, "window")}
    name = "blocks" if name == BIG_BIRD else name
    return {*options_of(masks.table, masks.table[name])} if name in masks.table else set()
