"""What is installed is known: exact versions with hashes, a bill of materials that agrees, and a wheel that comes out the same twice."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def lock_script() -> object:
    spec = importlib.util.spec_from_file_location("lock", ROOT / "scripts" / "lock.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_lock_has_a_hash_for_every_constraint_and_the_bill_agrees() -> None:
    lock = lock_script()
    versions = lock.pinned((ROOT / "constraints.txt").read_text())  # type: ignore[attr-defined]
    entries = re.findall(
        r"^(\S+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", (ROOT / "requirements.lock").read_text(), re.M
    )
    assert {name: version for name, version, _ in entries} == versions, "run `make lock`"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert json.loads((ROOT / "sbom.json").read_text()) == lock.bill(versions, project), "run `make lock`"  # type: ignore[attr-defined]


def test_every_direct_dependency_is_in_the_bill() -> None:
    components = {one["name"] for one in json.loads((ROOT / "sbom.json").read_text())["components"] if one["scope"] == "required"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert components == {re.split("[<>=]", one)[0] for one in project["dependencies"]}


@pytest.mark.slow
def test_the_wheel_built_twice_is_the_same_to_the_byte(tmp_path: Path) -> None:
    """In two folders, with files of other ages."""
    pytest.importorskip("setuptools", minversion="77")
    digests = []
    for age, name in ((10**9, "one"), (1_700_000_000, "two")):
        folder = tmp_path / name
        for part in ("src", "recipes"):
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        for part in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
            shutil.copy(ROOT / part, folder)
        for path in folder.rglob("*"):
            os.utime(path, (age, age))
        environment = {key: value for key, value in os.environ.items() if key != "SOURCE_DATE_EPOCH"}
        build = "from setuptools import build_meta; build_meta.build_wheel('dist')"
        subprocess.run([sys.executable, "-c", build], cwd=folder, env=environment, check=True, capture_output=True, timeout=300)
        [made] = (folder / "dist").glob("*.whl")
        digests.append(hashlib.sha256(made.read_bytes()).hexdigest())
    assert digests[0] == digests[1]
