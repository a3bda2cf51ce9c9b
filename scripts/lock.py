"""Write the files that pin and list the dependencies, from constraints.txt. `make lock` runs it; tests/test_supply.py compares them.

requirements.lock: every package of constraints.txt with the sha256 of each of its files on PyPI.
serve.lock: the same for what the Dockerfile installs, with the CUDA libraries that PyTorch's wheels for Linux need.
sbom.json: a bill of materials (CycloneDX 1.6) of constraints.txt.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
INDEX = "https://pypi.org/simple"
LINK = re.compile(r'<a href="[^"#]*/(?P<file>[^"/#]+)#sha256=(?P<digest>[0-9a-f]{64})"')
INSTALLER = ("pip", "setuptools")  # they build and install the package itself
NOTE = "# Made by `make lock` from constraints.txt: every file of these versions on PyPI.\n"
NOTE += "# pip install --require-hashes --no-deps -r "


def normal(name: str) -> str:
    """A package's name as the index spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(text: str) -> dict[str, str]:
    """Name → version of the lines `name==version`, in constraints and in lock files."""
    lines = (re.split(r"[ #]", line.strip())[0] for line in text.splitlines() if "==" in line)
    return {
        normal(name): version
        for name, _, version in (line.partition("==") for line in lines if line)
    }


def version_in(name: str, file: str) -> str:
    """The version in the name of a wheel or a source archive."""
    if file.endswith(".whl"):
        return file.split("-")[1]
    bare = re.sub(r"\.(tar\.gz|zip|tar\.bz2)$", "", file)
    return bare[len(name) + 1 :] if normal(bare[: len(name)]) == name else ""


def hashes_of(name: str, version: str) -> list[str]:
    with urllib.request.urlopen(f"{INDEX}/{name}/", timeout=60) as page:
        links = LINK.findall(page.read().decode())
    found = sorted({digest for file, digest in links if version_in(name, file) == version})
    if not found:
        raise SystemExit(f"PyPI has no file of {name}=={version}; correct constraints.txt")
    return found


def served(project: dict[str, Any]) -> dict[str, str]:
    """Name → version of what pip chooses for the extra `serve` on this machine (Linux on x86-64, as in the container)."""
    asked = [*project["dependencies"], *project["optional-dependencies"]["serve"], *INSTALLER]
    words = [
        "install",
        "--dry-run",
        "--ignore-installed",
        "--quiet",
        "--report",
        "-",
        "-c",
        "constraints.txt",
        "--index-url",
        INDEX,
    ]
    command = [sys.executable, "-m", "pip", "--isolated", *words, *asked]
    report = json.loads(
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    )
    return {
        normal(one["metadata"]["name"]): one["metadata"]["version"] for one in report["install"]
    }


def bill(versions: dict[str, str], project: dict[str, Any]) -> dict[str, Any]:
    """The bill of materials: what the package needs itself, and what its tests, its services and these need."""
    direct = {normal(re.split(r"[<>=!~ \[;]", one)[0]) for one in project["dependencies"]}
    components = [
        {
            "type": "library",
            "name": name,
            "version": version,
            "purl": f"pkg:pypi/{name}@{version}",
            "scope": "required" if name in direct else "optional",
        }
        for name, version in sorted(versions.items())
    ]
    itself = {"type": "application", "name": project["name"], "version": project["version"]}
    itself |= {
        "purl": f"pkg:pypi/{project['name']}@{project['version']}",
        "licenses": [{"license": {"id": project["license"]}}],
    }
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": itself},
        "components": components,
    }


def main() -> None:
    versions = pinned((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    hashes: dict[str, list[str]] = {}
    for file, chosen in (("requirements.lock", versions), ("serve.lock", served(project))):
        lines = [f"{NOTE}{file}\n"]
        for name, version in sorted(chosen.items()):
            hashes[name] = hashes.get(name) or hashes_of(name, version)
            each = "".join(f" \\\n    --hash=sha256:{digest}" for digest in hashes[name])
            lines.append(f"{name}=={version}{each}\n")
        (ROOT / file).write_text("".join(lines), encoding="utf-8")
    (ROOT / "sbom.json").write_text(
        json.dumps(bill(versions, project), indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
