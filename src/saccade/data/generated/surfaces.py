"""Bumpy spheres with a vector field: at each vertex, whether the field flows out of it, into it, or turns left or right around it.

The label is the largest of ∇·f, −∇·f, (∇×f)·n and −(∇×f)·n, computed in space from the triangles around the vertex: it depends neither on
how the mesh lies in space nor on the frames, which are drawn for each vertex.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..surface_meshes import Surface
from . import Dice, draw_parts

MAX_EXAMPLES = 10_000
LABELS = ("source", "sink", "left", "right")
BUMPS, WAVES = 6, 3
FINENESS = 2  # how often each triangle of an icosahedron is divided into four: 162 vertices
Array = NDArray[np.float64]


@functools.cache
def sphere() -> tuple[Array, NDArray[np.int64]]:
    """Points on the unit sphere and triangles between them: an icosahedron, divided."""
    golden = (1 + math.sqrt(5)) / 2
    points = [
        np.roll((0.0, a, b * golden), n) for n in range(3) for a in (-1.0, 1.0) for b in (-1.0, 1.0)
    ]
    corners = range(len(points))
    near: Callable[[int, int], bool] = lambda i, j: math.dist(points[i], points[j]) < 2.1
    faces = [
        (i, j, k)
        for i in corners
        for j in range(i)
        for k in range(j)
        if near(i, j) and near(j, k) and near(i, k)
    ]
    for _ in range(FINENESS):
        middles: dict[tuple[int, int], int] = {}
        divided = []
        for face in faces:
            halves = []
            for i, j in zip(face, (*face[1:], face[0]), strict=True):
                pair = (min(i, j), max(i, j))
                if pair not in middles:
                    middles[pair] = len(points)
                    points.append((points[i] + points[j]) / 2)
                halves.append(middles[pair])
            (a, b, c), (ab, bc, ca) = face, halves
            divided += [(a, ab, ca), (b, bc, ab), (c, ca, bc), (ab, bc, ca)]
        faces = divided
    x = np.array(points) / np.linalg.norm(points, axis=1, keepdims=True)
    around = np.array(faces)
    a, b, c = (x[around[:, n]] for n in range(3))
    inward = (np.cross(b - a, c - a) * a).sum(1) < 0
    around[inward] = around[inward][:, ::-1]
    return x, around


def draw_surface(dice: Dice, line: int) -> Surface:
    """A bumpy sphere that lies in any direction, and a field of a few waves on it."""
    points, faces = sphere()
    bumps = [(drawn(dice, 3), 0.6 * dice.random() - 0.25) for _ in range(BUMPS)]
    radius = 1 + np.sum(
        [height * np.exp(4 * (points @ (at / np.linalg.norm(at)) - 1)) for at, height in bumps], 0
    )
    x = radius[:, None] * points
    waves = [
        (drawn(dice, 3), 1.5 * drawn(dice, 3), 2 * math.pi * dice.random()) for _ in range(WAVES)
    ]
    field = np.sum([np.sin(x @ along + phase)[:, None] * way for way, along, phase in waves], 0)
    turn, _ = np.linalg.qr(drawn(dice, 9).reshape(3, 3))
    turn *= np.linalg.det(turn)  # a rotation, no mirroring
    x, field = x @ turn.T, field @ turn.T
    frames = [round(2 * math.pi * dice.random(), 6) for _ in x]
    labels = [LABELS[n] for n in amounts(x, faces, field).argmax(1)]
    return Surface(rows(x), rows(faces), rows(field), tuple(frames), tuple(labels), line)


def amounts(x: Array, faces: NDArray[np.int64], field: Array) -> Array:
    """∇·f, −∇·f, (∇×f)·n and −(∇×f)·n at each vertex: the mean over its triangles, weighed by their areas, on each of which the field is
    linear. Of the field, the part in the vertices' tangent planes counts."""
    a, b, c = (x[faces[:, n]] for n in range(3))
    double = np.cross(b - a, c - a)  # twice the area, along the normal
    size = np.linalg.norm(double, axis=1, keepdims=True)
    normal = np.zeros_like(x)
    for corner in faces.T:
        np.add.at(normal, corner, double)
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    field = field - (field * normal).sum(1, keepdims=True) * normal
    flow, turn = np.zeros((len(faces), 1)), np.zeros((len(faces), 1))
    for corner, opposite in zip(faces.T, (c - b, a - c, b - a), strict=True):
        # the gradient of what is 1 at this corner and 0 at the others
        rise = np.cross(double, opposite) / size**2
        flow += (field[corner] * rise).sum(1, keepdims=True)
        turn += (np.cross(rise, field[corner]) * double / size).sum(1, keepdims=True)
    total = np.zeros((len(x), 3))
    for corner in faces.T:
        np.add.at(total, corner, size * np.concatenate([flow, turn, np.ones_like(flow)], 1))
    flow_at, turn_at = (total[:, :2] / total[:, 2:]).T
    return np.stack([flow_at, -flow_at, turn_at, -turn_at], 1)


def drawn(dice: Dice, count: int) -> Array:
    """Numbers from the normal distribution (Box & Muller 1958)."""
    pairs = [
        (math.sqrt(-2 * math.log(1 - dice.random())), 2 * math.pi * dice.random())
        for _ in range(count)
    ]
    return np.array([length * math.cos(angle) for length, angle in pairs])


def rows(values: NDArray[Any]) -> tuple[Any, ...]:
    """Rounded, so that they are the same whatever the machine adds up first."""
    return tuple(map(tuple, values.round(6).tolist()))


def surfaces(
    train: int = 100, dev: int = 20, test: int = 50, seed: int = 0
) -> dict[str, list[Surface]]:
    """Bumpy spheres with a vector field, in frames drawn for each vertex; the label of a vertex is where the field around it flows."""
    draw = functools.partial(draw_surface, Dice(seed))
    return draw_parts("surfaces", MAX_EXAMPLES, (train, dev, test), draw, "source")
