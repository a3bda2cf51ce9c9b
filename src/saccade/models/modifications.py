"""The modifications of Narang et al. 2021: each is a row of settings over one T5-style baseline, in `modifications.yaml`."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml

from ..core.table import Table
from ..errors import SaccadeError

COLUMNS = ("parameters", "operations", "steps", "early", "early_spread", "final", "sglue", "xsum", "webq", "wmt")
# pre-norm with relative positions by T5's buckets, and one matrix for both embeddings and the output
BASELINE = {"position": "t5", "residual": "pre-norm", "shared": True, "tied": True}
PAPER_SIZE = {"dim": 768, "hidden": 3072, "depth": 12, "heads": 12}  # with a vocabulary of PAPER_VOCABULARY tokens
PAPER_VOCABULARY = 32_128


@dataclass(frozen=True)
class Modification:
    """A row of the table: what it sets and scales, and the paper's own columns."""

    title: str
    settings: dict[str, Any]
    scale: dict[str, Fraction]
    paper: dict[str, float]
    __doc__: str = ""

    def over(self, sizes: Mapping[str, Any]) -> dict[str, Any]:
        """The baseline's settings with this row's, for a baseline of these sizes; a head keeps its width when their number is scaled."""
        scaled = {name: max(1, round(sizes[name] * factor)) for name, factor in self.scale.items()}
        if "heads" in scaled:
            scaled["head_width"] = sizes.get("head_width") or sizes["dim"] // sizes["heads"]
        return {**BASELINE, **self.settings, **scaled}


table: Table[Modification] = Table("modifications", "modification")


def summary(title: str, settings: dict[str, Any], scale: dict[str, Fraction]) -> str:
    """The row in words: its title in the paper, and what it sets."""
    parts = [f"{name}: {value}" for name, value in settings.items()] + [f"{name} × {value}" for name, value in scale.items()]
    return f"{title}: {', '.join(parts).replace(chr(39), '')}" if parts else f"{title}: the baseline"


for name, row in yaml.safe_load(Path(__file__).with_name("modifications.yaml").read_text(encoding="utf-8")).items():
    settings, scale = row.get("settings", {}), {key: Fraction(value) for key, value in row.get("scale", {}).items()}
    columns = dict(zip(COLUMNS, map(float, row["paper"]), strict=True))
    made = Modification(row["title"], settings, scale, columns, summary(row["title"], settings, scale))
    table.add(name, "Narang et al. 2021")(made)


def modified(name: str, config: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """A family's settings under the modification `name`. Sizes that are given are the baseline's, which the row may scale; other
    settings that are given win."""
    known = getattr(config, "__dataclass_fields__", {})
    if not {"position", "mixer", "stack"} <= set(known):
        raise SaccadeError("model.modification changes a Transformer; choose model.family=transformer, or leave it out")
    sizes = {key: given.get(key, known[key].default) for key in ("dim", "hidden", "depth", "heads", "head_width")}
    changed = table[name].over(sizes)
    return {**changed, **{key: value for key, value in given.items() if key not in table[name].scale}}
