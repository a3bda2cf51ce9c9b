"""`saccade translate`"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..errors import SaccadeError
from .shared import Beam, Device, Input, Json, Model, Seed, Text, TopK, TopP, flag, note_unknown, print_json, read_lines

TOGETHER = 4096  # lines that are sorted by length and decoded together: a long file's first lines do not wait for its last


def translate(
    model: Model,
    text: Text = None,
    input_file: Input = None,
    others: Annotated[
        list[Path] | None, typer.Option("--with", help="Add a model with the same vocabulary: an ensemble.")
    ] = None,
    beam: Beam = 1,
    length_penalty: Annotated[float, typer.Option(help="Outputs are ranked by log-probability / length^this.")] = 1.0,
    temperature: Annotated[float | None, typer.Option(help="Sample at this temperature instead of searching.")] = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = 0,
    with_alignment: Annotated[bool, flag("--align", "Also print the word alignment as source-target pairs (Pharaoh).")] = False,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Translate a text, a file or stdin; outputs come in the input's order.

    Examples:
        saccade translate runs/demo/bahdanau "the black cat ate the mouse" --align
        saccade translate runs/mine --input big.txt --beam 5 > big.translated.txt
        echo "the black cat" | saccade translate runs/mine
    """
    from .. import api
    from ..data.pairs import Pair, format_pharaoh
    from .progress import count

    asked = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    sample = {name: value for name, value in asked.items() if value is not None}
    if beam > 1 and sample:
        raise SaccadeError("a beam and sampling were both asked for; leave out --beam, or --temperature, --top-k and --top-p")
    search = api.searcher(beam, length_penalty, {**sample, "seed": seed} if sample else None)
    system = api.load(model, device)
    if others:
        system = api.ensemble([system, *(api.load(other, device) for other in others)])
    lines = read_lines(text, input_file, "translate")
    api.check_translatable(system, lines)  # a mistake is reported before anything else
    note_unknown(system, lines)
    with count("translating", len(lines)) as counted:
        for start in range(0, len(lines), TOGETHER):
            some = lines[start : start + TOGETHER]
            found = dict(counted(api.translations(system, some, search)))
            pairs = [Pair(line, found[n].text) for n, line in enumerate(some)]
            links = [one.links for one in api.align(system, pairs)] if with_alignment else None
            for n, pair in enumerate(pairs):
                if json_:
                    facts = {"translation": pair.target, "log_prob": found[n].log_prob, "finished": found[n].finished}
                    print_json({"source": pair.source, **facts, **({} if links is None else {"alignment": links[n]})})
                else:
                    sys.stdout.write(pair.target + ("" if links is None else f"\t{format_pharaoh(links[n])}") + "\n")
            sys.stdout.flush()
