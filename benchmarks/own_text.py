"""Write two small text files of numbers in English and German, and train a translator on them.

    python benchmarks/own_text.py [--updates 250] [--seeds 3] [--out runs/own-text] [--result own-text]

The files are OUT/train.en, OUT/train.de and the same for dev and test; any other two files with a
sentence per line work too. A model with attention is compared with a fixed context and with copying
the source. German puts the ones before the tens (*six hundred forty-two*, *sechs hundert zwei und
vierzig*), so word order changes. Writes `benchmarks/results/RESULT.json`.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from saccade.config import recipes as config
from saccade.experiments.comparison import compare
from saccade.experiments.runner import Board
from saccade.tasks.text_scores import scores

ENGLISH = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
GERMAN = "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn"
ENGLISH_TENS = "- - twenty thirty forty fifty sixty seventy eighty ninety"
GERMAN_TENS = "- - zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig"
SIZES = {"test": 300, "dev": 100, "train": 3000}  # no number is in two of them


def before(name: str, german: bool) -> str:
    """A name as it is before another one: *eins*, but *ein hundert*."""
    return "ein" if german and name == "eins" else name


def below_thousand(number: int, german: bool) -> str:
    ones, tens = (GERMAN, GERMAN_TENS) if german else (ENGLISH, ENGLISH_TENS)
    names, hundreds, rest = ones.split(), number // 100, number % 100
    words = (
        [before(names[hundreds], german), "hundert" if german else "hundred"] if hundreds else []
    )
    if rest >= 20:
        ten, one = tens.split()[rest // 10], rest % 10
        both = [before(names[one], german), "und", ten] if german else [ten, names[one]]
        words += both if one else [ten]
    elif rest:
        words.append(names[rest])
    return " ".join(words)


def in_words(number: int, german: bool) -> str:
    """A number of at most nine digits: its millions, thousands and the rest."""
    words = list[str]()
    for size, name in (
        (10**6, "millionen" if german else "million"),
        (1000, "tausend" if german else "thousand"),
        (1, ""),
    ):
        if here := number // size % 1000:
            *more, last = below_thousand(here, german).split()
            words += [*more, before(last, german) if name else last, *[name] * bool(name)]
    return " ".join(words)


def write_files(folder: Path) -> None:
    """OUT/{train,dev,test}.{en,de}: the same on every machine."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = random.Random(0).sample(range(10**3, 10**9), sum(SIZES.values()))
    for split, size in SIZES.items():
        chosen, numbers = numbers[:size], numbers[size:]
        for language in ("en", "de"):
            lines = [in_words(number, language == "de") for number in chosen]
            (folder / f"{split}.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")


def recipe(folder: Path, family: str, updates: int) -> config.Recipe:
    return config.recipe(
        {
            "data": {split: f"{folder / split}.en,{folder / split}.de" for split in SIZES},
            "vocabulary": {"kind": "words"},
            "model": {"family": family, "dim": 48, "hidden": 64, "dropout": 0.0},
            "training": {
                **{
                    "updates": updates,
                    "tokens": 1000,
                    "learning_rate": 0.01,
                    "schedule": "cosine",
                    "warmup": updates // 10,
                },
                **{
                    "smoothing": 0.0,
                    "threads": 1,
                    "evaluate_every": updates,
                    "checkpoint_every": updates,
                },
            },
            "device": "cpu",
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--updates", type=int, default=250)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/own-text"))
    parser.add_argument("--result", default="")
    options = parser.parse_args()
    write_files(options.out)
    recipes = {
        family: recipe(options.out, family, options.updates)
        for family in ("bahdanau", "fixed-context")
    }
    seeds = list(range(options.seeds))
    table = compare(recipes, seeds, options.out / "runs", Board())
    english, german = (
        (options.out / f"test.{name}").read_text(encoding="utf-8").splitlines()
        for name in ("en", "de")
    )
    table.test("bleu", higher=True)
    table.rows["copying"] = {"bleu": [scores(english, german)["bleu"]] * len(seeds)}
    for row in table.rows:
        print(row, *(f"{value:.1f}" for value in table.values(row, "bleu")))
    if options.result:
        table.name, table.recipe = options.result, " ".join(table.rows)
        table.write()


if __name__ == "__main__":
    main()
