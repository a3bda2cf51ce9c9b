"""The notebook of the examples runs from its first cell to its last, and what its cells show is kept in it."""

from __future__ import annotations

import html
import os
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))


def shown(cell: Any, kind: str) -> str:
    """What a cell shows last, in one form."""
    return "".join(
        output["data"][kind] for output in cell.outputs if kind in output.get("data", {})
    )


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_its_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    assert all(
        cell.outputs == [] and cell.execution_count is None
        for cell in notebook.cells
        if cell.cell_type == "code"
    )
    assert not [
        line for cell in notebook.cells for line in cell.source.splitlines() if len(line) > 150
    ]


@pytest.mark.parametrize("updates", [10, 150])
@pytest.mark.slow
def test_first_steps_can_be_taken(
    updates: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shortened to a few updates, so that every run of the tests sees it; and as it is."""
    source = str(Path(__file__).parents[1] / "src")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([source, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    [path] = [path for path in NOTEBOOKS if path.stem == "first_steps"]
    notebook = nbformat.read(path, as_version=4)
    [training] = [cell for cell in notebook.cells if '"updates": 150,' in cell.source]
    training.source = training.source.replace('"updates": 150,', f'"updates": {updates},')
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the kernel's own packages warn of
        client = nbclient.NotebookClient(
            notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}
        )
        client.execute()
    cells = {
        cell.source.splitlines()[-1].split("(")[0]: cell
        for cell in notebook.cells
        if cell.cell_type == "code"
    }
    assert "System(translation, luong," in shown(cells["m"], "text/plain")
    assert "<table>" in shown(cells["m"], "text/html")
    assert "<b>" in shown(cells["m.translate"], "text/html")
    view = shown(cells["look"], "text/html")
    assert "the black cat ate the mouse" in html.unescape(re.findall(r'srcdoc="([^"]*)"', view)[0])
    assert len(shown(cells["look"], "text/plain")) < 200
    assert "bleu" in shown(cells["m.evaluate"], "text/html")
    [bleu] = re.findall(r"'bleu': ([\d.]+)", shown(cells["m.evaluate"], "text/plain"))
    assert updates < 150 or float(bleu) > 15, "it learns something"
    assert (tmp_path / "cat.png").read_bytes().startswith(b"\x89PNG")
    assert max(len(shown(cell, "text/plain")) for cell in cells.values()) < 2000, (
        "no screens of numbers"
    )
