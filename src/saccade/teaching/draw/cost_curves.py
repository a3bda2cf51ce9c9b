"""The cost of a pass over a text by its length: seconds, memory, operations, path length and sequential steps."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...errors import SaccadeError, did_you_mean
from ...experiments.attention_forms import FORMS, settings_of
from ...experiments.pass_costs import cost_of_pass, follow_paths, longest_chain, run_small
from ...models.builder import Builder
from ...models.protocols import Encoder
from ...training.flops import counter
from ...views.plots.layout import in_rows, panels
from ...views.plots.panels import Lines
from .drawing import Drawing, rounded

LENGTHS = (64, 128, 256, 512)
DEFAULT_FORMS = ("full", "window", "convolution", "lstm", "performer")
NAMES = [name for name, values in FORMS.items() if values["family"].endswith("encoder")]
PATH_LENGTHS = (8, 16, 32)  # lengths at which layers and steps are counted on live models
SIZES = {"dim": 64, "hidden": 128, "depth": 1, "heads": 2}
SMALL_WINDOW = 4  # of the window whose path is counted: the one that is timed would reach both ends in one layer
SMALL = {"dim": 16, "hidden": 16, "heads": 2, "depth": 1}
UNITS = {"seconds": "seconds", "memory": "MiB", "operations": "FLOP"}
Numbers = dict[str, dict[str, dict[int, float]]]


def measure(
    forms: Sequence[str], lengths: Sequence[int], paths: Sequence[int] = PATH_LENGTHS
) -> Numbers:
    """By form, measure and length. `path`: layers until the last output has a gradient at the first input, times the positions that a
    recurrence passes; `steps`: the longest chain of operations that wait for one another."""
    found = Numbers()
    for form in forms:
        mine: dict[str, dict[int, float]] = {
            name: {} for name in ("seconds", "memory", "operations", "path", "steps")
        }
        for length in lengths:
            settings = settings_of(form, length, SIZES)
            seconds, memory = cost_of_pass(settings, length, torch.device("cpu"))
            mine["seconds"][length], mine["memory"][length] = seconds, memory / 2**20
            mine["operations"][length] = count(form, length)
        for length in paths:
            settings = settings_of(form, length, SMALL)
            if form == "window":
                settings["mask"] = {"name": "window", "left": SMALL_WINDOW}
            layers = follow_paths(settings, length)["layers"]
            if layers != "none":
                mine["path"][length] = layers
            mine["steps"][length] = longest_chain(run_small(settings, length)[0].grad_fn)
        # a recurrence: the way between both ends passes all between
        if mine["steps"][max(paths)] > mine["steps"][min(paths)]:
            mine["path"] = {length: layers * length for length, layers in mine["path"].items()}
        found[form] = mine
    return found


def count(form: str, length: int) -> float:
    """The operations of a forward and a backward pass."""
    model = Builder(settings_of(form, length, SIZES)).make(Encoder, 256)
    with counter() as counted:
        model(torch.ones(1, length, dtype=torch.long), torch.full((1,), length)).sum().backward()
    return float(counted.get_total_flops())


def draw(names: list[str], lengths: Sequence[int] = LENGTHS) -> Drawing:
    """Seconds, memory, operations, path length and sequential steps against the length of a text, for forms of `table efficient`."""
    if len({*lengths}) < 2 or min(lengths) < 16 or max(lengths) > 65_536:
        raise SaccadeError(
            f"expected two or more lengths from 16 to 65,536, got {', '.join(map(str, lengths))}",
            code="out-of-range",
        )
    for name in names:
        if name not in NAMES:
            raise SaccadeError(
                f"no form named '{name}'{did_you_mean(name, NAMES)}", code="unknown-form"
            )
    found = measure(names or DEFAULT_FORMS, sorted({*lengths}))
    titles = {"path": "steps between both ends", "steps": "operations that wait for one another"}
    shown = []
    for what in ("seconds", "memory", "operations", "path", "steps"):
        series = {form: list(mine[what].items()) for form, mine in found.items() if mine[what]}
        axes = ("tokens", UNITS.get(what, ""), 2.7, 2.3)
        shown.append(Lines(titles.get(what, what), *axes, series, "xy"))
    longest, furthest = max(lengths), max(PATH_LENGTHS)
    head = [f"{what} at {longest:,}" for what in ("seconds", "MiB", "operations")]
    rows = [
        [
            "form",
            *head,
            f"path at {furthest}",
            f"chain at {PATH_LENGTHS[0]}",
            f"chain at {furthest}",
        ]
    ]
    for form, mine in found.items():
        numbers = [rounded(mine[what][longest]) for what in ("seconds", "memory")]
        numbers.append(f"{mine['operations'][longest]:.3g}")
        ends = rounded(mine["path"][furthest]) if furthest in mine["path"] else "–"
        steps = [f"{mine['steps'][length]:,}" for length in (PATH_LENGTHS[0], furthest)]
        rows.append([form, *numbers, ends, *steps])
    note = f"one block of width 64, one text, forward and backward · window: 64 tokens to each side, {SMALL_WINDOW} where layers are counted"
    title = "The cost of a text against its length"
    text = (
        "One block, forward and backward, on this machine's CPU: seconds, the peak of memory and operations. Attention joins both ends of "
        "a text in one layer and no step waits for another, but its cost grows with the square of the length; an LSTM's grows with "
        "the length, and its steps wait for one another; a window or a convolution needs more layers the longer the text is."
    )
    return Drawing(title, text, rows, panels(title, note, in_rows(shown)))
