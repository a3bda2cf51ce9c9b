"""The check of symmetries finds those that are known, and says no where they are known not to hold."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
import torch
from tests.support import raises
from torch import nn

from saccade import cli
from saccade.config.catalogue import SLOTS
from saccade.core import masks
from saccade.teaching import symmetry
from saccade.teaching.symmetry import SYMMETRIES, Row, checking, subjects
from saccade.teaching.symmetry.subjects import Subject, vectors

LINE = ("permutation", "ring", "shift", "reflection", "time warp")


@functools.cache
def row(slot: str, name: str) -> Row:
    [found] = symmetry.check_all([(slot, name)])
    return found


def held(slot: str, name: str) -> set[str]:
    return {one.symmetry for one in row(slot, name).verdicts if one.holds}


ALL = {one.name for one in SYMMETRIES}
# slot, name, what must hold, what must not
KNOWN = [
    ("mixers", "attention", ALL - {"gauge"}, ()),
    ("scores", "additive", ALL - {"gauge"}, ()),
    ("position-embeddings", "sinusoidal", (), LINE),
    ("position-embeddings", "learned", (), LINE),
    ("positions", "rotary", ("shift",), ("permutation", "ring", "reflection")),
    ("positions", "shaw", ("shift",), ("permutation", "reflection")),
    ("positions", "t5", ("shift",), ("permutation", "reflection")),
    ("positions", "xl", ("shift",), ("permutation", "reflection")),
    ("positions", "alibi", ("shift", "reflection"), ("permutation", "ring")),
    ("positions", "added", (), LINE),
    ("positions", "syntax", ("relabeling", "shift"), ("permutation",)),
    ("positions", "edges", ("relabeling",), ("permutation",)),
    ("masks", "causal", ("shift",), ("permutation", "reflection", "relabeling", "time warp")),
    ("masks", "matrix", ("relabeling",), ("permutation", "ring", "reflection")),
    ("masks", "blocks", (), ("permutation", "shift")),
    ("masks", "shifted-windows", (), ("2-D shift",)),
    ("normalizers", "softmax", ("time warp",), ()),
    ("normalizers", "sigmoid", ("permutation",), ("time warp",)),
    ("mixers", "light-convolution", ("shift",), ("permutation", "reflection", "time warp")),
    ("mixers", "graph-attention", ("permutation", "relabeling"), ()),
    ("mixers", "graph-convolution", ("permutation", "relabeling"), ()),
    ("mixers", "message-passing", ("permutation", "relabeling"), ("time warp",)),
    ("mixers", "linformer", (), LINE),
    ("mixers", "synthesizer", (), LINE),
    ("feedforwards", "mlp", ALL - {"relabeling", "gauge"}, ()),
    ("cells", "lstm", (), LINE),
    ("pools", "deep-sets", ("permutation", "rotation"), ("time warp",)),
    ("pools", "mean", LINE, ()),
    ("pools", "last", ("time warp",), ("permutation", "shift")),
    ("windows", "everywhere", ("permutation",), ()),
    ("windows", "monotonic", (), ("permutation", "shift")),
    ("feature-attention", "squeeze-excite", ("rotation", "2-D shift"), ()),
    ("feature-attention", "cbam", ("2-D shift",), ("rotation",)),
    ("group-convolutions", "p1", ("2-D shift",), ("rotation", "2-D reflection")),
    ("group-convolutions", "p4", ("2-D shift", "rotation"), ("2-D reflection",)),
    ("group-convolutions", "p4m", ("2-D shift", "rotation", "2-D reflection"), ()),
    ("graph-layers", "convolution", ("permutation", "relabeling"), ()),
    ("graph-layers", "attention", ("permutation", "relabeling"), ()),
    ("mesh-layers", "mesh-convolution", ("gauge", "relabeling"), ("permutation",)),
    ("mesh-layers", "mesh-gate", ("gauge", "relabeling"), ()),
    ("grid-embeddings", "sinusoidal", (), ("2-D shift", "rotation", "2-D reflection")),
]


@pytest.mark.parametrize(
    ("slot", "name", "yes", "no"), KNOWN, ids=[f"{slot}.{name}" for slot, name, *_ in KNOWN]
)
def test_what_is_known_of_a_layer_is_found(
    slot: str, name: str, yes: tuple[str, ...], no: tuple[str, ...]
) -> None:
    assert set(yes) <= held(slot, name)
    for one in no:
        error = row(slot, name)[one].error
        assert error is not None
        assert error > 1e-4, f"{one}: a no is no matter of rounding"


def test_a_layer_that_breaks_a_symmetry_a_little_is_found_out() -> None:
    """A map of each position by itself, of which every position counts a millionth more than the one before."""
    layer = subjects.randomized(nn.Linear(8, 8))

    def run(field: subjects.Field) -> torch.Tensor:
        return layer(field.x) * (1 + 1e-6 * torch.arange(field.size)).unsqueeze(-1)

    broken = checking.check_subject("own", "broken", Subject(run, vectors))
    assert not any(one.holds for one in broken.verdicts if one.error is not None)
    whole = checking.check_subject("own", "whole", Subject(lambda field: layer(field.x), vectors))
    assert all(one.holds for one in whole.verdicts if one.error is not None)


def test_every_slot_is_tried_or_has_no_layers() -> None:
    assert set(SLOTS) == {*subjects.SUBJECTS, *subjects.NO_LAYERS}
    assert not set(subjects.SUBJECTS) & set(subjects.NO_LAYERS)
    per_batch = {entry.name for entry in masks.table if entry.per_batch}
    assert per_batch == {*subjects.PER_BATCH, "shifted-windows"}


def test_names_are_found_in_their_slots() -> None:
    assert symmetry.find("lstm") == [("cells", "lstm")]
    assert ("positions", "none") in symmetry.find("none")
    assert symmetry.find("positions.none") == [("positions", "none")]
    assert symmetry.find("pools") == [("pools", entry.name) for entry in SLOTS["pools"]]
    with raises(
        "unknown-name", match=r"no layer, slot or run named 'rotari'; did you mean 'rotary'\?"
    ):
        symmetry.find("rotari")
    with raises("unknown-name", match="give a layer of `saccade list`, a slot"):
        symmetry.find("qqqq")


def test_the_command_prints_a_table_numbers_and_pictures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        cli.run(["symmetry", "positions.rotary", "--json", "--out", str(tmp_path / "one.svg")]) == 0
    )
    [found] = map(json.loads, capsys.readouterr().out.splitlines())
    assert (found["slot"], found["name"], found["tolerance"]) == ("positions", "rotary", 1e-9)
    assert found["symmetries"]["shift"]["holds"] is True
    assert found["symmetries"]["ring"]["holds"] is False
    assert "PAPᵀ" in (tmp_path / "one.svg").read_text(encoding="utf-8")
    assert cli.run(["symmetry", "cells", "--out", str(tmp_path / "table.png")]) == 0
    printed = capsys.readouterr().out
    assert "cells: lstm" in printed
    assert (tmp_path / "table.png").stat().st_size > 5000
    assert cli.run(["symmetry", "p4", "--out", str(tmp_path / "p4.png")]) == 0
    assert cli.run(["symmetry", "mesh-gate", "--out", str(tmp_path / "mesh.png")]) == 0
    assert cli.run(["symmetry", "nothing-like-this"]) == 2
    assert cli.run(["symmetry", "--all", "lstm"]) == 2
    assert cli.run(["symmetry", "lstm", "--out", str(tmp_path / "x.txt")]) == 2
    assert "name a file ending in .png, .svg or .pdf" in capsys.readouterr().err


def test_every_layer_of_the_catalogue_has_its_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command asks for every member of every slot that has layers; what it finds of each is tested above and in the docs."""
    asked = []

    def check(slot: str, name: str, subject: Subject) -> Row:
        asked.append((slot, name))
        return checking.Row(
            slot, name, tuple(checking.Verdict(one.name, None, False) for one in SYMMETRIES)
        )

    monkeypatch.setattr(checking, "check_subject", check)
    assert cli.run(["symmetry", "--all"]) == 0
    assert asked == [(slot, entry.name) for slot in subjects.SUBJECTS for entry in SLOTS[slot]]
    assert capsys.readouterr().out.count("\n") == len(asked) + 1
