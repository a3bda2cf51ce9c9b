"""Labels of vertices of meshes: generated surfaces, files, and a network whose answers no choice of frames changes."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from saccade import api, cli
from saccade.config import recipes
from saccade.data import corpora
from saccade.data.generated.surfaces import LABELS, amounts, sphere, surfaces
from saccade.data.surface_meshes import Surface
from saccade.errors import SaccadeError
from saccade.layers.meshes import Mesh, components

SURFACES = surfaces(train=2, dev=1, test=1)


def recipe(**model: Any) -> recipes.Recipe:
    model = {"family": "mesh-network", "dim": 4, "depth": 2, **model}
    data = {"train": "surfaces:train", "options": {"train": 2, "dev": 1, "test": 1}}
    return recipes.recipe({"task": "node-classification", "data": data, "model": model})


def turned(one: Surface) -> Surface:
    """The surface turned in space, in other frames."""
    turn, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))
    turn *= np.linalg.det(turn)
    move = lambda points: tuple(map(tuple, (np.array(points) @ turn.T).tolist()))
    frames = tuple(angle + n for n, angle in enumerate(one.frames))
    return dataclasses.replace(
        one, vertices=move(one.vertices), vectors=move(one.vectors), frames=frames
    )


def answers(system: Any, *examples: Surface) -> torch.Tensor:
    return system.model(
        *system.task.batch(system.task.numbers(examples), torch.device("cpu")).inputs
    ).detach()


def test_labels_depend_on_neither_frames_nor_the_position_in_space() -> None:
    system = api.build(recipe(), SURFACES["train"])
    system.model.double().eval()
    one, other = SURFACES["train"]
    found = answers(system, one, other, turned(one))
    assert float(found.std(1).min()) > 1e-3, "and it does depend on the vertex"
    torch.testing.assert_close(found[2], found[0], rtol=0, atol=1e-10)
    torch.testing.assert_close(answers(system, other)[0], found[1], rtol=0, atol=1e-10)


def test_without_transport_labels_depend_on_frames() -> None:
    system = api.build(recipe(transport=False), SURFACES["train"])
    system.model.double().eval()
    one = SURFACES["train"][0]
    found = answers(system, one, turned(one))
    assert float((found[0] - found[1]).abs().max()) > 1e-2


def test_components_are_those_in_the_frames() -> None:
    """The vector along each edge has the edge's angle in the frame of its vertex."""
    x, faces = sphere()
    vertices, faces_ = torch.tensor(x), torch.tensor(faces)
    frames = torch.rand(len(x), dtype=torch.float64) * 6
    mesh = Mesh.from_faces(vertices, faces_).with_frames(frames)
    for p in (0, 50, 161):
        for e in (mesh.target == p).nonzero().flatten():
            vectors = torch.zeros_like(vertices)
            vectors[p] = vertices[mesh.source[e]] - vertices[p]
            u, v = components(vectors, vertices, faces_, frames)[p].tolist()
            assert math.remainder(
                math.atan2(v, u) - float(mesh.angle[e]), 2 * math.pi
            ) == pytest.approx(0, abs=1e-9)


def test_flow_and_turn_of_fields_that_are_known() -> None:
    """On the unit sphere the height's gradient has ∇·f = −2 z, and the turning around the axis has (∇×f)·n = 2 z."""
    x, faces = sphere()
    up = np.array([0.0, 0.0, 1.0])
    for field, at in ((up - x[:, 2:] * x, 1), (np.cross(up, x), 2)):
        found = amounts(x, faces, field)
        np.testing.assert_allclose(found[:, at], 2 * x[:, 2], atol=0.12)
        others = found[:, [2, 3]] if at == 1 else found[:, [0, 1]]
        assert np.abs(others).max() < 0.12


def test_generated_surfaces_are_closed_and_their_labels_all_occur() -> None:
    one = SURFACES["test"][0]
    edges = [tuple(sorted(pair)) for a, b, c in one.faces for pair in ((a, b), (b, c), (c, a))]
    assert len(one.vertices) - len(set(edges)) + len(one.faces) == 2, "Euler's number of a sphere"
    assert all(edges.count(edge) == 2 for edge in set(edges))
    assert set(one.labels) == set(LABELS)
    assert surfaces(2, 1, 1)["train"] == SURFACES["train"]
    assert surfaces(2, 1, 1, seed=1)["train"] != SURFACES["train"]


def row_of(one: Surface) -> dict[str, Any]:
    return {key: value for key, value in dataclasses.asdict(one).items() if key != "line"}


def test_own_meshes_train_and_are_evaluated_by_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "m.jsonl", tmp_path / "run"
    path.write_text("\n".join(json.dumps(row_of(one)) for one in SURFACES["train"]))
    [first, _] = corpora.read(corpora.GRAPHS, str(path))
    assert first == dataclasses.replace(SURFACES["train"][0], line=1)
    words = [
        f"data.train={path}",
        f"data.dev={path}",
        "data.test=",
        "training.updates=2",
        "training.threads=1",
        "--out",
        str(out),
    ]
    assert cli.run(["train", "surfaces", *words]) == 0
    assert cli.run(["evaluate", str(out), str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["nodes"] == 324
    assert api.load(out).evaluate(SURFACES["train"])["accuracy"] == pytest.approx(found["accuracy"])
    assert cli.run(["check", str(path)]) == 0
    graph = tmp_path / "g.jsonl"
    graph.write_text(json.dumps({"nodes": ["x", "y"], "labels": ["left", "right"], "edges": []}))
    assert cli.run(["evaluate", str(out), str(graph)]) == 2
    assert (
        "line 1 is a graph, no mesh, which this model does not read; choose model.family=graph-network"
        in capsys.readouterr().err
    )
    assert (
        cli.run(
            ["train", "node-classification", f"data.train={path}", "--out", str(tmp_path / "other")]
        )
        == 2
    )
    assert (
        "line 1 is a mesh, which this model does not read; choose model.family=mesh-network"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"vertices": [[0, 0]] * 4},
            r'"vertices" must be a list of \[x, y, z\], one for each vertex',
        ),
        ({"vectors": [[0, 0, 1]]}, r'"vectors" must be a list of 4 of \[x, y, z\]'),
        (
            {"frames": [1, 2]},
            '"frames" must be a list of 4 angles, one for each vertex, or left out',
        ),
        (
            {"faces": [[0, 1, 1]]},
            '"faces" must be a list of triangles, three different vertices from 0 to 3',
        ),
        (
            {"faces": [[0, 1, 2]]},
            "vertex 3 is in no face, so it has no tangent plane; leave it out",
        ),
        ({"labels": ["a"]}, "1 labels for 4 nodes; give each node one, or null"),
    ],
)
def test_a_bad_mesh_is_named(change: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    points = [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    row = {
        "vertices": points,
        "faces": [[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]],
        "vectors": points,
        "labels": ["a", "b", "a", None],
    }
    path = tmp_path / "m.jsonl"
    path.write_text(json.dumps(row))
    assert corpora.read(corpora.GRAPHS, str(path))[0].frames == (0.0,) * 4
    path.write_text(json.dumps({**row, **change}))
    with pytest.raises(SaccadeError, match=f"line 1: .*{sentence}"):
        corpora.read(corpora.GRAPHS, str(path))
