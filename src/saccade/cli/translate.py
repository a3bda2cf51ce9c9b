"""The command translate."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import SaccadeError, did_you_mean
from .common_options import (
    Beam,
    Device,
    Input,
    Json,
    LengthPenalty,
    MaxLength,
    Model,
    Precision,
    Seed,
    Text,
    TopK,
    TopP,
    With,
    as_typed,
    flag,
)
from .input_stream import answer_each
from .shared import Unknown, keep_given, load, note, note_cut, write
from .translation_steps import print_given, print_steps

if TYPE_CHECKING:
    from ..experiments.batch import How
    from ..system.system import System

Show = Callable[[list[str]], None]  # prints something else of some lines than their translations
STEPS = "Print every step instead: the beginnings that the search had, and the likeliest tokens to follow; what was taken has a *."
GIVEN = "Translate nothing: how likely is this translation, token by token, and which source word does each look at?"
ON = "here, or ray: on the cluster of RAY_ADDRESS, or on one started on this machine (the extra `cluster`)."
LengthRule = Annotated[
    str,
    typer.Option(
        help="What length counts as: `power`, or `gnmt` for (5 + length) / 6. With a beam."
    ),
]
LEFT_OUT = (
    "Rank outputs lower that left out a part of the source: β of Wu et al. 2016. With a beam."
)
CoveragePenalty = Annotated[float, typer.Option(help=LEFT_OUT)]
Temperature = Annotated[
    float | None, typer.Option(help="Sample at this temperature instead of searching.")
]
KEEP = "Write to this file; until it is whole, finished parts are in FILE.parts, with which the same command continues."


def translate(
    model: Model,
    text: Text = None,
    input_file: Input = None,
    others: With = None,
    beam: Beam = 1,
    length_penalty: LengthPenalty = 1.0,
    length_rule: LengthRule = "power",
    coverage_penalty: CoveragePenalty = 0.0,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = 0,
    max_length: MaxLength = None,
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
    out_file: Annotated[Path | None, typer.Option("--out", help=KEEP)] = None,
    on: Annotated[str, typer.Option("--on", help=ON)] = "here",
    jobs: Annotated[
        int, typer.Option("--jobs", help="With --on ray: parts at a time.", min=1, max=10_000)
    ] = 2,
    device: Device = "auto",
    precision: Precision = "float32",
    json_: Json = False,
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
    from ..experiments.batch import How

    sample = keep_given(temperature=temperature, top_k=top_k, top_p=top_p)
    check_shown(with_steps, given, with_alignment, candidates, bool(sample) or beam > 1)
    ranks = {
        "length_penalty": length_penalty,
        "length_rule": length_rule,
        "coverage_penalty": coverage_penalty,
    }
    folders = str(model), tuple(map(str, others or ()))
    how = How(
        *folders,
        device,
        precision,
        settle_search(beam, sample, seed, ranks),
        max_length,
        with_alignment,
        json_,
    )
    make_search = how.make_search()  # a mistake is reported before anything is read
    check_parts(on, out_file, input_file, with_steps or given is not None)
    system = load(model, device, others, precision)
    system.require("translate")

    if on == "ray" or out_file is not None:
        assert input_file is not None
        return translate_parts(system, list(system.each_input(input_file)), how, on, jobs, out_file)
    show: Show | None = None
    if given is not None:
        show = partial(print_given, system, target=given, align=with_alignment, as_json=json_)
    elif with_steps:
        show = partial(
            print_steps,
            system,
            search=make_search,
            candidates=candidates,
            max_length=max_length,
            as_json=json_,
        )
    translate_each(system, text, input_file, how, show, Unknown(system) if given is None else None)


def translate_each(
    system: "System",
    text: str | None,
    input_file: str | None,
    how: "How",
    show: Show | None,
    unknown: Unknown | None,
) -> None:
    """Prints the translations of what is given or comes on stdin, or what `show` prints of its lines; unknown words are noted."""
    cut = count = 0

    def answer(lines: list[str], first: int) -> None:
        nonlocal cut, count
        system.task.inputs(lines, first)
        if unknown is not None:
            unknown.note(lines)
        if show is not None:
            return show(lines)
        cut += print_translations(system, lines, first, how)
        count += len(lines)

    answer_each(text, input_file, "translate", answer, system.each_input)
    note_cut(cut, count)


def settle_search(
    beam: int, sample: dict[str, object], seed: int, ranks: dict[str, object]
) -> tuple[tuple[str, object], ...]:
    """The settings of a search as pairs that can be sent to other machines: a beam, or samples."""
    if beam > 1 and sample:
        raise SaccadeError(
            "a beam and sampling were both asked for; leave out --beam, or --temperature, --top-k and --top-p"
        )
    drawn = tuple({**sample, "seed": seed}.items()) if sample else None
    return tuple({"beam": beam, "sample": drawn, **ranks}.items())


def check_shown(
    steps: bool, given: str | None, align: bool, candidates: int, searched: bool
) -> None:
    """Raises where options exclude each other: a given translation is not searched for, and has no steps."""
    if given is not None and (steps or searched):
        raise SaccadeError(
            "--given is a translation whose probability is asked for; leave out --steps, --beam and sampling"
        )
    if steps and align:
        raise SaccadeError(
            "--steps prints the candidates of each step, not the alignment; leave --align out"
        )
    if candidates != 5 and not steps:
        raise SaccadeError("--candidates is for --steps; add it, or leave --candidates out")


def check_parts(on: str, out_file: Path | None, input_file: str | None, looks: bool) -> None:
    """What --on and --out need, and what has no parts: a translation that is looked at."""
    if on not in ("here", "ray"):
        raise SaccadeError(f"no way to run named '{on}'{did_you_mean(on, ('here', 'ray'))}")
    if (on == "ray" or out_file is not None) and looks:
        raise SaccadeError(
            "--on ray and --out are for whole translations; leave out --steps and --given"
        )
    if (on == "ray" or out_file is not None) and input_file is None:
        raise SaccadeError(
            f"{'--on ray' if on == 'ray' else '--out'} is for many lines in a file; give --input FILE"
        )
    if out_file is not None and out_file.exists():
        raise SaccadeError(f"{out_file} exists already; remove it, or choose another --out")


def translate_parts(
    system: "System", lines: list[str], how: "How", on: str, jobs: int, out_file: Path | None
) -> None:
    """Translations in the order of the lines, on stdout or into a file, in parts that are kept or sent elsewhere; with a bar on stderr."""
    from ..experiments.batch import kept, translate_all
    from ..files import write_atomically
    from .progress import bars

    progress, cut, whole = bars(), 0, list[str]()
    progress.disable |= len(lines) == 1  # nothing to wait for
    folder = None if out_file is None else out_file.with_name(out_file.name + ".parts")
    with kept(folder, how, lines) as keep, progress:
        task = progress.add_task("translating", total=len(lines), state="")
        for done in translate_all(
            lines, how, system, on, jobs, keep, partial(progress.advance, task)
        ):
            cut += done["cut"]
            if out_file is not None:
                whole += done["lines"]
                continue
            progress.stop()  # a bar and outputs would be mixed in a terminal
            write("\n".join(done["lines"]))
            sys.stdout.flush()
            progress.start()
        if out_file is not None and keep is not None:
            write_atomically(out_file, "".join(f"{line}\n" for line in whole).encode())
            keep.remove()
    if out_file is not None:
        note(f"{out_file}: {len(lines):,} lines")
    note_cut(cut, len(lines))


def print_translations(system: "System", lines: list[str], first: int, how: "How") -> int:
    """Translations on stdout in the order of the lines, with a bar on stderr; returns how many were cut."""
    from ..experiments.batch import translate_lines
    from .progress import bars

    progress = bars()
    progress.disable |= len(lines) == 1  # nothing to wait for
    with progress:
        name = "translating" if first == 1 else f"translating from line {first:,}"
        task = progress.add_task(name, total=len(lines), state="")
        done = translate_lines(system, lines, how, partial(progress.advance, task))
    write("\n".join(done["lines"]))  # after the bar: the two would be mixed in a terminal
    sys.stdout.flush()
    return int(done["cut"])
