"""The wheel: everything that the package reads is inside, and it says for which versions of Python it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "saccade"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of the sources, so that nothing is left behind in the checkout."""
    pytest.importorskip("setuptools", minversion="77")
    folder = tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("src", "recipes"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    build = "from setuptools import build_meta; build_meta.build_wheel('dist')"
    subprocess.run(
        [sys.executable, "-c", build], cwd=folder, check=True, capture_output=True, timeout=300
    )
    [made] = (folder / "dist").glob("*.whl")
    return made


def test_the_wheel_holds_all_that_the_package_reads(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {
        f"saccade/{path.relative_to(PACKAGE)}"
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    recipes = {f"saccade/{path.relative_to(ROOT)}" for path in (ROOT / "recipes").rglob("*.yaml")}
    assert {name for name in sources | recipes if name not in names} == set()
    assert any(name.endswith(".js") for name in names)
    assert any(name.endswith(".css") for name in names)


def test_the_wheel_runs_from_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    for words in (["list", "recipes"], ["--version"]):
        code = (
            "import sys; sys.path.insert(0, sys.argv.pop(1)); from saccade.cli import main; main()"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(wheel.parent / "unpacked"), *words],
            cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False, env=unpacked(wheel),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert "saccade" in done.stdout


def unpacked(wheel: Path) -> dict[str, str]:
    """The wheel as pip would install it; the environment without a path to the checkout."""
    zipfile.ZipFile(wheel).extractall(wheel.parent / "unpacked")
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def test_the_versions_of_python_are_named() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["requires-python"] == ">=3.11"
    assert {f"Programming Language :: Python :: 3.{n}" for n in (11, 12, 13)} <= set(
        project["classifiers"]
    )
