"""Result files: what was measured, on what, by which command; `benchmarks/results/NAME.json`, written by programs alone."""

import datetime
import importlib.metadata
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from . import __version__
from .errors import SaccadeError
from .files import write_atomically

PACKAGES = ("torch", "triton", "transformers", "tokenizers", "sacrebleu", "numpy")


def write_result(
    name: str,
    metrics: dict[str, Any],
    recipe: str = "",
    seeds: list[int] | None = None,
    peers: dict[str, dict[str, Any]] | None = None,
    notes: str = "",
    folder: Path = Path("benchmarks/results"),
) -> Path:
    """Writes a result file; a metric is a value, or one per seed; BLEU and a language model's loss get their names in papers too."""
    check_name(name)
    known = {"bleu_cased": metrics.get("bleu"), "val_loss": metrics.get("loss") if "perplexity" in metrics else None}
    content = {
        "name": name,
        "recipe": recipe,
        **environment(),
        "seeds": seeds or [],
        "figures": {**metrics, **{key: value for key, value in known.items() if value is not None}},
        "peers": peers or {},
        "notes": notes,
    }
    try:
        text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise SaccadeError(f"the metrics of '{name}' cannot be written ({error}); give finite numbers") from None
    path = folder / f"{name}.json"
    write_atomically(path, (text + "\n").encode())
    return path


def environment() -> dict[str, Any]:
    """By which command, at which commit, when, on what and with which versions something is measured."""
    program = "saccade" if sys.argv[0].endswith(("saccade", "__main__.py")) else sys.argv[0]
    versions = {"python": platform.python_version(), "saccade": __version__}
    for package in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {
        "command": " ".join([program, *map(shlex.quote, sys.argv[1:])]),
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "device": device(),
        "versions": versions,
    }


def check_name(name: str) -> None:
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name):
        raise SaccadeError(f"'{name}' cannot name a result; use lowercase letters, digits, dots and dashes")


def commit() -> str:
    """The checkout's commit, with a + when files differ from it; SACCADE_COMMIT names it for a copy without its own .git."""
    if given := os.environ.get("SACCADE_COMMIT"):
        return given

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], capture_output=True, text=True, timeout=10, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "--", "src") else "")
    except (OSError, subprocess.SubprocessError):
        return ""


def device() -> str:
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    model = None
    with suppress(OSError):
        model = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    return f"CPU: {model[1] if model else platform.processor()}, {torch.get_num_threads()} threads"
