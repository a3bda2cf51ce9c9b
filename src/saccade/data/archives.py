"""Where pictures are: folders, and .tar and .zip archives that are read in memory by the names of their members, never unpacked."""

import gzip
import io
import lzma
import os
import struct
import tarfile
import threading
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from ..errors import SaccadeError
from .image_examples import Picture
from .lines import LineError, one_file, paths_of
from .sets import located

if TYPE_CHECKING:
    from torch import Tensor

MAX_MEMBERS, MAX_MEMBER_BYTES, MAX_UNPACKED_BYTES = 500_000, 128 * 2**20, 8 * 2**30
IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm")
ARCHIVES = (".tar.xz", ".tar.gz", ".tgz", ".tar", ".zip")
FORMS = f"a folder of pictures or an archive ({', '.join(ARCHIVES)})"
# how the name of a file about `train_images.zip` may end
SUBJECT_SUFFIXES = ("_questions", "_captions", "_labels", "_annotations")
ARCHIVE_ERRORS = (
    tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, struct.error, EOFError, OSError, ValueError, KeyError,
    RuntimeError, OverflowError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Filed(Picture):
    """A picture in a file."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path)

    def pixels(self, size: tuple[int, int] | None = None) -> "Tensor":
        from .image_decoding import read_image  # with torch and Pillow, which take a while to load

        return read_image(self.path, size)


@dataclass(frozen=True, slots=True)
class Member(Picture):
    """A picture in an archive."""

    archive: "Archive"
    member: str

    @property
    def name(self) -> str:
        return f"{self.archive.path}, '{self.member}'"

    def pixels(self, size: tuple[int, int] | None = None) -> "Tensor":
        from .image_decoding import read_image

        return read_image(self.archive.read(self.member), size, name=self.name)


def file_of(example: Any) -> str:
    """The name of an example's picture, if it is in a file. A question is named by its line instead: a picture may have several."""
    example = getattr(example, "example", example)
    image = None if hasattr(example, "question") else getattr(example, "image", None)
    return image.name if isinstance(image, Filed | Member) else ""


class Folder:
    """Pictures in a folder and those below it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def find(self, name: str) -> list[Picture]:
        path = self.path / name
        return [Filed(path)] if path.is_file() else []

    def classes(self) -> Iterator[tuple[Picture, str]]:
        """Each picture in a folder inside this one, with the name of that folder, in the order of names."""
        for folder in sorted(self.path.iterdir()):
            if folder.is_dir() and not folder.name.startswith("."):
                yield from (
                    (Filed(path), folder.name)
                    for path in sorted(folder.rglob("*"))
                    if is_picture(path.name)
                )

    def pictures(self) -> Iterator[Picture]:
        """Each picture in this folder and those below it, in the order of names."""
        yield from (
            Filed(path)
            for path in sorted(self.path.rglob("*"))
            if is_picture(path.name) and path.is_file()
        )


class Archive:
    """The members of a .zip or .tar file; those of a compressed .tar are kept in memory, where they take as much as unpacked."""

    def __init__(self, path: Path) -> None:
        self.path, self._lock = path, threading.Lock()
        self._kept: dict[str, bytes] = {}
        self._at: dict[str, tuple[int, int]] = {}  # start and length of members of a plain .tar
        self._zip: zipfile.ZipFile | None = None
        try:
            if path.suffix.lower() == ".zip":
                self._zip = zipfile.ZipFile(path)
                names = [one.filename for one in self._zip.infolist() if not one.is_dir()]
            else:
                names = self._index(path)
        except ARCHIVE_ERRORS as error:
            raise SaccadeError(
                f"{path} cannot be unpacked ({str(error)[:100]}); get it again, or give {FORMS}",
                code="cannot-unpack",
            ) from None
        if len(names) > MAX_MEMBERS:
            raise SaccadeError(
                f"{path} has {len(names):,} members, at most {MAX_MEMBERS:,} are read; divide it",
                code="too-large",
            )
        self.names = [name for name in names if not name.startswith("__MACOSX/")]
        self._by_last = defaultdict[str, list[str]](list)
        for name in self.names:
            self._by_last[PurePosixPath(name).name].append(name)

    def _index(self, path: Path) -> list[str]:
        opener: Any = {".xz": lzma.open, ".gz": gzip.open, ".tgz": gzip.open}.get(
            path.suffix.lower(), open
        )
        names: dict[str, None] = {}
        with (
            opener(path, "rb") as file,
            tarfile.open(fileobj=Limited(file, path), mode="r:") as opened,
        ):
            for one in opened:
                if not one.isreg() or one.issparse():
                    continue
                if one.size < 0:
                    raise ValueError("a member of negative size")
                if len(names) >= MAX_MEMBERS:
                    raise SaccadeError(
                        f"{path} has more than {MAX_MEMBERS:,} members; divide it", code="too-large"
                    )
                name = one.name.removeprefix("./")
                names[name] = None
                if opener is open:
                    self._at[name] = one.offset_data, one.size
                elif is_picture(name) and (content := opened.extractfile(one)):
                    self._kept[name] = content.read()
        return list(names)

    def read(self, name: str) -> bytes:
        """What a member holds."""
        try:
            if self._zip is not None:
                with self._lock, self._zip.open(name) as file:
                    found = file.read(MAX_MEMBER_BYTES + 1)
            elif name in self._at:
                start, length = self._at[name]
                with self.path.open("rb") as plain:
                    plain.seek(start)
                    found = plain.read(min(length, MAX_MEMBER_BYTES + 1))
            else:
                found = self._kept[name]
        except ARCHIVE_ERRORS as error:
            raise SaccadeError(
                f"'{name}' in {self.path} cannot be unpacked ({str(error)[:100]}); get the archive again",
                code="cannot-unpack",
            ) from None
        if len(found) > MAX_MEMBER_BYTES:
            raise SaccadeError(
                f"'{name}' in {self.path} is larger than {MAX_MEMBER_BYTES:,} bytes; leave it out",
                code="too-large",
            )
        return found

    def find(self, name: str) -> list[Picture]:
        """The member of that name, or those in any folder that end so."""
        same = self._by_last.get(PurePosixPath(name).name, [])
        found = [one for one in same if one == name] or [
            one for one in same if one.endswith(f"/{name}")
        ]
        return [Member(self, one) for one in found]

    def classes(self) -> Iterator[tuple[Picture, str]]:
        """Each picture that lies in a folder, with the name of that folder."""
        for name in self.names:
            if is_picture(name) and len(parts := PurePosixPath(name).parts) > 1:
                yield Member(self, name), parts[-2]

    def pictures(self) -> Iterator[Picture]:
        """Each picture."""
        yield from (Member(self, name) for name in self.names if is_picture(name))


class Limited(io.RawIOBase):
    """A file that is read forward and in parts of a bounded size, so that no archive fills the memory or goes in circles."""

    def __init__(self, file: Any, path: Path) -> None:
        self._file, self._path = file, path

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= MAX_MEMBER_BYTES:
            raise SaccadeError(
                f"{self._path} has a member of more than {MAX_MEMBER_BYTES:,} bytes; leave it out",
                code="too-large",
            )
        found: bytes = self._file.read(size)
        return found

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if offset > MAX_UNPACKED_BYTES or offset < self.tell() - 512:
            raise SaccadeError(
                f"{self._path} unpacks to more than {MAX_UNPACKED_BYTES >> 30} GiB, or is damaged; divide it or get it again",
                code="too-large",
            )
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())


def is_picture(name: str) -> bool:
    path = PurePosixPath(name)
    return path.suffix.lower() in IMAGES and not path.name.startswith(".")


def is_archive(path: Path) -> bool:
    return path.name.lower().endswith(ARCHIVES)


def pictures_in(where: str | Path) -> list[Picture]:
    """The picture in a file, or all that lie in a folder, in the order of names."""
    path = Path(where).expanduser()
    if not path.is_dir():
        return [Filed(one_file(path, "an image file or a folder of images"))]
    found: list[Picture] = [Filed(one) for one in sorted(path.iterdir()) if is_picture(one.name)]
    if not found:
        raise SaccadeError(
            f"{path} holds no images; give a folder with some ({', '.join(IMAGES)}), or one image",
            code="no-images",
        )
    return found


def open_images(where: str | Path) -> Folder | Archive:
    """The pictures of a folder or of an archive; the last few archives stay open."""
    path = located(Path(where).expanduser())
    if path.is_dir():
        return Folder(path)
    path = one_file(path, FORMS)
    if not is_archive(path):
        raise SaccadeError(
            f"{path}: expected {FORMS}, got another file; check the path", code="unknown-format"
        )
    state = path.stat()
    return _open_archive(path.absolute(), state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=8)
def _open_archive(path: Path, changed: int, size: int) -> Archive:
    return Archive(path)


class Shelf:
    """Where the pictures that a file names are looked for: in the folders and archives given, or in those beside the file."""

    def __init__(self, path: Path, images: str = "") -> None:
        self.stores = (
            [open_images(part) for part in paths_of(images)] if images else list(self._beside(path))
        )

    @staticmethod
    def _beside(path: Path) -> Iterator[Folder | Archive]:
        """Those named like the file (`train.jsonl.xz`: train.tar.xz, train_images.zip, train/ …), then images/ and the file's folder."""
        stem = path.name.partition(".")[0]
        short = next(
            (stem.removesuffix(end) for end in SUBJECT_SUFFIXES if stem.endswith(end)), stem
        )
        for name in dict.fromkeys((stem, f"{stem}_images", short, f"{short}_images")):
            found = [one for ending in ARCHIVES if (one := path.with_name(name + ending)).is_file()]
            yield from map(open_images, found[:1])
            if (folder := path.with_name(name)).is_dir():
                yield Folder(folder)
        yield from (
            Folder(folder) for folder in (path.with_name("images"), path.parent) if folder.is_dir()
        )

    def find(self, name: str) -> Picture:
        """The picture of that name, which may lack its suffix; a name that leads out of the folder is refused."""
        inside = PurePosixPath(name)
        if inside.is_absolute() or ".." in inside.parts or "\\" in name or not inside.parts:
            raise LineError(
                "image",
                f"the image is '{name[:80]}', expected a path below the folder of the images; write it so",
            )
        names = [name, *(name + suffix for suffix in IMAGES if not inside.suffix)]
        for store in self.stores:
            found = next(filter(None, map(store.find, names)), [])
            if len(found) > 1:
                both = " and ".join(one.name for one in found[:2])
                raise LineError(
                    "image",
                    f"'{name[:80]}' is the name of {len(found)} images, such as {both}; write the whole path",
                )
            if found:
                return found[0]
        searched = ", ".join(str(store.path) for store in self.stores)
        raise LineError(
            "image",
            f"no image '{name[:80]}' in {searched}; check the name, or where the images are (data.images)",
        )
