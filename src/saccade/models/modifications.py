"""The modifications of Narang et al. 2021, "Do Transformer Modifications Transfer Across Implementations and Applications?".

Each is a row of `modifications.json`: `settings` over one T5-style baseline, and a `scale` that multiplies sizes, as the paper does to keep
the number of parameters: `2/3` of the same key's, or `1/4 depth` of another's (`, at least 2`), for options of parts
too. `paper` has its columns: parameters (M), operations (T), steps per second, early loss and its ± over five runs, final loss, SuperGLUE,
XSum (ROUGE-2), WebQuestions, WMT En–De (BLEU).

The settings are those of the authors' configuration files (google-research/google-research, transformer_modifications/…/gin/models) and,
where these leave something out, the defaults of their layers (tensorflow/mesh, mesh_tensorflow/transformer). `difference` says why the
paper's count of operations is another one than that of the model, and by how much (T): docs/operations.md has both for all rows.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from ..errors import SaccadeError
from ..registry import Table

COLUMNS = (
    "parameters",
    "operations",
    "steps",
    "early",
    "early_spread",
    "final",
    "sglue",
    "xsum",
    "webq",
    "wmt",
)
# pre-norm with T5's relative positions (one table per stack, one-sided in the decoder), one matrix for both embeddings and the output
BASELINE = {
    "position": {"name": "t5", "both_sides": None, "shared": True},
    "residual": "pre-norm",
    "shared": True,
    "tied": True,
}
# with a vocabulary of PAPER_VOCABULARY tokens
PAPER_SIZE = {"dim": 768, "hidden": 3072, "depth": 12, "heads": 12}
PAPER_VOCABULARY = 32_128
SIZES = ("dim", "hidden", "depth", "heads", "head_width", "cross_heads", "cross_width")


@dataclass(frozen=True)
class Modification:
    """A row of the table: what it sets and scales, and the paper's own columns."""

    title: str
    settings: dict[str, Any]
    # key → a factor of the same key's size, `factor key` or `key` of another's, or a list of such
    scale: dict[str, Any]
    paper: dict[str, float]
    difference: float = 0.0  # known difference of the paper's operations (T)
    why: str = ""
    __doc__: str = ""

    def over(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of this row for a baseline of these sizes."""
        found, sizes = {**BASELINE, **self.settings}, with_widths(given)
        for key, factor in self.scale.items():
            part, _, option = key.partition(".")
            if option:
                chosen = found[part] if isinstance(found[part], dict) else {"name": found[part]}
                found[part] = {**chosen, option: scaled(factor, key, sizes)}
            else:
                found[key] = scaled(factor, key, sizes)
        if "heads" in self.scale:
            # heads keep their width when their number changes
            found.setdefault("head_width", sizes["head_width"])
        return found


def with_widths(given: Mapping[str, Any]) -> dict[str, int]:
    """The sizes, completed by those derived from others."""
    width = given.get("head_width") or max(1, given["dim"] // given["heads"])
    heads, across = given.get("cross_heads") or given["heads"], given.get("cross_width") or width
    return {**given, "head_width": width, "cross_heads": heads, "cross_width": across}


def scaled(factor: Any, key: str, sizes: Mapping[str, int]) -> Any:
    """2/3 of a key's size, `1/4 depth` or `dim` of another's, at least 1 or what it says; a list of such, one by one."""
    if isinstance(factor, list):
        return [scaled(one, key, sizes) for one in factor]
    part, _, least = str(factor).partition(", at least ")
    share, _, other = part.rpartition(" ")
    whole, times = (sizes[other], share or "1") if other in sizes else (sizes[key], other)
    return max(int(least or 1), round(whole * Fraction(times)))


table: Table[Modification] = Table("modifications", "modification")


def summary(title: str, settings: dict[str, Any], scale: dict[str, Any]) -> str:
    """A summary of the row: its title in the paper and its settings."""
    shown = [(f"{name}:", value) for name, value in settings.items()] + [
        (f"{name} ×", value) for name, value in scale.items()
    ]
    parts = [f"{name} {json.dumps(value)}".replace('"', "") for name, value in shown]
    return f"{title}: {', '.join(parts)}" if parts else f"{title}: the baseline"


for name, row in json.loads(
    Path(__file__).with_name("modifications.json").read_text(encoding="utf-8")
).items():
    settings, scale = row.get("settings", {}), row.get("scale", {})
    columns = dict(zip(COLUMNS, map(float, row["paper"]), strict=True))
    other = row.get("difference", {"operations": 0.0, "why": ""})
    made = Modification(
        row["title"],
        settings,
        scale,
        columns,
        other["operations"],
        other["why"],
        summary(row["title"], settings, scale),
    )
    table.add(name, "Narang et al. 2021")(made)


def modified_recipe(name: str, config: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """A family's settings under the modification `name`. Sizes that are given are the baseline's, which the row may scale; other
    settings that are given win."""
    known = getattr(config, "__dataclass_fields__", {})
    if not {"position", "mixer", "stack"} <= set(known):
        raise SaccadeError(
            "model.modification changes a Transformer; choose model.family=transformer, or leave it out",
            code="modification-not-supported",
        )
    sizes = {key: given.get(key, known[key].default) for key in SIZES}
    row = table[name]
    return {
        **row.over(sizes),
        **{key: value for key, value in given.items() if key not in row.scale},
    }
