"""Files that survive a kill: at whatever call a process dies, the old or the new is there, whole."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade import files
from saccade.errors import SaccadeError
from saccade.files import (
    MANIFEST,
    MARK,
    broken,
    is_temporary,
    mark,
    settle,
    sha256,
    verified,
    write_atomically,
    write_folder,
)
from support import error_of, raises

# Every call by which the disk changes. A kill comes before one, after one, or in the middle of one.
CALLS = (
    (os, "replace"),
    (os, "fsync"),
    (Path, "unlink"),
    (Path, "rmdir"),
    (Path, "mkdir"),
    (Path, "write_text"),
    (Path, "write_bytes"),
)
PLAIN = {name: getattr(owner, name) for owner, name in CALLS}
MOMENTS = ("before", "during", "after")


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No machine dies here, and thousands of files are written."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


class Killed(BaseException):
    """Stands for kill -9: nothing catches it."""


@contextmanager
def killed_at(
    number: int, moment: str, failure: Callable[[], BaseException] = Killed
) -> Iterator[list[str]]:
    """The calls that are made; the one with this number does not come back."""
    made: list[str] = []

    def wrapped(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            made.append(name)
            if len(made) - 1 == number and moment != "after":
                if moment == "during":
                    half(name, *args)
                raise failure()
            result = plain(*args, **options)
            if len(made) - 1 == number:
                raise failure()
            return result

        return call

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in CALLS:
            patch.setattr(owner, name, wrapped(name, getattr(owner, name)))
        yield made


def half(name: str, *args: Any) -> None:
    """What a call has done when it dies in the middle."""
    if name.startswith("write_"):
        with open(args[0], "wb") as file:
            file.write(b"ha")


def write(target: Path, text: str) -> None:
    write_folder(
        target,
        {
            "a.txt": lambda path: path.write_text(text),
            "b.txt": lambda path: path.write_text(2 * text),
        },
    )


def content(target: Path) -> str | None:
    """The text of the folder, which is whole, or None where none is."""
    settle(target)
    if not target.exists():
        return None
    assert broken(target) is None
    text = (target / "a.txt").read_text()
    assert (target / "b.txt").read_text() == 2 * text
    return text


def calls_of(work: Callable[[], object]) -> list[str]:
    with killed_at(-1, "after") as made:
        work()
    return made


def test_a_folder_is_written_with_its_manifest(tmp_path: Path) -> None:
    write(tmp_path / "m", "one")
    listed = json.loads((tmp_path / "m" / MANIFEST).read_text())["files"]
    assert listed == {
        name: {"sha256": hashlib.sha256(text).hexdigest(), "bytes": len(text)}
        for name, text in {"a.txt": b"one", "b.txt": b"oneone"}.items()
    }
    write(tmp_path / "m", "two")
    assert content(tmp_path / "m") == "two"
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_what_is_written_is_synced_before_it_takes_its_name(tmp_path: Path) -> None:
    """Files, manifest and folder first, then the rename, then the folder above."""
    write(tmp_path / "m", "one")
    made = calls_of(lambda: write(tmp_path / "m", "two"))
    writes = ["write_text", "fsync"] * 3  # two files and the manifest
    mark = ["write_text", "fsync", "fsync"]
    cleared = ["unlink"] * 4 + ["rmdir"]
    assert made == [
        "mkdir",
        *mark,
        *writes,
        "fsync",
        *mark,
        "replace",
        "replace",
        "unlink",
        "fsync",
        *cleared,
    ]


@pytest.mark.parametrize("first", [True, False])
def test_a_kill_at_any_call_leaves_the_old_or_the_new(tmp_path: Path, first: bool) -> None:
    """And a kill while that is put right changes nothing; and the next writing works and cleans up."""

    def prepared(name: str) -> Path:
        target = tmp_path / name / "m"
        target.parent.mkdir()
        if not first:
            write(target, "old")
        return target

    dry = prepared("dry")
    whole = calls_of(lambda: write(dry, "new"))
    assert whole.count("replace") == (1 if first else 2)
    outcomes = set()
    for number in range(len(whole)):
        for moment in MOMENTS:
            for again in range(-1, 3):  # then a second kill, while a reader settles the folder
                target = prepared(f"{number}-{moment}-{again}")
                with pytest.raises(Killed), killed_at(number, moment):
                    write(target, "new")
                try:
                    with killed_at(again, "during"):
                        settle(target)
                except Killed:
                    pass
                found = content(target)
                outcomes.add(found)
                assert found in (("new", None) if first else ("old", "new")), (
                    number,
                    moment,
                    whole[number],
                )
                write(target, "newer")
                assert content(target) == "newer"
                assert [path.name for path in target.parent.iterdir()] == ["m"]
    assert outcomes == ({None, "new"} if first else {"old", "new"})


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_reader_may_come_at_any_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Somebody translates with a model while its training writes the next one."""
    target, seen = tmp_path / "m", set()
    write(target, "old")

    def read() -> None:
        with pytest.MonkeyPatch.context() as alone:
            for owner, name in CALLS:
                alone.setattr(owner, name, PLAIN[name])
            seen.add(content(target))

    def watched(plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if moment == "before":
                read()
            result = plain(*args, **options)
            if moment == "after":
                read()
            return result

        return call

    for owner, name in CALLS:
        monkeypatch.setattr(owner, name, watched(PLAIN[name]))
    write(target, "new")
    monkeypatch.undo()
    assert seen == {"old", "new"}
    assert content(target) == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_where_the_new_one_is_torn_the_old_one_comes_back(tmp_path: Path) -> None:
    """As after a power cut between the two renames, on a disk that lied about what it had written."""
    target = tmp_path / "m"
    write(target, "new")
    mark(target)
    os.rename(target, tmp_path / "m.new")
    (tmp_path / "m.new" / "b.txt").write_text("torn")
    write(target, "old")
    mark(target)
    os.rename(target, tmp_path / "m.old")
    assert content(target) == "old"


def tree(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


FOUND = ("notes", "a whole model", "a file", "a model that was marked, with a folder of one's own")


@pytest.mark.parametrize(
    ("what", "there"), [*((what, True) for what in FOUND), *((what, False) for what in FOUND[:3])]
)
@pytest.mark.parametrize("ending", [".old", ".new"])
def test_what_we_did_not_leave_is_never_touched(
    tmp_path: Path, what: str, ending: str, there: bool
) -> None:
    """Notes, or a copy of a model that somebody keeps beside it: neither reading nor writing removes or renames it."""
    target, other = tmp_path / "m", tmp_path / f"m{ending}"
    if there:
        write(target, "mine")
    if what == "a file":
        other.write_text("mine")
    elif what == "notes":
        other.mkdir()
        (other / "notes.txt").write_text("mine")
    else:
        write(other, "kept")
    if "folder" in what:
        mark(other)
        (other / "inner").mkdir()
        (other / "inner" / "notes.txt").write_text("mine")
    before = tree(tmp_path)
    settle(target)
    assert tree(tmp_path) == before
    sentence = error_of(lambda: write(target, "new"))
    assert sentence == (
        f"cannot write {target}: {other} is in the way, and saccade did not leave it there; move it, or choose another path"
    )
    assert tree(tmp_path) == before


def test_an_empty_folder_is_not_in_the_way(tmp_path: Path) -> None:
    for ending in (".old", ".new"):
        (tmp_path / f"m{ending}").mkdir()
    write(tmp_path / "m", "one")
    write(tmp_path / "m", "two")
    assert content(tmp_path / "m") == "two"
    assert not (tmp_path / "m" / MARK).exists()


def test_a_file_of_a_process_that_ended_is_known_and_that_of_a_living_one_too(
    tmp_path: Path,
) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    names = {
        f".recipe.json.{ended.pid}.new": True,
        f".recipe.json.{os.getppid()}.new": False,
        f".recipe.json.{os.getpid()}.new": True,  # as in a container, where the first process is always number 1
        "recipe.json": False,
        ".x.new": False,
    }
    for name, gone in names.items():
        (tmp_path / name).write_text("{")
        assert is_temporary(tmp_path / name) == gone


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EACCES, errno.EIO])
def test_a_failing_disk_is_reported_and_costs_nothing(tmp_path: Path, error: int) -> None:
    write(tmp_path / "dry", "old")
    whole = calls_of(lambda: write(tmp_path / "dry", "new"))
    for number in range(len(whole)):
        target = tmp_path / str(number)
        write(target, "old")
        if number > len(whole) - 6:
            continue  # the new one is there; that the old one stays a while is no harm
        with killed_at(number, "before", lambda: OSError(error, os.strerror(error))):
            sentence = error_of(lambda target=target: write(target, "new"))  # type: ignore[misc]
        advice = {
            errno.ENOSPC: "free some disk space, or choose",
            errno.EIO: "check the disk, or choose",
        }.get(error, "choose")
        room = r": [\d,]+ bytes are needed and [\d,]+ are free.*" if error == errno.ENOSPC else ""
        assert re.fullmatch(
            f"cannot write {target}: {os.strerror(error)}{room}; {advice} another path", sentence
        )
        assert not (tmp_path / f"{number}.new").exists()
        assert content(target) in ("old", "new")
        write(target, "newer")
        assert content(target) == "newer"


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "x.json"
    write_atomically(path, b"old")
    whole = calls_of(lambda: write_atomically(path, b"old"))
    assert whole == ["mkdir", "write_bytes", "fsync", "replace", "fsync"]
    for number in range(len(whole)):
        for moment in MOMENTS:
            write_atomically(path, b"old")
            with pytest.raises(Killed), killed_at(number, moment):
                write_atomically(path, b"new")
            assert path.read_bytes() in (b"old", b"new")
    for number in range(len(whole)):
        full = lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with (
            pytest.raises(
                SaccadeError, match=r"No space left on device: 5 bytes are needed and .* free some"
            ),
            killed_at(number, "before", full),
        ):
            write_atomically(path, b"newer")
    assert len(list(path.parent.iterdir())) <= 2, (
        "what could not be written is removed; the one kill above left its part"
    )


@pytest.mark.parametrize("name", ["file/x", "file/deep/x", "long" * 100])
def test_a_path_that_cannot_be_written_is_reported(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("mine")
    for work in (
        lambda: write_atomically(tmp_path / name, b"x"),
        lambda: write(tmp_path / name, "x"),
    ):
        with raises("cannot-write", match=r"cannot write .*; choose another path$"):
            work()
    with raises("cannot-write", match=r"cannot write .*: Is a directory"):
        write_atomically(tmp_path, b"x")
    assert (tmp_path / "file").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_file_instead_of_a_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("mine")
    with raises("not-a-folder", match="m: it is a file, not a folder; choose another path"):
        write(tmp_path / "m", "x")
    assert (tmp_path / "m").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_long_name_is_not_an_obstacle(tmp_path: Path) -> None:
    path = tmp_path / ("ü" * 120 + ".json")
    write_atomically(path, b"x")
    assert path.read_bytes() == b"x"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("missing", "no model folder at {}; give the path of a folder written by `saccade train`"),
        ("file", "{} is a file, not a model folder"),
        (
            "empty",
            "{} is not an intact model folder: it has no manifest.json; copy it again or use another",
        ),
        ("long" * 100, "no model folder at {}"),
    ],
)
def test_what_is_not_our_folder_is_reported(tmp_path: Path, name: str, sentence: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    assert error_of(lambda: verified(tmp_path / name, "model folder")).startswith(
        sentence.format(tmp_path / name)
    )


def test_the_files_that_are_needed_must_be_listed(tmp_path: Path) -> None:
    write(tmp_path / "m", "x")
    assert verified(tmp_path / "m", "model folder", ["a.txt"]) == tmp_path / "m"
    with raises("folder-incomplete"):
        verified(tmp_path / "m", "model folder", ["a.txt", "config.json"])
    write_folder(tmp_path / "none", {})
    assert broken(tmp_path / "none") == "its manifest.json does not list any file"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=6,
)
entries = st.fixed_dictionaries({"sha256": values | st.just("0" * 64), "bytes": values})


@given(
    st.one_of(
        values,
        st.fixed_dictionaries({"files": values | st.dictionaries(st.text(max_size=5), entries)}),
    )
)
def test_no_manifest_whatever_is_in_it_gives_more_than_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, manifest: Any
) -> None:
    folder = tmp_path_factory.mktemp("m")
    (folder / "a.txt").write_text("x")
    (folder / MANIFEST).write_text(json.dumps(manifest))
    assert broken(folder) is not None
    with raises("folder-damaged"):
        verified(folder, "model folder")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[" * 100_000, '{"files": {"a": {"sha256": "0", "bytes": Infinity}}}', "\udcff"],
)
def test_a_manifest_that_is_not_json_is_reported(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_bytes(text.encode(errors="surrogateescape"))
    assert broken(tmp_path) == "its manifest.json is unreadable"


def test_sha256_is_that_of_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "big"
    path.write_bytes(os.urandom(1 << 20) + b"tail")
    assert sha256(path) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_files_are_written_where_folders_cannot_be_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "WINDOWS", True)
    made = calls_of(lambda: write_atomically(tmp_path / "run" / "a.txt", b"a"))
    assert made == ["mkdir", "write_bytes", "replace"]
    assert (tmp_path / "run" / "a.txt").read_bytes() == b"a"


HOLD = """
import sys, time
from pathlib import Path
from saccade.files import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_killed_process_frees_its_lock(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run)], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        try:
            with raises("run-folder-locked"), files.held(run):
                pass
        finally:
            other.kill()
        other.wait()
        with files.held(run):
            pass


def test_a_lock_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "run" / files.LOCK).mkdir(parents=True)
    with (
        pytest.raises(SaccadeError, match=r"cannot write .*run: .*; choose another path$"),
        files.held(tmp_path / "run"),
    ):
        pass
    (tmp_path / "file").touch()
    with (
        pytest.raises(SaccadeError, match=r"cannot write .*file: .*; choose another path$"),
        files.held(tmp_path / "file"),
    ):
        pass
