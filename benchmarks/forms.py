"""Train small language models with memory or efficient attention, each against its control.

    python benchmarks/forms.py [--only linformer full] [--seeds 3] [--updates N] [--result forms] [--out runs/forms]

The text is generated sentences in five languages, a few of one language after another, so that the other words say of which language a
word is.

- Transformer-XL and XLNet read it in pieces of four words, with a memory of earlier pieces and without one.
- Linformer, Performer and Big Bird find hidden words in longer blocks, as full attention does.

Figures are one per seed: `NAME.loss` on held-out text, `NAME.unigram_loss`, the least loss of a model of single tokens there, and for the
cheap forms `NAME.share_of_full`, what they gain over the unigram loss as a share of what full attention gains with the same seed.
Stopped and called again, it continues. Writes `benchmarks/results/RESULT.json`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from saccade.config import recipes as config
from saccade.data.generated.phrasebook import phrasebook
from saccade.experiments.attention_forms import FORMS
from saccade.experiments.comparison import train_and_measure
from saccade.experiments.results import Table
from saccade.training.loop import Watcher

SIZES = {"dim": 64, "hidden": 128, "depth": 2, "heads": 4, "dropout": 0.0}
HOW = {
    "schedule": "cosine",
    "warmup": 30,
    "learning_rate": 0.003,
    "smoothing": 0.0,
    "evaluate_every": "auto",
    "checkpoint_every": 0,
    "updates": 250,
    "tokens": 1024,
}
WORDS: dict[str, Any] = {
    "task": "language-modelling",
    "vocabulary": {"kind": "words"},
    "training": HOW,
}
PIECES = {"carry": True, "block": 4}
CARRIED: dict[str, dict[str, Any]] = {
    "transformer-xl": PIECES,
    "xlnet": {**PIECES, "objective": "permutation", "share": 0.3},
}
HIDDEN = {"objective": "masked", "block": 64, "share": 0.25}
# sentences of one language follow one another
LANGUAGES, IN_A_ROW = (("de", "it", "es", "zh", "hi"), 8)
CHEAP: dict[str, dict[str, Any]] = {
    "full": {},
    "linformer": {"mixer": {"name": "linformer", "k": 16, "max_len": 65}},
    "performer": {},
    "big-bird": {"mask": {"name": "blocks", "size": 8, "length": 65}},
}


def recipes(out: Path) -> dict[str, dict[str, Any]]:
    """What is trained, by name. The sentences are one long text, since a Linformer cannot keep documents apart."""
    books = [phrasebook(600, 60, 0, to=language) for language in LANGUAGES]
    data = {split: str(out / f"{split}.txt") for split in ("train", "dev")}
    for split, path in data.items():
        turns = [
            book[split][at : at + IN_A_ROW]
            for at in range(0, len(books[0][split]), IN_A_ROW)
            for book in books
        ]
        Path(path).write_text(
            "\n".join(one.target for turn in turns for one in turn) + "\n", encoding="utf-8"
        )
    found = {}
    for family, how in CARRIED.items():
        for memory, name in ((16, ""), (0, "-without-memory")):
            found[family + name] = {
                **WORDS,
                "language": how,
                "model": {"family": family, "memory": memory, **SIZES},
            }
            found[family + name]["training"] = {**HOW, "tokens": 512}
    found |= {
        name: {**WORDS, "language": HIDDEN, "model": {**FORMS[name], **SIZES, **own}}
        for name, own in CHEAP.items()
    }
    return {name: {**recipe, "data": data} for name, recipe in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=0)
    parser.add_argument("--result", default="forms")
    parser.add_argument("--out", type=Path, default=Path("runs/forms"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    table = Table(options.result, {}, seeds=list(range(options.seeds)))
    for name, recipe in recipes(options.out).items():
        for seed in range(options.seeds) if not options.only or name in options.only else ():
            steps = {
                **recipe["training"],
                **({"updates": options.updates} if options.updates else {}),
            }
            made = config.recipe({**recipe, "training": steps, "seed": seed, "device": "cpu"})
            metrics, _ = train_and_measure(
                made, options.out / f"{name}-{seed}", Watcher(), "", None
            )
            for metric in ("loss", "unigram_loss", "seconds", "updates", "parameters"):
                table.add(name, metric, metrics[metric])
            print(
                f"{name}, seed {seed}: loss {metrics['loss']:.3f}, unigram {metrics['unigram_loss']:.3f}",
                flush=True,
            )
            print(f"  {metrics['seconds']:.0f} seconds", flush=True)
    for name in CHEAP:
        if name in table.rows and "full" in table.rows:
            for own, full in zip(gains(table, name), gains(table, "full"), strict=True):
                table.add(name, "share_of_full", own / full)
    table.notes = "loss per asked token in nats on held-out text; unigram_loss: the entropy of the asked tokens themselves"
    print(table.write())


def gains(table: Table, row: str) -> list[float]:
    """What a row learned beyond the frequencies of the tokens, with each seed."""
    pairs = zip(table.values(row, "unigram_loss"), table.values(row, "loss"), strict=True)
    return [unigram - loss for unigram, loss in pairs]


if __name__ == "__main__":
    main()
