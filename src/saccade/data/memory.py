"""How much memory is free, and examples that may take no more than a share of it."""

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from ..errors import SaccadeError
from .lines import LineError

# examples may take a quarter of the free memory; token numbers and a batch need memory too
MEMORY_SHARE = 4
ROOT = Path("/")
# cgroups version 2 and 1: the folder, the limit, the usage, and the part of the usage that is cache
CGROUP_FILES = {
    "": ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    "memory": (
        "sys/fs/cgroup/memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file",
    ),
}
Item = TypeVar("Item")


def free_bytes() -> float:
    """The memory that this process can still take: what the system has available, within the limits of its cgroups and of RLIMIT_AS;
    infinity where the system does not say."""
    return max(0.0, min([float("inf"), *_available(), *_in_groups(), *_of_addresses()]))


def _fields(path: Path, unit: int = 1) -> dict[str, int]:
    """The numbers in a file of lines `name number`."""
    try:
        rows = [line.replace(":", "").split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {row[0]: unit * int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def _available() -> Iterator[float]:
    found = _fields(ROOT / "proc/meminfo", 1024)
    if "MemAvailable" in found:
        yield found["MemAvailable"]


def _in_groups() -> Iterator[float]:
    """What the limits of the process's cgroup and of those around it leave."""
    try:
        groups = [
            line.split(":", 2) for line in (ROOT / "proc/self/cgroup").read_text().splitlines()
        ]
    except OSError:
        return
    for _, controllers, name in groups:
        for kind in CGROUP_FILES.keys() & controllers.split(","):
            at, limit, used, cached = CGROUP_FILES[kind]
            inner = Path(name.lstrip("/"))
            for folder in (ROOT / at / part for part in (inner, *inner.parents)):
                try:
                    most, now = ((folder / file).read_text().strip() for file in (limit, used))
                except OSError:  # in a container the group has another name than outside
                    continue
                if most.isdigit():
                    yield int(most) - int(now) + _fields(folder / "memory.stat").get(cached, 0)


def _of_addresses() -> Iterator[float]:
    try:
        import resource
    except ImportError:
        return
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    used = _fields(ROOT / "proc/self/status", 1024).get("VmSize", 0)
    if limit != resource.RLIM_INFINITY:
        yield limit - used


def footprint(item: Any) -> int:
    """The bytes of an example with its texts."""
    parts = (
        item
        if isinstance(item, tuple)
        else (getattr(item, name) for name in getattr(type(item), "__slots__", ()))
    )
    return sys.getsizeof(item) + sum(map(footprint, parts))


def within_memory(items: Iterable[Item], where: Any) -> Iterator[Item]:
    """The items as they are; more than fit into a share of the free memory are an error. Lines that are errors are not kept."""
    size, room = 0, free_bytes() / MEMORY_SHARE
    for item in items:
        size += 0 if isinstance(item, LineError) else footprint(item)
        if size > room:
            name = where if isinstance(where, str | os.PathLike) else ", ".join(map(str, where))
            what = f"{name} takes more than {room:,.0f} bytes of memory, a quarter of what is free"
            raise SaccadeError(
                f"{what}; divide it and name a part, or use a machine with more memory",
                code="too-large",
            )
        yield item
