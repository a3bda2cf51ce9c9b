"""Group convolutions: the sum over orientations by loops, the regular representation exactly, and a CNN whose label no quarter turn changes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from saccade.layers.groups import FieldNorm, GroupConvolution, act, compose, table
from saccade.models import ImageEncoder
from saccade.models.builder import Builder
from support import error_of

MEMBERS = {entry.name: entry.make for entry in table}


def matrix(element: tuple[int, int]) -> Tensor:
    """The element as a 2 × 2 matrix of whole numbers: a turn, behind a mirroring of the columns or none."""
    turn, mirror = torch.tensor([[0, -1], [1, 0]]), torch.tensor([[-1, 0], [0, 1]])
    return torch.linalg.matrix_power(turn, element[0]) @ torch.linalg.matrix_power(
        mirror, element[1]
    )


def moved_by_loops(element: tuple[int, int], x: Tensor) -> Tensor:
    """(g x)(p) = x(g⁻¹ p) number by number, around the middle of a square whose sides are odd."""
    found, middle = torch.zeros_like(x), x.shape[-1] // 2
    for row in range(x.shape[-1]):
        for column in range(x.shape[-1]):
            # up and right as axes, so that counterclockwise is the turn's positive direction
            right, up = column - middle, middle - row
            to = matrix(element) @ torch.tensor([right, up])
            found[..., middle - int(to[1]), middle + int(to[0])] = x[..., row, column]
    return found


def convolved_by_loops(layer: Any, x: Tensor) -> Tensor:
    """y(g) = b + Σ_h x(h) ∗ g·W(g⁻¹ h) orientation by orientation, g⁻¹ h by products of matrices."""
    elements, (out, _, given) = layer.elements, layer.weight.shape[:3]
    matrices = [matrix(one) for one in elements]
    fields = x.unflatten(1, (-1, given))
    found = []
    for o in range(out):
        for g in range(len(elements)):
            total = torch.full_like(fields[:, 0, 0], float(layer.bias[o]))
            for i in range(fields.shape[1]):
                for h in range(given):
                    inverse = torch.linalg.inv(matrices[g].double()).round().long()
                    source = (
                        0
                        if given == 1
                        else next(
                            n
                            for n, one in enumerate(matrices)
                            if torch.equal(inverse @ matrices[h], one)
                        )
                    )
                    kernel = moved_by_loops(elements[g], layer.weight[o, i, source])
                    total = (
                        total
                        + nn.functional.conv2d(
                            fields[:, i, h].unsqueeze(1), kernel[None, None], padding=1
                        )[:, 0]
                    )
            found.append(total)
    return torch.stack(found, 1)


def made(name: str, lifts: bool) -> Any:
    torch.manual_seed(3)
    layer = MEMBERS[name](3, 2, lifts).double()
    nn.init.normal_(layer.bias)
    return layer


ORACLES = {
    "p1": (1, convolved_by_loops),
    "p4": (4, convolved_by_loops),
    "p4m": (8, convolved_by_loops),
}


def test_every_group_has_its_oracle() -> None:
    assert set(ORACLES) == set(table.names())


@pytest.mark.parametrize("lifts", [True, False])
@pytest.mark.parametrize("name", ORACLES)
@torch.no_grad()
def test_a_group_convolution_is_the_sum_over_orientations(name: str, lifts: bool) -> None:
    count, by_loops = ORACLES[name]
    layer, x = (
        made(name, lifts),
        torch.randn(1, 3 if lifts else 3 * count, 4, 4, dtype=torch.float64),
    )
    assert len(layer.elements) == count
    torch.testing.assert_close(layer(x), by_loops(layer, x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ORACLES)
def test_elements_are_a_group_of_moves(name: str) -> None:
    elements, x = MEMBERS[name].elements, torch.randn(5, 5)
    for first in elements:
        torch.testing.assert_close(act(first, x), moved_by_loops(first, x))
        for second in elements:
            assert compose(first, second) in elements
            torch.testing.assert_close(act(compose(first, second), x), act(first, act(second, x)))


@pytest.mark.parametrize("name", ORACLES)
@torch.no_grad()
def test_a_moved_picture_gives_moved_maps_in_moved_orientations(name: str) -> None:
    """y'(g) = u · y(u⁻¹ g), the regular representation, exactly in float64, after a lifting and another layer with a norm between them."""
    lift, layer, norm = (
        made(name, True),
        MEMBERS[name](2, 2).double(),
        FieldNorm(2, len(MEMBERS[name].elements)).double().eval(),
    )
    nn.init.normal_(norm.norm.running_mean)  # type: ignore[arg-type]

    def run(x: Tensor) -> Tensor:
        return layer(torch.relu(norm(lift(x)))).unflatten(1, (2, -1))

    x = torch.randn(2, 3, 6, 6, dtype=torch.float64)
    before, elements = run(x), MEMBERS[name].elements
    for u in elements:
        after = run(act(u, x))
        for n, g in enumerate(elements):
            source = next(k for k, h in enumerate(elements) if compose(u, h) == g)
            torch.testing.assert_close(
                after[:, :, n], act(u, before[:, :, source]), rtol=0, atol=1e-12
            )


def test_a_plain_convolution_is_pytorchs() -> None:
    layer, theirs = made("p1", True), nn.Conv2d(3, 2, 3, padding=1).double()
    theirs.weight.data, theirs.bias.data = layer.weight.data.squeeze(2), layer.bias.data  # type: ignore[union-attr]
    x = torch.randn(2, 3, 5, 7, dtype=torch.float64)
    torch.testing.assert_close(layer(x), theirs(x))


@pytest.mark.parametrize(
    ("name", "turns", "mirrors"), [("p1", False, False), ("p4", True, False), ("p4m", True, True)]
)
@torch.no_grad()
def test_the_vectors_of_a_group_cnn_move_with_the_image(
    name: str, turns: bool, mirrors: bool
) -> None:
    torch.manual_seed(0)
    model = (
        Builder({"family": "group-cnn", "dim": 4, "depth": 3, "convolution": name})
        .make(ImageEncoder)
        .double()
        .eval()
    )
    x = torch.rand(2, 3, 16, 16, dtype=torch.float64)
    grid = model(x).unflatten(1, model.grid(16, 16))
    for moved, holds in (
        (lambda y, d: y.rot90(1, (d, d + 1)), turns),
        (lambda y, d: y.flip(d + 1), mirrors),
    ):
        error = (model(moved(x, 2)).unflatten(1, (4, 4)) - moved(grid, 1)).abs().max()
        assert bool(error < 1e-12) == holds
        mean = (model(moved(x, 2)).mean(1) - model(x).mean(1)).abs().max()
        assert bool(mean < 1e-12) == holds, "so a label does not change"


def test_an_even_width_is_refused() -> None:
    assert "expected an odd width of a group convolution, got 4; choose 3 or 5" in error_of(
        lambda: MEMBERS["p4"](1, 1, width=4)
    )
    assert issubclass(MEMBERS["p4"], GroupConvolution)
