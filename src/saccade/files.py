"""Files that survive a kill: written to a temporary name, synced, renamed. Imports nothing but errors; every room may import it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from .errors import SaccadeError

MANIFEST = "manifest.json"
NEW, OLD = ".new", ".old"
Writer = Callable[[Path], object]


def sync(path: Path) -> None:
    """Asks the disk to have it, a file or a folder's list of names."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomically(path: Path, content: bytes) -> None:
    """All of the content under that name, or what was there before."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}{NEW}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise SaccadeError(f"cannot write {path}: {error.strerror or error}; choose another place or make room") from None


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def write_folder(target: Path, writers: Mapping[str, Writer]) -> None:
    """A folder of files and their manifest (sha256, size) in place of the one that is there; see `settle` for a kill in between.

    `writers` maps a file's name to what writes it to a path.
    """
    settle(target)
    new, old = target.with_name(target.name + NEW), target.with_name(target.name + OLD)
    shutil.rmtree(new, ignore_errors=True)
    try:
        new.mkdir(parents=True)
        for name, write in writers.items():
            write(new / name)
            sync(new / name)
        listed = {name: {"sha256": sha256(new / name), "bytes": (new / name).stat().st_size} for name in writers}
        (new / MANIFEST).write_text(json.dumps({"files": listed}, indent=2) + "\n", encoding="utf-8")
        sync(new / MANIFEST)
        sync(new)
        if target.exists():
            os.replace(target, old)
        os.replace(new, target)
        sync(target.parent)
    except OSError as error:
        raise SaccadeError(f"cannot write {target}: {error.strerror or error}; choose another place or make room") from None
    shutil.rmtree(old, ignore_errors=True)


def settle(target: Path) -> None:
    """Puts right what a kill between two renames left: the new folder is complete then, and takes its place."""
    new, old = target.with_name(target.name + NEW), target.with_name(target.name + OLD)
    if not target.exists():
        for candidate in (new, old):
            if (candidate / MANIFEST).is_file() and not broken(candidate):
                os.replace(candidate, target)
                break
    if target.exists():
        shutil.rmtree(old, ignore_errors=True)


def broken(folder: Path) -> str | None:
    """What is wrong with a folder by its manifest, or None."""
    try:
        listed = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        facts = {str(name): (str(row["sha256"]), int(row["bytes"])) for name, row in listed.items()}
    except FileNotFoundError:
        return f"it has no {MANIFEST}"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"its {MANIFEST} is unreadable"
    for name, (digest, size) in facts.items():
        if Path(name).name != name:
            return f"its {MANIFEST} names a file outside the folder"
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != size or sha256(path) != digest:
            return f"{name} is not what was written (its sha256 differs from the manifest)"
    return None


def verified(folder: Path, what: str) -> Path:
    """The folder, once it has been settled and all its files agree with the manifest."""
    settle(folder)
    if not folder.exists():
        raise SaccadeError(f"no {what} at {folder}; give the path of a folder written by `saccade train`")
    if not folder.is_dir():
        raise SaccadeError(f"{folder} is a file, and a {what} is a folder; give the path of a folder written by `saccade train`")
    wrong = broken(folder)
    if wrong:
        raise SaccadeError(f"{folder} is no intact {what}: {wrong}; copy it again or use another")
    return folder
