"""Provenance of measurements: command, commit, date, device and versions."""

import datetime
import importlib.metadata
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from ..version import __version__

CHECKOUT = Path(__file__).resolve().parents[3]
# absolute, in the home folder, or beside the working folder
LOCAL_PATH = re.compile(r"(?<![^=,:\s])(?:~|\.\.)?/[^=,:\s]+")
TEMPORARY = re.compile(r"tmp[._]?\w{6,}")
PACKAGES = ("torch", "triton", "transformers", "tokenizers", "sacrebleu", "numpy")


def environment() -> dict[str, Any]:
    """The command, commit, date, device and versions of a measurement that is made now."""
    versions = {"python": platform.python_version(), "saccade": __version__}
    for package in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {
        "command": command(),
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "device": device(),
        "versions": versions,
    }


def common_environment(units: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The environment of units that several machines measured: the newest commit and versions, and all devices."""
    found = sorted(
        (one["about"] for one in units if "about" in one), key=lambda about: about["date"]
    )
    if not found:
        return {}
    changed = any(one["commit"].endswith("+") for one in found)
    commit = found[-1]["commit"].removesuffix("+") + "+" * changed
    return {
        **found[-1],
        "commit": commit,
        "device": "; ".join(dict.fromkeys(one["device"] for one in found)),
    }


def program_of(path: str) -> str:
    return "saccade" if path.endswith(("saccade", "__main__.py")) else path


def command(words: list[str] | None = None, root: Path = CHECKOUT) -> str:
    """The command in a form that works on other machines.

    It has no `--out` and no temporary files. Paths in the checkout are relative to it; of other paths the last part is kept."""
    program, *rest = sys.argv if words is None else words

    def portable(match: re.Match[str]) -> str:
        path = Path(match[0]).expanduser()
        if path.is_absolute() and path.is_relative_to(root):
            return str(path.relative_to(root))
        return path.name

    kept = list[str]()
    for word in rest:
        if kept and kept[-1] == "--out":
            kept.pop()
        elif not word.startswith("--out="):
            kept.append(word if "://" in word else LOCAL_PATH.sub(portable, word))
    kept = [word for word in kept if not TEMPORARY.fullmatch(word)]
    first = program_of(program)
    if first != "saccade":
        first = LOCAL_PATH.sub(
            portable, str(Path(first).absolute() if Path(first).is_file() else first)
        )
    return " ".join([first, *map(shlex.quote, kept)])


def commit() -> str:
    """The checkout's commit, with a + when files differ from it; SACCADE_COMMIT names it for a copy without its own .git."""
    if given := os.environ.get("SACCADE_COMMIT"):
        return given

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], capture_output=True, text=True, timeout=60, check=True
        ).stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + (
            "+" if git("status", "--porcelain", "--", "src") else ""
        )
    except (OSError, subprocess.SubprocessError):
        return ""


def device() -> str:
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    model = None
    with suppress(OSError):
        model = re.search(
            r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8")
        )
    return f"CPU: {model[1] if model else platform.processor()}, {torch.get_num_threads()} threads"
