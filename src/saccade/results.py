"""Result files: what was measured, on what, by which command; `benchmarks/results/NAME.json`, written by programs alone."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from .errors import SaccadeError
from .files import write_atomically

PACKAGES = ("saccade", "torch", "triton", "transformers", "tokenizers", "sacrebleu", "numpy")


def write_result(
    name: str,
    figures: dict[str, Any],
    recipe: str = "",
    seeds: list[int] | None = None,
    peers: dict[str, dict[str, Any]] | None = None,
    notes: str = "",
    folder: Path = Path("benchmarks/results"),
) -> Path:
    """Writes a result file; figures map a name to a value, or to one value a seed. BLEU and a language model's loss stand under
    the names of the literature too: `bleu_cased`, `val_loss`."""
    check_name(name)
    known = {"bleu_cased": figures.get("bleu"), "val_loss": figures.get("loss") if "perplexity" in figures else None}
    figures = {**figures, **{key: value for key, value in known.items() if value is not None}}
    content = {
        "name": name,
        "recipe": recipe,
        "command": " ".join(
            ["saccade" if sys.argv[0].endswith(("saccade", "__main__.py")) else sys.argv[0], *map(shlex.quote, sys.argv[1:])]
        ),
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "device": device(),
        "versions": versions(),
        "seeds": seeds or [],
        "figures": figures,
        "peers": peers or {},
        "notes": notes,
    }
    path = folder / f"{name}.json"
    try:
        text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise SaccadeError(f"the figures of '{name}' cannot be written ({error}); give finite numbers") from None
    write_atomically(path, (text + "\n").encode())
    return path


def check_name(name: str) -> None:
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name):
        raise SaccadeError(f"'{name}' cannot name a result; use small letters, digits, dots and dashes")


def commit() -> str:
    """The checkout's commit, with a + when files differ from it; SACCADE_COMMIT says it of a copy that is no checkout of its own."""
    if told := os.environ.get("SACCADE_COMMIT"):
        return told
    try:
        head = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, timeout=10, check=True)
        dirty = subprocess.run(
            ["git", "status", "--porcelain", "--", "src"], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return head.stdout.strip() + ("+" if dirty.stdout.strip() else "")


def device() -> str:
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    model = re.search(r"model name\s*:\s*(.+)", text)
    return f"CPU: {model.group(1) if model else platform.processor()}, {torch.get_num_threads()} threads"


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
