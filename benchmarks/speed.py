"""Makes the measured part of docs/speed.md and its picture from `benchmarks/results/bench-*.json`.

python benchmarks/speed.py      # draws docs/images/speed-attention.png; the tables are made by `python benchmarks/tables.py`
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from saccade.experiments.results import Table
from saccade.views.plots.layout import panels
from saccade.views.plots.panels import Bars
from saccade.views.plots.sheet import save
from saccade.views.text_table import MISSING, markdown

ROOT = Path(__file__).resolve().parents[1]
START, END = (
    "<!-- speed, measured: made by `python benchmarks/tables.py` -->",
    "<!-- end of speed, measured -->",
)
BOTH = ", forward + backward"
TOKENS = 32  # that `saccade bench decode` generates for each sentence


def page(root: Path) -> str:
    """docs/speed.md with the tables as the result files have them now."""
    text = (root / "docs/speed.md").read_text(encoding="utf-8")
    before, rest = text.split(START)
    return f"{before}{START}\n{tables(root)}{END}{rest.split(END)[1]}"


def rows_of(root: Path, name: str) -> list[dict[str, Any]]:
    """The cases of a result file, if it is there."""
    path = root / "benchmarks/results" / f"{name}.json"
    return [*Table.read(path).rows.values()] if path.is_file() else []


def attention_rows(root: Path) -> list[dict[str, Any]]:
    return rows_of(root, "bench-attention")


def tables(root: Path) -> str:
    """Attention, training and decoding on a GPU, in Markdown."""
    parts = [attention(attention_rows(root))]
    training = rows_of(root, "bench-train")
    if training:
        parts.append(trained(training))
    decoding = rows_of(root, "bench-decode-gpu")
    if decoding:
        parts.append(decoded(decoding))
    return "\n".join(parts)


def attention(rows: list[dict[str, Any]]) -> str:
    heads = ["case", "by", "ms", "MiB", "best peer", "its ms", "ratio", "of the limit"]
    lines = [
        [
            row["case"].removesuffix(BOTH),
            row.get("about") or row["ours"],
            f"{row['milliseconds']:.2f}",
            f"{row['mebibytes']:.0f}",
            row.get("peer", MISSING),
            number(row.get("peer_milliseconds"), "{:.2f}"),
            number(row.get("ratio"), "{:.2f}"),
            number(row["of_limit"] if row["of_limit"] <= 1 else None, "{:.0%}"),
        ]
        for row in rows
        if row["case"].endswith(BOTH) or row["case"].startswith("record")
    ]
    return titled("Attention, forward and backward:", [heads, *lines])


def trained(rows: list[dict[str, Any]]) -> str:
    lines = [["case", "ours", "GiB", "best peer", "ratio of times"]]
    for row in rows:
        ways = {name: found for name, found in row["all"].items() if "failed" not in found}
        peers = {name: found for name, found in ways.items() if not name.startswith("saccade")}
        mine = ", ".join(
            f"{found['tokens_per_second'] / 1000:,.0f} {'compiled' if 'compiled' in name else 'with graphs'}"
            for name, found in ways.items()
            if name.startswith("saccade")
        )
        best = max(peers, key=lambda name: peers[name]["tokens_per_second"], default="")
        other = f"{best} {peers[best]['tokens_per_second'] / 1000:,.0f}" if best else MISSING
        size, ratio = f"{row['mebibytes'] / 1024:.1f}", number(row.get("ratio"), "{:.2f}")
        lines.append([row["case"], mine, size, other, ratio])
    title = "Training, thousands of tokens per second (of pairs those of both sides):"
    return titled(title, lines)


def decoded(rows: list[dict[str, Any]]) -> str:
    lines = [["case", "saccade", "transformers"]]
    for row in rows:
        speeds = (
            1000 * TOKENS / row[key] if key in row else None
            for key in ("milliseconds", "peer_milliseconds")
        )
        lines.append([row["case"], *(number(speed, "{:,.0f}") for speed in speeds)])
    return titled("Decoding, tokens per second:", lines)


def titled(title: str, lines: list[list[str]]) -> str:
    return f"{title}\n\n{markdown(lines)}\n"


def number(value: float | None, form: str) -> str:
    return MISSING if value is None else form.format(value)


def times_as_fast(root: Path) -> dict[str, float]:
    """How many times as fast as the best peer each case is, forward and backward, the fastest first."""
    rows = [row for row in attention_rows(root) if row["case"].endswith(BOTH) and "ratio" in row]
    found = {
        f"{row['case'].removesuffix(BOTH)} (against {row['peer']})": row["peer_milliseconds"]
        / row["milliseconds"]
        for row in rows
    }
    return dict(sorted(found.items(), key=lambda one: -one[1]))


def draw(root: Path) -> None:
    """A bar for each case."""
    bars = times_as_fast(root)
    device = Table.read(root / "benchmarks/results/bench-attention.json").about["device"]
    x = "times as fast as the best peer (logarithmic; 1: equally fast)"
    panel = Bars("forward and backward", x, wide=5.4, tall=0.25 * len(bars), values=bars)
    note = f"{device}, bfloat16 · hatched: slower than the peer"
    sheet = panels("Attention kernels against their best peer", note, [[panel]])
    save(sheet, root / "docs/images/speed-attention.png")


if __name__ == "__main__":
    draw(ROOT)
