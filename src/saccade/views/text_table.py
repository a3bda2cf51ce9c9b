"""Tables of text as Markdown, LaTeX, CSV and lines of a terminal. The first row is the head, the first column names the rows."""

import csv
import io
from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size

from .document import shorten

MISSING = "–"
LONGEST = 40  # letters of a cell in a terminal
LATEX = str.maketrans(
    {
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        **{"<": "$<$", ">": "$>$", "|": r"\textbar{}", "*": "$^{*}$"},
        **{"±": r"$\pm$", "×": r"$\times$", "√": r"$\surd$", "→": r"$\to$", "−": "$-$"},
        **{"≤": r"$\le$", "≥": r"$\ge$", "–": "--", "·": r"$\cdot$", "\n": " "},
    }
)
Cells = Sequence[Sequence[str]]


class Bold(str):
    """A cell that stands out."""


def markdown(rows: Cells) -> str:
    """A table of GitHub's Markdown."""

    def cell(text: str) -> str:
        plain = text.replace("|", "\\|").replace("*", "\\*").replace("\n", " ")
        return f"**{plain}**" if isinstance(text, Bold) else plain

    lines = [f"| {' | '.join(map(cell, row))} |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


def latex(rows: Cells) -> str:
    """A `tabular` that needs no package."""

    def cell(text: str) -> str:
        plain = text.translate(LATEX)
        return f"\\textbf{{{plain}}}" if isinstance(text, Bold) else plain

    lines = [f"{' & '.join(map(cell, row))} \\\\" for row in rows]
    return "\n".join(
        [
            f"\\begin{{tabular}}{{l{'r' * (len(rows[0]) - 1)}}}",
            "\\hline",
            lines[0],
            "\\hline",
            *lines[1:],
            "\\hline",
            "\\end{tabular}",
            "",
        ]
    )


def csv_text(rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def terminal(rows: Cells, longest: int = LONGEST) -> str:
    """Columns as wide as they need to be, the first one to the left and all others to the right; lines are never wrapped."""
    texts = [[shorten(cell, longest) if cell else "" for cell in row] for row in rows]
    first, *widths = [max(map(cell_len, column)) for column in zip(*texts, strict=True)]
    lines = []
    for name, *cells in texts:
        padded = [
            " " * (width - cell_len(cell)) + cell for width, cell in zip(widths, cells, strict=True)
        ]
        lines.append("  ".join([set_cell_size(name, first), *padded]))
    return "\n".join(lines)
