"""Helpers for capturing CUDA graphs."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Pauses Python's garbage collector, which would free graphs and events during a capture and break it.

    It is not run beforehand: that takes as long as twenty updates of a small model.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def reset_generators(device: torch.device) -> None:
    """Resets the random generators after a failed capture; otherwise they refuse to draw numbers."""
    for generator in torch.cuda.default_generators if device.type == "cuda" else ():
        if device.index in (None, generator.device.index):
            generator.graphsafe_set_state(torch.Generator(generator.device).graphsafe_get_state())
