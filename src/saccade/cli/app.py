"""The application: its commands, in the order of a first visit. Each command is a function in the file of its name."""

from __future__ import annotations

import inspect
from typing import Annotated

import typer

from .. import __version__
from . import average, check, classify, compare, convert, demo, evaluate, explain, generate, list, show, tag, train, translate
from .shared import flag

COMMANDS = (
    demo.demo, train.train, convert.convert, average.average, compare.compare, translate.translate, generate.generate, tag.tag,
    classify.classify, evaluate.evaluate, show.show, explain.explain, list.list_, check.check,
)  # fmt: skip
app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown")


def version(wanted: bool) -> None:
    if wanted:
        print(f"saccade {__version__}")
        raise typer.Exit


@app.callback()
def top(wanted: Annotated[bool, flag("--version", "Print the version.", callback=version, is_eager=True)] = False) -> None:
    """Train, use, compare and look into sequence models with attention. Start with: saccade demo"""


for command in COMMANDS:
    description, _, examples = inspect.getdoc(command).partition("Examples:\n")  # type: ignore[union-attr]
    epilog = "Examples:\n\n" + "\n\n".join(f"    {line.strip()}" for line in examples.splitlines())
    app.command(command.__name__.rstrip("_"), help=description, epilog=epilog)(command)
