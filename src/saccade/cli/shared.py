"""What commands share: reading input, printing for people and for machines, pictures and result files."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ..errors import SaccadeError

if TYPE_CHECKING:
    from ..system import System
    from ..views.document import Document, Site

PEER = re.compile(r"([^:]+):([^=]+)=([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)", re.IGNORECASE)
ALL_SITES = (".html", ".json")  # files that contain every attention of a model
out = Console(highlight=False, emoji=False)  # what a user typed is printed as it was: `:cat:` is not a picture
err = Console(stderr=True, highlight=False, emoji=False)
write = partial(out.print, markup=False, soft_wrap=True)  # text for people on stdout, as it is
note = partial(err.print, markup=False, soft_wrap=True)  # and on stderr


def print_json(value: Any) -> None:
    """One line of strict JSON on stdout."""
    if not out.quiet:
        sys.stdout.write(json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n")


def report(as_json: bool, facts: Any, text: str) -> None:
    """A command's outcome, for machines or for people."""
    if as_json:
        print_json(facts)
    else:
        write(text)


def keep_given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None and value is not False}


def command_name() -> str:
    """How the user can call this command from here: `saccade` when a shell finds it, else the path it was called by."""
    called = Path(sys.argv[0])
    if called.name != "saccade" or shutil.which("saccade") is not None:
        return "saccade"
    return os.path.relpath(called) if called.is_relative_to(Path.cwd()) else str(called)


def rank() -> int:
    """The number of this process among those of one training run, 0 for a single one."""
    if "WORLD_SIZE" not in os.environ:  # not started by torchrun
        return 0
    from ..training.distributed import rank_here

    return rank_here()


def read_lines(text: str | None, path: Path | None, verb: str) -> list[str]:
    """What to work on: the argument, a file's lines, or stdin's; only a line feed ends one."""
    from ..data.lines import open_text, readable

    if text is not None and path is not None:
        raise SaccadeError("both a text and --input were given; give one of them")
    if path is not None:
        return list(open_text(path))
    if text is not None:
        if not text.strip():
            raise SaccadeError("the text is empty; give a sentence")
        raw, name = os.fsencode(text), "the text"
    else:
        if sys.stdin is None or sys.stdin.isatty():
            raise SaccadeError(f'nothing to {verb}; give a text ("the black cat"), --input FILE, or lines on stdin')
        raw, name = sys.stdin.buffer.read(), "stdin"
        if not raw:
            raise SaccadeError("stdin is empty; give at least one line")
    try:
        lines = raw.decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        number, byte = raw.count(b"\n", 0, error.start) + 1, raw[error.start]
        raise SaccadeError(f"{name}, line {number}: not UTF-8 (byte 0x{byte:02x}); convert it first") from None
    return [readable(line.removesuffix("\r"), "line", Path(name), number) for number, line in enumerate(lines, 1)]


def note_unknown(system: System, lines: list[str]) -> None:
    """Prints on stderr which words the model has never seen."""
    words = system.unknown_words(lines)
    if words:
        named = ", ".join(f"'{word}'" for word in words[:8]) + (" …" if len(words) > 8 else "")
        note(f"note: the model has never seen {named} and reads {'it' if len(words) == 1 else 'each'} as <unk>")


def check_drawable(out_file: Path | None) -> None:
    if out_file is not None and out_file.suffix.lower() not in (".png", ".svg", ".pdf", *ALL_SITES):
        raise SaccadeError(f"cannot draw to '{out_file}'; name a file ending in .png, .svg, .pdf, .html or .json")


def draw(document: Document, site: Site, heads: bool, out_file: Path, head: int | None = None) -> None:
    """A page that begins with a site, a document of all sites, or a picture of one, by the file's ending."""
    from ..files import write_atomically
    from ..views import pictures
    from ..views.fonts import find
    from ..views.page import attention_page

    suffix, (title, model) = out_file.suffix.lower(), (document.title, document.model)
    if suffix == ".json":
        write_atomically(out_file, document.to_json().encode())
    elif suffix == ".html":
        first = [site, *(other for other in document.sites if other is not site)]
        write_atomically(out_file, attention_page(replace(document, sites=first)).encode())
    else:
        pictures.save(pictures.heads(site, title, model) if heads else pictures.alignment(site, title, model, head), out_file)
        lacking = find("".join((title, *site.rows, *site.columns)))
        if lacking and suffix != ".svg":  # there a viewer takes its own fonts
            note(f"note: {lacking}")


def result_writer(name: str | None, words: list[str] | None) -> Callable[[dict[str, Any], str, list[int]], object]:
    """Checks a result file's name and peers before anything is measured; returns what writes it, called when all is printed."""
    from ..results import check_name, write_result

    peers: dict[str, dict[str, float]] = {}
    for word in words or []:
        found = PEER.fullmatch(word)
        if found is None:
            raise SaccadeError(f"--peer is '{word}'; write NAME:METRIC=VALUE, such as nanoGPT:val_loss=1.4697")
        peers.setdefault(found[1], {})[found[2]] = float(found[3])
    if name is None:
        return lambda *_: None
    check_name(name)
    return lambda metrics, recipe, seeds: write_result(name, metrics, recipe, seeds, peers)
