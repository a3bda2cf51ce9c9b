"""Formats of images: how each is recognized, the size in its header, and the bytes that a decoder is given.

Pillow sees only what a picture is made of: of PNG, JPEG and TIFF a copy without texts, color profiles, EXIF and further frames,
which can unpack to far more than the file holds.
"""

import os
import re
import struct
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

from PIL import BmpImagePlugin as Bmp
from PIL import GifImagePlugin as Gif
from PIL import ImageFile
from PIL import JpegImagePlugin as Jpeg
from PIL import PngImagePlugin as Png
from PIL import PpmImagePlugin as Ppm
from PIL import TiffImagePlugin as Tiff
from PIL import WebPImagePlugin as WebP

MAX_CHUNKS, MAX_SEGMENTS, MAX_SCANS = 200_000, 10_000, 100  # of PNG and WebP, of JPEG
# the tags of TIFF that say how pixels are stored; all others are left out of what Pillow sees, 274 (orientation) too
TIFF_TAGS = {
    *range(256, 260),
    262,
    266,
    273,
    277,
    278,
    279,
    284,
    317,
    320,
    *range(322, 326),
    338,
    339,
    347,
    530,
    532,
}
# the tags that are one number
TIFF_NUMBERS = {256, 257, 259, 262, 266, 277, 278, 284, 317, 322, 323}
# the size of each type of value
TIFF_BYTES = dict(enumerate((1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 1, 1, 8), 1))


class Format(NamedTuple):
    """`size` reads width and height; `lean` the bytes for the decoder, and the orientation of EXIF."""

    name: str
    starts: re.Pattern[bytes]
    plugin: Callable[[BinaryIO], ImageFile.ImageFile]
    size: Callable[[BinaryIO], tuple[int, ...]]
    lean: Callable[[BinaryIO], tuple[bytes, int]] = lambda file: (read_at(file, 0, -1), 1)


def read_at(file: BinaryIO, offset: int, count: int) -> bytes:
    file.seek(offset)
    return file.read(count)


def _unpack(form: str, file: BinaryIO, offset: int) -> tuple[int, ...]:
    return struct.unpack(form, read_at(file, offset, struct.calcsize(form)))


def _orientation(exif: bytes) -> int:
    """The orientation in EXIF, 1 to 8; its other tags are not read."""
    exif = exif.removeprefix(b"Exif\0\0")
    order = {b"II": "<", b"MM": ">"}.get(exif[:2], "<")
    try:
        [start] = struct.unpack_from(f"{order}I", exif, 4)
        [count] = struct.unpack_from(f"{order}H", exif, start)
        for n in range(min(count, 500)):
            tag, _, _, value = struct.unpack_from(f"{order}HHIH", exif, start + 2 + 12 * n)
            if tag == 274:
                return int(value)
    except struct.error:
        pass
    return 1


def _chunks(
    file: BinaryIO, at: int, form: str, extra: int, even: bool = False
) -> Iterator[tuple[bytes, int, int]]:
    """Kind, start and length of each chunk of PNG or RIFF; `extra` bytes of a chunk are not counted in its length."""
    end = file.seek(0, os.SEEK_END)
    for _ in range(MAX_CHUNKS):
        if at + 8 > end:
            return
        parts = struct.unpack(form, read_at(file, at, 8))
        kind, length = (parts[0], parts[1]) if isinstance(parts[0], bytes) else (parts[1], parts[0])
        yield kind, at, length + extra
        at += length + extra + (even and length % 2)
    raise ValueError(f"more than {MAX_CHUNKS:,} chunks")


def _lean_png(file: BinaryIO) -> tuple[bytes, int]:
    """The header, the palette, transparency and the pixels; what else there is may unpack to anything."""
    kept, orientation = [read_at(file, 0, 8)], 1
    for kind, at, length in _chunks(file, 8, ">I4s", 12):
        if kind in (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"):
            kept.append(read_at(file, at, length))
        elif kind == b"eXIf":
            orientation = _orientation(read_at(file, at + 8, min(length, 2**16)))
    return b"".join(kept), orientation


def _segments(file: BinaryIO) -> Iterator[tuple[int, int, int]]:
    """Marker, start and length of each segment of a JPEG, up to the first scan."""
    at = 2
    for _ in range(MAX_SEGMENTS):
        sign, marker = _unpack("BB", file, at)
        if sign != 0xFF:
            raise ValueError("no marker")
        if marker == 0xFF:  # a byte to fill up
            at += 1
            continue
        length = 0 if marker == 1 or 0xD0 <= marker <= 0xD8 else _unpack(">H", file, at + 2)[0]
        yield marker, at, length + 2
        at += length + 2
        if marker == 0xDA:
            return
    raise ValueError(f"more than {MAX_SEGMENTS:,} segments")


def _size_jpeg(file: BinaryIO) -> tuple[int, ...]:
    frames = (
        at
        for marker, at, _ in _segments(file)
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC)
    )
    return _unpack(">HH", file, next(frames, -1) + 5)[::-1]


def _lean_jpeg(file: BinaryIO) -> tuple[bytes, int]:
    """The pixels, and of the applications' segments the two that say which colors they are."""
    kept, orientation = [b"\xff\xd8"], 1
    for marker, at, length in _segments(file):
        if marker == 0xDA:
            scans = read_at(file, at, -1)
            if scans.count(b"\xff\xda") > MAX_SCANS:  # each costs as much as a whole picture
                raise ValueError(f"more than {MAX_SCANS} scans")
            kept.append(scans)
        elif marker == 0xE1 and read_at(file, at + 4, 6) == b"Exif\0\0" and orientation == 1:
            orientation = _orientation(read_at(file, at + 4, length - 4))
        elif not 0xE1 <= marker <= 0xFE or marker == 0xEE:
            kept.append(read_at(file, at, length))
    return b"".join(kept), orientation


def _tiff_tags(file: BinaryIO) -> tuple[str, int, dict[int, tuple[bytes, int, int]]]:
    """The byte order, where the first directory is, and its tags: their bytes, value (if it is one number) and length."""
    order = "<" if read_at(file, 0, 1) == b"I" else ">"
    [start] = _unpack(f"{order}I", file, 4)
    [count] = _unpack(f"{order}H", file, start)
    found, entries = {}, read_at(file, start + 2, 12 * count)
    for n in range(0, 12 * count, 12):
        tag, kind, number = struct.unpack_from(f"{order}HHI", entries, n)
        [value] = struct.unpack_from(
            f"{order}H" if kind == 3 and number < 3 else f"{order}I", entries, n + 8
        )
        found[tag] = entries[n : n + 12], value, number * TIFF_BYTES.get(kind, 1)
    return order, start, found


def _size_tiff(file: BinaryIO) -> tuple[int, ...]:
    tags = _tiff_tags(file)[2]
    return tags[256][1], tags[257][1]


def _lean_tiff(file: BinaryIO) -> tuple[bytes, int]:
    """The first page with the tags that its pixels need; none may refer to the same bytes again and again."""
    order, start, tags = _tiff_tags(file)
    kept = {tag: tags[tag] for tag in sorted(TIFF_TAGS & set(tags))}
    data = bytearray(read_at(file, 0, -1))
    tile = tags.get(322, (b"", 1, 0))[1] * tags.get(323, (b"", 1, 0))[1]
    if sum(length for _, _, length in kept.values()) > len(data) or tile > max(
        4 * tags[256][1] * tags[257][1], 2**22
    ):
        raise ValueError("tags that are longer than the file")
    for tag, (entry, value, length) in kept.items():
        if (length > 4 and value + length > len(data)) or (
            tag in TIFF_NUMBERS and struct.unpack_from(f"{order}I", entry, 4) != (1,)
        ):
            raise ValueError(f"the tag {tag} is wrong")
    made = (
        struct.pack(f"{order}H", len(kept))
        + b"".join(entry for entry, _, _ in kept.values())
        + bytes(4)
    )
    data[start : start + len(made)] = made
    return bytes(data), tags.get(274, (b"", 1, 0))[1]


def _size_webp(file: BinaryIO) -> tuple[int, ...]:
    kind = read_at(file, 12, 4)
    if kind == b"VP8X":
        low, high, low2, high2 = _unpack("<HBHB", file, 24)
        return low + (high << 16) + 1, low2 + (high2 << 16) + 1
    if kind == b"VP8L":
        [bits] = _unpack("<I", file, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    width, height = _unpack("<HH", file, 26)
    return width & 0x3FFF, height & 0x3FFF


def _lean_webp(file: BinaryIO) -> tuple[bytes, int]:
    where = next(
        (
            (at, length)
            for kind, at, length in _chunks(file, 12, "<4sI", 8, even=True)
            if kind == b"EXIF"
        ),
        (0, 8),
    )
    return read_at(file, 0, -1), _orientation(read_at(file, where[0] + 8, min(where[1] - 8, 2**16)))


def _size_gif(file: BinaryIO) -> tuple[int, ...]:
    """The screen, or more where the first frame is larger."""
    width, height, flags = _unpack("<HHB", file, 6)
    at = 13 + (3 << (flags & 7) + 1 if flags & 128 else 0)
    for _ in range(MAX_SEGMENTS):
        kind = read_at(file, at, 1)
        if kind == b",":
            x, y, wide, high = _unpack("<HHHH", file, at + 1)
            return max(width, x + wide), max(height, y + high)
        if kind in (b"", b";"):
            return width, height
        at += 1
        if kind == b"!":  # an extension: its label, and the blocks that follow
            at += 1
            while length := _unpack("B", file, at)[0]:
                at += length + 1
            at += 1
    raise ValueError("no frame")


def _size_bmp(file: BinaryIO) -> tuple[int, ...]:
    [header] = _unpack("<I", file, 14)
    if header not in (12, 40, 52, 56, 64, 108, 124):
        raise ValueError("not a header of BMP")
    width, height = _unpack("<HH" if header == 12 else "<ii", file, 18)
    return width, abs(height)


def _size_ppm(file: BinaryIO) -> tuple[int, ...]:
    found = re.match(
        rb"P\d\s+(\d{1,10})\s+(\d{1,10})\s", re.sub(rb"#[^\n]*", b"", read_at(file, 0, 2**16))
    )
    if not found:
        raise ValueError("no width and height")
    return int(found[1]), int(found[2])


FORMATS = (
    Format(
        "PNG",
        re.compile(rb"\x89PNG\r\n\x1a\n"),
        Png.PngImageFile,
        lambda file: _unpack(">II", file, 16),
        _lean_png,
    ),
    Format("JPEG", re.compile(rb"\xff\xd8\xff"), Jpeg.JpegImageFile, _size_jpeg, _lean_jpeg),
    Format("GIF", re.compile(rb"GIF8[79]a"), Gif.GifImageFile, _size_gif),
    Format("WebP", re.compile(rb"(?s)RIFF....WEBPVP8"), WebP.WebPImageFile, _size_webp, _lean_webp),
    Format("TIFF", re.compile(rb"II\*\0|MM\0\*"), Tiff.TiffImageFile, _size_tiff, _lean_tiff),
    Format("PPM", re.compile(rb"P[1-6][\s#]"), Ppm.PpmImageFile, _size_ppm),
    Format("BMP", re.compile(rb"BM"), Bmp.BmpImageFile, _size_bmp),
)
