"""Figures of the lectures, drawn from live parts: each module computes numbers and passes them to `views.plots`."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ...errors import SaccadeError, did_you_mean
from ...settings import check

if TYPE_CHECKING:
    from .drawing import Drawing

# name → module and what it draws; modules are loaded when they are asked for
FIGURES = {
    "mask": ("mask_pictures", "any attention mask, swin, big-bird, or a file of zeros and ones"),
    "positions": ("position_pictures", "index × dimension, pᵢ·pⱼ, and the binary table"),
    "desiderata": ("desiderata", "position encodings: unique, bounded, the same at every length"),
    "scaling": ("scaling", "variance, entropy and gradient of softmax, with and without √D"),
    "landscape": (
        "landscape",
        "the loss around a model with and without residuals, or around runs",
    ),
    "words": ("word_map", "a map of words: of a run folder's model, or by phrasebook counts"),
    "model": ("model_diagram", "a block diagram of a recipe or run, with shapes and parameters"),
    "cost": ("cost_curves", "time, memory, operations, path length and steps against length"),
    "distance": ("gradient_distance", "the gradient at a source word against its distance"),
    "orders": ("word_orders", "one sentence in seven languages, with links between the words"),
    "share": ("operation_share", "the share of operations outside attention, by size and length"),
}


def options_of(what: str) -> dict[str, inspect.Parameter]:
    """The options of a figure, besides its names; one named `options` takes any."""
    if what not in FIGURES:
        raise SaccadeError(
            f"no drawing named '{what}'{did_you_mean(what, FIGURES)}", code="unknown-drawing"
        )
    function = import_module(f".{FIGURES[what][0]}", __package__).draw
    return {
        name: one for name, one in inspect.signature(function).parameters.items() if name != "names"
    }


def draw(what: str, names: list[str] | None = None, **options: Any) -> Drawing:
    """A figure by its name, of these names, with these options; an option that it does not have is refused."""
    known = options_of(what)
    wrong = next((name for name in options if name not in known), None)
    if wrong is not None and not any(
        one.kind is inspect.Parameter.VAR_KEYWORD for one in known.values()
    ):
        has = ", ".join(known) or "none"
        raise SaccadeError(
            f"draw {what} has no option '{wrong}'; its options: {has}", code="unknown-option"
        )
    for name, value in options.items():
        default = known[name].default if name in known else None
        if type(default) in (int, float):
            options[name] = check(value, type(default), {}, f"draw.{name}")
        elif isinstance(default, tuple):
            options[name] = tuple(check(value, list[int], {}, f"draw.{name}"))
    made: Drawing = import_module(f".{FIGURES[what][0]}", __package__).draw(names or [], **options)
    return made
