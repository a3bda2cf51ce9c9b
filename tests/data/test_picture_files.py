"""Files about pictures: every form is read, a bad line and a missing image are named, and no name leads out of its folder."""

from __future__ import annotations

import io
import json
import lzma
import re
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from PIL import Image

from saccade.config import recipes
from saccade.data import archives, image_examples
from saccade.data.archives import Archive, Filed, Member, open_images, pictures_in
from saccade.data.bad_lines import Skipped
from saccade.data.corpora import ASKED, CAPTIONED, PICTURED, Kind, read
from saccade.data.image_examples import Asked, Captioned, Pictured, stack
from saccade.errors import SaccadeError

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"```\w+ (\S+)\n(.*?)```", PAGE, flags=re.DOTALL))
COLORS = {"1.jpg": "red", "2.jpg": "lime", "cat/1.jpg": "blue", "dog/1.jpg": "white"}


def png(color: str, size: int = 8) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (size, size), color).save(out, "PNG")
    return out.getvalue()


FILES = {name: png(color) for name, color in COLORS.items()}
FLAT = {name: FILES[name] for name in ("1.jpg", "2.jpg")}


def folder_of(path: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def zip_of(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in files.items():
            opened.writestr(name, content)
    return path


def tar_of(path: Path, files: dict[str, bytes]) -> Path:
    mode = {".xz": "w:xz", ".gz": "w:gz", ".tgz": "w:gz"}.get(path.suffix, "w")
    with tarfile.open(path, mode) as opened:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            opened.addfile(member, io.BytesIO(content))
    return path


def color_of(image: image_examples.Picture) -> tuple[int, ...]:
    return tuple(image.pixels()[:, 0, 0].tolist())


RED, LIME, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def error_of(kind: Kind, where: Path | str, *how: str) -> str:
    with pytest.raises(SaccadeError) as error:
        read(kind, str(where), None, *how)
    return str(error.value)


# --- forms


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("pictured.tsv", PICTURED),
        ("captioned.jsonl", CAPTIONED),
        ("asked.tsv", ASKED),
        ("asked.json", ASKED),
    ],
)
def test_each_example_of_the_page_is_read(tmp_path: Path, name: str, kind: Kind) -> None:
    folder_of(tmp_path, FILES)
    (tmp_path / name).write_text(EXAMPLES[name])
    found = read(kind, str(tmp_path / name))
    assert [one.line for one in found] == [1, 2]
    assert [color_of(one.image) for one in found] == (
        [BLUE, WHITE] if kind is PICTURED else [RED, LIME]
    )
    if kind is PICTURED:
        assert [one.label for one in found] == ["cat", "dog"]
    elif kind is CAPTIONED:
        assert found[0].captions == ("a cat sleeps", "a black cat on a chair")
    else:
        assert [(one.question, one.answer) for one in found] == [
            ("what color is the cat?", "black"),
            ("how many dogs are there?", "2"),
        ]


def test_captions_of_lines_are_grouped(tmp_path: Path) -> None:
    folder_of(tmp_path, FLAT)
    (tmp_path / "a.tsv").write_text("1.jpg#0\tone\n2.jpg#0\ttwo\n1.jpg#1\tanother\n")
    found = read(CAPTIONED, str(tmp_path / "a.tsv"))
    assert [(one.captions, one.line) for one in found] == [(("one", "another"), 1), (("two",), 2)]
    (tmp_path / "b.csv").write_text('caption,image\n"one, two",1.jpg\n')
    assert read(CAPTIONED, str(tmp_path / "b.csv"))[0].captions == ("one, two",)
    (tmp_path / "c.csv").write_text("said,which\none,1.jpg\n")
    assert read(CAPTIONED, f"{tmp_path / 'c.csv'}#which,said")[0].captions == ("one",)
    (tmp_path / "d.jsonl").write_text('{"image": "1.jpg", "caption": "one"}\n')
    assert read(CAPTIONED, str(tmp_path / "d.jsonl"))[0].captions == ("one",)


@pytest.mark.parametrize("pack", [zip_of, tar_of])
def test_archives_and_folders_of_labels(tmp_path: Path, pack: Callable[..., Path]) -> None:
    more = {
        "train/cat/2.png": png("red"),
        "train/dog/1.jpg": png("blue"),
        "train/README.txt": b"no picture",
        "train/cat/.hidden.png": b"",
    }
    names = ["x.zip"] if pack is zip_of else ["x.tar", "x.tar.xz", "x.tar.gz", "x.tgz"]
    for name in names:
        found = read(PICTURED, str(pack(tmp_path / name, more)))
        assert [(one.label, color_of(one.image), one.line) for one in found] == [
            ("cat", RED, 1),
            ("dog", BLUE, 2),
        ]
        assert found[0].image.name == f"{tmp_path / name}, 'train/cat/2.png'"
    folder = folder_of(tmp_path / "folder", more) / "train"
    found = read(PICTURED, str(folder))
    assert [(one.label, color_of(one.image)) for one in found] == [("cat", RED), ("dog", BLUE)]
    assert found[0].image == Filed(folder / "cat/2.png")


@pytest.mark.parametrize("name", ["train.tar.xz", "train.tar", "train.zip", "train_images.zip"])
def test_images_are_found_beside_their_file(tmp_path: Path, name: str) -> None:
    (zip_of if name.endswith("zip") else tar_of)(
        tmp_path / name, {f"train/{one}": content for one, content in FLAT.items()}
    )
    (tmp_path / "train.jsonl.xz").write_bytes(lzma.compress(EXAMPLES["captioned.jsonl"].encode()))
    assert [color_of(one.image) for one in read(CAPTIONED, str(tmp_path / "train.jsonl.xz"))] == [
        RED,
        LIME,
    ]
    (tmp_path / "train_questions.json.xz").write_bytes(
        lzma.compress(EXAMPLES["asked.json"].encode())
    )
    assert [
        color_of(one.image) for one in read(ASKED, str(tmp_path / "train_questions.json.xz"))
    ] == [RED, LIME]
    (tmp_path / "test.tsv").write_text("1.jpg\tcat\n")
    assert "no image '1.jpg' in" in error_of(PICTURED, tmp_path / "test.tsv"), (
        "not in the archive of another part"
    )


def test_images_can_be_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("1.jpg\tone\n2.jpg\ttwo\n")
    where = (
        zip_of(tmp_path / "one.zip", {"1.jpg": FILES["1.jpg"]}),
        folder_of(tmp_path / "two", {"2.jpg": FILES["2.jpg"]}),
    )
    found = read(CAPTIONED, str(tmp_path / "a.tsv"), None, ",".join(map(str, where)))
    assert [color_of(one.image) for one in found] == [RED, LIME]
    assert "no file" in error_of(CAPTIONED, tmp_path / "a.tsv", str(tmp_path / "none"))
    assert "expected a folder of pictures or an archive" in error_of(
        CAPTIONED, tmp_path / "a.tsv", str(tmp_path / "a.tsv")
    )
    assert "holds the images itself; leave data.images out" in error_of(
        PICTURED, tmp_path / "two", "x"
    )


# --- mistakes


@pytest.mark.parametrize(
    ("kind", "name", "content", "sentence"),
    [
        (CAPTIONED, "a.jsonl", '{"image": "1.jpg", "captions": []}', "line 1: an image without captions"),
        (CAPTIONED, "a.jsonl", '{"image": "1.jpg", "captions": [3]}', 'line 1: "caption" is int, expected a string'),
        (CAPTIONED, "a.jsonl", '{"image": "1.jpg", "captions": ["a", " "]}', "line 1: the caption is empty"),
        (CAPTIONED, "a.jsonl", '{"image": "1.jpg", "captions": ["a"]}\n{"captions": ["a"]}', 'line 2: "image" is missing'),
        (CAPTIONED, "a.jsonl", '{"image": "1.jpg"}', 'line 1: "captions" is missing, expected a string; the line has: "image"'),
        (CAPTIONED, "a.jsonl", '{"image": "1.jpg", "captions": null}', 'line 1: "captions" is NoneType, expected a string'),
        (CAPTIONED, "a.jsonl", "{", "line 1: not JSON"),
        (CAPTIONED, "a.tsv", "1.jpg\ta\n1.jpg", "a.tsv, line 2: 1 column instead of 2; a line is image<TAB>caption"),
        (CAPTIONED, "a.tsv", "3.jpg\ta", "line 1: no image '3.jpg' in"),
        (CAPTIONED, "a.tsv", "../1.jpg\ta", "line 1: the image is '../1.jpg', expected a path below the folder of the images"),
        (CAPTIONED, "a.tsv", "a/../../1.jpg\ta", "expected a path below the folder"),
        (CAPTIONED, "a.tsv", "/etc/passwd\ta", "line 1: the image is '/etc/passwd', expected a path below the folder"),
        (CAPTIONED, "a.tsv", "..\\1.jpg\ta", "expected a path below the folder"),
        (CAPTIONED, "a.txt", "1.jpg", "does not end in .csv, .tsv, .jsonl, so its format is not known"),
        (ASKED, "a.tsv", "1.jpg", "1 column instead of 2 or 3; a line is image<TAB>question<TAB>answer"),
        (ASKED, "a.tsv", "1.jpg\twhat?\t ", "line 1: the answer is empty; write one for each question"),
        (ASKED, "a.tsv", "1.jpg\t\tyes", "line 1: the question is empty"),
        (ASKED, "a.jsonl", '{"image": "1.jpg", "question": "what?", "answer": 1.5}', '"answer" is float instead of text'),
        (ASKED, "a.json", '[["what?", "yes", 1], ["what?", "yes"]]', "a.json, entry 2: expected [question, answer, image]"),
        (ASKED, "a.json", '[["what?", "yes", 7]]', "a.json, entry 1: no image '7' in"),
        (ASKED, "a.json", '[["what?", "yes", "../../etc/passwd"]]', "entry 1: the image is '../../etc/passwd', expected"),
        (ASKED, "a.json", "[", "a.json is not JSON"),
        (ASKED, "a.json", "[]", "holds no questions about pictures"),
        (ASKED, "a.json", "[" * 100_000, "a.json is not JSON"),
        (PICTURED, "a.tsv", "1.jpg\t", "line 1: the label is empty; write one for each image"),
        (PICTURED, "a.jsonl", '{"image": true, "label": "a"}', '"image" is bool, expected a string'),
        (PICTURED, "a.jsonl", '{"image": "1.jpg\\u0000", "label": "a"}', "a NUL character in the image"),
        (PICTURED, "none.tsv", None, "no file '"),
        (PICTURED, "empty.zip", "", "empty.zip cannot be unpacked"),
        (PICTURED, "text.tar.xz", "I am not packed", "text.tar.xz cannot be unpacked"),
        (PICTURED, "text.tar", "I am no archive" * 100, "text.tar cannot be unpacked"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_by_file_and_line(
    tmp_path: Path, kind: Kind, name: str, content: str | None, sentence: str
) -> None:
    folder = folder_of(tmp_path / "in", FLAT)
    folder_of(tmp_path, FLAT)
    if content is not None:
        (folder / name).write_text(content)
    found = error_of(kind, folder / name)
    assert sentence in found
    assert name in found
    assert "\n" not in found


def test_bad_lines_and_missing_images_are_counted_in_training(tmp_path: Path) -> None:
    folder_of(tmp_path, FLAT)
    (tmp_path / "a.tsv").write_text("1.jpg\ta\n3.jpg\ta\n2.jpg\tb\n4.jpg\tb\n1.jpg\n")
    with pytest.raises(SaccadeError, match=r"3 of 5 pictures in .* cannot be used, more than half"):
        read(PICTURED, str(tmp_path / "a.tsv"), skipped=Skipped())
    (tmp_path / "a.tsv").write_text("1.jpg\ta\n3.jpg\ta\n2.jpg\tb\n1.jpg\n")
    skipped = Skipped()
    assert len(read(PICTURED, str(tmp_path / "a.tsv"), skipped=skipped)) == 2
    [note] = skipped.notes()
    assert note.endswith("1 without their image (line 2), 1 with wrong columns (line 4)")


def test_a_folder_without_pictures(tmp_path: Path) -> None:
    assert "holds no pictures with labels; add at least one" in error_of(PICTURED, tmp_path)
    assert "'hub:mnist:train' is a dataset, and pictures are read from files only" in error_of(
        PICTURED, "hub:mnist:train"
    )


def test_a_damaged_image_is_named_with_its_archive(tmp_path: Path) -> None:
    found = read(PICTURED, str(zip_of(tmp_path / "x.zip", {"cat/1.png": png("red")[:40]})))
    with pytest.raises(
        SaccadeError, match=r"x.zip, 'cat/1.png': expected a whole PNG image, got a damaged one"
    ):
        found[0].image.pixels()


def test_a_name_that_several_members_have_is_refused(tmp_path: Path) -> None:
    zip_of(tmp_path / "a.zip", {"x/1.png": png("red"), "y/1.png": png("blue")})
    (tmp_path / "a.tsv").write_text("1.png\tcat\n")
    assert "'1.png' is the name of 2 images, such as" in error_of(PICTURED, tmp_path / "a.tsv")
    (tmp_path / "a.tsv").write_text("y/1.png\tcat\n")
    assert color_of(read(PICTURED, str(tmp_path / "a.tsv"))[0].image) == BLUE


def test_pictures_of_a_file_or_a_folder(tmp_path: Path) -> None:
    folder_of(tmp_path, {**FILES, "notes.txt": b"", ".hidden.png": b""})
    assert [one.name for one in pictures_in(tmp_path)] == [
        str(tmp_path / name) for name in ("1.jpg", "2.jpg")
    ]
    assert color_of(pictures_in(tmp_path / "1.jpg")[0]) == RED
    (tmp_path / "empty").mkdir()
    for where, sentence in (
        ("empty", "holds no images; give a folder with some"),
        ("none", "no file '"),
    ):
        with pytest.raises(SaccadeError, match=sentence):
            pictures_in(tmp_path / where)


# --- hostile archives


def test_nothing_is_written_and_names_are_only_names(tmp_path: Path) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    for pack, name in ((zip_of, "x.zip"), (tar_of, "x.tar"), (tar_of, "y.tar.xz")):
        before = sorted(tmp_path.rglob("*"))
        path = pack(inside / name, {"../../cat/1.png": png("red"), "/etc/dog/2.png": png("blue")})
        assert [(one.label, color_of(one.image)) for one in read(PICTURED, str(path))] == [
            ("cat", RED),
            ("dog", BLUE),
        ]
        assert sorted(tmp_path.rglob("*")) == sorted([*before, path])


def test_links_and_devices_in_an_archive_are_left_out(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as opened:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE):
            member = tarfile.TarInfo(f"cat/{kind!r}.png")
            member.type, member.linkname = kind, "/etc/passwd"
            opened.addfile(member)
        member = tarfile.TarInfo("cat/1.png")
        member.size = len(FILES["1.jpg"])
        opened.addfile(member, io.BytesIO(FILES["1.jpg"]))
    assert [one.image.name for one in read(PICTURED, str(tmp_path / "x.tar"))] == [
        f"{tmp_path / 'x.tar'}, 'cat/1.png'"
    ]


def test_too_many_or_too_large_members_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = {f"a/{n}.png": png("red") for n in range(20)}
    monkeypatch.setattr(archives, "MAX_MEMBERS", 10)
    assert "has 20 members, at most 10 are read; divide it" in error_of(
        PICTURED, zip_of(tmp_path / "a.zip", many)
    )
    assert "has more than 10 members; divide it" in error_of(
        PICTURED, tar_of(tmp_path / "a.tar.xz", many)
    )
    monkeypatch.setattr(archives, "MAX_MEMBER_BYTES", 10_000)
    large = {"a/1.png": bytes(20_000)}
    assert "has a member of more than 10,000 bytes; leave it out" in error_of(
        PICTURED, tar_of(tmp_path / "b.tar.xz", large)
    )
    for path in (zip_of(tmp_path / "b.zip", large), tar_of(tmp_path / "b.tar", large)):
        with pytest.raises(
            SaccadeError, match=r"'a/1.png' in .* is larger than 10,000 bytes; leave it out"
        ):
            read(PICTURED, str(path))[0].image.pixels()
    monkeypatch.setattr(archives, "MAX_UNPACKED_BYTES", 5000)
    assert "unpacks to more than 0 GiB, or is damaged" in error_of(
        PICTURED, tar_of(tmp_path / "c.tar.gz", {"a.txt": bytes(9000), **FILES})
    )


def test_a_header_that_claims_gigabytes_is_refused(tmp_path: Path) -> None:
    """A small file of packed zeros, whose first member is a header of a header with eight gigabytes."""
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 8 * 2**30 - 1
    with lzma.open(tmp_path / "x.tar.xz", "wb") as file:
        file.write(header.tobuf(tarfile.GNU_FORMAT) + bytes(10_000))
    assert "has a member of more than 134,217,728 bytes" in error_of(
        PICTURED, tmp_path / "x.tar.xz"
    )


def test_a_tar_of_negative_sizes_does_not_run_in_circles(tmp_path: Path) -> None:
    header = bytearray(tarfile.TarInfo("a/1.png").tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\xff" * 4 + struct.pack(">q", -512)
    header[148:156] = b" " * 8
    header[148:155] = b"%06o\0" % sum(header)
    (tmp_path / "x.tar").write_bytes(bytes(header) * 5 + bytes(1024))
    assert "x.tar cannot be unpacked (a member of negative size)" in error_of(
        PICTURED, tmp_path / "x.tar"
    )


def test_a_locked_zip_is_refused(tmp_path: Path) -> None:
    data = bytearray(zip_of(tmp_path / "x.zip", {"a/1.png": png("red")}).read_bytes())
    data[6] |= 1
    data[data.index(b"PK\1\2") + 8] |= 1
    (tmp_path / "x.zip").write_bytes(data)
    with pytest.raises(
        SaccadeError, match=r"'a/1.png' in .*x.zip cannot be unpacked \(.*encrypted"
    ):
        read(PICTURED, str(tmp_path / "x.zip"))[0].image.pixels()


# --- many pictures


def test_an_archive_is_opened_once_until_it_changes(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "x.zip", FILES)
    assert open_images(path) is open_images(str(path))
    first = open_images(path)
    zip_of(path, {"cat/3.png": png("red"), **FILES})
    assert open_images(path) is not first
    assert isinstance(first, Archive)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    seen: list[str] = []
    read_member = Archive.read
    monkeypatch.setattr(
        Archive, "read", lambda self, name: seen.append(name) or read_member(self, name)
    )
    return seen


def test_pictures_are_stacked_and_each_is_decoded_once(tmp_path: Path, counted: list[str]) -> None:
    archive = open_images(zip_of(tmp_path / "x.zip", FILES))
    assert isinstance(archive, Archive)
    one, two = (Member(archive, name) for name in ("1.jpg", "2.jpg"))
    found = stack([one, two, one, Member(archive, "1.jpg")], (4, 6))
    assert found.shape == (4, 3, 4, 6)
    assert found.dtype == torch.uint8
    assert found[:, :, 0, 0].tolist() == [list(RED), list(LIME), list(RED), list(RED)]
    assert counted == ["1.jpg", "2.jpg"]


def test_a_stack_larger_than_the_memory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        SaccadeError,
        match=r"1,000 pictures of 4000 × 4000 need 44.7 GiB, at most 16 GiB are kept; use a smaller",
    ):
        stack([Filed(tmp_path)] * 1000, (4000, 4000))


@pytest.mark.parametrize("name", ["x.zip", "x.tar", "x.tar.xz"])
def test_threads_may_read_one_archive(tmp_path: Path, name: str) -> None:
    files = {f"a/{n}.png": png(f"rgb({n}, 0, 0)") for n in range(60)}
    found = read(
        PICTURED, str((zip_of if name.endswith("zip") else tar_of)(tmp_path / name, files))
    )
    with ThreadPoolExecutor(8) as pool:
        colors = list(pool.map(lambda one: color_of(one.image)[0], found))
    assert colors == [int(Path(one.image.name.strip("'")).stem) for one in found]


def test_examples_are_values() -> None:
    image = Filed(Path("x.png"))
    assert Captioned(image, ("a",), 1) == Captioned(Filed(Path("x.png")), ("a",), 1)
    assert (
        len({Asked(image, "what?", "yes"), Asked(image, "what?", "yes"), Pictured(image, "a")}) == 2
    )


SHARED = Path(__file__).resolve().parents[2] / "data"


@pytest.mark.skipif(not (SHARED / "flickr8k").is_dir(), reason="the sets are not in data/")
def test_the_public_sets_are_read_as_they_are() -> None:
    captions = read(CAPTIONED, str(SHARED / "flickr8k/dev.jsonl.xz"))
    assert (
        len(captions),
        {len(one.captions) for one in captions},
        captions[0].image.pixels().shape,
    ) == (1000, {5}, (3, 96, 96))
    questions = read(ASKED, str(SHARED / "easy-vqa/test_questions.json.xz"))
    assert (
        len(questions),
        len({one.answer for one in questions}),
        questions[0].image.pixels().shape,
    ) == (9673, 13, (3, 64, 64))
    labeled = read(PICTURED, str(SHARED / "cifar10/test.tar.xz"))
    assert (len(labeled), len({one.label for one in labeled}), labeled[0].image.pixels().shape) == (
        10000,
        10,
        (3, 32, 32),
    )
    assert json.dumps(captions[0].captions)


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        (
            "data.images=photos.zip",
            "data.images has no effect here: it is for task=autoencoding or captioning or",
        ),
        (
            "data.shapes={train: 9}",
            "data.shapes has no effect here: it is for data such as shapes:train",
        ),
        (
            "data={train: own.tsv, options: {train: 9}}",
            "data.options has no effect here: it is for data such as",
        ),
    ],
)
def test_keys_of_pictures_are_refused_where_there_are_none(word: str, sentence: str) -> None:
    with pytest.raises(SaccadeError) as error:
        recipes.recipe(
            {"data": {"train": "phrasebook:train"}, "model": {"family": "transformer"}}, [word]
        )
    assert sentence in str(error.value)
