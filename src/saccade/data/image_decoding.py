"""Decode an untrusted image: its size is read from the header and checked before anything is decoded.

Nothing global is changed, so that threads may read at the same time.
"""

import io
import os
import stat
import struct
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ..errors import SaccadeError
from .image_formats import FORMATS, read_at
from .lines import one_file

MAX_PIXELS = 40_000_000
# bytes that a file may have beside 8 for each pixel: further frames, a profile, a thumbnail
SPARE_BYTES = 64 * 1024 * 1024
FORMS = "an image file (PNG, JPEG, GIF, BMP, WebP, TIFF or PPM)"
# what a decoder may raise about a damaged file
DECODER_ERRORS = (
    OSError, SyntaxError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, EOFError, MemoryError, RuntimeError,
    struct.error, zlib.error, Image.DecompressionBombError,
)  # fmt: skip
OTHERS = {
    b"%PDF": "a PDF", b"PK\3\4": "a zip archive", b"8BPS": "a Photoshop file", b"\0\0\1\0": "an icon", b"<svg": "an SVG drawing",
    b"<?xm": "an XML file", b"<!DO": "a web page", b"<htm": "a web page", b"\0\0\0\x0cjP  ": "JPEG 2000", b"\x1f\x8b": "gzip",
}  # fmt: skip
ROTATIONS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM, 5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE, 8: Image.Transpose.ROTATE_90,
}  # fmt: skip


def read_image(
    source: Path | bytes,
    size: tuple[int, int] | None = None,
    most_pixels: int = MAX_PIXELS,
    name: str = "",
) -> Tensor:
    """The pixels of an image, uint8 3 H W: the first frame of an animated one, turned as EXIF says, over white where it is
    transparent. With `size` (height, width): the middle of that shape, resized to exactly that with antialiasing."""
    if isinstance(source, bytes):
        return _read(io.BytesIO(source), name or "the image", size, most_pixels)
    path = one_file(source, FORMS)
    with _open(path) as file:
        return _read(file, name or str(path), size, most_pixels)


def fit(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """The largest part in the middle that has the shape of `size` (height, width), resized to it; an image of that size is itself."""
    if image.size == size[::-1]:
        return image
    box = _middle((image.height, image.width), size)
    middle = image if box == (0, 0, *image.size) else image.crop(box)  # no copy of a whole image
    return middle.resize(size[::-1], Image.Resampling.BICUBIC)


def fit_box(
    box: tuple[int, int, int, int], before: tuple[int, int], size: tuple[int, int]
) -> tuple[float, ...]:
    """Where a box x0 y0 x1 y1 of an image of size `before` (height, width) is, once `fit` has made it of that `size`."""
    x0, y0, x1, y1 = _middle(before, size)
    across, down = size[1] / (x1 - x0), size[0] / (y1 - y0)
    return (
        (box[0] - x0) * across,
        (box[1] - y0) * down,
        (box[2] - x0) * across,
        (box[3] - y0) * down,
    )


def _middle(before: tuple[int, int], size: tuple[int, int]) -> tuple[int, int, int, int]:
    """The largest part x0 y0 x1 y1 in the middle of an image that has the shape of `size`."""
    scale = min(before[0] / size[0], before[1] / size[1])
    high, wide = max(1, round(size[0] * scale)), max(1, round(size[1] * scale))
    y, x = (before[0] - high) // 2, (before[1] - wide) // 2
    return x, y, x + wide, y + high


def to_tensor(image: Image.Image) -> Tensor:
    """An RGB image as uint8 3 H W."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


def resized(image: Tensor, size: tuple[int, int]) -> Tensor:
    """`fit` for pixels 3 H W."""
    return (
        image
        if image.shape[1:] == size
        else to_tensor(fit(Image.fromarray(image.permute(1, 2, 0).numpy()), size))
    )


def _open(path: Path) -> BinaryIO:
    """A regular file, opened; without waiting for the other end of a pipe."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise SaccadeError(
            f"'{path}' cannot be read: {error.strerror}; check its path and permissions",
            code="cannot-read",
        ) from None
    file = os.fdopen(handle, "rb")
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        file.close()
        raise SaccadeError(
            f"{path}: expected a file, got a named pipe, a socket or a device; give {FORMS}",
            code="not-a-file",
        )
    return file


def _read(file: BinaryIO, name: str, size: tuple[int, int] | None, most: int) -> Tensor:
    start = read_at(file, 0, 16)
    form = next((one for one in FORMATS if one.starts.match(start)), None)
    if form is None:
        raise SaccadeError(f"{name}: {_unknown(start)}", code="unknown-format")
    try:
        width, height = form.size(file)
    except DECODER_ERRORS:
        raise SaccadeError(
            f"{name}: expected a whole {form.name} image, got a damaged header; get the file again",
            code="file-damaged",
        ) from None
    _check_size(name, width, height, most)
    length, longest = file.seek(0, os.SEEK_END), 8 * width * height + SPARE_BYTES
    if length > longest:
        raise SaccadeError(
            f"{name}: expected at most {longest:,} bytes for {width} × {height} pixels, got {length:,}; save it again",
            code="file-damaged",
        )
    try:
        lean, orientation = form.lean(file)
        with form.plugin(io.BytesIO(lean)) as image:
            _check_size(name, *image.size, most)
            # decoded in an eighth, a quarter or half of its size where that is enough
            if size and form.name == "JPEG":
                target = size if orientation in (5, 6, 7, 8) else size[::-1]
                scale = min(image.width / target[0], image.height / target[1])
                image.draft(None, (int(image.width / scale), int(image.height / scale)))
            image.load()
            made = _to_rgb(image, name)
    except DECODER_ERRORS as error:
        why = (str(error).splitlines() or [""])[0][:100] or type(error).__name__
        raise SaccadeError(
            f"{name}: expected a whole {form.name} image, got a damaged one ({why}); get the file again",
            code="file-damaged",
        ) from None
    made = made.transpose(ROTATIONS[orientation]) if orientation in ROTATIONS else made
    return to_tensor(fit(made, size) if size else made)


def _check_size(name: str, width: int, height: int, most: int) -> None:
    if width < 1 or height < 1:
        raise SaccadeError(
            f"{name}: expected at least one pixel, got {width} × {height}; get the file again",
            code="file-damaged",
        )
    if width * height > most:
        what = f"expected at most {most:,} pixels, got {width:,} × {height:,}"
        raise SaccadeError(
            f"{name}: {what}; make the image smaller, or raise the limit (most_pixels)",
            code="too-large",
        )


def _unknown(start: bytes) -> str:
    """What a file is that is not one of the formats."""
    if not start:
        return f"expected {FORMS}, got an empty file; get the file again"
    got = next((what for sign, what in OTHERS.items() if start.startswith(sign)), None)
    if start[4:8] == b"ftyp":
        got = "an AVIF or HEIC image or a film"
    if start[:4] in (b"II+\0", b"MM\0+"):
        got = "a BigTIFF image"
    text = all(32 <= one < 127 or one in b"\t\r\n" for one in start)
    got = got or (
        f"a text that starts with {start.decode()!r}"
        if text
        else f"bytes that start with {start[:8].hex(' ')}"
    )
    return f"expected {FORMS}, got {got}; convert it to PNG or JPEG"


def _to_rgb(image: Image.Image, name: str) -> Image.Image:
    """RGB of any kind of pixels: those of 16 bits lose the lower 8, transparent ones lie over white."""
    if image.mode == "F":
        raise SaccadeError(
            f"{name}: expected 8 or 16 bits per channel, got floating-point pixels; convert it to PNG",
            code="pixels-not-supported",
        )
    if image.mode.startswith("I"):
        values = np.asarray(image)
        if values.min() < 0 or values.max() > 65535:
            raise SaccadeError(
                f"{name}: expected 8 or 16 bits per channel, got pixels of 32 bits; convert it to PNG",
                code="pixels-not-supported",
            )
        image = Image.fromarray((values >> 8).astype(np.uint8))
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        layer = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")
