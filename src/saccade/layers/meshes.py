"""Layers on meshes that do not depend on how each vertex chose its frame. B batch, N vertices, E directed edges q → p, C channels.

A vertex has a frame, two axes in its tangent plane, chosen arbitrarily: its gauge. A field of order n is one complex number per channel and
vertex; when a frame is turned by g, the number is multiplied by e^(−ing): order 0 are scalars, order 1 tangent vectors.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple, Self

import torch
from torch import Tensor, nn

from ..errors import SaccadeError
from ..registry import Table
from ..settings import Range

table: Table[type[nn.Module]] = Table("mesh-layers", "mesh layer", facts=("dim",))
Orders = Annotated[int, Range(1, 16)]
MAX_EDGES = 10_000_000  # edges of a mesh


class Mesh(NamedTuple):
    """What a layer reads of a mesh, intrinsic to its surface: edges, the angle at which each arrives, and how frames differ along it."""

    vertices: int
    source: Tensor  # E: the vertex q that is read
    target: Tensor  # E: the vertex p that reads
    angle: Tensor  # E: the direction from p to q, in the frame of p
    transport: Tensor  # E: by how much the frame of q is turned against that of p, after parallel transport to p

    @classmethod
    def from_faces(cls, vertices: Tensor, faces: Tensor) -> Self:
        """Of triangles (F 3) between points in space (N 3); the first axis of a frame is along the edge to some neighbor."""
        check_faces(vertices, faces)
        target, source = edges_of(faces).unbind(1)
        normal, axis = frames_of(vertices, faces)
        angle = angle_in(vertices[source] - vertices[target], axis[target], normal[target])
        carried = align(axis[source], normal[source], normal[target])
        return cls(
            len(vertices), source, target, angle, angle_in(carried, axis[target], normal[target])
        )

    def with_frames(self, angles: Tensor) -> Mesh:
        """The same mesh, each frame turned by its own angle (N): another gauge."""
        other = self.transport + angles[self.source] - angles[self.target]
        return self._replace(angle=self.angle - angles[self.target], transport=other)

    def relabeled(self, order: Tensor) -> Mesh:
        """The mesh whose vertex n is this one's vertex order[n]."""
        back = order.argsort()
        return self._replace(source=back[self.source], target=back[self.target])


def edges_of(faces: Tensor) -> Tensor:
    """The edges of triangles in both directions, E 2."""
    pairs = torch.cat([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
    return torch.cat([pairs, pairs.flip(1)]).unique(dim=0)


def frames_of(vertices: Tensor, faces: Tensor) -> tuple[Tensor, Tensor]:
    """Each vertex's normal and the first axis of its frame, which is along the edge to some neighbor, N 3."""
    target, source = edges_of(faces).unbind(1)
    corners = vertices[faces]
    area = torch.linalg.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    normal = torch.zeros_like(vertices).index_add_(0, faces.flatten(), area.repeat_interleave(3, 0))
    normal = nn.functional.normalize(normal, dim=1)
    first = torch.zeros(len(vertices), dtype=torch.long, device=faces.device).scatter_(
        0, target.flip(0), source.flip(0)
    )
    return normal, flatten_onto(vertices[first] - vertices, normal)


def components(vectors: Tensor, vertices: Tensor, faces: Tensor, angles: Tensor) -> Tensor:
    """Vectors in space (N 3) as pairs of numbers (N 2) in the frames of `from_faces`, each turned by its angle (N)."""
    normal, axis = frames_of(vertices, faces)
    across = torch.linalg.cross(normal, axis)
    x, y, c, s = (vectors * axis).sum(1), (vectors * across).sum(1), angles.cos(), angles.sin()
    return torch.stack([x * c + y * s, y * c - x * s], 1)


def check_faces(vertices: Tensor, faces: Tensor) -> None:
    if (
        vertices.dim() != 2
        or vertices.shape[1] != 3
        or faces.dim() != 2
        or faces.shape[1] != 3
        or not len(faces)
    ):
        got = f"got {tuple(vertices.shape)} and {tuple(faces.shape)}"
        raise SaccadeError(
            f"expected vertices (N × 3) and triangles (F × 3), {got}; pass points in space and three numbers per face",
            code="shapes-do-not-fit",
        )
    if len(faces) > MAX_EDGES // 6:
        raise SaccadeError(
            f"expected at most {MAX_EDGES // 6:,} triangles, got {len(faces):,}; simplify the mesh",
            code="too-many-triangles",
        )
    used = torch.zeros(len(vertices), dtype=torch.bool)
    if int(faces.min()) < 0 or int(faces.max()) >= len(vertices):
        raise SaccadeError(
            f"expected numbers of vertices from 0 to {len(vertices) - 1} in faces; count them from 0",
            code="index-out-of-range",
        )
    used[faces.flatten()] = True
    if not used.all():
        raise SaccadeError(
            f"vertex {int((~used).nonzero()[0])} is in no face, so it has no tangent plane; leave it out",
            code="vertex-without-face",
        )


def flatten_onto(x: Tensor, normal: Tensor) -> Tensor:
    """Unit vectors along x in the planes with these normals."""
    return nn.functional.normalize(x - (x * normal).sum(1, keepdim=True) * normal, dim=1)


def angle_in(x: Tensor, axis: Tensor, normal: Tensor) -> Tensor:
    """The angle of x in a tangent plane, counterclockwise from its axis."""
    return torch.atan2((x * torch.linalg.cross(normal, axis)).sum(1), (x * axis).sum(1))


def align(x: Tensor, before: Tensor, after: Tensor) -> Tensor:
    """x turned as the shortest turn brings one unit normal to another: parallel transport over an edge (de Haan et al. 2021)."""
    around = torch.linalg.cross(before, after)
    cosine = (before * after).sum(1, keepdim=True)
    inside = torch.linalg.cross(around, x)
    return x + inside + torch.linalg.cross(around, inside) / (1 + cosine).clamp_min(1e-12)


def weight(*shape: int) -> nn.Parameter:
    """Complex numbers as pairs of real ones, so that files and optimizers need to know nothing else."""
    return nn.Parameter(torch.randn(*shape, 2) / (2 * shape[-1] ** 0.5))


@table.add("mesh-convolution", paper="de Haan et al. 2021; Cohen et al. 2019")
class MeshConvolution(nn.Module):
    """y_m(p) = Σ_n V_n x_n(p) [n = m] + mean_q Σ_n (W e^(i(m−n)θ) x'_n + U e^(i(m+n)θ) x̄'_n), x' = x(q) e^(inτ) carried to p."""

    def __init__(self, dim: int, orders: Orders = 3) -> None:
        """`dim` channels of each order from 0 to `orders` − 1."""
        super().__init__()
        self.orders = orders
        self.own = weight(orders, dim, dim)
        self.direct = weight(orders, orders, dim, dim)
        self.mirrored = weight(orders, orders, dim, dim)

    def forward(self, x: Tensor, mesh: Mesh) -> Tensor:
        """B N orders C complex → the same; order 0 is real."""
        order = torch.arange(self.orders, device=x.device)
        carry = wave(mesh.transport, order).mT  # E 1 n
        turns = wave(mesh.angle, torch.arange(1 - self.orders, 2 * self.orders, device=x.device))[
            ..., 0
        ]
        # E m n
        difference, total = (
            turns[:, (order[:, None] + sign * order) + self.orders - 1] for sign in (-1, 1)
        )
        direct, mirrored = (
            torch.view_as_complex(part).to(x.dtype) for part in (self.direct, self.mirrored)
        )
        messages = along_edges(
            difference * carry, torch.einsum("mnoc,bvnc->bvmno", direct, x), mesh
        )
        messages = messages + along_edges(
            total * carry.conj(), torch.einsum("mnoc,bvnc->bvmno", mirrored, x.conj()), mesh
        )
        degree = torch.zeros(mesh.vertices, device=x.device, dtype=mesh.angle.dtype).index_add_(
            0, mesh.target, torch.ones_like(mesh.angle)
        )
        gathered = (
            torch.zeros_like(x).index_add_(1, mesh.target, messages)
            / degree.clamp_min(1)[:, None, None]
        )
        mixed = gathered + torch.einsum(
            "noc,bvnc->bvno", torch.view_as_complex(self.own).to(x.dtype), x
        )
        return torch.cat([mixed[:, :, :1].real + 0j, mixed[:, :, 1:]], 2)


def along_edges(phases: Tensor, applied: Tensor, mesh: Mesh) -> Tensor:
    """Σ_n of what the source of each edge gives (B N m n C), times its phase (E m n): B E m C."""
    return (phases.unsqueeze(-1) * applied.index_select(1, mesh.source)).sum(3)


@table.add("mesh-gate", paper="Worrall et al. 2017 (Harmonic Networks)")
class MeshGate(nn.Module):
    """x_n · σ(a |x_n| + b), and relu(x_0 + b) for scalars: only lengths are changed, which no choice of frames changes."""

    def __init__(self, dim: int, orders: Orders = 3) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(orders, dim))
        self.bias = nn.Parameter(torch.zeros(orders, dim))

    def forward(self, x: Tensor, mesh: Mesh) -> Tensor:
        scalars = torch.relu(x[:, :, :1].real + self.bias[:1]) + 0j
        gate = torch.sigmoid(self.gain[1:] * x[:, :, 1:].abs() + self.bias[1:])
        return torch.cat([scalars, x[:, :, 1:] * gate], 2)


def wave(angle: Tensor, order: Tensor) -> Tensor:
    """e^(i n angle) for each order n: E n 1."""
    return torch.polar(
        torch.ones((), dtype=angle.dtype, device=angle.device), angle[:, None] * order
    )[..., None]
