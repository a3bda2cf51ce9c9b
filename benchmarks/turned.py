"""Pictures by quarter turns: a CNN, and one whose convolutions have a filter in every orientation, on upright and on turned pictures.

    python benchmarks/turned.py [--updates 200] [--result turned]

Both are trained on the same upright pictures (the recipe `shapes-p4`, with plain convolutions of twice as many channels beside it, so that
both have about the same number of parameters), and judged on the test pictures as they are and turned by one, two and three quarters.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch

from saccade import api, config
from saccade.results import write_result

SHAPES = {"p1": ["model.convolution=p1", "model.dim=16"], "p4": ["model.convolution=p4", "model.dim=8"]}


@torch.no_grad()
def accuracies(system: Any) -> list[float]:
    """In percent, for each number of quarter turns."""
    examples = system.read("test")
    images = torch.stack([one.image.pixels() for one in examples])
    wanted = torch.tensor([system.task.labels.index(one.label) for one in examples])
    model = system.model.eval()
    return [round(100 * float((model(images.rot90(n, (2, 3))).argmax(-1) == wanted).float().mean()), 2) for n in range(4)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--result", default="")
    given = parser.parse_args()
    figures: dict[str, Any] = {}
    for name, words in SHAPES.items():
        found, parameters = [], 0
        for seed in range(given.seeds):
            recipe = config.read_recipe("shapes-p4", [*words, f"training.updates={given.updates}", f"seed={seed}", "device=cpu"])
            with tempfile.TemporaryDirectory() as folder:
                system, _ = api.fit(recipe, Path(folder) / "run")
                found.append(accuracies(system))
                parameters = sum(one.numel() for one in system.model.parameters())
        figures[f"{name}.accuracy_upright"] = [one[0] for one in found]
        figures[f"{name}.accuracy_turned"] = [round(sum(one[1:]) / 3, 2) for one in found]
        figures[f"{name}.parameters"] = parameters
        print(name, figures)
    if given.result:
        write_result(given.result, figures, "shapes-p4", list(range(given.seeds)))


if __name__ == "__main__":
    main()
