"""What is installed is known: exact versions with hashes, a bill of materials that agrees, and a wheel that comes out the same twice."""

from __future__ import annotations

import hashlib
import importlib.metadata
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
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


CUDA = (
    "nvidia-",
    "cuda-",
    "triton",
)  # PyTorch's own wheels for Linux need these, those for the CPU do not
INSTALLER = {"pip", "setuptools"}


def pinned(file: str) -> dict[str, str]:
    """Name → version of the lines `name==version` of a constraints or lock file."""
    return dict(re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / file).read_text("utf-8"), re.M))


def hashed(file: str) -> dict[str, set[str]]:
    """Name → the hashes of a lock file; every entry has its version and at least one."""
    text = (ROOT / file).read_text(encoding="utf-8")
    entry = r"^([\w.-]+)==\S+(?: ;[^\\\n]+)?((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$"
    found = {
        name: set(re.findall(r"[0-9a-f]{64}", each)) for name, each in re.findall(entry, text, re.M)
    }
    assert found.keys() == pinned(file).keys()
    return found


def locked() -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in tomllib.loads((ROOT / "uv.lock").read_text())["package"]}


def bill() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "sbom.json").read_text(encoding="utf-8"))
    return found


def test_all_files_are_exported_from_one_lock() -> None:
    versions = pinned("constraints.txt")
    assert pinned("requirements.lock") == versions, "run `make lock`"
    assert {one["name"]: one["version"] for one in bill()["components"]} == versions
    for file in ("requirements.lock", "serve.lock"):
        for name, hashes in hashed(file).items():
            one = locked()[name]
            files = [*one.get("wheels", ()), *([one["sdist"]] if "sdist" in one else ())]
            assert hashes == {each["hash"].removeprefix("sha256:") for each in files}
            assert pinned(file)[name] == one["version"]


def test_the_lock_is_of_this_project_and_names_no_private_index() -> None:
    ours = locked()["saccade-attention"]["metadata"]
    asked = [*project()["dependencies"]]
    for extra, lines in project()["optional-dependencies"].items():
        asked += [f"{line} ; extra == '{extra}'" for line in lines]
    spelled = lambda name, specifier, marker: (name, frozenset(specifier.split(",")), marker or "")
    wanted = {
        spelled(one.name.lower(), str(one.specifier), str(one.marker or "").replace('"', "'"))
        for one in map(Requirement, asked)
    }
    assert wanted == {
        spelled(one["name"], one.get("specifier", ""), one.get("marker"))
        for one in ours["requires-dist"]
    }, "run `make lock`"
    hosts = set(re.findall(r"\w+://[^/\"]+", (ROOT / "uv.lock").read_text(encoding="utf-8")))
    assert hosts == {"https://pypi.org", "https://files.pythonhosted.org"}


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    return found


def installed(requirements: Iterable[str]) -> dict[str, str]:
    """Name → version of these packages and of all that they need, as this environment has them; "" where one is not installed."""
    found: dict[str, str] = {}
    seen, todo = set(), [(Requirement(one), "") for one in requirements]
    while todo:
        one, extra = todo.pop()
        name = canonicalize_name(one.name)
        if (one.marker and not one.marker.evaluate({"extra": extra})) or name.startswith(CUDA):
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


def test_everything_that_make_setup_installs_is_pinned() -> None:
    needed = installed([*project()["dependencies"], *project()["optional-dependencies"]["dev"]])
    assert {"torch", "starlette", "tensorboard", "grpcio"} <= set(needed)
    versions = pinned("constraints.txt")
    assert {name: versions.get(name) for name in needed} == {
        name: version or versions[name] for name, version in needed.items()
    }
    surplus = set(versions) - set(needed) - INSTALLER
    assert {name for name in surplus if not name.startswith(CUDA)} == set(), (
        "a pin that nothing needs"
    )


def test_the_container_installs_pinned_versions_alone() -> None:
    versions, pins = pinned("serve.lock"), pinned("constraints.txt")
    needed = installed([*project()["dependencies"], *project()["optional-dependencies"]["serve"]])
    assert set(needed) | INSTALLER <= set(versions)
    assert versions.items() <= pins.items()
    assert any(name.startswith(CUDA) for name in versions), "PyTorch for Linux needs its libraries"


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


def test_the_bill_has_every_direct_dependency_and_what_each_needs() -> None:
    direct = {re.split("[<>=]", one)[0] for one in project()["dependencies"]}
    found = bill()
    required = {one["name"] for one in found["components"] if one["scope"] == "required"}
    assert required == direct
    needs = {
        row["ref"].partition("@")[0]: {one.partition("@")[0] for one in row.get("dependsOn", ())}
        for row in found["dependencies"]
    }
    assert direct <= needs["saccade-attention"]
    assert {"filelock", "sympy"} <= needs["torch"]
    itself = found["metadata"]["component"]
    assert (itself["name"], itself["version"]) == (project()["name"], project()["version"])
    assert {row["ref"] for row in found["dependencies"]} == {
        one["bom-ref"] for one in [itself, *found["components"]]
    }


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
