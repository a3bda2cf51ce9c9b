"""Group convolutions of images: filters in every orientation of a group. B batch, F fields, G orientations, R × C positions, K width.

A feature map has one channel per field and orientation, B (F·G) R C. When the picture is moved by u, its maps move with it and their
orientations follow: y'(g) = u · y(u⁻¹ g), the regular representation.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import SaccadeError
from ..registry import Table
from ..settings import Range
from . import norms

table: Table[type[GroupConvolution]] = Table(
    "group-convolutions", "group convolution", facts=("dim_in", "dim_out", "lifts")
)
Element = tuple[int, int]  # quarter turns counterclockwise, after a mirroring or none


def act(element: Element, x: Tensor) -> Tensor:
    """A picture or a filter (… K K), moved by an element of the group."""
    turns, mirrored = element
    return (x.flip(-1) if mirrored else x).rot90(turns, (-2, -1))


def compose(first: Element, second: Element) -> Element:
    """first · second: `second` is done before `first`; behind a mirroring, turns go the other way."""
    return (first[0] + (-second[0] if first[1] else second[0])) % 4, first[1] ^ second[1]


class GroupConvolution(nn.Module):
    """y(g) = b + Σ_h x(h) ∗ g·W(g⁻¹ h), for each orientation g, with zeros beyond the edges; where it `lifts`, y(g) = b + x ∗ g·W."""

    elements: ClassVar[tuple[Element, ...]]

    def __init__(
        self,
        dim_in: int,
        dim_out: int,
        lifts: bool = False,
        width: Annotated[int, Range(1, 31)] = 3,
    ) -> None:
        """From `dim_in` fields (channels of a picture, where it lifts) to `dim_out` fields."""
        super().__init__()
        if width % 2 == 0:
            raise SaccadeError(
                f"expected an odd width of a group convolution, got {width}; choose {width - 1} or {width + 1}",
                code="width-not-odd",
            )
        count = len(self.elements)
        self.weight = nn.Parameter(
            torch.empty(dim_out, dim_in, 1 if lifts else count, width, width)
        )
        self.bias = nn.Parameter(torch.zeros(dim_out))
        nn.init.kaiming_normal_(self.weight.view(dim_out, -1, width, width), nonlinearity="relu")
        inverse = {
            g: next(h for h in self.elements if compose(g, h) == (0, 0)) for g in self.elements
        }
        self.sources = [
            [self.elements.index(compose(inverse[g], h)) for h in self.elements]
            for g in self.elements
        ]

    def kernel(self) -> Tensor:
        """All filters in all orientations: (F'·G) (F·G) K K."""
        lifts = self.weight.shape[2] == 1
        seen = [
            act(g, self.weight if lifts else self.weight[:, :, order])
            for g, order in zip(self.elements, self.sources, strict=True)
        ]
        return torch.stack(seen, 1).flatten(2, 3).flatten(0, 1)

    def forward(self, x: Tensor) -> Tensor:
        bias = self.bias.repeat_interleave(len(self.elements))
        return F.conv2d(x, self.kernel(), bias, padding=self.weight.shape[-1] // 2)

    def pool(self, x: Tensor) -> Tensor:
        """The largest of all orientations, B (F·G) R C → B F R C: what no longer knows how a picture was turned."""
        return x.unflatten(1, (-1, len(self.elements))).amax(2)


@table.add("p1")
class Translations(GroupConvolution):
    """x ∗ W: a plain convolution, whose one symmetry is the shift; a control."""

    elements = ((0, 0),)


@table.add("p4", paper="Cohen & Welling 2016 (G-CNN)")
class QuarterTurns(GroupConvolution):
    """y(g) = Σ_h x(h) ∗ g·W(g⁻¹ h) over the four quarter turns: a turned picture gives turned maps."""

    elements = tuple((turns, 0) for turns in range(4))


@table.add("p4m", paper="Cohen & Welling 2016 (G-CNN)")
class TurnsAndMirrors(GroupConvolution):
    """y(g) = Σ_h x(h) ∗ g·W(g⁻¹ h) over quarter turns and mirrorings, eight orientations."""

    elements = tuple((turns, mirrored) for mirrored in (0, 1) for turns in range(4))


class FieldNorm(nn.Module):
    """Batch norm of feature maps with one mean, variance, gain and bias per field, the same for its G orientations."""

    def __init__(self, dim: int, orientations: int) -> None:
        super().__init__()
        self.norm, self.orientations = norms.BatchNorm(dim), orientations

    def forward(self, x: Tensor) -> Tensor:
        fields = x.unflatten(1, (-1, self.orientations)).flatten(2, 3)  # B F (G·R) C
        normed: Tensor = self.norm(fields)
        return normed.unflatten(2, (self.orientations, -1)).flatten(1, 2)
