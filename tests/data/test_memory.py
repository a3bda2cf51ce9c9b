"""Free memory as the system states it, and data that may take no more than a share of it."""

from __future__ import annotations

import gzip
import os
import resource
import sys
import tracemalloc
from functools import partial
from pathlib import Path

import pytest

from saccade.data import lines, memory
from saccade.data.bad_lines import Skipped
from saccade.data.corpora import DOCUMENTS, LABELED, PAIRS, SENTENCES, Kind, read
from saccade.data.findings import check, report
from saccade.data.pairs import Pair
from support import error_of

MIB = 2**20


def make_system(root: Path, files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(memory, "ROOT", root)
    monkeypatch.setattr(
        resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    )


MEMINFO = {"proc/meminfo": "MemTotal:  9000 kB\nMemFree: 10 kB\nMemAvailable:    8192 kB\n"}
V2 = {
    "proc/self/cgroup": "0::/a/b\n",
    "sys/fs/cgroup/a/memory.max": f"{6 * MIB}\n",
    "sys/fs/cgroup/a/memory.current": f"{3 * MIB}\n",
}
V1 = {
    "proc/self/cgroup": "12:cpu,cpuacct:/x\n7:memory:/x\n",
    "sys/fs/cgroup/memory/x/memory.limit_in_bytes": f"{5 * MIB}",
    "sys/fs/cgroup/memory/x/memory.usage_in_bytes": f"{4 * MIB}",
}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, float("inf")),
        (MEMINFO, 8 * MIB),
        (MEMINFO | V2, 3 * MIB),  # the limit of the group around it
        (MEMINFO | V2 | {"sys/fs/cgroup/a/memory.stat": f"anon 5\ninactive_file {MIB}\n"}, 4 * MIB),
        (
            MEMINFO
            | V2
            | {"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/b/memory.current": "7\n"},
            3 * MIB,
        ),
        (
            V2
            | {
                "proc/self/cgroup": "0::/elsewhere/c\n",
                "sys/fs/cgroup/memory.max": "100",
                "sys/fs/cgroup/memory.current": "40",
            },
            60,
        ),
        (MEMINFO | V1, MIB),
        (V1 | {"sys/fs/cgroup/memory/x/memory.usage_in_bytes": f"{9 * MIB}"}, 0),
    ],
)
def test_free_memory_is_the_least_of_what_the_system_and_its_groups_leave(
    files: dict[str, str], expected: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_system(tmp_path, files, monkeypatch)
    assert memory.free_bytes() == expected


def test_a_limit_of_addresses_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_system(
        tmp_path, MEMINFO | {"proc/self/status": "Name:\tpython\nVmSize:\t 1024 kB\n"}, monkeypatch
    )
    monkeypatch.setattr(resource, "getrlimit", lambda _: (4 * MIB, 9 * MIB))
    assert memory.free_bytes() == 3 * MIB


FILES = {
    "a.tsv": (PAIRS, "the cat\tle chat\n"),
    "a.en,a.fr": (PAIRS, "the cat\n"),
    "a.csv": (LABELED, "a fine film,good\n"),
    "a.jsonl": (SENTENCES, '{"words": ["the", "cat"], "tags": ["D", "N"]}\n'),
    "a.txt": (DOCUMENTS, "the cat\n"),
}


@pytest.mark.parametrize("where", FILES)
def test_data_may_take_a_quarter_of_the_free_memory(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kind, line = FILES[where]
    header = "text,label\n" if where == "a.csv" else ""
    for name in where.split(","):
        Path(name).write_text(header + line * 20_000)
    monkeypatch.setattr(memory, "free_bytes", lambda: 400_000.0)
    sentence = "takes more than 100,000 bytes of memory, a quarter of what is free; divide it and name a part"
    for skipped in (None, Skipped()):
        assert sentence in error_of(partial(read, kind, where, skipped=skipped))
    for name in where.split(","):
        Path(name).write_text(header + line * 10)
    assert read(kind, where)


def test_check_reports_where_the_memory_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("one\ttwo\n" * 1000)
    pair = Pair("one", "two", 1)
    each = (
        sys.getsizeof(pair) + 2 * sys.getsizeof("one") + sys.getsizeof(1) + 3 * sys.getsizeof(None)
    )
    monkeypatch.setattr(memory, "free_bytes", lambda: 4.0 * 300 * each)
    found = check([str(path)])
    assert found.count == 300
    assert (found.errors, "takes more than" in found.findings[0].sentence) == (1, True)


def test_short_lines_of_a_packed_file_count_with_what_they_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MIN_UNPACKED_BYTES", 1_000_000)
    path = tmp_path / "a.tsv.gz"
    path.write_bytes(gzip.compress(b"a\tb\n" * 50_000))
    assert "unpacks to lines that take more than 1,000,000 bytes of memory" in error_of(
        lambda: read(PAIRS, str(path))
    )
    path.write_bytes(gzip.compress(b"a\tb\n" * 4000))
    assert len(read(PAIRS, str(path))) == 4000


def test_a_report_takes_little_beside_the_examples() -> None:
    pairs = [Pair(f"the cat {n}", f"le chat {n}", n) for n in range(20_000)]
    tracemalloc.start()
    found = report("pairs", pairs, "a.tsv")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.lengths["source"]["words"] == 60_000
    assert peak / len(pairs) < 300


@pytest.mark.parametrize("kind", [PAIRS, LABELED, SENTENCES, DOCUMENTS])
def test_devices_and_named_pipes_are_refused_before_they_are_read(
    kind: Kind, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe.tsv")
    device = tmp_path / "zero.tsv"
    device.symlink_to("/dev/zero")
    for path in (tmp_path / "pipe.tsv", device):
        assert error_of(partial(lines.one_file, path, "a file")) == (
            f"{path}: expected a file, got a named pipe, a socket or a device; give a file"
        )
        assert "expected a file, got a named pipe" in error_of(partial(read, kind, str(path)))


def test_an_open_pipe_is_read_and_a_line_in_it_that_never_ends_is_an_error() -> None:
    for content, expected in ((b"one\ntwo\n", [b"one\n", b"two\n"]), (b"x" * 60_000, None)):
        read_end, write_end = os.pipe()
        os.write(write_end, content)
        if expected:
            os.close(write_end)  # the other one stays open: its reader would wait for ever
        path = Path(f"/dev/fd/{read_end}")
        if expected:
            assert list(lines.raw_lines(path)) == expected
        else:
            assert "line 1: no end within 1,000 bytes" in error_of(
                lambda path=path: list(lines.raw_lines(path, 1000))
            )
            os.close(write_end)
        os.close(read_end)
