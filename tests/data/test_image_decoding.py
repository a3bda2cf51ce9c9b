"""Images from strangers: what is wrong is refused in one sentence before it costs memory, and every kind of pixels becomes RGB."""

from __future__ import annotations

import io
import os
import resource
import socket
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, PngImagePlugin
from tests.support import raises

from saccade.data.image_decoding import read_image
from saccade.errors import SaccadeError

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (20, 30, 3), dtype=np.uint8)
SMOOTH = np.stack(
    np.broadcast_arrays(np.arange(30) * 8, np.arange(20)[:, None] * 12, 99), -1
).astype(np.uint8)


def saved(kind: str, image: Image.Image | None = None, **options: Any) -> bytes:
    out = io.BytesIO()
    (image or Image.fromarray(PIXELS)).save(out, kind, **options)
    return out.getvalue()


def chunk(kind: bytes, content: bytes) -> bytes:
    return (
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
    )


def png(width: int, height: int, *more: bytes, content: bytes = b"\0\0\0\0") -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return (
        b"\x89PNG\r\n\x1a\n"
        + header
        + b"".join(more)
        + chunk(b"IDAT", zlib.compress(content))
        + chunk(b"IEND", b"")
    )


def exif(orientation: int, entries: int = 1, order: str = "<") -> bytes:
    """EXIF with an orientation; of `entries` more tags each claims all bytes that follow."""
    sign = {"<": b"II*\0", ">": b"MM\0*"}[order]
    rows = struct.pack(order + "HHIHH", 274, 3, 1, orientation, 0)
    size = 12 * entries
    rows += b"".join(struct.pack(order + "HHII", 1000 + n, 7, size, 8) for n in range(entries))
    return sign + struct.pack(order + "IH", 8, entries + 1) + rows + bytes(size + 4)


def tiff(*tags: tuple[int, int, int, int], more: bytes = bytes(100)) -> bytes:
    rows = b"".join(struct.pack("<HHII", *tag) for tag in tags)
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + rows + bytes(4) + more


# one gray pixel
PAGE = [
    (256, 4, 1, 1),
    (257, 4, 1, 1),
    (258, 3, 1, 8),
    (259, 3, 1, 1),
    (262, 3, 1, 1),
    (273, 4, 1, 8),
    (277, 3, 1, 1),
    (279, 4, 1, 1),
]


def with_jpeg_segment(data: bytes, marker: int, content: bytes) -> bytes:
    return data[:2] + struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content + data[2:]


def large_webp() -> bytes:
    content = b"VP8X" + struct.pack("<IIHBHB", 10, 0, 16382, 0, 16382, 0) + saved("WEBP")[12:]
    return b"RIFF" + struct.pack("<I", len(content) + 4) + b"WEBP" + content


def many_scans() -> bytes:
    data = saved("JPEG", progressive=True)
    start = data.index(b"\xff\xda")
    return data[:start] + data[start:-2] * 40 + data[-2:]


WHOLE = "expected a whole {} image, got a damaged "
TOO_LARGE = "expected at most 40,000,000 pixels, got "
HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty file": (lambda: b"", "got an empty file; get the file again"),
    "text called .png": (lambda: b"I am a picture, believe me", "got a text that starts with 'I am a picture, '; convert it"),
    "random bytes": (lambda: bytes(range(128, 200)), "got bytes that start with 80 81 82 83"),
    "PDF": (lambda: b"%PDF-1.7 and so on", "got a PDF; convert it to PNG or JPEG"),
    "SVG": (lambda: b"<svg xmlns='http://www.w3.org/2000/svg'/>", "got an SVG drawing"),
    "HEIC": (lambda: b"\0\0\0\x18ftypheic\0\0\0\0", "got an AVIF or HEIC image or a film"),
    "BigTIFF": (lambda: b"II+\0\x08\0\0\0" + bytes(20), "got a BigTIFF image"),
    "zip": (lambda: b"PK\3\4" + bytes(40), "got a zip archive"),
    "PNG of 65,000 × 65,000 in 70 bytes": (lambda: png(65000, 65000), TOO_LARGE + "65,000 × 65,000; make the image smaller"),
    "PNG of 2 billion × 1": (lambda: png(2**31 - 1, 1), TOO_LARGE + "2,147,483,647 × 1"),
    "GIF of 65,535 × 65,535": (lambda: b"GIF89a" + struct.pack("<HHBBB", 65535, 65535, 0, 0, 0), TOO_LARGE + "65,535 × 65,535"),
    "GIF with a frame beyond its screen": (
        lambda: b"GIF89a" + struct.pack("<HHBBB", 2, 2, 0x80, 0, 0) + bytes(6)
        + b"," + struct.pack("<HHHHB", 0, 0, 60000, 60000, 0) + b"\x02\x02\x44\x01\x00;",
        TOO_LARGE + "60,000 × 60,000",
    ),
    "BMP of 100,000 × 100,000": (
        lambda: b"BM" + struct.pack("<IIIIiiHHIIIIII", 99, 0, 54, 40, 100_000, 100_000, 1, 24, 0, 0, 0, 0, 0, 0), TOO_LARGE
    ),
    "BMP of negative width": (
        lambda: b"BM" + struct.pack("<IIIIiiHHIIIIII", 99, 0, 54, 40, -5, 5, 1, 24, 0, 0, 0, 0, 0, 0), "expected at least one pixel"
    ),
    "JPEG of 65,500 × 65,500": (
        lambda: (d := saved("JPEG")).replace(d[d.index(b"\xff\xc0") + 5 :][:4], struct.pack(">HH", 65500, 65500), 1),
        TOO_LARGE + "65,500 × 65,500",
    ),
    "WebP of 16,383 × 16,383": (large_webp, TOO_LARGE + "16,383 × 16,383"),
    "TIFF of 4 billion × 4 billion": (
        lambda: tiff((256, 4, 1, 2**32 - 1), (257, 4, 1, 2**32 - 1)), TOO_LARGE + "4,294,967,295 × 4,294,967,295"
    ),
    "PPM of 9,999,999,999 × 9,999,999,999": (lambda: b"P6 9999999999 9999999999 255\n", TOO_LARGE + "9,999,999,999"),
    "zero-sized PNG": (lambda: png(0, 5), "expected at least one pixel, got 0 × 5"),
    "zero-sized GIF": (lambda: b"GIF89a" + bytes(7), "expected at least one pixel, got 0 × 0"),
    "zero-sized PPM": (lambda: b"P6 0 0 255\n", "expected at least one pixel"),
    "PPM without a size": (lambda: b"P6 # no numbers here\n", WHOLE.format("PPM") + "header"),
    "truncated PNG": (lambda: saved("PNG")[:-300], WHOLE.format("PNG") + "one ("),
    "truncated JPEG": (lambda: saved("JPEG")[:-200], WHOLE.format("JPEG") + "one ("),
    "truncated JPEG header": (lambda: saved("JPEG")[:20], WHOLE.format("JPEG") + "header"),
    "truncated GIF": (lambda: saved("GIF")[:-400], WHOLE.format("GIF") + "one ("),
    "truncated BMP": (lambda: saved("BMP")[:-400], WHOLE.format("BMP") + "one ("),
    "truncated WebP": (lambda: saved("WEBP", lossless=True)[:-200], WHOLE.format("WebP") + "one ("),
    "truncated TIFF": (lambda: saved("TIFF")[:900], WHOLE.format("TIFF") + "one ("),
    "truncated packed TIFF": (lambda: saved("TIFF", compression="tiff_lzw").replace(b"\x80", b"", 1), WHOLE.format("TIFF")),
    "truncated PPM": (lambda: saved("PPM")[:-400], WHOLE.format("PPM") + "one ("),
    "PNG without pixels": (lambda: png(8, 8, content=b""), WHOLE.format("PNG") + "one ("),
    "PNG with a wrong checksum": (lambda: saved("PNG")[:29] + b"abcd" + saved("PNG")[33:], WHOLE.format("PNG") + "one ("),
    "PNG cut in its header": (lambda: saved("PNG")[:18], WHOLE.format("PNG") + "header"),
    "JPEG of thousands of scans": (many_scans, "(more than 100 scans)"),
    "TIFF of tags that refer to the same bytes": (
        lambda: tiff(*[(t, 4, 1, 1) for t in (256, 257)], *[(t, 7, 90, 8) for t in (273, 279, 320, 338, 347, 532)]),
        "(tags that are longer than the file)",
    ),
    "TIFF of a tile larger than all": (
        lambda: tiff(*[(t, 4, 1, 1) for t in (256, 257)], (322, 4, 1, 60000), (323, 4, 1, 60000)), WHOLE.format("TIFF") + "one"
    ),
    "TIFF without a size": (lambda: tiff((258, 3, 1, 8)), WHOLE.format("TIFF") + "header"),
    "TIFF of floating-point pixels": (lambda: saved("TIFF", Image.new("F", (3, 3))), "got floating-point pixels; convert it to PNG"),
    "TIFF of 32 bits": (lambda: saved("TIFF", Image.new("I", (3, 3), 70_000)), "got pixels of 32 bits; convert it"),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_image_is_refused_in_one_sentence(what: str, tmp_path: Path) -> None:
    make, sentence = HOSTILE[what]
    path = tmp_path / "picture.png"
    path.write_bytes(make())
    for source, name in ((path, str(path)), (make(), "the image")):
        with pytest.raises(SaccadeError) as error:
            read_image(source)
        assert str(error.value).startswith(f"{name}: expected ")
        assert sentence in str(error.value)
        assert "\n" not in str(error.value)
        assert "; " in str(error.value), "says what to do"


def test_there_are_many_hostile_images() -> None:
    assert len(HOSTILE) >= 25


def test_what_is_not_a_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket.png"))
        for path, sentence in {
            tmp_path: "is a folder, not a file; give an image file (PNG, JPEG",
            tmp_path / "none.png": "no file '",
            tmp_path
            / "pipe.png": "expected a file, got a named pipe, a socket or a device; give an image file",
            tmp_path
            / "socket.png": "expected a file, got a named pipe, a socket or a device; give an image file",
            Path("/dev/zero"): "/dev/zero: expected a file, got a named pipe, a socket or a device",
            tmp_path / "loop.png": "cannot be read: Too many levels of symbolic links",
            tmp_path / ("x" * 300): "cannot be read: File name too long",
            tmp_path / "a\0b": "cannot be read",
        }.items():
            with pytest.raises(SaccadeError) as error:
                read_image(path)
            assert sentence in str(error.value)


def test_a_file_with_far_more_bytes_than_pixels_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "long.png"
    path.write_bytes(saved("PNG"))
    os.truncate(path, 3_000_000_000)  # a hole: it takes no space on the disk
    with raises(
        "file-damaged",
        match=r"at most 67,113,664 bytes for 30 × 20 pixels, got 3,000,000,000; save it again",
    ):
        read_image(path)


def bombs() -> dict[str, bytes]:
    """Small files whose extras unpack to gigabytes, or to thousands of copies of themselves."""
    zeros = zlib.compress(bytes(100_000_000), 9)
    texts = [chunk(b"zTXt", b"k%d\0\0" % n + zeros) for n in range(20)]
    plain = saved("JPEG", Image.fromarray(SMOOTH), quality=95)
    body = png(1, 1)[33:]
    many = plain
    for _ in range(8):
        many = with_jpeg_segment(many, 0xE1, b"Exif\0\0" + exif(1, 2500)[:65000])
    return {
        "PNG texts": png(1, 1, *texts),
        "PNG profile": png(1, 1, chunk(b"iCCP", b"p\0\0" + zeros)),
        "PNG international text": png(1, 1, chunk(b"iTXt", b"k\0\1\0\0\0" + zeros)),
        "PNG EXIF": png(1, 1, chunk(b"eXIf", exif(1, 60_000))),
        "PNG frames": png(1, 1)[:33] + chunk(b"acTL", struct.pack(">II", 2**31 - 1, 0)) + body,
        "JPEG EXIF": many,
        "TIFF EXIF": tiff(*PAGE, (34665, 4, 1, 134), more=b"\x80" * 2 + exif(1, 60_000)[8:]),
        "TIFF tags": tiff(
            *PAGE, *[(2000 + n, 7, 700_000, 8) for n in range(60_000)], more=b"\x80" * 9
        ),
    }


BOMB = """
import resource, sys
from pathlib import Path
from saccade.data.image_decoding import read_image
read_image(Path(sys.argv[1]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sys.argv[2:]:
    assert read_image(Path(path)).shape[0] == 3
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_extras_are_not_unpacked(tmp_path: Path) -> None:
    """Measured in a process of its own: all bombs together take a few megabytes."""
    names = []
    for name, content in {"plain": saved("JPEG"), **bombs()}.items():
        (tmp_path / name).write_bytes(content)
        names.append(str(tmp_path / name))
    found = subprocess.run(
        [sys.executable, "-c", BOMB, *names], capture_output=True, text=True, timeout=300
    )
    assert found.returncode == 0, found.stderr
    assert int(found.stdout) < 40_000, "kilobytes"


def test_a_refusal_takes_no_memory() -> None:
    data = png(65000, 65000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(3):
        with raises("too-large"):
            read_image(data)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000


def test_the_limit_can_be_changed() -> None:
    with raises("too-large", match="expected at most 599 pixels, got 30 × 20"):
        read_image(saved("PNG"), most_pixels=599)
    assert read_image(saved("PNG"), most_pixels=600).shape == (3, 20, 30)


# --- every kind of pixels


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM"])
def test_what_keeps_every_pixel_gives_every_pixel(kind: str) -> None:
    found = read_image(saved(kind))
    assert found.dtype == torch.uint8
    assert found.is_contiguous()
    assert torch.equal(found, torch.from_numpy(PIXELS).permute(2, 0, 1))


@pytest.mark.parametrize(("kind", "options"), [("JPEG", {"quality": 95}), ("JPEG", {"progressive": True}), ("GIF", {}), ("WEBP", {}),
                                               ("TIFF", {"compression": "tiff_lzw"}), ("TIFF", {"compression": "jpeg"}),
                                               ("WEBP", {"lossless": True}), ("TIFF", {"compression": "tiff_deflate"})])  # fmt: skip
def test_the_other_formats_come_close(kind: str, options: dict[str, Any]) -> None:
    found = read_image(saved(kind, Image.fromarray(SMOOTH), **options))
    assert (found.permute(1, 2, 0).numpy().astype(int) - SMOOTH).__abs__().mean() < 8


def test_the_name_of_a_file_does_not_decide(tmp_path: Path) -> None:
    (tmp_path / "x.jpg").write_bytes(saved("PNG"))
    assert torch.equal(read_image(tmp_path / "x.jpg"), read_image(saved("PNG")))


def one(image: Image.Image, kind: str = "PNG", **options: Any) -> list[int]:
    return read_image(saved(kind, image, **options))[:, 0, 0].tolist()


def test_every_mode_becomes_rgb() -> None:
    assert one(Image.new("L", (2, 2), 77)) == [77, 77, 77]
    assert one(Image.new("1", (2, 2), 1)) == [255, 255, 255]
    assert one(Image.new("1", (2, 2), 1), "PPM") == [255, 255, 255]
    assert one(Image.new("1", (2, 2), 1), "TIFF", compression="group4") == [255, 255, 255]
    assert one(Image.fromarray(np.full((2, 2), 0x8123, np.uint16))) == [0x81] * 3
    assert one(Image.fromarray(np.full((2, 2), 0x8123, np.uint16)), "TIFF") == [0x81] * 3
    assert one(Image.fromarray(np.full((2, 2), 0x8123, np.uint16)), "PPM") == [0x81] * 3
    assert one(Image.new("LA", (2, 2), (0, 0))) == [255, 255, 255], "over white"
    assert one(Image.new("RGBA", (2, 2), (255, 0, 0, 51))) == [255, 204, 204]
    assert one(Image.new("RGBA", (2, 2), (255, 0, 0, 51)), "WEBP", lossless=True) == [255, 204, 204]
    assert one(Image.new("CMYK", (2, 2), (0, 255, 255, 0)), "TIFF") == [255, 0, 0]
    red, green, blue = one(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG")
    assert (red > 245, green < 10, blue < 10) == (True, True, True)
    sixteen = struct.pack(">IIBBBBB", 1, 1, 16, 2, 0, 0, 0)
    deep = chunk(
        b"IDAT", zlib.compress(b"\0" + struct.pack(">HHH", 0x1234, 0x8000, 0xFFFF))
    ) + chunk(b"IEND", b"")
    assert read_image(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", sixteen) + deep)[:, 0, 0].tolist() == [
        0x12,
        0x80,
        0xFF,
    ]


def test_palettes_with_and_without_transparency() -> None:
    palette = Image.new("P", (2, 2), 1)
    palette.putpalette([9, 9, 9, 10, 20, 30, 40, 50, 60])
    assert (
        one(palette)
        == one(palette, "GIF")
        == one(palette, "BMP")
        == one(palette, "TIFF")
        == [10, 20, 30]
    )
    assert one(palette, transparency=1) == one(palette, "GIF", transparency=1) == [255, 255, 255]
    assert one(palette, transparency=b"\xff\x00\xff") == [255, 255, 255]
    assert one(Image.new("RGB", (2, 2), (1, 2, 3)), transparency=(1, 2, 3)) == [255, 255, 255]
    assert one(Image.new("L", (2, 2), 5), transparency=5) == [255, 255, 255]


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "TIFF"])
@pytest.mark.parametrize("order", ["<", ">"])
def test_images_are_turned_as_exif_says(kind: str, order: str) -> None:
    corner = np.zeros((16, 32, 3), np.uint8)
    corner[:8, :8] = 255
    # where the white corner is after each of the eight orientations: (bottom, right)
    expected = {
        1: (0, 0),
        2: (0, 1),
        3: (1, 1),
        4: (1, 0),
        5: (0, 0),
        6: (0, 1),
        7: (1, 1),
        8: (1, 0),
        9: (0, 0),
        0: (0, 0),
    }
    for orientation, (bottom, right) in expected.items():
        options = (
            {"tiffinfo": {274: orientation}}
            if kind == "TIFF"
            else {"exif": b"Exif\0\0" + exif(orientation, order=order)}
        )
        found = read_image(saved(kind, Image.fromarray(corner), **options))
        assert found.shape == ((3, 32, 16) if 5 <= orientation <= 8 else (3, 16, 32)), orientation
        at = found[0][-8:] if bottom else found[0][:8]
        assert (at[:, -8:] if right else at[:, :8]).float().mean() > 220, orientation


def test_an_animated_image_gives_its_first_frame() -> None:
    frames = [Image.new("RGB", (4, 4), color) for color in ("red", "lime", "blue")]
    for kind, options in {"GIF": {}, "WEBP": {"lossless": True}, "PNG": {}, "TIFF": {}}.items():
        data = saved(kind, frames[0], save_all=True, append_images=frames[1:], **options)
        assert read_image(data)[:, 0, 0].tolist() == [255, 0, 0], kind
    photos = saved(
        "MPO", frames[0].resize((16, 16)), save_all=True, append_images=[frames[1].resize((16, 16))]
    )
    assert read_image(photos)[0].float().mean() > 245, "several photos in a JPEG"


# --- sizes


def test_a_size_is_a_crop_of_the_middle_resized() -> None:
    wide = np.zeros((40, 100, 3), np.uint8)
    wide[:, 30:70] = 200
    assert torch.equal(
        read_image(saved("PNG", Image.fromarray(wide)), (20, 20)),
        torch.full((3, 20, 20), 200, dtype=torch.uint8),
    )
    assert read_image(saved("PNG"), (7, 45)).shape == (3, 7, 45)
    assert torch.equal(read_image(saved("PNG"), (20, 30)), read_image(saved("PNG"))), (
        "an image of that size is not touched"
    )


def test_resizing_is_antialiased() -> None:
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[:, ::2] = 255
    found = read_image(saved("PNG", Image.fromarray(stripes)), (8, 8)).float()
    assert (found - 127.5).abs().max() < 5


@pytest.mark.parametrize("orientation", [1, 6])
def test_a_large_jpeg_is_decoded_small(orientation: int) -> None:
    photo = Image.fromarray(SMOOTH).resize((900, 600), Image.Resampling.BICUBIC)
    data = saved("JPEG", photo, quality=95, exif=b"Exif\0\0" + exif(orientation))
    whole = read_image(
        saved("PNG", Image.fromarray(read_image(data).permute(1, 2, 0).numpy())), (64, 48)
    )
    assert (read_image(data, (64, 48)).float() - whole.float()).abs().mean() < 2


def test_threads_may_read_at_the_same_time() -> None:
    texts = PngImagePlugin.PngInfo()
    texts.add_text("a", "b" * 1000, zip=True)
    sources = [saved("PNG", pnginfo=texts), saved("JPEG"), saved("GIF"), saved("TIFF")] * 10
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(read_image, sources))
    assert all(torch.equal(a, read_image(b)) for a, b in zip(found, sources, strict=True))
