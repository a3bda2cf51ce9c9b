"""A sharded checkpoint from a stranger: whatever its pickle says, nothing of it runs, and no file outside the folder is read."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorStorageMetadata,
)

from saccade import api
from saccade.files import MANIFEST, sha256
from saccade.training.sharded import METADATA
from support import error_of, run_cli, tiny_recipe

RECIPE = tiny_recipe(training={"updates": 2, "checkpoint": "sharded"})


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("sharded") / "run"
    api.fit(RECIPE, run)
    assert (run / "last" / METADATA).exists()
    return run


class Runs:
    """Unpickled as usual, it calls a function."""

    def __init__(self, function: Callable[..., Any], *given: Any) -> None:
        self.call = (function, given)

    def __reduce__(self) -> Any:
        return self.call


def made(change: Callable[[Metadata], None], content: bytes) -> bytes:
    found = pickle.loads(content)  # noqa: S301
    change(found)
    return pickle.dumps(found)


def outside(found: Metadata) -> None:
    found.storage_data = {
        key: _StorageInfo("../../secret", one.offset, one.length)
        for key, one in found.storage_data.items()
    }


def huge(found: Metadata) -> None:
    name, part = next(iter(found.state_dict_metadata.items()))
    assert isinstance(part, TensorStorageMetadata)
    found.state_dict_metadata[name] = TensorStorageMetadata(
        part.properties, torch.Size([1 << 40]), part.chunks
    )


def in_bytes(found: Metadata) -> None:
    """Of bytes the library would unpickle whatever a part's file contains."""
    name = next(iter(found.state_dict_metadata))
    found.state_dict_metadata[name] = BytesStorageMetadata()
    found.storage_data[MetadataIndex(name)] = next(iter(found.storage_data.values()))


EVIL: dict[str, tuple[Callable[[bytes, Path], bytes], str]] = {
    "a program": (
        lambda _, path: pickle.dumps(Runs(os.system, f"touch {path}")),
        "it names posix.system, which no checkpoint needs",
    ),
    "an old pickle": (
        lambda _, path: f"cos\nsystem\n(S'touch {path}'\ntR.".encode(),
        "it names os.system, which no checkpoint",
    ),
    "a file": (
        lambda _, path: pickle.dumps(Runs(open, path, "w")),
        "io.open, which no checkpoint needs",
    ),
    "a program inside": (
        lambda old, path: made(
            lambda found: setattr(found, "planner_data", Runs(os.mkdir, str(path))), old
        ),
        "it names posix.mkdir, which no checkpoint needs",
    ),
    "torch's own loader": (
        lambda _, path: pickle.dumps(Runs(torch.load, str(path))),
        "it names torch.serialization.load, which no checkpoint needs",
    ),
    "a dotted name": (
        lambda _, path: b"\x80\x04\x8c\x05torch\x8c\x09os.system\x93.",
        "it names torch.os.system, which no",
    ),
    "bytes": (
        lambda old, _: made(in_bytes, old),
        "BytesStorageMetadata, which no checkpoint needs",
    ),
    "a file elsewhere": (lambda old, _: made(outside, old), "it names the file '../../secret'"),
    "a huge tensor": (lambda old, _: made(huge, old), "bytes, and there are"),
    "nonsense": (
        lambda _, __: b"nonsense",
        "cannot be read (UnpicklingError); copy the checkpoint again",
    ),
    "nothing": (lambda _, __: b"", "cannot be read (EOFError); copy the checkpoint again"),
    "a number": (
        lambda _, __: pickle.dumps(7),
        "cannot be read (AttributeError); copy the checkpoint again",
    ),
}


@pytest.mark.parametrize("name", sorted(EVIL))
def test_nothing_in_a_checkpoint_runs(trained: Path, tmp_path: Path, name: str) -> None:
    """Neither convert nor resume reads such a file, though the recipe names whole checkpoints; the manifest is right."""
    run, trace = tmp_path / "run", tmp_path / "trace"
    shutil.copytree(trained, run)
    (tmp_path / "secret").write_bytes(next((run / "last").glob("*.distcp")).read_bytes())
    evil, sentence = EVIL[name]
    target = run / "last" / METADATA
    target.write_bytes(evil(target.read_bytes(), trace))
    listed = json.loads((run / "last" / MANIFEST).read_text())
    listed["files"][METADATA] = {"sha256": sha256(target), "bytes": target.stat().st_size}
    (run / "last" / MANIFEST).write_text(json.dumps(listed))
    converted = run_cli("consolidate", run, "--out", tmp_path / "model")
    assert (converted.code, converted.out) == (2, "")
    assert sentence in converted.err
    assert "Traceback" not in converted.err
    resumed = {**RECIPE, "training": {"updates": 3, "checkpoint": "whole"}}
    assert sentence in error_of(lambda: api.fit(resumed, run, resume=True))
    assert not trace.exists()
    assert not (tmp_path / "model").exists()
    shutil.rmtree(run / "best")
    told = run_cli("translate", run, "the cat")
    assert told.code == 2
    assert (
        f"{run}/last is a sharded checkpoint, which contains a pickle: use it only if you trust whoever wrote it"
        in told.err
    )
    assert "; make a model of it with `saccade consolidate" in told.err
    assert not trace.exists()


def test_ones_own_sharded_run_resumes_and_converts_without_a_flag(
    trained: Path, tmp_path: Path
) -> None:
    shutil.copytree(trained, tmp_path / "run")
    assert run_cli("consolidate", tmp_path / "run", "--out", tmp_path / "model").code == 0
    assert api.load(tmp_path / "model").name == "luong"
    _, ended = api.fit(
        {**RECIPE, "training": {"updates": 4, "checkpoint": "sharded"}},
        tmp_path / "run",
        resume=True,
    )
    assert ended.update == 4
