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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from .errors import SaccadeError
from .files import write_atomically
from .version import __version__

CHECKOUT = Path(__file__).resolve().parents[2]
# absolute, in the home folder, or beside the working folder
LOCAL_PATH = re.compile(r"(?<![^=,:\s])(?:~|\.\.)?/[^=,:\s]+")
TEMPORARY = re.compile(r"tmp[._]?\w{6,}")
PEER = re.compile(r"([^:]+):([^=]+)=([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)@(.+)", re.IGNORECASE)
PEER_EXAMPLE = "nanoGPT:val_loss=1.4697@github.com/karpathy/nanoGPT"
PACKAGES = ("torch", "triton", "transformers", "tokenizers", "sacrebleu", "numpy")


def read_peers(words: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Published results from NAME:METRIC=VALUE@SOURCE."""
    peers: dict[str, dict[str, Any]] = {}
    for word in words:
        found = PEER.fullmatch(word)
        if found is None:
            raise SaccadeError(
                f"--peer is '{word}'; write NAME:METRIC=VALUE@SOURCE, such as {PEER_EXAMPLE}"
            )
        peers.setdefault(found[1], {}).update({found[2]: float(found[3]), "published": found[4]})
    return peers


def write_result(
    name: str,
    metrics: dict[str, Any],
    recipe: str = "",
    seeds: list[int] | None = None,
    peers: dict[str, dict[str, Any]] | None = None,
    notes: str = "",
    folder: Path = Path("benchmarks/results"),
    about: Mapping[str, Any] | None = None,
) -> Path:
    """Writes a result file; a metric is a value, or one per seed; BLEU and a language model's loss get their names in papers too.
    `about` replaces this machine's `environment`, where the figures were measured on others."""
    check_name(name)
    about = environment() | dict(about or {})
    at = about["commit"]
    known = {
        "bleu_cased": metrics.get("bleu"),
        "val_loss": metrics.get("loss") if "perplexity" in metrics else None,
    }
    content = {
        "name": name,
        "recipe": recipe,
        **about,
        "command": command(),
        "commit": at.removesuffix("+"),
        **({"commit_dirty": True} if at.endswith("+") else {}),
        "seeds": seeds or [],
        "figures": {**metrics, **{key: value for key, value in known.items() if value is not None}},
        "peers": peers or {},
        "notes": notes,
    }
    try:
        text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise SaccadeError(
            f"the metrics of '{name}' cannot be written ({error}); give finite numbers"
        ) from None
    path = folder / f"{name}.json"
    write_atomically(path, (text + "\n").encode())
    return path


def environment() -> dict[str, Any]:
    """By which command, at which commit, when, on what and with which versions something is measured."""
    versions = {"python": platform.python_version(), "saccade": __version__}
    for package in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {
        "command": " ".join([program_of(sys.argv[0]), *map(shlex.quote, sys.argv[1:])]),
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "device": device(),
        "versions": versions,
    }


def common_environment(units: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Where several units were measured, which may be on several machines: the newest one's commit and versions, and all devices."""
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
    """The command as anybody can repeat it: without `--out` and temporary files, and without the paths of one machine: those in the
    checkout are relative to it, of others the last part is kept."""
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


def check_name(name: str) -> None:
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name):
        raise SaccadeError(
            f"'{name}' cannot name a result; use lowercase letters, digits, dots and dashes"
        )


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
