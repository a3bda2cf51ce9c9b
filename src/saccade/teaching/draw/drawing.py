"""The result of a drawing: a figure, its numbers, and a text about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...views.plots.sheet import Figure, content_of

Table = list[list[Any]]  # its first row is the header


@dataclass
class Drawing:
    """A figure, the numbers it was drawn from, and a text about them."""

    title: str
    text: str
    table: Table
    figure: Figure
    scripts: bool = False  # letters that no font here may have: a page lets the browser draw them

    def picture(self) -> bytes:
        """For a page: PNG, or SVG where the browser has to find the fonts."""
        return content_of(self.figure, "svg" if self.scripts else "png")


def rounded(value: float) -> str:
    """A number for a table: four digits."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
