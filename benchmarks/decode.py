"""Decoding on this machine beside CTranslate2 and transformers, each engine in a process of its own, asked in turn, medians.

python benchmarks/decode.py [--rounds 3] [--device cpu] [--out FOLDER] [--small]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from saccade.bench.decoding import cases
from saccade.results import write_result

KINDS = ("fp32", "int8", "bf16")


def best(rows: list[dict[str, object]], case: str, engine: str) -> tuple[float, str]:
    """The best setting of an engine in a case."""
    found = [(float(str(row["value"])), str(row["engine"])) for row in rows if row["case"] == case]
    return max((one for one in found if one[1].startswith(engine)), default=(0.0, ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--small", action="store_true")
    given = parser.parse_args()
    rows = cases(given.device, given.rounds, given.small)
    ratios = {}
    for case in dict.fromkeys(row["case"] for row in rows):
        for kind in KINDS:
            ours, setting = best(rows, case, f"saccade {kind}")
            for peer in ("ctranslate2", "transformers"):
                theirs, other = best(rows, case, f"{peer} {kind}")
                if ours and theirs:
                    ratios[f"{case}, {kind}, to {peer}"] = round(ours / theirs, 3)
                    print(f"{case:16} {kind}: {ours:8.2f} ({setting}), {theirs:8.2f} ({other}): {ours / theirs:.2f} ×")
    notes = (
        "Transformer base, 24 → 32 tokens, random parameters, the same ones in saccade and CTranslate2; sentences per second. "
        + ("Each engine at its best of 1 and 2 threads, CTranslate2 also with and without MKL; ratios of medians in one run.")
    )
    name = "bench-decode-cpu" if given.device == "cpu" else "bench-decode-gpu"
    print(write_result(name, {"rows": rows, "ratios": ratios}, notes=notes, folder=given.out))


if __name__ == "__main__":
    main()
