"""Windows of Luong's local attention against their formulas by plain loops."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from saccade.core import Mechanism, masks, record
from saccade.core.scores import Dot
from saccade.layers.decoder_windows import Predicted, Window, table
from saccade.layers.multihead_attention import Reader
from saccade.settings import choose

DIM, KEYS, LENGTHS = 4, 9, torch.tensor([9, 6, 1])


def monotonic(part: Window, h: Tensor, t: int, size: int) -> list[float]:
    center = min(t, size - 1)
    return [1.0 if abs(s - center) <= part.reach else 0.0 for s in range(size)]


def predicted(part: Window, h: Tensor, t: int, size: int) -> list[float]:
    assert isinstance(part, Predicted)
    p = size / (1 + math.exp(-float(part.v.weight[0] @ torch.tanh(part.w.weight @ h))))
    sigma = part.reach / 2
    return [
        math.exp(-((s - p) ** 2) / (2 * sigma**2)) if abs(s - p) <= part.reach else 0.0
        for s in range(size)
    ]


ORACLES: dict[str, Callable[[Window, Tensor, int, int], list[float]]] = {
    "everywhere": lambda part, h, t, size: [1.0] * size,
    "monotonic": monotonic,
    "predicted": predicted,
}


def reader(name: str) -> Reader:
    window = choose(table, {"name": name, **table.entry(name).example}, "window")(dim=DIM)
    return Reader(DIM, DIM, Mechanism(Dot()), window).double()


def test_every_window_has_its_formula() -> None:
    assert set(ORACLES) == set(table.names())


@pytest.mark.parametrize("name", table.names())
@torch.no_grad()
def test_a_window_is_its_formula_and_a_record_shows_the_weights_that_were_used(name: str) -> None:
    one, query, memory = (
        reader(name),
        torch.randn(3, 5, DIM).double(),
        torch.randn(3, KEYS, DIM).double(),
    )
    ready, there = one.prepare(memory), masks.padding(LENGTHS).prepare(3, 1, 1, KEYS)
    with record(one) as seen:
        found = one(query, ready, there)
    weights = seen["attention"].weights()[:, 0]
    for b, size in enumerate(LENGTHS.tolist()):
        for t in range(5):
            count = ORACLES[name](one.window, query[b, t], t, size)
            fits = [
                math.exp(float(query[b, t] @ memory[b, s])) if count[s] else 0.0
                for s in range(size)
            ]
            expected = [c * fit / (sum(fits) or 1.0) for c, fit in zip(count, fits, strict=True)]
            torch.testing.assert_close(weights[b, t, :size].tolist(), expected)
            assert not weights[b, t, size:].any()
    torch.testing.assert_close(found, weights @ memory)
    torch.testing.assert_close(
        seen["attention"].weights([1, 3]), seen["attention"].weights()[:, :, [1, 3]]
    )
    later = one(query[:, 2:3], ready, there, first=2)
    torch.testing.assert_close(later, found[:, 2:3])


def test_where_to_look_is_learned() -> None:
    one, query = reader("predicted"), torch.randn(3, 5, DIM).double()
    memory = torch.randn(3, KEYS, DIM).double()
    one(query, one.prepare(memory), masks.padding(LENGTHS).prepare(3, 1, 1, KEYS)).sum().backward()
    assert isinstance(one.window, Predicted)
    assert one.window.w.weight.grad.any()
    assert one.window.v.weight.grad.any()
