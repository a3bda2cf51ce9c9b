"""Random mechanisms on the kernels of saccade's own, as in tests/fuzz/test_mechanisms.py, on a GPU or in Triton's interpreter."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from fuzz_helpers import Case, able, compare, draw_case, draw_parts, run_all, seeds

from saccade.core import Mechanism
from saccade.core.kernels import missing

COUNT = 24
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
runs = pytest.mark.skipif(missing(DEVICE) is not None, reason=f"the kernels do not run here: {missing(DEVICE)}")


def known(draw: random.Random, heads: int, wide: tuple[int, int, int]) -> tuple[Mechanism, tuple[str, str, str]]:
    """Parts of which the kernels know at least the score and the normalizer."""
    while True:
        made, names = draw_parts(draw, heads, wide)
        if not set(names) & {"bilinear", "gat", "hard", "relu-sum", "xl", "added", "edges"}:
            return made, names


def draw(seed: int) -> Case:
    dtypes: Any = (torch.float32,) if DEVICE.type == "cpu" else (torch.float32, torch.bfloat16)
    case = draw_case(seed, largest=40 if DEVICE.type == "cpu" else 520, dtypes=dtypes, parts=known)
    return case.to(case.q.dtype, DEVICE)


def check(case: Case) -> int:
    names = [name for name in able(case, case.grad) if name in ("triton", "short")]
    compare(case, names)
    return len(names)


@runs
@seeds(COUNT, chunk=24)
def test_random_mechanisms_on_the_kernels(cases: range) -> None:
    assert sum(run_all(cases, draw, check)) > len(cases) // 8
