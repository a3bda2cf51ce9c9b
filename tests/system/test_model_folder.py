"""Model folders of formats 2 and 3 are equal to every reader; other tools see that they are not theirs."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from tests.support import raises

import saccade
from saccade import api
from saccade.files import MANIFEST, listed, write_folder
from saccade.system.model_folder import OLD_VOCABULARIES, VOCABULARIES, vocabularies_file
from saccade.system.run_summary import check_removable
from saccade.training.parameters import model_tensors

OLD = Path(__file__).parents[1] / "fixtures" / "v0.3.0" / "luong"
START = {
    "model": {"family": "luong", "dim": 16, "hidden": 16, "score": "bilinear"},
    "data": {"train": "phrasebook:train", "dev": "phrasebook:dev", "options": {"train": 50}},
    "training": {"updates": 1},
    "device": "cpu",
}


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """One model as format 2 and as format 3."""
    old, new = tmp_path / "old", tmp_path / "new"
    names = ("config.json", OLD_VOCABULARIES, "model.safetensors")
    copies = {name: lambda path, name=name: shutil.copyfile(OLD / name, path) for name in names}
    write_folder(old, copies, 0)
    api.average([old], new)
    return old, new


def test_the_files_of_a_folder_do_not_pretend_to_be_those_of_another_tool(
    folders: tuple[Path, Path],
) -> None:
    new = folders[1]
    assert sorted(listed(new)) == ["config.json", "model.safetensors", VOCABULARIES]
    assert sorted(path.name for path in new.iterdir()) == sorted([*listed(new), MANIFEST])
    config = json.loads((new / "config.json").read_text())
    assert list(config)[:2] == ["model_type", "saccade"]
    assert (config["model_type"], config["saccade"]) == ("saccade", 3)
    transformers = pytest.importorskip("transformers")
    with pytest.raises(ValueError, match="model type `saccade`"):
        transformers.AutoConfig.from_pretrained(new)


def test_both_formats_hold_the_same_model(folders: tuple[Path, Path], tmp_path: Path) -> None:
    one, other = (saccade.load(folder, "cpu") for folder in folders)
    assert one.recipe == other.recipe
    assert one.task.tokens() == other.task.tokens()
    here, there = model_tensors(one.model), model_tensors(other.model)
    assert all(torch.equal(here[name], there[name]) for name in here)
    mean = api.average(folders, tmp_path / "mean")
    assert mean.recipe == one.recipe
    assert vocabularies_file(tmp_path / "mean").name == VOCABULARIES
    for folder in folders:
        made = api.build({**START, "start_from": str(folder)})
        assert made.task.tokens()["source"] == one.task.tokens()["source"]
        assert check_removable(folder).family == "luong"


def test_a_folder_without_vocabularies_is_refused(folders: tuple[Path, Path]) -> None:
    for folder in folders:
        manifest = json.loads((folder / MANIFEST).read_text())
        for name in {VOCABULARIES, OLD_VOCABULARIES} & set(manifest["files"]):
            del manifest["files"][name]
        (folder / MANIFEST).write_text(json.dumps(manifest))
        with raises("not-a-model-folder"):
            saccade.load(folder, "cpu")
        with raises("not-a-model-folder"):
            api.build({**START, "start_from": str(folder)})
