"""The disk: what it refuses becomes a sentence, what is written reaches it, and one process at a time has a folder. Imports errors alone."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import SaccadeError

try:
    import fcntl
except ImportError:  # Windows, where two processes that train into one folder are not noticed
    fcntl = None  # type: ignore[assignment]

FULL = (errno.ENOSPC, errno.EDQUOT)
BLOCK = 4096  # bytes: what a new folder takes at least


@contextmanager
def report_disk(
    target: Path, clean: Callable[[], object] = lambda: None, needed: Callable[[], int] = lambda: BLOCK
) -> Iterator[None]:
    """Within the `with`, an error of the disk becomes a sentence about the target, after `clean`; `needed` gives the bytes that did
    not fit on a full disk."""
    try:
        yield
    except OSError as error:
        size = BLOCK
        with suppress(OSError):
            size = needed()
            clean()
        why, advice = error.strerror or error, "choose another path"
        if error.errno in FULL:
            free = shutil.disk_usage(next(path for path in (target.absolute(), *target.absolute().parents) if path.exists())).free
            why = f"{why}: {size:,} bytes are needed and {free:,} are free"
            why += ", so a quota or the number of files is used up" * (free > size)
            advice = "free some disk space, or choose another path"
        elif error.errno == errno.EIO:
            advice = "check the disk, or choose another path"
        raise SaccadeError(f"cannot write {target}: {why}; {advice}") from None


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
        raise SaccadeError(f"another process is training into {folder}; wait for it, or choose another out=…") from None
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


def weight(folder: Path) -> int:
    """The bytes of a folder's files."""
    return sum(path.stat().st_size for path in folder.iterdir()) if folder.is_dir() else BLOCK
