"""Draw BLEU against sentence length from result files of `saccade compare … --lengths`.

Writes docs/multi30k-length.png and docs/lengths.png.

    python benchmarks/length_picture.py

The second is Bahdanau's Figure 2: attention and one fixed context, each trained on sentences of two greatest lengths.
"""

from __future__ import annotations

import sys
from pathlib import Path

from saccade.experiments.comparison import by_length
from saccade.experiments.results import Table
from saccade.views.figures import lines, save

ROOT = Path(__file__).resolve().parents[1]
PICTURES = {
    "multi30k-length.png": (
        "multi30k-de-en",
        "Multi30k de→en, test 2016",
        {
            "multi30k-de-en": "Transformer",
            "multi30k-de-en-bahdanau": "Bahdanau's attention",
            "multi30k-de-en-fixed-context": "one fixed context",
        },
    ),
    "lengths.png": (
        "lengths",
        "Phrasebook en→fr, trained on up to 20 and 33 words",
        {
            "phrasebook-bahdanau-max_length=34": "attention, ≤ 33 words",
            "phrasebook-bahdanau-max_length=21": "attention, ≤ 20 words",
            "phrasebook-fixed-context-max_length=34": "fixed context, ≤ 33 words",
            "phrasebook-fixed-context-max_length=21": "fixed context, ≤ 20 words",
        },
    ),
}


def main() -> None:
    for file, (name, title, rows) in PICTURES.items():
        path = ROOT / f"benchmarks/results/{name}.json"
        if not path.is_file():
            sys.exit(
                f"{path} is missing; `python benchmarks/systems.py --only S5 D7 --record` makes it"
            )
        table = Table.read(path)
        of = {shown: table.rows[row] for row, shown in rows.items()}
        made = lines(
            by_length(of),
            "words in the source, mean of each quarter of the test set",
            "BLEU",
            title,
        )
        save(made, ROOT / "docs" / file)


if __name__ == "__main__":
    main()
