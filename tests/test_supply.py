"""What is installed is known: exact versions with hashes, a bill of materials that agrees, and a wheel that comes out the same twice."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]


def lock_script() -> Any:
    spec = importlib.util.spec_from_file_location("lock", ROOT / "scripts" / "lock.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_lock_has_a_hash_for_every_constraint_and_the_bill_agrees() -> None:
    lock = lock_script()
    versions = lock.pinned((ROOT / "constraints.txt").read_text())
    entries = re.findall(
        r"^(\S+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$",
        (ROOT / "requirements.lock").read_text(),
        re.M,
    )
    assert {name: version for name, version, _ in entries} == versions, "run `make lock`"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert json.loads((ROOT / "sbom.json").read_text()) == lock.bill(versions, project), (
        "run `make lock`"
    )


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    return found


def installed(requirements: Iterable[str]) -> dict[str, str]:
    """Name → version of these packages and of all that they need, as this environment has them; "" where one is not installed.
    PyTorch's own wheels for Linux add CUDA's libraries, which are not part of `make setup` on every machine."""
    normal = lock_script().normal
    found: dict[str, str] = {}
    seen, todo = set(), [(Requirement(one), "") for one in requirements]
    while todo:
        one, extra = todo.pop()
        name = normal(one.name)
        if (one.marker and not one.marker.evaluate({"extra": extra})) or name.startswith(
            ("nvidia-", "cuda-", "triton")
        ):
            continue
        try:
            at_hand = importlib.metadata.distribution(one.name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = ""
            continue
        found[name] = at_hand.version.partition("+")[0]
        for more in ("", *one.extras):
            if (name, more) not in seen:
                seen.add((name, more))
                todo += [(Requirement(line), more) for line in at_hand.requires or []]
    return found


def test_everything_that_make_setup_installs_is_pinned_with_hashes_and_listed() -> None:
    lock = lock_script()
    needed = installed([*project()["dependencies"], *project()["optional-dependencies"]["dev"]])
    assert {"torch", "starlette", "tensorboard", "grpcio"} <= set(needed)
    bill = json.loads((ROOT / "sbom.json").read_text(encoding="utf-8"))["components"]
    for versions in (
        lock.pinned((ROOT / "constraints.txt").read_text(encoding="utf-8")),
        lock.pinned((ROOT / "requirements.lock").read_text(encoding="utf-8")),
        {one["name"]: one["version"] for one in bill},
    ):
        assert {name: versions.get(name) for name in needed} == {
            name: version or versions[name] for name, version in needed.items()
        }
        assert set(versions) - set(needed) <= {*lock.INSTALLER, "exceptiongroup", "tomli"}, (
            "a pin that nothing needs"
        )


def test_the_container_installs_pinned_versions_alone() -> None:
    lock = lock_script()
    versions = lock.pinned((ROOT / "serve.lock").read_text(encoding="utf-8"))
    needed = installed([*project()["dependencies"], *project()["optional-dependencies"]["serve"]])
    assert set(needed) | set(lock.INSTALLER) <= set(versions)
    pins = lock.pinned((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    cuda = {name for name in versions if name.startswith(("nvidia-", "cuda-", "triton"))}
    assert {name: pins.get(name) for name in set(versions) - cuda} == {
        name: versions[name] for name in set(versions) - cuda
    }
    entries = (ROOT / "serve.lock").read_text(encoding="utf-8").split("\n\n")[-1]
    assert len(re.findall(r"^\S+==\S+ \\\n    --hash=sha256:[0-9a-f]{64}", entries, re.M)) == len(
        versions
    )


OTHERS = re.compile(
    r"pip3? (?:install|download)[^\n`]*?\bsaccade(?!-attention)(?=[\[\s'\"`=<>]|$)|[\"'`]saccade\[|pypi\.org/project/saccade\b(?!-)"
)
PLACES = (
    "src",
    "docs",
    "examples",
    "recipes",
    "scripts",
    "benchmarks",
    "tests/fixtures",
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
)


def test_no_page_or_error_names_a_distribution_that_is_not_ours() -> None:
    """`saccade` on PyPI is another project."""
    for wrong in (
        "pip install saccade",
        "pip install 'saccade[serve]'",
        'pip install -U "saccade==1"',
        "`saccade[hub]`",
    ):
        assert OTHERS.search(wrong), wrong
    for right in (
        "pip install 'saccade-attention[serve]'",
        "pip install '.[serve]'",
        "docker build -t saccade .",
    ):
        assert not OTHERS.search(right), right
    assert project()["name"] == "saccade-attention"
    files = [ROOT / "Dockerfile", ROOT / "Makefile"]
    for place in PLACES:
        files += [ROOT / place] if (ROOT / place).is_file() else sorted((ROOT / place).rglob("*"))
    texts = [
        path
        for path in files
        if path.suffix in {"", ".py", ".md", ".yaml", ".ipynb", ".html", ".js", ".toml"}
        and path.is_file()
    ]
    assert len(texts) > 300
    found = {
        str(path.relative_to(ROOT)): OTHERS.findall(
            path.read_text(encoding="utf-8", errors="replace")
        )
        for path in texts
    }
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
    extras = set(project()["optional-dependencies"])
    for path in texts:
        for name in re.findall(
            r"(?:saccade-attention|'\.)\[([a-z]+)\]",
            path.read_text(encoding="utf-8", errors="replace"),
        ):
            assert name in extras, f"{path} names the extra {name}"


def test_every_direct_dependency_is_in_the_bill() -> None:
    components = {
        one["name"]
        for one in json.loads((ROOT / "sbom.json").read_text())["components"]
        if one["scope"] == "required"
    }
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
            shutil.copytree(
                ROOT / part,
                folder / part,
                ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"),
            )
        for part in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
            shutil.copy(ROOT / part, folder)
        for path in folder.rglob("*"):
            os.utime(path, (age, age))
        environment = {
            key: value for key, value in os.environ.items() if key != "SOURCE_DATE_EPOCH"
        }
        build = "from setuptools import build_meta; build_meta.build_wheel('dist')"
        subprocess.run(
            [sys.executable, "-c", build],
            cwd=folder,
            env=environment,
            check=True,
            capture_output=True,
            timeout=300,
        )
        [made] = (folder / "dist").glob("*.whl")
        digests.append(hashlib.sha256(made.read_bytes()).hexdigest())
    assert digests[0] == digests[1]
