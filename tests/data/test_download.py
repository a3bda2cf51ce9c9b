"""Fetching sets from a server that cuts, lies, redirects or is not there: what arrives is checked, and nothing lands outside."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import re
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from saccade.data import download as fetching
from saccade.data import sets
from saccade.data.lines import one_file
from support import error_of, run_cli

ROOT = Path(__file__).parents[2]
TEXT = b"".join(b"line %d\n" % n for n in range(20_000))


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Server:
    """A web server of some files that notes what was asked for; `cut` bytes are sent of an answer where it is set."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.cut: list[int] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def answer(self, handler: Any) -> None:
        name, wanted = handler.path.lstrip("/"), handler.headers.get("Range")
        self.asked.append((name, wanted))
        if name in self.redirects:
            handler.send_response(302)
            handler.send_header("Location", self.redirects[name])
            handler.end_headers()
            return
        if name not in self.files:
            handler.send_error(404)
            return
        content, start = (
            self.files[name],
            int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0,
        )
        if wanted and start >= len(content):
            handler.send_error(416)
            return
        handler.send_response(206 if wanted else 200)
        if wanted:
            handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        handler.send_header("Content-Length", str(len(content) - start))
        handler.end_headers()
        handler.wfile.write(
            content[start : start + self.cut.pop(0)] if self.cut else content[start:]
        )


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server with the set `toy`: a plain file, a packed one and a member of an archive."""
    made = Server()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("../../outside.txt", "never written")
        opened.writestr("inner/data.txt", TEXT)
    made.files = {"a.txt": TEXT, "b.txt": b"b\n", "c.zip": archive.getvalue()}
    row = {
        "about": "A toy", "license": "CC0", "cite": "nobody",
        "downloads": {
            "a.txt": {"url": made.url + "a.txt", "bytes": len(TEXT), "sha256": sha(TEXT)},
            "b.txt": {"url": made.url + "b.txt", "bytes": 2, "sha256": sha(b"b\n")},
            "c.zip": {"url": made.url + "c.zip", "bytes": 10**6, "member": "inner/data.txt", "member_bytes": 10**6, "sha256": sha(TEXT)},
        },
        "files": {"a.txt.xz": {"from": ["a.txt"]}, "b.txt": {"from": ["b.txt"]}, "c.txt": {"from": ["c.zip"]}},
    }  # fmt: skip
    monkeypatch.setattr(sets, "sets", lambda: {"toy": row})
    monkeypatch.setattr(fetching, "sets", sets.sets)
    monkeypatch.setenv("SACCADE_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.chdir(tmp_path)
    yield made
    made.http.shutdown()
    made.http.server_close()


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_set_is_fetched_once_and_found_by_its_path(server: Server, tmp_path: Path) -> None:
    assert (
        error_of(lambda: one_file("data/toy/b.txt", "x"))
        == "data/toy/b.txt is not there; `saccade fetch toy` gets it"
    )
    assert "did you mean" not in error_of(lambda: one_file("data/toy/other.txt", "x"))
    printed = run_cli("fetch", "toy", "--json")
    assert printed.code == 0
    assert printed.json["files"] == ["a.txt.xz", "b.txt", "c.txt"]
    assert "license: CC0" in printed.err
    assert "cite: nobody" in printed.err
    assert files_below(tmp_path) == ["cache/toy/a.txt.xz", "cache/toy/b.txt", "cache/toy/c.txt"], (
        "no member lands by its own name"
    )
    assert lzma.decompress((tmp_path / "cache/toy/a.txt.xz").read_bytes()) == TEXT
    assert one_file("data/toy/b.txt", "x") == tmp_path / "cache/toy/b.txt"
    asked = len(server.asked)
    assert run_cli("fetch", "toy").code == 0
    assert len(server.asked) == asked, "what is there is not fetched again"
    (tmp_path / "data/toy").mkdir(parents=True)
    (tmp_path / "data/toy/b.txt").write_text("mine")
    assert one_file("data/toy/b.txt", "x") == Path("data/toy/b.txt"), (
        "the working directory comes first"
    )


def test_a_cut_download_continues_where_it_ended(server: Server, tmp_path: Path) -> None:
    server.cut = [70_000, 50_000]
    fetching.fetch("toy", tmp_path)
    assert server.asked[:3] == [
        ("a.txt", None),
        ("a.txt", "bytes=70000-"),
        ("a.txt", "bytes=120000-"),
    ]
    assert lzma.decompress((tmp_path / "toy/a.txt.xz").read_bytes()) == TEXT


def test_ctrl_c_keeps_what_has_come(server: Server, tmp_path: Path) -> None:
    def stop(_: str, done: int, __: int) -> None:
        if done > 100_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetching.fetch("toy", tmp_path, stop)
    have = (tmp_path / "toy/downloads/a.txt.part").stat().st_size
    assert 0 < have < len(TEXT)
    fetching.fetch("toy", tmp_path)
    assert ("a.txt", f"bytes={have}-") in server.asked
    assert files_below(tmp_path / "toy") == ["a.txt.xz", "b.txt", "c.txt"]


def test_a_part_of_another_file_is_thrown_away(server: Server, tmp_path: Path) -> None:
    (tmp_path / "toy/downloads").mkdir(parents=True)
    (tmp_path / "toy/downloads/b.txt.part").write_bytes(b"longer than b.txt")
    fetching.fetch("toy", tmp_path)
    assert (tmp_path / "toy/b.txt").read_bytes() == b"b\n"


def test_a_wrong_file_is_refused(server: Server, tmp_path: Path) -> None:
    server.files["b.txt"] = b"x\n"
    sentence = error_of(lambda: fetching.fetch("toy", tmp_path))
    assert (
        sentence == f"{server.url}b.txt is not the expected file (its sha256 differs); get it again"
    )
    assert "toy/b.txt" not in files_below(tmp_path)
    assert "toy/downloads/b.txt" not in files_below(tmp_path)
    server.files["b.txt"] = b"far too long\n"
    assert "b.txt is larger than the 2 bytes that it should have" in error_of(
        lambda: fetching.fetch("toy", tmp_path)
    )
    assert not [name for name in files_below(tmp_path) if "b.txt" in name]


def test_a_changed_file_is_noticed_and_kept(server: Server, tmp_path: Path) -> None:
    fetching.fetch("toy", tmp_path)
    (tmp_path / "toy/b.txt").write_text("mine")
    assert "b.txt is not the published file (its sha256 differs); remove it" in error_of(
        lambda: fetching.fetch("toy", tmp_path)
    )
    assert (tmp_path / "toy/b.txt").read_text() == "mine"


def test_an_archive_is_read_by_the_name_that_is_wanted(server: Server, tmp_path: Path) -> None:
    row = sets.sets()["toy"]["downloads"]["c.zip"]
    server.files["c.zip"] = b"not an archive"
    assert "has no readable 'inner/data.txt'" in error_of(lambda: fetching.fetch("toy", tmp_path))
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("inner/data.txt", bytes(row["member_bytes"] + 1))
    (tmp_path / "toy/downloads/c.zip").write_bytes(archive.getvalue())
    assert "'inner/data.txt' in" in error_of(lambda: fetching.fetch("toy", tmp_path))


def test_redirects_stay_on_the_web(server: Server, tmp_path: Path) -> None:
    row = sets.sets()["toy"]["downloads"]["b.txt"]
    server.redirects["b.txt"], server.files["moved"] = f"{server.url}moved", b"b\n"
    fetching.fetch("toy", tmp_path / "one")
    server.redirects["b.txt"] = "file:///etc/hostname"
    assert "b.txt from 127.0.0.1" in error_of(lambda: fetching.fetch("toy", tmp_path / "two"))
    row["url"] = "file:///etc/hostname"
    assert "is not a web address; expected https" in error_of(
        lambda: fetching.fetch("toy", tmp_path / "three")
    )


def test_without_the_network_the_sentence_says_what_to_put_where(
    server: Server, tmp_path: Path
) -> None:
    del server.files["b.txt"]
    printed = run_cli("fetch", "toy")
    target = tmp_path / "cache/toy/downloads/b.txt"
    assert printed.code == 2
    assert "cannot get b.txt from 127.0.0.1" in printed.err
    assert "(it answers 404 Not Found)" in printed.err
    assert f"download {server.url}b.txt yourself, put it at {target} and run it then" in printed.err
    target.write_bytes(b"b\n")
    assert run_cli("fetch", "toy").code == 0
    closed = Server()
    closed.http.server_close()
    sets.sets()["toy"]["downloads"]["b.txt"]["url"] = closed.url
    assert "cannot get b.txt from 127.0.0.1:" in error_of(
        lambda: fetching.fetch("toy", tmp_path / "new")
    )


def test_a_set_that_is_not_known_is_refused(server: Server) -> None:
    assert "no set named 'tooy' can be fetched; did you mean 'toy'?" in run_cli("fetch", "tooy").err


# --- the sets themselves

ROWS = json.loads((ROOT / "src/saccade/data/sets.json").read_text(encoding="utf-8"))


def test_every_file_that_a_recipe_names_can_be_fetched() -> None:
    named = set()
    for path in sorted((ROOT / "recipes").rglob("*.yaml")):
        data = yaml.safe_load(path.read_text(encoding="utf-8")).get("data") or {}
        parts = [
            str(data.get(key, "")).partition("#")[0].split(",") for key in ("train", "dev", "test")
        ]
        named |= {one for part in parts for one in part if one.startswith("data/")}
    assert len(named) > 10
    assert {one for one in named if sets.set_of(Path(one)) is None} == set()
    assert {one.split("/")[1] for one in named} >= {
        name for name in ROWS if not sets.has_no_download(name)
    }


def test_a_set_without_a_download_says_where_its_files_come_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SACCADE_DATA", str(tmp_path / "cache"))
    sentence = (
        "the set 'cifar10' has no download; put test.tar.xz, train.tar.xz into data/cifar10 or "
    )
    found = run_cli("fetch", "cifar10")
    assert sentence in found.err
    assert found.code == 2
    assert sentence in error_of(lambda: sets.found_or_fetch(Path("data/cifar10/train.tar.xz")))
    assert (
        f"{tmp_path / 'cache' / 'cifar10'}, made from the folders train and test of github.com/"
        in found.err
    )


@pytest.mark.parametrize("name", [name for name in sorted(ROWS) if sets.has_no_download(name)])
def test_a_row_without_a_download_knows_its_files(name: str) -> None:
    row = ROWS[name]
    assert "downloads" not in row
    assert all(len(row[key]) > 2 for key in ("about", "license", "cite", "origin"))
    assert len(re.findall("[0-9a-f]{40}", row["origin"])) == 1, "pinned to a commit"
    for file, how in row["files"].items():
        assert Path(file).name == file
        assert how["bytes"] > 0
        assert len(how["sha256"]) == 64
        here = ROOT / "data" / name / file
        assert not here.is_file() or (here.stat().st_size, sha(here.read_bytes())) == (
            how["bytes"],
            how["sha256"],
        )


@pytest.mark.parametrize("name", [name for name in sorted(ROWS) if not sets.has_no_download(name)])
def test_a_row_says_where_from_how_large_and_under_which_license(name: str) -> None:
    row = ROWS[name]
    assert all(len(row[key]) > 5 for key in ("about", "license", "cite"))
    for file, one in row["downloads"].items():
        assert one["url"].startswith("https://raw.githubusercontent.com/")
        assert len(one["url"].split("/")[5]) == 40, "pinned to a commit"
        assert 0 < one["bytes"] <= 40_000_000
        assert Path(file).name == file
    for how in row["files"].values():
        assert set(how["from"]) <= set(row["downloads"])
        known = how if "make" in how else row["downloads"][how["from"][0]]
        assert len(known["sha256"]) == 64


def test_the_phrases_of_trees() -> None:
    trees = [
        "(3 (2 (2 The) (2 Rock)) (4 (3 is) (1 2\xa01\\/2)))",
        "(1 (2 the) (1 (3 IS) (0 bad)))",
        "(1 whole sentence)",
    ]
    padded = "\n".join([*trees, *["(2 x)"] * 8541, "(4 dev)"]).encode()
    found = fetching.phrases(padded, b"0 whole sentence\n")
    assert found.decode().splitlines() == [
        "1 is",
        "0 2 1\\/2",
        "1 is 2 1\\/2",
        "1 the rock is 2 1\\/2",
        "0 bad",
        "0 is bad",
        "0 the is bad",
    ]
    assert "has 1 lines, expected at least 8,544" in error_of(lambda: fetching.phrases(b"<html>"))


def test_pairs_are_divided_by_their_english_side() -> None:
    lines = [f"Sentence number {n}.\tSatz {n % 700}." for n in range(3000)] + [
        "SENTENCE number 7!\tSieben."
    ]
    parts = {
        part: fetching.divided("\n".join(lines).encode(), part).decode().splitlines()
        for part in ("train", "dev", "test")
    }
    assert all(parts.values())
    held_out = {
        line.split("\t")[side]
        for part in ("dev", "test")
        for line in parts[part]
        for side in (0, 1)
    }
    assert not held_out & {side for line in parts["train"] for side in line.split("\t")}
    assert parts["dev"] == sorted(parts["dev"], key=lambda line: sha(line.encode()))


SHARED = ROOT / "data"


@pytest.mark.skipif(not SHARED.is_dir(), reason="the sets are not in data/")
@pytest.mark.parametrize("name", ["multi30k", "sst2", "tinyshakespeare", "ud-ewt"])
def test_the_known_sums_are_those_of_the_sets_that_results_were_measured_on(name: str) -> None:
    for file, how in ROWS[name]["files"].items():
        known = how if "make" in how else ROWS[name]["downloads"][how["from"][0]]
        assert fetching.is_as_published(fetching.unpacked(SHARED / name / file), known), file
