"""The command `translate`."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from ..errors import SaccadeError
from .common_options import FILES, RUNNING, SAMPLING, SEARCH, Model, Text, as_typed, flag, takes
from .predict import Show, prediction
from .shared import keep_given
from .translation_steps import print_given, print_steps

STEPS = "Print every step instead: its beginnings and the likeliest next tokens (* was taken)."
GIVEN = "Score this translation instead, token by token, with the source word of each."


@takes(*SEARCH, *SAMPLING, *FILES, *RUNNING)
def translate(
    model: Model,
    text: Text = None,
    with_alignment: Annotated[
        bool, flag("--align", "Also print the word alignment as source-target pairs (Pharaoh).")
    ] = False,
    with_steps: Annotated[bool, flag("--steps", STEPS)] = False,
    candidates: Annotated[
        int,
        typer.Option(help="With --steps: how many tokens of each step to show.", min=1, max=1000),
    ] = 5,
    given: Annotated[
        str | None, typer.Option("--given", metavar="<text>", help=GIVEN, callback=as_typed)
    ] = None,
    **how: Any,
) -> None:
    """Translate a text, a file or stdin.

    Output keeps the input order; stdin is streamed. In a terminal, without a text: type sentences, one per line; Ctrl-D ends.

    Examples:
        saccade translate runs/demo/bahdanau "the black cat ate the mouse" --align
        saccade translate runs/mine "the black cat" --steps --beam 3
        saccade translate runs/mine "the black cat" --given "le chat noir" --align
        saccade translate runs/mine --input big.txt --beam 5 > big.translated.txt
        saccade translate runs/mine --input big.txt --out big.translated.txt --on ray --jobs 8
        echo "the black cat" | saccade translate runs/mine
        saccade translate runs/mine
    """
    search = keep_given(**{name: how[name] for name in (*SEARCH, *SAMPLING)})
    searched = how["beam"] not in (None, 1) or any(how[name] is not None for name in SAMPLING[:-1])
    check_shown(with_steps, given, with_alignment, candidates, searched)
    show: Show | None = None
    if given is not None:
        show = partial(print_given, target=given, align=with_alignment, as_json=how["json_"])
    elif with_steps:
        show = partial(print_steps, search=search, candidates=candidates, as_json=how["json_"])
    align = with_alignment and given is None
    prediction(model, "translate", align=align, show=show, **how).run(
        [] if text is None else [text]
    )


def check_shown(
    steps: bool, given: str | None, align: bool, candidates: int, searched: bool
) -> None:
    """Raises where options exclude each other: a given translation is not searched for, and has no steps."""
    if given is not None and (steps or searched):
        raise SaccadeError(
            "--given is a translation whose probability is asked for; leave out --steps, --beam and sampling",
            code="given-and-search",
        )
    if steps and align:
        raise SaccadeError(
            "--steps prints the candidates of each step, not the alignment; leave --align out",
            code="steps-and-align",
        )
    if candidates != 5 and not steps:
        raise SaccadeError(
            "--candidates is for --steps; add it, or leave --candidates out", code="needs-steps"
        )
