"""The command `draw`: what lectures draw, made anew from live parts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import SaccadeError
from .common_options import Json
from .completion import figure_names
from .shared import err, note, print_json, show_table, write

if TYPE_CHECKING:
    from ..teaching.draw.drawing import Drawing

ENDINGS = (".png", ".svg", ".pdf", ".html")
WORDS = "Names (masks, positions, forms, a recipe, runs, words) and options as KEY=VALUE, such as left=3."
LENGTHS = "Several lengths, separated by commas."


def draw(
    what: Annotated[
        str,
        typer.Argument(
            help="What to draw; without WHAT's own names, its usual ones.",
            autocompletion=figure_names,
        ),
    ],
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME|KEY=VALUE]…", help=WORDS)
    ] = None,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="The file: .png, .svg, .pdf or .html.")
    ] = None,
    length: Annotated[int | None, typer.Option("--length", help="Positions or words.")] = None,
    lengths: Annotated[str | None, typer.Option("--lengths", help=LENGTHS)] = None,
    dim: Annotated[int | None, typer.Option("--dim", help="The width of vectors.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Of what is random.")] = None,
    json_: Json = False,
) -> None:
    """Draw teaching figures from live parts.

    Figures: mask, positions, scaling, landscape, words, model, cost, distance, orders, share. Without --out the numbers are printed. An
    option that a figure does not have is refused, and its options are listed.

    Examples:
        saccade draw mask causal window big-bird left=3 --length 64 --out masks.png
        saccade draw mask swin --length 64 --out swin.svg
        saccade draw positions sinusoidal --length 128 --out positions.png
        saccade draw model phrasebook-transformer --out model.html
        saccade draw cost full lstm --lengths 64,128,256 --json
    """
    if out_file is not None and out_file.suffix.lower() not in ENDINGS:
        raise SaccadeError(
            f"cannot draw into '{out_file}'; the name must end in {', '.join(ENDINGS)}",
            code="unknown-ending",
        )
    options: dict[str, Any] = {
        name: value
        for name, value in (("length", length), ("dim", dim), ("seed", seed))
        if value is not None
    }
    options |= {} if lengths is None else {"lengths": whole_numbers(lengths)}
    with err.status("drawing …"):
        from ..teaching import draw as drawing

        names, given = divide(words or [])
        if doubled := next((name for name in given if name in options), None):
            raise SaccadeError(
                f"{doubled} is given twice, as --{doubled} and as {doubled}=; give one of them",
                code="given-twice",
            )
        made = drawing.draw(what, names, **options, **given)
        if out_file is not None:
            save(made, out_file)
    if json_:
        print_json(
            {
                "title": made.title,
                "text": made.text,
                "table": made.table,
                **({"out": str(out_file)} if out_file else {}),
            }
        )
        return
    show_table(made.table[0], made.table[1:], made.title)
    write(f"\n{made.text}")
    if out_file is not None:
        note(f"written: {out_file}")


def divide(words: list[str]) -> tuple[list[str], dict[str, Any]]:
    """Names, and options written as key=value, whose values are read as YAML."""
    import yaml

    names, options = list[str](), dict[str, Any]()
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key.isidentifier():
            names.append(word)
            continue
        try:
            options[key] = whole_numbers(text) if key == "lengths" else yaml.safe_load(text)
        except yaml.YAMLError:
            raise SaccadeError(
                f"'{word[:200]}': the value cannot be read; write a number or a list",
                code="unreadable-value",
            ) from None
    return names, options


def whole_numbers(text: str) -> list[int]:
    try:
        return [int(one) for one in text.split(",")]
    except ValueError:
        raise SaccadeError(
            f"expected lengths such as 64,128,256, got '{text}'", code="not-lengths"
        ) from None


def save(made: Drawing, path: Path) -> None:
    """The picture, or a page with the picture, what it says and its numbers."""
    from ..files import write_atomically
    from ..views.figures import save as save_picture
    from ..views.html_page import Section, report_page

    if path.suffix.lower() == ".html":
        write_atomically(
            path,
            report_page(
                made.title,
                [
                    Section("Picture", made.text, picture=made.picture()),
                    Section("Numbers", table=made.table),
                ],
            ).encode(),
        )
    else:
        save_picture(made.figure, path)
