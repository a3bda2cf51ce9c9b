"""Decoder state and caches. They are values: stepping twice from one state gives the same result twice."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Self, TypeVar

import torch
from torch import Tensor

Made = TypeVar("Made")


class Memo:
    """Base class of objects that cache derived data."""

    kept: dict[Hashable, Any]

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """`make()`, cached under `key`. It must depend on this object and `key` alone."""
        if key not in self.kept:
            self.kept[key] = make()
        found: Made = self.kept[key]
        return found


class Cache:
    """The state of one block, such as keys and values or the last inputs of a convolution. Immutable."""

    def reorder(self, rows: Tensor) -> Self:
        """A cache whose row n is row rows[n] of this one. Rows may repeat or be dropped."""
        raise NotImplementedError


class Buffer:
    """Preallocated keys and values, of which the first `used` positions are filled."""

    def __init__(self, key: Tensor, value: Tensor, used: int) -> None:
        self.key, self.value, self.used = key, value, used


class KeyValues(Cache):
    """Cached keys (B H N D) and values (B H N E) in a buffer that doubles when full.

    Caches may share a buffer. The cache at its end appends in place; any other one copies its part first.

    >>> import torch
    >>> from saccade.core import KeyValues
    >>> cache = KeyValues().append(torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3, 4))
    >>> cache.length, cache.key.shape
    (3, torch.Size([1, 2, 3, 4]))
    """

    def __init__(self, buffer: Buffer | None = None, length: int = 0) -> None:
        self.buffer, self.length = buffer, length

    def append(self, key: Tensor, value: Tensor) -> KeyValues:
        """A cache with further positions at the end."""
        buffer, end = self.buffer, self.length + key.shape[2]
        if buffer is None:
            return KeyValues(Buffer(key, value, end), end)
        # Autograd forbids in-place changes.
        if torch.is_grad_enabled():
            return KeyValues(
                Buffer(torch.cat([self.key, key], 2), torch.cat([self.value, value], 2), end), end
            )
        # Tensors of a closed inference mode are read-only.
        closed = buffer.key.is_inference() and not torch.is_inference_mode_enabled()
        if closed or buffer.used != self.length or end > buffer.key.shape[2]:
            buffer = Buffer(grow(self.key, 2 * end), grow(self.value, 2 * end), self.length)
        buffer.key[:, :, self.length : end] = key
        buffer.value[:, :, self.length : end] = value
        buffer.used = end
        return KeyValues(buffer, end)

    @property
    def key(self) -> Tensor:
        assert self.buffer is not None, "an empty cache has no keys"
        return self.buffer.key[:, :, : self.length]

    @property
    def value(self) -> Tensor:
        assert self.buffer is not None, "an empty cache has no values"
        return self.buffer.value[:, :, : self.length]

    def reorder(self, rows: Tensor) -> KeyValues:
        if self.buffer is None:
            return self
        return KeyValues(
            Buffer(self.key.index_select(0, rows), self.value.index_select(0, rows), self.length),
            self.length,
        )


def grow(taken: Tensor, size: int) -> Tensor:
    larger = taken.new_empty(*taken.shape[:2], size, taken.shape[3])
    larger[:, :, : taken.shape[2]] = taken
    return larger


class State:
    """Decoder state: named tensors (batch first), caches, numbers, or tuples and lists of these. `length` counts tokens.

    >>> from saccade.core import State
    >>> State(length=3).next(length=4).length
    4
    """

    length: int

    def __init__(self, **parts: Any) -> None:
        self.__dict__.update(parts)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"this state has no '{name}'; it has {', '.join(self.__dict__)}")

    def next(self, **changed: Any) -> State:
        """A copy with some parts replaced."""
        return State(**{**self.__dict__, **changed})

    def reorder(self, rows: Tensor) -> State:
        """A state whose row n is row rows[n] of this one. Rows may repeat or be dropped."""
        return State(**{name: reorder(part, rows) for name, part in self.__dict__.items()})


def reorder(part: Any, rows: Tensor) -> Any:
    if isinstance(part, Tensor):
        return part.index_select(0, rows)
    if isinstance(part, tuple | list):
        return type(part)(reorder(one, rows) for one in part)
    return part.reorder(rows) if isinstance(part, Cache | State) else part
