"""What is made once and used again within a pass over a model, and what may not be read in it.

Many layers ask for the same: places in line, the angles of rotary positions, a mask as a matrix. While a pass is being written down
to be played again (a CUDA graph), what it makes is its own: nothing comes in from outside and nothing is left for others. Within
`torch.compile`, inference and what looks on at every operation (counters, fake tensors) nothing is kept at all.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode

Made = TypeVar("Made")
MOST = 16  # tensors of places, the last ones used


class Memory:
    """What was made, the last used last."""

    def __init__(self) -> None:
        self.made: OrderedDict[Hashable, tuple[Any, ...]] = OrderedDict()
        self.lock = threading.Lock()

    def get(self, key: Hashable) -> tuple[Any, ...] | None:
        with self.lock:
            found = self.made.get(key)
            if found is not None:
                self.made.move_to_end(key)
            return found

    def put(self, key: Hashable, *what: Any) -> None:
        with self.lock:
            self.made[key] = what
            while len(self.made) > MOST:
                self.made.popitem(last=False)


_always = Memory()
_recording: Memory | None = None


@contextmanager
def recording() -> Iterator[None]:
    """Within the `with`, what runs is written down to be played again."""
    global _recording
    _recording = Memory()
    try:
        yield
    finally:
        _recording = None


def written_down() -> bool:
    """Whether no number may be read now: within `torch.compile` and `recording`."""
    return _recording is not None or torch.compiler.is_compiling()


def memory() -> Memory | None:
    """Where to keep what is made now; None where nothing may be kept: tensors may be no real ones then."""
    if torch.compiler.is_compiling() or torch.is_inference_mode_enabled() or _get_current_dispatch_mode() is not None:
        return None
    return _always if _recording is None else _recording


def constant(key: Hashable, make: Callable[[], Made]) -> Made:
    """What depends on nothing but `key`."""
    kept = memory()
    if kept is None:
        return make()
    found = kept.get(key)
    if found is None:
        found = (make(),)
        kept.put(key, *found)
    made: Made = found[0]
    return made


def version(tensor: Tensor) -> int | None:
    """How often a tensor was changed in place; None where nobody counts it: it was made within inference."""
    return None if tensor.is_inference() else tensor._version


def made_of(source: Tensor, key: Hashable, make: Callable[[], Made]) -> Made:
    """What depends on `key` and on a tensor that needs no gradient; made anew when the tensor was changed in place."""
    kept = memory()
    now = None if kept is None else version(source)
    if kept is None or now is None:
        return make()
    whole = (id(source), key)  # the tensor is kept with it, so that no other can have its id
    found = kept.get(whole)
    if found is None or found[0] is not source or found[1] != now:
        found = (source, now, make())
        kept.put(whole, *found)
    made: Made = found[2]
    return made
