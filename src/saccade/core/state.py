"""What a decoder carries from step to step, and the cache of keys and values in it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class KeyValues:
    """The keys and values seen so far, B H N D and B H N E, in buffers that double when full."""

    def __init__(self, key: Tensor | None = None, value: Tensor | None = None) -> None:
        self._key, self._value = key, value
        self.length = 0 if key is None else key.shape[2]

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Adds to the end; returns all there is."""
        if torch.is_grad_enabled() or self._key is None or self._value is None:  # autograd wants no buffer changed under it
            self._key = key if self._key is None else torch.cat([self._key[:, :, : self.length], key], 2)
            self._value = value if self._value is None else torch.cat([self._value[:, :, : self.length], value], 2)
            self.length = self._key.shape[2]
            return self._key, self._value
        end = self.length + key.shape[2]
        if end > self._key.shape[2]:
            self._key, self._value = grown(self._key, self.length, 2 * end), grown(self._value, self.length, 2 * end)
        self._key[:, :, self.length : end] = key
        self._value[:, :, self.length : end] = value
        self.length = end
        return self._key[:, :, :end], self._value[:, :, :end]

    @property
    def key(self) -> Tensor:
        assert self._key is not None
        return self._key[:, :, : self.length]

    @property
    def value(self) -> Tensor:
        assert self._value is not None
        return self._value[:, :, : self.length]

    def reorder(self, rows: Tensor) -> KeyValues:
        return KeyValues() if self._key is None else KeyValues(self.key.index_select(0, rows), self.value.index_select(0, rows))


def grown(buffer: Tensor, used: int, size: int) -> Tensor:
    larger = buffer.new_empty(*buffer.shape[:2], size, buffer.shape[3])
    larger[:, :, :used] = buffer[:, :, :used]
    return larger


class State:
    """Named parts, each a tensor with the batch first, a `KeyValues`, a number, or tuples and lists of these."""

    def __init__(self, **parts: Any) -> None:
        self.__dict__.update(parts)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"this state has no '{name}'; it has {', '.join(self.__dict__)}")

    def next(self, **changed: Any) -> State:
        """The same state with some parts replaced."""
        return State(**{**self.__dict__, **changed})

    def reorder(self, rows: Tensor) -> State:
        """Row n of the new state is row rows[n] of this one: rows may repeat, move and be left out."""
        return State(**{name: picked(part, rows) for name, part in self.__dict__.items()})


def picked(part: Any, rows: Tensor) -> Any:
    if isinstance(part, Tensor):
        return part.index_select(0, rows)
    if isinstance(part, KeyValues | State):
        return part.reorder(rows)
    if isinstance(part, tuple | list):
        return type(part)(picked(one, rows) for one in part)
    return part
