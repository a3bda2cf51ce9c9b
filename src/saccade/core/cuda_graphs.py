"""CUDA graphs: what every capture needs."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Pauses Python's garbage collector: graphs and events that it finds would be freed in the middle of a capture, which ends the capture.
    It does not run before either: that takes as long as twenty updates of a small model."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def reset_generators(device: torch.device) -> None:
    """After a capture that failed: PyTorch's random numbers would wait for its end, and refuse to be drawn."""
    for generator in torch.cuda.default_generators if device.type == "cuda" else ():
        if device.index in (None, generator.device.index):
            generator.graphsafe_set_state(torch.Generator(generator.device).graphsafe_get_state())
