"""Files that survive a kill: written to a temporary name, synced, renamed. Imports nothing but errors; every room may import it."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import SaccadeError

MANIFEST = "manifest.json"
NEW, OLD = ".new", ".old"
Writer = Callable[[Path], object]


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Within the `with`, no other process holds the folder; the hold ends with the process, however it ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise SaccadeError(f"cannot write {folder}: {error.strerror or error}; choose another place or make room") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise SaccadeError(f"another process is training into {folder}; wait for it, or choose another --out") from None
    finally:
        os.close(handle)


def sync(path: Path) -> None:
    """Asks the disk to have it, a file or a folder's list of names."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomically(path: Path, content: bytes) -> None:
    """All of the content under that name, or what was there before."""
    temporary = path.with_name(f".{path.name[:50]}.{os.getpid()}{NEW}")  # a file's name has at most 255 bytes
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
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
    with replaced(target) as new:
        for name, write in writers.items():
            write(new / name)
            sync(new / name)


@contextmanager
def replaced(target: Path) -> Iterator[Path]:
    """Within the `with`, a new folder to write files into; at its end it gets its manifest and takes the target's place."""
    settle(target)
    if os.path.exists(target) and not target.is_dir():
        raise SaccadeError(f"cannot write {target}: it is a file, and a folder is to be written there; choose another place")
    new, old = beside(target, NEW), beside(target, OLD)
    shutil.rmtree(new, ignore_errors=True)
    try:
        new.mkdir(parents=True)
        yield new
        seal(new)
        if target.exists():
            os.replace(target, old)
        try:
            os.replace(new, target)
        except FileNotFoundError:
            if not target.exists():  # else a reader's `settle` was quicker
                raise
        sync(target.parent)
    except OSError as error:
        if os.path.exists(target):  # else the new one is complete, and `settle` puts it in place
            shutil.rmtree(new, ignore_errors=True)
        raise SaccadeError(f"cannot write {target}: {error.strerror or error}; choose another place or make room") from None
    shutil.rmtree(old, ignore_errors=True)


def seal(folder: Path) -> None:
    """Lists every file of the folder in its manifest, which is complete once it is there."""
    files = sorted(folder.iterdir())
    rows = {path.name: {"sha256": sha256(path), "bytes": path.stat().st_size} for path in files}
    (folder / MANIFEST).write_text(json.dumps({"files": rows}, indent=2) + "\n", encoding="utf-8")
    sync(folder / MANIFEST)
    sync(folder)


def beside(target: Path, ending: str) -> Path:
    """The path with something behind its last name, which `.` has too."""
    whole = Path(os.path.abspath(target))
    return whole.parent / (whole.name + ending)


def settle(target: Path) -> None:
    """Puts right what a kill between two renames left: the new folder is complete then, and takes its place."""
    new, old = beside(target, NEW), beside(target, OLD)
    if not os.path.exists(target):  # not target.exists(), which raises for a name that is too long
        for candidate in (new, old):
            if os.path.isfile(candidate / MANIFEST) and not broken(candidate):
                with suppress(OSError):  # the training that writes it has put it in place just now
                    os.replace(candidate, target)
                break
    if os.path.exists(target):
        shutil.rmtree(old, ignore_errors=True)


def listed(folder: Path) -> list[str]:
    """The names in the manifest of a folder that is not broken."""
    return list(json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"])


def broken(folder: Path) -> str | None:
    """What is wrong with a folder by its manifest; None when nothing is."""
    try:
        rows = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        facts = {str(name): (str(row["sha256"]), int(row["bytes"])) for name, row in rows.items()}
    except FileNotFoundError:
        return f"it has no {MANIFEST}"
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return f"its {MANIFEST} is unreadable"
    if not facts:
        return f"its {MANIFEST} does not list any file"
    for name, (digest, size) in facts.items():
        if Path(name).name != name:
            return f"its {MANIFEST} names a file outside the folder"
        path = folder / name
        if not os.path.isfile(path):
            return f"{name} is missing"
        if path.stat().st_size != size or sha256(path) != digest:
            return f"{name} is not what was written (its sha256 differs from the manifest)"
    return None


def verified(folder: Path, what: str, needs: Collection[str] = ()) -> Path:
    """The folder, once it has been settled and all its files agree with the manifest."""
    settle(folder)
    if not os.path.exists(folder):
        raise SaccadeError(f"no {what} at {folder}; give the path of a folder written by `saccade train`")
    if not folder.is_dir():
        raise SaccadeError(f"{folder} is a file, and a {what} is a folder; give the path of a folder written by `saccade train`")
    wrong = broken(folder)
    if wrong:
        raise SaccadeError(f"{folder} is no intact {what}: {wrong}; copy it again or use another")
    missing = sorted(set(needs) - set(listed(folder)))
    if missing:
        raise SaccadeError(f"{folder} is no {what}: it has no {missing[0]}; give the path of a folder written by `saccade train`")
    return folder
