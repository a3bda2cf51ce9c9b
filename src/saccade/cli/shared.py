"""What commands share: reading input, printing for people and for machines, pictures and result files."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from ..data.lines import readable
from ..errors import SaccadeError, did_you_mean

if TYPE_CHECKING:
    from ..experiments.results import Rows
    from ..system.system import System
    from ..views.document import Document, Site

ALL_SITES = (".html", ".json")  # files that contain every attention of a model
NAMED = 8  # unknown words that are named
WIDE = 10_000  # columns of a table in a file or a pipe, where nothing is wrapped
NARROW = 80  # columns where the terminal says that it has none


def console(**how: Any) -> Console:
    """Prints for people; what a user typed as it was: `:cat:` is not a picture."""
    made = Console(highlight=False, emoji=False, **how)
    if not made.width:  # set where it must be alone: else it follows the terminal's
        made.width = NARROW
    return made


out = console()


class Listeners:
    """Stderr as it is at the moment; when who reads it has gone (a closed terminal or pipe, a full device), the work continues unheard."""

    def write(self, text: str) -> int:
        try:
            return sys.stderr.write(text)
        except OSError:
            self.close()
            return len(text)

    def flush(self) -> None:
        try:
            sys.stderr.flush()
        except OSError:
            self.close()

    def close(self) -> None:
        """What is printed from now on goes nowhere, also when Python ends and prints what is left."""
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)


err = console(file=Listeners())
# what a terminal would obey, but for tabs and line ends; texts, labels and words of a vocabulary may hold it
COMMANDING = re.compile("[\0-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]")


def visible(text: str) -> str:
    """The text with escape sequences spelled out: `\\x1b[2J` is read, not obeyed."""
    return COMMANDING.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def note(text: str) -> None:
    """Text for people on stderr."""
    err.print(visible(text), markup=False, soft_wrap=True)


def write(text: str, end: str = "\n") -> None:
    """Text on stdout as it is, but for escape sequences: no tab, bracket or line end of it is changed."""
    if not out.quiet:
        sys.stdout.write(visible(text) + end)


def show_all(shown: RenderableType) -> None:
    """A table on stdout: fitted to the terminal; in a file or a pipe as wide as it is, whatever terminal stderr is."""
    if sys.stdout.isatty():
        out.print(shown)
        return
    plain = console(file=io.StringIO(), width=WIDE, color_system=None)
    plain.print(shown)
    write("\n".join(line.rstrip() for line in plain.file.getvalue().splitlines()))  # type: ignore[attr-defined]


def show_table(
    columns: Sequence[object], rows: Iterable[Sequence[object]], title: str | None = None
) -> None:
    """A table on stdout, with brackets as they are."""
    table = Table(
        *map(str, columns),
        title=title,
        title_justify="left",
        box=None,
        pad_edge=False,
        header_style="bold",
    )
    for row in rows:
        table.add_row(*(Text(str(value)) for value in row))
    show_all(table)


def list_names(what: str, rows: Sequence[tuple[str, str]], as_json: bool) -> None:
    """Names that a command takes, with what they mean."""
    if not as_json:
        return show_table((what, ""), rows)
    for name, about in rows:
        print_json({"name": name, "about": about})


def size_of(count: int) -> str:
    """A number of bytes for people."""
    return f"{count / 1e6:,.1f} MB"


def print_json(value: Any) -> None:
    """One line of strict JSON on stdout."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    write(COMMANDING.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def report(as_json: bool, facts: Any, text: str) -> None:
    """A command's outcome, for machines or for people."""
    if as_json:
        print_json(facts)
    else:
        write(text)


def keep_given(**options: Any) -> dict[str, Any]:
    return {
        name: value for name, value in options.items() if value is not None and value is not False
    }


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


def as_lines(raw: bytes, name: str, first: int = 1) -> list[str]:
    """The lines of some bytes that are UTF-8 text, a final line feed aside; `first` is the number of the first."""

    try:
        lines = raw.decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        number, byte = raw.count(b"\n", 0, error.start) + first, raw[error.start]
        raise SaccadeError(
            f"{name}, line {number}: not UTF-8 (byte 0x{byte:02x}); convert it first",
            code="not-utf8",
        ) from None
    return [
        readable(line.removesuffix("\r"), "line", Path(name), number)
        for number, line in enumerate(lines, first)
    ]


def load(
    model: Path, device: str, others: list[Path] | None = None, precision: str = "float32"
) -> System:
    """The system in a model folder or run folder; what should be known about it is printed on stderr. With others, the ensemble."""
    from .. import api

    systems = [api.load(folder, device, precision) for folder in (model, *(others or []))]
    for text in [text for system in systems for text in system.notes]:
        note(text)
    return api.ensemble(systems) if others else systems[0]


class Unknown:
    """Notes on stderr which words a model has never seen, some of them: a large file has thousands."""

    def __init__(self, system: System) -> None:
        self.system, self.told = system, set[str]()

    def note(self, lines: list[str]) -> None:
        if len(self.told) >= NAMED:
            return
        words = [word for word in self.system.unknown_words(lines) if word not in self.told]
        self.told.update(words[:NAMED])
        if words:
            named = ", ".join(f"'{word}'" for word in words[:NAMED]) + (
                " …" if len(words) > NAMED else ""
            )
            note(
                f"note: the model has never seen {named} and reads {'it' if len(words) == 1 else 'each'} as <unk>"
            )


def note_unknown(system: System, lines: list[str]) -> None:
    """Prints on stderr which words the model has never seen."""
    Unknown(system).note(lines)


def note_cut(cut: int, count: int) -> None:
    """Prints on stderr how many outputs did not come to their end."""
    if cut:
        note(
            f"note: {cut:,} of {count:,} outputs reached the length limit and were cut; raise it with --max-length"
        )


def draw(
    document: Document, site: Site | None, heads: bool, out_file: Path, head: int | None = None
) -> None:
    """A page that begins with a site, a document of all sites, or a picture of one, by the file's ending; without a site, the document's
    own choice."""
    from ..views.document import PICTURES
    from ..views.plots.fonts import find

    document.save(out_file, None if site is None else site.name, heads, head)
    suffix = out_file.suffix.lower()
    if suffix in PICTURES and suffix != ".svg":  # there a viewer takes its own fonts
        lacking = find(
            "".join((document.title, *(() if site is None else (*site.rows, *site.columns))))
        )
        if lacking:
            note(f"note: {lacking}")


def check_result(name: str | None, peers: list[str] | None = None) -> Rows:
    """Checks a result file's name and peers before anything is measured; returns the peers."""
    from ..experiments.results import check_name, read_peers

    if name is not None:
        check_name(name)
    return read_peers(peers or [])


def check_name(what: str, given: str, known: Collection[str]) -> None:
    """Raises at a word that is none of the known ones."""
    if given not in known:
        raise SaccadeError(
            f"no {what} named '{given}'{did_you_mean(given, known)}", code="unknown-name"
        )
