"""Parameters and optimizer states to the disk and back, bit for bit; what does not fit is told in a sentence."""

from __future__ import annotations

import json
import math
import os
import resource
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.support import raises
from torch import nn

from saccade.config import recipes
from saccade.errors import SaccadeError
from saccade.files import MANIFEST, broken, verified, write_folder
from saccade.models.protocols import Seq2Seq
from saccade.training.checkpoints import Progress, RunFolder, load_model, write_tensors
from saccade.training.distributed import Ranks
from saccade.training.parameters import model_tensors


def transformer(seed: int = 0, **more: object) -> nn.Module:
    torch.manual_seed(seed)
    settings = {
        "family": "transformer",
        "dim": 8,
        "hidden": 8,
        "depth": 1,
        "heads": 2,
        "dropout": 0.0,
        **more,
    }
    return recipes.Builder(settings).make(Seq2Seq, 9, 11)


def moved(model: nn.Module, updates: int = 2, fused: bool = True) -> torch.optim.AdamW:
    """The model after some updates, with the optimizer that made them."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=fused)
    for update in range(updates):
        torch.manual_seed(update)
        source = torch.randint(4, 9, (2, 3))
        model(source, torch.tensor([3, 2]), source).logsumexp(-1).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return optimizer


def test_a_model_and_its_optimizer_come_back_bit_for_bit(tmp_path: Path) -> None:
    model, other = transformer(1), transformer(2)
    optimizer = moved(model)
    folder = RunFolder(tmp_path, {})
    folder.save_last(
        "whole", Ranks(), model, optimizer, Progress(update=2), {"carried": torch.ones(2)}
    )
    fresh = torch.optim.AdamW(other.parameters(), lr=0.01, fused=True)
    assert folder.load_last(other, fresh)["carried"].tolist() == [1, 1]
    for (name, one), (same, two) in zip(
        model_tensors(model).items(), model_tensors(other).items(), strict=True
    ):
        assert name == same
        assert torch.equal(one, two)
        a, b = optimizer.state[one], fresh.state[two]
        assert a.keys() == b.keys() == {"step", "exp_avg", "exp_avg_sq"}
        assert all(torch.equal(a[key], b[key]) and a[key].dtype == b[key].dtype for key in a)
    torch.manual_seed(0)
    source = torch.randint(4, 9, (2, 3))
    for net, its in ((model, optimizer), (other, fresh)):
        net(source, torch.tensor([3, 2]), source).logsumexp(-1).sum().backward()
        its.step()
    assert all(
        torch.equal(p, q) for p, q in zip(model.parameters(), other.parameters(), strict=True)
    ), "and go on alike"


def test_shared_parameters_are_stored_once_and_stay_shared(tmp_path: Path) -> None:
    model, other = (
        nn.Sequential(nn.Linear(8, 8), transformer(seed), nn.Linear(8, 8)) for seed in (1, 2)
    )
    for one in (model, other):
        one[2].weight = one[0].weight
    write_tensors(model_tensors(model), tmp_path / "m")
    stored = load_file(tmp_path / "m")
    assert set(stored) == {name for name, _ in model.named_parameters()}
    assert "0.weight" in stored
    assert "2.weight" not in stored
    assert sum(tensor.shape == (11, 8) for tensor in stored.values()) == 1, (
        "a tied head has no matrix of its own"
    )
    load_model(other, tmp_path / "m")
    assert other[2].weight is other[0].weight
    assert torch.equal(other[2].weight, model[2].weight)


def test_kept_buffers_are_stored_and_passing_ones_are_not() -> None:
    module = nn.Linear(2, 2)
    module.register_buffer("kept", torch.ones(3))
    module.register_buffer("passing", torch.ones(3), persistent=False)
    assert set(model_tensors(module)) == {"weight", "bias", "kept"}


def test_a_compiled_model_is_stored_under_the_names_of_the_plain_one(tmp_path: Path) -> None:
    model = transformer()
    wrapped = torch.compile(model, backend="eager")
    assert list(model_tensors(wrapped)) == list(model_tensors(model))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda t: {**t, "extra": torch.zeros(1)},
            "the parameters are not those of this model ('extra' is (1,) there and missing here)",
        ),
        (
            lambda t: {k: v for k, v in t.items() if k != "target.tokens.weight"},
            "('target.tokens.weight' is missing there and (11, 8) here)",
        ),
        (
            lambda t: {**t, "target.tokens.weight": torch.zeros(2, 8)},
            "'target.tokens.weight' is (2, 8) there and (11, 8) here",
        ),
    ],
)
def test_parameters_of_another_model_are_refused(
    tmp_path: Path,
    change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]],
    sentence: str,
) -> None:
    model = transformer()
    write_tensors(model_tensors(model), tmp_path / "m")
    save_file(change(load_file(tmp_path / "m")), tmp_path / "m")
    with pytest.raises(SaccadeError) as told:
        load_model(model, tmp_path / "m")
    assert sentence in str(told.value)
    assert "use the recipe it was trained with" in str(told.value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e19, -1e19])
def test_a_model_that_has_diverged_is_refused(tmp_path: Path, value: float) -> None:
    model = transformer()
    with torch.no_grad():
        model.target.tokens.weight[3, 2] = value
    write_tensors(model_tensors(model), tmp_path / "m")
    with raises("parameters-not-finite"):
        load_model(transformer(), tmp_path / "m")


@pytest.mark.parametrize(
    "content", [b"", b"junk", b"\xff" * 100, b'{"a": 1}', (1 << 40).to_bytes(8, "little") + b"{}"]
)
def test_a_file_that_is_no_safetensors_is_refused(tmp_path: Path, content: bytes) -> None:
    path, model = tmp_path / "m", transformer()
    path.write_bytes(content)
    with raises("checkpoint-damaged"):
        load_model(model, path)
    files = {
        "model.safetensors": partial(write_tensors, model_tensors(model)),
        "training.safetensors": lambda path: path.write_bytes(content),
    }
    write_folder(tmp_path / "last", files)
    with raises("checkpoint-damaged"):
        RunFolder(tmp_path, {}).load_last(model, moved(model, 0))
    path.unlink()
    with raises("checkpoint-damaged"):
        load_model(model, path)


def test_every_file_of_a_folder_has_the_usual_permissions(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        RunFolder(tmp_path, {}).save("best", transformer())
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "best").iterdir()}
    assert modes == {"model.safetensors": 0o644, MANIFEST: 0o644}


def test_a_full_disk_is_told_and_the_last_checkpoint_stays(tmp_path: Path) -> None:
    folder, model = RunFolder(tmp_path, {}), transformer()
    folder.save_last("whole", Ranks(), model, moved(model), Progress(update=2), {})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Python ignores the signal that comes with it
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(
            SaccadeError, match=r"cannot write .*last: .*File too large; choose another path"
        ):
            folder.save_last("whole", Ranks(), model, moved(model), Progress(update=3), {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert folder.progress() == Progress(update=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["last"]


def test_progress_comes_back_as_it_was(tmp_path: Path) -> None:
    folder, model = (
        RunFolder(tmp_path, {"config.json": lambda path: path.write_text("{}")}),
        transformer(),
    )
    assert folder.progress() is None
    at = Progress(7, 1, 3, 1234, 5.25, 0.1 + 0.2, 5, 1, False, {"loss": 1 / 3})
    folder.save_last("whole", Ranks(), model, moved(model), at, {})
    assert folder.progress() == at
    assert set(json.loads((tmp_path / "last" / MANIFEST).read_text())["files"]) == {
        "config.json",
        "model.safetensors",
        "training.safetensors",
        "training.json",
    }


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def listing(path: Path, name: str) -> None:
    """Names another file in the manifest, with its true sha256."""
    entry = json.loads((path.parent / MANIFEST).read_text())
    entry["files"][name] = entry["files"].pop(path.name)
    (path.parent / MANIFEST).write_text(json.dumps(entry))


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a flipped bit": (
        flip,
        "model.safetensors is not what was written (its sha256 differs from the manifest)",
    ),
    "one byte more": (
        lambda path: path.write_bytes(path.read_bytes() + b"x"),
        "model.safetensors is not what was written",
    ),
    "cut off": (
        lambda path: path.write_bytes(path.read_bytes()[:-9]),
        "model.safetensors is not what was written",
    ),
    "a missing file": (Path.unlink, "model.safetensors is missing"),
    "no manifest": (lambda path: (path.parent / MANIFEST).unlink(), "it has no manifest.json"),
    "a manifest that is no JSON": (
        lambda path: (path.parent / MANIFEST).write_text("{"),
        "its manifest.json is unreadable",
    ),
    "a path out of the folder": (
        lambda path: listing(path, "../secret"),
        "names a file outside the folder",
    ),
    "an absolute path": (
        lambda path: listing(path, "/etc/hostname"),
        "names a file outside the folder",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_refused_with_what_is_wrong(tmp_path: Path, damage: str) -> None:
    folder, model = RunFolder(tmp_path, {}), transformer()
    folder.save_last("whole", Ranks(), model, moved(model), Progress(update=2), {})
    change, sentence = DAMAGES[damage]
    change(tmp_path / "last" / "model.safetensors")
    assert sentence in str(broken(tmp_path / "last"))
    for use in (folder.progress, lambda: verified(tmp_path / "last", "model folder")):
        with pytest.raises(SaccadeError) as told:
            use()
        assert sentence in str(told.value)
        assert "remove it to start over" in str(
            told.value
        ) or "copy it again or use another" in str(told.value)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"update": 1, "nonsense": 2}', "[" * 100_000])
def test_a_progress_that_cannot_be_read_is_told(tmp_path: Path, text: str) -> None:
    write_folder(tmp_path / "last", {"training.json": lambda path: path.write_text(text)})
    with raises("checkpoint-damaged"):
        RunFolder(tmp_path, {}).progress()
