"""Walks from two text files to a report page as a new user would, in a terminal, and writes what was printed to `docs/walk.md`.

python benchmarks/walk.py [--out docs/walk.md] [--folder FOLDER] [KEY=VALUE …]     up to 15 minutes on 2 CPU cores

The texts are pairs of the embedded phrasebook, written as files and made as dirty as corpora are. Settings are for `saccade train`.
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

What a terminal shows on the way, recorded by `python benchmarks/walk.py` ({when}, {where}). The files are {pairs:,} pairs of English
and French with lines as corpora have them: empty on one side, far too long, longer on one side than on the other, or not UTF-8. Only the
bars that move while a command works are left out.
"""
STEPS = [  # what is done, the command, and the exit codes that it may have
    ("Look at the data first", "saccade check train.en train.fr", [2]),
    ("A clean copy, if you want one", "saccade check train.en train.fr --write clean.tsv", [0]),
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
    ("See where it looked", 'saccade show runs/mine "the small dog saw the black cat"', [0]),
    ("Measure", "saccade evaluate runs/mine test.en,test.fr", [0]),
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
            if code not in codes:
                sys.exit(f"{command} ended with {code}")
            ended = f"{seconds:.0f} seconds{', exit code 2: a script that checks first stops here' if code else ''}."
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
