"""Record a terminal session from two text files to a report page in `docs/walk.md`.

python benchmarks/walk.py [--out docs/walk.md] [--folder FOLDER] [KEY=VALUE …]     up to 15 minutes on 2 CPU cores

The texts are pairs of the generated phrasebook with the defects of real corpora. Settings are for `saccade train`.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import time
from datetime import date
from importlib.metadata import version
from pathlib import Path

from saccade.data.corpora import corpus
from saccade.system.provenance import device

PAIRS = 5000
TERMINAL = "140"  # columns
INTRODUCTION = """# From two text files to a report page

A terminal session recorded by `python benchmarks/walk.py` ({when}, {where}).
The files are {pairs:,} pairs of English and French with the defects of real corpora: empty lines,
lines that are far too long, unequal lengths, and lines that are not UTF-8. Progress bars and most
evaluations of the training are left out.
"""
STEPS = [  # what is done, the command, and the exit codes that it may have
    ("Check the data", "saccade check train.en train.fr", [2]),
    ("Write a clean copy", "saccade check train.en train.fr --write clean.tsv", [0]),
    (
        "Train",
        "saccade train translation data.train=train.en,train.fr {settings} --out runs/mine",
        [0],
    ),
    (
        "Translate a file",
        "saccade translate runs/mine --input test.en > test.out && head -3 test.out",
        [0],
    ),
    ("Show attention", 'saccade show runs/mine "the small dog saw the black cat"', [0]),
    ("Evaluate", "saccade evaluate runs/mine test.en,test.fr", [0]),
    ("The report", "saccade report runs/mine && ls runs/mine", [0]),
]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("docs/walk.md"))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("settings", nargs="*")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        write_files(folder, options.pairs)
        parts = [INTRODUCTION.format(when=date.today(), where=where(), pairs=options.pairs)]
        for title, command, codes in STEPS:
            command = " ".join(
                command.format(settings=" ".join(map(shlex.quote, options.settings))).split()
            )
            print(f"$ {command}", flush=True)
            printed, seconds, code = run(command, folder)
            print(f"{printed}\n({seconds:.0f} s)", flush=True)
            printed = shorten(printed)
            if code not in codes:
                sys.exit(f"{command} ended with {code}")
            ended = f"{seconds:.0f} seconds{', exit code 2' if code else ''}."
            parts.append(f"## {title}\n\n```console\n$ {command}\n{printed}\n```\n\n{ended}\n")
    options.out.write_text("\n".join(parts), encoding="utf-8")
    print(options.out)


def write_files(folder: Path, pairs: int) -> None:
    """train.en and train.fr with some bad lines among the good ones, test.en and test.fr without."""
    folder.mkdir(parents=True, exist_ok=True)
    sizes = {"train": pairs, "dev": 10, "test": 300}
    for split in ("train", "test"):
        found = corpus(f"phrasebook:{split}", sizes)
        sides = [[pair.source.encode() for pair in found], [pair.target.encode() for pair in found]]
        if split == "train":
            sides[0][99] = sides[1][299] = b""
            sides[0][499] = b"a long line that somebody forgot to split " * 200
            sides[1][699] = b"une ligne beaucoup trop longue pour cette phrase " * 12
            sides[1][899] = "déjà vu".encode("latin-1")
        for name, lines in zip(("en", "fr"), sides, strict=True):
            (folder / f"{split}.{name}").write_bytes(
                b"".join(line.strip() + b"\n" for line in lines)
            )


def shorten(printed: str, keep: int = 4) -> str:
    """A listing with only the first and last evaluations of a training."""
    lines = printed.splitlines()
    at = [n for n, line in enumerate(lines) if re.match(r"\w+: update [\d,]+  dev loss", line)]
    if len(at) <= 2 * keep:
        return printed
    return "\n".join([*lines[: at[keep]], "…", *lines[at[-keep] :]])


def run(command: str, folder: Path) -> tuple[str, float, int]:
    """What a command printed, stdout and stderr as they came, its seconds and its exit code."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    began = time.perf_counter()
    ended = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path, "COLUMNS": TERMINAL},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    printed = re.sub(r"\x1b\[[0-9;]*m", "", ended.stdout).rstrip()
    return printed, time.perf_counter() - began, ended.returncode


def where() -> str:
    return f"{device()}, Python {platform.python_version()}, PyTorch {version('torch')}"


if __name__ == "__main__":
    main()
