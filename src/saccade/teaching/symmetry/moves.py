"""Transforms of an input, and the outputs that must then agree. B batch, N positions, D width.

A layer f is equivariant when moving its input moves its output alike, f(g x) = g f(x); what makes one vector of a whole input is
invariant when moving changes nothing, f(g x) = f(x).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from ...core.masks import Mask, matrix
from ...layers.meshes import Mesh

TOLERANCE = 1e-9  # the largest difference, as a share of the largest output, at which a symmetry holds in float64
BATCH, LINE, SIDE = 2, 12, 4  # rows, positions in a line, sides of a square grid
CANVAS, CONTENT = 90, 24  # positions of a line in which a shorter text lies somewhere
CANVAS_2D, CONTENT_2D = 11, 5  # the sides of the same on a grid
KINDS = 3  # of edges, the first being that of a node to itself


@dataclass(frozen=True)
class Field:
    """An input: vectors (or tokens) at N positions, which are a line or a grid read row by row; edges between them, and which are there."""

    x: Tensor  # B N …
    grid: tuple[int, int]
    edges: Tensor  # N N: kinds of edges, 0 for none
    there: Tensor | None = None  # N: false where there is nothing; None for everything
    masked: bool = False  # only along edges may positions see each other
    mesh: Mesh | None = None  # for a line's positions as vertices

    @property
    def size(self) -> int:
        return self.x.shape[1]

    def mask(self) -> Mask | None:
        """The mask that the input implies."""
        if self.masked:
            return matrix(self.edges.gt(0))
        return None if self.there is None else matrix(self.there.expand(self.size, -1))

    def at(self, order: Tensor) -> Field:
        """The input whose position n is this one's position order[n]; edges stay where they are."""
        return replace(self, x=self.x[:, order])


class Move(NamedTuple):
    """Two inputs, and the positions of each whose outputs must be equal."""

    before: Field
    after: Field
    of_before: Tensor
    of_after: Tensor


Make = Callable[[int], Tensor]  # an input at N positions: B N …
# of inputs, for what pools or not, the move of this number
Draw = Callable[[Make, torch.Generator, bool, int], Move]


class Symmetry(NamedTuple):
    """A group of moves: its name, what it does, and how one of them is drawn (for what makes one vector of all, or not)."""

    name: str
    what: str
    draw: Draw
    on_grid: bool = False  # moves a grid
    on_edges: bool = False  # moves edges too: for what reads them
    on_mesh: bool = False  # turns the frames of a mesh


def random_edges(size: int, generator: torch.Generator) -> Tensor:
    """Kinds of edges of a graph without directions, in which each node is its own neighbor: 0 for none, 1 for itself, then others."""
    kinds = torch.randint(2, KINDS + 1, (size, size), generator=generator)
    upper = torch.where(torch.rand(size, size, generator=generator) < 0.4, kinds, 0).triu(1)
    return upper + upper.T + torch.eye(size, dtype=torch.long)


def dented_icosahedron(generator: torch.Generator) -> Mesh:
    """A closed mesh of twelve vertices, none of which is like another."""
    golden = (1 + 5**0.5) / 2
    signs = [(a, b * golden) for a in (-1, 1) for b in (-1, 1)]
    corner = [point for a, b in signs for point in ((0, a, b), (a, b, 0), (b, 0, a))]
    points = torch.tensor(corner, dtype=torch.float64)
    near = torch.cdist(points, points).sub(2).abs().lt(1e-9)
    corners = torch.combinations(torch.arange(LINE), 3)
    faces = corners[near[corners[:, [0, 1, 2]], corners[:, [1, 2, 0]]].all(1)]
    a, b, c = points[faces].unbind(1)
    outward = (torch.linalg.cross(b - a, c - a) * a).sum(1) > 0
    faces = torch.where(outward.unsqueeze(1), faces, faces[:, [0, 2, 1]])
    dents = torch.rand(points.shape, generator=generator, dtype=torch.float64)
    return Mesh.from_faces(points + 0.3 * dents, faces)


def field(make: Make, grid: tuple[int, int], generator: torch.Generator) -> Field:
    size = grid[0] * grid[1]
    edges = random_edges(size, generator)
    mesh = dented_icosahedron(generator) if grid == (1, LINE) else None
    return Field(make(size), grid, edges, mesh=mesh)


def reorder(
    choose: Callable[[Tensor, torch.Generator], Tensor], grid: tuple[int, int] = (1, LINE)
) -> Draw:
    """A move by another order of the positions, which `choose` makes of their numbers on the grid."""

    def draw(make: Make, generator: torch.Generator, pooled: bool, number: int) -> Move:
        before = field(make, grid, generator)
        order = choose(torch.arange(before.size).view(grid), generator).flatten()
        return Move(before, before.at(order), order, torch.arange(before.size))

    return draw


def relabel(make: Make, generator: torch.Generator, pooled: bool, number: int) -> Move:
    """(X, A) → (PX, PAPᵀ)."""
    before = replace(field(make, (1, LINE), generator), masked=True)
    order = torch.randperm(LINE, generator=generator)
    assert before.mesh is not None
    after = replace(
        before.at(order), edges=before.edges[order][:, order], mesh=before.mesh.relabeled(order)
    )
    return Move(before, after, order, torch.arange(LINE))


def regauge(make: Make, generator: torch.Generator, pooled: bool, number: int) -> Move:
    """The frame of every vertex turned by an angle of its own."""
    before, every = field(make, (1, LINE), generator), torch.arange(LINE)
    assert before.mesh is not None
    angles = 6.3 * torch.rand(LINE, generator=generator, dtype=torch.float64)
    return Move(before, replace(before, mesh=before.mesh.with_frames(angles)), every, every)


def warp(make: Make, generator: torch.Generator, pooled: bool, number: int) -> Move:
    """Every position twice, then three times."""
    before = field(make, (1, LINE), generator)
    order = torch.arange(LINE).repeat_interleave(2 + number)
    after = Field(before.x[:, order], (1, len(order)), before.edges[order][:, order])
    return Move(before, after, order, torch.arange(len(order)))


def shift_content(side: tuple[int, int], content: tuple[int, int], *steps: tuple[int, int]) -> Draw:
    """A short text, or a small picture, at two places of a large one in which nothing else is, some steps down and across from each other."""

    def draw(make: Make, generator: torch.Generator, pooled: bool, number: int) -> Move:
        size, numbers = side[0] * side[1], torch.arange(side[0] * side[1]).view(side)
        inside, back = make(content[0] * content[1]), make(1)
        edges = random_edges(inside.shape[1], generator)

        def put(corner: list[int]) -> tuple[Field, Tensor]:
            down, across = (slice(a, a + b) for a, b in zip(corner, content, strict=True))
            at = numbers[down, across].flatten()
            x = back.expand(-1, size, *back.shape[2:]).clone()
            wide, there = torch.eye(size, dtype=torch.long), torch.zeros(size)
            x[:, at], there[at] = inside, 1.0
            wide[at.unsqueeze(1), at] = edges
            return Field(x, side, wide, there.bool()), at

        room = [whole - part for whole, part in zip(side, content, strict=True)]
        # what convolves must not reach the ends; a pool is moved from end to end
        start = [0 if pooled else free // 3 for free in room]
        end = room if pooled else [at + by for at, by in zip(start, steps[number], strict=True)]
        (before, of_before), (after, of_after) = put(start), put(end)
        return Move(before, after, of_before, of_after)

    return draw


def roll(numbers: Tensor, generator: torch.Generator) -> Tensor:
    """A shift on a ring, by any but a whole turn."""
    return numbers.roll(int(torch.randint(1, numbers.shape[1], (), generator=generator)), 1)


SQUARE, CANVAS_GRID, CONTENT_GRID = (SIDE,) * 2, (CANVAS_2D,) * 2, (CONTENT_2D,) * 2
SYMMETRIES = (
    Symmetry("permutation", "positions in any other order", reorder(lambda n, g: n.flatten()[torch.randperm(n.numel(), generator=g)])),
    Symmetry("relabeling", "a graph's nodes in any other order, and its edges with them: F(PX, PAPᵀ) = P F(X, A)", relabel, on_edges=True),
    Symmetry("ring", "a cyclic shift", reorder(roll)),
    Symmetry("shift", "a short text moved within a long empty line", shift_content((1, CANVAS), (1, CONTENT), (0, 1), (0, 21))),
    Symmetry("reflection", "positions in reverse order", reorder(lambda n, g: n.flip(1))),
    Symmetry("time warp", "every position repeated two or three times", warp),
    Symmetry("2-D shift", "a small picture moved within a large grid", shift_content(CANVAS_GRID, CONTENT_GRID, (0, 1), (1, 0)), on_grid=True),
    Symmetry("rotation", "a quarter turn of a square grid", reorder(lambda n, g: n.rot90(), SQUARE), on_grid=True),
    Symmetry("2-D reflection", "a square grid mirrored", reorder(lambda n, g: n.flip(1), SQUARE), on_grid=True),
    Symmetry("gauge", "each vertex frame of a mesh turned by its own angle; outputs as numbers stay", regauge, on_mesh=True),
)  # fmt: skip
