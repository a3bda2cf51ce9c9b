"""What the lectures ask of positions: every kind against closed forms, and own kinds that lack one thing each."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from saccade.core import positions
from saccade.layers import token_inputs
from saccade.teaching.draw import desiderata
from saccade.teaching.draw.desiderata import measure
from support import error_of

LENGTH = 24
# unique, the same at every length, by the distance alone, for longer texts, bounded
WANTED = {
    "none": (False, True, True, True, True),
    "sinusoidal": (True, True, True, True, True),
    "learned": (True, True, False, False, None),
    "depth": (True, False, False, True, True),  # a word's depth is that of its sentence's tree
    "rotary": (True, True, True, True, True),
    "added": (True, True, False, True, True),  # (q + p_i)·(k + p_j) has p_i·k and q·p_j too
    "alibi": (True, True, True, True, False),
    "t5": (True, True, True, True, True),
    "shaw": (True, True, True, True, True),
    "syntax": (True, False, False, True, True),
    "edges": (True, False, False, True, True),
    "xl": (True, True, True, True, True),
}


def test_every_kind_is_measured() -> None:
    assert set(desiderata.kinds()) == set(token_inputs.table.names()) | set(positions.table.names())


@pytest.mark.parametrize("name", WANTED)
def test_what_each_kind_has(name: str) -> None:
    found = measure(desiderata.make(name, LENGTH), LENGTH)
    said = [cell.split(" ")[0] for cell in found.cells()]
    words = {True: "yes", False: "no", None: "–"}
    assert said[:5] == [words[one] for one in WANTED[name]]
    assert said[5] == "yes"
    parameters = {
        "learned": LENGTH * 8,
        "depth": 8 * 8,
        "t5": 32,
        "shaw": 2 * 33 * 8,
        "syntax": 2 * 17 * 8,
        "edges": 9,
        "xl": 8 + 8 + 8 * 8,
    }
    assert found.learned == parameters.get(name, 0)


def test_distances_of_sinusoids_are_sums_of_cosines_of_the_distance() -> None:
    found = desiderata.pairs(desiderata.make("sinusoidal", LENGTH), LENGTH)
    for i in range(LENGTH):
        for j in range(LENGTH):
            square = sum(2 - 2 * math.cos((i - j) * 10000 ** (-2 * k / 8)) for k in range(4))
            assert float(found[i, j]) == pytest.approx(math.sqrt(max(square, 0)), abs=1e-5)
    nearest = min(
        max(abs(float(found[i, a] - found[i, b])) for i in range(LENGTH))
        for a in range(LENGTH)
        for b in range(a)
    )
    assert measure(desiderata.make("sinusoidal", LENGTH), LENGTH).nearest == pytest.approx(
        nearest, rel=1e-9
    )


def test_alibi_by_hand() -> None:
    """1 − |i − j| / 256 for one head: neighbors differ by a slope, and the farthest key is 65,535 away in the longest text."""
    found = measure(desiderata.make("alibi", LENGTH), LENGTH)
    assert found.nearest == pytest.approx(1 / 256, rel=1e-5)
    assert found.growth == pytest.approx((65_535 / 256 - 1) / (8_191 / 256 - 1), rel=1e-4)


def test_added_positions_by_hand() -> None:
    at = [
        [wave(t * 10000 ** (-2 * k / 8)) for k in range(4) for wave in (math.sin, math.cos)]
        for t in range(LENGTH)
    ]
    wanted = [
        [sum((1 + a) * (1 + b) for a, b in zip(p, q, strict=True)) / 8 for q in at] for p in at
    ]
    np.testing.assert_allclose(
        desiderata.pairs(desiderata.make("added", LENGTH), LENGTH), wanted, atol=1e-5
    )
    spread = max(
        max(wanted[i][i + n] for i in range(LENGTH - n))
        - min(wanted[i][i + n] for i in range(LENGTH - n))
        for n in range(LENGTH)
    )
    spread /= max(map(max, wanted)) - min(map(min, wanted))
    assert measure(desiderata.make("added", LENGTH), LENGTH).spread == pytest.approx(
        spread, abs=1e-5
    )


def test_the_balanced_tree_by_hand() -> None:
    assert desiderata.tree(3) == [[1, -1, 1]]
    assert desiderata.tree(7) == [[1, 3, 1, -1, 5, 3, 5]]
    steps = desiderata.tree_distances(desiderata.tree(7))[0]
    part = desiderata.make("syntax", 7)
    found = desiderata.pairs(part, 7)
    assert steps[0].tolist() == [0, 1, 2, 2, 4, 3, 4]
    same = [[float(part.keys.detach()[steps[i, j]].sum()) for j in range(7)] for i in range(7)]
    np.testing.assert_allclose(found, 1 + np.array(same), atol=1e-5)


class Own(token_inputs.PositionEmbedding):
    """[t, t, …] / 100, changed by each case."""

    def vectors_at(self, at: Tensor) -> Tensor:
        return self.change(at.double()).unsqueeze(-1).expand(*at.shape, self.dim) / 100

    def change(self, t: Tensor) -> Tensor:
        return t


class Clock(Own):
    def change(self, t: Tensor) -> Tensor:
        return t % 12


class Share(Own):
    def change(self, t: Tensor) -> Tensor:
        return 100 * t / len(t)


class Noise(Own):
    def change(self, t: Tensor) -> Tensor:
        return torch.sin(t) + torch.rand(len(t), dtype=torch.float64)


class Bounded(Own):
    def change(self, t: Tensor) -> Tensor:
        return torch.tanh(t / 100)


@pytest.mark.parametrize(
    ("own", "lacking"),
    [
        (Own, "bounded"),
        (Clock, "unique"),
        (Share, "same"),
        (Noise, "deterministic"),
        (Bounded, "distance"),
    ],
)
def test_a_kind_that_lacks_one_thing_is_found_out(own: type[Own], lacking: str) -> None:
    cells = measure(own(8), LENGTH).cells()
    said = dict(
        zip(
            ("unique", "same", "distance", "longer", "bounded", "deterministic"),
            cells,
            strict=False,
        )
    )
    assert said[lacking].startswith("no")
    assert {name for name, one in said.items() if one.startswith("no")} <= {
        lacking,
        "same",
        "distance",
    }
    if own is Own:
        assert measure(own(8), LENGTH).growth == pytest.approx(65_535 / 8_191)


def test_what_cannot_be_measured_is_refused() -> None:
    assert "did you mean 'rotary'" in error_of(lambda: desiderata.draw(["rotari"]))
    assert "expected a length from 8 to 256" in error_of(lambda: desiderata.draw([], length=4))
    assert "an even dim from 4" in error_of(lambda: desiderata.draw([], dim=5))
