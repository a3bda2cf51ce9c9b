"""The application: its commands, in the order of a first visit."""

from __future__ import annotations

from typing import Annotated

import typer

from .. import __version__
from . import compare, convert, demo, generate, label, look, train, use
from .shared import NO_VALUE

app = typer.Typer(
    name="saccade",
    help="Train, use, compare and look into sequence models with attention. Start with: saccade demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def version(wanted: bool) -> None:
    if wanted:
        print(f"saccade {__version__}")
        raise typer.Exit


@app.callback()
def top(
    wanted: Annotated[
        bool, typer.Option("--version", metavar=NO_VALUE, callback=version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Train, use, compare and look into sequence models with attention. Start with: saccade demo"""


app.command("demo", epilog=demo.EXAMPLES)(demo.demo)
app.command("train", epilog=train.EXAMPLES)(train.train)
app.command("convert", epilog=convert.EXAMPLES)(convert.convert)
app.command("average", epilog=train.AVERAGE_EXAMPLES)(train.average)
app.command("compare", epilog=compare.EXAMPLES)(compare.compare)
app.command("translate", epilog=use.TRANSLATE_EXAMPLES)(use.translate)
app.command("generate", epilog=generate.EXAMPLES)(generate.generate)
app.command("tag", epilog=label.TAG_EXAMPLES)(label.tag)
app.command("classify", epilog=label.CLASSIFY_EXAMPLES)(label.classify)
app.command("evaluate", epilog=use.EVALUATE_EXAMPLES)(use.evaluate)
app.command("show", epilog=use.SHOW_EXAMPLES)(use.show)
app.command("explain", epilog=look.EXPLAIN_EXAMPLES)(look.explain)
app.command("list", epilog=look.LIST_EXAMPLES)(look.list_)
app.command("check", epilog=look.CHECK_EXAMPLES)(look.check)
