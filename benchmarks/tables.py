"""Makes the tables in README and docs from `benchmarks/results/` and the catalogue; `--check` only tells whether they are up to date.

python benchmarks/tables.py [--check]
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

from saccade import models
from saccade.catalogue import SLOTS
from saccade.config import recipe

ROOT = Path(__file__).resolve().parents[1]
START, END = "<!-- demo figures: made by `python benchmarks/tables.py`, checked by a test -->", "<!-- end of demo figures -->"
ROWS = (
    ("BLEU", "bleu_fixed_context", "bleu"),
    ("BLEU, the longest quarter of the sentences", "bleu_long_fixed_context", "bleu_long"),
    ("alignment error rate", None, "aer"),
)


def spoken(values: list[float], digits: int) -> str:
    """mean ± standard deviation over the seeds"""
    return f"{statistics.mean(values):.{digits}f} ± {statistics.stdev(values):.{digits}f}"


def demo_table() -> str:
    result = json.loads((ROOT / "benchmarks/results/demo.json").read_text(encoding="utf-8"))
    figures = result["figures"]
    lines = [f"| mean ± standard deviation over {len(result['seeds'])} seeds | fixed context | with attention |", "|---|---|---|"]
    for name, plain, attending in ROWS:
        digits = 3 if attending == "aer" else 1
        left = "–" if plain is None else spoken(figures[plain], digits)
        lines.append(f"| {name} | {left} | {spoken(figures[attending], digits)} |")
    seconds = f"{statistics.mean(figures['seconds']):.0f}"
    return "\n".join([*lines, "", f"{seconds} seconds for the whole demo on {result['device']}."])


def readme() -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    before, rest = text.split(START)
    return f"{before}{START}\n{demo_table()}\n{END}{rest.split(END)[1]}"


def catalogue() -> str:
    lines = [
        "# The catalogue",
        "",
        "Everything that has a name; `saccade list` prints the same. Made by `python benchmarks/tables.py`. Parts of a model are named in "
        "a recipe, with options as `{name: window, left: 4}`; masks made from a batch (padding, prefix, documents, matrix), syntax "
        "positions and backends are for Python.",
    ]
    for slot, table in SLOTS.items():
        lines += ["", f"## {slot}", "", "| name | what | paper |", "|---|---|---|"]
        lines += [f"| `{entry.name}` | {entry.summary.replace('|', chr(92) + '|')} | {entry.paper} |" for entry in table]
    return "\n".join(lines) + "\n"


def recipes() -> str:
    lines = [
        "# Recipes",
        "",
        "Every key of a recipe with its default; a recipe file holds only what differs. On the command line: `training.updates=500`. "
        "Made by `python benchmarks/tables.py`.",
    ]
    whole = recipe({"model": {"family": "transformer"}}).to_dict()
    parts = {"top": {key: value for key, value in whole.items() if not isinstance(value, dict)}}
    parts.update({key: value for key, value in whole.items() if isinstance(value, dict) and key != "model"})
    for family in models.table.names():
        parts[f"model ({family})"] = recipe({"model": {"family": family}}).model
    for name, keys in parts.items():
        lines += ["", f"## {name}", "", "| key | default |", "|---|---|"]
        lines += [f"| `{key}` | `{json.dumps(value, ensure_ascii=False)}` |" for key, value in keys.items()]
    return "\n".join(lines) + "\n"


PAGES = {"README.md": readme, "docs/catalogue.md": catalogue, "docs/recipes.md": recipes}


def outdated() -> list[str]:
    """The pages that differ from what their results say."""
    return [
        name for name, make in PAGES.items() if not (ROOT / name).exists() or (ROOT / name).read_text(encoding="utf-8") != make()
    ]


def main() -> None:
    if "--check" in sys.argv:
        sys.exit(f"out of date: {', '.join(outdated())}; run `python benchmarks/tables.py`" if outdated() else 0)
    for name, make in PAGES.items():
        (ROOT / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
