"""Draws docs/multi30k-length.png from benchmarks/results/multi30k-de-en.json: BLEU against the length of a sentence.

python benchmarks/length_picture.py
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

from saccade.views.pictures import lines

ROOT = Path(__file__).resolve().parents[1]
NAMES = {
    "multi30k-de-en": "Transformer",
    "multi30k-de-en-bahdanau": "Bahdanau's attention",
    "multi30k-de-en-fixed-context": "one fixed context",
}


def main() -> None:
    path = ROOT / "benchmarks/results/multi30k-de-en.json"
    if not path.is_file():
        sys.exit(f"{path} is not there; make it with python benchmarks/text.py multi30k-de-en")
    figures = json.loads(path.read_text(encoding="utf-8"))["figures"]
    series = {
        shown: [tuple(statistics.fmean(figures[f"{name}.{what}_quarter_{n}"]) for what in ("words", "bleu")) for n in range(1, 5)]
        for name, shown in NAMES.items()
    }
    picture = lines(series, "words in the source, mean of each quarter of the test set", "BLEU", "Multi30k de→en, test 2016")
    picture.savefig(ROOT / "docs/multi30k-length.png", dpi=120)


if __name__ == "__main__":
    main()
