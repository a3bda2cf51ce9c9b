"""Subjects: every member of the catalogue that is a layer, built small, with parameters for which everything matters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...config.catalogue import SLOTS
from ...core import Mechanism, Positions, masks, normalizers, positions, scores
from ...errors import SaccadeError
from ...layers import embeddings, norms
from ...layers.graph_mixers import Links, neighbors
from ...layers.grid_windows import WindowAttention, Windows
from ...layers.meshes import MeshConvolution
from ...layers.multihead_attention import MultiHeadAttention, Reader
from ...layers.recurrent import Recurrence
from ...models.assembly import Config, make_stack
from ...registry import Entry
from ...settings import Choice, options_of
from .moves import BATCH, CANVAS, CANVAS_2D, SIDE, Field, Make

DIM, HEADS, HIDDEN, VOCAB = 8, 2, 12, 40
TABLE_LENGTH = max(CANVAS, CANVAS_2D**2) + 2  # positions that a learned table needs here
# Members of these slots are no layers, or parts of one that is not run by itself.
NO_LAYERS = ["backends", "joins", "models", "modifications", "tasks"]
NO_LAYERS += ["objectives", "metrics", "schedules", "corpora"]


@dataclass(frozen=True)
class Subject:
    """Something that can be run on a `Field`."""

    run: Callable[[Field], Tensor]
    make: Make  # its inputs, B N …
    pooled: bool = False  # makes one vector of all positions
    edges: bool = False  # reads the edges, or a mask made of them
    grid: bool = False  # reads a grid alone
    mesh: bool = False  # reads a mesh


def vectors(size: int, width: int = DIM) -> Tensor:
    return torch.randn(BATCH, size, width, dtype=torch.float64)


def tokens(size: int) -> Tensor:
    return torch.randint(2, VOCAB, (BATCH, size))


def tokens_with_bytes(size: int) -> Tensor:
    """Tokens with their bytes: the same token always has the same bytes."""
    letters = torch.tensor(embeddings.spell([f"word{n}" for n in range(VOCAB)]))
    ids = tokens(size)
    return torch.cat([ids.unsqueeze(-1), letters[ids]], -1)


def randomized(layer: nn.Module) -> Any:
    """The layer in evaluation mode and float64, with random parameters: none is 0, and no two are equal."""
    with torch.no_grad():
        for parameter in layer.double().parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.5)
    return layer.eval()


def build_member(entry: Entry[Any], slot: str, **facts: Any) -> Any:
    """A member with its example's options, and as many positions as are tried here where it has a table of them."""
    wanted = options_of(SLOTS[slot], entry.make)
    longer: dict[str, Any] = {
        name: TABLE_LENGTH for name in ("max_len", "length") if name in wanted
    }
    return Choice(entry.make, {**entry.example, **longer})(**facts)


def mixer_subject(layer: Any, any_mask: bool = True, width: int = DIM) -> Subject:
    """A layer with the interface of a mixer."""

    def run(field: Field) -> Tensor:
        at = Positions.line(field.size, field.size, relation=field.edges.unsqueeze(0))
        mixed: Tensor = layer.mix(field.x, field.mask() if any_mask else None, at)
        return mixed

    return Subject(run, partial(vectors, width=width), edges=any_mask or bool(layer.needs_relation))


def attention_subject(**parts: Any) -> Subject:
    """Attention with these parts of its mechanism."""
    return mixer_subject(randomized(MultiHeadAttention(DIM, HEADS, mechanism=Mechanism(**parts))))


FACTS = {"dim": DIM // HEADS, "dim_q": DIM // HEADS, "dim_k": DIM // HEADS, "heads": HEADS}


def of_score(entry: Entry[Any]) -> Subject:
    made = build_member(entry, "scores", **FACTS)
    return attention_subject(
        score=made, normalize=normalizers.table["sum"]() if made.needs_sum else None
    )


def of_normalizer(entry: Entry[Any]) -> Subject:
    made = build_member(entry, "normalizers", **FACTS)
    fits = made.mismatch(scores.ScaledDot(), positions.NoPosition()) is None
    return attention_subject(normalize=made, score=None if fits else scores.EluKernel())


# Masks of a batch, for an input of some size: two positions of padding, a prefix of half the length, documents of different lengths.
PER_BATCH: dict[str, Callable[[Field], masks.Mask]] = {
    "padding": lambda field: masks.padding([field.size - 2] * BATCH),
    "prefix": lambda field: masks.prefix([field.size // 2] * BATCH),
    "documents": lambda field: masks.documents(
        (4 * torch.arange(field.size) // field.size).clamp_max(2).expand(BATCH, -1)
    ),
    "matrix": lambda field: masks.matrix(field.edges.gt(0)),
}


def of_mask(entry: Entry[Any]) -> Subject:
    if entry.name == "shifted-windows":
        return of_windows_on_a_grid()
    if not entry.per_batch:
        return attention_subject(mask=build_member(entry, "masks"))
    layer, make = randomized(MultiHeadAttention(DIM, HEADS)), PER_BATCH[entry.name]

    def run(field: Field) -> Tensor:
        mask, given = make(field), field.mask()
        mixed: Tensor = layer(field.x, mask=mask if given is None else mask & given)
        return mixed

    return Subject(run, vectors, edges=True)


def of_windows_on_a_grid() -> Subject:
    layer = randomized(WindowAttention(DIM, HEADS, Mechanism(), shifted=True))

    def run(field: Field) -> Tensor:
        at = Windows.over(*field.grid, SIDE // 2, torch.device("cpu"))
        mixed: Tensor = layer.mix(field.x, at.mask(BATCH, HEADS, torch.device("cpu")), at)
        return mixed

    return Subject(run, vectors, grid=True)


def of_mixer(entry: Entry[Any]) -> Subject:
    facts: dict[str, Any] = {"dim": DIM, "heads": HEADS, "n": 0, "dropout": 0.0}
    facts["make_mechanism"] = lambda score=None: Mechanism(score)
    layer = randomized(build_member(entry, "mixers", **facts, mechanism=Mechanism()))
    return mixer_subject(layer, takes_edges(layer))


def takes_edges(layer: Any, width: int = DIM) -> bool:
    """Whether a mixer takes any mask; one that knows padding alone says so when it is given another."""
    x = torch.zeros(BATCH, 2, width, dtype=torch.float64)
    at = Positions.line(2, 2, relation=torch.ones(1, 2, 2).long())
    try:
        layer.mix(x, masks.matrix(torch.eye(2).bool()), at)
    except SaccadeError:
        return False
    return bool(layer.any_mask)


def pointwise(slot: str, entry: Entry[Any], **facts: Any) -> Subject:
    """A layer that maps vectors to vectors."""
    layer = randomized(build_member(entry, slot, **facts))
    return Subject(lambda field: layer(field.x), vectors)


def of_residual(entry: Entry[Any]) -> Subject:
    facts = {"dim": DIM, "dropout": 0.0, "n": 1, "depth": 2, "role": "alone"}
    norm = lambda: norms.LayerNorm(DIM)
    layer = randomized(build_member(entry, "residuals", norm=norm, **facts))
    inner = randomized(nn.Linear(DIM, DIM))
    return Subject(lambda field: layer(field.x, lambda x: torch.tanh(inner(x))), vectors)


def of_stack(slot: str, entry: Entry[Any]) -> Subject:
    """Two blocks of attention without positions."""
    chosen: dict[str, Any] = {
        {"blocks": "block", "stacks": "stack"}[slot]: Choice(entry.make, entry.example)
    }
    made = randomized(make_stack(Config(dim=DIM, hidden=HIDDEN, depth=2, heads=HEADS, **chosen)))
    any_mask = made.any_mask and all(block.any_mask for block in made)

    def run(field: Field) -> Tensor:
        at = Positions.line(field.size, field.size)
        mixed: Tensor = made(field.x, field.mask() if any_mask else None, positions=at)
        return mixed

    return Subject(run, vectors, edges=any_mask)


def of_embedding(entry: Entry[Any]) -> Subject:
    layer = randomized(build_member(entry, "embeddings", vocab=VOCAB, dim=DIM))
    return Subject(lambda field: layer(field.x), tokens_with_bytes if layer.reads_bytes else tokens)


def of_position_embedding(entry: Entry[Any]) -> Subject:
    layer = randomized(build_member(entry, "position-embeddings", dim=DIM))
    deep = bool(getattr(layer, "needs_relation", False))

    def run(field: Field) -> Tensor:
        depth = [field.edges[0].expand(BATCH, -1)] if deep else []
        found: Tensor = layer(field.x, torch.arange(field.size), *depth)
        return found

    return Subject(run, vectors, edges=deep)


def of_cell(entry: Entry[Any]) -> Subject:
    layer = randomized(Recurrence(entry.make, DIM, DIM))
    return Subject(lambda field: layer(field.x)[0], vectors)


def of_pool(entry: Entry[Any]) -> Subject:
    layer = build_member(entry, "pools", dim=DIM, vocab=VOCAB)
    layer.prepare([[n, *range(0, VOCAB, n + 1)] for n in range(VOCAB)])
    layer = randomized(layer)

    def run(field: Field) -> Tensor:
        ids = (field.x[..., 0] * 1000).long() % VOCAB  # a token goes with its vector
        pooled: Tensor = layer(ids, field.x, torch.full((BATCH,), field.size))
        return pooled

    return Subject(run, vectors, pooled=True)


def of_window(entry: Entry[Any]) -> Subject:
    """Three steps of a decoder that look into a memory, which is what is moved."""
    layer = randomized(Reader(DIM, DIM, Mechanism(), build_member(entry, "windows", dim=DIM)))
    query = vectors(3)

    def run(field: Field) -> Tensor:
        real = masks.padding([field.size] * BATCH).prepare(BATCH, 1, 3, field.size)
        contexts: Tensor = layer(query, layer.prepare(field.x), real)
        return contexts

    return Subject(run, vectors, pooled=True)


def on_a_grid(slot: str, entry: Entry[Any]) -> Subject:
    """What reads B D R C."""
    layer = randomized(build_member(entry, slot, dim=DIM, rows=SIDE, columns=SIDE))
    grid: Callable[[Field], Tensor] = lambda field: field.x.transpose(1, 2).unflatten(2, field.grid)
    return Subject(lambda field: layer(grid(field)).flatten(2).transpose(1, 2), vectors, grid=True)


def of_group_convolution(entry: Entry[Any]) -> Subject:
    """From a picture to all orientations, once more among these, and the largest of them: vectors that are not of an orientation."""
    first, second = (
        randomized(build_member(entry, "group-convolutions", dim_in=DIM, dim_out=DIM, lifts=lifts))
        for lifts in (True, False)
    )

    def run(field: Field) -> Tensor:
        grid = field.x.transpose(1, 2).unflatten(2, field.grid)
        found: Tensor = second.pool(second(torch.relu(first(grid))))
        return found.flatten(2).transpose(1, 2)

    return Subject(run, vectors, grid=True)


def of_graph_layer(entry: Entry[Any]) -> Subject:
    """A layer of a graph network, along the edges of a mask."""
    layer = randomized(build_member(entry, "graph-layers", width=DIM))

    def run(field: Field) -> Tensor:
        there = neighbors(field.x, field.mask()).expand(BATCH, -1, -1)
        first, target, source = (there.nonzero() * torch.tensor([field.size, 1, 1])).unbind(1)
        links = Links(BATCH * field.size, first + source, first + target)
        found: Tensor = layer(field.x.flatten(0, 1).unflatten(1, (layer.heads, -1)), links)
        return found.view(BATCH, field.size, *found.shape[1:])

    return Subject(run, vectors, edges=True)


def of_mesh_layer(entry: Entry[Any]) -> Subject:
    """From numbers to fields of all orders, the layer, and to numbers again, which depend on no frame."""
    parts = (
        MeshConvolution(DIM),
        build_member(entry, "mesh-layers", dim=DIM),
        MeshConvolution(DIM),
    )
    layers = [randomized(part) for part in parts]

    def run(field: Field) -> Tensor:
        orders = layers[0].orders
        higher = field.x.new_zeros(*field.x.shape[:2], orders - 1, DIM)
        x = torch.cat([field.x.unsqueeze(2), higher], 2) + 0j
        for layer in layers:
            x = layer(x, field.mesh)
        return x[:, :, 0].real

    return Subject(run, vectors, edges=True, mesh=True)


UNIT: dict[str, Any] = {"dim": DIM, "hidden": HIDDEN, "width": 3, "dilation": 2, "causal": False}
UNIT["norm"] = Choice(norms.LayerNorm)
SUBJECTS: dict[str, Callable[[Entry[Any]], Subject]] = {
    "scores": of_score,
    "normalizers": of_normalizer,
    "masks": of_mask,
    "positions": lambda entry: attention_subject(
        position=build_member(entry, "positions", **FACTS, causal=False)
    ),
    "mixers": of_mixer,
    "feedforwards": partial(
        pointwise, "feedforwards", dim=DIM, hidden=HIDDEN, dropout=0.0, n=0, depth=2, role="alone"
    ),
    "activations": partial(pointwise, "activations"),
    "residuals": of_residual,
    "norms": partial(pointwise, "norms", dim=DIM),
    "blocks": partial(of_stack, "blocks"),
    "stacks": partial(of_stack, "stacks"),
    "embeddings": of_embedding,
    "position-embeddings": of_position_embedding,
    "heads": partial(pointwise, "heads", dim=DIM, vocab=VOCAB),
    "cells": of_cell,
    "units": partial(pointwise, "units", **UNIT),
    "pools": of_pool,
    "windows": of_window,
    "grid-embeddings": partial(on_a_grid, "grid-embeddings"),
    "feature-attention": partial(on_a_grid, "feature-attention"),
    "group-convolutions": of_group_convolution,
    "graph-layers": of_graph_layer,
    "mesh-layers": of_mesh_layer,
}
