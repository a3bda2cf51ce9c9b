"""How cost grows with the length of a text, by form: exponents of time, operations, path and steps; writes benchmarks/results/cost-by-length.json.

    python benchmarks/cost_by_length.py [--lengths 512,1024,2048] [--repeats 3]

One block, forward and backward, on the CPU, as `saccade draw cost` draws it. The forms are measured in turns, `--repeats` times. An exponent is
the slope of the logarithms over all lengths: 1 where the cost doubles with the length, 2 where it becomes four times as large.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from saccade.experiments.pass_costs import exponent
from saccade.results import write_result
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
    found: dict[str, list[float]] = {}
    for _ in range(given.repeats):
        for form, mine in measure(FORMS, given.lengths).items():
            for what, values in mine.items():
                if len(values) > 1 and what != "memory":
                    found.setdefault(f"{form}.exponent_{what}", []).append(
                        exponent(values, set(values))
                    )
                if what in ("path", "steps") and values:
                    found.setdefault(f"{form}.{what}_{max(PATH_LENGTHS)}", []).append(
                        float(values[max(values)])
                    )
    write_result(
        given.result,
        found,
        f"one block of width 64, {given.lengths} tokens",
        list(range(given.repeats)),
    )
    print(f"written: {Path('benchmarks/results') / given.result}.json")


if __name__ == "__main__":
    main()
