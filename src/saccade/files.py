"""Files that survive a kill: written to a temporary name, synced, renamed. Imports nothing but errors; any package may import it."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import SaccadeError

try:
    import fcntl
except ImportError:  # Windows, where two processes that train into one folder are not noticed
    fcntl = None  # type: ignore[assignment]

MANIFEST = "manifest.json"
NEW, OLD = ".new", ".old"
HINT = "give the path of a folder written by `saccade train`"
Writer = Callable[[Path], object]


@contextmanager
def report_disk(target: Path, clean: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Within the `with`, an error of the disk becomes a sentence about the target, after `clean`."""
    try:
        yield
    except OSError as error:
        with suppress(OSError):
            clean()
        why = error.strerror or error
        raise SaccadeError(f"cannot write {target}: {why}; choose another path or free some disk space") from None


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Within the `with`, no other process holds the folder; the lock ends with the process, however it ends."""
    with report_disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        yield
        return
    with report_disk(folder):
        handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise SaccadeError(f"another process is training into {folder}; wait for it, or choose another --out") from None
    finally:
        os.close(handle)


def sync(path: Path) -> None:
    """Asks the disk to store a file's content or a folder's list of names; Windows cannot be asked so."""
    if fcntl is None:
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomically(path: Path, content: bytes) -> None:
    """All of the content under that name, or what was there before."""
    temporary = path.with_name(f".{path.name[:50]}.{os.getpid()}{NEW}")  # a file's name has at most 255 bytes
    with report_disk(path, temporary.unlink):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_folder(target: Path, writers: Mapping[str, Writer]) -> None:
    """A folder of files and their manifest instead of the one that is there; `writers` maps a file's name to what writes it."""
    with replaced(target) as new:
        write_files(new, writers)


def write_files(folder: Path, writers: Mapping[str, Writer]) -> None:
    for name, write in writers.items():
        write(folder / name)
        sync(folder / name)


@contextmanager
def replaced(target: Path) -> Iterator[Path]:
    """Within the `with`, a new folder to write files into; it then gets its manifest and replaces the target (see `settle`)."""
    settle(target)
    if os.path.exists(target) and not target.is_dir():
        raise SaccadeError(f"cannot write {target}: it is a file, not a folder; choose another path")
    new, old = beside(target)
    shutil.rmtree(new, ignore_errors=True)
    # without a target, the new folder is complete, and `settle` renames it
    with report_disk(target, lambda: shutil.rmtree(new, ignore_errors=True) if os.path.exists(target) else None):
        new.mkdir(parents=True)
        yield new
        rows = {path.name: {"sha256": sha256(path), "bytes": path.stat().st_size} for path in sorted(new.iterdir())}
        (new / MANIFEST).write_text(json.dumps({"files": rows}, indent=2) + "\n", encoding="utf-8")
        sync(new / MANIFEST)  # with it the folder is complete
        sync(new)
        if target.exists():
            os.replace(target, old)
        try:
            os.replace(new, target)
        except FileNotFoundError:
            if not target.exists():  # else a reader's `settle` was quicker
                raise
        sync(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def beside(target: Path) -> tuple[Path, Path]:
    """Where the new and the old folder are while one replaces the other; also for `.`."""
    return Path(os.path.abspath(target) + NEW), Path(os.path.abspath(target) + OLD)


def settle(target: Path) -> None:
    """Repairs what a kill between two renames left: the new folder is complete then, and replaces the old one."""
    if not os.path.exists(target):  # not target.exists(), which raises for a name that is too long
        for candidate in beside(target):
            if os.path.isfile(candidate / MANIFEST) and not broken(candidate):
                with suppress(OSError):  # the training process that writes it has just renamed it
                    os.replace(candidate, target)
                break
    if os.path.exists(target):
        shutil.rmtree(beside(target)[1], ignore_errors=True)


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
        path = folder / name
        if Path(name).name != name:
            return f"its {MANIFEST} names a file outside the folder"
        if not os.path.isfile(path):
            return f"{name} is missing"
        if path.stat().st_size != size or sha256(path) != digest:
            return f"{name} is not what was written (its sha256 differs from the manifest)"
    return None


def verified(folder: Path, what: str, needs: Collection[str] = ()) -> Path:
    """The folder, once it has been settled and all its files agree with the manifest."""
    settle(folder)
    if not os.path.exists(folder):
        raise SaccadeError(f"no {what} at {folder}; {HINT}")
    if not folder.is_dir():
        raise SaccadeError(f"{folder} is a file, not a {what}; {HINT}")
    if wrong := broken(folder):
        raise SaccadeError(f"{folder} is not an intact {what}: {wrong}; copy it again or use another")
    if missing := sorted(set(needs) - set(listed(folder))):
        raise SaccadeError(f"{folder} is not a {what}: it has no {missing[0]}; {HINT}")
    return folder
