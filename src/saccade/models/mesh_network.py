"""A gauge-invariant network on meshes. B batch, N vertices, M = B N, E edges, D dim, C classes."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..layers.meshes import Mesh, MeshConvolution, MeshGate, weight
from ..settings import number, setting
from .families import Sizes, add_family, named_sizes
from .graph_network import join_edges
from .protocols import MeshLabeler

TRANSPORT = "carry a neighbor's vectors along the edge before they are read; false: read their components as plain numbers"


@dataclass(frozen=True)
class MeshConfig:
    """The settings of a mesh network."""

    sizes: ClassVar[Sizes] = named_sizes(dim=(4, 8, 16, 32, 64), depth=(2, 2, 3, 3, 4))

    dim: int = number(16, 1, 4096, "channels of each order")
    orders: int = number(
        2,
        2,
        16,
        "orders of fields: numbers, vectors, and those that turn 2, 3 … times as fast with the frame",
    )
    depth: int = number(3, 1, 100, "convolutions")
    transport: bool = setting(True, TRANSPORT)


class MeshNetwork(MeshLabeler):
    """gate(convolution(x)) `depth` times, from one vector per vertex to numbers that depend on no frame, and a label from these."""

    def __init__(self, classes: int, c: MeshConfig) -> None:
        super().__init__()
        self.orders, self.transport = c.orders, c.transport
        self.enter = weight(1, c.dim)
        self.convolutions = nn.ModuleList(MeshConvolution(c.dim, c.orders) for _ in range(c.depth))
        self.gates = nn.ModuleList(MeshGate(c.dim, c.orders) for _ in range(c.depth))
        self.head = nn.Linear(c.dim, classes)

    def forward(self, vectors: Tensor, lengths: Tensor, edges: Tensor, angles: Tensor) -> Tensor:
        """vectors B N 2 in the frames; edges B E 2 and their angles B E 2 (direction and transport), edges of −1 left out → B N C."""
        links, here = join_edges(edges, vectors.shape[1]), edges[..., 0] >= 0
        angle, transport = angles[here].to(self.head.weight.dtype).unbind(1)
        mesh = Mesh(
            links.nodes,
            links.source,
            links.target,
            angle,
            transport if self.transport else torch.zeros_like(transport),
        )
        given = torch.view_as_complex(vectors.to(self.head.weight.dtype).contiguous()).flatten()
        entered = given.unsqueeze(1) * torch.view_as_complex(self.enter)  # M D
        x = torch.stack(
            [entered if n == 1 else torch.zeros_like(entered) for n in range(self.orders)], 1
        ).unsqueeze(0)
        for convolution, gate in zip(self.convolutions, self.gates, strict=True):
            x = gate(convolution(x, mesh), mesh)
        return self.head(x[0, :, 0].real).unflatten(0, vectors.shape[:2])


about = "Mesh network alone: intrinsic convolutions; labels of vertices do not depend on frames or on how the mesh lies in space."
add_family("mesh-network", "de Haan et al. 2021", MeshConfig, {MeshLabeler: MeshNetwork}, about)
