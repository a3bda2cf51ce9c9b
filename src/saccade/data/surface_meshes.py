"""Closed surfaces of triangles with a vector at each vertex and labels of vertices: rows of JSONL."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from .lines import LineError

MAX_VERTICES = 200_000  # of one mesh
Point = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Surface:
    """Vertices in space and the triangles between them; at each vertex a vector, of which the part in the tangent plane counts, the angle by
    which its frame is turned (any, which must not matter), and a label if that is known."""

    vertices: tuple[Point, ...]
    faces: tuple[tuple[int, int, int], ...]
    vectors: tuple[Point, ...]
    frames: tuple[float, ...]
    labels: tuple[str | None, ...]
    line: int = 0

    words: ClassVar[tuple[str, ...]] = ()  # a vertex has none, as a node of a graph has
    edges: ClassVar[tuple[tuple[int, int, str], ...]] = ()  # those of the triangles have no kinds

    @property
    def source(self) -> tuple[Any, ...]:
        """What is read: all but the labels."""
        return self.vertices, self.faces, self.vectors, self.frames


def surface_of(number: int, entry: dict[str, Any], labels: tuple[str | None, ...]) -> Surface:
    """The mesh of a row, whose labels have been read."""
    vertices = points_of(entry, "vertices")
    vectors = points_of(entry, "vectors", len(vertices))
    frames: Any = entry.get("frames", [0.0] * len(vertices))
    if len(vertices) > MAX_VERTICES:
        what = f"{len(vertices):,} vertices, more than {MAX_VERTICES:,}; simplify the mesh"
        raise LineError("long line", what)
    is_list = isinstance(frames, list) and len(frames) == len(vertices)
    if not is_list or not all(map(is_number, frames)):
        what = (
            f'"frames" must be a list of {len(vertices)} angles, one for each vertex, or left out'
        )
        raise LineError("JSON", what)
    faces: Any = entry.get("faces")
    is_list = isinstance(faces, list) and bool(faces)
    if not is_list or not all(is_face(one, len(vertices)) for one in faces):
        what = f"three different vertices from 0 to {len(vertices) - 1}"
        raise LineError("JSON", f'"faces" must be a list of triangles, {what}')
    lonely = set(range(len(vertices))).difference(*faces)
    if lonely:
        what = f"vertex {min(lonely)} is in no face, so it has no tangent plane; leave it out"
        raise LineError("vertices", what)
    triangles, angles = tuple(map(tuple, faces)), tuple(map(float, frames))
    return Surface(vertices, triangles, vectors, angles, labels, number)


def points_of(entry: dict[str, Any], key: str, count: int = 0) -> tuple[Point, ...]:
    """The points under a key, as many as asked for."""
    found = entry.get(key)
    good = (
        isinstance(found, list)
        and found
        and all(isinstance(p, list) and len(p) == 3 and all(map(is_number, p)) for p in found)
    )
    if not good or (count and len(found) != count):  # type: ignore[arg-type]
        many = f" of {count}" if count else ""
        raise LineError("JSON", f'"{key}" must be a list{many} of [x, y, z], one for each vertex')
    return tuple((float(x), float(y), float(z)) for x, y, z in found)  # type: ignore[union-attr]


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_face(one: Any, count: int) -> bool:
    return (
        isinstance(one, list)
        and len(one) == 3 == len(set(map(str, one)))
        and all(type(v) is int and 0 <= v < count for v in one)
    )
