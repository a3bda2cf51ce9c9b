"""The command `lecture`: every slide as something to run."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import SaccadeError
from .common_options import Json, flag
from .completion import TABLES, deck_names
from .shared import note, print_json, show_table, write

if TYPE_CHECKING:
    from ..teaching.lectures import Row

PAGE = "Build one offline site of live drawings into this folder, in the order of the lectures."
TINY = (
    "With --page: models of a few updates and small drawings, to see the pages' form in a minute."
)


def lecture(
    deck: Annotated[
        str | None, typer.Argument(help="000 to 004, or slips.", autocompletion=deck_names)
    ] = None,
    slide: Annotated[
        str | None, typer.Argument(help="A slide by its name or number: its command is run.")
    ] = None,
    page: Annotated[Path | None, typer.Option("--page", help=PAGE)] = None,
    tiny: Annotated[bool, flag("--tiny", TINY)] = False,
    json_: Json = False,
) -> None:
    """List the lectures' slides and run them.

    Each slide is listed with the command that shows it live. Run one of them, or build all of them as a site of pages. A slide whose command
    does not exist yet is listed as `not yet`.

    Examples:
        saccade lecture
        saccade lecture 001
        saccade lecture 001 scaling
        saccade lecture slips
        saccade lecture --page runs/lectures
    """
    from ..teaching import lectures

    if tiny and page is None:
        raise SaccadeError("--tiny is for the pages; add --page FOLDER", code="tiny-without-page")
    if page is not None:
        if deck is not None or slide is not None:
            raise SaccadeError(
                "the site has all decks; leave the deck out, or --page", code="deck-and-site"
            )
        if page.exists() and not page.is_dir():
            raise SaccadeError(
                f"{page} is a file; choose a folder with --page", code="not-a-folder"
            )
        made = lectures.build_site(page, missing, printed, tiny, note)
        write(str(made["index.html"])) if not json_ else print_json(
            {"page": str(made["index.html"]), "pages": sorted(made)}
        )
    elif deck == lectures.SLIPS:
        list_slips(json_)
    elif slide is None:
        list_rows(lectures.rows(deck), json_)
    else:
        [row] = lectures.rows(deck, slide)
        if wrong := missing(row):
            raise SaccadeError(
                f"not yet: {wrong}; `saccade lecture` lists what runs", code="not-yet"
            )
        if (
            needed := next(
                (one for one in row.models if one in row.words and not Path(one).is_dir()), None
            )
        ) is not None:
            recipe = lectures.data()["runs"][needed]
            raise SaccadeError(
                f"expected a model in {needed}; make it first: saccade train {recipe} --out {needed}",
                code="model-missing",
            )
        note(f"{row.title}\n{row.shows}\n$ {row.run}")
        from . import run

        raise typer.Exit(run(row.words))


def missing(row: Row) -> str:
    """What the command of a row names that does not exist: a command, an option, a drawing, a table or a setting; "" if it runs."""
    from ..config import recipes
    from ..teaching import draw

    name, *words = row.words
    if name not in (known := options_of_commands()):
        return f"`saccade {name}` is not a command"
    options = known.get(" ".join(row.words[:2]), known[name])
    if lacking := next((one for one in words if one.startswith("--") and one not in options), None):
        return f"`saccade {name}` has no option {lacking}"
    for command, members in (("draw", draw.FIGURES), ("table", TABLES)):
        if name == command and words[0] not in members:
            return f"`saccade {name}` has no {words[0]}"
    if name not in ("train", "compare"):
        return ""
    try:
        for recipe, settings in recipes_of(row.words):
            recipes.read_recipe(recipe, settings)
    except SaccadeError as error:
        return str(error)
    return ""


@cache
def options_of_commands() -> dict[str, set[str]]:
    """Each command's options; a family by itself has those of its first command."""
    from typer.main import get_command

    from . import app

    found: dict[str, set[str]] = {}
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        for word, one in getattr(command, "commands", {"": command}).items():
            options = {option for parameter in one.params for option in parameter.opts}
            found[f"{name} {word}".strip()] = options
            found.setdefault(name, options)
    return found


def recipes_of(words: list[str]) -> list[tuple[str, list[str]]]:
    """The recipes that `train` or `compare` is given, each with its settings, and once for each value of what is varied."""
    varied = words[words.index("--vary") + 1] if "--vary" in words else ""
    key, _, values = varied.partition("=")
    changes = [[f"{key}={value}"] for value in values.split(",")] if varied else [[]]
    settings = [word for word in words if "=" in word and word != varied]
    first = next((n for n, word in enumerate(words) if word.startswith("--")), len(words))
    return [
        (recipe, [*settings, *change])
        for recipe in words[1:first]
        if "=" not in recipe
        for change in changes
    ]


def printed(words: list[str]) -> str:
    """What a command prints on stdout."""
    from . import run

    text = io.StringIO()
    with redirect_stdout(text), redirect_stderr(io.StringIO()) as errors:
        code = run(words)
    if code:
        raise SaccadeError(
            f"`saccade {' '.join(words)}` failed: {errors.getvalue().strip()}",
            code="command-failed",
        )
    return text.getvalue()


def list_rows(rows: list[Row], as_json: bool) -> None:
    found = [(row, missing(row)) for row in rows]
    if as_json:
        for row, wrong in found:
            facts = {
                "deck": row.deck,
                "slide": row.slide,
                "title": row.title,
                "shows": row.shows,
                "command": row.run,
            }
            print_json({**facts, "runs": not wrong, "missing": wrong, "measured": row.measured})
        return
    listed = [
        (row.deck, row.slide, row.title, "not yet" if wrong else "", row.run)
        for row, wrong in found
    ]
    show_table(("deck", "slide", "title", "", "command"), listed)
    note(
        f"{sum(not wrong for _, wrong in found)} of {len(found)} run; saccade lecture DECK SLIDE runs one"
    )


def list_slips(as_json: bool) -> None:
    from ..teaching.lectures import slip_rows, slips

    if not as_json:
        show_table(slip_rows()[0], slip_rows()[1:])
    for one in slips() if as_json else ():
        print_json(one)
