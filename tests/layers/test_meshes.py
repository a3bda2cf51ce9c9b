"""Layers on meshes: the formula vertex by vertex, transport by turning vectors in space, and no dependence on frames, numbers or position."""

from __future__ import annotations

import cmath
from typing import Any

import pytest
import torch
from torch import Tensor

from saccade.layers.meshes import Mesh, MeshConvolution, MeshGate, align, table
from saccade.teaching.symmetry.moves import dented_icosahedron
from support import error_of

ORDERS, DIM = 3, 2


@pytest.fixture
def mesh() -> Mesh:
    return dented_icosahedron(torch.Generator().manual_seed(0))


def fields(count: int) -> Tensor:
    x = torch.randn(
        2, count, ORDERS, DIM, dtype=torch.complex128, generator=torch.Generator().manual_seed(1)
    )
    return torch.cat([x[:, :, :1].real + 0j, x[:, :, 1:]], 2)


def made(kind: Any) -> Any:
    torch.manual_seed(2)
    layer = kind(DIM, ORDERS).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(torch.randn_like(parameter))
    return layer


def convolved_by_loops(layer: MeshConvolution, x: Tensor, mesh: Mesh) -> Tensor:
    found = torch.zeros_like(x)
    own, direct, mirrored = (
        torch.view_as_complex(part) for part in (layer.own, layer.direct, layer.mirrored)
    )
    for b in range(len(x)):
        for p in range(mesh.vertices):
            edges = (mesh.target == p).nonzero().flatten().tolist()
            for m in range(ORDERS):
                total = own[m] @ x[b, p, m]
                for e in edges:
                    theta, tau = float(mesh.angle[e]), float(mesh.transport[e])
                    for n in range(ORDERS):
                        carried = x[b, mesh.source[e], n] * cmath.exp(1j * n * tau)
                        total = total + cmath.exp(1j * (m - n) * theta) * (
                            direct[m, n] @ carried
                        ) / len(edges)
                        total = total + cmath.exp(1j * (m + n) * theta) * (
                            mirrored[m, n] @ carried.conj()
                        ) / len(edges)
                found[b, p, m] = total.real if m == 0 else total
    return found


def gated_by_loops(layer: MeshGate, x: Tensor, mesh: Mesh) -> Tensor:
    found = torch.zeros_like(x)
    for at in torch.cartesian_prod(*(torch.arange(size) for size in x.shape)).tolist():
        b, p, n, c = at
        value, bias = complex(x[b, p, n, c]), float(layer.bias[n, c])
        length = float(layer.gain[n, c]) * abs(value) + bias
        found[b, p, n, c] = value / (1 + cmath.exp(-length)) if n else max(value.real + bias, 0.0)
    return found


ORACLES = {"mesh-convolution": convolved_by_loops, "mesh-gate": gated_by_loops}


def test_every_layer_has_its_oracle() -> None:
    assert set(ORACLES) == set(table.names())


@pytest.mark.parametrize("name", ORACLES)
@torch.no_grad()
def test_a_mesh_layer_is_its_formula(name: str, mesh: Mesh) -> None:
    layer, x = made(table[name]), fields(mesh.vertices)
    torch.testing.assert_close(layer(x, mesh), ORACLES[name](layer, x, mesh))


def in_other_frames(x: Tensor, angles: Tensor) -> Tensor:
    """What the same vectors are called where each frame was turned by an angle: x_n e^(−in angle)."""
    return x * torch.exp(-1j * angles[:, None] * torch.arange(ORDERS))[..., None]


@pytest.mark.parametrize("name", ORACLES)
@torch.no_grad()
def test_no_choice_of_frames_matters(name: str, mesh: Mesh) -> None:
    layer, x = made(table[name]), fields(mesh.vertices)
    for seed in range(3):
        angles = 10 * torch.rand(
            mesh.vertices, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
        )
        wanted = in_other_frames(layer(x, mesh), angles)
        torch.testing.assert_close(
            layer(in_other_frames(x, angles), mesh.with_frames(angles)), wanted, rtol=0, atol=1e-12
        )
        assert (layer(x, mesh.with_frames(angles)) - wanted).abs().max() > 0.1, (
            "it matters that the numbers follow"
        )


@torch.no_grad()
def test_without_transport_frames_would_matter(mesh: Mesh) -> None:
    layer, x = made(MeshConvolution), fields(mesh.vertices)
    angles = torch.linspace(0, 3, mesh.vertices, dtype=torch.float64)
    flat = mesh._replace(transport=torch.zeros_like(mesh.transport))
    other = mesh.with_frames(angles)._replace(transport=torch.zeros_like(mesh.transport))
    assert (
        layer(in_other_frames(x, angles), other) - in_other_frames(layer(x, flat), angles)
    ).abs().max() > 0.1


@torch.no_grad()
def test_neither_numbers_of_vertices_nor_the_position_in_space_matter() -> None:
    torch.manual_seed(5)
    points = torch.randn(5, 3, dtype=torch.float64)
    faces = torch.tensor([[0, 1, 2], [0, 2, 3], [0, 3, 4], [0, 4, 1]])
    mesh, layer, x = Mesh.from_faces(points, faces), made(MeshConvolution), fields(5)
    order = torch.randperm(5)
    torch.testing.assert_close(layer(x[:, order], mesh.relabeled(order)), layer(x, mesh)[:, order])
    turn = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64)).Q
    turn = turn * torch.linalg.det(turn)
    moved = Mesh.from_faces(points @ turn.T + 7, faces)
    torch.testing.assert_close(layer(x, moved), layer(x, mesh))


@torch.no_grad()
def test_on_a_plane_transport_keeps_vectors_as_they_are_in_space() -> None:
    """A vector field that is the same everywhere in a plane is called something else in each frame, and transport knows it."""
    points = torch.tensor(
        [[0, 0, 0], [2, 0, 0], [1, 2, 0], [-1, 1.5, 0], [-1, -1, 0]], dtype=torch.float64
    )
    mesh = Mesh.from_faces(points, torch.tensor([[0, 1, 2], [0, 2, 3], [0, 3, 4]]))
    first = {int(p): int(q) for p, q in zip(mesh.target.flip(0), mesh.source.flip(0), strict=True)}
    axes = [points[first[p]] - points[p] for p in range(5)]
    direction = [cmath.phase(complex(float(axis[0]), float(axis[1]))) for axis in axes]
    up = torch.tensor(
        [cmath.exp(1j * (cmath.pi / 2 - one)) for one in direction], dtype=torch.complex128
    )
    torch.testing.assert_close(up[mesh.source] * torch.exp(1j * mesh.transport), up[mesh.target])
    for e in range(len(mesh.source)):
        edge = points[mesh.source[e]] - points[mesh.target[e]]
        wanted = (
            cmath.phase(complex(float(edge[0]), float(edge[1]))) - direction[int(mesh.target[e])]
        )
        assert cmath.isclose(
            cmath.exp(1j * float(mesh.angle[e])), cmath.exp(1j * wanted), abs_tol=1e-12
        )


def test_aligning_is_the_shortest_turn_between_two_normals() -> None:
    before, after, x = torch.nn.functional.normalize(
        torch.randn(3, 6, 3, dtype=torch.float64), dim=2
    )
    found = align(x, before, after)
    axis = torch.linalg.cross(before, after)
    for n in range(6):
        angle = torch.atan2(axis[n].norm(), before[n] @ after[n])
        a = axis[n] / axis[n].norm()
        skew = torch.tensor(
            [[0, -a[2], a[1]], [a[2], 0, -a[0]], [-a[1], a[0], 0]], dtype=torch.float64
        )
        torch.testing.assert_close(found[n], torch.linalg.matrix_exp(angle * skew) @ x[n])
    torch.testing.assert_close(align(before, before, after), after)


@pytest.mark.parametrize(
    ("vertices", "faces", "sentence"),
    [
        (
            torch.zeros(3, 2),
            torch.zeros(1, 3).long(),
            "expected vertices (N × 3) and triangles (F × 3), got (3, 2) and (1, 3)",
        ),
        (
            torch.zeros(3, 3),
            torch.zeros(0, 3).long(),
            "expected vertices (N × 3) and triangles (F × 3)",
        ),
        (
            torch.zeros(3, 3),
            torch.tensor([[0, 1, 3]]),
            "expected numbers of vertices from 0 to 2 in faces",
        ),
        (
            torch.zeros(4, 3),
            torch.tensor([[0, 1, 2]]),
            "vertex 3 is in no face, so it has no tangent plane; leave it out",
        ),
    ],
)
def test_what_is_not_a_mesh_is_refused(vertices: Tensor, faces: Tensor, sentence: str) -> None:
    assert sentence in error_of(lambda: Mesh.from_faces(vertices, faces))


def test_a_convolution_learns() -> None:
    mesh, layer = dented_icosahedron(torch.Generator().manual_seed(0)), made(MeshConvolution)
    x = fields(mesh.vertices)
    layer(x, mesh).abs().square().sum().backward()
    for parameter in (layer.own, layer.direct, layer.mirrored):
        assert parameter.grad is not None
        assert torch.isfinite(parameter.grad).all()
        assert parameter.grad.abs().sum() > 0
