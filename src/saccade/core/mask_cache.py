"""Cache of data derived from masks, such as block lists, which cost more than the attention call that uses them."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from torch import Tensor

from .masks import Mask

Made = TypeVar("Made")
cache: WeakKeyDictionary[Mask, dict[str, tuple[Hashable, Any]]] = WeakKeyDictionary()


class SameTensor:
    """Compares a tensor by identity. It holds the tensor, so its id is not reused."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SameTensor) and other.tensor is self.tensor

    def __hash__(self) -> int:
        return id(self.tensor)


def cached_for_mask(mask: Mask, what: str, sizes: Hashable, make: Callable[[], Made]) -> Made:
    """`make()`, cached until `sizes` or the mask's values and tensors change.

    Writes through `.data` or NumPy do not change a tensor's version and are missed: give the mask a new tensor.
    """
    state = fingerprint(mask)
    if state is None:
        return make()
    own, key = cache.setdefault(mask, {}), (sizes, state)
    if what not in own or own[what][0] != key:
        own[what] = key, make()
    found: Made = own[what][1]
    return found


def fingerprint(mask: Mask) -> tuple[Hashable, ...] | None:
    """A key of everything a mask's answers depend on; None for functions and custom classes."""
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
