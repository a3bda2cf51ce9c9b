"""Fetches public sets: resumable downloads that are checked by size and sha256, and the files that recipes name made of them."""

import functools
import hashlib
import http.client
import lzma
import os
import re
import shutil
import unicodedata
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from ..errors import SaccadeError, did_you_mean
from ..files import report_disk, write_atomically
from .sets import by_hand, cache, has_no_download, sets

BLOCK_BYTES, ATTEMPTS, TIMEOUT_SECONDS = 2**16, 4, 30
Watch = Callable[[str, int, int], object]  # the file's name, bytes so far, bytes in all


class Redirects(HTTPRedirectHandler):
    """Follows redirects over the web only, and never from https down to http."""

    def redirect_request(
        self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        to = urlsplit(newurl).scheme
        if to != "https" and (to != "http" or req.type == "https"):
            raise URLError(f"it redirects to {newurl[:200]}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def described(name: str) -> dict[str, Any]:
    """The row of a set."""
    if name not in sets():
        raise SaccadeError(
            f"no set named '{name}' can be fetched{did_you_mean(name, sets())}", code="unknown-set"
        )
    if has_no_download(name):
        raise SaccadeError(by_hand(name), code="fetched-by-hand")
    return sets()[name]


def fetch(
    name: str, to: Path | None = None, watch: Watch = lambda *_: None
) -> tuple[Path, list[str]]:
    """Makes all files of a set in the folder NAME of the cache, or of `to`; returns that folder and what should be noted."""
    row, folder, notes = described(name), (to or cache()) / name, []
    for file, how in row["files"].items():
        path = folder / file
        if not os.path.exists(path):
            inputs = [
                content(name, source, row["downloads"][source], folder / "downloads", watch)
                for source in how["from"]
            ]
            made = MAKERS[how.get("make", "copy")](*inputs, *how.get("options", ()))
            write_atomically(path, lzma.compress(made) if file.endswith(".xz") else made)
        if not is_as_published(
            unpacked(path), how if "make" in how else row["downloads"][how["from"][0]]
        ):
            if "make" not in how:
                raise SaccadeError(
                    f"{path} is not the published file (its sha256 differs); remove it, then fetch again",
                    code="wrong-checksum",
                )
            notes.append(
                f"note: {file} was made as described, but differs from the one that docs/results.md was measured on"
            )
    shutil.rmtree(folder / "downloads", ignore_errors=True)
    return folder, notes


def is_as_published(found: bytes, row: dict[str, Any]) -> bool:
    """Whether the sha256 is the known one; of the sorted lines, where the order of the published file is not known."""
    text = b"\n".join(sorted(found.split(b"\n"))) if row.get("any_order") else found
    return "sha256" not in row or hashlib.sha256(text).hexdigest() == row["sha256"]


def unpacked(path: Path) -> bytes:
    """What a file of a set holds, below .xz."""
    try:
        return lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    except lzma.LZMAError as error:
        raise SaccadeError(
            f"{path} cannot be unpacked ({error}); remove it, then fetch again",
            code="cannot-unpack",
        ) from None


def content(name: str, file: str, row: dict[str, Any], folder: Path, watch: Watch) -> bytes:
    """What a download holds, fetched unless it is there already; of an archive the one member that is wanted, by its name."""
    target = folder / file
    if not (there := target.is_file()):
        with report_disk(folder):
            folder.mkdir(parents=True, exist_ok=True)
        get(name, row["url"], target, row["bytes"], watch)
    found = member(target, row) if "member" in row else target.read_bytes()
    if not is_as_published(found, row):
        if not there:
            target.unlink()
        raise SaccadeError(
            f"{target if there else row['url']} is not the expected file (its sha256 differs); get it again",
            code="wrong-checksum",
        )
    return found


def member(archive: Path, row: dict[str, Any]) -> bytes:
    """One member of a zip archive, read into memory: no name in the archive is ever used as a path."""
    wanted, most = row["member"], row["member_bytes"]
    try:
        with zipfile.ZipFile(archive) as opened, opened.open(wanted) as file:
            found = file.read(most + 1)
    except (
        KeyError,
        EOFError,
        zipfile.BadZipFile,
        zlib.error,
        NotImplementedError,
        RuntimeError,
    ) as error:
        raise SaccadeError(
            f"{archive} has no readable '{wanted}' ({error}); remove it, then fetch again",
            code="cannot-unpack",
        ) from None
    if len(found) > most:
        raise SaccadeError(
            f"'{wanted}' in {archive} is larger than {most:,} bytes; remove it, then fetch again",
            code="too-large",
        )
    return found


def get(name: str, url: str, target: Path, most: int, watch: Watch) -> None:
    """Downloads to `target` by way of a .part file, at which a later call continues."""
    part, opener = target.with_name(f"{target.name}.part"), build_opener(Redirects)
    if urlsplit(url).scheme not in ("http", "https"):
        raise SaccadeError(
            f"'{url}' is not a web address; expected https://…", code="not-an-address"
        )
    why = ""
    for _ in range(ATTEMPTS):
        have = part.stat().st_size if part.is_file() else 0
        request = Request(
            url, headers={"User-Agent": "saccade", **({"Range": f"bytes={have}-"} if have else {})}
        )
        try:
            with opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
                if not store(answer, part, have, most, target, watch):
                    why = f"the connection was cut after {part.stat().st_size:,} bytes"
                    continue
            os.replace(part, target)
            return
        except HTTPError as error:
            error.close()
            why = f"it answers {error.code} {error.reason}"
            if error.code != 416:  # of a range that is not there: the part is not of this file
                break
            part.unlink(missing_ok=True)
        except (URLError, OSError, http.client.HTTPException) as error:
            why = str(getattr(error, "reason", None) or error)
            break
    host = urlsplit(url).netloc
    raise SaccadeError(
        f"cannot get {target.name} from {host} ({why}); run `saccade fetch {name}` again to continue, or download {url} yourself, "
        f"put it at {target} and run it then",
        code="cannot-fetch",
    )


def store(answer: Any, part: Path, have: int, most: int, target: Path, watch: Watch) -> bool:
    """Append an answer to the part, or replace the part; return False if the connection was cut."""
    continues = answer.status == 206 and answer.headers.get("Content-Range", "").startswith(
        f"bytes {have}-"
    )
    if answer.status == 206 and not continues:
        part.unlink(missing_ok=True)
        return False
    count = have if continues else 0
    length = answer.headers.get("Content-Length", "")
    total = count + int(length) if length.isdigit() else 0
    with report_disk(part), part.open("ab" if continues else "wb") as file:
        while count <= most and total <= most and (block := answer.read(BLOCK_BYTES)):
            file.write(block)
            count += len(block)
            watch(target.name, count, total or most)
    if max(count, total) > most:
        part.unlink()
        raise SaccadeError(
            f"{target.name} is larger than the {most:,} bytes that it should have; it is not the expected file",
            code="wrong-checksum",
        )
    return count >= total


def phrases(trees: bytes, *held_out: bytes) -> bytes:
    """Every phrase of the Stanford Sentiment Treebank's training trees as `LABEL TEXT`, 0 or 1, each once, the neutral ones left out."""
    lines = trees.decode().splitlines()[:8544]  # the rest is the dev part
    if len(lines) < 8544:
        raise SaccadeError(
            f"the file of trees has {len(lines)} lines, expected at least 8,544; remove it, then fetch again",
            code="file-damaged",
        )
    labels: dict[str, int] = {}
    for line in lines:
        open_: list[tuple[int, list[str]]] = [(0, [])]
        for label, leaf, _ in re.findall(r"\((\d) |([^() ][^()]*)|(\))", line):
            if label:
                open_.append((int(label), []))
            elif leaf:
                open_[-1][1].extend(leaf.lower().split())
            elif len(open_) > 1:
                number, words = open_.pop()
                labels.setdefault(" ".join(words), number)
                open_[-1][1].extend(words)
    for known in held_out:  # a whole sentence of the dev or test part
        for line in known.decode().splitlines():
            labels.pop(line.partition(" ")[2], None)
    return "".join(
        f"{int(label > 2)} {text}\n" for text, label in labels.items() if label != 2
    ).encode()


def divided(pairs: bytes, part: str) -> bytes:
    """Pairs of sentences divided by a hash of the English side into `train`, `dev` and `test`, and put in the order of another hash."""
    return _divide(pairs)[part]


@functools.lru_cache(maxsize=1)
def _divide(pairs: bytes) -> dict[str, bytes]:
    def plain(text: str) -> str:
        return " ".join(
            re.sub(r"[^\w\s]", " ", unicodedata.normalize("NFKC", text).casefold()).split()
        )

    parts: dict[str, list[str]] = {"train": [], "dev": [], "test": []}
    held_out: set[str] = set()
    for line in pairs.decode().splitlines():
        source, target = map(plain, line.split("\t")[:2])
        number = int(hashlib.sha256(source.encode()).hexdigest()[:8], 16) % 1000
        part = "test" if number < 15 else "dev" if number < 30 else "train"
        if part == "train" or f"source {source}" not in held_out:
            parts[part].append(line)
        held_out |= {f"source {source}", f"target {target}"} if part != "train" else set()
    parts["train"] = [
        line for line in parts["train"] if f"target {plain(line.split(chr(9))[1])}" not in held_out
    ]
    for lines in parts.values():
        lines.sort(key=lambda line: hashlib.sha256(line.encode()).digest())
    return {part: "".join(f"{line}\n" for line in lines).encode() for part, lines in parts.items()}


MAKERS: dict[str, Callable[..., bytes]] = {"copy": bytes, "phrases": phrases, "divided": divided}
