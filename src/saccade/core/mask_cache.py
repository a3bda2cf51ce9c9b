"""What is made from a mask and kept with it, since the same mask may be passed to call after call: lists of blocks, which take longer to make
than a call that uses them."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from torch import Tensor

from .masks import Mask

Made = TypeVar("Made")
cache: WeakKeyDictionary[Mask, dict[str, tuple[Hashable, Any]]] = WeakKeyDictionary()


class SameTensor:
    """A tensor that equals itself alone. It is held, so that no new tensor can get its id."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SameTensor) and other.tensor is self.tensor

    def __hash__(self) -> int:
        return id(self.tensor)


def cached_for_mask(mask: Mask, what: str, sizes: Hashable, make: Callable[[], Made]) -> Made:
    """`make()`, or what it made the last time, if nothing has changed since: `sizes`, and the mask's own numbers and tensors.
    A write through `.data` or NumPy has no version and is not noticed: give the mask a new tensor."""
    state = fingerprint(mask)
    if state is None:
        return make()
    own, key = cache.setdefault(mask, {}), (sizes, state)
    if what not in own or own[what][0] != key:
        own[what] = key, make()
    found: Made = own[what][1]
    return found


def fingerprint(mask: Mask) -> tuple[Hashable, ...] | None:
    """What a mask's answers depend on; None where it is not known, as of a function or a class of one's own."""
    if type(mask).__module__ != Mask.__module__:
        return None
    found = list[Hashable]()
    for value in vars(mask).values():
        inner: Hashable = value
        if isinstance(value, Mask):
            inner = fingerprint(value)
        elif isinstance(value, Tensor):
            inner = None if value.is_inference() else (SameTensor(value), value._version)
        elif not isinstance(value, int | float | str):
            return None
        if inner is None:
            return None
        found.append(inner)
    return tuple(found)
