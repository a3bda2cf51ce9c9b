"""Lock the dependencies with uv and export what other tools read. `make lock` runs it; `python scripts/lock.py --upgrade` takes newer versions.

uv.lock: every package that any extra needs, with the sha256 of each of its files on PyPI.
constraints.txt: the versions that `make setup` installs. requirements.lock: the same with hashes.
serve.lock: what the Dockerfile installs, with hashes. sbom.json: CycloneDX with the dependency graph.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SETUP = ("--extra", "dev", "--group", "installer")
SERVE = ("--extra", "serve", "--group", "installer")


def uv(*words: str) -> str:
    """What uv prints. Indexes, mirrors and settings of this machine are not used, so that none gets into the lock."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("UV_")}
    command = [sys.executable, "-m", "uv", *words, "--no-config"]
    command += ["--default-index", "https://pypi.org/simple"]
    return subprocess.run(
        command, cwd=ROOT, env=own, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def export(*words: str) -> str:
    return uv(
        "export", "--quiet", "--frozen", "--no-emit-project", "--no-annotate", "--no-header", *words
    )


def bill() -> dict[str, Any]:
    """The bill of materials without what changes from run to run, and without the files, which the locks have."""
    text = uv("export", "--quiet", "--frozen", "--format", "cyclonedx1.5", *SETUP)
    found: dict[str, Any] = json.loads(re.sub(r'"([\w.-]+?)-\d+@', r'"\1@', text))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    direct = {re.split(r"[<>=\[]", one)[0] for one in project["dependencies"]}
    for one in found["components"]:
        del one["externalReferences"]
        one["scope"] = "required" if one["name"] in direct else "optional"
    del found["serialNumber"], found["metadata"]["timestamp"]
    found["metadata"]["component"] |= {
        "type": "application",
        "purl": f"pkg:pypi/{project['name']}@{project['version']}",
        "licenses": [{"license": {"id": project["license"]}}],
    }
    return found


def main() -> None:
    uv("lock", *sys.argv[1:])
    hashes = "# Exported from uv.lock by `make lock`. pip install --require-hashes --no-deps -r "
    versions = re.sub(r" ;.*", "", export("--no-hashes", *SETUP))
    for name, text in {
        "constraints.txt": "# Exported from uv.lock by `make lock`: the versions that `make setup` installs.\n"
        + versions,
        "requirements.lock": f"{hashes}requirements.lock\n{export(*SETUP)}",
        "serve.lock": f"{hashes}serve.lock\n{export(*SERVE)}",
        "sbom.json": json.dumps(bill(), indent=1) + "\n",
    }.items():
        (ROOT / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
