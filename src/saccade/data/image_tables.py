"""Files about pictures: a table or JSONL of images with captions, questions or labels, easy-VQA's JSON, and folders named by labels."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..errors import SaccadeError
from .archives import Shelf, is_archive, open_images
from .delimited import LABELS, SUFFIXES, each_entry, split_name
from .image_examples import Asked, Captioned, Pictured
from .labeled import label_of
from .lines import LineError, bare_suffix, one_file, raw_lines, split_columns, text_of
from .sets import located

IMAGE = ("image", "file", "filename", "file_name", "path", "image_path", "image_id")
CAPTIONS, QUESTIONS, ANSWERS = ("captions", "caption", "text"), ("question",), ("answer", "label")
TABLE = "a .tsv, .csv or .jsonl file (each may end in .gz or .xz)"
MAX_JSON_BYTES = 512 * 2**20  # bytes of a file that is one JSON value
_NUMBERED = re.compile(r"#\d+$")  # Flickr8k numbers the captions of an image: x.jpg#0, x.jpg#1


def each_captioned(where: str | Path, images: str = "") -> Iterator[Captioned | LineError]:
    """Each picture of a file with all its captions, or the error that a line is; `images` as for `Shelf`."""
    path, columns = _table(where, f"{TABLE} of images and captions")
    shelf, grouped = Shelf(path, images), dict[str, tuple[Captioned, list[str]]]()

    def take(
        number: int, entry: dict[str, Any], image: str = "image", captions: str = "captions"
    ) -> None:
        name = _NUMBERED.sub("", image_name(entry, image))
        key = "caption" if captions not in entry and "caption" in entry else captions
        texts = entry[key] if isinstance(entry.get(key), list) else [text_of(entry, key)]
        if not texts:
            raise LineError("empty side", "an image without captions; add one or remove the line")
        read = [text_of({"caption": one}, "caption") for one in texts]
        if name not in grouped:
            grouped[name] = Captioned(shelf.find(name), (), number), []
        grouped[name][1].extend(read)

    def plain(number: int, line: str) -> None:
        name, caption = split_columns(line, (2,), "image<TAB>caption")
        take(number, {"image": name, "captions": caption})

    yield from (
        item
        for item in each_entry(path, take, (IMAGE, CAPTIONS), columns, plain)
        if item is not None
    )
    yield from (
        Captioned(one.image, tuple(captions), one.line) for one, captions in grouped.values()
    )


def each_asked(where: str | Path, images: str = "") -> Iterator[Asked | LineError]:
    """Each question of a file about its picture, or the error that a line is; `images` as for `Shelf`."""
    forms = f"{TABLE} of images, questions and answers, or easy-VQA's .json"
    path, columns = _table(where, forms, ".json")
    shelf = Shelf(path, images)

    def make(
        number: int,
        entry: dict[str, Any],
        image: str = "image",
        question: str = "question",
        answer: str = "answer",
    ) -> Asked:
        known = label_of(entry.get(answer), "answer", "question")
        return Asked(shelf.find(image_name(entry, image)), text_of(entry, question), known, number)

    def plain(number: int, line: str) -> Asked:
        # a question to be answered has two columns
        cells = split_columns(line, (2, 3), "image<TAB>question<TAB>answer")
        return make(number, dict(zip(("image", "question", "answer"), cells, strict=False)))

    if bare_suffix(path) == ".json":
        return _from_list(path, make)
    return each_entry(path, make, (IMAGE, QUESTIONS, ANSWERS), columns, plain)


def each_pictured(where: str | Path, images: str = "") -> Iterator[Pictured | LineError]:
    """Each picture of a file with its label, or the error that a line is; of a folder or an archive of folders that are named by
    labels, each picture in the order of names."""
    path = located(Path(split_name(str(where))[0]).expanduser())  # type: ignore[arg-type]
    if path.is_dir() or is_archive(path):
        if images:
            raise SaccadeError(
                f"data.images is '{images}', but {path} holds the images itself; leave data.images out",
                code="images-given-twice",
            )
        found = open_images(path).classes()
        return (Pictured(image, label, number) for number, (image, label) in enumerate(found, 1))
    path, columns = _table(
        where, f"{TABLE} of images and labels, or a folder or an archive of folders named by labels"
    )
    shelf = Shelf(path, images)

    def make(
        number: int, entry: dict[str, Any], image: str = "image", label: str = "label"
    ) -> Pictured:
        return Pictured(
            shelf.find(image_name(entry, image)),
            label_of(entry.get(label), "label", "image"),
            number,
        )

    def plain(number: int, line: str) -> Pictured:
        name, label = split_columns(line, (2,), "image<TAB>label")
        return make(number, {"image": name, "label": label})

    return each_entry(path, make, (IMAGE, LABELS), columns, plain)


def each_shown(where: str | Path, images: str = "") -> Iterator[Pictured | LineError]:
    """Each picture of a folder or an archive, wherever it lies in it; of a file with labels each picture that it names."""
    path = located(Path(split_name(str(where))[0]).expanduser())  # type: ignore[arg-type]
    if images or not (path.is_dir() or is_archive(path)):
        return each_pictured(where, images)
    return (
        Pictured(image, None, number)
        for number, image in enumerate(open_images(path).pictures(), 1)
    )


def image_name(entry: dict[str, Any], key: str) -> str:
    """The name of an image in a row; a whole number is the name without its suffix."""
    value = entry.get(key)
    return str(value) if type(value) is int else text_of(entry, key).strip()


def _table(where: str | Path, forms: str, *more: str) -> tuple[Path, list[str]]:
    name, columns = split_name(where)
    path = one_file(str(name), forms)
    if bare_suffix(path) not in (*SUFFIXES, *more):
        raise SaccadeError(
            f"'{path}' does not end in {', '.join((*SUFFIXES, *more))}, so its format is not known; give {forms}",
            code="unknown-ending",
        )
    return path, columns


def _from_list(path: Path, make: Callable[..., Asked]) -> Iterator[Asked]:
    """easy-VQA's file: one list of [question, answer, image]; or one of objects."""
    size, content = 0, []
    for line in raw_lines(path, MAX_JSON_BYTES):
        size += len(line)
        content.append(line)
        if size > MAX_JSON_BYTES:
            raise SaccadeError(
                f"{path} is longer than {MAX_JSON_BYTES:,} bytes; write .jsonl, one question on each line",
                code="too-large",
            )
    try:
        rows = json.loads(b"".join(content))
    except (ValueError, RecursionError) as error:
        raise SaccadeError(
            f"{path} is not JSON ({str(error)[:100]}); write a list of [question, answer, image]",
            code="not-json",
        ) from None
    for number, row in enumerate(rows if isinstance(rows, list) else [rows], 1):
        try:
            if isinstance(row, list) and len(row) == 3:
                row = dict(zip(("question", "answer", "image"), row, strict=True))
            if not isinstance(row, dict):
                raise LineError(
                    "JSON",
                    "expected [question, answer, image] or an object with these names; write it so",
                )
            yield make(number, row)
        except LineError as error:
            raise SaccadeError(
                f"{path}, entry {number}: {error.args[0]}", code=error.code
            ) from None
