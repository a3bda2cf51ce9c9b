"""Fit exponents of time, operations, path and steps against length, for each form of attention.

Writes benchmarks/results/cost-by-length.json.

    python benchmarks/cost_by_length.py [--lengths 512,1024,2048] [--repeats 3]

One block, forward and backward, on the CPU, as `saccade draw cost` draws it. The forms are measured in turns, `--repeats` times. An exponent is
the slope of the logarithms over all lengths: 1 where the cost doubles with the length, 2 where it becomes four times as large.
"""

from __future__ import annotations

import argparse

from saccade.experiments.pass_costs import exponent
from saccade.experiments.results import Table
from saccade.teaching.draw.cost_curves import PATH_LENGTHS, measure

FORMS = ("full", "window", "convolution", "lstm", "big-bird", "linear", "performer", "linformer")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument(
        "--lengths",
        default="512,1024,2048",
        type=lambda text: [int(one) for one in text.split(",")],
    )
    asked.add_argument("--repeats", default=3, type=int)
    asked.add_argument("--result", default="cost-by-length")
    given = asked.parse_args()
    about = f"one block of width 64, {given.lengths} tokens"
    table = Table(given.result, {}, about, list(range(given.repeats)))
    for _ in range(given.repeats):
        for form, mine in measure(FORMS, given.lengths).items():
            for what, values in mine.items():
                if len(values) > 1 and what != "memory":
                    table.add(form, f"exponent_{what}", exponent(values, set(values)))
                if what in ("path", "steps") and values:
                    table.add(form, f"{what}_{max(PATH_LENGTHS)}", float(values[max(values)]))
    print(f"written: {table.write()}")


if __name__ == "__main__":
    main()
