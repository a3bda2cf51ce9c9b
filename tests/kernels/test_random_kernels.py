"""Random mechanisms on the kernels of saccade's own, as in tests/fuzz/test_mechanisms.py, on a GPU or in Triton's interpreter."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from fuzz_helpers import Case, able, compare, draw_case, draw_parts, run_all, seeds

from saccade.core import Mechanism
from saccade.core.kernels import why_unavailable

COUNT = 24
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
runs = pytest.mark.skipif(
    why_unavailable(DEVICE) is not None,
    reason=f"the kernels do not run here: {why_unavailable(DEVICE)}",
)

# NumPy's in Triton's interpreter, of masked numbers
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")


def known(
    draw: random.Random, heads: int, wide: tuple[int, int, int]
) -> tuple[Mechanism, tuple[str, str, str]]:
    """Parts of which the kernels know at least the score and the normalizer."""
    while True:
        made, names = draw_parts(draw, heads, wide)
        if not set(names) & {"bilinear", "gat", "hard", "relu-sum", "xl", "added", "edges"}:
            return made, names


def kernels_of(case: Case) -> list[str]:
    return [name for name in able(case, case.grad) if name in ("triton", "short")]


def draw(seed: int) -> Case:
    """The first of a seed's cases that a kernel runs."""
    dtypes: Any = (torch.float32,) if DEVICE.type == "cpu" else (torch.float32, torch.bfloat16)
    for attempt in range(100):
        case = draw_case(
            seed + 100_000 * attempt,
            largest=40 if DEVICE.type == "cpu" else 520,
            dtypes=dtypes,
            parts=known,
        )
        case = case.to(case.q.dtype, DEVICE)
        if kernels_of(case):
            return case
    raise AssertionError("no kernel runs any of a hundred cases")


def check(case: Case) -> int:
    names = kernels_of(case)
    # whose threshold is found to a millionth of the largest score
    threshold = case.q.dtype == torch.float32 and case.names[1] in ("sparsemax", "entmax-1.5")
    compare(case, names, slack=10.0 if threshold else 1.0)
    return len(names)


@runs
@seeds(COUNT, chunk=24)
def test_random_mechanisms_on_the_kernels(cases: range) -> None:
    assert sum(run_all(cases, draw, check)) >= len(cases)
