"""Files that survive a kill: written to a temporary name, synced, renamed. Imports nothing but errors and disk; any package may import it."""

import errno
import hashlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from .errors import SaccadeError

WINDOWS = os.name == "nt"
FULL = (errno.ENOSPC, errno.EDQUOT)
MIN_FOLDER_BYTES = 4096  # bytes: what a new folder takes at least


@contextmanager
def report_disk(
    target: Path,
    clean: Callable[[], object] = lambda: None,
    needed: Callable[[], int] = lambda: MIN_FOLDER_BYTES,
) -> Iterator[None]:
    """Within the `with`, an error of the disk becomes a sentence about the target, after `clean`; `needed` gives the bytes that did
    not fit on a full disk."""
    try:
        yield
    except OSError as error:
        size = MIN_FOLDER_BYTES
        with suppress(OSError):
            size = needed()
            clean()
        why, advice = error.strerror or error, "choose another path"
        if error.errno in FULL:
            free = shutil.disk_usage(
                next(
                    path
                    for path in (target.absolute(), *target.absolute().parents)
                    if path.exists()
                )
            ).free
            why = f"{why}: {size:,} bytes are needed and {free:,} are free"
            why += ", so a quota or the number of files is used up" * (free > size)
            advice = "free some disk space, or choose another path"
        elif error.errno == errno.EIO:
            advice = "check the disk, or choose another path"
        raise SaccadeError(f"cannot write {target}: {why}; {advice}", code="cannot-write") from None


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Lock a folder against other processes within the `with`; the lock ends with the process, even a killed one."""
    from filelock import FileLock, Timeout  # with asyncio, which takes a while to load

    lock = FileLock(folder / LOCK)
    with report_disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            raise SaccadeError(
                f"another process is training into {folder}; wait for it, or choose another out=…",
                code="run-folder-locked",
            ) from None
    try:
        yield
    finally:
        with suppress(OSError):  # gone with the folder, or on Windows, where an open file stays
            os.unlink(folder / LOCK)
        lock.release()


def sync(path: Path) -> None:
    """Ask the disk to store a file's content or a folder's list of names; Windows cannot open a folder."""
    if WINDOWS:
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def weight(folder: Path) -> int:
    """The bytes of a folder's files."""
    return (
        sum(path.stat().st_size for path in folder.iterdir())
        if folder.is_dir()
        else MIN_FOLDER_BYTES
    )


MANIFEST = "manifest.json"
NEW, OLD = ".new", ".old"
LOCK = ".lock"
MARK = ".saccade-temporary"  # marks a folder that is being written or replaced and may be removed
# what `write_atomically` writes first, with the number of its process
TEMPORARY = re.compile(r"\..+\.(\d{1,9})\.new")
MAX_MANIFEST_BYTES = 2**20  # bytes of a manifest
HINT = "give the path of a folder written by `saccade train`"
Writer = Callable[[Path], object]
T = TypeVar("T")


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file completely, or leave the old one."""
    # a file's name has at most 255 bytes
    temporary = path.with_name(f".{path.name[:50]}.{os.getpid()}{NEW}")
    with report_disk(path, temporary.unlink, lambda: len(content)):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_folder(target: Path, writers: Mapping[str, Writer], size: int = 0) -> None:
    """A folder of files and their manifest instead of the one that is there; `writers` maps a file's name to what writes it, `size` is
    about how many bytes they have together."""
    with replaced(target, size) as new:
        write_files(new, writers)


def write_once(target: Path, writers: Mapping[str, Writer], size: int = 0) -> None:
    """A folder of files where none is; one that is complete and equal is accepted, as a killed process may have left it."""
    settle(target)
    if not os.path.exists(target) or (target.is_dir() and not any(target.iterdir())):
        write_folder(target, writers, size)
        return
    if broken(target) or {path.name for path in target.iterdir()} - {MARK} != {*writers, MANIFEST}:
        raise SaccadeError(
            f"{target} already exists; choose a new folder with out=…", code="folder-exists"
        )
    make_room(target)
    new = beside(target)[0]
    with report_disk(new, lambda: clear(new), lambda: max(size, weight(new))):
        new.mkdir(exist_ok=True)
        mark(new)
        write_files(new, writers)
        equal = all(sha256(new / name) == sha256(target / name) for name in writers)
        clear(new)
        if equal:
            (target / MARK).unlink(missing_ok=True)
    if not equal:
        raise SaccadeError(
            f"{target} already exists, with other content; choose a new folder with out=…",
            code="folder-exists",
        )


def write_files(folder: Path, writers: Mapping[str, Writer]) -> None:
    for name, write in writers.items():
        write(folder / name)
        sync(folder / name)


@contextmanager
def replaced(target: Path, size: int = 0) -> Iterator[Path]:
    """Within the `with`, a new folder to write files into; it then gets its manifest and replaces the target (see `settle`)."""
    target = followed(target)
    settle(target)
    if os.path.exists(target) and not target.is_dir():
        raise SaccadeError(
            f"cannot write {target}: it is a file, not a folder; choose another path",
            code="not-a-folder",
        )
    make_room(target)
    new, old = beside(target)

    def clean() -> None:
        settle(target)  # a failing second rename left a complete new folder, and no target
        if os.path.exists(target) or not os.path.exists(old):
            clear(new)
            clear(old)
            new.rmdir()  # without its mark, when that could not be written

    with report_disk(target, clean, lambda: max(size, weight(new))):
        new.mkdir(parents=True, exist_ok=True)
        mark(new)
        yield new
        files = (path for path in sorted(new.iterdir()) if path.name != MARK)
        rows = {path.name: {"sha256": sha256(path), "bytes": path.stat().st_size} for path in files}
        (new / MANIFEST).write_text(json.dumps({"files": rows}, indent=2) + "\n", encoding="utf-8")
        sync(new / MANIFEST)  # with it the folder is complete
        sync(new)
        if target.exists():
            mark(target)
            os.replace(target, old)
        try:
            os.replace(new, target)
        except FileNotFoundError:
            if not target.exists():  # else a reader's `settle` was quicker
                raise
        (target / MARK).unlink(missing_ok=True)
        sync(target.parent)
    clear(old)


def beside(target: Path) -> tuple[Path, Path]:
    """Where the new and the old folder are while one replaces the other; also for `.`."""
    path = os.path.abspath(followed(target))
    return Path(path + NEW), Path(path + OLD)


def followed(target: Path) -> Path:
    """The folder that a link points to, which may be on another disk: that one is replaced, and the link stays."""
    return Path(os.path.realpath(target)) if os.path.islink(target) else target


def mark(folder: Path) -> None:
    """Notes in a folder that it may be removed, before anything else is done with it."""
    (folder / MARK).write_text(
        "saccade was writing or replacing this folder; it may be removed\n", encoding="utf-8"
    )
    sync(folder / MARK)
    sync(folder)


def is_marked(folder: Path) -> bool:
    """Whether we left this folder ourselves: it has our mark, and nothing inside that we would not write."""
    return (
        os.path.isfile(folder / MARK)
        and not folder.is_symlink()
        and all(path.is_file() for path in folder.iterdir())
    )


def clear(folder: Path) -> None:
    """Removes a folder that we left; the mark goes last, so that a kill leaves a folder that is still known as ours."""
    with suppress(OSError):
        if is_marked(folder):
            for path in sorted(folder.iterdir(), key=lambda path: path.name == MARK):
                path.unlink()
            folder.rmdir()


def make_room(target: Path) -> None:
    """Remove what a killed process left beside the target; refuse if anything else is there."""
    for path in beside(target):
        clear(path)
        if os.path.lexists(path) and (
            path.is_symlink() or not path.is_dir() or any(path.iterdir())
        ):
            raise SaccadeError(
                f"cannot write {target}: {path} is in the way, and saccade did not leave it there; move it, or choose another path",
                code="foreign-files",
            )


def settle(target: Path) -> None:
    """Repairs what a kill between two renames left: the new folder is complete then, and takes the target's name. Removes nothing."""
    target = followed(target)
    if os.path.exists(target):  # not target.exists(), which raises for a name that is too long
        return
    for candidate in beside(target):
        if os.path.isfile(candidate / MARK) and not broken(candidate):
            with suppress(OSError):  # the training process that writes it has just renamed it
                os.replace(candidate, target)
            break


def is_temporary(path: Path) -> bool:
    """Whether a process that has ended left this file, which was to become another one; this process is not writing any."""
    found = TEMPORARY.fullmatch(path.name)
    if found is None or not path.is_file():
        return False
    # in a container, a process that starts again has the number of the one that was killed
    if int(found[1]) == os.getpid():
        return True
    try:
        os.kill(int(found[1]), 0)
    except ProcessLookupError:
        return True
    except OSError:  # alive, and of another user
        pass
    return False


def tidy(run: Path) -> None:
    """Clears what killed processes left in a run folder, which this process holds."""
    with report_disk(run):
        for path in [path for path in run.iterdir() if is_temporary(path)]:
            path.unlink(missing_ok=True)
        for name in ("last", "best"):
            settle(run / name)
            make_room(run / name)
            for path in beside(run / name):
                with suppress(OSError):
                    path.rmdir()  # empty: its last removal failed
            (run / name / MARK).unlink(missing_ok=True)


def plain_size(path: Path) -> int | None:
    """The bytes of a file; None where there is none, or a link, a pipe or a device: a downloaded folder must not choose which file is opened
    outside it, nor a file that never ends."""
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def read_plain(path: Path, most: int) -> bytes:
    """The content of a plain file (see `plain_size`) of at most so many bytes; anything else is an OSError."""
    size = plain_size(path)
    if size is None or size > most:
        raise OSError(
            f"it has {size:,} bytes, more than {most:,}" if size else "it is not a plain file"
        )
    return path.read_bytes()


def listed(folder: Path) -> list[str]:
    """The names in the manifest of a folder that is not broken."""
    return list(json.loads(read_plain(folder / MANIFEST, MAX_MANIFEST_BYTES))["files"])


def broken(folder: Path) -> str | None:
    """What is wrong with a folder by its manifest; None when nothing is."""
    try:
        rows = json.loads(read_plain(folder / MANIFEST, MAX_MANIFEST_BYTES))["files"]
        facts = {str(name): (str(row["sha256"]), int(row["bytes"])) for name, row in rows.items()}
    except OSError as error:
        return (
            f"its {MANIFEST} cannot be used ({error})"
            if os.path.lexists(folder / MANIFEST)
            else f"it has no {MANIFEST}"
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return f"its {MANIFEST} is unreadable"
    if not facts:
        return f"its {MANIFEST} does not list any file"
    for name, (digest, size) in facts.items():
        path, there = folder / name, plain_size(folder / name)
        if Path(name).name != name:
            return f"its {MANIFEST} names a file outside the folder"
        if there is None:
            return f"{name} is {'a link, a folder or a device, not a file' if os.path.lexists(path) else 'missing'}"
        if there != size or sha256(path) != digest:
            return f"{name} is not what was written (its sha256 differs from the manifest)"
    return None


def read_again(folder: Path, read: Callable[[], T]) -> T:
    """What `read` gives; when it fails, and a training process has replaced the folder in the meantime, it reads once more."""
    for _ in range(50):
        before = stamp(folder)
        try:
            return read()
        except (SaccadeError, OSError):
            if stamp(folder) == before:
                raise
            time.sleep(0.02)  # the folder is not there between two renames
    return read()


def stamp(folder: Path) -> tuple[int, int] | None:
    """What changes when a folder is replaced; None while it is not there."""
    with suppress(OSError):
        facts = os.stat(folder / MANIFEST)
        return facts.st_ino, facts.st_mtime_ns
    return None


def verified(folder: Path, what: str, needs: Collection[str] = ()) -> Path:
    """The folder, once it has been settled and all its files agree with the manifest."""
    settle(folder)
    if not os.path.exists(folder):
        raise SaccadeError(f"no {what} at {folder}; {HINT}", code="no-folder")
    if not folder.is_dir():
        raise SaccadeError(f"{folder} is a file, not a {what}; {HINT}", code="not-a-folder")

    def check() -> None:
        if wrong := broken(folder):
            raise SaccadeError(
                f"{folder} is not an intact {what}: {wrong}; copy it again or use another",
                code="folder-damaged",
            )

    read_again(folder, check)
    if missing := sorted(set(needs) - set(listed(folder))):
        raise SaccadeError(
            f"{folder} is not a {what}: it has no {missing[0]}; {HINT}", code="folder-incomplete"
        )
    return folder
